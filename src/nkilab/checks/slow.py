"""The rules about speed: what costs time, and how to spare it. `advice.py` finds where."""

from __future__ import annotations

from typing import Any

from .declare import Example, Rule, rule

_DMA = "DMA bandwidth guide, descriptor size"


def _advice(id: str, title: str, **parts: Any) -> Rule:
    return rule(id, "advice", "advice", title=title, **parts)


_STRIPES = """
out = nl.ndarray((128, 4096), nl.float32, buffer=nl.shared_hbm)
for i in range({count}):
    tile = nl.ndarray((128, {width}), nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(tile, x[:, nl.ds(i * {width}, {width})])
    nisa.dma_copy(out[:, nl.ds(i * {width}, {width})], tile)
return out
"""
SHORT_ROWS = _advice(
    "dma-short-rows",
    "transfers move runs of 2 KiB and more",
    what="a transfer moves contiguous runs of less than 2 KiB, so that descriptors cost more than bytes",
    why="each run takes a descriptor, whose cost does not depend on its length",
    fix="load wider rows, or lay the tensor out so that a tile's rows are contiguous",
    source=_DMA,
    wrong=Example(_STRIPES.format(count=64, width=64), {"x": "f32[128,4096]"}),
    right=Example(_STRIPES.format(count=4, width=1024), {"x": "f32[128,4096]"}),
)

_PANELS = """
out = nl.ndarray((8, 128, 8192), nl.bfloat16, buffer=nl.shared_hbm)
{before}for i in range(8):
    a = nl.ndarray((128, 32768), nl.bfloat16, buffer=nl.sbuf)
    nisa.dma_copy(a, x[i])
{inside}    result = nl.ndarray((128, 8192), nl.bfloat16, buffer=nl.sbuf)
    nisa.tensor_tensor(result, a[:, 0:8192], b, op=nl.add)
    nisa.dma_copy(out[i], result)
return out
"""
_LOAD_B = "b = nl.ndarray((128, 8192), nl.bfloat16, buffer=nl.sbuf)\nnisa.dma_copy(b, y)\n"
_INSIDE = "".join(f"    {line}\n" for line in _LOAD_B.splitlines())
_PANEL_ARGS = {"x": "bf16[8,128,32768]", "y": "bf16[128,8192]"}
REPEATED = _advice(
    "dma-repeated-load",
    "what SBUF holds is not loaded again",
    what="a transfer loads elements that an earlier one loaded, and nothing has changed in HBM",
    why="HBM is the slowest memory; the same bytes cross it again",
    fix="load it once, before the loop, and keep the tile",
    source="NKI performance guide, avoid data reloading",
    wrong=Example(_PANELS.format(before="", inside=_INSIDE), _PANEL_ARGS),
    right=Example(_PANELS.format(before=_LOAD_B, inside=""), _PANEL_ARGS),
)

_MATMULS = """
left = nl.ndarray(({rows}, 128), nl.bfloat16, buffer=nl.sbuf)
right = nl.ndarray(({rows}, 512), nl.bfloat16, buffer=nl.sbuf)
result = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
total = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)
out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
nisa.dma_copy(left, a)
nisa.dma_copy(right, b)
for _ in range({count}):
    nisa.nc_matmul(total, left, right)
nisa.tensor_copy(result, total)
nisa.dma_copy(out, result)
return out
"""
IDLE_ARRAY = _advice(
    "matmul-idle-array",
    "matmuls fill the systolic array",
    what="a matmul contracts over fewer than 128 partitions, or has fewer than 128 stationary columns",
    why="a pass takes as long with few rows and columns of the array as with all",
    fix="tile so that the contraction and the free axis of stationary are 128, or give tile_position and "
    "tile_size",
    source="trn1 architecture guide, TensorE; nki.isa.nc_matmul, tiling mode",
    wrong=Example(_MATMULS.format(rows=32, count=256), {"a": "bf16[32,128]", "b": "bf16[32,512]"}),
    right=Example(_MATMULS.format(rows=128, count=64), {"a": "bf16[128,128]", "b": "bf16[128,512]"}),
)

_FUNCTIONS = """
tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
out = nl.ndarray((16, 128, 512), nl.float32, buffer=nl.shared_hbm)
nisa.dma_copy(tile, x)
{body}
return out
"""
_SWITCHING = """
for i in range(8):
    one = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    two = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    nisa.activation(one, op=nl.exp, data=tile)
    nisa.activation(two, op=nl.tanh, data=tile)
    nisa.dma_copy(out[2 * i], one)
    nisa.dma_copy(out[2 * i + 1], two)
"""
_GROUPED = """
for i in range(8):
    one = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    nisa.activation(one, op=nl.exp, data=tile)
    nisa.dma_copy(out[i], one)
for i in range(8, 16):
    two = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    nisa.activation(two, op=nl.tanh, data=tile)
    nisa.dma_copy(out[i], two)
"""
RELOADED = _advice(
    "table-reload",
    "activation functions of one table stand together",
    what="ScalarE alternates between functions that need different tables",
    why="loading a table takes more than a microsecond, longer than most instructions",
    fix="do all calls of one function before the first call of the next",
    source="trn1 architecture guide, ScalarE; measured table loads",
    wrong=Example(_FUNCTIONS.format(body=_SWITCHING), {"x": "f32[128,512]"}),
    right=Example(_FUNCTIONS.format(body=_GROUPED), {"x": "f32[128,512]"}),
)

_OVER_ROWS = """
tile = nl.load(x)
out = nl.ndarray((1, 2048), x.dtype, buffer=nl.shared_hbm)
nl.store(out, nisa.tensor_partition_reduce(nl.add, tile))
return out
"""
_OVER_COLUMNS = """
tile = nl.load(x)
out = nl.ndarray((128, 1), x.dtype, buffer=nl.shared_hbm)
nl.store(out, nisa.tensor_reduce(nl.add, tile, axis=1))
return out
"""
SLOW_AXIS = _advice(
    "reduce-partitions",
    "reductions run along the free axis",
    what="a reduction runs over partitions",
    why="engines work on each partition alone: GpSimdE moves the data instead",
    fix="lay the axis along the free dimension, or multiply by ones on TensorE",
    source="nki.isa.tensor_partition_reduce",
    wrong=Example(_OVER_ROWS, {"x": "f32[128,2048]"}, "neuronxcc"),
    right=Example(_OVER_COLUMNS, {"x": "f32[128,2048]"}, "neuronxcc"),
)

_TURNS = """
out = nl.ndarray((16, 128, 4096), nl.float32, buffer=nl.shared_hbm)
{before}for i in range(16):
{inside}    nisa.dma_copy(tile, x[i])
    result = nl.ndarray((128, 4096), nl.float32, buffer=nl.sbuf)
    nisa.activation(result, op=nl.exp, data=tile)
    nisa.dma_copy(out[i], result)
return out
"""
_TILE = "tile = nl.ndarray((128, 4096), nl.float32, buffer=nl.sbuf)\n"
SINGLE_BUFFER = _advice(
    "single-buffer",
    "loads go into buffers that nobody uses",
    what="a loop loads into one tile, so that each load waits until the last use of what the tile held",
    why="DMA and compute alternate instead of overlapping",
    fix="make the tile inside the loop, or rotate through two",
    source="NKI performance guide, overlap data loading with computation",
    wrong=Example(_TURNS.format(before=_TILE, inside=""), {"x": "f32[16,128,4096]"}),
    right=Example(_TURNS.format(before="", inside=f"    {_TILE}"), {"x": "f32[16,128,4096]"}),
)

_EVICTED = """
left = nl.ndarray((128, 128), nl.bfloat16, buffer=nl.sbuf)
right = nl.ndarray((128, 512), nl.bfloat16, buffer=nl.sbuf)
result = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
nisa.dma_copy(left, a)
nisa.dma_copy(right, b)
{before}for _ in range(32):
{inside}    for k in range(4):
        nisa.nc_matmul(total, left, right, accumulate=k > 0)
    nisa.tensor_copy(result, total)
nisa.dma_copy(out, result)
return out
"""
_TOTAL = "total = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)\n"
_MATMUL_ARGS = {"a": "bf16[128,128]", "b": "bf16[128,512]"}
HELD_BANK = _advice(
    "psum-late-copy",
    "sums leave PSUM before their bank is needed",
    what="a matmul waits until a bank of PSUM has been copied to SBUF",
    why="eight banks are all there are; TensorE stands still meanwhile",
    fix="make the tile inside the loop so that banks rotate, and copy each sum to sbuf as soon as it "
    "is complete",
    source="trn1 architecture guide, PSUM: eight outstanding accumulation groups",
    wrong=Example(_EVICTED.format(before=_TOTAL, inside=""), _MATMUL_ARGS),
    right=Example(_EVICTED.format(before="", inside=f"    {_TOTAL}"), _MATMUL_ARGS),
)
