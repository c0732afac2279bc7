"""How Beta 1 spells instructions where the rule (declared order without the result) does not say it.

Source: stubs of SDK 2.26.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Spelling:
    """One signature.

    Args:
        keyword_only_from: first parameter that may only be given by keyword; "" if none is.
        order: names of all parameters; () for the declared order without the result.
        absent: declared parameters that Beta 1 does not have.
        is_in_place: whether the caller gives the result, as a parameter.
        mask_over: operand whose axes a mask is over; "" for the result.
        defaults: where Beta 1's differ.
        words: per attribute what Beta 1 calls its values, where they have another name.
    """

    keyword_only_from: str = ""
    order: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    is_in_place: bool = False
    mask_over: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)
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
