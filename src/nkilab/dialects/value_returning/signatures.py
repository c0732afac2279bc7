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
    """

    keyword_only_from: str = ""
    order: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    is_in_place: bool = False
    mask_over: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)


PLAIN = Spelling()

SPELLINGS: dict[str, Spelling] = {
    "nc_matmul": Spelling("is_stationary_onezero", absent=("accumulate",)),
    "nc_transpose": Spelling("engine"),
    "activation": Spelling("bias"),
    "activation_reduce": Spelling("reduce_op"),
    "tensor_reduce": Spelling("negate"),
    "tensor_scalar": Spelling("engine"),
    "tensor_tensor": Spelling("engine"),
    "scalar_tensor_tensor": Spelling("data"),
    "tensor_copy": Spelling("engine"),
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
    "dma_transpose": Spelling("axes", absent=("priority",)),
}

# Instructions that came after Beta 1, or that Beta 1 spells with a function of their own.
LATER = frozenset({
    "activate2", "dma_compute", "exponential", "nc_n_gather", "nonzero_with_count", "rand2", "rand_get_state",
    "rand_set_state", "rng", "set_rng_seed", "topk",
})  # fmt: skip
OWN = frozenset({"affine_select", "dma_copy", "iota", "memset"})
