"""`neuronxcc.nki.isa`: instructions that return their result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ...errors import NkilabError, RuleError, UseError
from ...isa import REGISTRY
from ...isa.declare import NUMBER, Instruction
from ...isa.elementwise import Memset, TensorCopy, TensorTensor
from ...isa.reduction import TensorReduce
from ...isa.scalar_engine import Activation, ActivationReduce
from ...isa.select import AffineSelect
from ...isa.statistics import BnStats
from ...isa.tensor_engine import NcMatmul, NcTranspose
from ...tiles.dtypes import as_dtype
from ...tiles.views import broadcast, reshaped
from ...trace.builder import record
from ...trace.session import Session, current
from ...trace.source import Site, place_of, user_frame
from ..enums import dge_mode, engine, nc_version, oob_mode
from ..generated_functions import Finish, surface
from ..history import BETA1, history
from ..indexing import allocated_shape
from ..places import placed
from ..tile_functions import result_layout
from .direct_allocation import BIAS_KEY, TRANSPOSE_KEY, Blocks, refuse_blocks, require_automatic
from .functions import a_tile, in_sbuf, index_tile, inside_or_masked
from .grids import Box, Index, Mask, box_of
from .reductions import reduced
from .subscripts import crop_operands, cropped, inside_bounds
from .tensor import Tensor, again, checked, fresh, fresh_in_box, keep, refuse_indices, settled
from .transfers import copy_row, dma_attributes


@dataclass(frozen=True)
class Spelling:
    """One signature."""

    keyword_only_from: str = ""  # first parameter that may only be given by keyword; "" if none is
    order: tuple[str, ...] = ()  # names of all parameters; () for the declared order without the result
    absent: tuple[str, ...] = ()  # declared parameters that Beta 1 does not have
    is_in_place: bool = False  # whether the caller gives the result, as a parameter
    mask_over: str = ""  # operand whose axes a mask is over; "" for the result
    defaults: Mapping[str, Any] = field(default_factory=dict)  # where Beta 1's differ
    # per attribute what Beta 1 calls its values, where they have another name
    words: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


PLAIN = Spelling()

SPELLINGS: dict[str, Spelling] = {
    "nc_matmul": Spelling(
        "is_stationary_onezero",
        absent=("accumulate",),
        # published kernels write so; the stubs do not list the keyword
        words={"perf_mode": {"double_row_gen3": "double_row"}},
    ),
    "nc_transpose": Spelling("engine"),
    "activation": Spelling("bias"),
    "activation_reduce": Spelling("reduce_op"),
    "tensor_reduce": Spelling("negate"),
    "tensor_scalar": Spelling("engine"),
    "tensor_tensor": Spelling("engine"),
    "scalar_tensor_tensor": Spelling("data"),
    "tensor_copy": Spelling("engine"),
    "bn_stats": Spelling(mask_over="data"),
    "bn_aggr": Spelling(mask_over="data"),
    "max8": Spelling("src", mask_over="src"),
    "nc_find_index8": Spelling("data", mask_over="data"),
    "nc_match_replace8": Spelling("data", mask_over="data"),
    "range_select": Spelling("on_true_tile", defaults={"reduce_cmd": "idle"}),
    "tensor_scalar_reduce": Spelling("data", absent=("reduce_cmd", "reduce_init", "reduce_res_negate")),
    "nc_stream_shuffle": Spelling(order=("src", "dst", "shuffle_mask"), is_in_place=True),
    "tensor_copy_predicated": Spelling(
        "src", order=("src", "dst", "predicate", "reverse_pred"), is_in_place=True
    ),
    "select_reduce": Spelling("dst", is_in_place=True),
    "tensor_scalar_cumulative": Spelling("dst", is_in_place=True),
    "sequence_bounds": Spelling("segment_ids"),
    "dma_transpose": Spelling("axes", absent=("priority", "dge_mode", "oob_mode")),
}

# The instructions of Beta 1 whose functions follow from their declarations; `isa.py` spells the others.
# The stubs do not list tensor_scalar_cumulative, a published test calls it.
NAMES = (
    "activation", "activation_reduce", "bn_aggr", "bn_stats", "dma_transpose", "dropout", "local_gather",
    "max8", "nc_find_index8", "nc_match_replace8", "nc_matmul", "nc_stream_shuffle", "nc_transpose",
    "range_select", "reciprocal", "scalar_tensor_tensor", "select_reduce", "sequence_bounds", "tensor_copy",
    "tensor_copy_predicated", "tensor_partition_reduce", "tensor_reduce", "tensor_scalar",
    "tensor_scalar_cumulative", "tensor_scalar_reduce", "tensor_tensor", "tensor_tensor_scan",
)  # fmt: skip


EXTRA = {"dtype": None, "mask": None}

tensor_engine = engine.tensor
vector_engine = engine.vector
scalar_engine = engine.scalar
gpsimd_engine = engine.gpsimd
dma_engine = engine.dma
unknown_engine = engine.unknown


def finish(
    session: Session, cls: type[Instruction], operands: list[Any], attributes: tuple[Any, ...],
    values: tuple[Any, ...], extras: tuple[Any, ...], where: Site | None = None,
) -> Tensor:  # fmt: skip
    """What a value-returning call does with its arguments."""
    dtype, mask = extras
    operands = [
        o if o is None or (type(o) is Tensor and o.pending is None) else _settled(o) for o in operands
    ]
    shape = None
    try:
        element_type = None if dtype is None else as_dtype(dtype)
        data = operands[1]
        if cls is TensorReduce and isinstance(data, Tensor):
            return reduced(session, data, attributes, element_type or data.layout.dtype, mask)
        if cls is TensorTensor:
            operands, shape = _broadcast_inputs(operands, mask)
        elif cls is Activation or cls is ActivationReduce:
            _check_vectors(session, cls, operands)
        elif cls is NcMatmul and "products" in session.keyed:
            operands = [_from_psum(session, o) for o in operands]
        elif cls is NcTranspose and attributes != ("vector",):
            require_automatic(session, "TensorE transposes", TRANSPOSE_KEY)
    except NkilabError as error:
        raise error.located(place_of(user_frame()), cls.name) from None
    if cls.accumulates:
        values = (False,)
    own_type = data.layout.dtype if isinstance(data, Tensor) else element_type
    if cls is NcTranspose and element_type not in (None, own_type):
        # hw: the array transposes without a cast; another instruction converts
        moved = fresh(session, cls, operands, attributes, values, mask=mask)
        return fresh(session, TensorCopy, [None, settled(moved)], ("unknown",), (), dtype=element_type)
    return fresh(
        session, cls, operands, attributes, values, dtype=element_type, mask=mask, shape=shape, where=where
    )


def _check_vectors(session: Session, cls: type[Instruction], operands: list[Any]) -> None:
    """What Beta 1 asks of the scale and the bias of an activation beyond the declaration."""
    by_name = dict(zip(cls.operands, operands, strict=True))
    scale, data = by_name["scale"], by_name["data"]
    if isinstance(scale, Tensor) and isinstance(data, Tensor):
        partitions = data.layout.partitions
        if (scale.layout.partitions, scale.layout.free_size) != (partitions, 1):
            raise RuleError(
                f"scale is {list(scale.shape)}; "
                f"it must be a number or a tile [P, 1] of {partitions} partitions",
                source=cls.source, key="err_activation_scale_scalar_or_vector",
            )  # fmt: skip
    bias = by_name["bias"]
    if bias is None:
        require_automatic(session, "bias is not given", BIAS_KEY)
    if isinstance(bias, Tensor) and bias.layout.dtype.name not in ("float32", "float16", "bfloat16"):
        raise RuleError(
            f"bias is a tile of {bias.layout.dtype}; it must be float32, float16 or bfloat16",
            hint="cast it with nisa.tensor_copy", source=cls.source, key="err_activation_bias_invalid_type",
        )  # fmt: skip


def _from_psum(session: Session, operand: Any) -> Any:
    """A product that the kernel assigned nowhere, copied to SBUF, as the vendor's compiler does.

    The documents ask for operands in SBUF; published kernels multiply what nc_transpose gives.
    """
    if not isinstance(operand, Tensor) or operand.storage not in session.keyed["products"]:
        return operand
    return in_sbuf(inside_bounds(operand))


def _settled(operand: Any) -> Any:
    if type(operand) is Tensor:
        return operand if operand.pending is None else settled(operand)
    if isinstance(operand, Blocks):
        checked("operand", partial(refuse_blocks, operand), operand)
    return operand.tensor() if hasattr(operand, "assign_to") else operand


def _broadcast_inputs(operands: list[Any], mask: Any) -> tuple[list[Any], tuple[int, ...] | None]:
    """tensor_tensor of Beta 1 repeats a [P, 1] operand along the free axes of the other."""
    _, a, b = operands
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)) or a.layout.size == b.layout.size:
        return operands, None
    a, b = inside_or_masked(a, mask), inside_or_masked(b, mask)
    if a.layout.partitions != b.layout.partitions:
        # nki.language repeats one partition, nki.isa does not: the declaration says so
        return operands, None
    shape = a.shape if a.layout.size > b.layout.size else b.shape
    return [None, _widened(a, shape), _widened(b, shape)], shape


def _widened(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    if tensor.shape == shape:
        return tensor
    if tensor.layout.free_size == 1 and tensor.layout.partitions == shape[0]:
        tensor = reshaped(tensor, (shape[0], *(1,) * (len(shape) - 1)), 0)
    return broadcast(tensor, shape)


def _finish_in_place(
    session: Session, cls: type[Instruction], operands: list[Any], attributes: tuple[Any, ...],
    values: tuple[Any, ...], extras: tuple[Any, ...], where: Site | None = None,
) -> None:  # fmt: skip
    """What a call does whose caller gives the result."""
    _, mask = extras
    operands = [_settled(o) for o in operands]
    refuse_indices(cls.name, dict(zip(cls.operands, operands, strict=True)))
    rest = None
    dst = operands[cls.result_slot]
    if mask is not None and isinstance(dst, Tensor):
        try:
            box, rest = box_of(mask, dst.shape)
        except NkilabError as error:
            raise error.located(place_of(user_frame()), cls.name) from None
        if box is None:
            return
        operands = crop_operands(cls, operands, box)
    else:
        operands = [
            checked(cls.name, partial(inside_bounds, o), o) if type(o) is Tensor else o for o in operands
        ]
    record(session, cls, operands, attributes, values, rest, where)


def _over_operand(operand: str) -> Finish:
    """The finish of instructions whose mask is over one of their inputs."""

    def finish_cropped(
        session: Session, cls: type[Instruction], operands: list[Any], attributes: tuple[Any, ...],
        values: tuple[Any, ...], extras: tuple[Any, ...], where: Site | None = None,
    ) -> Tensor:  # fmt: skip
        dtype, mask = extras
        operands = [_settled(o) for o in operands]
        operand_tile = operands[list(cls.operands).index(operand)]
        if mask is None or not isinstance(operand_tile, Tensor):
            return finish(session, cls, operands, attributes, values, extras, where)
        try:
            layouts = [o.layout if isinstance(o, Tensor) else None if o is None else NUMBER for o in operands]
            element_type = None if dtype is None else as_dtype(dtype)
            known = result_layout(cls, layouts, attributes, element_type, "", None)
            box, rest = box_of(mask, operand_tile.shape)
            if rest is not None:
                raise UseError("the mask is not a rectangle of the tile", hint="mask whole rows or columns")
            if cls is BnStats and box is not None and box != _rows(operand_tile.shape, box):
                raise RuleError("the mask leaves out elements of a row; bn_stats counts whole rows",
                                hint="slice the tile", source="NKI known issues")  # fmt: skip
            if box is None:
                return fresh_in_box(session, cls, operands, attributes, values, known, None)
            operands = [_under(o, operand_tile, box) for o in operands]
        except NkilabError as error:
            raise error.located(place_of(user_frame()), cls.name) from None
        written = box if known.shape == operand_tile.shape else _rows(known.shape, box)
        return fresh_in_box(session, cls, operands, attributes, values, known, written)

    return finish_cropped


def _under(operand: Any, masked: Tensor, box: Box) -> Any:
    """An operand under the rectangle of a mask over another one: of its shape, or with its rows."""
    if not isinstance(operand, Tensor):
        return operand
    return cropped(operand, box if operand.shape == masked.shape else _rows(operand.shape, box))


def _rows(shape: tuple[int, ...], box: Box) -> Box:
    return (box[0], *(slice(0, n) for n in shape[1:]))


def _surface(cls: type[Instruction]) -> Callable[..., Any]:
    spelling = SPELLINGS.get(cls.name, PLAIN)
    result = () if spelling.is_in_place else (list(cls.operands)[cls.result_slot],)
    order = spelling.order or [n for n in cls.parameters if n not in (*result, *spelling.absent)]
    ending: Finish = finish
    if spelling.is_in_place:
        ending = _finish_in_place
    elif spelling.mask_over:
        ending = _over_operand(spelling.mask_over)
    return surface(
        cls, order, ending, keyword_only_from=spelling.keyword_only_from, extra=EXTRA, version=BETA1,
        defaults=spelling.defaults, words=spelling.words, handle=(keep, again) if ending is finish else None,
    )  # fmt: skip


# What no version of NKI has is an instruction of the user's own, and in both spellings.
_OWN = [name for name, cls in REGISTRY.items() if cls.module == "isa" and f"isa.{name}" not in history()]
SURFACES = {name: _surface(REGISTRY[name]) for name in (*NAMES, *_OWN)}


@placed("affine_select", "isa.affine_select")
def affine_select(
    pred: Any, on_true_tile: Any, on_false_value: Any, *, mask: Any = None, dtype: Any = None
) -> Tensor:
    """on_true_tile where an affine comparison of index grids holds, on_false_value elsewhere."""
    session = current()
    if not isinstance(pred, Mask) or pred.difference is None:
        raise UseError("pred is no single comparison of index grids", hint="compare two grids: i_p >= i_f")
    # GpSimdE does not reach PSUM; published kernels give it such tiles, which the vendor's compiler copies
    tile = in_sbuf(a_tile(on_true_tile))
    grid = pred.difference
    pattern = tuple(zip(grid.steps[1:], grid.shape[1:], strict=True))
    operator = AffineSelect.attributes["cmp_op"].canonical("cmp_op", pred.comparison)
    element_type = None if dtype is None else as_dtype(dtype)
    chosen = {"pattern": pattern, "cmp_op": operator}
    attributes = tuple(chosen.get(n, a.default) for n, a in AffineSelect.attributes.items())
    numbers = {"channel_multiplier": grid.steps[0], "on_false_value": on_false_value, "offset": grid.start}
    operands = [tile if n == "on_true_tile" else numbers.get(n) for n in AffineSelect.operands]
    values = tuple(numbers[n] for n in AffineSelect.values)
    return fresh(session, AffineSelect, operands, attributes, values, dtype=element_type, mask=mask)


@placed("dma_copy", "isa.dma_copy")
def dma_copy(
    *, dst: Any, src: Any, mask: Any = None, dst_rmw_op: Any = None, oob_mode: Any = oob_mode.error,
    dge_mode: Any = dge_mode.unknown,
) -> None:  # fmt: skip
    """Copy src to dst with the DMA engines, between HBM and SBUF; see `nkilab explain dma_copy`."""
    session = current()
    canonical = dma_attributes(dst_rmw_op=dst_rmw_op, oob_mode=oob_mode, dge_mode=dge_mode)
    copy_row(session, _settled(dst), _settled(src), mask, canonical)


@placed("memset", "isa.memset")
def memset(shape: Any, value: Any, dtype: Any, *, mask: Any = None, engine: Any = engine.unknown) -> Tensor:
    """A tile filled with a constant; its first axis is the partition."""
    session = current()
    extents, element_type = allocated_shape(shape), as_dtype(dtype)
    canonical = Memset.attributes["engine"].canonical("engine", engine)
    return fresh(
        session, Memset, [None], (canonical,), (value,), dtype=element_type, mask=mask, shape=extents
    )


@placed("iota", "isa.iota")
def iota(expr: Any, dtype: Any, *, mask: Any = None) -> Tensor:
    """A tile of the values of an index expression; its first axis is the partition.

    A program id or a variable of a loop is one value, [1, 1].
    """
    if isinstance(expr, int) and not isinstance(expr, bool):
        expr = Index((1, 1), int(expr), (0, 0))
    return index_tile(expr if isinstance(expr, Index) else Index((), 0, ()), as_dtype(dtype), mask)


@placed("get_nc_version")
def get_nc_version() -> nc_version:
    """The generation of the chip that is modelled."""
    return nc_version(current().machine.generation)
