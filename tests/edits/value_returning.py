"""Kernels of Beta 1 that need a change; every one has comments that it must keep."""

from __future__ import annotations

from .cases import Case, text

_VALUE_RETURNING = """
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

{module}
@nki.jit
def kernel({args}):
{body}
"""
_TWO = ("f32[128,2048]", "f32[128,2048]")

VALUE_RETURNING: dict[str, Case] = {
    "hoist_compute, neuronxcc": Case(
        "hoist_compute",
        text(_VALUE_RETURNING, "x, y", """
out = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
# both tiles stay
tile = nl.load(x)
weights = nl.load(y)
for _ in nl.static_range(24):
    # the same in each iteration
    roots = nl.maximum(weights, 0.0)  # no negative ones
    tile = nl.multiply(tile, roots)
nl.store(out, tile)
return out
"""),
        _TWO,
        "roots = nl.maximum(weights, 0.0)  # no negative ones",
    ),
    "hoist_transposes, neuronxcc": Case(
        "hoist_transposes",
        text(_VALUE_RETURNING, "left, right", """
out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
tile, moving = nl.load(left), nl.load(right)
total = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
for _ in nl.static_range(64):
    # rows become columns
    turned = nl.copy(nisa.nc_transpose(tile))
    # the sum
    total += nisa.nc_matmul(turned, moving)
nl.store(out, nl.copy(total))
return out
"""),
        ("bf16[128,128]", "bf16[128,512]"),
        "turned = nl.copy(nisa.nc_transpose(tile))",
    ),
    "buffers, neuronxcc": Case(
        "buffers",
        text(_VALUE_RETURNING, "x", """
out = nl.ndarray((16, 128, 4096), dtype=nl.float32, buffer=nl.shared_hbm)
# one tile for all
tile = nl.ndarray((128, 4096), dtype=nl.float32, buffer=nl.sbuf)
for i in nl.sequential_range(16):
    tile[...] = nl.load(x[i])
    nl.store(out[i], nl.exp(tile))  # e to the x
return out
"""),
        ("f32[16,128,4096]",),
        "tile = nl.ndarray((128, 4096), dtype=nl.float32, buffer=nl.sbuf)",
    ),
    "dead_work, neuronxcc": Case(
        "dead_work",
        text(_VALUE_RETURNING, "x", """
out = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
tile = nl.load(x)
for _ in nl.static_range(24):
    # left over
    unused = nl.add(tile, 2.0)  # of a first try
    tile = nl.multiply(tile, 2.0)
nl.store(out, tile)
return out
"""),
        ("f32[128,2048]",),
        "# of a first try",
    ),
    "fuse_alu, neuronxcc": Case(
        "fuse_alu",
        text(_VALUE_RETURNING, "x", """
out = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
tile = nl.load(x)
for _ in nl.static_range(24):
    half = nl.multiply(tile, 0.5)  # half
    tile = nl.add(half, 1.0)  # one
nl.store(out, tile)
return out
"""),
        ("f32[128,2048]",),
        "tile = nisa.tensor_scalar(data=tile, op0=nl.multiply, operand0=0.5, op1=nl.add, operand1=1.0)"
        "  # one",
    ),
    "fuse_activation, neuronxcc": Case(
        "fuse_activation",
        text(_VALUE_RETURNING, "x", """
out = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
tile = nl.load(x)
for _ in nl.static_range(24):
    # scaled first
    half = tile * 0.5
    tile = nl.tanh(half)
nl.store(out, tile)
return out
"""),
        ("f32[128,2048]",),
        "tile = nisa.activation(op=nl.tanh, data=tile, scale=0.5)",
    ),
    "fuse_reduction, neuronxcc": Case(
        "fuse_reduction",
        text(_VALUE_RETURNING, "x", """
out = nl.ndarray((16, 128, 1), dtype=nl.float32, buffer=nl.shared_hbm)
for i in nl.affine_range(16):
    tile = nl.load(x[i])
    result = nl.exp(tile)
    # their sum
    total = nl.sum(result, axis=1, keepdims=True)
    scaled = nl.multiply(result, total)
    nl.store(out[i], nl.max(scaled, axis=1, keepdims=True))
return out
"""),
        ("f32[16,128,2048]",),
        "result = nisa.activation_reduce(op=nl.exp, data=tile, reduce_op=nl.add, reduce_res=total)",
    ),
    "shift_engine, neuronxcc": Case(
        "shift_engine",
        text(_VALUE_RETURNING, "x", """
out = nl.ndarray((24, 128, 1), dtype=nl.float32, buffer=nl.shared_hbm)
tile = nl.load(x)
for i in nl.static_range(24):
    scaled = nisa.tensor_scalar(tile, nl.multiply, 0.5 * i, engine=nisa.vector_engine)  # scaled
    nl.store(out[i], nl.max(scaled, axis=1, keepdims=True))
return out
"""),
        ("f32[128,2048]",),
        "scaled = nisa.tensor_scalar(tile, nl.multiply, 0.5 * i, engine=nisa.scalar_engine)  # scaled",
    ),
    "lower_precision, neuronxcc": Case(
        "lower_precision",
        text(_VALUE_RETURNING, "left, right", """
out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
# operands
a = nl.load(left)
b = nl.load(right)
total = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
for _ in nl.static_range(96):
    total += nisa.nc_matmul(a, b)
nl.store(out, nl.copy(total))
return out
"""),
        ("f32[128,128]", "f32[128,512]"),
        "a = nl.load(left, dtype=nl.bfloat16)",
    ),
    "bigger_transfers, neuronxcc": Case(
        "bigger_transfers",
        text(_VALUE_RETURNING, "x, width=256", """
out = nl.ndarray((128, 16384), dtype=nl.float32, buffer=nl.shared_hbm)
for i in nl.affine_range(16384 // width):
    # columns of x
    tile = nl.load(x[:, i * width:(i + 1) * width])
    nl.store(out[:, i * width:(i + 1) * width], nl.exp(tile))
return out
"""),
        ("f32[128,16384]",),
        "def kernel(x, width=4096):",
    ),
    "widen_moving, neuronxcc": Case(
        "widen_moving",
        text(_VALUE_RETURNING, "left, right", """
out = nl.ndarray((128, 8192), dtype=nl.float32, buffer=nl.shared_hbm)
stationary = nl.load(left)
for n in nl.affine_range(8192 // WIDTH):
    # a part of the columns
    moving = nl.load(right[:, n * WIDTH : (n + 1) * WIDTH])
    total = nisa.nc_matmul(stationary, moving)
    nl.store(out[:, n * WIDTH : (n + 1) * WIDTH], nl.copy(total))
return out
""", "# of moving\nWIDTH = 128\n\n"),
        ("bf16[128,128]", "bf16[128,8192]"),
        "WIDTH = 512",
    ),
    "cast_once, neuronxcc": Case(
        "cast_once",
        text(_VALUE_RETURNING, "x", """
out = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
tile = nl.load(x)
for _ in nl.static_range(24):
    # a copy
    copy = nisa.tensor_copy(tile)
    tile = nisa.tensor_scalar(copy, nl.multiply, 2.0)
nl.store(out, tile)
return out
"""),
        ("f32[128,2048]",),
        "tile = nisa.tensor_scalar(tile, nl.multiply, 2.0)",
    ),
    "psum_in_flight, neuronxcc": Case(
        "psum_in_flight",
        text(_VALUE_RETURNING, "a, b", """
left, right = nl.load(a), nl.load(b)
out = nl.ndarray((32, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
# one bank
total = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
for i in nl.sequential_range(32):
    total[...] = nisa.nc_matmul(left, right)
    result = nl.copy(total)  # out of psum
    nl.store(out[i], result)
return out
"""),
        ("bf16[128,128]", "bf16[128,512]"),
        "total = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)",
    ),
}  # fmt: skip
