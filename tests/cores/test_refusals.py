"""How launches on two cores end that cannot go on: every message whole."""

from __future__ import annotations

from typing import Any

import pytest

from nkilab.errors import DeadlockError, RuleError
from tests.cores.kernels import exchanged, launched, loaded, output_like, parts
from tests.dialects.spellings import marked_line
from tests.dialects.spellings import nisa2 as nisa
from tests.dialects.spellings import nki2 as nki
from tests.dialects.spellings import nl2 as nl
from tests.isa.warned import heard

DEADLOCK = (
    "sendrecv: nobody can run: each program waits for one that does not come\n{}"
    "  hint: let all programs come to the same calls of sendrecv and core_barrier, in the same order\n"
    "  source: nki.isa.sendrecv, pipe_id; nki.isa.core_barrier"
)


@nki.jit
def early(x):
    out, tile = output_like(x), loaded(x)
    if nl.program_id(0) == 0:
        exchanged_at_line(tile)
    nisa.dma_copy(out[nl.program_id(0)], tile)
    return out


def exchanged_at_line(tile):
    nisa.sendrecv(tile, tile, 1 - nl.program_id(0), 1 - nl.program_id(0), 0)  # refused


@nki.jit
def two_pipes(x):
    tile = loaded(x)
    if nl.program_id(0) == 0:
        nisa.sendrecv(tile, tile, send_to_rank=1, recv_from_rank=1, pipe_id=3)  # refused
    nisa.sendrecv(tile, tile, send_to_rank=0, recv_from_rank=0, pipe_id=4)
    return x


@nki.jit
def against_a_barrier(x):
    out, tile = output_like(x), loaded(x)
    if nl.program_id(0) == 0:
        nisa.sendrecv(tile, tile, send_to_rank=1, recv_from_rank=1, pipe_id=3)  # refused
    nisa.core_barrier(out, (0, 1))
    return out


@nki.jit
def two_barriers(x):
    a, b = output_like(x), output_like(x)
    nisa.core_barrier(a if nl.program_id(0) == 0 else b, (0, 1))  # refused
    return a


def next_line(kernel: Any, more: int) -> str:
    name, line = marked_line(kernel.function).split(":")
    return f"{name}:{int(line) + more}"


def deadlock(kernel: Any) -> str:
    with pytest.raises(DeadlockError) as caught:
        kernel[2](parts(4, 8))
    assert isinstance(caught.value, ValueError)
    return str(caught.value)


def test_a_partner_that_returned_is_a_deadlock() -> None:
    here = marked_line(exchanged_at_line)
    assert deadlock(early) == f"{here}: " + DEADLOCK.format(
        f"  program 0 waits at {here} for sendrecv with pipe_id 0\n  program 1 has returned\n"
    )


def test_a_deadlock_is_found_from_shapes_alone() -> None:
    with pytest.raises(DeadlockError):
        launched(early[2], parts(4, 8), has_data=False)


def test_two_pipes_do_not_meet() -> None:
    here = marked_line(two_pipes.function)
    assert deadlock(two_pipes) == f"{here}: " + DEADLOCK.format(
        f"  program 0 waits at {here} for sendrecv with pipe_id 3\n"
        f"  program 1 waits at {next_line(two_pipes, 1)} for sendrecv with pipe_id 4\n"
    )


def test_an_exchange_does_not_meet_a_barrier() -> None:
    here = marked_line(against_a_barrier.function)
    assert deadlock(against_a_barrier) == f"{here}: " + DEADLOCK.format(
        f"  program 0 waits at {here} for sendrecv with pipe_id 3\n"
        f"  program 1 waits at {next_line(against_a_barrier, 1)} for core_barrier on out: "
        "float32[2, 4, 8] in hbm\n"
    )


def test_barriers_on_two_tensors_do_not_meet() -> None:
    here = marked_line(two_barriers.function)
    told = deadlock(two_barriers)
    assert told.startswith(f"{here}: core_barrier: nobody can run")
    assert f"  program 0 waits at {here} for core_barrier on a: float32[2, 4, 8] in hbm\n" in told
    assert f"  program 1 waits at {here} for core_barrier on b: float32[2, 4, 8] in hbm\n" in told


@nki.jit
def raising(x, rank, error):
    out, tile = output_like(x), loaded(x)
    exchanged(tile, tile)
    if nl.program_id(0) == rank:
        if error is not None:
            raise error
        nisa.tensor_copy(tile, x)  # refused
    exchanged(tile, tile)
    return out


@pytest.mark.parametrize("rank", [0, 1])
def test_what_one_program_raises_is_what_the_user_sees(rank: int) -> None:
    error = LookupError("the user's own")
    with pytest.raises(LookupError) as caught:
        raising[2](parts(4, 8), rank, error)
    assert caught.value is error
    assert "raising" in [entry.name for entry in caught.traceback]
    with pytest.raises(RuleError) as refused:
        raising[2](parts(4, 8), rank, None)
    assert str(refused.value).startswith(f"{marked_line(raising.function)}: tensor_copy: src is in hbm; ")


@nki.jit
def disagreeing(x, size, dtype, carrier):
    out = output_like(x)
    mine = nl.program_id(0) == 1
    tile = nl.ndarray((4, size if mine else 8), dtype if mine else nl.float32, buffer=nl.sbuf)
    nisa.memset(tile, value=0)
    engine = carrier if mine else nisa.dma_engine.dma
    nisa.sendrecv(tile, tile, 1 - nl.program_id(0), 1 - nl.program_id(0), 0, dma_engine=engine)  # refused
    return out


@pytest.mark.parametrize(
    ("size", "dtype", "shown"), [(4, "float32", "float32[4, 4]"), (8, "int32", "int32[4, 8]")]
)
def test_partners_with_other_tiles_are_told_both_lines(size: int, dtype: str, shown: str) -> None:
    here = marked_line(disagreeing.function)
    with pytest.raises(RuleError) as caught:
        disagreeing[2](parts(4, 8), size, dtype, nisa.dma_engine.dma)
    assert str(caught.value) == (
        f"{here}: sendrecv: src and dst are {shown}; in program 0, at {here}, they are float32[4, 8]\n"
        f"  src = tile: {shown} in sbuf\n  dst = tile: {shown} in sbuf\n"
        "  hint: exchange tiles of one shape and type\n  source: nki.isa.sendrecv, constraints"
    )


def test_partners_with_other_carriers_are_told_both_lines() -> None:
    here = marked_line(disagreeing.function)
    with pytest.raises(RuleError) as caught:
        disagreeing[2](parts(4, 8), 8, "float32", nisa.dma_engine.gpsimd_dma)
    assert str(caught.value) == (
        f"{here}: sendrecv: dma_engine is gpsimd_dma; in program 0, at {here}, it is dma\n"
        "  src = tile: float32[4, 8] in sbuf\n  dst = tile: float32[4, 8] in sbuf\n"
        "  hint: choose one for both programs\n  source: nki.isa.sendrecv, dma_engine"
    )


@nki.jit
def misdirected(x, send_to, recv_from):
    tile = loaded(x)
    nisa.sendrecv(tile, tile, send_to, recv_from, 0)  # refused
    return x


@pytest.mark.parametrize(
    ("ranks", "name", "given"), [((0, 1), "send_to_rank", 0), ((1, 7), "recv_from_rank", 7)]
)
def test_a_program_exchanges_with_the_other_one(ranks: tuple[int, int], name: str, given: int) -> None:
    with pytest.raises(RuleError) as caught:
        misdirected[2](parts(4, 8), *ranks)
    assert str(caught.value) == (
        f"{marked_line(misdirected.function)}: sendrecv: {name} is {given}; in program 0 of 2 it is 1\n"
        "  src = tile: float32[4, 8] in sbuf\n  dst = tile: float32[4, 8] in sbuf\n"
        "  hint: pass 1 - nl.program_id(0)\n  source: nki.isa.sendrecv"
    )


@pytest.mark.parametrize("grid", [None, 1])
@pytest.mark.parametrize("has_data", [True, False])
def test_a_launch_on_one_core_has_nobody_to_exchange_with(grid: int | None, has_data: bool) -> None:
    kernel = misdirected if grid is None else misdirected[grid]
    with pytest.raises(RuleError) as caught:
        launched(kernel, parts(4, 8), 1, 1, has_data=has_data)
    assert str(caught.value) == (
        f"{marked_line(misdirected.function)}: sendrecv: it exchanges tiles with another program; "
        "this launch has one\n"
        "  src = tile: float32[4, 8] in sbuf\n  dst = tile: float32[4, 8] in sbuf\n"
        "  hint: launch on two cores, kernel[2](...), or call it only if nl.num_programs(0) is 2\n"
        "  source: nki.isa.sendrecv"
    )


@nki.jit
def barred(x, cores, buffer):
    data = nl.ndarray(x.shape, x.dtype, buffer=buffer)
    out = output_like(x)
    nisa.dma_copy(data[nl.program_id(0)], x[nl.program_id(0)])
    nisa.core_barrier(data, cores)  # refused
    return out


@pytest.mark.parametrize(
    ("grid", "cores", "told", "hint"),
    [
        (1, (0, 1), "(0, 1); this launch has one program, on core 0",
         "launch on two cores, kernel[2](...), or pass cores=(0,)"),
        (2, (0,), "(0,); this launch has 2 programs", "pass (0, 1)"),
    ],
)  # fmt: skip
def test_a_barrier_names_the_cores_of_the_launch(grid: int, cores: Any, told: str, hint: str) -> None:
    with pytest.raises(RuleError) as caught:
        barred[grid](parts(4, 8), cores, nl.shared_hbm)
    assert str(caught.value) == (
        f"{marked_line(barred.function)}: core_barrier: cores is {told}\n"
        f"  data = data: float32[2, 4, 8] in hbm\n  hint: {hint}\n  source: nki.isa.core_barrier"
    )


def test_private_memory_is_nothing_to_wait_for_together() -> None:
    with pytest.raises(RuleError) as caught:
        barred[2](parts(4, 8), (0, 1), nl.private_hbm)
    assert str(caught.value) == (
        f"{marked_line(barred.function)}: core_barrier: data is in private_hbm, which the other program does "
        "not see\n"
        "  data = data: float32[2, 4, 8] in hbm\n"
        "  hint: allocate it with buffer=nl.shared_hbm\n  source: nki.isa.core_barrier"
    )


@pytest.mark.parametrize("spelled", [0, (0,)])
def test_a_barrier_of_one_core_is_passed_at_once(spelled: Any) -> None:
    with heard():
        left = launched(barred[1], parts(4, 8), spelled, nl.shared_hbm)
    assert left.program.opcodes() == {"dma_copy": 1, "core_barrier": 1}
    assert left.rendezvous == ()


@nki.jit
def returning_apart(x):
    a, b = output_like(x), output_like(x)
    return a if nl.program_id(0) == 0 else (a, b)


def test_programs_that_return_different_tensors_are_refused() -> None:
    with pytest.raises(RuleError) as caught, heard():
        returning_apart[2](parts(4, 8))
    assert "program 1 returns shared tensor 0, shared tensor 1; program 0 returns shared tensor 0" in str(
        caught.value
    )


@nki.jit
def returning_its_own(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.private_hbm)
    nisa.dma_copy(out, x)
    return out


def test_results_of_which_each_program_has_its_own_are_refused() -> None:
    with pytest.raises(RuleError) as caught, heard():
        returning_its_own[2](parts(4, 8))
    assert str(caught.value).endswith(
        "returning_its_own: it returns a tensor of its own, of which each of the 2 programs has another one\n"
        "  hint: allocate results with buffer=nl.shared_hbm\n"
        "  source: Using Logical Neuron Cores (LNC), Final Notes"
    )


@nki.jit
def differing_shapes(x):
    out = nl.ndarray((2 + nl.program_id(0), 4), nl.float32, buffer=nl.shared_hbm)  # refused
    return out


def test_programs_that_disagree_on_a_shared_tensor_are_refused() -> None:
    with pytest.raises(RuleError) as caught:
        differing_shapes[2](parts(4, 8))
    assert str(caught.value).startswith(
        f"{marked_line(differing_shapes.function)}: ndarray: this instance creates float32[3, 4] where the "
        "first one created float32[2, 4]; instances share one storage\n"
    )
