"""Search over choices, and outputs that may lie either way round."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import pytest

import nkilab.einsum
from nkilab.einsum.emit.nki import NkiPrinter
from nkilab.einsum.language.extents import sized
from nkilab.einsum.language.forms import spec_from
from nkilab.einsum.plan.context import Plan, PlanError
from nkilab.einsum.plan.knobs import RULES, Knobs
from nkilab.einsum.plan.lower import lower
from nkilab.einsum.prove import prove
from nkilab.einsum.search import (
    PlanObjective,
    Plans,
    Search,
    changes_of,
    joined,
    knobs_of,
    point_of,
    searched,
)
from nkilab.errors import UnsupportedError
from nkilab.machine import machine_named
from nkilab.tune.outcome import TIMED, Outcome
from nkilab.tune.space import Point
from tests.command_line import call, outcome_of

CHOICES = """
T[m, n] = A[m, k] . B[k, n] ;; M mul V add
G[m] = T[m, n] ;; V max
Z[m, n] = T[m, n] . G[m] ;; M binary(subtract)
"""
PRODUCT = "Z[m, n] = A[k, m] . B[k, n] ;; M mul V add"
TURN = "Z[n, m] = A[m, n] ;; M unary(exp)"


def test_an_output_in_any_layout_takes_the_cheaper_one_and_calls_turn_it_back() -> None:
    spec = replace(spec_from(TURN), any_layout=frozenset({"Z"}))
    sizes = {"M": 1024, "N": 1024}
    free, fixed = nkilab.einsum.compile(spec, sizes=sizes), nkilab.einsum.compile(TURN, sizes=sizes)
    assert free.transposed == {"Z"}
    assert free.estimate.latency_us < fixed.estimate.latency_us
    assert free.changes[-1].endswith("taken: transposed, and the host transposes back")
    a = np.random.default_rng(0).standard_normal((1024, 1024))
    # one rounding of the input, one of the function, to float32
    np.testing.assert_allclose(free(a), np.exp(a).T, rtol=1e-6)
    assert not [str(v) for v in free.verify() if not v.is_fine]


def test_a_search_tells_its_gain_and_finds_nothing_slower_than_the_rules() -> None:
    sizes = {"I": 512, "J": 512, "K": 512}
    kernel = nkilab.einsum.compile("ij,jk->ik", sizes=sizes, search=0.5)
    rules = nkilab.einsum.compile("ij,jk->ik", sizes=sizes)
    gain = rules.estimate.latency_us / kernel.estimate.latency_us
    assert gain >= 1
    assert any(line.startswith("by the rules: ") for line in kernel.alternatives)
    assert kernel.changes[-1].startswith("searched ")
    assert f"{gain:.2f} times as fast as by the rules" in kernel.changes[-1]
    assert not [str(v) for v in kernel.verify() if not v.is_fine]


def test_every_choice_of_a_plan_gives_a_right_kernel_or_none() -> None:
    cascade = sized(spec_from(CHOICES).cascade, {"M": 140, "N": 150, "K": 130})
    types = dict.fromkeys(cascade.tensors, "float32")
    trn2 = machine_named("trn2")
    _, ctx = lower(cascade, types, trn2, "kernel")
    assert {p.what.split()[0] for p in ctx.decisions} >= {"the", "how"}
    a, b = (np.random.default_rng(0).standard_normal(s) for s in ((140, 130), (130, 150)))
    right = a @ b - (a @ b).max(1, keepdims=True)
    rules = nkilab.einsum.compile(CHOICES, sizes=dict(cascade.sizes))
    tried = 0
    for decision in ctx.decisions:
        for _, knobs in decision.others(2):
            try:
                kernel, _ = lower(cascade, types, trn2, "kernel", "", knobs)
                prove(kernel, trn2)
            except (UnsupportedError, AssertionError):
                continue
            other = replace(rules, source=NkiPrinter(kernel).text(), tree=kernel)
            # float32 sums of 130 products
            np.testing.assert_allclose(other(a, b), right, rtol=0, atol=1e-4 * np.abs(right).max())
            tried += 1
    assert tried >= 5


def test_a_sum_that_is_cut_is_whole_where_it_stays_in_psum() -> None:
    # the blocks of T's sum once overwrote one another where T stays in PSUM
    cascade = sized(spec_from(CHOICES).cascade, {"M": 140, "N": 150, "K": 260})
    trn2 = machine_named("trn2")
    types = dict.fromkeys(cascade.tensors, "float32")
    _, ctx = lower(cascade, types, trn2, "kernel")
    (blocks,) = (d for d in ctx.decisions if d.what.startswith("blocks of T"))
    knobs = Knobs().picking(blocks.key, len(blocks.options) - 1)
    kernel, lowered = lower(cascade, types, trn2, "kernel", "", knobs)
    (taken,) = (d.taken for d in lowered.decisions if d.key == blocks.key)
    assert taken.endswith("x 128")
    rules = nkilab.einsum.compile(CHOICES, sizes=dict(cascade.sizes))
    other = replace(rules, source=NkiPrinter(kernel).text(), tree=kernel)
    a, b = (np.random.default_rng(0).standard_normal(s) for s in ((140, 260), (260, 150)))
    t = a @ b
    wanted = t - t.max(1, keepdims=True)
    np.testing.assert_allclose(other(a, b), wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())


def test_what_all_partitions_have_is_read_once() -> None:
    kernel = nkilab.einsum.compile("Z[m, n] = A[m] . B[n] ;; M mul", sizes={"M": 1024, "N": 8192})
    # A, and B on all partitions: 4 KiB and 128 x 32 KiB, not 32 KiB more for each of eight blocks of rows
    assert kernel.estimate.summary["hbm_read_bytes"] == 4 * 1024 + 128 * 4 * 8192
    a, b = (np.random.default_rng(0).standard_normal(s).astype(np.float32) for s in (1024, 8192))
    np.testing.assert_allclose(kernel(a, b), np.outer(a, b), rtol=1e-6)


def test_a_search_reads_no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    # a clock that stopped a search on a busy machine once made it find another kernel
    sizes, text = {"M": 256, "N": 256, "K": 256}, "Z[m, n] = A[m, k] . B[k, n] ;; M mul V add"
    first = nkilab.einsum.compile(text, sizes=sizes, search=0.1)
    slow = count(step=1000)
    for name in ("monotonic", "perf_counter", "time", "process_time"):
        monkeypatch.setattr(time, name, lambda: float(next(slow)))
    second = nkilab.einsum.compile(text, sizes=sizes, search=0.1)
    assert (first.source, first.alternatives, first.changes) == (
        second.source,
        second.alternatives,
        second.changes,
    )
    # 40,000 statements a second
    assert "; work of 4,000 statements, whatever the clock says: its work was spent" in first.changes[-1]


@pytest.mark.parametrize(("others", "best"), [(1.5, 1.0), (0.5, 0.5)])
def test_a_search_keeps_the_kernel_of_the_rules_where_no_other_is_predicted_faster(
    others: float, best: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = nkilab.einsum.compile(PRODUCT, sizes={"K": 512, "M": 512, "N": 512})
    times = partial(next, iter([1.0]), others)

    def judged(_: PlanObjective, point: Point) -> Outcome:
        return Outcome(point, TIMED, {"latency": times()})

    monkeypatch.setattr(PlanObjective, "evaluate", judged)
    result = searched(Plans(rules), Search(0.5))
    # by hand: the rules are judged first, at 1 us, and others as many times faster as they are shorter
    assert f", {1 / best:.2f} times as fast as by the rules; taken: " in result.changes[-1]
    assert ("taken: by the rules;" in result.changes[-1]) == (best == 1.0)
    assert len(result.alternatives) > 1


def test_a_choice_that_ends_in_an_error_of_a_library_is_told_and_the_search_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rules = nkilab.einsum.compile(PRODUCT, sizes={"K": 512, "M": 512, "N": 512})
    compiled = PlanObjective._compiled

    def broken(self: PlanObjective, knobs: Knobs) -> object:
        if knobs != rules.knobs:
            raise RuntimeError("a set cannot be read")
        return compiled(self, knobs)

    monkeypatch.setattr(PlanObjective, "_compiled", broken)
    assert "by a fault of nkilab" in searched(Plans(rules), Search(0.5)).changes[-1]


@pytest.mark.corpus(drawn=False)
def test_two_workers_find_the_same_kernel() -> None:
    sizes = {"K": 256, "M": 256, "N": 512}
    one = nkilab.einsum.compile(PRODUCT, sizes=sizes, search=0.4)
    both = nkilab.einsum.compile(PRODUCT, sizes=sizes, search=Search(0.4, "2"))
    assert (both.source, both.changes, both.alternatives) == (
        one.source,
        one.changes,
        one.alternatives,
    )


def test_a_search_goes_on_where_choices_give_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    built = Plans.built

    def refused(self: Plans, knobs: Knobs) -> Plan:
        if knobs != self.rules.knobs:
            raise PlanError(AssertionError("no nest goes on"), ())
        return built(self, knobs)

    monkeypatch.setattr(Plans, "built", refused)
    sizes = {"K": 256, "M": 256, "N": 512}
    rules, best = (nkilab.einsum.compile(PRODUCT, sizes=sizes, search=budget) for budget in (0, 0.3))
    assert best.source == rules.source
    assert re.search(r"; [1-9]\d* choices gave no kernel", best.changes[-1])


@pytest.mark.corpus(drawn=False)
def test_a_search_that_is_interrupted_goes_on_from_its_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, journal = {"K": 256, "M": 256, "N": 512}, tmp_path / "journal"
    whole = nkilab.einsum.compile(PRODUCT, sizes=sizes, search=0.5)
    evaluate, judged = PlanObjective.evaluate, list[Point]()

    def interrupted(self: PlanObjective, point: Point) -> Outcome:
        judged.append(point)
        if len(judged) == 7:
            raise KeyboardInterrupt
        return evaluate(self, point)

    monkeypatch.setattr(PlanObjective, "evaluate", interrupted)
    with pytest.raises(
        KeyboardInterrupt, match=r"interrupted after 6 of .*\n.*the same command goes on from there"
    ):
        nkilab.einsum.compile(PRODUCT, sizes=sizes, search=Search(0.5, journal=str(journal)))
    first, judged[:] = judged[:6], [{}] * 10
    again = nkilab.einsum.compile(PRODUCT, sizes=sizes, search=Search(0.5, journal=str(journal)))
    assert (again.source, again.changes, again.alternatives) == (
        whole.source,
        whole.changes,
        whole.alternatives,
    )
    assert not [point for point in first if point in judged[10:]]


def test_a_search_of_an_output_in_any_layout_begins_with_the_faster_one() -> None:
    spec, sizes = replace(spec_from(TURN), any_layout=frozenset({"Z"})), {"M": 512, "N": 512}
    rules = nkilab.einsum.compile(spec, sizes=sizes)
    best = nkilab.einsum.compile(spec, sizes=sizes, search=0.3)
    assert best.transposed == {"Z"}
    assert best.estimate.latency_us <= rules.estimate.latency_us


def test_points_name_what_is_not_as_by_the_rules() -> None:
    knobs = replace(RULES, share=0.6, is_fused=False).picking(("the layout of A #2", 1), 3)
    point = {"share": 0.6, "is_fused": False, "the layout of A #2 #1": 3}
    assert (point_of(knobs), knobs_of(point)) == (point, knobs)
    assert joined(point, {"share": 0.85, "the layout of A #2 #1": 0}) == {"is_fused": False}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--journal", "j"), "--workers and --journal belong to --search\n  hint: add --search SECONDS"),
        (("--search", "1", "--workers", "0"), "--workers is '0'; it must be a number of processes, or "),
    ],
)
def test_options_of_a_search_are_refused_where_they_mean_nothing(
    options: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, _, complaint = outcome_of(call("einsum", "mk,kn->mn", "--size", "M=64,K=64,N=64", *options))
    assert status == 2
    assert message in complaint


def test_every_option_of_every_choice_is_tried_by_itself() -> None:
    # blocks of a product, whose best by the clock may be judged the eighteenth by its bytes
    rules = nkilab.einsum.compile("mk,kn->mn", sizes={"M": 1000, "K": 700, "N": 1500}, dtypes="bfloat16")
    plans = Plans(rules)
    tried = [{**change} for change in changes_of(plans, point_of(rules.knobs))]
    decisions = plans.built(rules.knobs)[1].decisions
    assert max(len(d.options) for d in decisions) > 8
    wanted = [{f"{d.what} #{d.key[1]}": rank} for d in decisions for rank in range(1, len(d.options))]
    assert [change for change in wanted if change not in tried] == []
