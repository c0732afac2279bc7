"""Random kernels whose tiles share memory: bytes at addresses, PSUM, HBM between cores. NumPy is the oracle.

NKILAB_FUZZ=N runs N examples of each; the default is short.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nkilab.checking import Options, report_of
from tests.checks.test_fuzz import longer, rules
from tests.dialects.spellings import ncc1, nisa1, nisa2, nki1, nki2, nl1, nl2

WIDTH, BYTES = 8, 4
X = np.random.default_rng(9).integers(-4, 5, (4, 128, WIDTH)).astype(np.float32)


@dataclass(frozen=True)
class Step:
    """One access of a tile: "load" from x[source], "fill" with a number, or "store" to the next output."""

    kind: str
    tile: int
    source: int = 0


steps = st.lists(
    st.builds(Step, st.sampled_from(["load", "fill", "store"]), st.integers(0, 2), st.integers(0, 3)),
    min_size=2,
    max_size=9,
)
places = st.lists(st.integers(0, 2 * WIDTH), min_size=3, max_size=3)


def bytes_after(todo: list[Step], at: list[int]) -> tuple[list[np.ndarray], set[str]]:
    """What is stored where tiles share bytes, and what goes wrong on the way."""
    memory = np.zeros((128, 3 * WIDTH), np.float32)
    # per element of the memory the tile that wrote it last; -1 for none
    owner = np.full(3 * WIDTH, -1)
    written: set[int] = set()
    rules_broken: set[str] = set()
    stored = []
    for number, step in enumerate(todo):
        here = slice(at[step.tile], at[step.tile] + WIDTH)
        if step.kind == "store":
            stored.append(memory[:, here].copy())
            if step.tile not in written:
                # a tile of nki shows what another one left on its bytes, as views of a region do
                rules_broken |= {"unwritten-read"} if (owner[here] < 0).any() else set()
            elif (owner[here] != step.tile).any():
                rules_broken.add("lifetime-conflict")
            continue
        memory[:, here] = X[step.source] if step.kind == "load" else number
        owner[here] = step.tile
        written.add(step.tile)
    return stored, rules_broken


@longer
@given(todo=steps, at=places)
def test_tiles_of_nki_at_any_addresses_are_in_order_and_reads_of_others_are_found(
    todo: list[Step], at: list[int]
) -> None:
    stored, rules_broken = bytes_after(todo, at)
    if not stored:
        return

    @nki2.jit
    def kernel(x):
        out = nl2.ndarray((len(stored), 128, WIDTH), nl2.float32, buffer=nl2.shared_hbm)
        tiles = []
        for place in at:
            address = (0, place * BYTES)
            tiles.append(nl2.ndarray((128, WIDTH), nl2.float32, buffer=nl2.sbuf, address=address))
        outputs = iter(range(len(stored)))
        for number, step in enumerate(todo):
            if step.kind == "load":
                nisa2.dma_copy(tiles[step.tile], x[step.source])
            elif step.kind == "fill":
                nisa2.memset(tiles[step.tile], float(number))
            else:
                nisa2.dma_copy(out[next(outputs)], tiles[step.tile])
        return out

    assert rules(report_of(kernel, [X], {})) == rules_broken
    if not rules_broken:
        np.testing.assert_array_equal(kernel(X), np.array(stored))
        replayed = report_of(kernel, [X], {}, Options(replays=3)).replays
        assert not any(one["differing_elements"] for one in replayed)


@longer
@given(todo=steps, at=places)
def test_tiles_of_beta_1_race_where_another_engine_or_queue_comes_next(
    todo: list[Step], at: list[int]
) -> None:
    stored, rules_broken = bytes_after(todo, at)
    last: set[int] = set()
    for step in todo:
        if step.kind == "store" and step.tile not in last:
            # tiles of Beta 1 do not show what others left
            return
        last |= {step.tile}
    if not stored or rules_broken:
        return

    @nki1.jit
    def kernel(x):
        out = nl1.ndarray((len(stored), 128, WIDTH), nl1.float32, buffer=nl1.shared_hbm)
        tiles = [
            nl1.ndarray(
                (nl1.par_dim(128), WIDTH), nl1.float32,
                buffer=ncc1.sbuf.mod_alloc(base_addr=place * BYTES, num_free_tiles=()),
            ) for place in at
        ]  # fmt: skip
        outputs = iter(range(len(stored)))
        for number, step in enumerate(todo):
            if step.kind == "load":
                tiles[step.tile][...] = nl1.load(x[step.source])
            elif step.kind == "fill":
                tiles[step.tile][...] = nisa1.memset((128, WIDTH), float(number), nl1.float32)
            else:
                nl1.store(out[next(outputs)], tiles[step.tile])
        return out

    assert rules(report_of(kernel, [X], {})) == ({"race-direct-overlap"} if races(todo, at) else set())


def races(todo: list[Step], at: list[int]) -> bool:
    """Whether two accesses of different tiles that share bytes, one a write, are ordered by nothing.

    Ordered are accesses of one tile of which one writes, and what goes through one engine or queue.
    """
    count = len(todo)
    before = np.zeros((count, count), np.bool_)
    writes = [step.kind != "store" for step in todo]
    for later in range(count):
        for earlier in range(later):
            same = todo[later].tile == todo[earlier].tile and (writes[later] or writes[earlier])
            before[earlier, later] = same or todo[later].kind == todo[earlier].kind
    for middle in range(count):
        before |= before[:, [middle]] & before[[middle], :]
    for later in range(count):
        for earlier in range(later):
            one, two = todo[earlier].tile, todo[later].tile
            shares = one != two and abs(at[one] - at[two]) < WIDTH
            if shares and (writes[later] or writes[earlier]) and not before[earlier, later]:
                return True
    return False


A = np.random.default_rng(2).integers(-2, 3, (4, 128, 128)).astype(np.float32)
B = np.random.default_rng(3).integers(-2, 3, (4, 128, 64)).astype(np.float32)
products = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), min_size=1, max_size=8
)  # which operand, which quarter of the bank, whether it is copied out afterwards


@longer
@given(todo=products)
def test_sums_in_quarters_of_a_bank_are_those_of_numpy(todo: list[tuple[int, int, bool]]) -> None:
    """The first product of a quarter overwrites, others add; a copy ends the sum."""
    sums: dict[int, np.ndarray] = {}
    copied = []
    # a sum goes on though another one was started since, and both are open
    is_interleaved = False
    for k, quarter, is_copied in todo:
        product = A[k].T @ B[k]
        is_interleaved |= quarter in sums and list(sums)[-1] != quarter
        sums[quarter] = sums[quarter] + product if quarter in sums else product
        if is_copied:
            copied.append(sums.pop(quarter))
    left = sorted(sums)
    copied += [sums[quarter] for quarter in left]

    def run(start_wrong: bool) -> Any:
        @nki2.jit
        def kernel(a, b):
            out = nl2.ndarray((len(copied), 128, 64), nl2.float32, buffer=nl2.shared_hbm)
            total = nl2.ndarray((128, 256), nl2.float32, buffer=nl2.psum)
            outputs = iter(range(len(copied)))
            begun: set[int] = set()

            def copy_out(quarter):
                result = nl2.ndarray((128, 64), nl2.float32, buffer=nl2.sbuf)
                nisa2.tensor_copy(result, total[:, quarter * 64 : (quarter + 1) * 64])
                nisa2.dma_copy(out[next(outputs)], result)

            for k, quarter, is_copied in todo:
                left_tile = nl2.ndarray((128, 128), nl2.float32, buffer=nl2.sbuf)
                right_tile = nl2.ndarray((128, 64), nl2.float32, buffer=nl2.sbuf)
                nisa2.dma_copy(left_tile, a[k])
                nisa2.dma_copy(right_tile, b[k])
                dst = total[:, quarter * 64 : (quarter + 1) * 64]
                nisa2.nc_matmul(dst, left_tile, right_tile, accumulate=start_wrong or quarter in begun)
                begun.add(quarter)
                if is_copied:
                    copy_out(quarter)
                    begun.discard(quarter)
            for quarter in left:
                copy_out(quarter)
            return out

        return kernel

    # whole numbers below 2**24: exact in float32
    np.testing.assert_array_equal(run(False)(A, B), np.array(copied))
    assert rules(report_of(run(False), [A, B], {})) == ({"psum-shared-sums"} if is_interleaved else set())
    assert "psum-accumulate-unwritten" in rules(report_of(run(True), [A, B], {}))


exchanges = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.booleans()), min_size=1, max_size=5)


@longer
@given(todo=exchanges)
def test_cores_that_exchange_through_shared_memory_need_a_barrier(todo: list[tuple[int, int, bool]]) -> None:
    """A round: one core stores to a slot, a barrier may follow, one core reads the slot."""

    @nki2.jit
    def kernel(x):
        core = nl2.program_id(0)
        buffer = nl2.ndarray((len(todo), 128, WIDTH), nl2.float32, buffer=nl2.shared_hbm)
        out = nl2.ndarray((len(todo), 128, WIDTH), nl2.float32, buffer=nl2.shared_hbm)
        for number, (writer, reader, has_barrier) in enumerate(todo):
            tile = nl2.ndarray((128, WIDTH), nl2.float32, buffer=nl2.sbuf)
            if core == writer:
                nisa2.dma_copy(tile, x[number % 4])
                nisa2.dma_copy(buffer[number], tile)
            if has_barrier:
                nisa2.core_barrier(buffer, (0, 1))
            if core == reader:
                back = nl2.ndarray((128, WIDTH), nl2.float32, buffer=nl2.sbuf)
                nisa2.dma_copy(back, buffer[number])
                nisa2.dma_copy(out[number], back)
        return out

    is_race = any(writer != reader and not has_barrier for writer, reader, has_barrier in todo)
    report = report_of(kernel[2], [X], {})
    assert rules(report) == ({"race-two-cores"} if is_race else set())
    if not is_race:
        wanted = np.array([X[number % 4] for number in range(len(todo))])
        np.testing.assert_array_equal(kernel[2](X), wanted)
