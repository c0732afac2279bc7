"""`nki.collectives`: groups of ranks, and the names of what they do together, which is not modelled yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ...errors import UnsupportedError, UseError
from ...trace.source import place_of, user_frame
from ..places import placed
from .objects import NKIObject


class ReplicaGroup(NKIObject):
    """Groups of ranks that take part in a collective.

    Args:
        groups: lists of ranks, each rank in one list.

    Raises:
        UseError: if a rank is no whole number of at least 0, or stands twice.
    """

    @placed("ReplicaGroup")
    def __init__(self, groups: Any) -> None:
        try:
            held = [list(group) for group in groups]
        except TypeError:
            raise UseError(f"groups is {groups!r}; it is a list of lists of ranks") from None
        ranks = [rank for group in held for rank in group]
        if not ranks or not all(isinstance(rank, int) and rank >= 0 for rank in ranks):
            raise UseError(f"groups is {groups!r}; ranks are whole numbers of at least 0")
        twice = sorted({rank for rank in ranks if ranks.count(rank) > 1})
        if twice:
            raise UseError(f"rank {twice[0]} stands in groups {held} more than once; groups do not overlap")
        self.groups = held


def _refused(name: str, parameters: str) -> Callable[..., Any]:
    """A function with the parameters of a collective that refuses to run.

    Args:
        name: of the collective.
        parameters: text of its signature.
    """

    def refuse() -> NoReturn:
        raise UnsupportedError(
            f"nki.collectives.{name} is not modelled yet: kernels of several ranks do not run together here",
            hint="run the kernel's part between collectives on one rank",
        ).located(place_of(user_frame(1)), name)

    scope: dict[str, Any] = {"_refuse": refuse}
    exec(compile(f"def {name}({parameters}): _refuse()", f"<nkilab {name}>", "exec"), scope)
    function: Callable[..., Any] = scope[name]
    function.__doc__ = f"The collective {name}; it is not modelled yet."
    return placed(name)(function)


_LISTS = "srcs, dsts, replica_group, "
_END = "priority=None, name=None"
_VECTOR = f"{_LISTS}metadata_tensor, recv_counts_known=False, has_rdispls=False, {_END}"
_SIGNATURES = {
    "all_reduce": f"{_LISTS}op, {_END}",
    "all_gather": f"{_LISTS}collective_dim, {_END}",
    "all_gather_v": _VECTOR,
    "reduce_scatter": f"{_LISTS}collective_dim, op, {_END}",
    "all_to_all": f"{_LISTS}collective_dim, {_END}",
    "all_to_all_v": _VECTOR,
    "collective_permute": f"srcs, dsts, source_target_pairs, {_END}",
    "collective_permute_implicit":
        f"srcs_by_channel, dsts_by_channel, replica_group, channel_ids=(0,), {_END}",
    "collective_permute_implicit_reduce":
        f"srcs0_by_channel, srcs1_by_channel, dsts_by_channel, replica_group, op, channel_ids=(0,), {_END}",
    "collective_permute_implicit_current_processing_rank_id":
        "iteration_id, replica_group, channel_id=0, name=None",
    "rank_id": "name=None",
}  # fmt: skip

COLLECTIVES: dict[str, Any] = {
    "ReplicaGroup": ReplicaGroup,
    **{name: _refused(name, parameters) for name, parameters in _SIGNATURES.items()},
}
