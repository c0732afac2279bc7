"""Work that is lost: results written over or never read, sums in SBUF that go on, inputs read in part."""

from __future__ import annotations

from tests.checks.gallery.case import case
from tests.checks.gallery.memory import out_like, ps, sb
from tests.dialects.spellings import nisa1, nisa2, nki1, nki2, nl1, nl2

nki, nl, nisa = nki2, nl2, nisa2


@case("bf16[512,128]", "bf16[512,256]")
@nki.jit
def wrong_a_sum_that_each_iteration_makes_anew(a, b):
    """The tile in PSUM is made within the loop over the contraction: only the last product remains."""
    out = out_like((128, 256))
    for k in nl.affine_range(4):
        left, right = sb((128, 128), nl.bfloat16), sb((128, 256), nl.bfloat16)
        total, result = ps((128, 256)), sb((128, 256))
        nisa.dma_copy(left, a[nl.ds(k * 128, 128)])
        nisa.dma_copy(right, b[nl.ds(k * 128, 128)])
        nisa.nc_matmul(total, left, right)
        nisa.tensor_copy(result, total)
        nisa.dma_copy(out, result)  # finds: overwritten-result
    return out


@case("f32[4,2,128,256]")
@nki.jit
def wrong_an_index_lacks_the_inner_loop(x):
    out = out_like((4, 128, 256))
    for i in nl.affine_range(4):
        for j in nl.affine_range(2):
            tile = sb((128, 256))
            nisa.dma_copy(tile, x[i, j])
            nisa.dma_copy(out[i], tile)  # finds: overwritten-result
    return out


@case("f32[4,128,256]")
@nki1.jit
def wrong_a_maximum_is_not_carried(x):
    """In Beta 1: each iteration stores the maximum of its own block."""
    out = nl1.ndarray((128, 1), nl1.float32, buffer=nl1.shared_hbm)
    for i in nl1.sequential_range(4):
        largest = nl1.max(nl1.load(x[i]), axis=1, keepdims=True)
        nl1.store(out, largest)  # finds: overwritten-result
    return out


@case("f32[4,128,256]")
@nki.jit
def right_each_iteration_stores_the_sum_so_far(x):
    out, total = out_like((128, 256)), sb((128, 256))
    nisa.memset(total, 0.0)
    for i in range(4):
        tile = sb((128, 256))
        nisa.dma_copy(tile, x[i])
        nisa.tensor_tensor(total, total, tile, op=nl.add)
        nisa.dma_copy(out, total)
    return out


@case("f32[128,256]")
@nki.jit
def right_an_iteration_goes_on_from_the_one_before(x):
    """What is stored is not what goes on, but both come from one state."""
    out, state = out_like((128, 256)), sb((128, 256))
    nisa.dma_copy(state, x)
    for _ in range(4):
        following, shown = sb((128, 256)), sb((128, 256))
        nisa.activation(following, op=nl.tanh, data=state)
        nisa.tensor_scalar(shown, following, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(out, shown)
        state = following
    return out


@case("f32[128,256]")
@nki.jit
def right_scratch_is_read_before_it_is_written_over(x):
    out, scratch = out_like((4, 128, 256)), nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.hbm)
    tile, again = sb((128, 256)), sb((128, 256))
    nisa.dma_copy(tile, x)
    for i in range(4):
        scaled = sb((128, 256))
        nisa.tensor_scalar(scaled, tile, op0=nl.multiply, operand0=float(i))
        nisa.dma_copy(scratch, scaled)
        nisa.dma_copy(again, scratch)
        nisa.dma_copy(out[i], again)
    return out


@case("bf16[256,256]", "bf16[256,512]")
@nki.jit
def wrong_one_sum_in_sbuf_for_all_rows_of_a_product(a, b):
    total, out = sb((128, 512)), out_like((256, 512))
    nisa.memset(total, 0.0)
    for m in nl.affine_range(2):
        for k in nl.affine_range(2):
            left, right, product = sb((128, 128), nl.bfloat16), sb((128, 512), nl.bfloat16), ps((128, 512))
            nisa.dma_copy(left, a[nl.ds(k * 128, 128), nl.ds(m * 128, 128)])
            nisa.dma_copy(right, b[nl.ds(k * 128, 128)])
            nisa.nc_matmul(product, left, right)  # finds: sbuf-sum-goes-on
            nisa.tensor_tensor(total, total, product, op=nl.add)
        nisa.dma_copy(out[nl.ds(m * 128, 128)], total)
    return out


@case("bf16[256,256]", "bf16[256,512]")
@nki.jit
def right_a_sum_in_sbuf_for_each_row_of_a_product(a, b):
    total, out = sb((128, 512)), out_like((256, 512))
    for m in nl.affine_range(2):
        nisa.memset(total, 0.0)
        for k in nl.affine_range(2):
            left, right, product = sb((128, 128), nl.bfloat16), sb((128, 512), nl.bfloat16), ps((128, 512))
            nisa.dma_copy(left, a[nl.ds(k * 128, 128), nl.ds(m * 128, 128)])
            nisa.dma_copy(right, b[nl.ds(k * 128, 128)])
            nisa.nc_matmul(product, left, right)
            nisa.tensor_tensor(total, total, product, op=nl.add)
        nisa.dma_copy(out[nl.ds(m * 128, 128)], total)
    return out


@case("bf16[512,128]", "bf16[512,512]")
@nki.jit
def right_a_state_that_takes_new_operands_is_stored_block_by_block(a, b):
    """As linear attention carries its state: each block adds a product of new keys and values."""
    total, out = sb((128, 512)), out_like((4, 128, 512))
    nisa.memset(total, 0.0)
    for k in nl.sequential_range(4):
        left, right, product = sb((128, 128), nl.bfloat16), sb((128, 512), nl.bfloat16), ps((128, 512))
        nisa.dma_copy(left, a[nl.ds(k * 128, 128)])
        nisa.dma_copy(right, b[nl.ds(k * 128, 128)])
        nisa.nc_matmul(product, left, right)
        nisa.tensor_tensor(total, total, product, op=nl.add)
        nisa.dma_copy(out[k], total)
    return out


@case("bf16[512,128]", "bf16[512,256]")
@nki1.jit
def wrong_a_sum_of_an_unrolled_loop_begins_anew(a, b):
    """In Beta 1 static_range is unrolled, so that the last tile may be used behind it."""
    out = nl1.ndarray((128, 256), nl1.float32, buffer=nl1.shared_hbm)
    for k in nl1.static_range(4):
        rows = nl1.ds(k * 128, 128)
        total = nl1.zeros((128, 256), nl1.float32, buffer=nl1.psum)  # finds: lost-iterations
        total += nisa1.nc_matmul(nl1.load(a[rows]), nl1.load(b[rows]))
    nl1.store(out, nl1.copy(total))
    return out


@case("bf16[512,128]", "bf16[512,256]")
@nki1.jit
def wrong_a_sum_of_a_traced_loop_begins_anew(a, b):
    """The same in sequential_range is told once: its tile is not there behind the loop."""
    out = nl1.ndarray((128, 256), nl1.float32, buffer=nl1.shared_hbm)
    for k in nl1.sequential_range(4):
        rows = nl1.ds(k * 128, 128)
        total = nl1.zeros((128, 256), nl1.float32, buffer=nl1.psum)
        total += nisa1.nc_matmul(nl1.load(a[rows]), nl1.load(b[rows]))
    nl1.store(out, nl1.copy(total))  # finds: out-of-scope
    return out


@case("bf16[512,128]", "bf16[512,256]")
@nki1.jit
def right_a_sum_of_an_unrolled_loop_goes_on(a, b):
    out = nl1.ndarray((128, 256), nl1.float32, buffer=nl1.shared_hbm)
    total = nl1.zeros((128, 256), nl1.float32, buffer=nl1.psum)
    for k in nl1.static_range(4):
        rows = nl1.ds(k * 128, 128)
        total += nisa1.nc_matmul(nl1.load(a[rows]), nl1.load(b[rows]))
    nl1.store(out, nl1.copy(total))
    return out


@case("bf16[512,128]", "bf16[512,256]")
@nki.jit
def wrong_a_sum_begins_anew_and_is_stored_behind_the_loop(a, b):
    out, result = out_like((128, 256)), sb((128, 256))
    for k in range(4):
        left, right = sb((128, 128), nl.bfloat16), sb((128, 256), nl.bfloat16)
        total = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.psum)  # finds: lost-iterations
        nisa.dma_copy(left, a[nl.ds(k * 128, 128)])
        nisa.dma_copy(right, b[nl.ds(k * 128, 128)])
        nisa.nc_matmul(total, left, right)
    nisa.tensor_copy(result, total)
    nisa.dma_copy(out, result)
    return out


@case("f32[4,128,256]")
@nki.jit
def right_the_last_iteration_looks_ahead_in_vain(x):
    """What is loaded for the next iteration is used by it, and by nobody after the last one."""
    out, following = out_like((4, 128, 256)), sb((128, 256))
    nisa.dma_copy(following, x[0])
    for i in range(4):
        own, following = following, sb((128, 256))
        nisa.dma_copy(following, x[min(i + 1, 3)])
        nisa.dma_copy(out[i], own)
    return out


@case("f32[4,128,256]")
@nki.jit
def right_what_one_instruction_leaves_besides_is_not_used(x):
    out = out_like((4, 128, 1))
    for i in range(4):
        tile, squares, sums = sb((128, 256)), sb((128, 256)), sb((128, 1))
        nisa.dma_copy(tile, x[i])
        nisa.activation_reduce(squares, op=nl.square, data=tile, reduce_op=nl.add, reduce_res=sums)
        nisa.dma_copy(out[i], sums)
    return out


@case("f32[128,512]", "f32[128,256]")
@nki.jit
def wrong_a_loop_ends_before_the_last_block(x, y):
    out = out_like((128, 256))
    for i in range(2):
        tile, other = sb((128, 128)), sb((128, 128))
        nisa.dma_copy(tile, x[:, nl.ds(i * 128, 128)])  # finds: unread-input
        nisa.dma_copy(other, y[:, nl.ds(i * 128, 128)])
        nisa.tensor_tensor(tile, tile, other, op=nl.add)
        nisa.dma_copy(out[:, nl.ds(i * 128, 128)], tile)
    return out


@case("f32[128,512]", "f32[1,512]")
@nki.jit
def wrong_a_bias_is_never_added(x, bias):
    out, tile, row = out_like((128, 512)), sb((128, 512)), sb((1, 512))
    nisa.dma_copy(tile, x)
    nisa.dma_copy(row, bias)  # finds: unread-result
    nisa.dma_copy(out, tile)
    return out


@case("f32[4,128,256]")
@nki.jit
def wrong_the_tile_is_stored_instead_of_its_square(x):
    out = out_like((4, 128, 256))
    for i in range(4):
        tile, square = sb((128, 256)), sb((128, 256))
        nisa.dma_copy(tile, x[i])
        nisa.activation(square, op=nl.square, data=tile)  # finds: unread-result
        nisa.dma_copy(out[i], tile)
    return out


@case("f32[128,256]")
@nki.jit
def right_a_tile_is_cleared_in_vain(x):
    out, tile, spare = out_like((128, 256)), sb((128, 256)), sb((128, 256))
    nisa.memset(spare, value=0.0)
    nisa.dma_copy(tile, x)
    nisa.dma_copy(out, tile)
    return out
