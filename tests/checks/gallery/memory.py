"""What was never written, and what does not fit."""

from __future__ import annotations

from tests.checks.gallery.case import case
from tests.dialects.spellings import nisa2, nki1, nki2, nl1, nl2

nki, nl, nisa = nki2, nl2, nisa2


def out_like(shape):
    return nl.ndarray(shape, nl.float32, buffer=nl.shared_hbm)


def sb(shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype, buffer=nl.sbuf)


def ps(shape):
    return nl.ndarray(shape, nl.float32, buffer=nl.psum)


def operands(a, b):
    left, right = sb((128, 128), nl.bfloat16), sb((128, 512), nl.bfloat16)
    nisa.dma_copy(left, a)
    nisa.dma_copy(right, b)
    return left, right


def stored(total):
    result, out = sb(total.shape), out_like(total.shape)
    nisa.tensor_copy(result, total)
    nisa.dma_copy(out, result)
    return out


# ---- initialisation


@case("f32[128,512]")
@nki.jit
def wrong_nothing_was_loaded(x):
    tile, out = sb((128, 512)), out_like((128, 512))
    nisa.dma_copy(out, tile)  # finds: unwritten-read
    return out


@case("f32[128,512]")
@nki.jit
def right_everything_was_loaded(x):
    tile, out = sb((128, 512)), out_like((128, 512))
    nisa.dma_copy(tile, x)
    nisa.dma_copy(out, tile)
    return out


@case("f32[100,512]")
@nki.jit
def wrong_the_last_rows_are_missing(x):
    tile, out = sb((128, 512)), out_like((128, 512))
    nisa.dma_copy(tile[0:100], x)
    nisa.tensor_scalar(tile, tile, op0=nl.add, operand0=1.0)
    nisa.dma_copy(out, tile)  # finds: unwritten-read
    return out


@case("f32[100,512]")
@nki.jit
def wrong_missing_rows_reach_all_others(x):
    """A transpose takes partitions to columns, and the maximum of a column has them in it."""
    tile, transposed = sb((128, 128)), nl.ndarray((128, 128), nl.float32, buffer=nl.psum)
    top, out = sb((128, 1)), out_like((128, 1))
    nisa.dma_copy(tile[0:100], x[:, 0:128])
    nisa.activation(tile, op=nl.exp, data=tile)
    nisa.nc_transpose(transposed, tile)  # finds: unwritten-read
    nisa.tensor_reduce(top, op=nl.maximum, data=transposed, axis=1)
    nisa.dma_copy(out, top)
    return out


@case("f32[100,512]")
@nki.jit
def right_missing_rows_are_carried_along_and_dropped(x):
    tile, total, out = sb((128, 512)), sb((128, 1)), out_like((100, 512))
    nisa.dma_copy(tile[0:100], x)
    nisa.activation(tile, op=nl.exp, data=tile)
    nisa.tensor_reduce(total, op=nl.add, data=tile, axis=1)
    nisa.reciprocal(total, total)
    nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=total)
    nisa.dma_copy(out, tile[0:100])
    return out


@case("f32[100,512]")
@nki.jit
def right_the_last_rows_are_zeros(x):
    tile, out = sb((128, 512)), out_like((128, 512))
    nisa.memset(tile, 0.0)
    nisa.dma_copy(tile[0:100], x)
    nisa.tensor_scalar(tile, tile, op0=nl.add, operand0=1.0)
    nisa.dma_copy(out, tile)
    return out


@case("i32[128,64]")
@nki.jit
def wrong_an_integer_shows_no_nan(x):
    tile, out = sb((128, 64), nl.int32), nl.ndarray((128, 64), nl.int32, buffer=nl.shared_hbm)
    nisa.dma_copy(tile[:, 0:32], x[:, 0:32])
    nisa.dma_copy(out, tile)  # finds: unwritten-read
    return out


@case("i32[128,64]")
@nki.jit
def right_every_integer_is_loaded(x):
    tile, out = sb((128, 64), nl.int32), nl.ndarray((128, 64), nl.int32, buffer=nl.shared_hbm)
    nisa.dma_copy(tile[:, 0:32], x[:, 0:32])
    nisa.dma_copy(tile[:, 32:64], x[:, 32:64])
    nisa.dma_copy(out, tile)
    return out


@case("f32[300,512]")
@nki1.jit
def wrong_a_mask_leaves_rows_out(x):
    """The mask of the last load hides rows that the store does not hide."""
    out = nl1.ndarray((384, 512), x.dtype, buffer=nl1.shared_hbm)
    i_p, i_f = nl1.mgrid[0:128, 0:512]
    for i in nl1.affine_range(3):
        tile = nl1.load(x[i * 128 + i_p, i_f], mask=i * 128 + i_p < 300)
        nl1.store(out[i * 128 + i_p, i_f], tile)  # finds: unwritten-read
    return out


@case("f32[300,512]")
@nki1.jit
def right_both_masks_agree(x):
    out = nl1.ndarray((300, 512), x.dtype, buffer=nl1.shared_hbm)
    i_p, i_f = nl1.mgrid[0:128, 0:512]
    for i in nl1.affine_range(3):
        tile = nl1.load(x[i * 128 + i_p, i_f], mask=i * 128 + i_p < 300)
        nl1.store(out[i * 128 + i_p, i_f], tile, mask=i * 128 + i_p < 300)
    return out


@case("f32[300,512]")
@nki1.jit
def right_rows_between_two_masks_are_computed_and_dropped(x):
    """As the vendor's first tutorials treat the last rows."""
    out = nl1.ndarray((300, 512), x.dtype, buffer=nl1.shared_hbm)
    i_p, i_f = nl1.mgrid[0:128, 0:512]
    for i in nl1.affine_range(3):
        tile = nl1.load(x[i * 128 + i_p, i_f], mask=i * 128 + i_p < 300)
        scale = nl1.rsqrt(nl1.mean(nl1.square(tile), axis=[1]))
        nl1.store(out[i * 128 + i_p, i_f], nl1.multiply(tile, scale), mask=i * 128 + i_p < 300)
    return out


@case("f32[300,512]")
@nki1.jit
def right_a_choice_between_missing_rows_is_dropped(x):
    out = nl1.ndarray((300, 512), x.dtype, buffer=nl1.shared_hbm)
    i_p, i_f = nl1.mgrid[0:128, 0:512]
    for i in nl1.affine_range(3):
        tile = nl1.load(x[i * 128 + i_p, i_f], mask=i * 128 + i_p < 300)
        chosen = nl1.where(nl1.greater(tile, 0.5), tile, tile)
        nl1.store(out[i * 128 + i_p, i_f], chosen, mask=i * 128 + i_p < 300)
    return out


@case("f32[300,512]")
@nki1.jit
def wrong_missing_rows_choose_between_numbers(x):
    """Every number is there, but nobody knows which of the two the missing rows take."""
    out = nl1.ndarray((384, 512), x.dtype, buffer=nl1.shared_hbm)
    i_p, i_f = nl1.mgrid[0:128, 0:512]
    for i in nl1.affine_range(3):
        tile = nl1.load(x[i * 128 + i_p, i_f], mask=i * 128 + i_p < 300)
        ones = nl1.ones((128, 512), x.dtype, buffer=nl1.sbuf)
        chosen = nl1.where(nl1.greater(tile, 0.5), ones, 0.0)
        nl1.store(out[i * 128 + i_p, i_f], chosen)  # finds: unwritten-read
    return out


@case("f32[100,512]", "u8[128,512]")
@nki.jit
def right_a_predicate_leaves_the_missing_rows_out(x, p):
    """The predicate is 0 everywhere: nothing of `tile` is taken."""
    tile, chosen, predicate, out = (
        sb((128, 512)),
        sb((128, 512)),
        sb((128, 512), nl.uint8),
        out_like((128, 512)),
    )
    nisa.dma_copy(tile[0:100], x)
    nisa.dma_copy(predicate, p)
    nisa.memset(chosen, 0.0)
    nisa.tensor_copy_predicated(dst=chosen, src=tile, predicate=predicate)
    nisa.dma_copy(out, chosen)
    return out


@case("f32[128,500]")
@nki1.jit
def right_columns_between_two_masks_are_computed_and_dropped(x):
    out = nl1.ndarray((128, 500), x.dtype, buffer=nl1.shared_hbm)
    i_p, i_f = nl1.mgrid[0:128, 0:512]
    tile = nl1.load(x[i_p, i_f], mask=i_f < 500)
    nl1.store(out[i_p, i_f], nl1.exp(nl1.multiply(tile, 2.0)), mask=i_f < 500)
    return out


@case("f32[128,500]")
@nki1.jit
def wrong_missing_columns_are_added_to_the_others(x):
    out = nl1.ndarray((128, 1), x.dtype, buffer=nl1.shared_hbm)
    i_p, i_f = nl1.mgrid[0:128, 0:512]
    tile = nl1.load(x[i_p, i_f], mask=i_f < 500)
    nl1.store(out, nl1.sum(nl1.exp(tile), axis=[1]))  # finds: unwritten-read
    return out


@case("f32[100,64]", grid=2)
@nki.jit
def right_missing_rows_are_sent_along_and_dropped(x):
    rank = nl.program_id(0)
    mine, theirs = sb((128, 64)), sb((128, 64))
    out = nl.ndarray((2, 100, 64), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(mine[0:100], x)
    nisa.sendrecv(src=mine, dst=theirs, send_to_rank=1 - rank, recv_from_rank=1 - rank, pipe_id=0)
    nisa.dma_copy(out[rank], theirs[0:100])
    return out


@case("f32[100,64]", grid=2)
@nki.jit
def wrong_missing_rows_are_sent_along_and_stored(x):
    rank = nl.program_id(0)
    mine, theirs = sb((128, 64)), sb((128, 64))
    out = nl.ndarray((2, 128, 64), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(mine[0:100], x)
    nisa.sendrecv(src=mine, dst=theirs, send_to_rank=1 - rank, recv_from_rank=1 - rank, pipe_id=0)
    nisa.dma_copy(out[rank], theirs)  # finds: unwritten-read
    return out


@case("f32[128,512]")
@nki.jit
def wrong_half_of_the_result_is_written(x):
    tile = sb((128, 512))
    out = nl.ndarray((256, 512), nl.float32, buffer=nl.shared_hbm)  # finds: unwritten-output
    nisa.dma_copy(tile, x)
    nisa.dma_copy(out[0:128], tile)
    return out


@case("f32[128,512]")
@nki.jit
def right_the_whole_result_is_written(x):
    tile = sb((128, 512))
    out = nl.ndarray((256, 512), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(tile, x)
    nisa.dma_copy(out[0:128], tile)
    nisa.dma_copy(out[128:256], tile)
    return out


@case("f32[128,512]")
@nki.jit
def wrong_scratch_in_hbm_is_loaded_before_it_is_stored(x):
    tile, out = sb((128, 512)), out_like((128, 512))
    scratch = nl.ndarray((128, 512), nl.float32, buffer=nl.private_hbm)
    nisa.dma_copy(tile, scratch)  # finds: unwritten-read
    nisa.dma_copy(scratch, x)
    nisa.dma_copy(out, tile)
    return out


@case("f32[128,512]")
@nki.jit
def right_scratch_in_hbm_is_stored_first(x):
    tile, out = sb((128, 512)), out_like((128, 512))
    scratch = nl.ndarray((128, 512), nl.float32, buffer=nl.private_hbm)
    nisa.dma_copy(scratch, x)
    nisa.dma_copy(tile, scratch)
    nisa.dma_copy(out, tile)
    return out


@case("f32[128,256]")
@nki1.jit
def wrong_instances_leave_a_hole(x):
    out = nl1.ndarray((128, 512), x.dtype, buffer=nl1.shared_hbm)  # finds: unwritten-output
    for i in nl1.affine_range(3):
        nl1.store(out[:, i * 128 : (i + 1) * 128], nl1.load(x[:, 0:128]))
    return out


@case("f32[128,256]")
@nki1.jit
def right_instances_leave_no_hole(x):
    out = nl1.ndarray((128, 512), x.dtype, buffer=nl1.shared_hbm)
    for i in nl1.affine_range(4):
        nl1.store(out[:, i * 128 : (i + 1) * 128], nl1.load(x[:, 0:128]))
    return out


# ---- capacity


@case("f32[8,128,8192]")
@nki1.jit
def wrong_eight_tiles_of_32_kib_are_live(x):
    out = nl1.ndarray((128, 8192), x.dtype, buffer=nl1.shared_hbm)
    tiles = [nl1.load(x[i]) for i in range(8)]  # finds: spill
    total = tiles[0]
    for tile in tiles[1:]:
        total = nl1.add(total, tile)
    nl1.store(out, total)
    return out


@case("f32[8,128,8192]")
@nki1.jit
def wrong_eight_squares_of_32_kib_are_live(x):
    out = nl1.ndarray((128, 8192), x.dtype, buffer=nl1.shared_hbm)
    squares = []
    for i in range(8):
        tile = nl1.load(x[i])
        squares.append(nl1.multiply(tile, tile))  # finds: spill
    total = squares[0]
    for square in squares[1:]:
        total = nl1.add(total, square)
    nl1.store(out, total)
    return out


@case("f32[8,128,8192]")
@nki1.jit
def right_two_tiles_of_32_kib_are_live(x):
    out = nl1.ndarray((128, 8192), x.dtype, buffer=nl1.shared_hbm)
    total = nl1.load(x[0])
    for i in range(1, 8):
        total = nl1.add(total, nl1.load(x[i]))
    nl1.store(out, total)
    return out


@case("bf16[128,128]", "bf16[128,512]")
@nki.jit
def wrong_nine_banks_are_live(a, b):
    left, right = operands(a, b)
    totals = []
    for _ in range(9):
        totals.append(ps((128, 512)))
    for total in totals:
        nisa.nc_matmul(total, left, right)  # finds: psum-full
    for total in totals:
        out = stored(total)
    return out


@case("bf16[128,128]", "bf16[128,512]")
@nki.jit
def right_eight_banks_are_live(a, b):
    left, right = operands(a, b)
    totals = []
    for _ in range(8):
        totals.append(ps((128, 512)))
    for total in totals:
        nisa.nc_matmul(total, left, right)
    for total in totals:
        out = stored(total)
    return out


@case("bf16[128,65536]")
@nki.jit
def wrong_two_operands_of_one_instruction_do_not_fit(x):
    a, b = sb((128, 65536), nl.bfloat16), sb((128, 65536), nl.bfloat16)
    out = nl.ndarray((128, 65536), nl.bfloat16, buffer=nl.shared_hbm)
    nisa.dma_copy(a, x)
    nisa.tensor_copy(b, a)  # finds: sbuf-full
    nisa.dma_copy(out, b)
    return out


@case("bf16[128,65536]")
@nki.jit
def right_the_instruction_works_in_place(x):
    a = sb((128, 65536), nl.bfloat16)
    out = nl.ndarray((128, 65536), nl.bfloat16, buffer=nl.shared_hbm)
    nisa.dma_copy(a, x)
    nisa.tensor_scalar(a, a, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(out, a)
    return out
