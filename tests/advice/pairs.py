"""Pairs of kernels: one that needs a transformation, and the same rewritten by hand."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

# per transformation: kernel, arguments, how far the edit may be from the rewritten kernel, as a share, and on
# how many cores the rewritten kernel runs
PAIRS: dict[str, tuple[object, tuple[str, ...], float, int]] = {}
# those whose gain is within what the model resolves
SILENT: set[str] = set()


def pair(name, *args, near=0.12, is_told=True, cores=1):
    """Make a kernel the pair of a transformation."""

    def register(kernel):
        PAIRS[name] = nki.jit(kernel), args, near, cores
        if not is_told:
            SILENT.add(name)
        return kernel

    return register


def sbuf(shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype, buffer=nl.sbuf)


def psum(shape):
    return nl.ndarray(shape, nl.float32, buffer=nl.psum)


def loaded(source, dtype=nl.float32):
    tile = sbuf(source.shape, dtype)
    nisa.dma_copy(tile, source)
    return tile


def _elementwise(x, body):
    out = nl.ndarray((128, 2048), nl.float32, buffer=nl.shared_hbm)
    tile = loaded(x)
    for _ in range(24):
        fresh = sbuf((128, 2048))
        body(fresh, tile)
        tile = fresh
    nisa.dma_copy(out, tile)
    return out


@pair("hoist_transposes", "bf16[128,128]", "bf16[128,512]")
def transposed_in_the_loop(left, right, rewritten):
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    tile, moving = loaded(left, nl.bfloat16), loaded(right, nl.bfloat16)

    def transposed():
        bank, copy = nl.ndarray((128, 128), nl.bfloat16, buffer=nl.psum), sbuf((128, 128), nl.bfloat16)
        nisa.nc_transpose(bank, tile)
        nisa.tensor_copy(copy, bank)
        return copy

    first, total, result = transposed(), psum((128, 512)), sbuf((128, 512))
    for _ in range(64):
        nisa.nc_matmul(total, first if rewritten else transposed(), moving)
    nisa.tensor_copy(result, total)
    nisa.dma_copy(out, result)
    return out


@pair("hoist_compute", "f32[128,2048]", "f32[128,2048]")
def computed_in_the_loop(x, y, rewritten):
    weights = loaded(y)

    def roots():
        tile = sbuf((128, 2048))
        nisa.tensor_scalar(tile, weights, op0=nl.maximum, operand0=0.0)
        return tile

    first = roots()

    def body(result, tile):
        nisa.tensor_tensor(result, tile, first if rewritten else roots(), op=nl.multiply)

    return _elementwise(x, body)


@pair("block_mn", "bf16[2048,256]", "bf16[2048,2048]")
def output_tiles_one_by_one(left, right, rewritten):
    out = nl.ndarray((256, 2048), nl.float32, buffer=nl.shared_hbm)
    rows, columns = (2, 4) if rewritten else (1, 1)
    for m in range(0, 2, rows):
        for n in range(0, 4, columns):
            sums = [[psum((128, 512)) for _ in range(columns)] for _ in range(rows)]
            for k in range(16):
                a = [
                    loaded(left[nl.ds(k * 128, 128), nl.ds((m + i) * 128, 128)], nl.bfloat16)
                    for i in range(rows)
                ]
                b = [
                    loaded(right[nl.ds(k * 128, 128), nl.ds((n + j) * 512, 512)], nl.bfloat16)
                    for j in range(columns)
                ]
                for i in range(rows):
                    for j in range(columns):
                        nisa.nc_matmul(sums[i][j], a[i], b[j])
            for i in range(rows):
                for j in range(columns):
                    result = sbuf((128, 512))
                    nisa.tensor_copy(result, sums[i][j])
                    nisa.dma_copy(out[nl.ds((m + i) * 128, 128), nl.ds((n + j) * 512, 512)], result)
    return out


@pair("block_k", "bf16[4096,128]", "bf16[4096,512]", near=0.2)
def contraction_tiles_one_by_one(left, right, rewritten):
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    total, result = psum((128, 512)), sbuf((128, 512))
    together = 8 if rewritten else 1
    for k in range(0, 32, together):
        a, b = sbuf((128, together, 128), nl.bfloat16), sbuf((128, together, 512), nl.bfloat16)
        nisa.dma_copy(
            a,
            left[nl.ds(k * 128, together * 128), :].reshape((together, 128, 128)).permute((1, 0, 2))
            if together > 1
            else left[nl.ds(k * 128, 128), :].reshape((128, 1, 128)),
        )
        nisa.dma_copy(
            b,
            right[nl.ds(k * 128, together * 128), :].reshape((together, 128, 512)).permute((1, 0, 2))
            if together > 1
            else right[nl.ds(k * 128, 128), :].reshape((128, 1, 512)),
        )
        for j in range(together):
            nisa.nc_matmul(total, a[:, j, :], b[:, j, :])
    nisa.tensor_copy(result, total)
    nisa.dma_copy(out, result)
    return out


@pair("bigger_transfers", "f32[128,16384]")
def narrow_pieces(x, rewritten):
    out = nl.ndarray((128, 16384), nl.float32, buffer=nl.shared_hbm)
    width = 4096 if rewritten else 256
    for i in range(16384 // width):
        tile, result = loaded(x[:, nl.ds(i * width, width)]), sbuf((128, width))
        nisa.activation(result, op=nl.exp, data=tile)
        nisa.dma_copy(out[:, nl.ds(i * width, width)], result)
    return out


@pair("widen_moving", "bf16[128,128]", "bf16[128,8192]")
def narrow_moving(left, right, rewritten):
    out = nl.ndarray((128, 8192), nl.float32, buffer=nl.shared_hbm)
    stationary = loaded(left, nl.bfloat16)
    width = 512 if rewritten else 128
    for n in range(8192 // width):
        moving, total, result = (
            loaded(right[:, nl.ds(n * width, width)], nl.bfloat16),
            psum((128, width)),
            sbuf((128, width)),
        )
        nisa.nc_matmul(total, stationary, moving)
        nisa.tensor_copy(result, total)
        nisa.dma_copy(out[:, nl.ds(n * width, width)], result)
    return out


@pair("fill_partitions", "f32[512,2048]")
def few_partitions(x, rewritten):
    out = nl.ndarray((512, 2048), nl.float32, buffer=nl.shared_hbm)
    rows = 128 if rewritten else 16
    for i in range(512 // rows):
        tile, result = loaded(x[nl.ds(i * rows, rows), :]), sbuf((rows, 2048))
        nisa.activation(result, op=nl.exp, data=tile)
        nisa.dma_copy(out[nl.ds(i * rows, rows), :], result)
    return out


@pair("keep_on_chip", "f32[8,128,2048]")
def through_hbm(x, rewritten):
    out = nl.ndarray((8, 128, 2048), nl.float32, buffer=nl.shared_hbm)
    scratch = nl.ndarray((8, 128, 2048), nl.float32, buffer=nl.hbm)
    kept = []
    for i in range(8):
        tile, result = loaded(x[i]), sbuf((128, 2048))
        nisa.activation(result, op=nl.exp, data=tile)
        kept.append(result)
        if not rewritten:
            nisa.dma_copy(scratch[i], result)
    for i in range(8):
        tile = kept[i] if rewritten else loaded(scratch[i])
        result = sbuf((128, 2048))
        nisa.tensor_scalar(result, tile, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(out[i], result)
    return out


@pair("finer_tiles", "f32[128,8192]")
def one_large_tile(x, rewritten):
    out = nl.ndarray((128, 8192), nl.float32, buffer=nl.shared_hbm)
    width = 2048 if rewritten else 8192
    for i in range(8192 // width):
        tile, result = loaded(x[:, nl.ds(i * width, width)]), sbuf((128, width))
        nisa.activation(result, op=nl.exp, data=tile)
        nisa.dma_copy(out[:, nl.ds(i * width, width)], result)
    return out


@pair("fuse_alu", "f32[128,2048]")
def single_operations(x, rewritten):
    def body(result, tile):
        if rewritten:
            nisa.tensor_scalar(result, tile, op0=nl.multiply, operand0=0.5, op1=nl.add, operand1=1.0)
            return
        between = sbuf((128, 2048))
        nisa.tensor_scalar(between, tile, op0=nl.multiply, operand0=0.5)
        nisa.tensor_scalar(result, between, op0=nl.add, operand0=1.0)

    return _elementwise(x, body)


@pair("fuse_activation", "f32[128,2048]")
def scaled_before_the_activation(x, rewritten):
    def body(result, tile):
        if rewritten:
            nisa.activation(result, op=nl.tanh, data=tile, scale=0.5)
            return
        between = sbuf((128, 2048))
        nisa.tensor_scalar(between, tile, op0=nl.multiply, operand0=0.5)
        nisa.activation(result, op=nl.tanh, data=between)

    return _elementwise(x, body)


@pair("fuse_reduction", "f32[16,128,2048]")
def summed_afterwards(x, rewritten):
    out = nl.ndarray((16, 128, 1), nl.float32, buffer=nl.shared_hbm)
    for i in range(16):
        tile, result, total = loaded(x[i]), sbuf((128, 2048)), sbuf((128, 1))
        if rewritten:
            nisa.activation_reduce(result, op=nl.exp, data=tile, reduce_op=nl.add, reduce_res=total)
        else:
            nisa.activation(result, op=nl.exp, data=tile)
            nisa.tensor_reduce(total, op=nl.add, data=result, axis=1)
        again = sbuf((128, 2048))
        nisa.tensor_scalar(again, result, op0=nl.multiply, operand0=total)
        largest = sbuf((128, 1))
        nisa.tensor_reduce(largest, op=nl.maximum, data=again, axis=1)
        nisa.dma_copy(out[i], largest)
    return out


@pair("read_psum_directly", "bf16[128,128]", "bf16[128,512]")
def copied_from_psum(left, right, rewritten):
    out = nl.ndarray((32, 128, 512), nl.float32, buffer=nl.shared_hbm)
    a, b = loaded(left, nl.bfloat16), loaded(right, nl.bfloat16)
    for i in range(32):
        total, result = psum((128, 512)), sbuf((128, 512))
        nisa.nc_matmul(total, a, b)
        source = total
        if not rewritten:
            source = sbuf((128, 512))
            nisa.tensor_copy(source, total)
        nisa.tensor_scalar(result, source, op0=nl.maximum, operand0=0.0)
        nisa.dma_copy(out[i], result)
    return out


@pair("cast_once", "f32[128,2048]")
def copied_on_the_way(x, rewritten):
    def body(result, tile):
        source = tile
        if not rewritten:
            source = sbuf((128, 2048))
            nisa.tensor_copy(source, tile)
        nisa.tensor_scalar(result, source, op0=nl.multiply, operand0=2.0)

    return _elementwise(x, body)


@pair("dead_work", "f32[128,2048]")
def written_for_nobody(x, rewritten):
    def body(result, tile):
        nisa.tensor_scalar(result, tile, op0=nl.multiply, operand0=2.0)
        if not rewritten:
            nisa.tensor_scalar(sbuf((128, 2048)), tile, op0=nl.add, operand0=2.0)

    return _elementwise(x, body)


def _product(left, right, dtype, parts):
    """A long sum of products of four tiles with four, which TensorE bounds."""
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    total, result = psum((128, 512)), sbuf((128, 512))
    rows = [parts(loaded(left[k], dtype)) for k in range(4)]
    columns = [parts(loaded(right[k], dtype)) for k in range(4)]
    for k in range(96):
        a, b = rows[k % 4], columns[k // 4 % 4]
        for one, other in ((0, 0), (0, 1), (1, 0))[: 2 * len(a) - 1]:
            nisa.nc_matmul(total, a[one], b[other])
    nisa.tensor_copy(result, total)
    nisa.dma_copy(out, result)
    return out


@pair("lower_precision", "f32[4,128,128]", "f32[4,128,512]")
def product_of_float32(left, right, rewritten):
    return _product(left, right, nl.bfloat16 if rewritten else nl.float32, lambda tile: (tile,))


@pair("split_precision", "f32[4,128,128]", "f32[4,128,512]")
def product_in_one_part(left, right, rewritten):
    def halves(tile):
        if not rewritten:
            return (tile,)
        high, low = sbuf(tile.shape, nl.bfloat16), sbuf(tile.shape, nl.bfloat16)
        nisa.tensor_copy(high, tile)
        nisa.tensor_tensor(low, tile, high, op=nl.subtract)
        return high, low

    return _product(left, right, nl.float32, halves)


@pair("shift_engine", "f32[128,2048]")
def everything_on_vector(x, rewritten):
    out = nl.ndarray((24, 128, 1), nl.float32, buffer=nl.shared_hbm)
    tile, engine = loaded(x), nisa.engine.scalar if rewritten else nisa.engine.vector
    for i in range(24):
        scaled, total = sbuf((128, 2048)), sbuf((128, 1))
        nisa.tensor_scalar(scaled, tile, op0=nl.multiply, operand0=0.5 * i, engine=engine)
        nisa.tensor_reduce(total, op=nl.maximum, data=scaled, axis=1)
        nisa.dma_copy(out[i], total)
    return out


@pair("defer_scaling", "bf16[128,2048]", "bf16[16,128,128]")
def scaled_before_the_product(x, right, rewritten):
    out = nl.ndarray((16, 128, 128), nl.float32, buffer=nl.shared_hbm)
    moving = [loaded(right[k], nl.bfloat16) for k in range(16)]
    raw = loaded(x, nl.bfloat16)
    for i in range(16):
        row, total, result = sbuf((128, 1)), psum((128, 128)), sbuf((128, 128))
        nisa.tensor_scalar(row, raw[:, nl.ds(i, 1)], op0=nl.maximum, operand0=0.1 * i)
        source = raw
        if not rewritten:
            source = sbuf((128, 2048), nl.bfloat16)
            nisa.tensor_scalar(source, raw, op0=nl.multiply, operand0=row, engine=nisa.engine.vector)
        for k in range(16):
            bank, copy = nl.ndarray((128, 128), nl.bfloat16, buffer=nl.psum), sbuf((128, 128), nl.bfloat16)
            nisa.nc_transpose(bank, source[:, nl.ds(k * 128, 128)])
            nisa.tensor_copy(copy, bank, engine=nisa.engine.vector)
            nisa.nc_matmul(total, copy, moving[k])
        nisa.tensor_scalar(result, total, op0=nl.multiply, operand0=row)
        nisa.dma_copy(out[i], result)
    return out


@pair("interchange_loops", "f32[16,128,1024]", "f32[4,128,1024]")
def large_tile_in_the_inner_loop(x, y, rewritten):
    out = nl.ndarray((4, 16, 128, 1024), nl.float32, buffer=nl.shared_hbm)
    kept_large, kept_small = {}, {}

    def large(i):
        if not rewritten or i not in kept_large:
            kept_large[i] = sbuf((128, 1024))
            nisa.dma_copy(kept_large[i], x[i])
        return kept_large[i]

    def small(j):
        if j not in kept_small:
            kept_small[j] = loaded(y[j])
        return kept_small[j]

    trips = (
        [(i, j) for i in range(16) for j in range(4)]
        if rewritten
        else [(i, j) for j in range(4) for i in range(16)]
    )
    for i, j in trips:
        b, a, result = small(j), large(i), sbuf((128, 1024))
        nisa.tensor_tensor(result, a, b, op=nl.add)
        nisa.dma_copy(out[j, i], result)
    return out


# the model knows of a gain of 8 %, which is less than it resolves
@pair("split_phases", "bf16[128,128]", "bf16[128,512]", is_told=False)
def transposition_and_product_in_turn(left, right, rewritten):
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    tile, moving = loaded(left, nl.bfloat16), loaded(right, nl.bfloat16)
    total, result = psum((128, 512)), sbuf((128, 512))
    together = 4 if rewritten else 1
    for i in range(0, 64, together):
        banks = [nl.ndarray((128, 128), nl.bfloat16, buffer=nl.psum) for _ in range(together)]
        scaled = [sbuf((128, 128), nl.bfloat16) for _ in range(together)]
        copies = [sbuf((128, 128), nl.bfloat16) for _ in range(together)]
        for j in range(together):
            nisa.activation(scaled[j], op=nl.copy, data=tile, scale=0.1 * (i + j))
        for j in range(together):
            nisa.nc_transpose(banks[j], scaled[j])
        for j in range(together):
            nisa.tensor_copy(copies[j], banks[j], engine=nisa.engine.vector)
        for j in range(together):
            nisa.nc_matmul(total, copies[j], moving)
    nisa.tensor_copy(result, total)
    nisa.dma_copy(out, result)
    return out
