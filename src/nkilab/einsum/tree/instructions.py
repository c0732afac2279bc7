"""The instruction that each tile statement is, with what it takes: read by what prices and by what prints."""

from __future__ import annotations

from ...isa.data_movement import DmaCopy
from ...isa.declare import REGISTRY, Instruction
from ...isa.elementwise import Memset, Reciprocal, ScalarTensorTensor, TensorCopy, TensorScalar, TensorTensor
from ...isa.gather import NcNGather
from ...isa.gpsimd import Iota
from ...isa.predicated import SelectReduce, TensorCopyPredicated
from ...isa.reduction import TensorReduce
from ...isa.scalar_engine import Activation, ActivationReduce
from ...isa.scans import TensorTensorScan
from ...isa.select import AffineSelect
from ...isa.tensor_engine import NcMatmul, NcTranspose
from . import nodes
from .expr import Expr

RELATIONS = {
    "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal", "==": "equal", "!=": "not_equal",
}  # fmt: skip
Call = tuple[type[Instruction], dict[str, object]]


def instruction_of(statement: nodes.Statement) -> Call | None:
    """The declaration of a statement, and its operands, attributes and values by name; None if it is none.

    Views, numbers and names of scalars are operands; names of operators and engines are as users spell them.
    """
    match statement:
        case nodes.Load(dst, src) | nodes.Store(dst, src) | nodes.Move(dst, src):
            return DmaCopy, {"dst": dst, "src": src}
        case nodes.Gather(dst, table):
            return DmaCopy, {"dst": dst, "src": table}
        case nodes.Pick(dst, src, places):
            return NcNGather, {"dst": dst, "data": src, "indices": places}
        case nodes.Copy(dst, src, engine):
            return TensorCopy, {"dst": dst, "src": src} | _set(engine=engine)
        case nodes.Fill(dst, value):
            return Memset, {"dst": dst, "value": value}
        case nodes.Count(dst, offset, p, i):
            return Iota, {"dst": dst, **_places(dst, offset, p, i)}
        case nodes.Invert(dst, src):
            return Reciprocal, {"dst": dst, "data": src}
        case nodes.Reduce(dst, op, src, axes):
            last = [*range(len(src.cuts) - axes, len(src.cuts))]
            return TensorReduce, {"dst": dst, "op": op, "data": src, "axis": last if axes > 1 else last[0]}
        case nodes.MatMul(dst, stationary, moving, over, at, size, is_begun):
            operands = {"dst": dst, "stationary": stationary, "moving": moving}
            tiles = _set(tile_position=at, tile_size=size)
            return NcMatmul, {**operands, "accumulate": is_begun or over, **tiles}
        case nodes.Transpose(dst, src):
            return NcTranspose, {"dst": dst, "data": src}
        case nodes.Combine(dst, left, op, right, engine):
            return TensorTensor, {"dst": dst, "data1": left, "data2": right, "op": op} | _set(engine=engine)
    return _of_several(statement)


def _places(dst: nodes.View, offset: Expr, per_partition: int, per_element: int) -> dict[str, object]:
    pattern = ((per_element, dst.cuts[1].count),)
    return {"pattern": pattern, "offset": offset, "channel_multiplier": per_partition}


def _set(**values: object) -> dict[str, object]:
    return {name: value for name, value in values.items() if value}


def _of_several(statement: nodes.Statement) -> Call | None:
    """Instructions of several operators."""
    match statement:
        case nodes.Scale(dst, src, op0, operand0, reverse0, op1, operand1, reverse1):
            first = {"dst": dst, "data": src, "op0": op0, "operand0": operand0, **_set(reverse0=reverse0)}
            second = {"op1": op1, "operand1": operand1} if op1 else {}
            return TensorScalar, {**first, **second, **_set(reverse1=reverse1)}
        case nodes.ScaleCombine(dst, src, op0, operand0, op1, right, reverse0, reverse1):
            operands = {"dst": dst, "data": src, "op0": op0, "operand0": operand0, "op1": op1}
            operands |= {"operand1": right, **_set(reverse0=reverse0, reverse1=reverse1)}
            return ScalarTensorTensor, operands
        case nodes.Largest(dst, src):
            return REGISTRY["max8"], {"dst": dst, "src": src}
        case nodes.Find(dst, src, values):
            return REGISTRY["nc_find_index8"], {"dst": dst, "data": src, "vals": values}
        case nodes.TakeOut(dst, src, values, otherwise):
            return REGISTRY["nc_match_replace8"], {"dst": dst, "data": src, "vals": values, "imm": otherwise}
        case nodes.Choose(dst, src, truth, otherwise, is_reversed, left, total):
            if left is not None:
                return TensorCopyPredicated, {"dst": dst, "src": src, "predicate": truth}
            operands = {"dst": dst, "predicate": truth, "on_true": src, "on_false": otherwise}
            largest = {"reduce_cmd": "reset_reduce", "reduce_res": total, "reduce_op": "maximum"}
            return SelectReduce, {**operands, **_set(reverse_pred=is_reversed), **(largest if total else {})}
        case nodes.Activate(dst, function, src, scale, bias, total):
            operands = {"dst": dst, "op": function, "data": src}
            operands |= {"bias": bias} if bias is not None else {}
            operands |= {"scale": scale} if scale != 1.0 else {}
            if total is None:
                return Activation, operands
            return ActivationReduce, {**operands, "reduce_op": "add", "reduce_res": total}
        case nodes.Scan(dst, left, right, initial, op0, op1, reverse0, reverse1):
            operands = {"dst": dst, "data0": left, "data1": right, "initial": initial, "op0": op0, "op1": op1}
            return TensorTensorScan, {**operands, **_set(reverse0=reverse0, reverse1=reverse1)}
        case nodes.Select(dst, src, offset, p, i, relation, otherwise):
            where = _places(dst, offset, p, i)
            what = {"on_true_tile": src, "on_false_value": otherwise, "cmp_op": RELATIONS[relation]}
            return AffineSelect, {"dst": dst, **where, **what}
    return None
