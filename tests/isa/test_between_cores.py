"""sendrecv and core_barrier as declarations; what they do between programs is in tests/cores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nkilab.errors import RuleError, UnsupportedError
from nkilab.isa import REGISTRY
from nkilab.machine import MACHINES
from nkilab.tiles.tile import array_of
from tests.isa.warned import heard
from tests.uses import Tile, call, form_of, new_tile, open_session, part_of, refused, smallest_use

SENDRECV, CORE_BARRIER, TENSOR_COPY = (
    REGISTRY["sendrecv"],
    REGISTRY["core_barrier"],
    REGISTRY["tensor_copy"],
)
RANKS = {"send_to_rank": 1, "recv_from_rank": 1, "pipe_id": 0}


@pytest.mark.parametrize("name", ["sendrecv", "core_barrier"])
def test_trn1_has_no_instructions_between_cores(name: str) -> None:
    assert refused(REGISTRY[name], {}, "trn1") == (
        f"{name} needs NeuronCore-v3 or newer, which trn1 is not\n  source: nki.isa.{name}"
    )


@pytest.mark.parametrize(
    ("dtype", "most"), [("float32", 256), ("int32", 256), ("bfloat16", 256), ("int8", 256), ("uint8", 256)]
)
def test_gpsimd_dma_moves_1024_bytes_of_words_512_of_halves_256_of_bytes(dtype: str, most: int) -> None:
    # the page: 1024, 512 and 256 bytes for 32, 16 and 8 bits: 256 elements each
    types = {"src.dtype": dtype, "dst.dtype": dtype}
    assert refused(SENDRECV, {**types, "dma_engine": "gpsimd_dma", "F": most}) == ""
    assert refused(SENDRECV, {**types, "F": most + 1}) == ""
    assert refused(SENDRECV, {**types, "dma_engine": "gpsimd_dma", "F": most + 1}) == (
        "a partition holds more than 256 elements; dma_engine gpsimd_dma moves 1024 bytes of 32-bit types, "
        "512 of 16-bit and 256 of 8-bit ones\n"
        "  hint: use dma_engine.dma, or several calls\n"
        "  source: nki.isa.sendrecv, dma_engine"
    )


@pytest.mark.parametrize("memory", ["psum", "hbm"])
def test_tiles_of_other_memories_than_sbuf_are_not_exchanged(memory: str) -> None:
    assert refused(SENDRECV, {"src.memory": memory}).startswith(f"src is in {memory}; it must be in sbuf\n")
    assert refused(SENDRECV, {"dst.memory": memory}).startswith(f"dst is in {memory}; it must be in sbuf\n")


def test_a_transfer_may_start_at_any_partition() -> None:
    # DMA reaches every partition; the start partitions of the compute engines do not bind it
    session = open_session(MACHINES["trn2"])
    src = part_of(new_tile(session, np.ones((64, 4))), (17, 0), (5, 4))
    dst = part_of(new_tile(session, np.zeros((64, 4))), (3, 0), (5, 4))
    call(session, SENDRECV, src=src, dst=dst, **RANKS)
    assert array_of(dst).sum() == 20


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint8", "float8_e4m3"])
def test_bits_move_as_they_are(dtype: str) -> None:
    session = open_session(MACHINES["trn3"])
    src, dst = (new_tile(session, np.zeros((8, 16)), dtype) for _ in range(2))
    bits = np.random.default_rng(5).integers(0, 256, array_of(src).nbytes, np.uint8)
    src.storage.data.reshape(-1).view(np.uint8)[:] = bits
    call(session, SENDRECV, src=src, dst=dst, **RANKS)
    assert array_of(dst).tobytes() == bits.tobytes()


def test_an_exchange_is_one_transfer_on_chip() -> None:
    # hand: 16 partitions of 512 float32 are 16 runs of 2 KiB
    (step,) = form_of(SENDRECV, MACHINES["trn2"], smallest_use(SENDRECV, {"F": 512})).steps
    assert (step.engine, step.descriptors, step.descriptor_bytes) == ("dma", 16, 2048)
    assert step.widening > 1


@pytest.mark.parametrize(
    ("spelled", "cores"),
    [(0, (0,)), ((0,), (0,)), ((0, 1), (0, 1)), ([0, 1], (0, 1)), (np.arange(2), (0, 1))],
)
def test_cores_are_a_number_or_a_tuple(spelled: Any, cores: tuple[int, ...]) -> None:
    assert CORE_BARRIER.attributes["cores"].canonical("cores", spelled) == cores


@pytest.mark.parametrize("spelled", [(1, 0), (1,), (0, 1, 2), (), "01", None, 2])
def test_other_cores_are_refused(spelled: Any) -> None:
    with pytest.raises(RuleError) as caught:
        CORE_BARRIER.attributes["cores"].canonical("cores", spelled)
    assert str(caught.value) == (
        f"cores is {spelled!r}; it must be (0, 1), or (0,) on one core\n  source: nki.isa.core_barrier"
    )


def test_an_engine_that_no_barrier_runs_on_is_refused() -> None:
    canonical = CORE_BARRIER.attributes["engine"].canonical
    assert canonical("engine", "unknown") == "gpsimd"
    with pytest.raises(RuleError) as caught:
        canonical("engine", "pool")
    assert str(caught.value) == "engine is 'pool'; it must be one of gpsimd, tensor, vector, scalar"
    with pytest.raises(UnsupportedError) as unsupported:
        canonical("engine", "sync")
    assert str(unsupported.value) == (
        "engine is sync, whose instruction stream is not modelled\n"
        "  hint: leave engine= out, or pass nisa.engine.gpsimd"
    )


@pytest.mark.parametrize(
    ("engine", "clock"), [("gpsimd", 1.2), ("tensor", 2.4), ("vector", 0.96), ("scalar", 1.2)]
)
def test_a_barrier_blocks_the_engine_it_names(engine: str, clock: float) -> None:
    # hand: the shortest instruction, 64 cycles, and a semaphore wait of 58 ns (optimization guide)
    (step,) = form_of(CORE_BARRIER, MACHINES["trn2"], smallest_use(CORE_BARRIER, {"engine": engine})).steps
    assert step.engine == engine
    assert step.busy_ns == pytest.approx(64 / clock + 58)


def test_a_barrier_stands_between_the_accesses_before_and_after_it() -> None:
    form = form_of(CORE_BARRIER, MACHINES["trn2"], smallest_use(CORE_BARRIER))
    session = open_session(MACHINES["trn2"])
    data = new_tile(session, np.ones((16, 4)), memory="hbm")
    call(session, CORE_BARRIER, data=data, cores=(0, 1))
    (access,) = session.program.accesses(0)
    assert (access.is_read, access.is_written) == (True, True)
    assert form.reads_dst


def test_a_barrier_writes_nothing() -> None:
    session = open_session(MACHINES["trn2"])
    tile = new_tile(session, Tile((16, 4)), name="t")
    call(session, CORE_BARRIER, data=tile, cores=(0, 1))
    assert tile.storage.written.of(tile) == "none"
    with heard() as texts:
        call(session, TENSOR_COPY, dst=new_tile(session, Tile((16, 4))), src=tile)
    assert texts == [
        "reads t: float32[16, 4] in sbuf, which was never written; unwritten elements read as nan"
    ]
