"""Memory that tiles share by address, by pattern, by run-time offset or between cores."""

from __future__ import annotations

from tests.checks.gallery.case import case
from tests.dialects.spellings import ncc1, nisa1, nki1, nki2, nl1, nl2
from tests.dialects.spellings import nisa2 as nisa

nki, nl = nki2, nl2


def a_tile(byte, width=512):
    return nl.ndarray((128, width), nl.float32, buffer=nl.sbuf, address=(0, byte))


def beta_1_tile(byte):
    return nl1.ndarray(
        (nl1.par_dim(128), 512), nl1.float32, buffer=ncc1.sbuf.mod_alloc(base_addr=byte, num_free_tiles=())
    )


@case("f32[128,512]")
@nki.jit
def wrong_two_live_tiles_at_one_address(x):
    a, b = a_tile(0), a_tile(0)
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(a, x)
    nisa.memset(b, 1.0)
    nisa.tensor_tensor(b, b, a, op=nl.add)  # finds: lifetime-conflict
    nisa.dma_copy(out, b)
    return out


@case("f32[128,512]")
@nki.jit
def right_two_live_tiles_at_two_addresses(x):
    a, b = a_tile(0), a_tile(2048)
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(a, x)
    nisa.memset(b, 1.0)
    nisa.tensor_tensor(b, b, a, op=nl.add)
    nisa.dma_copy(out, b)
    return out


@case("f32[128,512]")
@nki.jit
def wrong_the_end_of_one_tile_is_the_start_of_the_next(x):
    a, b = a_tile(0), a_tile(2044)
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(a, x)
    nisa.memset(b, 1.0)
    nisa.dma_copy(out, a)  # finds: lifetime-conflict
    return out


@case("f32[128,512]")
@nki.jit
def right_tiles_side_by_side(x):
    a, b = a_tile(0), a_tile(2048)
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(a, x)
    nisa.memset(b, 1.0)
    nisa.dma_copy(out, a)
    return out


@case("f32[4,128,512]")
@nki.jit
def right_ping_pong_with_one_buffer(x):
    """Slow, but in order: the compiler of `nki` looks at addresses."""
    out = nl.ndarray((4, 128, 512), nl.float32, buffer=nl.shared_hbm)
    for i in range(4):
        tile = a_tile(0)
        nisa.dma_copy(tile, x[i])
        nisa.dma_copy(out[i], tile)
    return out


@case("f32[4,128,512]")
@nki.jit
def right_one_tile_for_all_turns(x):
    out = nl.ndarray((4, 128, 512), nl.float32, buffer=nl.shared_hbm)
    tile = a_tile(0)
    for i in range(4):
        nisa.dma_copy(tile, x[i])
        nisa.dma_copy(out[i], tile)
    return out


@case("f32[128,512]")
@nki.jit
def wrong_a_piece_of_a_region_is_used_twice(x):
    region = nl.sbuf.ptr(size=(128, 4096), offset=(0, 0))
    a = region.ptr(size=(128, 2048), offset=(0, 0)).view(nl.float32, (128, 512))
    b = region.ptr(size=(128, 2048), offset=(0, 1024)).view(nl.float32, (128, 512))
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(a, x)
    nisa.dma_copy(b, x)
    nisa.dma_copy(out, a)  # finds: lifetime-conflict
    return out


@case("f32[128,512]")
@nki.jit
def right_two_pieces_of_a_region(x):
    region = nl.sbuf.ptr(size=(128, 4096), offset=(0, 0))
    a = region.ptr(size=(128, 2048), offset=(0, 0)).view(nl.float32, (128, 512))
    b = region.ptr(size=(128, 2048), offset=(0, 2048)).view(nl.float32, (128, 512))
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(a, x)
    nisa.dma_copy(b, x)
    nisa.dma_copy(out, a)
    return out


@case("f32[128,512]")
@nki.jit
def right_a_dead_tile_is_overwritten_by_another_engine(x):
    a, b = a_tile(0), a_tile(0)
    result = a_tile(4096)
    out = nl.ndarray((2, 128, 512), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(a, x)
    nisa.activation(result, op=nl.exp, data=a)
    nisa.memset(b, 1.0, engine=nisa.engine.vector)
    nisa.dma_copy(out[0], result)
    nisa.dma_copy(out[1], b)
    return out


@case("f32[128,512]")
@nki1.jit
def wrong_two_tensors_of_beta_1_share_an_address(x):
    out = nl1.ndarray((2, 128, 512), x.dtype, buffer=nl1.shared_hbm)
    a, b = beta_1_tile(0), beta_1_tile(0)
    a[...] = nl1.load(x)
    nl1.store(out[0], a)
    b[...] = nisa1.memset((128, 512), 1.0, nl1.float32)  # finds: race-direct-overlap
    nl1.store(out[1], b)
    return out


@case("f32[128,512]")
@nki1.jit
def right_two_tensors_of_beta_1_side_by_side(x):
    out = nl1.ndarray((2, 128, 512), x.dtype, buffer=nl1.shared_hbm)
    a, b = beta_1_tile(0), beta_1_tile(2048)
    a[...] = nl1.load(x)
    nl1.store(out[0], a)
    b[...] = nisa1.memset((128, 512), 1.0, nl1.float32)
    nl1.store(out[1], b)
    return out


@case("f32[4,128,512]")
@nki1.jit
def right_tiles_of_one_tensor_take_turns_at_one_address(x):
    """Serialized, says the direct allocation guide."""
    out = nl1.ndarray((4, 128, 512), x.dtype, buffer=nl1.shared_hbm)
    tiles = nl1.ndarray(
        (4, nl1.par_dim(128), 512), x.dtype, buffer=ncc1.sbuf.mod_alloc(base_addr=0, num_free_tiles=(1,))
    )
    for i in nl1.affine_range(4):
        tiles[i] = nl1.load(x[i])
        nl1.store(out[i], tiles[i])
    return out


@case("f32[4,128,512]")
@nki1.jit
def right_a_tensor_of_nested_loops_is_one(x):
    """As test_sbuf_modulo_alloc.py of the SDK allocates."""
    out = nl1.ndarray((4, 128, 512), x.dtype, buffer=nl1.shared_hbm)
    for i in nl1.affine_range(2):
        for j in nl1.affine_range(2):
            tile = beta_1_tile(0)
            tile[...] = nl1.load(x[i * 2 + j])
            nl1.store(out[i * 2 + j], tile)
    return out


@case("f32[2,128,512]")
@nki1.jit
def right_two_loads_go_through_one_queue(x):
    """What the first load brought is of no use; the second one comes behind it in the queue of loads."""
    out = nl1.ndarray((128, 512), x.dtype, buffer=nl1.shared_hbm)
    a, b = beta_1_tile(0), beta_1_tile(0)
    a[...] = nl1.load(x[0])
    b[...] = nl1.load(x[1])
    nl1.store(out, b)
    return out


@case("f32[128,512]")
@nki1.jit
def right_one_engine_writes_both_tiles(x):
    out = nl1.ndarray((128, 512), x.dtype, buffer=nl1.shared_hbm)
    a, b = beta_1_tile(0), beta_1_tile(0)
    a[...] = nisa1.memset((128, 512), 0.0, nl1.float32, engine=nisa1.vector_engine)
    b[...] = nisa1.memset((128, 512), 1.0, nl1.float32, engine=nisa1.vector_engine)
    nl1.store(out, b)
    return out


@case("f32[8,128,512]")
@nki1.jit
def wrong_too_few_rotating_tiles(x):
    """The second example of lifetime conflicts in the direct allocation guide."""
    out = nl1.ndarray((8, 128, 512), x.dtype, buffer=nl1.shared_hbm)
    first = nl1.ndarray(
        (8, nl1.par_dim(128), 512), x.dtype, buffer=ncc1.sbuf.mod_alloc(base_addr=0, num_free_tiles=(8,))
    )
    second = nl1.ndarray(
        (8, nl1.par_dim(128), 512), x.dtype, buffer=ncc1.sbuf.mod_alloc(base_addr=8192, num_free_tiles=(8,))
    )
    for i in nl1.static_range(8):
        first[i] = nl1.load(x[i])
    for i in nl1.static_range(8):
        second[i] = nl1.load(x[i])
    for i in nl1.static_range(8):
        nl1.store(out[i], first[i])  # finds: lifetime-conflict
    return out


@case("f32[8,128,512]")
@nki1.jit
def wrong_eight_blocks_live_in_two_tiles(x):
    """The last example of lifetime conflicts in the direct allocation guide."""
    out = nl1.ndarray((8, 128, 512), x.dtype, buffer=nl1.shared_hbm)
    blocks = nl1.ndarray(
        (8, nl1.par_dim(128), 512), x.dtype, buffer=ncc1.sbuf.mod_alloc(base_addr=0, num_free_tiles=(2,))
    )
    for i in nl1.affine_range(8):
        blocks[i] = nl1.load(x[i])
    for i in nl1.affine_range(8):
        nl1.store(out[i], blocks[i])  # finds: lifetime-conflict
    return out


@case("f32[8,128,512]")
@nki1.jit
def right_two_blocks_at_a_time_in_two_tiles(x):
    out = nl1.ndarray((8, 128, 512), x.dtype, buffer=nl1.shared_hbm)
    blocks = nl1.ndarray(
        (8, nl1.par_dim(128), 512), x.dtype, buffer=ncc1.sbuf.mod_alloc(base_addr=0, num_free_tiles=(2,))
    )
    for j in nl1.affine_range(4):
        for i in nl1.affine_range(2):
            blocks[j * 2 + i] = nl1.load(x[j * 2 + i])
        for i in nl1.affine_range(2):
            nl1.store(out[j * 2 + i], nl1.add(blocks[j * 2 + i], blocks[j * 2 + i]))
    return out


@case("f32[8,128,512]")
@nki1.jit
def right_enough_rotating_tiles(x):
    out = nl1.ndarray((8, 128, 512), x.dtype, buffer=nl1.shared_hbm)
    first = nl1.ndarray(
        (8, nl1.par_dim(128), 512), x.dtype, buffer=ncc1.sbuf.mod_alloc(base_addr=0, num_free_tiles=(8,))
    )
    second = nl1.ndarray(
        (8, nl1.par_dim(128), 512), x.dtype, buffer=ncc1.sbuf.mod_alloc(base_addr=16384, num_free_tiles=(8,))
    )
    for i in nl1.static_range(8):
        first[i] = nl1.load(x[i])
    for i in nl1.static_range(8):
        second[i] = nl1.load(x[i])
    for i in nl1.static_range(8):
        nl1.store(out[i], first[i])
    return out


@case("f32[128,512]")
@nki.jit
def right_shifted_patterns(x):
    """Slices are made of patterns, and the compiler orders accesses through slices."""
    tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(tile.ap(pattern=[[512, 128], [1, 300]], offset=0), x[:, 0:300])
    nisa.memset(tile.ap(pattern=[[512, 128], [1, 300]], offset=212), 0.0)
    nisa.dma_copy(out, tile)
    return out


@case("f32[128,512]")
@nki.jit
def right_patterns_side_by_side(x):
    tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(tile.ap(pattern=[[512, 128], [1, 256]], offset=0), x[:, 0:256])
    nisa.memset(tile.ap(pattern=[[512, 128], [1, 256]], offset=256), 0.0)
    nisa.dma_copy(out, tile)
    return out


@case("f32[128,512]")
@nki.jit
def right_interleaved_patterns_never_meet(x):
    tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(tile.ap(pattern=[[512, 128], [2, 256]], offset=0), x[:, 0:256])
    nisa.memset(tile.ap(pattern=[[512, 128], [2, 256]], offset=1), 0.0)
    nisa.dma_copy(out, tile)
    return out


@case("f32[16,512]", "i32[16,1]")
@nki.jit
def wrong_scattered_rows_are_read_back_unordered(x, rows):
    """No index occurs twice, and nobody knows whether one is a row that is read."""
    tile = nl.ndarray((16, 512), nl.float32, buffer=nl.sbuf)
    index = nl.ndarray((16, 1), nl.int32, buffer=nl.sbuf)
    back = nl.ndarray((16, 512), nl.float32, buffer=nl.sbuf)
    zeros = nl.ndarray((64, 512), nl.float32, buffer=nl.sbuf)
    table = nl.ndarray((64, 512), nl.float32, buffer=nl.shared_hbm)
    out = nl.ndarray((16, 512), nl.float32, buffer=nl.shared_hbm)
    nisa.memset(zeros, 0.0)
    nisa.dma_copy(table, zeros)
    nisa.dma_copy(tile, x)
    nisa.dma_copy(index, rows)
    nisa.dma_copy(table.ap(pattern=[[512, 16], [1, 512]], vector_offset=index, indirect_dim=0), tile)
    nisa.dma_copy(back, table[32:48])  # finds: race-dynamic-hbm
    nisa.dma_copy(out, back)
    return table, out


@case("f32[1,512]", "i32[1,1]")
@nki.jit
def wrong_a_cache_row_is_read_back_unordered(x, position):
    """A decode step: the new row goes to the cache at a run-time place, and the cache is read at once."""
    row = nl.ndarray((1, 512), nl.float32, buffer=nl.sbuf)
    place = nl.ndarray((1, 1), nl.int32, buffer=nl.sbuf)
    whole = nl.ndarray((64, 512), nl.float32, buffer=nl.sbuf)
    cache = nl.ndarray((64, 512), nl.float32, buffer=nl.shared_hbm)
    out = nl.ndarray((64, 512), nl.float32, buffer=nl.shared_hbm)
    nisa.memset(whole, 0.0)
    nisa.dma_copy(cache, whole)
    nisa.dma_copy(row, x)
    nisa.dma_copy(place, position)
    nisa.dma_copy(cache.ap(pattern=[[512, 1], [1, 512]], scalar_offset=place, indirect_dim=0), row)
    nisa.dma_copy(whole, cache)  # finds: race-dynamic-hbm
    nisa.dma_copy(out, whole)
    return cache, out


def a_cache(x, position):
    """A cache of zeros, a row and the place where it goes."""
    row = nl.ndarray((1, 512), nl.float32, buffer=nl.sbuf)
    place = nl.ndarray((1, 1), nl.int32, buffer=nl.sbuf)
    whole = nl.ndarray((64, 512), nl.float32, buffer=nl.sbuf)
    cache = nl.ndarray((64, 512), nl.float32, buffer=nl.shared_hbm)
    nisa.memset(whole, 0.0)
    nisa.dma_copy(cache, whole)
    nisa.dma_copy(row, x)
    nisa.dma_copy(place, position)
    return cache, cache.ap(pattern=[[512, 1], [1, 512]], scalar_offset=place, indirect_dim=0), row, whole


@case("f32[1,512]", "i32[1,1]")
@nki.jit
def right_an_order_is_asked_for(x, position):
    cache, there, row, whole = a_cache(x, position)
    out = nl.ndarray((64, 512), nl.float32, buffer=nl.shared_hbm)
    last = nisa.dma_copy(there, row)
    nisa.dma_copy(whole, cache).depends_on(last)
    nisa.dma_copy(out, whole)
    return cache, out


@case("f32[1,512]", "i32[1,1]")
@nki.jit
def right_a_block_keeps_the_order(x, position):
    cache, there, row, whole = a_cache(x, position)
    out = nl.ndarray((64, 512), nl.float32, buffer=nl.shared_hbm)
    with nl.no_reorder():
        nisa.dma_copy(there, row)
        nisa.dma_copy(whole, cache)
    nisa.dma_copy(out, whole)
    return cache, out


@case("f32[1,512]", "i32[1,1]")
@nki.jit
def right_a_barrier_of_one_core_keeps_the_order(x, position):
    """As the blockwise products of nki-library do between a scattered store and the next gather."""
    cache, there, row, whole = a_cache(x, position)
    out = nl.ndarray((64, 512), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(there, row)
    nisa.core_barrier(cache, (0,))
    nisa.dma_copy(whole, cache)
    nisa.dma_copy(out, whole)
    return cache, out


@case("f32[1,512]")
@nki.jit
def right_the_place_is_known(x):
    row = nl.ndarray((1, 512), nl.float32, buffer=nl.sbuf)
    whole = nl.ndarray((64, 512), nl.float32, buffer=nl.sbuf)
    cache = nl.ndarray((64, 512), nl.float32, buffer=nl.shared_hbm)
    out = nl.ndarray((64, 512), nl.float32, buffer=nl.shared_hbm)
    nisa.memset(whole, 0.0)
    nisa.dma_copy(cache, whole)
    nisa.dma_copy(row, x)
    nisa.dma_copy(cache[3:4], row)
    nisa.dma_copy(whole, cache)
    nisa.dma_copy(out, whole)
    return cache, out


@case("u32[1,1]")
@nki.jit
def wrong_a_seed_may_come_too_late(state):
    seed = nl.ndarray((1, 1), nl.uint32, buffer=nl.sbuf)
    noise = nl.ndarray((128, 512), nl.uint32, buffer=nl.sbuf)
    out = nl.ndarray((128, 512), nl.uint32, buffer=nl.shared_hbm)
    nisa.dma_copy(seed, state)
    nisa.set_rng_seed(seed)
    nisa.rng(noise, engine=nisa.engine.vector)  # finds: race-open-schedule
    nisa.dma_copy(out, noise)
    return out


@case("u32[1,1]")
@nki.jit
def right_the_seed_comes_first(state):
    seed = nl.ndarray((1, 1), nl.uint32, buffer=nl.sbuf)
    noise = nl.ndarray((128, 512), nl.uint32, buffer=nl.sbuf)
    out = nl.ndarray((128, 512), nl.uint32, buffer=nl.shared_hbm)
    nisa.dma_copy(seed, state)
    with nl.no_reorder():
        nisa.set_rng_seed(seed)
        nisa.rng(noise, engine=nisa.engine.vector)
    nisa.dma_copy(out, noise)
    return out


@case("f32[16,128,512]")
@nki.jit
def right_tiles_of_one_line_take_turns(x):
    out = nl.ndarray((16, 128, 512), nl.float32, buffer=nl.shared_hbm)
    for i in range(16):
        tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(tile, x[i])
        nisa.tensor_scalar(tile, tile, op0=nl.add, operand0=1.0)
        nisa.dma_copy(out[i], tile)
    return out
