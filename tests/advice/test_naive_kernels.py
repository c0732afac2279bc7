"""What naive kernels need is found: windows that overlap, scans either way round, narrower loads, silu."""

from __future__ import annotations

import pytest

import nkilab
from nkilab.advice import CATALOGUE, Subject, subject_of
from nkilab.advice.catalogue.dataflow import _in_pieces
from nkilab.advice.declare import Candidate
from nkilab.advice.draft import Unfit
from nkilab.advice.equal_results import are_equal, results_of
from nkilab.advice.trials import Tried, _in_order, _with_places
from nkilab.api import machine_for
from nkilab.arguments import argument
from nkilab.estimates import estimate_program
from nkilab.launches import launch
from nkilab.trace.program import Program
from nkilab.views.guidance import Advice

with nkilab.activate():
    import nki
    import nki.isa as nisa
    import nki.language as nl

    @nki.jit
    def windows(x, steps, rows):  # type: ignore[no-untyped-def]
        """Sums of `rows` rows of 64 columns, from each of eight places that are `steps` rows apart."""
        out = nl.ndarray((8, 128, 1), nl.float32, buffer=nl.shared_hbm)
        for i in range(8):
            tile = nl.ndarray((128, rows, 64), nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(tile, x[:, nl.ds(i * steps, rows), 1:65])
            total = nl.ndarray((128, 1), nl.float32, buffer=nl.sbuf)
            nisa.tensor_reduce(total, op=nl.add, data=tile, axis=(1, 2))
            nisa.dma_copy(out[i], total)
        return out

    @nki.jit
    def recurrence(a, b, is_first):  # type: ignore[no-untyped-def]
        """h[t] = a[t] * h[t - 1] + b[t], the factor before or behind what is continued."""
        out = nl.ndarray((128, 64), nl.float32, buffer=nl.shared_hbm)
        factor = nl.ndarray((128, 64), nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(factor, a)
        summand = nl.ndarray((128, 64), nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(summand, b)
        state = nl.ndarray((128, 64), nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(state[:, 0:1], summand[:, 0:1])
        for t in range(1, 64):
            product = nl.ndarray((128, 1), nl.float32, buffer=nl.sbuf)
            both = [factor[:, nl.ds(t, 1)], state[:, nl.ds(t - 1, 1)]]
            nisa.tensor_tensor(product, *(both if is_first else both[::-1]), op=nl.multiply)
            nisa.tensor_tensor(state[:, nl.ds(t, 1)], product, summand[:, nl.ds(t, 1)], op=nl.add)
        nisa.dma_copy(out, state)
        return out

    @nki.jit
    def parts_of_a_store(x):  # type: ignore[no-untyped-def]
        """Squares go to HBM in one piece and come back in four."""
        out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
        between = nl.ndarray((128, 512), nl.float32, buffer=nl.hbm)
        tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(tile, x)
        squares = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(squares, tile, tile, op=nl.multiply)
        nisa.dma_copy(between, squares)
        for i in range(4):
            part = nl.ndarray((128, 128), nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(part, between[:, nl.ds(i * 128, 128)])
            root = nl.ndarray((128, 128), nl.float32, buffer=nl.sbuf)
            nisa.activation(root, op=nl.sqrt, data=part)
            nisa.dma_copy(out[:, nl.ds(i * 128, 128)], root)
        return out

    @nki.jit
    def weighted(x, is_silu):  # type: ignore[no-untyped-def]
        """A sigmoid times its own data, or times something else."""
        out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
        tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(tile, x)
        other = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
        nisa.activation(other, op=nl.tanh, data=tile)
        gate = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
        nisa.activation(gate, op=nl.sigmoid, data=tile)
        result = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(result, tile if is_silu else other, gate, op=nl.multiply)
        nisa.dma_copy(out, result)
        return out


def subject(kernel: object, *args: object) -> Subject:
    own = [argument(arg) if isinstance(arg, str) else arg for arg in args]
    with nkilab.activate():
        machine = machine_for(kernel, "trn2")  # type: ignore[arg-type]
        program = launch(kernel, tuple(own), {}, machine, has_data=False).programs[0]  # type: ignore[arg-type]
        estimate = estimate_program(program)
    return subject_of(program, estimate.program, estimate.plan, estimate.timeline)


def edited(own: Subject, id: str, words: str) -> list[Program]:
    """What edits of these words make; every one of them leaves the results as they are."""
    edits = [e for c in CATALOGUE[id].find(own) for w, e in c.edits if w == words]
    programs = [outcome for edit in edits if isinstance(outcome := edit(), Program)]
    expected = results_of(own.base)
    assert expected is not None
    for program in programs:
        results = results_of(program)
        assert results is not None
        assert are_equal(expected, results, own.base, rounds=False)
    return programs


@pytest.mark.parametrize("rows", [1, 4])
def test_windows_that_overlap_are_loaded_once(rows: int) -> None:
    (program,) = edited(subject(windows, "f32[128,40,66]", 0 if rows == 1 else 2, rows), "hoist_loads",
                        "all that they cover loaded once")  # fmt: skip
    assert program.opcodes()["dma_copy"] == 1 + 8


def test_windows_that_lie_side_by_side_stay_as_they_are() -> None:
    own = subject(windows, "f32[128,40,66]", 4, 4)
    assert edited(own, "hoist_loads", "all that they cover loaded once") == []


@pytest.mark.parametrize("is_first", [False, True])
def test_factors_of_a_recurrence_stand_either_way(is_first: bool) -> None:
    (program,) = edited(subject(recurrence, "f32[128,64]", "f32[128,64]", is_first), "use_scan",
                        "one scan for each recurrence")  # fmt: skip
    assert program.opcodes()["tensor_tensor_scan"] == 1
    assert program.opcodes().get("tensor_tensor", 0) == 0


def test_parts_of_what_was_stored_are_read_on_the_chip() -> None:
    own = subject(parts_of_a_store, "f32[128,512]")
    (program,) = edited(own, "keep_on_chip", "read from the tiles that were stored")
    assert program.opcodes()["dma_copy"] == 1 + 4


@pytest.mark.parametrize("is_silu", [False, True])
def test_a_sigmoid_times_its_own_data_alone_is_silu(is_silu: bool) -> None:
    own = subject(weighted, "f32[128,512]", is_silu)
    edits = [e for c in CATALOGUE["fuse_activation"].find(own) for w, e in c.edits if w.startswith("silu")]
    assert len(edits) == is_silu
    for edit in edits:
        program = edit()
        assert isinstance(program, Program)
        assert program.opcodes().get("tensor_tensor", 0) == 0


def test_a_tile_that_something_else_reads_whole_is_no_window() -> None:
    """A window of several rows that is read in parts cannot be read where it lies."""
    with nkilab.activate():

        @nki.jit
        def halves(x):  # type: ignore[no-untyped-def]
            out = nl.ndarray((8, 128, 64), nl.float32, buffer=nl.shared_hbm)
            for i in range(8):
                tile = nl.ndarray((128, 4, 64), nl.float32, buffer=nl.sbuf)
                nisa.dma_copy(tile, x[:, nl.ds(i, 4), 1:65])
                nisa.dma_copy(out[i], tile[:, 2, :])
            return out

    own = subject(halves, "f32[128,40,66]")
    edits = [e for c in CATALOGUE["hoist_loads"].find(own) for w, e in c.edits if w.startswith("all that")]
    with pytest.raises(Unfit):
        edits[0]()


with nkilab.activate():

    @nki.jit
    def decayed(x):  # type: ignore[no-untyped-def]
        """A running sum with a factor, of what is doubled first."""
        out = nl.ndarray((128, 4096), nl.float32, buffer=nl.shared_hbm)
        tile = nl.ndarray((128, 4096), nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(tile, x)
        factor = nl.ndarray((128, 4096), nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(factor, tile, op0=nl.multiply, operand0=0.25)
        result = nl.ndarray((128, 4096), nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor_scan(result, factor, tile, 1.0, op0=nl.multiply, op1=nl.add)
        nisa.dma_copy(out, result)
        return out

    @nki.jit
    def buffered(x, y):  # type: ignore[no-untyped-def]
        """Two tiles that every iteration fills again, and one whose results are stored."""
        out = nl.ndarray((8, 128, 2048), nl.float32, buffer=nl.shared_hbm)
        one, other, total = (nl.ndarray((128, 2048), nl.float32, buffer=nl.sbuf) for _ in range(3))
        for i in range(8):
            nisa.dma_copy(one, x[i])
            nisa.dma_copy(other, y[i])
            nisa.tensor_tensor(total, one, other, op=nl.add)
            nisa.dma_copy(out[i], total)
        return out


@pytest.mark.parametrize("count", [2, 8])
def test_a_scan_in_pieces_goes_on_where_the_last_piece_ended(count: int) -> None:
    own = subject(decayed, "f32[128,4096]")
    rows = own.rows_of("dma_copy", "tensor_scalar", "tensor_tensor_scan")
    program = _in_pieces(own, rows, count)
    assert program.opcodes()["tensor_tensor_scan"] == count
    expected, results = results_of(own.base), results_of(program)
    assert expected is not None
    assert results is not None
    assert are_equal(expected, results, own.base, rounds=False)
    # a piece is stored before the next is computed
    names = [program.form_of(row).name for row in range(len(program))]
    assert names.index("tensor_tensor_scan") < names.index("dma_copy", 2) < len(names) - 3


def test_each_tile_that_is_waited_for_is_counted() -> None:
    (own,) = CATALOGUE["buffers"].find(subject(buffered, "f32[8,128,2048]", "f32[8,128,2048]"))
    assert own.message.endswith("must wait until what 3 float32[128, 2048] held is used up")


def test_equal_changes_of_several_lines_are_one_piece_with_its_places() -> None:
    gains = {"a.py:4": 13.0, "a.py:9": 12.5, "a.py:7": 10.0, "a.py:8": 4.0}
    pieces = [Advice("shift_engine", where, "busy", gain, (1.0, 20.0), "all on ScalarE", "", "")
              for where, gain in gains.items()]  # fmt: skip
    first, second = _with_places(pieces)
    assert first.places == ("a.py:9", "a.py:7")
    assert first.message == "busy; as much is gained at a.py:9 and a.py:7"
    assert (second.where, second.places) == ("a.py:8", ())


def test_of_gains_as_good_as_equal_what_experts_do_first_comes_first() -> None:
    """Blocks before an order of loops; a second piece of one change behind the first of all others."""
    gains = [
        (10.0, "interchange_loops"),
        (9.0, "block_mn"),
        (8.0, "block_mn"),
        (5.0, "hoist_loads"),
        (-1.0, "buffers"),
    ]
    pieces = [
        (
            gain,
            Tried(id, Candidate(0, "", 0.0, ()), "", 0.0),
            Advice(id, str(gain), "", gain, (0, 0), "", "", ""),
        )
        for gain, id in gains
    ]
    assert [piece.where for _, piece in _in_order(pieces)] == ["9.0", "10.0", "5.0", "-1.0", "8.0"]
