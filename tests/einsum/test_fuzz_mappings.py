"""Random mappings: a kernel that keeps one is right; what no kernel keeps is refused by an error of ours."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

import nkilab.einsum
from nkilab.einsum.checks.engines import INSTRUCTIONS
from nkilab.einsum.language.ast import Cascade, Einsum
from nkilab.einsum.language.text import yaml_of
from nkilab.errors import NkilabError
from tests.einsum.mapped import SCALED_SUM
from tests.einsum.specs import PRODUCT, SUMS
from tests.einsum.test_fuzz import assert_right, cascades
from tests.einsum.test_mapped import text_of
from tests.examples import examples

DIALECTS = st.sampled_from(["nki", "neuronxcc"])
EXTENTS = (1, 2, 3, 5, 64, 127, 128, 130, 256, 300)
PARTS = (1, 2, 3, 4, 5, 32, 64, 100, 127, 128, 256)
ENTRIES = (("mapping", "loop-order"), ("mapping", "partitioning"), ("mapping", "spacetime"),
           ("binding", "engine"), ("binding", "tensor"), ("binding", "fusion"))  # fmt: skip


def need_right(text: str, dialect: str, seed: int) -> bool:
    """Compile a specification and compare it on whole numbers; False if it is refused.

    Raises:
        AssertionError: if values differ, or a fault of ours stopped the compiler.
    """
    try:
        kernel = nkilab.einsum.compile(text, dialect=dialect)
    except NkilabError as error:
        if "a fault of nkilab" in str(error):
            raise
        return False
    assert_right(kernel, seed)
    return True


def parts_of(rank: str, sizes: tuple[int, ...]) -> list[str]:
    """Names of the parts of a rank, the outermost first."""
    return [f"{rank}{n}" for n in range(len(sizes), -1, -1)] if sizes else [rank]


def instructions_of(einsum: Einsum) -> list[str]:
    """Instructions that the words allow; now and then there is none."""
    return [
        name for name, row in INSTRUCTIONS.items()
        if row.operands == len(einsum.reads) and row.is_map == bool(einsum.map_op)
        and row.is_sum == bool(einsum.reduce_op)
    ]  # fmt: skip


@st.composite
def mappings(draw: st.DrawFn, cascade: Cascade) -> dict[str, Any]:
    """Splits, loop orders, space, instructions, layouts and shared loops, for some of the Einsums each."""
    ranks = sorted({r for t in cascade.tensors.values() for r in t.ranks})
    cuts = {
        r: tuple(sorted(draw(st.lists(st.sampled_from(PARTS), max_size=2, unique=True)), reverse=True))
        for r in ranks
    }
    document: dict[str, Any] = {"mapping": {}, "binding": {}}
    partitioning, orders, space = {}, {}, {}
    engines, tensors = [], []
    split: dict[str, dict[str, tuple[int, ...]]] = {}
    for einsum in cascade.einsums:
        own = list(dict.fromkeys(v.upper() for v in einsum.variables))
        split[einsum.name] = {r: cuts[r] for r in own if cuts[r] and draw(st.booleans())}
        names = [n for r in own for n in parts_of(r, split[einsum.name].get(r, ()))]
        if split[einsum.name]:
            partitioning[einsum.name] = {
                r: [f"uniform_shape({s})" for s in sizes] for r, sizes in split[einsum.name].items()
            }
        if draw(st.booleans()):
            orders[einsum.name] = draw(st.permutations(names))
        if names and draw(st.integers(0, 3)) == 0:
            lanes = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
            space[einsum.name] = {"space": lanes, "time": [n for n in names if n not in lanes]}
        fitting = instructions_of(einsum)
        if fitting and draw(st.integers(0, 2)) == 0:
            name = draw(st.sampled_from(fitting))
            engines.append(
                {"einsum": einsum.name, "instruction": name,
                 "component": draw(st.sampled_from(INSTRUCTIONS[name].engines))}
            )  # fmt: skip
        tensor = cascade.tensors[einsum.name]
        if tensor.ranks and draw(st.integers(0, 2)) == 0:
            places = [n for r in tensor.ranks for n in parts_of(r, split[einsum.name].get(r, ()))]
            lane = draw(st.sampled_from(places))
            where = draw(st.sampled_from(["SBUF", "SBUF", "PSUM"]))
            rest = [n for n in draw(st.permutations(places)) if n != lane]
            loops = draw(st.integers(0, len(rest)))
            tensors.append(
                {"name": einsum.name, "einsum": einsum.name, "component": where, "constructor": "empty",
                 "ranks": {"unbound": rest[:loops], "partition": [lane], "free": rest[loops:]}}
            )  # fmt: skip
    shared = [
        [a.name, b.name]
        for a, b in zip(cascade.einsums, cascade.einsums[1:], strict=False)
        if draw(st.booleans())
    ]
    fusion = []
    for pair in shared:
        common = [
            n for n in (p for r in ranks for p in parts_of(r, split[pair[0]].get(r, ())))
            if all(n in [p for r in ranks for p in parts_of(r, split[e].get(r, ()))] for e in pair)
        ]  # fmt: skip
        if common:
            rank = draw(st.sampled_from(common))
            fusion.append({"einsums": pair, "ranks": [[f"{e}.{rank}" for e in pair]]})
    kinds = (("mapping", "partitioning", partitioning), ("mapping", "loop-order", orders),
             ("mapping", "spacetime", space), ("binding", "engine", engines),
             ("binding", "tensor", tensors), ("binding", "fusion", fusion))  # fmt: skip
    for section, key, value in kinds:
        if value and draw(st.integers(0, 3)):
            document[section][key] = value
    return {key: value for key, value in document.items() if value}


@st.composite
def mapped_cascades(draw: st.DrawFn) -> str:
    """A random cascade under a random mapping, as text."""
    cascade, sizes = draw(cascades())
    used = {r for t in cascade.tensors.values() for r in t.ranks}
    cascade = replace(cascade, sizes={r: n for r, n in sizes.items() if r in used})
    document = YAML(typ="safe").load(yaml_of(cascade, {}, "random"))
    return text_of({**document, **draw(mappings(cascade))})


@st.composite
def changed_mappings(draw: st.DrawFn) -> str:
    """A whole mapping of our own with other extents, without some of its entries, with others changed."""
    document = YAML(typ="safe").load(draw(st.sampled_from([SCALED_SUM, PRODUCT, SUMS])))
    ranks = sorted({r for axes in document["einsum"]["declaration"].values() for r in axes})
    shape = document["einsum"]["shape"]
    for rank in ranks:
        if rank not in shape or draw(st.booleans()):
            shape[rank] = draw(st.sampled_from(EXTENTS))
    for section, key in ENTRIES:
        entries = document[section].get(key)
        if entries is None:
            continue
        if draw(st.integers(0, 5)) == 0:
            del document[section][key]
            continue
        for name in list(entries) if isinstance(entries, dict) else range(len(entries) - 1, -1, -1):
            if draw(st.integers(0, 9)) == 0:
                del entries[name]
            elif key == "loop-order" and draw(st.integers(0, 5)) == 0:
                entries[name] = draw(st.permutations(entries[name]))
            elif key == "partitioning" and draw(st.integers(0, 3)) == 0:
                for rank, steps in entries[name].items():
                    size = draw(st.sampled_from(PARTS))
                    entries[name][rank] = [f"uniform_shape({size})" for _ in steps]
    return text_of(document)


@settings(max_examples=examples(40), deadline=None)
@given(mapped_cascades(), DIALECTS, st.integers(0, 3))
def test_a_random_cascade_under_a_random_mapping_is_right_or_refused(
    text: str, dialect: str, seed: int
) -> None:
    need_right(text, dialect, seed)


def test_a_whole_mapping_of_extents_of_one_is_right() -> None:
    # axes of one element are left out of tiles and of what a kernel takes
    document = YAML(typ="safe").load(SUMS)
    document["einsum"]["shape"] = {"R": 3, "M": 1, "G": 1, "N": 1}
    del document["mapping"]["partitioning"], document["mapping"]["loop-order"]["CS"]
    for dialect in ("nki", "neuronxcc"):
        assert need_right(text_of(document), dialect, 0)


@settings(max_examples=examples(10), deadline=None)
@given(changed_mappings(), DIALECTS, st.integers(0, 3))
def test_a_whole_mapping_that_was_changed_is_right_or_refused(text: str, dialect: str, seed: int) -> None:
    need_right(text, dialect, seed)
