"""What a version of NKI, or the simulator of a version, makes of a form in another way than the next one."""

from __future__ import annotations

import nkilab
from tests.checks.gallery.case import case
from tests.checks.gallery.forms import X, hbm, sb

with nkilab.activate():
    import nki
    import nki.isa as nisa
    import nki.language as nl


@case(X, version="0.1")
@nki.jit
def wrong_an_absolute_value_in_0_1(x):
    tile, out = sb(), hbm()
    nisa.dma_copy(tile, x)
    nisa.tensor_scalar(tile, tile, op0=nl.abs, operand0=0.0)  # finds: early-operators
    nisa.dma_copy(out, tile)
    return out


@case(X, version="0.2")
@nki.jit
def right_an_absolute_value_in_0_2(x):
    tile, out = sb(), hbm()
    nisa.dma_copy(tile, x)
    nisa.tensor_scalar(tile, tile, op0=nl.abs, operand0=0.0)
    nisa.dma_copy(out, tile)
    return out


@case("f32[4,4]", "i32[1,1]", version="0.5")
@nki.jit
def wrong_a_transfer_reads_sbuf_at_a_run_time_offset(x, at):
    index, tile, out = sb((1, 1), nl.int32), sb((4, 4)), hbm((2, 2))
    nisa.dma_copy(index, at)
    nisa.dma_copy(tile, x)
    part = tile.ap([[4, 2], [1, 2]], scalar_offset=index, indirect_dim=1)
    nisa.dma_copy(out, part)  # finds: dma-dynamic-on-chip
    return out


@case("f32[4,4]", version="0.5")
@nki.jit
def right_a_transfer_reads_a_part_of_sbuf(x):
    tile, out = sb((4, 4)), hbm((2, 2))
    nisa.dma_copy(tile, x)
    nisa.dma_copy(out, tile.ap([[4, 2], [1, 2]]))
    return out


@case(X, target="trn1", version="0.6")
@nki.jit
def wrong_gpsimd_adds_two_tiles_on_trn1(x):
    tile, out = sb(), hbm()
    nisa.dma_copy(tile, x)
    nisa.tensor_tensor(tile, tile, tile, op=nl.add, engine=nisa.engine.gpsimd)  # finds: gpsimd-sum
    nisa.dma_copy(out, tile)
    return out


@case(X, target="trn2", version="0.6")
@nki.jit
def right_gpsimd_adds_two_tiles_on_trn2(x):
    tile, out = sb(), hbm()
    nisa.dma_copy(tile, x)
    nisa.tensor_tensor(tile, tile, tile, op=nl.add, engine=nisa.engine.gpsimd)
    nisa.dma_copy(out, tile)
    return out


@case(X, version="0.2")
@nki.jit
def wrong_a_maximum_goes_on_in_0_2(x):
    tile, chosen, top, low, high = sb(), sb(), sb((128, 1)), sb((128, 1)), sb((128, 1))
    nisa.dma_copy(tile, x)
    nisa.memset(low, 0.0)
    nisa.memset(high, 100.0)
    nisa.range_select(chosen, tile, nl.greater_equal, nl.less, low, high, reduce_res=top)
    out = hbm((128, 1))
    nisa.range_select(  # finds: range-select-command
        chosen, tile, nl.greater_equal, nl.less, low, high, nisa.reduce_cmd.reduce, top
    )
    nisa.dma_copy(out, top)
    return out


@case("bf16[8,128]", version="0.6")
@nki.jit
def wrong_a_transposing_transfer_writes_half_lines(x):
    tile, out = sb((128, 8), nl.bfloat16), hbm((128, 8), nl.bfloat16)
    nisa.dma_transpose(tile, x)  # finds: transpose-line
    nisa.dma_copy(out, tile)
    return out


@case("bf16[8,128]", version="0.6")
@nki.jit
def right_a_transposing_transfer_writes_a_part_of_whole_lines(x):
    tile, out = sb((128, 16), nl.bfloat16), hbm((128, 8), nl.bfloat16)
    nisa.dma_transpose(tile[:, 0:8], x)
    nisa.dma_copy(out, tile[:, 0:8])
    return out


@case("bf16[128,64]", "u32[16,1]", version="0.3")
@nki.jit
def wrong_an_indirect_transpose_of_64_columns_in_0_3(x, chosen):
    rows, tile = sb((16, 1), nl.uint32), sb((64, 1, 1, 16), nl.bfloat16)
    out = hbm((64, 1, 1, 16), nl.bfloat16)
    nisa.dma_copy(rows, chosen)
    part = x.ap([[64, 16], [1, 1], [1, 1], [1, 64]], vector_offset=rows, indirect_dim=0)
    nisa.dma_transpose(tile, part)  # finds: indirect-transpose-columns
    nisa.dma_copy(out, tile)
    return out


@case("bf16[128,64]", "u32[16,1]", version="0.4")
@nki.jit
def right_an_indirect_transpose_of_64_columns_in_0_4(x, chosen):
    rows, tile = sb((16, 1), nl.uint32), sb((64, 1, 1, 16), nl.bfloat16)
    out = hbm((64, 1, 1, 16), nl.bfloat16)
    nisa.dma_copy(rows, chosen)
    part = x.ap([[64, 16], [1, 1], [1, 1], [1, 64]], vector_offset=rows, indirect_dim=0)
    nisa.dma_transpose(tile, part)
    nisa.dma_copy(out, tile)
    return out


@case("i32[128,512]", version="0.4")
@nki.jit
def wrong_whole_numbers_are_copied_by_nl_copy_in_0_4(x):
    tile, out = sb(dtype=nl.int32), hbm(dtype=nl.int32)
    nisa.dma_copy(tile, x)
    nisa.dma_copy(out, nl.copy(tile))  # finds: nl-copy-integers
    return out


@case("i32[128,512]", version="0.5")
@nki.jit
def right_whole_numbers_are_copied_by_nl_copy_in_0_5(x):
    tile, out = sb(dtype=nl.int32), hbm(dtype=nl.int32)
    nisa.dma_copy(tile, x)
    nisa.dma_copy(out, nl.copy(tile))
    return out


@case("i32[128,512]", "f32[128,512]", version="0.5")
@nki.jit
def wrong_numbers_that_the_simulator_of_0_5_makes_otherwise(x, y):
    whole, part, cast = sb(dtype=nl.int32), sb(), sb(dtype=nl.int32)
    nisa.dma_copy(whole, x)
    nisa.dma_copy(part, y)
    nisa.tensor_copy(cast, part)  # finds: integer-casts
    nisa.tensor_tensor(whole, whole, cast, op=nl.add, engine=nisa.engine.vector)  # finds: integers-on-vector
    out, most, where = hbm(dtype=nl.int32), sb((128, 8)), sb((128, 8), nl.uint32)
    places = hbm((128, 8), nl.uint32)
    nisa.max8(most, part)
    nisa.nc_find_index8(where, part, most)  # finds: found-places
    nisa.dma_copy(out, whole)
    nisa.dma_copy(places, where)
    return out, places


@case("i32[128,512]", version="0.6")
@nki.jit
def right_whole_numbers_are_added_on_gpsimd(x):
    whole, out = sb(dtype=nl.int32), hbm(dtype=nl.int32)
    nisa.dma_copy(whole, x)
    nisa.tensor_tensor(whole, whole, whole, op=nl.add)
    nisa.dma_copy(out, whole)
    return out


@case("bf16[128,512]", version="0.6")
@nki.jit
def wrong_the_largest_of_a_row_has_16_bits(x):
    tile, low, high = sb(dtype=nl.bfloat16), sb((128, 1)), sb((128, 1))
    chosen, top, out = sb(dtype=nl.bfloat16), sb((128, 1), nl.bfloat16), hbm((128, 1), nl.bfloat16)
    nisa.dma_copy(tile, x)
    nisa.memset(low, 0.0)
    nisa.memset(high, 100.0)
    nisa.range_select(  # finds: range-select-rounds
        chosen, tile, nl.greater_equal, nl.less, low, high, reduce_res=top
    )
    nisa.dma_copy(out, top)
    return out


@case("bf16[128,128]", version="0.6")
@nki.jit
def wrong_a_transpose_begins_within_a_word(x):
    tile, out = sb((128, 128), nl.bfloat16), hbm((128, 128), nl.bfloat16)
    transposed = nl.ndarray((128, 256), nl.bfloat16, buffer=nl.psum)
    nisa.dma_copy(tile, x)
    nisa.nc_transpose(transposed[:, 1:129], tile)  # finds: psum-word-start
    nisa.tensor_copy(tile, transposed[:, 1:129])
    nisa.dma_copy(out, tile)
    return out


@case("bf16[128,128]", version="0.6")
@nki.jit
def right_a_transpose_begins_with_a_word(x):
    tile, out = sb((128, 128), nl.bfloat16), hbm((128, 128), nl.bfloat16)
    transposed = nl.ndarray((128, 256), nl.bfloat16, buffer=nl.psum)
    nisa.dma_copy(tile, x)
    nisa.nc_transpose(transposed[:, 2:130], tile)
    nisa.tensor_copy(tile, transposed[:, 2:130])
    nisa.dma_copy(out, tile)
    return out


@case(X, grid=2, version="0.3")
@nki.jit
def wrong_forty_rows_are_exchanged_in_0_3(x):
    sent, received, out = sb((40, 512)), sb((40, 512)), hbm((2, 40, 512))
    other = 1 - nl.program_id(0)
    nisa.dma_copy(sent, x[0:40])
    nisa.sendrecv(sent, received, other, other, 0)  # finds: sendrecv-rows
    nisa.dma_copy(out[nl.program_id(0)], received)
    return out


@case(X, grid=2, version="0.4")
@nki.jit
def right_forty_rows_are_exchanged_in_0_4(x):
    sent, received, out = sb((40, 512)), sb((40, 512)), hbm((2, 40, 512))
    other = 1 - nl.program_id(0)
    nisa.dma_copy(sent, x[0:40])
    nisa.sendrecv(sent, received, other, other, 0)
    nisa.dma_copy(out[nl.program_id(0)], received)
    return out
