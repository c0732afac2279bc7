"""Which Einsums share loops: groups over common variables, and within them clusters that run tile by tile."""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence
from dataclasses import dataclass, replace
from math import prod

from ..language.ast import Access, Affine, Cascade, Einsum, Iterate, Step

# steps of which an order is sought; times as large as what is shared a tensor is that comes in other loops
MOST_ORDERED, MUCH_LARGER = 100, 100


@dataclass(frozen=True)
class Group:
    """Consecutive steps that share loops."""

    steps: tuple[Step, ...]  # in order
    # variables that every Einsum keeps, on the same axes of what they hand on, or sums over at the end
    shared: tuple[str, ...]

    @property
    def einsums(self) -> list[Einsum]:
        """All Einsums of its steps."""
        return einsums_of(self.steps)

    def totals(self, variables: Collection[str]) -> list[Einsum]:
        """Einsums that sum over loops over some of its variables."""
        return [e for e in self.einsums if not {*variables} <= {*e.output.variables}]


def einsums_of(steps: Sequence[Step]) -> list[Einsum]:
    """All Einsums, those of blocks too."""
    return [e for s in steps for e in s.body]


def _touched(steps: Sequence[Step]) -> set[str]:
    """Tensors that steps write or read."""
    return {t for e in einsums_of(steps) for t in (e.name, *e.reads)}


def groups_of(
    cascade: Cascade, is_fused: bool = True, alone: Container[str] = (), *, is_parted: bool = False
) -> list[Group]:
    """The steps of a cascade, as long as neighbours share a variable in one group; or each alone.

    Args:
        alone: tensors whose Einsums share none.
        is_parted: whether a step that shares no tensor of about its size begins a group.
    """
    if not is_fused:
        return [Group((s,), shared_by([s], cascade)) for s in cascade.steps]
    groups: list[Group] = []
    held: list[Step] = []
    shared: tuple[str, ...] = ()
    for number, step in enumerate(cascade.steps):
        together = shared_by([*held, step], cascade)
        is_plain = all(isinstance(s, Einsum) for s in (*held, step))
        is_alone = is_parted and is_plain and not _belongs(step, held, cascade)
        is_alone |= any(e.name in alone for e in einsums_of([*held[-1:], step]))
        # loops around two blocks would have turns of the second wait for all of the first
        is_alone |= sum(isinstance(s, Iterate) for s in (*held, step)) > 1
        if held and together and not is_alone and _is_useful(held, step, cascade.steps[number + 1 :]):
            held.append(step)
            shared = together
            continue
        if held:
            groups.append(Group(tuple(held), shared))
        held, shared = [step], shared_by([step], cascade)
    groups.append(Group(tuple(held), shared))
    return _joined(groups, cascade, alone)


def _joined(groups: Sequence[Group], cascade: Cascade, alone: Container[str]) -> list[Group]:
    """Groups of which one reads what the one before it writes, in the loops that either has, as one."""
    joined: list[Group] = []
    for group in groups:
        while joined and (together := _as_one(joined[-1], group, cascade, alone)):
            group = together
            joined.pop()
        joined.append(group)
    return joined


def _as_one(first: Group, second: Group, cascade: Cascade, alone: Container[str]) -> Group | None:
    steps, written = (*first.steps, *second.steps), {e.name for e in first.einsums}
    if not written & {t for e in second.einsums for t in e.reads} or any(
        e.name in alone or isinstance(s, Iterate) for s in steps for e in s.body
    ):
        return None
    shared = shared_by(steps, cascade)
    larger = max((first, second), key=lambda group: max(_points(s, cascade) for s in group.steps))
    return Group(steps, shared) if shared and set(shared) == set(larger.shared) else None


def ordered_steps(cascade: Cascade) -> Cascade:
    """A cascade whose steps come where they share loops with others, those of least work first.

    In `P[n, k] = X . C; S[k] = C . C; E[n, k] = P - S` the sum S keeps P and E from sharing a loop over n;
    in `R[n] = X[n, k]; T[] = R[n]; C[k] = X[n, k]` the total T stands between two sums of one matrix.
    """
    left, runs = list(cascade.steps), list[list[Step]]()
    if len(left) > MOST_ORDERED:
        return cascade
    while left:
        run = [min(_ready(left), key=lambda step: _points(step, cascade))]
        left.remove(run[0])
        while (more := next((s for s in _ready(left) if _belongs(s, run, cascade)), None)) is not None:
            left.remove(more)
            run.append(more)
        runs.append(run)
    for run in [r for r in runs[::-1] if len(r) == 1]:
        place = next(n for n, r in enumerate(runs) if r is run)
        names = {e.name for e in run[0].body}
        uses = (n for n, r in enumerate(runs) if n > place and names & _touched(r))
        runs.insert(next(uses, place + 1), runs[place])
        del runs[place]
    return replace(cascade, steps=tuple(s for run in runs for s in run))


def _ready(steps: Sequence[Step]) -> list[Step]:
    """Steps that none before them has to come first of."""
    ready, written, read = [], set[str](), set[str]()
    for step in steps:
        mine, needed = {e.name for e in step.body}, {t for e in step.body for t in e.reads}
        if not (written & (mine | needed) or read & mine):
            ready.append(step)
        written |= mine
        read |= needed
    return ready


def _points(step: Step, cascade: Cascade) -> int:
    return max(prod(cascade.extent(v, e) for v in e.variables) for e in step.body)


def _belongs(step: Step, run: Sequence[Step], cascade: Cascade) -> bool:
    """Whether a step shares loops with others, and with them a tensor of about the size of its own."""
    if any(isinstance(s, Iterate) for s in (step, *run)) or not shared_by([*run, step], cascade):
        return not run
    known = _touched(run)
    sizes = {t: prod(cascade.shape(t)) for e in step.body for t in (e.name, *e.reads)}
    common = max((sizes[t] for e in step.body for t in e.reads if t in known), default=0)
    return common * MUCH_LARGER >= max(sizes.values())


def _is_useful(held: Sequence[Step], step: Step, behind: Sequence[Step]) -> bool:
    """Whether a step, or what it leads to element by element, reads what steps before it wrote or read."""
    mine, theirs = {t for e in step.body for t in e.reads}, einsums_of(held)
    known = _touched(held)
    if not mine or not any(e.reads for e in theirs) or mine & known:
        return True
    own: set[str] = set()
    for einsum in einsums_of([step, *behind]):
        if einsum.reduced or set(einsum.variables) != set(theirs[-1].output.variables):
            return False
        is_own = einsum in step.body or bool(own & set(einsum.reads))
        if is_own and known & set(einsum.reads):
            return True
        own |= {einsum.name} if is_own else set()
    return False


def shared_by(steps: Sequence[Step], cascade: Cascade) -> tuple[str, ...]:
    """Variables over which all Einsums of some steps may run in one loop, in the order of the last output."""
    einsums = einsums_of(steps)
    turning = {s.variable for s in steps if isinstance(s, Iterate)}
    turning |= {v for e in einsums for v in e.along}
    read: dict[str, list[Access]] = {}
    for access in (a for e in einsums for a in e.accesses):
        read.setdefault(access.tensor, []).append(access)
    written: dict[str, list[Einsum]] = {}
    for einsum in einsums:
        written.setdefault(einsum.name, []).append(einsum)
    gathered = (g.access.tensor for accesses in read.values() for a in accesses for g in a.gathers)
    if any(tensor in written for tensor in gathered):
        return ()
    plain = [s for s in steps if isinstance(s, Einsum) and s.name not in read]
    ends = {id(e) for e in plain if _is_total(e, written[e.name])}
    kept = [
        v for v in dict.fromkeys(v for e in reversed(einsums) for v in e.output.variables if v not in turning)
        if all(
            (id(e) in ends and v in e.reduced) or _is_kept(e, v, written[e.name], read.get(e.name, []))
            for e in einsums
        )
    ]  # fmt: skip
    return tuple(v for v in kept if len({cascade.extent(v, e) for e in einsums}) == 1)


def _is_total(einsum: Einsum, writers: Sequence[Einsum]) -> bool:
    """Whether turns of a loop may each add their part to a sum that TensorE has no more to do with."""
    is_plain = len(writers) == 1 and einsum.recurrence is None and not einsum.is_contraction
    indices = [i for a in einsum.every_access for i in a.indices]
    return is_plain and bool(einsum.reduced) and all(i.plain or not i.variables for i in indices)


def _is_kept(einsum: Einsum, variable: str, writers: Sequence[Einsum], reads: Sequence[Access]) -> bool:
    """Whether a variable stands alone in the output, and on the same axis wherever the result is read."""
    axes = [a for a, i in enumerate(einsum.output.indices) if variable in i.variables]
    if len(axes) != 1 or einsum.output.indices[axes[0]].plain != variable:
        return False
    is_same = all(_axes(access, variable) == axes for access in reads)
    return is_same and all(o.output.indices[axes[0]].plain == variable for o in writers)


def _axes(access: Access, variable: str) -> list[int]:
    indices = access.indices
    if any(variable in i.variables and i.plain != variable for i in indices):
        return []
    return [a for a, i in enumerate(indices) if i.plain == variable]


def batches(products: Sequence[Einsum], candidates: Sequence[str]) -> list[str]:
    """Shared variables that both operands of every product have: a product for each of their values."""
    pairs = [e for e in products if len(set(map(str, e.accesses))) > 1]
    return [v for v in candidates if pairs and all(v in a.variables for e in pairs for a in e.accesses)]


def lane_of(einsum: Einsum, cascade: Cascade) -> str | None:
    """The variable of a result that scans in turns have on the partitions; None if none reads it."""
    for scan in (e for b in cascade.blocks for e in b.body if e.recurrence and not e.is_choice):
        lanes = {v: cascade.extent(v, scan) for v in scan.output.variables if v not in scan.along}
        for access in (a for a in scan.every_access if a.tensor == einsum.name):
            axis = access.axis_of(max(lanes, key=lambda v: lanes[v], default=""))
            return einsum.output.indices[axis].plain if axis is not None else ""
    return None


def is_beside(one: Einsum, other: Einsum) -> bool:
    """Whether two Einsums write other elements of a tensor: indices differ in constants alone."""
    pairs = [*zip(one.output.indices, other.output.indices, strict=True)]
    is_alike = all(isinstance(a, Affine) and isinstance(b, Affine) and a.terms == b.terms for a, b in pairs)
    is_whole = not (one.reduced or other.reduced or one.condition or other.condition)
    return is_alike and is_whole and any(a != b for a, b in pairs)


def joins(cluster: Sequence[Einsum], einsum: Einsum, turn: str = "") -> bool:
    """Whether an Einsum may run in the nest of a cluster, tile by tile.

    Args:
        turn: the variable whose turns all of them belong to; "" for none.
    """
    if set(cluster[0].variables) - {turn} != set(einsum.variables) - {turn}:
        return False
    along = {(e.recurrence.variable, e.recurrence.is_descending) for e in (*cluster, einsum) if e.recurrence}
    if len(along) > 1:
        return False
    made = {e.name: e for e in cluster}
    reduced = {id(e): set(e.reduced) - {turn} for e in (*cluster, einsum)}
    before = [a for e in cluster for a in e.accesses if a.tensor == einsum.name]
    # what is read before it is overwritten is read element by element
    if any([*map(str, a.indices)] != [*map(str, einsum.output.indices)] for a in before):
        return False
    if einsum.name in made and not (is_beside(made[einsum.name], einsum) and not before):
        return False
    if before and reduced[id(einsum)]:
        return False
    for access in einsum.accesses:
        writer = made.get(access.tensor)
        if writer is not None and (
            reduced[id(writer)]
            or writer.is_last
            or [*map(str, writer.output.indices)] != [*map(str, access.indices)]
        ):
            return False
        if any(g.access.tensor in made for g in access.gathers):
            return False
    reducing = [e for e in cluster if reduced[id(e)]]
    return not (reduced[id(einsum)] and reducing and reduced[id(reducing[0])] != reduced[id(einsum)])


def turning_of(loops: Sequence[tuple[str, int, int]]) -> list[str]:
    """Variables of the loops, given with extent and block, that turn more than once."""
    return [v for v, extent, block in loops if extent > block]


def state_of(block: Iterate) -> set[str]:
    """Tensors that a later turn reads before it writes them."""
    found, seen = set(), set()
    for einsum in block.body:
        found |= {t for t in einsum.reads if t not in seen}
        seen.add(einsum.name)
    return found
