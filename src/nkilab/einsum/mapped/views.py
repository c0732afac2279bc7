"""Views of a mapped kernel: which elements of a tensor a statement covers, in its loops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from ...errors import UnsupportedError
from ..language.ast import Einsum
from ..language.spec import Placement, Spec
from ..tree.expr import ZERO, Expr, Whole, expr, name_of
from ..tree.nodes import HBM, At, Buffer, Cut, View
from ..written.ranks import Digit, Ranks, merged, whole_rank
from .decide import Plan


@dataclass
class Place:
    """A tensor of the kernel: its buffer and what lies along its axes."""

    buffer: Buffer  # in the kernel
    parts: list[Digit]  # digits on the partitions; in HBM none
    axes: list[Digit]  # digits along the other axes, one each


@dataclass
class Views:
    """What statements see of tensors."""

    spec: Spec  # the specification
    ranks: Ranks  # of it
    einsums: Mapping[str, Einsum]  # by name
    places: dict[str, Place] = field(default_factory=dict)  # of tensors
    variables: dict[str, str] = field(default_factory=dict)  # of the loops that are open, by group
    # of ranks whose last part is shorter, what the open loops leave
    counts: dict[str, Expr] = field(default_factory=dict)

    def covered(self, einsum: str, ranks: Iterable[str]) -> Expr:
        """How many values of ranks a statement covers: fewer in the last turn over a rank with an edge."""
        total, edges = expr(1), []
        for rank in ranks:
            base = self.ranks.edge_of(einsum, rank)
            if not base:
                total = total * self.ranks.size(einsum, rank)
            elif base not in edges:
                edges.append(base)
                total = total * self.counts.get(base, self.ranks.size("", base))
        return total

    def row(self, plan: Plan, tensor: str, einsum: str, held: Place) -> View:
        """What a broadcast covers of an HBM tensor by loops and counts: one axis, or trailing axes as one."""
        name, axes, buffer = plan.name, self.axes_seen(tensor, einsum), held.buffer
        if self.is_cut_across(axes, name):
            axes = merged(axes)
            buffer = _reshaped(buffer, tuple(a.extent for a in axes))
        index = [self.along(a, plan, self.spec.loop_order[name]) for a in axes] or [Cut(ZERO, expr(1))]
        if sum(isinstance(i, Cut) for i in index) == 1 and not self.is_cut_across(axes, name):
            return View(buffer, tuple(index))
        first = next((n for n, i in enumerate(index) if isinstance(i, Cut)), len(index) - 1)
        tail = [i if isinstance(i, Cut) else Cut(i.at, expr(1)) for i in index[first:]]
        inner = [expr(a.extent) for a in axes[first + 1 :]]
        is_whole = all(c == Cut(ZERO, e) or e.value == 1 for c, e in zip(tail[1:], inner))
        if not is_whole or tail[0].step != 1 or self.is_cut_across(axes, name):
            raise UnsupportedError(f"{name} spreads a part of {tensor} that is no row of it")
        if not inner:
            return View(buffer, (*index[:first], tail[0]))
        size, last = prod(inner, start=expr(1)), axes[-1]

        def whole(count: Expr) -> Expr:
            return expr(whole_rank(Digit(last.base, last.stride, count)).extent)

        flat = _reshaped(buffer, (*buffer.shape[:first], whole(expr(buffer.shape[first]) * size)))
        return View(flat, (*index[:first], Cut(tail[0].start * size, whole(tail[0].count * size))))

    def is_cut_across(self, axes: Sequence[Digit], einsum: str) -> bool:
        """Whether a part of a rank, as an Einsum has it, lies on several axes of a tensor."""
        own = self.ranks.digits(einsum, self.spec.loop_order[einsum])
        ends = ((d, a.stride) for d in own for a in axes if a.base == d.base)
        return any(d.stride < end and d.spans(end) for d, end in ends)

    def in_order(self, tensor: str, chip: str, plan: Plan) -> View:
        """The part of an HBM tensor that a transfer covers, its axes in the order of the tile `chip`."""
        name, view = plan.name, self.view(tensor, plan)
        tile = self.ranks.placement(chip, name)
        cuts = [a for a, i in zip(self.axes_seen(tensor, name), view.index) if isinstance(i, Cut)]
        is_plain = self.ranks.placement(tensor, name).is_plain
        wanted: list[Digit] = []
        for rank in (*tile.outer, *tile.inner):
            own = self.ranks.digit(name, rank)
            # an axis that is not split in HBM is cut where a part of it is covered
            alike = is_plain or self.ranks.edge_of(name, rank)
            wanted += [c for c in cuts if c not in wanted and (c == own or (alike and c.base == own.base))]
        if len(wanted) != len(cuts):
            raise UnsupportedError(f"{tensor} and {chip} are not cut into the same digits in {name}")
        order = tuple(cuts.index(d) for d in wanted)
        return view if order == tuple(range(len(order))) else replace(view, order=order)

    def view(self, tensor: str, plan: Plan) -> View:
        """A tensor as the statement of an Einsum sees it, in its loops."""
        held = self.places[tensor]
        placed = self.ranks.placement(tensor, plan.name)
        names = [*placed.unbound, *placed.ranks]
        index: list[At | Cut] = []
        if held.buffer.memory != HBM:
            index.append(Cut(ZERO, self.rows_of(placed, held)))
        index += [self.along(axis, plan, names) for axis in self.axes_seen(tensor, plan.name)]
        if not held.axes:
            index.append(Cut(ZERO, expr(1)))
        elif held.buffer.memory != HBM and not any(isinstance(i, Cut) for i in index[1:]):
            last = index[-1]
            assert isinstance(last, At)
            index[-1] = Cut(last.at, expr(1))
        return View(held.buffer, tuple(index))

    def axes_seen(self, tensor: str, einsum: str) -> list[Digit]:
        """The axes of a tensor by the names that ranks have in an Einsum, which may index it by others."""
        held, placed = self.places[tensor], self.ranks.placement(tensor, einsum)
        if held.buffer.memory != HBM or not placed.is_plain:
            return held.axes
        one = self.einsums[einsum]
        access = next(a for a in one.every_access if a.tensor == tensor)
        return [replace(d, base=i.plain.upper()) for d, i in zip(held.axes, access.indices, strict=True)]

    def rows_of(self, placed: Placement, held: Place) -> Expr:
        """Partitions that a statement covers."""
        if not any(self.ranks.edge_of(placed.einsum, r) for r in placed.outer):
            return expr(held.buffer.shape[0])
        return self.covered(placed.einsum, placed.outer)

    def along(self, axis: Digit, plan: Plan, names: Iterable[str]) -> At | Cut:
        """The positions along one axis: what loops chose, and what the statement covers."""
        einsum, start, count, step = plan.name, ZERO, None, 1
        for rank in names:
            own = self.ranks.digit(einsum, rank)
            is_inside = own.base == axis.base and own.stride >= axis.stride and axis.spans(own.stride)
            if own.is_unit or not is_inside:
                continue
            group = self.ranks.group(einsum, rank)
            factor = own.stride // axis.stride
            if rank in plan.consumed and self.ranks.edge_of(einsum, rank):
                # the covered parts are the inner ones, side by side
                count, step = self.covered(einsum, [rank]), 1
            elif rank in plan.consumed:
                count = self.ranks.size(einsum, rank) * (count if count is not None else 1)
                step = min(step, factor) if count is not None else factor
            elif group is not None and group.variable in self.variables:
                start = start + name_of(self.variables[group.variable]) * factor
        if count is None:
            return At(start)
        return Cut(start, expr(whole_rank(Digit(axis.base, axis.stride, count)).extent), step)


def _reshaped(buffer: Buffer, shape: tuple[Whole, ...]) -> Buffer:
    """A tensor in HBM with other axes over the same elements."""
    text = ", ".join(str(expr(e)) for e in shape) + "," * (len(shape) == 1)
    return replace(buffer, name=f"{buffer.name}.reshape(({text}))", shape=shape)
