"""Sums in PSUM."""

from __future__ import annotations

from tests.checks.gallery.case import case
from tests.checks.gallery.memory import operands, out_like, ps, sb, stored
from tests.dialects.spellings import nisa1, nisa2, nki1, nki2, nl1, nl2

nki, nl, nisa = nki2, nl2, nisa2


@case("bf16[128,128]", "bf16[128,512]")
@nki.jit
def wrong_the_first_product_adds(a, b):
    left, right = operands(a, b)
    total = ps((128, 512))
    for _ in range(4):
        nisa.nc_matmul(total, left, right, accumulate=True)  # finds: psum-accumulate-unwritten
    return stored(total)


@case("bf16[128,128]", "bf16[128,512]")
@nki.jit
def right_the_first_product_overwrites(a, b):
    left, right = operands(a, b)
    total = ps((128, 512))
    for k in range(4):
        nisa.nc_matmul(total, left, right, accumulate=k > 0)
    return stored(total)


@case("bf16[128,128]", "bf16[128,512]")
@nki.jit
def wrong_a_bias_is_put_into_psum_first(a, b):
    """Adding the bias by starting the sum with it: right in a simulator, undefined on trn2."""
    left, right = operands(a, b)
    bias, total = sb((128, 512)), ps((128, 512))
    nisa.memset(bias, 0.5)
    nisa.tensor_copy(total, bias)
    nisa.nc_matmul(total, left, right, accumulate=True)  # finds: psum-accumulate-foreign
    return stored(total)


@case("bf16[128,128]", "bf16[128,512]")
@nki.jit
def right_the_bias_is_added_behind_the_product(a, b):
    left, right = operands(a, b)
    bias, result, total = sb((128, 512)), sb((128, 512)), ps((128, 512))
    out = out_like((128, 512))
    nisa.memset(bias, 0.5)
    nisa.nc_matmul(total, left, right)
    nisa.tensor_tensor(result, total, bias, op=nl.add)
    nisa.dma_copy(out, result)
    return out


@case("bf16[128,128]", "bf16[128,512]", target="trn3")
@nki.jit
def right_on_trn3_a_filled_bank_starts_a_sum(a, b):
    left, right = operands(a, b)
    bias, total = sb((128, 512)), ps((128, 512))
    nisa.memset(bias, 0.5)
    nisa.tensor_copy(total, bias)
    nisa.nc_matmul(total, left, right, accumulate=True)
    return stored(total)


@case("bf16[256,256]", "bf16[256,512]")
@nki.jit
def wrong_one_sum_for_all_blocks_of_a_product(a, b):
    """The tile is made once, outside the loops over m and n: nothing begins a new sum."""
    total, out = ps((128, 256)), out_like((256, 512))
    for m in nl.affine_range(2):
        for n in nl.affine_range(2):
            for k in nl.affine_range(2):
                left, right = sb((128, 128), nl.bfloat16), sb((128, 256), nl.bfloat16)
                nisa.dma_copy(left, a[nl.ds(k * 128, 128), nl.ds(m * 128, 128)])
                nisa.dma_copy(right, b[nl.ds(k * 128, 128), nl.ds(n * 256, 256)])
                nisa.nc_matmul(total, left, right)  # finds: psum-sum-goes-on
            result = sb((128, 256))
            nisa.tensor_copy(result, total)
            nisa.dma_copy(out[nl.ds(m * 128, 128), nl.ds(n * 256, 256)], result)
    return out


@case("bf16[256,256]", "bf16[256,512]")
@nki.jit
def right_one_sum_for_each_block_of_a_product(a, b):
    out = out_like((256, 512))
    for m in nl.affine_range(2):
        for n in nl.affine_range(2):
            total = ps((128, 256))
            for k in nl.affine_range(2):
                left, right = sb((128, 128), nl.bfloat16), sb((128, 256), nl.bfloat16)
                nisa.dma_copy(left, a[nl.ds(k * 128, 128), nl.ds(m * 128, 128)])
                nisa.dma_copy(right, b[nl.ds(k * 128, 128), nl.ds(n * 256, 256)])
                nisa.nc_matmul(total, left, right)
            result = sb((128, 256))
            nisa.tensor_copy(result, total)
            nisa.dma_copy(out[nl.ds(m * 128, 128), nl.ds(n * 256, 256)], result)
    return out


@case("bf16[256,256]", "bf16[256,512]")
@nki1.jit
def wrong_zeros_stand_outside_the_loop_over_rows(a, b):
    """In Beta 1, with the operands loaded before and the sum doubled on its way."""
    out = nl1.ndarray((256, 512), nl1.float32, buffer=nl1.shared_hbm)
    right = [nl1.load(b[k * 128 : k * 128 + 128]) for k in range(2)]
    total = nl1.zeros((nl1.par_dim(128), 512), nl1.float32, buffer=nl1.psum)
    for m in nl1.static_range(2):
        for k in nl1.static_range(2):
            left = nl1.load(a[k * 128 : k * 128 + 128, m * 128 : m * 128 + 128])
            total += nisa1.nc_matmul(left, right[k])  # finds: psum-sum-goes-on
        nl1.store(out[m * 128 : m * 128 + 128], nl1.multiply(nl1.copy(total), 2.0))
    return out


@case("bf16[128,256]", "bf16[128,512]")
@nki.jit
def wrong_a_grid_of_products_of_one_matmul_each(a, b):
    """Nothing is summed; both sides come again in one sum."""
    left, right = sb((128, 256), nl.bfloat16), sb((128, 512), nl.bfloat16)
    total, out = ps((128, 256)), out_like((256, 512))
    nisa.dma_copy(left, a)
    nisa.dma_copy(right, b)
    for m in range(2):
        for n in range(2):
            rows, columns = nl.ds(m * 128, 128), nl.ds(n * 256, 256)
            nisa.nc_matmul(total, left[:, rows], right[:, columns])  # finds: psum-sum-goes-on
            result = sb((128, 256))
            nisa.tensor_copy(result, total)
            nisa.dma_copy(out[nl.ds(m * 128, 128), nl.ds(n * 256, 256)], result)
    return out


@case("bf16[512,512]")
@nki.jit
def right_a_cumulative_sum_over_blocks_stores_each_prefix(x):
    total, ones, out = ps((128, 512)), sb((128, 128), nl.bfloat16), out_like((4, 128, 512))
    nisa.memset(ones, 1.0)
    for i in range(4):
        block, result = sb((128, 512), nl.bfloat16), sb((128, 512))
        nisa.dma_copy(block, x[nl.ds(i * 128, 128)])
        nisa.nc_matmul(total, ones, block)
        nisa.tensor_copy(result, total)
        nisa.dma_copy(out[i], result)
    return out


@case("bf16[1024,128]")
@nki.jit
def right_a_covariance_is_stored_after_every_second_sample(x):
    """Each prefix has matmuls of its own, of new operands on both sides."""
    total, out = ps((128, 128)), out_like((4, 128, 128))
    for i in range(4):
        for k in range(2):
            block = sb((128, 128), nl.bfloat16)
            nisa.dma_copy(block, x[nl.ds((2 * i + k) * 128, 128)])
            nisa.nc_matmul(total, block, block)
        result = sb((128, 128))
        nisa.tensor_copy(result, total)
        nisa.dma_copy(out[i], result)
    return out


@case("bf16[256,256]", "bf16[256,512]")
@nki.jit
def right_a_growing_sum_is_read_for_its_maximum(a, b):
    """The blocks of `b` come again with other rows of `a`; what is read between is a number per row."""
    total, top, out = ps((128, 512)), sb((128, 2)), out_like((128, 2))
    result, whole = sb((128, 512)), out_like((128, 512))
    for m in range(2):
        for k in range(2):
            left, right = sb((128, 128), nl.bfloat16), sb((128, 512), nl.bfloat16)
            nisa.dma_copy(left, a[nl.ds(k * 128, 128), nl.ds(m * 128, 128)])
            nisa.dma_copy(right, b[nl.ds(k * 128, 128)])
            nisa.nc_matmul(total, left, right)
        nisa.tensor_reduce(top[:, m : m + 1], op=nl.maximum, data=total, axis=1)
    nisa.tensor_copy(result, total)
    nisa.dma_copy(whole, result)
    nisa.dma_copy(out, top)
    return out, whole


@case("bf16[256,256]")
@nki.jit
def right_operands_of_a_running_sum_are_padded(x):
    """Each block is written in two parts, the last of which is not new."""
    total, out = ps((128, 128)), out_like((2, 128, 128))
    for i in range(2):
        for k in range(2):
            left, right = sb((128, 128), nl.bfloat16), sb((128, 128), nl.bfloat16)
            nisa.dma_copy(left[:, 0:64], x[nl.ds(i * 128, 128), nl.ds(k * 64, 64)])
            nisa.dma_copy(right[:, 0:64], x[nl.ds(i * 128, 128), nl.ds(128 + k * 64, 64)])
            nisa.memset(left[:, 64:128], float(i))
            nisa.memset(right[:, 64:128], float(k))
            nisa.nc_matmul(total, left, right)
        result = sb((128, 128))
        nisa.tensor_copy(result, total)
        nisa.dma_copy(out[i], result)
    return out


@case("bf16[256,256]", "bf16[256,512]")
@nki.jit
def right_a_growing_sum_is_stored_in_one_place(a, b):
    total, out = ps((128, 512)), out_like((128, 512))
    for m in range(2):
        for k in range(2):
            left, right = sb((128, 128), nl.bfloat16), sb((128, 512), nl.bfloat16)
            nisa.dma_copy(left, a[nl.ds(k * 128, 128), nl.ds(m * 128, 128)])
            nisa.dma_copy(right, b[nl.ds(k * 128, 128)])
            nisa.nc_matmul(total, left, right)
        result = sb((128, 512))
        nisa.tensor_copy(result, total)
        nisa.dma_copy(out, result)
    return out


@case("bf16[128,128]", "bf16[128,512]")
@nki.jit
def wrong_half_of_a_bank_is_copied_out_unwritten(a, b):
    left, right = operands(a, b)
    total, result, out = ps((128, 512)), sb((128, 512)), out_like((128, 512))
    nisa.nc_matmul(total[:, 0:256], left, right[:, 0:256])
    nisa.tensor_copy(result, total)
    nisa.dma_copy(out, result)  # finds: unwritten-read
    return out


@case("bf16[128,128]", "bf16[128,512]")
@nki.jit
def right_half_of_a_bank_is_copied_out(a, b):
    left, right = operands(a, b)
    total, result, out = ps((128, 512)), sb((128, 256)), out_like((128, 256))
    nisa.nc_matmul(total[:, 0:256], left, right[:, 0:256])
    nisa.tensor_copy(result, total[:, 0:256])
    nisa.dma_copy(out, result)
    return out


@case("bf16[128,128]", "bf16[128,512]")
@nki1.jit
def wrong_two_sums_take_turns_in_a_bank(a, b):
    out = nl1.ndarray((128, 512), nl1.float32, buffer=nl1.shared_hbm)
    left, right = nl1.load(a), nl1.load(b)
    total = nl1.zeros((128, 512), nl1.float32, buffer=nl1.psum)
    for _ in nl1.static_range(3):
        for half in nl1.static_range(2):
            at = nl1.ds(half * 256, 256)
            total[:, at] += nisa1.nc_matmul(left, right[:, at])  # finds: psum-interleaved
    nl1.store(out, nl1.copy(total))
    return out


@case("bf16[128,128]", "bf16[128,512]")
@nki.jit
def wrong_two_sums_in_one_tensor_are_made_in_turn(a, b):
    left, right = operands(a, b)
    total = ps((128, 512))
    for k in range(3):
        for at in (slice(0, 256), slice(256, 512)):
            nisa.nc_matmul(total[:, at], left, right[:, at], accumulate=k > 0)  # finds: psum-shared-sums
    return stored(total)


@case("bf16[128,128]", "bf16[128,512]")
@nki.jit
def right_the_compiler_tells_the_sums_of_one_tensor_apart(a, b):
    """As nki-library's down projection adds up the columns of a bank, which builds and runs."""
    left, right = operands(a, b)
    total = ps((128, 512))
    for _ in range(2):
        for half in range(2):
            at = nl.ds(half * 256, 256)
            nisa.nc_matmul(total[:, at], left, right[:, at])
    return stored(total)


@case("bf16[128,128]", "bf16[128,512]")
@nki.jit
def right_sums_in_a_cleared_tensor_go_on_in_turn(a, b):
    """As nki-library's backward attention adds up in quarters of a bank, which builds and runs."""
    left, right = operands(a, b)
    total = ps((128, 512))
    nisa.memset(total, 0.0)
    for _ in range(2):
        for half in range(2):
            at = nl.ds(half * 256, 256)
            nisa.nc_matmul(total[:, at], left, right[:, at], accumulate=True)
    return stored(total)


@case("bf16[128,128]", "bf16[128,512]")
@nki.jit
def right_two_sums_in_one_tensor_are_made_one_after_the_other(a, b):
    left, right = operands(a, b)
    total = ps((128, 512))
    for at in (slice(0, 256), slice(256, 512)):
        for k in range(3):
            nisa.nc_matmul(total[:, at], left, right[:, at], accumulate=k > 0)
    return stored(total)


@case("bf16[128,128]", "bf16[128,512]")
@nki.jit
def right_two_sums_of_one_bank_are_in_tensors_of_their_own(a, b):
    left, right = operands(a, b)
    totals = (ps((128, 256)), ps((128, 256)))
    for k in range(3):
        for half in range(2):
            nisa.nc_matmul(totals[half], left, right[:, half * 256 : half * 256 + 256], accumulate=k > 0)
    return stored(totals[0]), stored(totals[1])


@case("bf16[128,128]", "bf16[128,512]")
@nki.jit
def wrong_a_sum_begins_on_zeros(a, b):
    left, right = operands(a, b)
    total = ps((128, 512))
    nisa.memset(total, 0.0)
    for _ in range(2):
        nisa.nc_matmul(total, left, right, accumulate=True)  # finds: psum-accumulate-zeroed
    return stored(total)


@case("bf16[128,128]", "bf16[128,512]")
@nki.jit
def right_two_sums_in_two_banks(a, b):
    left, right = operands(a, b)
    total = ps((128, 2, 512))
    for k in range(3):
        for half in range(2):
            columns = nl.ds(half * 256, 256)
            nisa.nc_matmul(total[:, half, 0:256], left, right[:, columns], accumulate=k > 0)
    result, out = sb((128, 2, 256)), out_like((128, 2, 256))
    nisa.tensor_copy(result, total[:, :, 0:256])
    nisa.dma_copy(out, result)
    return out


@case("bf16[128,128]", "bf16[128,512]")
@nki.jit
def wrong_every_product_overwrites(a, b):
    left, right = operands(a, b)
    total = ps((128, 512))
    for _ in range(4):
        nisa.nc_matmul(total, left, right, accumulate=False)  # finds: psum-lost-sum
    return stored(total)


@case("bf16[128,128]", "bf16[128,512]")
@nki.jit
def wrong_the_tile_is_copied_out_too_late(a, b):
    left, right = operands(a, b)
    total, out = ps((128, 512)), out_like((2, 128, 512))
    result = sb((128, 512))
    nisa.nc_matmul(total, left, right, accumulate=False)
    nisa.nc_matmul(total, left, right, accumulate=False)  # finds: psum-lost-sum
    nisa.tensor_copy(result, total)
    nisa.dma_copy(out[0], result)
    nisa.dma_copy(out[1], result)
    return out


@case("bf16[128,128]", "bf16[128,512]")
@nki.jit
def right_the_tile_is_copied_out_in_time(a, b):
    left, right = operands(a, b)
    total, out = ps((128, 512)), out_like((2, 128, 512))
    result = sb((128, 512))
    for i in range(2):
        nisa.nc_matmul(total, left, right, accumulate=False)
        nisa.tensor_copy(result, total)
        nisa.dma_copy(out[i], result)
    return out


@case("bf16[128,128]", "bf16[128,512]")
@nki.jit
def wrong_a_product_lies_over_two_banks(a, b):
    left, right = operands(a, b)
    total = ps((128, 1024))
    nisa.memset(total, 0.0)
    nisa.nc_matmul(total[:, 128:640], left, right)  # finds: psum-bank-crossing
    return stored(total)


@case("bf16[128,128]", "bf16[128,512]")
@nki.jit
def right_a_product_lies_in_the_second_bank(a, b):
    left, right = operands(a, b)
    total = ps((128, 1024))
    nisa.memset(total, 0.0)
    nisa.nc_matmul(total[:, 512:1024], left, right)
    return stored(total)


@case("bf16[128,128]", "bf16[128,512]")
@nki1.jit
def right_beta1_starts_a_sum_with_zeros(a, b):
    """nl.zeros and += are how Beta 1 spells a sum: its compiler leaves the zeros out."""
    left, right = nl1.load(a), nl1.load(b)
    out = nl1.ndarray((128, 512), nl1.float32, buffer=nl1.shared_hbm)
    total = nl1.zeros((128, 512), nl1.float32, buffer=nl1.psum)
    for _ in nl1.affine_range(4):
        total += nisa1.nc_matmul(left, right)
    nl1.store(out, nl1.copy(total))
    return out


@case("bf16[128,128]", "bf16[128,512]")
@nki.jit
def wrong_the_same_product_is_two_results(a, b):
    """Both operands come again, unchanged: the second result is twice the first one."""
    left, right = operands(a, b)
    total, out = ps((128, 512)), out_like((2, 128, 512))
    for i in range(2):
        nisa.nc_matmul(total, left, right)  # finds: psum-sum-goes-on
        result = sb((128, 512))
        nisa.tensor_copy(result, total)
        nisa.dma_copy(out[i], result)
    return out


@case("bf16[128,128]", "bf16[128,512]")
@nki.jit
def right_the_same_product_is_summed_and_stored_once(a, b):
    left, right = operands(a, b)
    total = ps((128, 512))
    for _ in range(2):
        nisa.nc_matmul(total, left, right)
    return stored(total)
