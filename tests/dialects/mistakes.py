"""Everyday mistakes of a first hour with NKI: a line of a kernel each, and what is told of it."""

from __future__ import annotations

# what a kernel has before the line: a is the input, t a tile [128, 64] of it, out the result
HEADS = {
    "neuronxcc.nki": """\
import numpy as np
from neuronxcc import nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a):
    out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    t = nl.load(a)
    b = nl.zeros((128, 16, 32), dtype=nl.float32, buffer=nl.sbuf)
    c = nl.zeros((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    u = nl.zeros((100, 64), dtype=nl.float32, buffer=nl.sbuf)
""",
    "nki": """\
import numpy as np
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(a):
    out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    t = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=a)
    b = nl.zeros((128, 16, 32), dtype=nl.float32, buffer=nl.sbuf)
    c = nl.zeros((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    u = nl.zeros((100, 64), dtype=nl.float32, buffer=nl.sbuf)
""",
}

TILE = "\n  t: float32[128, 64] in sbuf"
WHEN = "a tile has its elements only when the kernel runs on the device"
HOST = f"it computes on the host; {WHEN}{TILE}\n  hint: "
ELEMENT = (
    f"it asks the host for an element; {WHEN}{TILE}\n  hint: keep it a tile: instructions take "
    f"a column [P, 1] "
    "where they take a number; print the tile to see its elements"
)
TO_HOST = ELEMENT.replace("it asks the host for an element", "it takes elements to the host")
MEMBER = f"; functions of nki.language take it{TILE}\n  hint: write "
ELSEWHERE = "compute on the host before the call, or with functions of nki.language and nki.isa"
ARRAYS = "only arrays that a kernel is given become tensors\n  hint: pass "
TUPLE = "\n  hint: the shape is one tuple, as in nl.zeros((128, 512), dtype=nl.float32)"
AXIS = (
    "missing 1 required positional argument: 'axis'\n"
    "  hint: write axis=1: free axes are reduced, the partition axis 0 is not"
)

# in both spellings: the line, and the message after the place
BOTH = {
    "np.exp(t)": f"np.exp: {HOST}write nl.exp(t)",
    "np.maximum(t, 0)": f"np.maximum: {HOST}write nl.maximum(t, 0)",
    "np.sum(t)": f"np.sum: {HOST}write nl.sum(t, axis=1)",
    "np.add.reduce(t)": f"np.add.reduce: {HOST}{ELSEWHERE}",
    "np.max(t, axis=1)": f"np.max: {HOST}write nl.max(t, axis=1)",
    "np.concatenate([t, t])": f"np.concatenate: {HOST}{ELSEWHERE}",
    "np.clip(t, 0, 1)": f"np.clip: {HOST}{ELSEWHERE}",
    "np.ones((128, 64)) + t": f"np.add: {HOST}pass the array as an argument of the kernel, and load it",
    "abs(t)": f"abs: {HOST}write nl.abs(t)",
    "int(t)": f"int: {ELEMENT}",
    "float(t)": f"float: {ELEMENT}",
    "range(t)": f"index: {ELEMENT}",
    "round(t)": f"round: {ELEMENT}",
    "t.item()": f"tensor.item: {TO_HOST}",
    "t.numpy()": f"tensor.numpy: {TO_HOST}",
    "t.T": f"tensor.T: a tensor of a kernel has no T{MEMBER}nl.transpose(t)",
    "t.sum(axis=1)": f"tensor.sum: a tensor of a kernel has no sum{MEMBER}nl.sum(t, axis=1)",
    "t.to(nl.bfloat16)": f"tensor.to: a tensor of a kernel has no to{MEMBER}nl.copy(tile, dtype=...)",
    "nl.max(t)": f"max: {AXIS}",
    "nl.ndarray(128, 64, dtype=nl.float32)": f"ndarray: got multiple values for argument 'dtype'{TUPLE}",
    "nl.ndarray((128, 64))": f"ndarray: missing 1 required positional argument: 'dtype'{TUPLE}",
    "nl.ndarray((10**5000, 2), nl.float32)": (
        "ndarray: extent 0 of shape is a whole number of 5001 digits; extents are whole numbers of 64 bits"
    ),
    "nl.ndarray((2**40, 2**40), nl.float32)": (
        "ndarray: shape is [1099511627776, 1099511627776]; addresses of its elements have 64 bits at most"
    ),
    "t[10**5000]": (
        "subscript: index a whole number of 5001 digits is outside axis 0 of t: float32[128, 64] in sbuf, "
        "which has 128 elements\n  hint: shrink the loop or mask the access\n  key: "
        "err_tensor_access_out_of_bound"
    ),
    "t[0:10**5000]": (
        "subscript: the end of a slice is a whole number of 5001 digits; it must be a whole number of 64 bits"
    ),
    "nl.affine_range(t)": "affine_range: the end of a range is of type Tensor; it must be a whole number",
}
BETA1 = {
    "nl.float64": "neuronxcc.nki.language: nkilab serves no name float64 here\n  hint: use float32",
    "nl.exponential(t)": "neuronxcc.nki.language: nkilab serves no name exponential here\n  hint: use exp",
    "nl.zzzz(t)": (
        "neuronxcc.nki.language: nkilab serves no name zzzz here\n  hint: nkilab ops lists every name"
    ),
    "nki.exp(t)": "neuronxcc.nki: nkilab serves no name exp here\n  hint: neuronxcc.nki.language has it",
    "nisa.activation(t, t, nl.exp)": (
        "activation: takes from 0 to 2 positional arguments but 3 were given\n  hint: it takes op, "
        "data, bias, scale, "
        "reduce_op, reduce_res, reduce_cmd, dtype, mask; the call returns the result\n  source: "
        "nki.isa.activation"
    ),
    "nisa.tensor_tensor(t, t, t, op=nl.add)": (
        "tensor_tensor: got multiple values for argument 'op'\n  hint: it takes data1, data2, op, "
        "engine, dtype, "
        "mask; the call returns the result\n  source: nki.isa.tensor_tensor"
    ),
    "if t > 0.5: pass": (
        "bool: the truth of a tensor is not defined inside a kernel\n  hint: choose elements with "
        "nl.where(condition, x, y), combine conditions with ~, & and |, and ask for presence with "
        "`is not None`\n"
        "  key: err_ambiguous_tensor_truth_value"
    ),
    "b + c": (
        "add: shapes [128, 16, 32] and [128, 1] do not broadcast\n  x = b: float32[128, 16, 32] in sbuf\n"
        "  y = c: float32[128, 1] in sbuf\n"
        "  hint: reshape [128, 1] to [128, 1, 1]: axes are compared from the last"
    ),
    "nl.store(out, u)": (
        "store: shape [100, 64] does not broadcast to [128, 64]\n  u: float32[100, 64] in sbuf\n"
        "  hint: store to a part of that shape: dst[0:100, 0:64]"
    ),
    "nl.store(out, t, mask=t > 0.5)": (
        "dma_copy: mask is a tile, whose elements are known only when the kernel runs\n"
        "  hint: choose elements with nl.where or nisa.tensor_copy_predicated\n"
        "  key: err_unsupported_expression_in_mask"
    ),
    "t + np.ones((128, 64))": (
        f"add: an operand is of type ndarray; it must be a tile or a number{TILE}\n"
        "  hint: pass the array as an argument of the kernel, and load it"
    ),
    "t + '1'": f"add: an operand is '1'; it must be a tile or a number{TILE}",
    "t // 2": f"operator //: tiles have no operator //{TILE}\n  hint: write nl.floor(nl.divide(x, y))",
    "nl.load([[1.0]])": (
        "load: src is of type list; it must be a tensor in hbm\n  hint: pass np.array(...) of it to "
        "the kernel"
    ),
    "nl.exp(np.ones(3))": (
        "exp: an argument is of type ndarray; it must be a tile or a number\n"
        "  hint: pass arrays as arguments of the kernel"
    ),
    "nl.max(t, dim=1)": (
        "max: there is no keyword dim; it takes x, axis, dtype, mask, keepdims\n  hint: write axis="
    ),
}
OPERATOR = "a tensor takes part in the operator {}, which nki does not have on tensors\n  hint: write {}"
GUIDE = "\n  source: NKI language guide"
FIRST = "\n  hint: instructions of nki take dst first, the tile that they write: "
NKI = {
    "nl.float64": "nki.language: nkilab serves no name float64 here\n  hint: use float32",
    "nl.exponential(t)": "nki.language: nkilab serves no name exponential here\n  hint: nki.isa has it",
    "nki.exp(t)": "nki: nkilab serves no name exp here\n  hint: nki.language has it",
    "nisa.activation(op=nl.exp, data=t)": (
        f"activation: dst is not given{FIRST}nisa.activation(dst, op=nl.exp, data=t)"
    ),
    "nisa.tensor_tensor(t, t, op=nl.add)": (
        f"tensor_tensor: data2 is not given{FIRST}nisa.tensor_tensor(dst, t, t, op=nl.add)"
    ),
    "nisa.tensor_tensor(t, t, t)": "tensor_tensor: op is not given\n  hint: it takes dst, data1, data2, op",
    "if t > 0.5: pass": (
        "operator >: "
        + OPERATOR.format(
            ">", "nisa.tensor_scalar(dst, t, op0=nl.greater, operand0=0.5), and choose by it with nl.where"
        )
        + GUIDE
    ),
    "b + c": "operator +: " + OPERATOR.format("+", "nisa.tensor_tensor(dst, b, c, op=nl.add)") + GUIDE,
    "1 - t": (
        "operator -: "
        + OPERATOR.format("-", "nisa.tensor_scalar(dst, t, op0=nl.subtract, operand0=1, reverse0=True)")
        + GUIDE
    ),
    "t @ t": "operator @: " + OPERATOR.format("@", "nisa.nc_matmul(dst, stationary, moving)") + GUIDE,
    "nl.add(b, c)": (
        "add: x is [128, 16, 32] and y is [128, 1]; nl.add takes tiles of one shape\n"
        "  hint: repeat the smaller one with nl.broadcast_to, or use nisa.tensor_scalar for a column [P, 1]\n"
        "  source: NKI 0.4 release notes, NKI Language (experimental)"
    ),
    "nisa.dma_copy(out, u)": (
        "dma_copy: dst and src hold different numbers of elements\n  dst = out: float32[128, 64] in hbm\n"
        "  src = u: float32[100, 64] in sbuf\n  hint: slice both sides to the same size\n"
        "  source: nki.isa.dma_copy, tile size"
    ),
    "nl.exp(t, mask=t)": (
        "exp: there is no keyword mask; it takes x, dtype\n"
        "  hint: use slices that hold only the elements to compute on"
    ),
    "nisa.dma_copy(t, [[1.0] * 64] * 128)": (
        "dma_copy: an operand is of type list; operands are tensors of the kernel or numbers\n"
        "  dst = t: float32[128, 64] in sbuf\n  src is of type list\n"
        "  hint: pass np.array(...) of it to the kernel"
    ),
    "nl.sbuf.view((128, 4), nl.float32)": (
        "nl.sbuf: nl.sbuf has no view\n  hint: write nl.ndarray(shape, dtype, buffer=nl.sbuf)"
    ),
    "nl.shared_hbm.tensor": (
        "nl.shared_hbm: nl.shared_hbm has no tensor\n"
        "  hint: write nl.ndarray(shape, dtype, buffer=nl.shared_hbm)"
    ),
    "x = [1]; x.ndim": f"kernel: x is of type list, which has no ndim: {ARRAYS}np.array(x) to the kernel",
    "x = 3; x.dtype": f"kernel: x is of type int, which has no dtype: {ARRAYS}np.array(x) to the kernel",
    "x = None; x.shape": f"kernel: x is None, which has no shape: {ARRAYS}an array",
    "x = [t, t]; x.shape": (
        "kernel: x is of type list, which has no shape: only arrays that a kernel is given become tensors\n"
        "  hint: take one of its tensors, as in x[0]"
    ),
    "for row in t: pass": (
        f"iteration: a tensor is gone through like a list, which nki does not do{TILE}\n"
        "  hint: loop over nl.affine_range(n), and slice the tensor by the index"
    ),
    "nl.exp(t.ap([[64, 128], [1, 90]]))": (
        "exp: the pattern reaches elements 0 to 8217; the storage has 8192\n"
        "  hint: check offset, steps and counts\n  key: err_tensor_access_out_of_bound"
    ),
    "t.ap([[64, 128], [1, 90]])[0]": (
        "kernel: the pattern reaches elements 0 to 8217; the storage has 8192\n"
        "  hint: check offset, steps and counts\n  key: err_tensor_access_out_of_bound"
    ),
    "nl.max(t, dim=1)": (
        "max: there is no keyword dim; it takes x, axis, dtype, keepdims\n  hint: write axis="
    ),
}
