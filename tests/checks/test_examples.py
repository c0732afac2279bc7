"""Each declared rule has an example that breaks it and one that keeps it, and both behave so."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import nkilab
from nkilab.advice import CATALOGUE
from nkilab.arguments import argument, extents
from nkilab.checking import Options, every_launch, filled, report_of
from nkilab.checks.declare import FAMILIES, RULES, Example, Pair, Rule, rule
from nkilab.checks.finding import Finding
from nkilab.checks.report import Report
from nkilab.dialects.history import BETA1, VERSIONS
from nkilab.dialects.kernel import Kernel

pytestmark = pytest.mark.corpus

every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
every_pair = pytest.mark.parametrize(
    ("rule", "pair"),
    [pytest.param(r, p, id=f"{r.id}-{p.wrong.spelling}") for r in RULES.values() for p in r.pairs],
)
# what no kernel can break with our own table; pairs of kernels for transformations are in tests/advice
WITHOUT_EXAMPLE = {"race"}


def reported(example: Example, path: Path) -> Report:
    """The report of an example, run from a file as a user's."""
    path.write_text(example.text)
    options = dict(zip(example.options[::2], example.options[1::2], strict=False))
    with nkilab.activate():
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        kernel: Any = module.kernel
        if "--nki" in options:
            kernel = Kernel(kernel.function, kernel.spelling, options["--nki"], kernel.options, kernel.grid)
        if example.grid:
            kernel = kernel[extents(example.grid)]
        asked = Options(
            options.get("--target", ""), int(options.get("--replay", 0)), "--numerics" in example.options
        )
        args = [argument(a) for a in example.args.values()]
        if "--ranks" in options:
            with every_launch(asked) as reports:
                nkilab.launch(kernel, int(options["--ranks"]))(*(filled(a) for a in args))
            return reports[0]
        return report_of(kernel, args, {}, asked)


def _of_its_kind(rule: Rule, report: Report) -> Sequence[Finding]:
    """What a report tells, advice where the rule is about it."""
    return report.findings if rule.severity == "advice" else report.findings.verdict


@every_pair
def test_the_wrong_example_breaks_its_rule_and_no_other(rule: Rule, pair: Pair, tmp_path: Path) -> None:
    findings = _of_its_kind(rule, reported(pair.wrong, tmp_path / "kernel_file.py"))
    # notes about its version may stand beside it
    assert {f.rule for f in findings if f.fails or f.rule == rule.id} == {rule.id}


@every_pair
def test_the_right_example_keeps_every_rule(rule: Rule, pair: Pair, tmp_path: Path) -> None:
    findings = _of_its_kind(rule, reported(pair.right, tmp_path / "kernel_file.py"))
    # what an example shows need not be read
    assert not [f for f in findings if f.severity != "advice" and not f.rule.startswith("unread-")]
    assert rule.id not in {f.rule for f in findings}


def test_an_example_of_nki_is_written_out_in_the_spelling_of_beta1() -> None:
    example = Example(
        """
tiles: a f32[128,64] sbuf, address=(0, 256) < x; total f32[128,64] psum; out f32[128,64] hbm < a
nisa.memset(a[:, 0:8], 1.0)
for k in range(2):
    nisa.nc_matmul(total, a, a[:, nl.ds(0, 64)], accumulate=k > 0)
nisa.nc_matmul(total, a, a, accumulate=False)
nisa.dma_copy(a, x)  # the end
""",
        {"x": "f32[128,64]"},
    )
    kernel = example.in_beta1.text.partition("def kernel")[2]
    assert (
        kernel
        == """(x):
    a = nl.ndarray((128, 64), nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=256))
    total = nl.ndarray((128, 64), nl.float32, buffer=nl.psum)
    out = nl.ndarray((128, 64), nl.float32, buffer=nl.shared_hbm)
    a[...] = nl.load(x)
    a[:, 0:8] = nisa.memset(a[:, 0:8].shape, 1.0, a[:, 0:8].dtype)
    for k in range(2):
        total[...] += nisa.nc_matmul(a, a[:, nl.ds(0, 64)])
    total[...] = nisa.nc_matmul(a, a)
    nisa.dma_copy(dst=a, src=x)  # the end
    nl.store(out, a)
    return out
"""
    )


def test_a_rule_has_examples_in_both_spellings_or_says_why_one_alone_has_the_mistake() -> None:
    for one in RULES.values():
        spellings = {pair.wrong.spelling for pair in one.pairs}
        assert sorted(spellings) == sorted(pair.right.spelling for pair in one.pairs), one.id
        if not one.pairs:
            assert one.id in WITHOUT_EXAMPLE or one.id in CATALOGUE
        elif one.refusal is not None:
            # which versions refuse it says which spelling has it
            refusing = {v for v in VERSIONS if one.refusal.applies(v, 0)}
            assert spellings == {"neuronxcc" if v == BETA1 else "nki" for v in refusing}, one.id
        needs_reason = one.refusal is None and len(spellings) == 1
        assert bool(one.one_spelling) == needs_reason, one.id


@every_rule
def test_a_rule_says_what_why_and_the_way_out_in_our_style(rule: Rule) -> None:
    for part in (rule.title, rule.what, rule.fix):
        is_name = part.startswith(("Python", "ScalarE", "TensorE", "PSUM", "DMA"))
        assert part[0].islower() or part[0] in "`." or is_name, part
        assert not part.endswith("."), part
    assert rule.family in FAMILIES
    assert rule.id == rule.id.lower()


def test_a_rule_without_a_part_or_with_a_known_name_is_refused() -> None:
    example = Example("return x", {"x": "f32[1,1]"})
    texts = {"title": "t", "what": "w", "why": "y", "fix": "f", "source": "s"}
    with pytest.raises(TypeError, match="rule fresh: source will not do"):
        rule("fresh", "races", "error", **{**texts, "source": ""}, wrong=example, right=example)
    with pytest.raises(TypeError, match="rule spill: its family or identifier will not do"):
        rule("spill", "races", "error", **texts, wrong=example, right=example)
    assert "fresh" not in RULES
