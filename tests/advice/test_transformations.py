"""Each transformation finds what needs it, gains what rewriting gains, and is silent where it is done."""

from __future__ import annotations

from contextlib import suppress
from functools import cache

import numpy as np
import pytest
from msgspec.structs import replace

import nkilab
from nkilab.advice import CATALOGUE, Subject, advice_of, equal_results, subject_of
from nkilab.advice.draft import Draft, Unfit
from nkilab.advice.equal_results import are_equal, difference, results_of
from nkilab.advice.equal_values import equals_of
from nkilab.advice.trials import best_edit, promising
from nkilab.api import as_kernel, machine_for
from nkilab.arguments import argument
from nkilab.conformal import advised_factors, gain_factors, least_gain
from nkilab.estimates import estimate_program
from nkilab.launches import launch
from nkilab.trace.program import Program

# transformations whose edits change what rows cost and nothing else
COSTS_ALONE = {"combine_products", "contiguous_rows", "reduce_partitions", "split_cores", "table_reload"}

with nkilab.activate():
    import nki
    import nki.isa as nisa
    import nki.language as nl

    from . import pairs_of_layouts as pairs_of_layouts
    from . import pairs_of_memory as pairs_of_memory
    from . import pairs_of_order as pairs_of_order
    from .pairs import PAIRS, SILENT


@cache
def subject(name: str, *, rewritten: bool) -> Subject:
    kernel, args, _, cores = PAIRS[name]
    with nkilab.activate():
        own = as_kernel(kernel)[cores] if rewritten and cores > 1 else as_kernel(kernel)
        arguments = (*map(argument, args), rewritten)
        program = launch(own, arguments, {}, machine_for(own, "trn2"), has_data=False).programs[0]
        estimate = estimate_program(program)
    return subject_of(program, estimate.program, estimate.plan, estimate.timeline)


@pytest.mark.corpus
@pytest.mark.parametrize("name", PAIRS)
def test_an_edit_gains_what_the_rewritten_kernel_gains(name: str) -> None:
    slow, fast = (subject(name, rewritten=rewritten).latency_ns for rewritten in (False, True))
    assert fast < 0.97 * slow
    own = subject(name, rewritten=False)
    edited = [best[1] for c in CATALOGUE[name].find(own) if (best := best_edit(own, c))]
    assert min(edited) == pytest.approx(fast, rel=PAIRS[name][2])


@pytest.mark.corpus
@pytest.mark.parametrize("name", sorted(set(PAIRS) - SILENT))
def test_a_kernel_that_needs_a_transformation_is_told_so(name: str) -> None:
    pieces = advice_of(subject(name, rewritten=False))
    assert name in {id for own in pieces for id in (own.id, *own.also_called)}


@pytest.mark.corpus
@pytest.mark.parametrize("name", sorted(name for name in PAIRS if not CATALOGUE[name].by_formula))
def test_an_edited_program_computes_what_the_kernel_computes(name: str, monkeypatch) -> None:
    monkeypatch.setattr(equal_results, "MOST_ELEMENTS", 1 << 27)
    own = subject(name, rewritten=False)
    programs = []
    for candidate in CATALOGUE[name].find(own):
        for _, edit in candidate.edits:
            with suppress(Unfit):
                programs.append((edit(), candidate.rounds))
    changed = [(outcome, rounds) for outcome, rounds in programs if isinstance(outcome, Program)]
    expected = results_of(own.base)
    assert expected is not None
    assert changed or name in COSTS_ALONE
    for program, rounds in changed:
        results = results_of(program)
        assert results is not None
        assert are_equal(expected, results, own.base, rounds=rounds)


def test_an_edit_that_computes_something_else_is_not_advised(monkeypatch) -> None:
    monkeypatch.setattr(equal_results, "MOST_ELEMENTS", 1 << 27)
    # a subject of its own, whose results nobody has asked for
    own = replace(subject("fuse_alu", rewritten=False))
    assert ("fuse_alu", "by formula") in {(piece.id, piece.equal) for piece in advice_of(own)}
    # taken at its word, the edited program leaves a factor out
    wrong = replace(CATALOGUE["fuse_alu"], by_formula=False)
    monkeypatch.setitem(CATALOGUE, "fuse_alu", wrong)
    assert "fuse_alu" not in {piece.id for piece in advice_of(own)}


def test_changes_that_pay_together_are_told_together() -> None:
    """Parts of tiles can be shared out between engines as whole tiles cannot."""
    pieces = advice_of(subject("fuse_alu", rewritten=False))
    (joint,) = [piece for piece in pieces if piece.combined_with]
    singly = {piece.id: piece.gain_us for piece in pieces if not piece.combined_with}
    parts = (joint.id, *joint.combined_with)
    assert len(set(parts)) == len(parts) > 1
    assert joint.gain_us > sum(singly.get(id, 0.0) for id in parts)


def test_edits_that_make_one_program_are_one_piece_and_others_are_not() -> None:
    (both,) = [own for own in advice_of(narrow_product(4, 512, 128)) if own.also_called]
    assert {both.id, *both.also_called} == {"block_k", "bigger_transfers"}
    # a sum left out and a sum made once leave as much to do, in different programs
    pieces = advice_of(subject("hoist_compute", rewritten=False))
    assert {own.id for own in pieces if not own.also_called} >= {"fuse_alu", "hoist_compute"}


@pytest.mark.corpus
@pytest.mark.parametrize("name", PAIRS)
def test_a_rewritten_kernel_is_not_told_again(name: str) -> None:
    assert name not in {own.id for own in advice_of(subject(name, rewritten=True))}


@pytest.mark.corpus
@pytest.mark.parametrize("name", PAIRS)
def test_a_kernel_that_loads_nothing_for_a_tile_is_advised_on_too(name: str) -> None:
    """Detectors and edits meet kernels whose tiles nothing has written, as a check does."""
    own = subject(name, rewritten=False)
    written = np.flatnonzero(own.slots.is_written & ~own.slots.kinds.lie_in("hbm")[own.slots.storage])
    tile = int(own.slots.storage[written[0]])
    draft = Draft(own.base)
    draft.drop([row for row in own.writers[tile] if own.base.form_of(row).name == "dma_copy"])
    faulty = draft.program()
    estimate = estimate_program(faulty)
    advice = advice_of(subject_of(faulty, estimate.program, estimate.plan, estimate.timeline))
    assert all(piece.interval_us[0] > 0 for piece in advice)


def test_every_transformation_has_a_pair() -> None:
    assert set(CATALOGUE) == set(PAIRS)


@cache
def narrow_product(tiles: int, columns: int, height: int) -> Subject:
    """A product of output tiles side by side, the contraction in tiles of `height` rows."""
    with nkilab.activate():
        import nki
        import nki.isa as nisa
        import nki.language as nl

        @nki.jit
        def kernel(left, right):
            out = nl.ndarray((128, tiles * columns), nl.float32, buffer=nl.shared_hbm)
            for n in range(tiles):
                total = nl.ndarray((128, columns), nl.float32, buffer=nl.psum)
                for k in range(left.shape[0] // height):
                    a = nl.ndarray((height, 128), left.dtype, buffer=nl.sbuf)
                    b = nl.ndarray((height, columns), left.dtype, buffer=nl.sbuf)
                    nisa.dma_copy(a, left[nl.ds(k * height, height)])
                    nisa.dma_copy(b, right[nl.ds(k * height, height), nl.ds(n * columns, columns)])
                    nisa.nc_matmul(total, a, b)
                result = nl.ndarray((128, columns), nl.float32, buffer=nl.sbuf)
                nisa.tensor_copy(result, total)
                nisa.dma_copy(out[:, nl.ds(n * columns, columns)], result)
            return out

        args = argument("bf16[1024,128]"), argument(f"bf16[1024,{tiles * columns}]")
        program = launch(kernel, args, {}, machine_for(kernel, "trn2"), has_data=False).programs[0]
        estimate = estimate_program(program)
    return subject_of(program, estimate.program, estimate.plan, estimate.timeline)


def test_equal_tiles_are_shared_in_every_block_not_in_the_first_alone() -> None:
    own = narrow_product(8, 128, 128)
    (candidate,) = CATALOGUE["widen_moving"].find(own)
    edited = candidate.edits[0][1]()
    # two blocks of four output tiles, eight contraction tiles each
    assert edited.opcodes()["nc_matmul"] == 2 * 8
    assert edited.opcodes()["dma_copy"] == 2 * 8 * 2 + 2


def test_products_of_one_sum_are_joined_to_fill_the_contraction() -> None:
    own = narrow_product(2, 512, 64)
    (candidate,) = CATALOGUE["fill_partitions"].find(own)
    edited = candidate.edits[0][1]()
    # 1024 rows in tiles of 128 instead of 64
    assert edited.opcodes()["nc_matmul"] == 2 * 8


def test_a_loop_is_found_of_which_every_line_comes_several_times_in_an_iteration() -> None:
    # 16 contraction tiles: two loads of the left operand, four of the right one, eight products
    loops = {(len(loop.start), loop.length) for loop in subject("block_mn", rewritten=True).loops}
    assert (16, 2 + 4 + 8) in loops


def test_nothing_is_tried_that_cannot_save_what_the_model_resolves() -> None:
    own = subject("fuse_alu", rewritten=False)
    for id, candidate in promising(own):
        most = min(candidate.weight_ns, own.most_ns(CATALOGUE[id].relieves))
        assert most > least_gain() * own.latency_ns
    assert gain_factors(1 - least_gain())[0] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("begins", [False, True])
def test_products_that_continue_what_a_tile_held_are_no_copies_of_each_other(begins: bool) -> None:
    """Two equal products: each makes its tile, or adds to what was there."""
    with nkilab.activate():
        import nki
        import nki.isa as nisa
        import nki.language as nl

        @nki.jit
        def products(x, goes_on):  # type: ignore[no-untyped-def]
            out = nl.ndarray((2, 128, 512), nl.float32, buffer=nl.shared_hbm)
            tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(tile, x)
            for i in range(2):
                total = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)
                nisa.nc_matmul(total, tile[:, 0:128], tile, accumulate=goes_on)
                result = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
                nisa.tensor_copy(result, total)
                nisa.dma_copy(out[i], result)
            return out

        args = argument("f32[128,512]"), not begins
        own = launch(products, args, {}, machine_for(products, "trn2"), has_data=False).programs[0]
    assert len(equals_of(own).first) == (2 if begins else 0)


def test_an_update_in_place_reads_what_the_tile_held_before() -> None:
    """Sums that begin with zeros in one tile are no copies of each other: each adds to its own."""
    with nkilab.activate():
        import nki
        import nki.isa as nisa
        import nki.language as nl

        @nki.jit
        def sums(x):  # type: ignore[no-untyped-def]
            out = nl.ndarray((4, 128, 512), nl.float32, buffer=nl.shared_hbm)
            total = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
            for i in range(4):
                nisa.memset(total, 0.0)
                for k in range(2):
                    part = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
                    nisa.dma_copy(part, x[i, k])
                    nisa.tensor_tensor(total, total, part, op=nl.add)
                nisa.dma_copy(out[i], total)
            return out

        kernel = as_kernel(sums)
        program = launch(
            kernel, (argument("f32[4,2,128,512]"),), {}, machine_for(kernel, "trn2"), has_data=False
        ).programs[0]
    estimate = estimate_program(program)
    own = subject_of(program, estimate.program, estimate.plan, estimate.timeline)
    renewed = own.renewed
    assert renewed is not own
    adds = renewed.rows_of("tensor_tensor").tolist()
    zeros = renewed.rows_of("memset").tolist()
    storages = {row: [a.storage for a in renewed.base.accesses(row)] for row in (*adds, *zeros)}
    for i, zero in enumerate(zeros):
        first, second = adds[2 * i : 2 * i + 2]
        assert storages[first][1] == storages[zero][0]
        assert storages[second][1] == storages[first][0]
        assert storages[second][0] != storages[first][0]


@cache
def advised(kernel_of: str) -> Subject:
    with nkilab.activate():
        import nki
        import nki.isa as nisa
        import nki.language as nl

        @nki.jit
        def first_iteration_makes_ones(x):  # type: ignore[no-untyped-def]
            out = nl.ndarray((6, 128, 512), nl.float32, buffer=nl.shared_hbm)
            ones = None
            for i in range(6):
                tile, result = (nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf) for _ in range(2))
                nisa.dma_copy(tile, x[i])
                nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=2.0)
                if ones is None:
                    ones = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
                    nisa.memset(ones, 1.0)
                nisa.tensor_tensor(result, tile, ones, op=nl.add)
                nisa.dma_copy(out[i], result)
            return out

        @nki.jit
        def operands_larger_than_sbuf(left, right):  # type: ignore[no-untyped-def]
            """Rows of left stay for a row of outputs; all of both, 320 KiB a partition, do not stay."""
            out = nl.ndarray((4, 8, 128, 512), nl.float32, buffer=nl.shared_hbm)
            for m in range(4):
                for n in range(8):
                    total = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)
                    for k in range(32):
                        a = nl.ndarray((128, 128), nl.bfloat16, buffer=nl.sbuf)
                        b = nl.ndarray((128, 512), nl.bfloat16, buffer=nl.sbuf)
                        nisa.dma_copy(a, left[k, m])
                        nisa.dma_copy(b, right[k, n])
                        nisa.nc_matmul(total, a, b)
                    result = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
                    nisa.tensor_copy(result, total)
                    nisa.dma_copy(out[m, n], result)
            return out

        kernels = {
            "ones": (first_iteration_makes_ones, ("f32[6,128,512]",)),
            "product": (operands_larger_than_sbuf, ("bf16[32,4,128,128]", "bf16[32,8,128,512]")),
        }
        kernel, texts = kernels[kernel_of]
        args = tuple(map(argument, texts))
        program = launch(as_kernel(kernel), args, {}, machine_for(kernel, "trn2"), has_data=False).programs[0]
        estimate = estimate_program(program)
    return subject_of(program, estimate.program, estimate.plan, estimate.timeline)


def test_a_first_iteration_that_makes_what_all_use_is_an_iteration() -> None:
    loops = [loop for loop in advised("ones").loops if loop.length == 4]
    assert [len(loop.start) for loop in loops] == [6]
    names = [[advised("ones").base.form_of(row).name for row in own] for own in loops[0].rows().tolist()]
    assert names == [["dma_copy", "tensor_scalar", "tensor_tensor", "dma_copy"]] * 6


def test_loads_stay_for_a_trip_of_an_outer_loop_where_they_do_not_fit_for_longer() -> None:
    own = advised("product")
    candidate, _ = CATALOGUE["hoist_loads"].find(own)
    words, edit = candidate.edits[0]
    # of 4 x 8 x 32 tiles of left, 4 x 32 are loaded; those of right are loaded each time
    assert words.startswith("896 loads left out; the first tile is kept through one trip")
    assert edit().opcodes()["dma_copy"] == 4 * 32 + 4 * 8 * 32 + 4 * 8


def test_an_interval_reaches_up_to_what_experts_gained() -> None:
    low, high = advised_factors(0.8, 0.1)
    # by hand: logarithm 0.223, and 2.0 times 0.1 and itself more
    assert high == pytest.approx(1 - 0.8 * np.exp(-2 * (0.1 - np.log(0.8))))
    assert low == gain_factors(0.8)[0] < 0.2


def test_an_interval_ends_where_engines_work_that_a_change_leaves_as_they_are() -> None:
    _, high = advised_factors(0.8, 0.7)
    # by hand: the others work for 0.7 of the time, logarithm 0.357, and what pairs may be off by besides
    assert high == pytest.approx(gain_factors(0.7)[1])
    # but a change that gains what they leave, or more, may be off by as much as any
    assert advised_factors(0.6, 0.7)[1] == pytest.approx(gain_factors(0.6)[1])
    own = subject("buffers", rewritten=False)
    busy = max(own.occupied_ns.values())
    assert own.left_share(frozenset()) == pytest.approx((own.fixed_ns + busy) / own.latency_ns)
    assert own.left_share(frozenset(own.occupied_ns)) == pytest.approx(own.fixed_ns / own.latency_ns)


def test_bits_that_nothing_wrote_compare_without_a_warning() -> None:
    """0x7F800001 is a signalling NaN (IEEE 754): widening it raises the invalid flag."""
    signalling = np.array([0x7F800001, 0x3F800000], np.uint32).view(np.float32)
    assert difference(signalling, signalling.copy()) == 0.0
    assert difference(signalling, np.ones(2, np.float32)) == np.inf
    # infinities on both sides are no scale for what else differs
    one, other = np.array([np.inf, 2.0], np.float32), np.array([np.inf, 3.0], np.float32)
    assert difference(one, other) == 0.5
    assert difference(one, np.array([1.0, 2.0], np.float32)) == np.inf


def test_a_running_sum_is_a_scan_too() -> None:
    @nki.jit
    def running(x):
        out = nl.ndarray(x.shape, nl.float32, buffer=nl.shared_hbm)
        for i in range(2):
            tile = nl.ndarray((128, 64), nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(tile, x[nl.ds(i * 128, 128), :])
            for t in range(1, 64):
                before, own = tile[:, t - 1 : t], tile[:, t : t + 1]
                nisa.tensor_tensor(own, own, before, op=nl.add)
            nisa.dma_copy(out[nl.ds(i * 128, 128), :], tile)
        return out

    @nki.jit
    def scanned(x):
        out = nl.ndarray(x.shape, nl.float32, buffer=nl.shared_hbm)
        ones = nl.ndarray((128, 64), nl.float32, buffer=nl.sbuf)
        nisa.memset(ones, 1.0)
        for i in range(2):
            tile = nl.ndarray((128, 64), nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(tile, x[nl.ds(i * 128, 128), :])
            nisa.tensor_tensor_scan(tile, ones, tile, initial=0.0, op0=nl.multiply, op1=nl.add)
            nisa.dma_copy(out[nl.ds(i * 128, 128), :], tile)
        return out

    slow, fast = (nkilab.profile(kernel, argument("f32[256,64]")) for kernel in (running, scanned))
    first = slow.run.guidance.advice[0]
    assert (first.id, first.equal) == ("use_scan", "computed")
    assert slow.latency_us - first.gain_us == pytest.approx(fast.latency_us, rel=0.02)


def rows_on_one_core(write: str, machine: str = "trn2") -> Subject:
    """24 tiles are squared and written: each apart, all to one place, or each with a sum so far."""
    with nkilab.activate():
        import nki
        import nki.isa as nisa
        import nki.language as nl

        @nki.jit
        def kernel(x):
            out = nl.ndarray((24, 128, 512), nl.float32, buffer=nl.shared_hbm)
            total = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
            nisa.memset(total, 0.0)
            for i in range(24):
                tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
                nisa.dma_copy(tile, x[i])
                nisa.tensor_tensor(tile, tile, tile, op=nl.multiply)
                if write == "sums":
                    nisa.tensor_tensor(total, total, tile, op=nl.add)
                nisa.dma_copy(out[0 if write == "one place" else i], total if write == "sums" else tile)
            return out

        own, args = as_kernel(kernel), (argument("f32[24,128,512]"),)
        program = launch(own, args, {}, machine_for(own, machine), has_data=False).programs[0]
        estimate = estimate_program(program)
    return subject_of(program, estimate.program, estimate.plan, estimate.timeline)


@pytest.mark.parametrize(
    ("write", "machine", "count"),
    [("apart", "trn2", 1), ("one place", "trn2", 0), ("sums", "trn2", 0), ("apart", "trn1", 0)],
)
def test_iterations_are_shared_out_where_none_needs_another(write: str, machine: str, count: int) -> None:
    own = rows_on_one_core(write, machine)
    candidates = list(CATALOGUE["split_cores"].find(own))
    assert len(candidates) == count
    assert all("24 independent iterations" in c.message for c in candidates)


def test_more_cores_stand_behind_what_makes_one_faster() -> None:
    pieces = advice_of(subject("buffers", rewritten=False))
    assert [piece.id for piece in pieces][-1] == "split_cores"
    # though they save more
    assert pieces[-1].gain_us > min(piece.gain_us for piece in pieces[:-1])
    assert not any("split_cores" in piece.combined_with for piece in pieces)
