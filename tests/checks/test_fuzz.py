"""Random small kernels in both spellings: values as in NumPy, nothing found, until one fault is planted.

NKILAB_FUZZ=N runs N examples of each; the default is short.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nkilab.checking import Options, report_of
from nkilab.checks.declare import RULES
from nkilab.checks.report import Report
from tests.dialects.spellings import nisa2, nki1, nki2, nl1, nl2
from tests.examples import examples

EXAMPLES = examples(25)
longer = settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
WIDTH, TILES, OUTPUTS = 16, 4, 3


@dataclass(frozen=True)
class Op:
    """One step: what is done, to which tile, from which tiles, by which number.

    `load` reads the input, `store` writes an output; the others write tile `dst`.
    """

    kind: str
    dst: int
    a: int = 0
    b: int = 0
    number: float = 0.0


@st.composite
def programs(draw: Any) -> list[Op]:
    """Steps that read only what was written, and store every output."""
    ops = [Op("load", tile, tile) for tile in range(TILES)]
    numbers = st.sampled_from([2.0, -1.0, 0.5, 3.0])
    tiles = st.integers(0, TILES - 1)
    for _ in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(["load", "scale", "add", "multiply", "copy", "fill"]))
        ops.append(Op(kind, draw(tiles), draw(tiles), draw(tiles), draw(numbers)))
    return [*ops, *(Op("store", output, draw(tiles)) for output in range(OUTPUTS))]


def oracle(ops: list[Op], x: np.ndarray) -> np.ndarray:
    tiles: dict[int, np.ndarray] = {}
    out = np.zeros((OUTPUTS, 128, WIDTH), np.float32)
    for op in ops:
        if op.kind == "store":
            out[op.dst] = tiles[op.a]
        elif op.kind == "load":
            tiles[op.dst] = x[op.a].copy()
        elif op.kind == "fill":
            tiles[op.dst] = np.full((128, WIDTH), op.number, np.float32)
        elif op.kind == "copy":
            tiles[op.dst] = tiles[op.a].copy()
        elif op.kind == "scale":
            tiles[op.dst] = tiles[op.a] * np.float32(op.number)
        else:
            combine = np.add if op.kind == "add" else np.multiply
            tiles[op.dst] = combine(tiles[op.a], tiles[op.b])
    return out


def dst_first(ops: list[Op], addresses: list[int] | None = None) -> Any:
    """The program in `nki`, its tiles at addresses if some are given."""

    def tile(number: int) -> Any:
        where = {} if addresses is None else {"address": (0, addresses[number])}
        return nl2.ndarray((128, WIDTH), nl2.float32, buffer=nl2.sbuf, **where)

    @nki2.jit
    def kernel(x):
        out = nl2.ndarray((OUTPUTS, 128, WIDTH), nl2.float32, buffer=nl2.shared_hbm)
        tiles = []
        for n in range(TILES):
            tiles.append(tile(n))
        for op in ops:
            if op.kind == "load":
                nisa2.dma_copy(tiles[op.dst], x[op.a])
            elif op.kind == "store":
                nisa2.dma_copy(out[op.dst], tiles[op.a])
            elif op.kind == "fill":
                nisa2.memset(tiles[op.dst], op.number)
            elif op.kind == "copy":
                nisa2.tensor_copy(tiles[op.dst], tiles[op.a])
            elif op.kind == "scale":
                nisa2.tensor_scalar(tiles[op.dst], tiles[op.a], op0=nl2.multiply, operand0=op.number)
            else:
                word = nl2.add if op.kind == "add" else nl2.multiply
                nisa2.tensor_tensor(tiles[op.dst], tiles[op.a], tiles[op.b], op=word)
        return out

    return kernel


def value_returning(ops: list[Op]) -> Any:
    """The program in Beta 1."""

    @nki1.jit
    def kernel(x):
        out = nl1.ndarray((OUTPUTS, 128, WIDTH), nl1.float32, buffer=nl1.shared_hbm)
        tiles = []
        for _ in range(TILES):
            tiles.append(nl1.ndarray((128, WIDTH), nl1.float32, buffer=nl1.sbuf))
        for op in ops:
            if op.kind == "load":
                tiles[op.dst][...] = nl1.load(x[op.a])
            elif op.kind == "store":
                nl1.store(out[op.dst], tiles[op.a])
            elif op.kind == "fill":
                tiles[op.dst][...] = op.number
            elif op.kind == "copy":
                tiles[op.dst][...] = nl1.copy(tiles[op.a])
            elif op.kind == "scale":
                tiles[op.dst][...] = nl1.multiply(tiles[op.a], op.number)
            else:
                word = nl1.add if op.kind == "add" else nl1.multiply
                tiles[op.dst][...] = word(tiles[op.a], tiles[op.b])
        return out

    return kernel


X = np.random.default_rng(5).integers(-3, 4, (TILES, 128, WIDTH)).astype(np.float32)
both = pytest.mark.parametrize("spelled", [dst_first, value_returning], ids=["nki", "neuronxcc"])


def checked(kernel: Any, replays: int = 0) -> Report:
    return report_of(kernel, [X], {}, Options(replays=replays))


def rules(report: Report) -> set[str]:
    """What fails, but for the text: kernels that interpret a list of steps are not what front ends parse."""
    return {f.rule for f in report.findings.verdict if f.fails and RULES[f.rule].family != "language"}


@both
@longer
@given(ops=programs())
def test_a_sound_program_computes_as_numpy_and_nothing_is_found(spelled: Any, ops: list[Op]) -> None:
    kernel = spelled(ops)
    with np.errstate(all="ignore"):
        # small whole numbers and halves: exact in float32 until products leave its 24 bits
        np.testing.assert_allclose(kernel(X), oracle(ops, X), rtol=1e-6)
    assert rules(checked(kernel)) == set()


@both
@settings(longer, max_examples=max(5, EXAMPLES // 3))
@given(ops=programs())
def test_a_sound_program_gives_the_same_results_in_every_order(spelled: Any, ops: list[Op]) -> None:
    report = checked(spelled(ops), replays=5)
    assert rules(report) == set()
    assert not any(one["differing_elements"] for one in report.replays)


@both
@longer
@given(ops=programs(), data=st.data())
def test_a_load_that_is_left_out_is_found(spelled: Any, ops: list[Op], data: Any) -> None:
    without = data.draw(st.integers(0, TILES - 1))
    planted = [op for at, op in enumerate(ops) if at != without]
    needed = _needs_first_load(ops, without)
    assert ("unwritten-read" in rules(checked(spelled(planted)))) == needed


def _needs_first_load(ops: list[Op], tile: int) -> bool:
    """Whether a step reads a tile before another one writes it."""
    for op in ops[TILES:]:
        reads = {
            "scale": (op.a,),
            "copy": (op.a,),
            "store": (op.a,),
            "add": (op.a, op.b),
            "multiply": (op.a, op.b),
        }
        if tile in reads.get(op.kind, ()):
            return True
        if op.kind != "store" and op.dst == tile:
            return False
    return False


@both
@longer
@given(ops=programs(), data=st.data())
def test_an_output_that_is_left_out_is_found(spelled: Any, ops: list[Op], data: Any) -> None:
    without = data.draw(st.integers(0, OUTPUTS - 1))
    planted = [op for op in ops if op.kind != "store" or op.dst != without]
    assert rules(checked(spelled(planted))) == {"unwritten-output"}


@longer
@given(ops=programs(), data=st.data())
def test_two_tiles_at_one_address_are_found(ops: list[Op], data: Any) -> None:
    apart = [n * WIDTH * 4 for n in range(TILES)]
    assert rules(checked(dst_first(ops, apart))) == set()
    one, other = data.draw(st.permutations(range(TILES)))[:2]
    together = [apart[one] if n == other else apart[n] for n in range(TILES)]
    # every tile is loaded at the start, the second of the two over the first
    rules_broken = rules(checked(dst_first(ops, together)))
    assert rules_broken <= {"lifetime-conflict"}
    assert ("lifetime-conflict" in rules_broken) == _is_destroyed(ops, one, other)


def _is_destroyed(ops: list[Op], one: int, other: int) -> bool:
    """Whether a step reads one of two tiles that share bytes after the other one was written."""
    last = -1
    written: set[int] = set()
    for op in ops:
        reads = {
            "scale": (op.a,),
            "copy": (op.a,),
            "store": (op.a,),
            "add": (op.a, op.b),
            "multiply": (op.a, op.b),
        }
        for tile in reads.get(op.kind, ()):
            if tile in (one, other) and tile in written and last != tile:
                return True
        if op.kind != "store" and op.dst in (one, other):
            last = op.dst
            written.add(op.dst)
    return False


# places of an iteration, as functions of its number
PLACES = {"i": lambda i: i, "0": lambda i: 0, "i // 2": lambda i: i // 2, "3 - i": lambda i: 3 - i}


@longer
@given(data=st.data())
def test_what_affine_iterations_carry_is_found_and_nothing_else(data: Any) -> None:
    """Each iteration loads one place of a tensor, or the input, and stores to another place."""
    writes = data.draw(st.sampled_from(list(PLACES)))
    reads = data.draw(st.sampled_from([None, *PLACES]))
    kind = data.draw(st.sampled_from(["affine_range", "sequential_range", "static_range"]))
    place, source = PLACES[writes], PLACES.get(reads or "")

    @nki1.jit
    def kernel(x):
        out = nl1.ndarray((4, 128, WIDTH), nl1.float32, buffer=nl1.shared_hbm)
        for i in nl1.static_range(4):
            nl1.store(out[i], nl1.load(x[i]))
        for i in getattr(nl1, kind)(4):
            tile = nl1.load(x[i] if source is None else out[source(i)])
            nl1.store(out[place(i)], nl1.add(tile, 1.0))
        return out

    steps = [place(i) for i in range(4)], None if source is None else [source(i) for i in range(4)]
    wanted = _carried(*steps) if kind == "affine_range" else _lost(*steps)
    assert rules(checked(kernel)) == wanted


def _lost(writes: list[int], reads: list[int] | None) -> set[str]:
    """The rule that iterations in order break which write and read these places: what one stores is lost."""
    # per place how often one was added to which block of x, the iterations that did so, and the last of them
    state = {place: (place, 0, frozenset[int](), -1) for place in range(4)}
    unread: set[int] = set()
    for step, place in enumerate(writes):
        block, added, by, last = (step, 0, frozenset[int](), -1) if reads is None else state[reads[step]]
        unread.discard(last)
        before = state[place]
        if before[3] in unread and before[3] not in by and before[:2] != (block, added + 1):
            return {"overwritten-result"}
        state[place] = (block, added + 1, by | {step}, step)
        unread.add(step)
    return set()


def _carried(writes: list[int], reads: list[int] | None) -> set[str]:
    """The rules that iterations break which write and read these places, in this order."""
    rules_broken = set()
    for later in range(4):
        for earlier in range(later):
            # what a write in between covers is that one's
            between = writes[earlier + 1 : later]
            if reads is not None and reads[later] == writes[earlier] and writes[earlier] not in between:
                rules_broken.add("affine-carried")
            if writes[later] == writes[earlier] and writes[earlier] not in between:
                rules_broken.add("affine-output")
    overwritten = reads is not None and any(
        writes[later] == reads[earlier] for later in range(4) for earlier in range(later)
    )
    # reading what a later iteration overwrites counts where nothing else is told
    return rules_broken or ({"affine-carried"} if overwritten else set())
