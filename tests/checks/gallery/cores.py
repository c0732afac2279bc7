"""Memory that cores and ranks share."""

from __future__ import annotations

import nkilab
from tests.checks.gallery.case import case
from tests.dialects.spellings import nisa2 as nisa
from tests.dialects.spellings import nki2 as nki
from tests.dialects.spellings import nl2 as nl

with nkilab.activate():
    import nki.collectives as ncc


def hbm_tensor():
    return nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)


@case("f32[128,512]", grid=2)
@nki.jit
def wrong_the_other_half_is_read_without_a_barrier(x):
    rank = nl.program_id(0)
    tile = nl.ndarray((128, 256), nl.float32, buffer=nl.sbuf)
    halves = nl.ndarray((2, 128, 256), nl.float32, buffer=nl.shared_hbm)
    out = nl.ndarray((2, 128, 256), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(tile, x[:, nl.ds(rank * 256, 256)])
    nisa.dma_copy(halves[rank], tile)  # finds: race-two-cores
    nisa.dma_copy(tile, halves[1 - rank])
    nisa.dma_copy(out[rank], tile)
    return out


@case("f32[128,512]", grid=2)
@nki.jit
def right_a_barrier_on_the_halves(x):
    rank = nl.program_id(0)
    tile = nl.ndarray((128, 256), nl.float32, buffer=nl.sbuf)
    halves = nl.ndarray((2, 128, 256), nl.float32, buffer=nl.shared_hbm)
    out = nl.ndarray((2, 128, 256), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(tile, x[:, nl.ds(rank * 256, 256)])
    nisa.dma_copy(halves[rank], tile)
    nisa.core_barrier(halves, (0, 1))
    nisa.dma_copy(tile, halves[1 - rank])
    nisa.dma_copy(out[rank], tile)
    return out


@case("f32[128,512]", grid=2)
@nki.jit
def wrong_the_barrier_is_on_another_tensor(x):
    rank = nl.program_id(0)
    tile = nl.ndarray((128, 256), nl.float32, buffer=nl.sbuf)
    other = nl.ndarray((128, 256), nl.float32, buffer=nl.sbuf)
    halves = nl.ndarray((2, 128, 256), nl.float32, buffer=nl.shared_hbm)
    out = nl.ndarray((2, 128, 256), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(tile, x[:, nl.ds(rank * 256, 256)])
    nisa.dma_copy(halves[rank], tile)
    nisa.dma_copy(out[rank], tile)
    nisa.core_barrier(out, (0, 1))
    nisa.dma_copy(other, halves[1 - rank])  # finds: race-two-cores
    nisa.dma_copy(out[rank], other)
    return out


@case("f32[128,512]", grid=2)
@nki.jit
def wrong_the_barrier_comes_after_the_read(x):
    """A barrier touches the whole tensor, and hid the store before it."""
    rank = nl.program_id(0)
    tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    buffer = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    if rank == 0:
        nisa.dma_copy(tile, x)
        nisa.dma_copy(buffer, tile)
    else:
        nisa.dma_copy(tile, buffer)  # finds: race-two-cores
        nisa.dma_copy(out, tile)
    nisa.core_barrier(buffer, (0, 1))
    return buffer, out


@case("f32[128,512]", grid=2)
@nki.jit
def right_halves_are_sent(x):
    rank = nl.program_id(0)
    tile = nl.ndarray((128, 256), nl.float32, buffer=nl.sbuf)
    other = nl.ndarray((128, 256), nl.float32, buffer=nl.sbuf)
    out = nl.ndarray((2, 128, 256), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(tile, x[:, nl.ds(rank * 256, 256)])
    nisa.sendrecv(src=tile, dst=other, send_to_rank=1 - rank, recv_from_rank=1 - rank, pipe_id=0)
    nisa.dma_copy(out[rank], other)
    return out


@case("f32[128,512]", grid=2)
@nki.jit
def wrong_both_cores_write_one_result(x):
    tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(tile, x)
    nisa.tensor_scalar(tile, tile, op0=nl.add, operand0=float(nl.program_id(0)))
    nisa.dma_copy(out, tile)  # finds: race-two-cores
    return out


@case("f32[128,512]", grid=2)
@nki.jit
def right_both_cores_store_the_same_values(x):
    """As many kernels of nki-library do with what both cores computed: either may be first."""
    tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    back = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    buffer = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(tile, x)
    nisa.dma_copy(buffer, tile)
    nisa.dma_copy(back, buffer)
    nisa.dma_copy(out, back)
    return buffer, out


@case("f32[1,512]", "i32[1,1]", grid=2)
@nki.jit
def wrong_a_core_reads_where_the_other_one_may_store(x, position):
    row = nl.ndarray((1, 512), nl.float32, buffer=nl.sbuf)
    place = nl.ndarray((1, 1), nl.int32, buffer=nl.sbuf)
    cache = nl.ndarray((4, 512), nl.float32, buffer=nl.shared_hbm)
    out = nl.ndarray((1, 512), nl.float32, buffer=nl.shared_hbm)
    zeros = nl.ndarray((4, 512), nl.float32, buffer=nl.sbuf)
    nisa.memset(zeros, 0.0)
    if nl.program_id(0) == 0:
        nisa.dma_copy(cache, zeros)
    nisa.core_barrier(cache, (0, 1))
    if nl.program_id(0) == 0:
        nisa.dma_copy(row, x)
        nisa.dma_copy(place, position)
        nisa.dma_copy(cache.ap(pattern=[[512, 1], [1, 512]], scalar_offset=place, indirect_dim=0), row)
    else:
        nisa.dma_copy(row, cache[3:4])  # finds: race-two-cores
        nisa.dma_copy(out, row)
    return cache, out


@case("f32[128,512]", grid=2)
@nki.jit
def right_one_core_writes_the_result(x):
    tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(tile, x)
    if nl.program_id(0) == 0:
        nisa.dma_copy(out, tile)
    return out


@case("f32[128,512]", ranks=2, version="0.7")
@nki.jit
def wrong_ranks_exchange_in_place(x):
    tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    buffer = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(tile, x)
    nisa.dma_copy(buffer, tile)
    ncc.collective_permute([buffer], [buffer], [[0, 1], [1, 0]])  # finds: race-two-ranks
    return buffer


@case("f32[128,512]", ranks=2, version="0.7")
@nki.jit
def right_ranks_exchange_between_two_tensors(x):
    tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    buffer = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    received = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(tile, x)
    nisa.dma_copy(buffer, tile)
    ncc.collective_permute([buffer], [received], [[0, 1], [1, 0]])
    return received


@case("f32[128,512]", ranks=2, version="0.7")
@nki.jit
def wrong_a_rank_brings_what_it_never_wrote(x):
    tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    buffer = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    received = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(tile, x)
    nisa.dma_copy(buffer[0:64], tile[0:64])
    ncc.collective_permute([buffer], [received], [[0, 1], [1, 0]])  # finds: unwritten-read
    return received


@case("f32[128,512]", grid=2, version="0.7")
@nki.jit
def right_both_cores_call_one_collective(x):
    """As kernels of nki-library do: one collective of the rank, whoever of its cores stores first."""
    half = nl.ds(nl.program_id(0) * 64, 64)
    tile = nl.ndarray((64, 512), nl.float32, buffer=nl.sbuf)
    src = hbm_tensor()
    dst = hbm_tensor()
    out = hbm_tensor()
    nisa.dma_copy(src[half, :], x[half, :])
    nisa.core_barrier(src, (0, 1))
    ncc.all_reduce([src], [dst], ncc.ReplicaGroup([[0]]), nl.add)
    nisa.dma_copy(tile, dst[nl.ds(64 - nl.program_id(0) * 64, 64), :])
    nisa.dma_copy(out[half, :], tile)
    return dst, out


@case("f32[128,512]", grid=2, version="0.7")
@nki.jit
def wrong_a_collective_reads_what_the_other_core_stores(x):
    half = nl.ds(nl.program_id(0) * 64, 64)
    src = hbm_tensor()
    dst = hbm_tensor()
    nisa.core_barrier(src, (0, 1))
    nisa.dma_copy(src[half, :], x[half, :])  # finds: race-two-cores
    ncc.all_reduce([src], [dst], ncc.ReplicaGroup([[0]]), nl.add)
    return dst


@case("f32[128,512]", grid=2, version="0.7")
@nki.jit
def wrong_both_cores_receive_two_collectives_in_one_place(x):
    mine = hbm_tensor()
    other = hbm_tensor()
    dst = hbm_tensor()
    nisa.dma_copy(mine, x)
    nisa.dma_copy(other, x)
    nisa.core_barrier(mine, (0, 1))
    nisa.core_barrier(other, (0, 1))
    src = other if nl.program_id(0) else mine
    ncc.all_reduce([src], [dst], ncc.ReplicaGroup([[0]]), nl.add)  # finds: race-two-cores
    return dst


@case("f32[128,512]", version="0.7")
@nki.jit
def wrong_two_collectives_receive_into_one_tensor(x):
    src, dst, out = hbm_tensor(), hbm_tensor(), hbm_tensor()
    nisa.dma_copy(src, x)
    ncc.all_reduce([src], [dst], ncc.ReplicaGroup([[0]]), nl.add)
    nisa.dma_copy(src, dst)
    ncc.all_reduce([src], [dst], ncc.ReplicaGroup([[0]]), nl.add)  # finds: collective-receives-twice
    nisa.dma_copy(out, dst)
    return out
