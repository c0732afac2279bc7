"""Partial mappings that a plan keeps: as fast as a plan where what is given permits, and never changed."""

from __future__ import annotations

import re
from typing import Any

import pytest

import nkilab.einsum
from nkilab.einsum.plan.given import Part, Turn, is_in_order, lies_within
from nkilab.errors import SpecError, UsageError
from tests.einsum.numbers import numbers_of
from tests.einsum.specs import PRODUCT
from tests.einsum.test_mapped_forms import spec, split

ATTENTION = {
    "ranks": "Q: B H E; K: B S H E; V: B S H E; A: B H S; G: B H; N: B H S; D: B H; O: B H E; Z: B H E",
    "expressions": [
        "A[b, h, s] = Q[b, h, e] . K[b, s, h, e] ;; M mul V add", "G[b, h] = A[b, h, s] ;; V max",
        "N[b, h, s] = A[b, h, s] . G[b, h] ;; M binary(subtract_exp)", "D[b, h] = N[b, h, s] ;; V add",
        "O[b, h, e] = N[b, h, s] . V[b, s, h, e] ;; M mul V add",
        "Z[b, h, e] = O[b, h, e] . D[b, h] ;; M binary(divide)",
    ],
    "shape": {"B": 2, "H": 3, "E": 64, "S": 256},
}  # fmt: skip
SOFTMAX = {
    "ranks": "X: M N; G: M; E: M N; D: M; R: M; Z: M N",
    "expressions": [
        "G[m] = X[m, n] ;; V max", "E[m, n] = X[m, n] . G[m] ;; M binary(subtract_exp)",
        "D[m] = E[m, n] ;; V add", "R[m] = D[m] ;; M unary(reciprocal)", "Z[m, n] = E[m, n] . R[m] ;; M mul",
    ],
    "shape": {"M": 256, "N": 1000},
}  # fmt: skip
STATE: dict[str, Any] = {
    "ranks": "X: T M; S: T1 M; Y: T M",
    "expressions": [
        "S[0, m] = const(0)",
        {"iterate": "t", "body": ["Y[t, m] = S[t, m] . X[t, m] ;; M add",
                                  "S[t+1, m] = Y[t, m] ;; M unary(tanh)"]},
    ],
    "shape": {"T": 5, "T1": 6, "M": 300},
}  # fmt: skip


def compiled(document: dict[str, Any], **parts: Any) -> Any:
    return nkilab.einsum.compile(spec(document["ranks"], document["expressions"], document["shape"], **parts))


def loops(source: str) -> list[tuple[str, int]]:
    """Loops by their variable and depth."""
    return [(name, len(pad) // 4) for pad, name in re.findall(r"^( *)for (\w+) in", source, re.M)]


def test_one_given_split_leaves_attention_as_fast_as_without() -> None:
    kernel, plain = compiled(ATTENTION, mapping=split("A", S=128)), compiled(ATTENTION)
    assert kernel.changes[0] == "completed: by a plan that keeps all that is given"
    # one element after the other it took eleven times as long
    assert kernel.estimate.latency_us <= 1.1 * plain.estimate.latency_us
    assert all(v.is_fine for v in kernel.verify())


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        # 250 divides 1000, and no instruction goes beyond one part of 250 columns
        (split("Z", N=250), r"Z\[.*nl\.ds\(n \* 250, 250\)\]"),
        # four tiles of 64 rows instead of two of 128
        (split("E", M=64), r"for m in range\(4\)"),
        # columns on the partitions: 1000 are seven tiles of 128 and one of 104
        ({"spacetime": {"Z": {"space": ["N"], "time": ["M"]}}}, r"min\(128, 1000 - n \* 128\)"),
    ],
    ids=["columns", "rows", "space"],
)
def test_what_is_given_of_a_softmax_is_in_the_kernel(parts: dict[str, Any], expected: str) -> None:
    kernel = compiled(SOFTMAX, mapping=parts)
    assert kernel.changes[0] == "completed: by a plan that keeps all that is given"
    assert re.search(expected, numbers_of(kernel))
    assert all(v.is_fine for v in kernel.verify())


def test_an_instruction_that_is_given_is_that_of_the_kernel() -> None:
    def engine(component: str, instruction: str) -> dict[str, Any]:
        return {"engine": [{"einsum": "R", "component": component, "instruction": instruction}]}

    # the rules take reciprocal of VectorE
    assert "nisa.reciprocal(" in compiled(SOFTMAX).source
    kernel = compiled(SOFTMAX, binding=engine("ScalarEngine", "Activation"))
    assert "nisa.reciprocal(" not in kernel.source
    assert re.search(r"activation\([^)]*op=nl\.reciprocal", kernel.source.replace("\n", " "))
    assert all(v.is_fine for v in kernel.verify())


def test_a_loop_that_two_einsums_are_given_is_one_loop() -> None:
    kernel = compiled(SOFTMAX, binding={"fusion": [{"ranks": [["G.M", "Z.M"]]}]})
    assert [name for name, _ in loops(kernel.source)].count("m") == 1


def test_a_tile_that_is_placed_is_made() -> None:
    place = {"name": "E", "einsum": "E", "component": "SBUF", "constructor": "empty",
             "ranks": {"unbound": ["M1"], "partition": ["M0"], "free": ["N"]}}  # fmt: skip
    kernel = compiled(SOFTMAX, mapping=split("E", M=128), binding={"tensor": [place]})
    assert re.search(r"\n {8}e_tile = nl\.ndarray\(\(128, 1000\)", numbers_of(kernel))
    assert all(v.is_fine for v in kernel.verify())


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (split("Y", M=64), [("m", 1), ("t", 2)]),
        ({"loop-order": {"Y": ["M", "T"]}}, [("m", 1), ("t", 2)]),
        # S is written before the block too: what is given holds for both
        (split("S", M=32), [("m", 1), ("t", 2)]),
    ],
    ids=["split", "order", "written twice"],
)
def test_a_mapping_of_an_einsum_in_turns_is_kept(
    parts: dict[str, Any], expected: list[tuple[str, int]]
) -> None:
    kernel = compiled(STATE, mapping=parts, options={"cascade-outputs": ["Y"]})
    assert [header for header in loops(kernel.source) if header in expected] == expected
    assert all(v.is_fine for v in kernel.verify())


def test_a_mapping_of_what_reads_no_tensor_or_writes_at_other_indices_is_kept() -> None:
    text = spec("X: T M; Z: U M", ["Z[0, m] = X[t, m] ;; V add", "Z[1, m] = const(2)"],
                {"T": 3, "M": 300, "U": 2}, mapping=split("Z", M=100))  # fmt: skip
    kernel = nkilab.einsum.compile(text)
    assert numbers_of(kernel).count("range(3)") >= 1
    assert all(v.is_fine for v in kernel.verify())


def test_a_search_beside_a_mapping_keeps_what_is_given() -> None:
    text = spec(SOFTMAX["ranks"], SOFTMAX["expressions"], SOFTMAX["shape"], mapping=split("Z", N=250))  # type: ignore[arg-type]
    kernel, compiled = nkilab.einsum.compile(text), nkilab.einsum.compile(text, search=0.05)
    assert compiled.estimate.latency_us <= kernel.estimate.latency_us
    assert "n * 250" in numbers_of(compiled)
    assert compiled.changes[-1].startswith("searched ")


def test_a_search_is_refused_beside_a_mapping_that_leaves_nothing_open() -> None:
    with pytest.raises(UsageError, match="search is given with a mapping, which decides"):
        nkilab.einsum.compile(PRODUCT, search=1)
    # 256 is no multiple of 100: no plan has such tiles, and rules complete it in one way
    text = spec("A: M; Z: M", ["Z[m] = A[m] ;; M unary(exp)"], {"M": 300}, mapping=split("Z", M=[256, 100]))
    with pytest.raises(UsageError, match="followed by one kernel, not by plans: nothing is left to try"):
        nkilab.einsum.compile(text, search=1)


@pytest.mark.parametrize(
    ("blocks", "covers", "sizes", "is_within"),
    [
        # 128 at multiples of 128 stay within parts of 512, of 64 they do not
        ([128], 128, [512], True), ([128], 128, [64], False),
        # one statement over all 1000 crosses from part to part of 250
        ([], 1000, [250], False), ([250], 250, [250], True),
        # 600 in tiles of 128 from its own beginning; without the loop over 600 the fifth tile crosses
        ([600, 128], 128, [600], True), ([128], 128, [600], False),
        # 300 is no multiple of 128: tiles of 128 from the beginning of the rank cross at 300
        ([512, 128], 128, [512, 128], True), ([128], 128, [600, 256], False),
    ],
)  # fmt: skip
def test_a_tile_lies_within_the_parts(
    blocks: list[int], covers: int, sizes: list[int], is_within: bool
) -> None:
    assert lies_within(blocks, covers, sizes) == is_within


@pytest.mark.parametrize(
    ("turns", "is_kept"),
    [
        (["m1", "n1"], True),
        (["n1", "m1"], False),
        # a second loop over M inside of that over N
        (["m4", "n1", "m1"], False),
        (["m4", "m1", "n1"], True),
        (["n1"], True),
    ],
)
def test_loops_stand_in_the_order_of_the_ranks(turns: list[str], is_kept: bool) -> None:
    order = [Part("m", 1, 16), Part("n", 1, 16)]
    nest = [Turn(t[0], int(t[1:])) for t in turns]
    assert is_in_order(order, nest, {"m": 16, "n": 16}) == is_kept


def test_a_part_between_the_parts_of_another_rank_keeps_its_place() -> None:
    # the order M1, N, M0 with M0 of 4
    order = [Part("m", 4, 16), Part("n", 1, 16), Part("m", 1, 4)]
    extents = {"m": 16, "n": 16}
    assert is_in_order(order, [Turn("m", 4), Turn("n", 1), Turn("m", 1)], extents)
    assert not is_in_order(order, [Turn("m", 1), Turn("n", 1)], extents)


DOCSTRING = '''"""A kernel for the tutorial.

Note: it adds up.

einsum:
  declaration: {A: [M, N], Z: [M]}

  expressions:
    - Z[m] = A[m, n] ;; V add
  shape: {M: 4, N: 4}

mapping:
  partitioning: {Z: {M: [uniform_shape(2)]}}

Returns:
    Z, in HBM.
"""
'''


def test_prose_stands_above_and_below_a_specification_in_a_docstring(tmp_path: Any) -> None:
    path = tmp_path / "spec.py"
    path.write_text(DOCSTRING)
    kernel = nkilab.einsum.compile(path)
    assert kernel.spec.partitioning == {"Z": {"M": (2,)}}
    assert nkilab.einsum.compile(DOCSTRING.strip('"\n')).source == kernel.source


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        # places are those of the file
        ("V add", "V sum", "spec.py:9:27: einsum.expressions[0]: sum is no operator"),
        # a key that is misspelt is no prose
        ("mapping:", "maping:", "spec.py:12:1: maping: maping is no key here"),
        # prose that nothing sets apart is read
        ("\n\nReturns:", "\nReturns:", "spec.py:14:1: Returns: Returns is no key here"),
    ],
)
def test_places_in_a_docstring_with_prose_are_those_of_the_file(
    old: str, new: str, message: str, tmp_path: Any
) -> None:
    path = tmp_path / "spec.py"
    path.write_text(DOCSTRING.replace(old, new))
    with pytest.raises(SpecError) as refused:
        nkilab.einsum.compile(path)
    assert message in str(refused.value)


def test_an_anchor_is_refused_though_nothing_refers_to_it() -> None:
    text = DOCSTRING.strip('"\n').replace("shape: {", "shape: &sizes {")
    with pytest.raises(SpecError, match="the anchor &sizes is refused; nothing may refer to it"):
        nkilab.einsum.compile(text)
