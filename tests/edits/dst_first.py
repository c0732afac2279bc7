"""Kernels of nki that need a change; every one has comments that it must keep."""

from __future__ import annotations

from .cases import Case, text

_DST_FIRST = """
import nki
import nki.isa as nisa
import nki.language as nl

{module}
@nki.jit
def kernel({args}):
{body}
"""
_TWO = ("f32[128,2048]", "f32[128,2048]")

DST_FIRST: dict[str, Case] = {
    "hoist_compute, nki": Case(
        "hoist_compute",
        text(_DST_FIRST, "x, y", """
out = nl.ndarray((128, 2048), nl.float32, buffer=nl.shared_hbm)
# both tiles stay
tile = nl.ndarray((128, 2048), nl.float32, buffer=nl.sbuf)
nisa.dma_copy(tile, x)
weights = nl.ndarray((128, 2048), nl.float32, buffer=nl.sbuf)
nisa.dma_copy(weights, y)
for _ in range(24):
    # the same in each iteration
    roots = nl.ndarray((128, 2048), nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(roots, weights, op0=nl.maximum, operand0=0.0)  # no negative ones
    fresh = nl.ndarray((128, 2048), nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(fresh, tile, roots, op=nl.multiply)
    tile = fresh
nisa.dma_copy(out, tile)
return out
"""),
        _TWO,
        "nisa.tensor_scalar(roots, weights, op0=nl.maximum, operand0=0.0)  # no negative ones",
    ),
    "hoist_transposes, nki": Case(
        "hoist_transposes",
        text(_DST_FIRST, "left, right", """
out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
tile = nl.ndarray((128, 128), nl.bfloat16, buffer=nl.sbuf)
nisa.dma_copy(tile, left)
moving = nl.ndarray((128, 512), nl.bfloat16, buffer=nl.sbuf)
nisa.dma_copy(moving, right)
total = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)
for _ in range(64):
    # rows become columns
    bank = nl.ndarray((128, 128), nl.bfloat16, buffer=nl.psum)
    nisa.nc_transpose(bank, tile)
    turned = nl.ndarray((128, 128), nl.bfloat16, buffer=nl.sbuf)
    nisa.tensor_copy(turned, bank)
    # the sum
    nisa.nc_matmul(total, turned, moving)
result = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
nisa.tensor_copy(result, total)
nisa.dma_copy(out, result)
return out
"""),
        ("bf16[128,128]", "bf16[128,512]"),
        "nisa.nc_transpose(bank, tile)",
    ),
    "hoist_loads, nki": Case(
        "hoist_loads",
        text(_DST_FIRST, "x, y", """
out = nl.ndarray((8, 128, 8192), nl.bfloat16, buffer=nl.shared_hbm)
for i in range(8):
    a = nl.ndarray((128, 32768), nl.bfloat16, buffer=nl.sbuf)
    nisa.dma_copy(a, x[i])
    # the weights
    b = nl.ndarray((128, 8192), nl.bfloat16, buffer=nl.sbuf)
    nisa.dma_copy(b, y)  # all of them
    result = nl.ndarray((128, 8192), nl.bfloat16, buffer=nl.sbuf)
    nisa.tensor_tensor(result, a[:, 0:8192], b, op=nl.add)
    nisa.dma_copy(out[i], result)
return out
"""),
        ("bf16[8,128,32768]", "bf16[128,8192]"),
        "nisa.dma_copy(b, y)  # all of them",
    ),
    "hoist_loads of an inner loop, nki": Case(
        "hoist_loads",
        text(_DST_FIRST, "x, y", """
out = nl.ndarray((6, 4, 128, 8192), nl.bfloat16, buffer=nl.shared_hbm)
for i in range(6):
    a = nl.ndarray((128, 16384), nl.bfloat16, buffer=nl.sbuf)
    nisa.dma_copy(a, x[i])
    for j in range(4):
        # one of four
        b = nl.ndarray((128, 8192), nl.bfloat16, buffer=nl.sbuf)
        nisa.dma_copy(b, y[j])
        result = nl.ndarray((128, 8192), nl.bfloat16, buffer=nl.sbuf)
        nisa.tensor_tensor(result, a[:, 0:8192], b, op=nl.add)
        nisa.dma_copy(out[i, j], result)
return out
"""),
        ("bf16[6,128,16384]", "bf16[4,128,8192]"),
        "b = b_tiles[j]",
    ),
    "buffers, nki": Case(
        "buffers",
        text(_DST_FIRST, "x", """
out = nl.ndarray((16, 128, 4096), nl.float32, buffer=nl.shared_hbm)
# one tile for all
tile = nl.ndarray((128, 4096), nl.float32, buffer=nl.sbuf)
for i in range(16):
    nisa.dma_copy(tile, x[i])
    result = nl.ndarray((128, 4096), nl.float32, buffer=nl.sbuf)
    nisa.activation(result, op=nl.exp, data=tile)  # e to the x
    nisa.dma_copy(out[i], result)
return out
"""),
        ("f32[16,128,4096]",),
        "tile = nl.ndarray((128, 4096), nl.float32, buffer=nl.sbuf)",
    ),
    "psum_in_flight, nki": Case(
        "psum_in_flight",
        text(_DST_FIRST, "a, b", """
left = nl.ndarray((128, 128), nl.bfloat16, buffer=nl.sbuf)
right = nl.ndarray((128, 512), nl.bfloat16, buffer=nl.sbuf)
result = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
nisa.dma_copy(left, a)
nisa.dma_copy(right, b)
# one bank
total = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)
for _ in range(32):
    for k in range(4):
        nisa.nc_matmul(total, left, right, accumulate=k > 0)
    nisa.tensor_copy(result, total)  # out of psum
nisa.dma_copy(out, result)
return out
"""),
        ("bf16[128,128]", "bf16[128,512]"),
        "total = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)",
    ),
    "dead_work, nki": Case(
        "dead_work",
        text(_DST_FIRST, "x", """
out = nl.ndarray((128, 2048), nl.float32, buffer=nl.shared_hbm)
tile = nl.ndarray((128, 2048), nl.float32, buffer=nl.sbuf)
nisa.dma_copy(tile, x)
for _ in range(24):
    fresh = nl.ndarray((128, 2048), nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(fresh, tile, op0=nl.multiply, operand0=2.0)
    # left over
    unused = nl.ndarray((128, 2048), nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(unused, tile, op0=nl.add, operand0=2.0)  # of a first try
    tile = fresh
nisa.dma_copy(out, tile)
return out
"""),
        ("f32[128,2048]",),
        "# of a first try",
    ),
    "read_psum_directly, nki": Case(
        "read_psum_directly",
        text(_DST_FIRST, "left, right", """
out = nl.ndarray((32, 128, 512), nl.float32, buffer=nl.shared_hbm)
a = nl.ndarray((128, 128), nl.bfloat16, buffer=nl.sbuf)
nisa.dma_copy(a, left)
b = nl.ndarray((128, 512), nl.bfloat16, buffer=nl.sbuf)
nisa.dma_copy(b, right)
for i in range(32):
    total = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)
    nisa.nc_matmul(total, a, b)
    copy = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(copy, total)  # out of psum
    # relu
    result = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(result, copy, op0=nl.maximum, operand0=0.0)
    nisa.dma_copy(out[i], result)
return out
"""),
        ("bf16[128,128]", "bf16[128,512]"),
        "nisa.tensor_scalar(result, total, op0=nl.maximum, operand0=0.0)",
    ),
    "cast_once, nki": Case(
        "cast_once",
        text(_DST_FIRST, "x", """
out = nl.ndarray((128, 2048), nl.float32, buffer=nl.shared_hbm)
tile = nl.ndarray((128, 2048), nl.float32, buffer=nl.sbuf)
nisa.dma_copy(tile, x)
for _ in range(24):
    # a copy
    copy = nl.ndarray((128, 2048), nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(copy, tile)
    fresh = nl.ndarray((128, 2048), nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(fresh, copy, op0=nl.multiply, operand0=2.0)
    tile = fresh
nisa.dma_copy(out, tile)
return out
"""),
        ("f32[128,2048]",),
        "nisa.tensor_scalar(fresh, tile, op0=nl.multiply, operand0=2.0)",
    ),
    "fuse_alu, nki": Case(
        "fuse_alu",
        text(_DST_FIRST, "x", """
out = nl.ndarray((128, 2048), nl.float32, buffer=nl.shared_hbm)
tile = nl.ndarray((128, 2048), nl.float32, buffer=nl.sbuf)
nisa.dma_copy(tile, x)
for _ in range(24):
    # half, and one
    half = nl.ndarray((128, 2048), nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(half, tile, op0=nl.multiply, operand0=0.5)  # half
    fresh = nl.ndarray((128, 2048), nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(fresh, half, op0=nl.add, operand0=1.0)  # one
    tile = fresh
nisa.dma_copy(out, tile)
return out
"""),
        ("f32[128,2048]",),
        "nisa.tensor_scalar(dst=fresh, data=tile, op0=nl.multiply, operand0=0.5, op1=nl.add, "
        "operand1=1.0)  # one",
    ),
    "fuse_activation, nki": Case(
        "fuse_activation",
        text(_DST_FIRST, "x", """
out = nl.ndarray((128, 2048), nl.float32, buffer=nl.shared_hbm)
tile = nl.ndarray((128, 2048), nl.float32, buffer=nl.sbuf)
nisa.dma_copy(tile, x)
for _ in range(24):
    # scaled first
    half = nl.ndarray((128, 2048), nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(half, tile, op0=nl.multiply, operand0=0.5)
    fresh = nl.ndarray((128, 2048), nl.float32, buffer=nl.sbuf)
    nisa.activation(fresh, op=nl.tanh, data=half)
    tile = fresh
nisa.dma_copy(out, tile)
return out
"""),
        ("f32[128,2048]",),
        "nisa.activation(dst=fresh, op=nl.tanh, data=tile, scale=0.5)",
    ),
    "what an activation has no place for, nki": Case(
        "fuse_activation",
        text(_DST_FIRST, "x", """
out = nl.ndarray((16, 128, 2048), nl.float32, buffer=nl.shared_hbm)
tile = nl.ndarray((128, 2048), nl.float32, buffer=nl.sbuf)
nisa.dma_copy(tile, x)
for i in range(16):
    largest = nl.ndarray((128, 1), nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(largest, op=nl.maximum, data=tile, axis=1)
    less = nl.ndarray((128, 2048), nl.float32, buffer=nl.sbuf)
    # the largest is zero
    nisa.tensor_scalar(less, tile, op0=nl.subtract, operand0=largest)
    powers = nl.ndarray((128, 2048), nl.float32, buffer=nl.sbuf)
    nisa.activation(powers, op=nl.exp, data=less)
    nisa.dma_copy(out[i], powers)
return out
"""),
        ("f32[128,2048]",),
        "nisa.tensor_reduce(largest, op=nl.maximum, data=tile, axis=1, negate=True)",
    ),
    "fuse_reduction, nki": Case(
        "fuse_reduction",
        text(_DST_FIRST, "x", """
out = nl.ndarray((16, 128, 1), nl.float32, buffer=nl.shared_hbm)
for i in range(16):
    tile = nl.ndarray((128, 2048), nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(tile, x[i])
    result = nl.ndarray((128, 2048), nl.float32, buffer=nl.sbuf)
    nisa.activation(result, op=nl.exp, data=tile)
    # their sum
    total = nl.ndarray((128, 1), nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(total, op=nl.add, data=result, axis=1)
    scaled = nl.ndarray((128, 2048), nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(scaled, result, op0=nl.multiply, operand0=total)
    largest = nl.ndarray((128, 1), nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(largest, op=nl.maximum, data=scaled, axis=1)
    nisa.dma_copy(out[i], largest)
return out
"""),
        ("f32[16,128,2048]",),
        "nisa.activation_reduce(dst=result, op=nl.exp, data=tile, reduce_op=nl.add, reduce_res=total)",
    ),
    "shift_engine, nki": Case(
        "shift_engine",
        text(_DST_FIRST, "x", """
out = nl.ndarray((24, 128, 1), nl.float32, buffer=nl.shared_hbm)
tile = nl.ndarray((128, 2048), nl.float32, buffer=nl.sbuf)
nisa.dma_copy(tile, x)
for i in range(24):
    scaled = nl.ndarray((128, 2048), nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(scaled, tile, op0=nl.multiply, operand0=0.5 * i, engine=nisa.engine.vector)  # scaled
    total = nl.ndarray((128, 1), nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(total, op=nl.maximum, data=scaled, axis=1)
    nisa.dma_copy(out[i], total)
return out
"""),
        ("f32[128,2048]",),
        "nisa.tensor_scalar(scaled, tile, op0=nl.multiply, operand0=0.5 * i, engine=nisa.engine.scalar)"
        "  # scaled",
    ),
    "lower_precision, nki": Case(
        "lower_precision",
        text(_DST_FIRST, "left, right", """
out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
# operands
a = nl.ndarray((128, 128), nl.float32, buffer=nl.sbuf)
nisa.dma_copy(a, left)
b = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
nisa.dma_copy(b, right)
total = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)
for _ in range(96):
    nisa.nc_matmul(total, a, b)
result = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
nisa.tensor_copy(result, total)
nisa.dma_copy(out, result)
return out
"""),
        ("f32[128,128]", "f32[128,512]"),
        "a = nl.ndarray((128, 128), nl.bfloat16, buffer=nl.sbuf)",
    ),
    "bigger_transfers, nki": Case(
        "bigger_transfers",
        text(_DST_FIRST, "x", """
out = nl.ndarray((128, 16384), nl.float32, buffer=nl.shared_hbm)
for i in range(16384 // WIDTH):
    # columns of x
    columns = nl.ds(i * WIDTH, WIDTH)
    tile = nl.ndarray((128, WIDTH), nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(tile, x[:, columns])
    result = nl.ndarray((128, WIDTH), nl.float32, buffer=nl.sbuf)
    nisa.activation(result, op=nl.exp, data=tile)
    nisa.dma_copy(out[:, columns], result)
return out
""", "# columns of a tile\nWIDTH = 256\n\n"),
        ("f32[128,16384]",),
        "WIDTH = 4096",
    ),
    "widen_moving, nki": Case(
        "widen_moving",
        text(_DST_FIRST, "left, right", """
out = nl.ndarray((128, 8192), nl.float32, buffer=nl.shared_hbm)
stationary = nl.ndarray((128, 128), nl.bfloat16, buffer=nl.sbuf)
nisa.dma_copy(stationary, left)
for n in range(8192 // WIDTH):
    moving = nl.ndarray((128, WIDTH), nl.bfloat16, buffer=nl.sbuf)
    nisa.dma_copy(moving, right[:, nl.ds(n * WIDTH, WIDTH)])
    total = nl.ndarray((128, WIDTH), nl.float32, buffer=nl.psum)
    nisa.nc_matmul(total, stationary, moving)
    result = nl.ndarray((128, WIDTH), nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(result, total)
    nisa.dma_copy(out[:, nl.ds(n * WIDTH, WIDTH)], result)
return out
""", "# of moving\nWIDTH = 128\n\n"),
        ("bf16[128,128]", "bf16[128,8192]"),
        "WIDTH = 512",
    ),
    "interchange_loops, nki": Case(
        "interchange_loops",
        text(_DST_FIRST, "x, y", """
out = nl.ndarray((4, 16, 128, 1024), nl.float32, buffer=nl.shared_hbm)
kept = {}
# small tiles change slowly
for j in range(4):
    for i in range(16):
        if j not in kept:
            kept[j] = nl.ndarray((128, 1024), nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(kept[j], y[j])
        large = nl.ndarray((128, 1024), nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(large, x[i])
        result = nl.ndarray((128, 1024), nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(result, large, kept[j], op=nl.add)
        nisa.dma_copy(out[j, i], result)
return out
"""),
        ("f32[16,128,1024]", "f32[4,128,1024]"),
        "for i in range(16):",
    ),
}  # fmt: skip
