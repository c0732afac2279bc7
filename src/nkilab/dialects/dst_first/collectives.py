"""`nki.collectives`: groups of ranks, and what they do together."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index as as_index
from typing import Any

from msgspec import Struct

from ...errors import RuleError, UseError
from ...isa.collectives import (
    AllGather,
    AllReduce,
    AllToAll,
    CollectivePermute,
    CollectivePermuteImplicitReduce,
    ReduceScatter,
)
from ...isa.declare import Instruction
from ...isa.registers import RegisterMove
from ...isa.varying_collectives import AllGatherV, AllToAllV
from ...machine import Span, Topology, topology_of
from ...tiles.tile import HBM, View
from ...trace.builder import located, record
from ...trace.session import Session, current
from ..indexing import whole_number
from ..places import placed
from ..schedules import note_name
from .objects import NKIObject
from .registers import VirtualRegister, register_alloc

PAGE = "nki.collectives"
# channels of a ring over a whole node, and over less
MOST_CHANNELS, FEWER_CHANNELS = 4, 2


class ReplicaGroup(NKIObject):
    """Groups of ranks that take part in a collective.

    Args:
        groups: lists of ranks, each rank in one list.

    Raises:
        UseError: if there is no rank or an empty group, or a rank is no whole number of at least 0, or stands
            twice.
    """

    @placed("ReplicaGroup")
    def __init__(self, groups: Any) -> None:
        try:
            members = [list(group) for group in groups]
        except TypeError:
            raise UseError(f"groups is {groups!r}; it must be a list of lists of ranks") from None
        if not members or [] in members:
            raise UseError(f"groups is {groups!r}; it must hold groups of at least one rank")
        try:
            members = [[_rank(rank) for rank in group] for group in members]
        except TypeError:
            raise UseError(f"groups is {groups!r}; ranks are whole numbers of at least 0") from None
        ranks = [rank for group in members for rank in group]
        twice = sorted({rank for rank in ranks if ranks.count(rank) > 1})
        if twice:
            raise UseError(
                f"rank {twice[0]} stands in groups {members} more than once; groups do not overlap"
            )
        self.groups = members


def _rank(value: Any) -> int:
    """A rank as a plain integer; NumPy's integers are ranks, too."""
    rank = as_index(value)
    if isinstance(value, bool) or rank < 0:
        raise TypeError
    return rank


class _Group(Struct, frozen=True):
    """The ranks that take part with this one, and how far apart they are."""

    ranks: tuple[int, ...]
    span: Span


def _groups_of(session: Session, replica_group: Any) -> list[tuple[int, ...]]:
    """All groups, that of this rank first."""
    if not isinstance(replica_group, ReplicaGroup):
        raise UseError(
            f"replica_group is of type {type(replica_group).__name__}; it must be a ReplicaGroup",
            hint="pass nki.collectives.ReplicaGroup([[0, 1]])",
        )
    together = session.together
    groups = [tuple(group) for group in replica_group.groups]
    _check_launched(session, [rank for group in groups for rank in group], "replica_group")
    own = next((group for group in groups if together.own_rank in group), None)
    if own is None:
        raise RuleError(
            f"rank {together.rank} is in no group of {replica_group.groups}",
            hint="put every rank that calls the collective in one group",
            source=f"{PAGE}.ReplicaGroup",
        )
    return [own, *(group for group in groups if group is not own)]


def _group_of(session: Session, replica_group: Any) -> _Group:
    """The group of this rank; see `_groups_of`."""
    groups = _groups_of(session, replica_group)
    at_work = tuple(rank for group in sorted(groups) if len(group) > 1 for rank in group)
    return _Group(groups[0], _topology(session).span(groups[0], at_work))


def _ring_of(session: Session, replica_group: Any) -> tuple[_Group, int]:
    """The group of this rank as a ring, and the place of the rank before it; see `_groups_of`."""
    groups = _groups_of(session, replica_group)
    pairs = [(group[place - 1], rank) for group in groups for place, rank in enumerate(group)]
    return _receiving(session, groups[0], pairs)


def _receiving(session: Session, group: tuple[int, ...], pairs: list[tuple[int, int]]) -> tuple[_Group, int]:
    """A group of which each rank receives from one, and the place of the rank that sends to this one."""
    own = session.together.rank
    sender = next(a for a, b in pairs if b == own)
    return _Group(group, _topology(session).span_of_pair(sender, own, pairs)), group.index(sender)


def _topology(session: Session) -> Topology:
    together = session.together
    return together.topology or topology_of(session.machine, together.count)


def _check_launched(session: Session, ranks: Sequence[int], name: str) -> None:
    most = max(ranks)
    count = session.together.ranks
    if most >= count:
        has = "one rank, 0" if count == 1 else f"ranks 0 to {count - 1}"
        raise RuleError(
            f"{name} names rank {most}; this launch has {has}",
            hint=f"launch more: nkilab.launch(kernel, ranks={most + 1})(...)",
            source=f"{PAGE}.ReplicaGroup",
        )


def _pairs(srcs: Any, dsts: Any, names: str = "srcs and dsts") -> list[tuple[Any, Any]]:
    """The tensors of a call, side by side."""
    if not all(isinstance(ranks, list | tuple) for ranks in (srcs, dsts)):
        raise UseError(f"{names} are lists of tensors", hint="pass srcs=[src], dsts=[dst]")
    if len(srcs) != len(dsts) or not srcs:
        raise UseError(f"{names} hold {len(srcs)} and {len(dsts)} tensors; each src has one dst")
    tensors = [t for t in (*srcs, *dsts) if isinstance(t, View)]
    if len(srcs) > 1 and any(t.layout.memory != HBM for t in tensors):
        raise RuleError(
            f"{names} hold {len(srcs)} tensors each, and one lies on chip; several go together in hbm alone",
            hint="call the collective once for each tile",
            source=PAGE,
        )
    return list(zip(srcs, dsts, strict=True))


def _one(srcs: Any, dsts: Any, called: str) -> tuple[Any, Any]:
    pairs = _pairs(srcs, dsts)
    if len(pairs) != 1:
        raise RuleError(
            f"srcs and dsts hold {len(pairs)} tensors each; {called} takes one", source=f"{PAGE}.{called}"
        )
    return pairs[0]


def _check_priority(session: Session, priority: Any) -> None:
    if priority is None:
        return
    if session.machine.generation < 4:
        raise RuleError(
            f"priority is {priority!r}; {session.machine.name} has none, NeuronCore-v4 does",
            hint="leave it out",
            source=PAGE,
        )
    if priority not in (0, 1, 2, 3):
        raise RuleError(f"priority is {priority!r}; it must be 0 to 3", source=PAGE)


def _run(
    cls: type[Instruction], operands: list[Any], attributes_by_name: dict[str, Any], group: _Group,
    name: Any, priority: Any = None, further: tuple[Any, ...] = (),
) -> None:  # fmt: skip
    """Record what one rank does in a collective; how many ranks take part and how far is added."""
    session = current()
    _check_priority(session, priority)
    attributes_by_name = {**attributes_by_name, "ranks": len(group.ranks), "span": group.span}
    try:
        attributes = tuple(
            spec.canonical(key, attributes_by_name[key]) for key, spec in cls.attributes.items()
        )
    except RuleError as error:
        raise located(error, cls.name, cls, operands) from None
    own = group.ranks.index(session.together.own_rank)
    row = record(session, cls, operands, attributes, ((own, *group.ranks), *further))
    if name is not None:
        note_name(session, name, row)


@placed("all_reduce")
def all_reduce(
    srcs: Any, dsts: Any, replica_group: Any, op: Any, priority: Any = None, name: Any = None
) -> None:
    """Reduce each src over the ranks of a group; every rank gets the result in dst."""
    group = _group_of(current(), replica_group)
    for src, dst in _pairs(srcs, dsts):
        _run(AllReduce, [src, dst], {"op": op}, group, name, priority)


@placed("all_gather")
def all_gather(
    srcs: Any, dsts: Any, replica_group: Any, collective_dim: Any, priority: Any = None, name: Any = None
) -> None:
    """Put each src of all ranks of a group side by side in dst, along an axis."""
    group = _group_of(current(), replica_group)
    for src, dst in _pairs(srcs, dsts):
        _run(AllGather, [src, dst], {"collective_dim": collective_dim}, group, name, priority)


@placed("reduce_scatter")
def reduce_scatter(
    srcs: Any, dsts: Any, replica_group: Any, collective_dim: Any, op: Any, priority: Any = None,
    name: Any = None,
) -> None:  # fmt: skip
    """Reduce each src over the ranks of a group; each gets its part of the result in dst."""
    group = _group_of(current(), replica_group)
    for src, dst in _pairs(srcs, dsts):
        attributes = {"collective_dim": collective_dim, "op": op}
        _run(ReduceScatter, [src, dst], attributes, group, name, priority)


@placed("all_to_all")
def all_to_all(
    srcs: Any, dsts: Any, replica_group: Any, collective_dim: Any, priority: Any = None, name: Any = None
) -> None:
    """Send each rank of a group its part of src; dst has the parts of all in their order."""
    group = _group_of(current(), replica_group)
    for src, dst in _pairs(srcs, dsts):
        _run(AllToAll, [src, dst], {"collective_dim": collective_dim}, group, name, priority)


@placed("all_gather_v")
def all_gather_v(
    srcs: Any, dsts: Any, replica_group: Any, metadata_tensor: Any, recv_counts_known: Any = False,
    has_rdispls: Any = False, priority: Any = None, name: Any = None,
) -> None:  # fmt: skip
    """Send as many elements of src as the metadata says to all ranks of a group."""
    session = current()
    group, (src, dst) = _group_of(session, replica_group), _one(srcs, dsts, "all_gather_v")
    _check_cores(session, "all_gather_v")
    attributes = {"recv_counts_known": recv_counts_known, "has_rdispls": has_rdispls}
    _run(AllGatherV, [src, dst, metadata_tensor], attributes, group, name, priority)


@placed("all_to_all_v")
def all_to_all_v(
    srcs: Any, dsts: Any, replica_group: Any, metadata_tensor: Any, recv_counts_known: Any = False,
    has_rdispls: Any = False, priority: Any = None, name: Any = None,
) -> None:  # fmt: skip
    """Send each rank of a group as many elements of src as the metadata says."""
    session = current()
    group, (src, dst) = _group_of(session, replica_group), _one(srcs, dsts, "all_to_all_v")
    _check_varying_group(session, group.ranks)
    attributes = {"recv_counts_known": recv_counts_known, "has_rdispls": has_rdispls}
    _run(AllToAllV, [src, dst, metadata_tensor], attributes, group, name, priority)


def _check_cores(session: Session, called: str) -> None:
    if session.together.count != 2:
        raise RuleError(
            f"{called} needs ranks of two cores each; those of this launch have {session.together.count}",
            hint="launch kernel[2]",
            source=f"{PAGE}.{called}",
        )


def _check_varying_group(session: Session, group: tuple[int, ...]) -> None:
    """Refuse groups that all_to_all_v does not serve."""
    topology = _topology(session)
    if session.machine.generation >= 4:
        _check_cores(session, "all_to_all_v")
        per = topology.ranks_per_chip
        chips = {rank // per for rank in group}
        if len(chips) < 2 or len(group) != per * len(chips):
            raise RuleError(
                f"the group {list(group)} is not all ranks of several chips, of which each has {per}",
                hint="put whole chips in the group, and send 0 elements to those that are not meant",
                source=f"{PAGE}.all_to_all_v, current restrictions",
            )
        return
    per = topology.ranks_per_node
    places, nodes = {rank % per for rank in group}, {rank // per for rank in group}
    if len(places) != 1 or len(nodes) != len(group):
        raise RuleError(
            f"the group {list(group)} does not have ranks of one place on different nodes of {per} ranks",
            hint="group ranks across nodes, or pass nkilab.launch the topology that is meant",
            source=f"{PAGE}.all_to_all_v, current restrictions",
        )


@placed("collective_permute")
def collective_permute(
    srcs: Any, dsts: Any, source_target_pairs: Any, priority: Any = None, name: Any = None
) -> None:
    """Send src to the rank that is paired with this one, and receive into dst what is sent here.

    A rank that is in no pair does nothing.
    """
    session = current()
    src, dst = _one(srcs, dsts, "collective_permute")
    pairs = _rings(source_target_pairs)
    _check_launched(session, list(pairs), "source_target_pairs")
    if session.together.rank not in pairs:
        return
    group, sender = _receiving(session, tuple(sorted(pairs)), list(pairs.items()))
    _run(CollectivePermute, [src, dst], {"is_implicit": False}, group, name, priority, (sender,))


def _rings(pairs_given: Any) -> dict[int, int]:
    """Targets by source."""
    try:
        pairs = [(as_index(a), as_index(b)) for a, b in pairs_given]
    except (TypeError, ValueError):
        raise UseError(
            f"source_target_pairs is {pairs_given!r}; it must be a list of pairs of ranks (source, target)"
        ) from None
    if not pairs or min(min(pair) for pair in pairs) < 0:
        raise UseError(f"source_target_pairs is {pairs_given!r}; ranks are whole numbers of at least 0")
    targets = dict(pairs)
    if len(targets) != len(pairs) or len(set(targets.values())) != len(pairs):
        raise UseError(f"in source_target_pairs {pairs} a rank sends twice, or receives twice")
    if set(targets) != set(targets.values()):
        raise RuleError(
            f"source_target_pairs is {pairs}; in it every rank that sends also receives",
            hint="close the pairs to rings",
            source="What is Neuron Collective Communication, Permute Operation",
        )
    return targets


def _channels(session: Session, lists: Sequence[Any], ids: Any, group: tuple[int, ...]) -> list[list[Any]]:
    """The tensors of every channel."""
    if not isinstance(ids, list | tuple) or not all(isinstance(ranks, list | tuple) for ranks in lists):
        raise UseError("channel_ids and the tensors by channel are lists; one of them is none")
    numbers = list(ids)
    if numbers != list(range(len(numbers))) or not numbers:
        raise RuleError(
            f"channel_ids is {numbers}; they must be 0, 1, ... without a gap", source=f"{PAGE}, channel_ids"
        )
    most = MOST_CHANNELS if len(group) >= _topology(session).ranks_per_node else FEWER_CHANNELS
    if len(numbers) > most:
        raise RuleError(
            f"there are {len(numbers)} channels; a group of {len(group)} ranks has at most {most}",
            hint="a group of all ranks of a node has 4",
            source=f"{PAGE}.collective_permute_implicit, channels",
        )
    for ranks in lists:
        if len(ranks) != len(numbers) or any(
            not isinstance(tensors, list | tuple) or len(tensors) != 1 for tensors in ranks
        ):
            raise UseError(
                f"there are {len(numbers)} channels; each list of tensors has one list of one tensor per "
                "channel"
            )
    return [[ranks[channel][0] for ranks in lists] for channel in numbers]


@placed("collective_permute_implicit")
def collective_permute_implicit(
    srcs_by_channel: Any, dsts_by_channel: Any, replica_group: Any, channel_ids: Any = (0,),
    priority: Any = None, name: Any = None,
) -> None:  # fmt: skip
    """Send src to the next rank of the ring that a group makes, and receive into dst from the one before."""
    session = current()
    group, sender = _ring_of(session, replica_group)
    for tensors in _channels(session, (srcs_by_channel, dsts_by_channel), channel_ids, group.ranks):
        _run(CollectivePermute, tensors, {"is_implicit": True}, group, name, priority, (sender,))


@placed("collective_permute_implicit_reduce")
def collective_permute_implicit_reduce(
    srcs0_by_channel: Any, srcs1_by_channel: Any, dsts_by_channel: Any, replica_group: Any, op: Any,
    channel_ids: Any = (0,), priority: Any = None, name: Any = None,
) -> None:  # fmt: skip
    """Send op(src0, src1) to the next rank of the ring, and receive into dst from the one before."""
    session = current()
    group, sender = _ring_of(session, replica_group)
    lists = (srcs0_by_channel, srcs1_by_channel, dsts_by_channel)
    for tensors in _channels(session, lists, channel_ids, group.ranks):
        _run(CollectivePermuteImplicitReduce, tensors, {"op": op}, group, name, priority, (sender,))


@placed("collective_permute_implicit_current_processing_rank_id")
def collective_permute_implicit_current_processing_rank_id(
    iteration_id: Any, replica_group: Any, channel_id: Any = 0, name: Any = None
) -> VirtualRegister:
    """A register with the rank whose data are here after so many steps of the ring; at first this one's."""
    session = current()
    group = _groups_of(session, replica_group)[0]
    step = (
        iteration_id.value
        if isinstance(iteration_id, VirtualRegister)
        else whole_number(iteration_id, "iteration_id")
    )
    if whole_number(channel_id, "channel_id") not in range(MOST_CHANNELS):
        raise RuleError(f"channel_id is {channel_id}; it must be 0 to {MOST_CHANNELS - 1}", source=PAGE)
    place = group.index(session.together.rank)
    return _register(session, group[(place - step) % len(group)], name)


@placed("rank_id")
def rank_id(name: Any = None) -> VirtualRegister:
    """A register with the rank that runs this program."""
    session = current()
    return _register(session, session.together.rank, name)


def _register(session: Session, value: int, name: Any) -> VirtualRegister:
    register: VirtualRegister = register_alloc()
    row = record(session, RegisterMove, [register, value], (), ())
    if name is not None:
        note_name(session, name, row)
    return register


COLLECTIVES: dict[str, Any] = {
    "ReplicaGroup": ReplicaGroup,
    **{
        function.__name__: function
        for function in (
            all_reduce, all_gather, all_gather_v, reduce_scatter, all_to_all, all_to_all_v,
            collective_permute, collective_permute_implicit, collective_permute_implicit_reduce,
            collective_permute_implicit_current_processing_rank_id, rank_id,
        )
    },
}  # fmt: skip
