"""Element-wise and reducing Einsums: clusters that share a nest of loops over tiles [partitions, columns]."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from ..language.ast import Access, Einsum, Scalar
from ..language.operators import OPERATORS
from ..lower.scan import Scans
from ..tree import nodes
from ..tree.expr import ZERO, expr
from ..tree.nodes import View
from .build import Span, point
from .choose import Choice, choose, ordered
from .chunk import chunks_of
from .context import Context, part_of, tally
from .deliver import Target, deliver, targets_of
from .fetch import fetch
from .fold import across_partitions, folded, is_folded
from .reach import leaves
from .stage import stage, staged_before
from .storage import Storage
from .turns import piece_of, rows_of
from .values import Tile, Value
from .want import Want


@dataclass
class Cluster:
    """Einsums over the same variables that run tile by tile together.

    Args:
        einsums: in order.
        kept: tensors that are read outside of it, or returned.
    """

    einsums: list[Einsum]
    kept: set[str]

    @property
    def title(self) -> str:
        """What it computes."""
        return "; ".join(e.title for e in self.einsums)


@dataclass
class Partial:
    """A reduction under way: where it lies, and whether it needs no loop, lies in place, is taken along."""

    einsum: Einsum
    into: View
    is_single: bool
    is_delivered: bool = False
    is_taken: bool = False


class Nest:
    """Lowers one cluster.

    Args:
        ctx: the plan.
        cluster: what it computes.
        outer: spans that loops around it have chosen.
    """

    def __init__(self, ctx: Context, cluster: Cluster, outer: dict[str, Span]) -> None:
        self.ctx, self.cluster, self.outer = ctx, cluster, outer
        self.spans: dict[str, Span] = {}
        for einsum in cluster.einsums:
            self.spans |= ctx.spans(einsum, outer)
        self.choice: Choice = choose(ctx, cluster.einsums, self.spans)
        self.locals: dict[str, Value] = {}
        self.staged: dict[str, Storage] = {}
        self.scans = Scans(self, [e for e in cluster.einsums if e.recurrence is not None])

    def lower(self) -> None:
        """Append the nest."""
        part, einsums = self.choice.part, self.cluster.einsums
        self.targets = {e.name: targets_of(self.ctx, e, self.outer, part) for e in self.kept}
        if is_folded(self.ctx, einsums, self.targets, self.choice, self.spans):
            self.fold()
            return
        self.staged = self.padded() | self.staged_before()
        with self.result_loops():
            for _ in self.scans.pieces():
                self.summed_up([self.begun(e) for e in einsums if e.reduced and self.is_reduced(e)])

    def summed_up(self, sums: list[Partial]) -> None:
        """Tiles of what some Einsum reduces, and what is done with their sums."""
        with self.sum_loops():
            self.tile(sums)
        for one in sums:
            self.finished(one)

    @contextmanager
    def result_loops(self) -> Iterator[None]:
        """Loops over what no Einsum reduces, in chunks of several blocks where that saves transfers."""
        einsums, choice, title = self.cluster.einsums, self.choice, self.cluster.title
        looped = [v for v in self.looped if v not in self.reduced]
        order = self.in_order(ordered(self.ctx, einsums, self.spans, choice, looped))
        loops = [self.tiled(v, "" if n else title) for n, v in enumerate(order)]
        if looped == [choice.part]:
            chunks = chunks_of(self.ctx, einsums, self.targets, choice, self.spans, self.staged)
            if chunks is not None:
                loops = [chunks.turns(self.spans, self.staged, self.targets, title)]
        with ExitStack() as stack:
            for loop in loops:
                stack.enter_context(loop)
            if not loops:
                self.ctx.build.add(nodes.Comment(title))
            yield

    @contextmanager
    def sum_loops(self) -> Iterator[None]:
        """Loops over what some Einsum reduces."""
        with ExitStack() as stack:
            for variable in self.in_order(v for v in self.looped if v in self.reduced):
                stack.enter_context(self.tiled(variable, "", is_sequential=True))
            yield

    @property
    def looped(self) -> list[str]:
        """Variables that need a loop."""
        choice = self.choice
        every = (choice.part, *choice.loops, choice.free)
        return [v for v in every if v and v != self.scans.variable and not self.is_settled(v)]

    def in_order(self, variables: Iterable[str]) -> list[str]:
        """Variables in the order of loops that is given, if one is."""
        return self.ctx.given.sorted([e.name for e in self.cluster.einsums], variables)

    def from_hbm(self) -> Iterator[Access]:
        """Operands that lie in HBM alone."""
        for access in (a for e in self.cluster.einsums for a in e.accesses):
            held = self.ctx.storages.get(access.tensor)
            if held and all(s.is_hbm for s in held):
                yield access

    def padded(self) -> dict[str, Storage]:
        """Operands that are read beyond their edges, with zeros around them."""
        return {
            str(a): stage(self.ctx, a, self.spans, self.choice.part, self.ctx.dtypes[a.tensor])
            for e in self.cluster.einsums
            for a in e.accesses
            if not a.gathers and self.ctx.storages.get(a.tensor) and leaves(self.ctx, a, self.spans)
        }

    def staged_before(self) -> dict[str, Storage]:
        """Operands that an earlier nest brought on chip as this one wants them."""
        found: dict[str, Storage] = {}
        for access in (a for a in self.from_hbm() if self.choice.part in a.variables):
            before = staged_before(self.ctx, access, self.spans, self.choice.part)
            found |= {str(access): before} if before is not None else {}
        return found

    def fold(self) -> None:
        """Columns of several blocks of partitions in one instruction: the blocks become the columns."""
        span = self.spans[self.choice.part]
        blocks = span.most // self.ctx.lanes
        self.ctx.build.add(nodes.Comment(self.cluster.title))

        def new(hint: str) -> View:
            return part_of(self.ctx.temporary(hint, self.ctx.lanes, blocks), self.ctx.lanes, blocks)

        tile = Tile(self.ctx, new, new)
        # a few elements take GpSimdE no longer than VectorE, which has the wide tiles to go through
        tile.engine = "gpsimd"
        self.locals = {}
        for einsum in self.cluster.einsums:
            operands = [self.folded_operand(o, span, blocks) for o in einsum.operands]
            value = tile.operator(einsum.map_op, operands) if einsum.map_op else operands[0]
            readers = sum(einsum.name in e.reads for e in self.cluster.einsums if e is not einsum)
            value.uses += max(readers - 1, 0) + (readers > 0 and einsum.name in self.cluster.kept)
            self.locals[einsum.name] = value
            self.ctx.build.note(einsum.name, self.spans, self.choice.part)
            if einsum.name in self.cluster.kept:
                self.settle_readers(einsum, tile)
                target = self.targets[einsum.name].tile
                assert target is not None
                view = folded(target, span, blocks)
                tile.into(value, view)
                self.locals[einsum.name] = Value(view=view)
                target.changed()

    def folded_operand(self, operand: Access | Scalar, span: Span, blocks: int) -> Value:
        """What an instruction over all blocks reads."""
        if isinstance(operand, Scalar):
            return Value(number=self.ctx.number(operand))
        if operand.tensor in self.locals:
            return self.locals[operand.tensor]
        chip = self.ctx.chip(operand.tensor)
        assert chip is not None
        return Value(view=folded(chip, span, blocks))

    @property
    def kept(self) -> list[Einsum]:
        """Einsums whose output is read elsewhere."""
        return [e for e in self.cluster.einsums if e.name in self.cluster.kept]

    @property
    def reduced(self) -> set[str]:
        """Variables that some Einsum reduces."""
        return {v for e in self.cluster.einsums for v in e.reduced}

    def is_reduced(self, einsum: Einsum) -> bool:
        """Whether an Einsum reduces anything that is no point."""
        return any(not self.spans[v].is_point or v not in self.outer for v in einsum.reduced)

    def is_settled(self, variable: str) -> bool:
        """Whether a variable needs no loop: it is a point, or its tile is chosen outside."""
        return self.choice.block(variable) == 0

    @contextmanager
    def tiled(self, variable: str, comment: str, is_sequential: bool = False) -> Iterator[None]:
        """A loop over tiles of a variable."""
        extent = self.spans[variable].most
        before = self.spans[variable]
        block = self.choice.block(variable)
        with self.ctx.build.tiles(
            variable, extent, block, comment=comment, is_sequential=is_sequential, over=variable
        ) as span:
            count = before.count if span.most == extent else span.count
            self.spans[variable] = Span(before.start + span.start, count, span.most)
            yield
        self.spans[variable] = before

    # tiles

    @property
    def rows(self) -> Span:
        return self.spans[self.choice.part] if self.choice.part else point(0)

    @property
    def columns(self) -> Span:
        return self.spans[self.choice.free] if self.choice.free else point(0)

    def new(self, hint: str) -> View:
        made = self.ctx.temporary(hint, self.rows.most, self.columns.most)
        return part_of(made, self.rows.count, self.columns.count)

    def new_column(self, hint: str) -> View:
        made = self.ctx.temporary(hint, self.rows.most, 1)
        return part_of(made, self.rows.count, 1)

    def tile(self, sums: list[Partial]) -> None:
        """The instructions of one tile."""
        tile = Tile(self.ctx, self.new, self.new_column, self.columns.most == 1)
        held = {one.einsum.name: one for one in sums}
        self.locals = {}
        body = self.ctx.build.scopes[-1].body
        for einsum in self.cluster.einsums:
            is_alone, before = self.ctx.given.has_instruction(einsum.name), len(body)
            value = self.mapped(einsum, tile)
            is_kept = einsum.name in self.cluster.kept and einsum.name not in held and not einsum.is_last
            if is_alone and not is_kept:
                tile.view(value)
            if einsum.name in held:
                self.summed(held[einsum.name], value, tile)
            else:
                self.locals[einsum.name] = value
            if is_kept:
                self.settle_readers(einsum, tile)
                self.keep(einsum, value, tile, self.sum_along(einsum, value, sums, tile))
            own = tuple(body[before:]) if is_alone else ()
            self.ctx.build.note(einsum.name, self.spans, self.choice.part, statements=own)

    def settle_readers(self, einsum: Einsum, tile: Tile) -> None:
        """Compute what reads the old elements of a tensor before they are overwritten."""
        for earlier in self.until(einsum)[:-1]:
            held = self.locals.get(earlier.name)
            if einsum.name in earlier.reads and held is not None and held.is_pending_op and held.uses == 0:
                tile.view(held)

    def sum_along(self, einsum: Einsum, value: Value, sums: list[Partial], tile: Tile) -> Partial | None:
        """The sum of a value's rows that the instruction which computes it can take along."""
        if not tile.is_summed_along(value) or self.columns.most == 1:
            return None
        for one in sums:
            other = one.einsum
            if self.ctx.given.has_instruction(other.name):
                continue
            is_plain = other.reads == (einsum.name,) and not other.map_op and other.condition is None
            if is_plain and other.reduce_op == "add" and set(other.reduced) == {self.choice.free}:
                return one
        return None

    def mapped(self, einsum: Einsum, tile: Tile) -> Value:
        """The value of the map operator of an Einsum."""
        if einsum.recurrence is not None:
            return self.scans.value(einsum, tile)
        fetched = {o: self.operand(o) for o in dict.fromkeys(einsum.operands)}
        operands = [fetched[o] for o in einsum.operands]
        if self.ctx.given.has_instruction(einsum.name):
            for pending in (o for o in operands if o.is_pending_op):
                tile.view(pending)
        value = tile.operator(einsum.map_op, operands) if einsum.map_op else operands[0]
        value.is_activation = self.ctx.given.instruction(einsum.name) == "Activation"
        if einsum.condition is not None:
            value = self.selected(einsum, value, tile)
        later = [e for e in self.cluster.einsums if e is not einsum]
        readers = sum(e.reads.count(einsum.name) for e in later)
        value.uses += max(readers - 1, 0) + (readers > 0 and einsum.name in self.cluster.kept)
        if value.op and value.view is None:
            hint = f"{einsum.name.lower()}_tile"
            value.place = lambda: (self.new_column if value.is_column else self.new)(hint)
        return value

    def operand(self, operand: Access | Scalar) -> Value:
        if isinstance(operand, Scalar):
            return Value(number=self.ctx.number(operand))
        if operand.tensor in self.locals:
            return self.locals[operand.tensor]
        staged = self.staged.get(str(operand))
        want = Want(operand, self.spans, self.choice.part, self.choice.free, staged, may_stay=True)
        if staged is None:
            want = replace(want, storage=piece_of(self.ctx, want))
        view = (rows_of(self.ctx, want) if staged is None else None) or fetch(self.ctx, want)
        is_column = not want.has(self.choice.free) and self.columns.most > 1
        return Value(view=view, is_column=is_column)

    def selected(self, einsum: Einsum, value: Value, tile: Tile) -> Value:
        """The mapped value where the condition holds, the other elsewhere."""
        condition = einsum.condition
        assert condition is not None
        whole = condition.difference
        offset, steps = expr(whole.constant), {"part": 0, "free": 0}
        for name, c in whole.terms:
            span = self.spans[name]
            offset = offset + span.start * c
            if name == self.choice.part:
                steps["part"] = c
            elif name == self.choice.free:
                steps["free"] = c
        made = self.place_of(einsum) or self.new(f"{einsum.name.lower()}_selected")
        source = value
        if value.is_column or value.number is not None:
            source = self.widened(value, tile)
        src, where = tile.in_sbuf(tile.view(source)), (offset, steps["part"], steps["free"])
        tile.add(nodes.Select(made, src, *where, condition.relation, einsum.otherwise))
        return Value(view=made)

    def place_of(self, einsum: Einsum) -> View | None:
        """Where an instruction may write an Einsum's values at once: nothing sums or reads them before."""
        target = self.targets.get(einsum.name)
        is_used = bool(einsum.reduce_op) or any(einsum.name in e.reads for e in self.until(einsum))
        if einsum.name not in self.cluster.kept or target is None or is_used or target.dtype != "float32":
            return None
        return target.direct(self.ctx, einsum, self.spans, self.choice.part, self.choice.free)

    def until(self, einsum: Einsum) -> list[Einsum]:
        """The Einsums of the cluster up to one."""
        return self.cluster.einsums[: self.cluster.einsums.index(einsum) + 1]

    def keep(self, einsum: Einsum, value: Value, tile: Tile, along: Partial | None = None) -> None:
        """Write a value where the tensor lies, with the sum of its rows if one goes along."""
        target = self.targets[einsum.name]
        wide = self.widened(value, tile) if value.is_column and self.columns.most > 1 else value
        direct = target.direct(self.ctx, einsum, self.spans, self.choice.part, self.choice.free)
        if direct is not None and wide.view in (None, direct):
            self.into(wide, direct, tile, along)
            if target.tile is not None:
                target.tile.changed()
            self._also(target, einsum, wide)
            return
        if wide.view is None and wide.number is None:
            hint = f"{einsum.name.lower()}_tile"
            made = part_of(
                self.ctx.temporary(hint, self.rows.most, self.columns.most, target.dtype),
                self.rows.count,
                self.columns.count,
            )
            self.into(wide, made, tile, along)
        view = tile.view(wide)
        deliver(self.ctx, einsum, view, self.spans, self.choice.part, self.choice.free, target)

    def into(self, value: Value, dst: View, tile: Tile, along: Partial | None) -> None:
        """Compute a value into a view, if it does not lie there."""
        if along is None:
            tile.into(value, dst)
        else:
            into = self.rows_of(along.into)
            total = into if along.is_single else self.new_column("partial")
            tile.unary(value, dst, total)
            if not along.is_single:
                self.ctx.build.add(nodes.Combine(into, into, "add", total))
            self.tally(along, into)
            along.is_taken = True
        value.view = dst

    def widened(self, value: Value, tile: Tile) -> Value:
        """A number or a column along all columns of the tile."""
        made = self.new("t")
        if value.number is not None:
            tile.fill(made, value.number)
        else:
            tile.fill(made, 0.0)
            tile.add(nodes.Scale(made, made, "add", tile.scalar(value)))
        return Value(view=made)

    def rows_of(self, view: View) -> View:
        """The rows of a sum's place that the present tile has."""
        return View(view.buffer, (nodes.Cut(ZERO, self.rows.count), *view.index[1:]))

    def _also(self, target: Target, einsum: Einsum, value: Value) -> None:
        if target.hbm is not None:
            assert value.view is not None
            choice, rest = self.choice, replace(target, tile=None)
            deliver(self.ctx, einsum, value.view, self.spans, choice.part, choice.free, rest)

    # reductions

    def begun(self, einsum: Einsum) -> Partial:
        """Make the place of a sum before the loops that it runs over."""
        choice = self.choice
        keeps_free = bool(choice.free) and choice.free not in einsum.reduced
        looped = [v for v in einsum.reduced if not self.is_settled(v)]
        trips = 1
        for v in looped:
            trips *= -(-self.spans[v].most // self.choice.block(v))
        is_single = trips == 1
        hint = f"{einsum.name.lower()}_{'sum' if einsum.reduce_op == 'add' else einsum.reduce_op[:3]}"
        over_parts = choice.part in einsum.reduced
        direct = None if over_parts else self.direct_sum(einsum)
        if direct is not None:
            if not is_single:
                self.ctx.build.add(nodes.Fill(direct, float(OPERATORS[einsum.reduce_op].identity or 0.0)))
            return Partial(einsum, direct, is_single, True)
        rows = min(self.ctx.lanes, self.spans[choice.part].most) if choice.part else 1
        columns = self.columns.most if keeps_free else 1
        made = self.ctx.temporary(hint, rows, columns)
        count = expr(rows) if over_parts else self.rows.count
        view = part_of(made, count, self.columns.count if keeps_free else 1)
        if not is_single:
            self.ctx.build.add(nodes.Fill(view, float(OPERATORS[einsum.reduce_op].identity or 0.0)))
        return Partial(einsum, view, is_single)

    def direct_sum(self, einsum: Einsum) -> View | None:
        """The place of a sum in the tile that keeps it, if that is float32 and lies right."""
        target = self.targets[einsum.name]
        if target.tile is None or target.hbm is not None or target.dtype != "float32":
            return None
        free = self.choice.free if self.choice.free not in einsum.reduced else ""
        return target.direct(self.ctx, einsum, self.spans, self.choice.part, free)

    def summed(self, one: Partial, value: Value, tile: Tile) -> None:
        """Take one tile into a sum."""
        einsum, choice = one.einsum, self.choice
        op = OPERATORS[einsum.reduce_op].alu
        over_free = choice.free in einsum.reduced and self.columns.most > 1
        if one.is_taken:
            return
        into = self.rows_of(one.into)
        is_wide = int(str(one.into.buffer.shape[-1])) > 1 or over_free
        if is_wide and value.is_scalar and self.columns.most > 1:
            value = self.widened(value, tile)
        if over_free:
            dst = into if one.is_single else self.new_column("partial")
            tile.total(value, einsum.reduce_op, dst)
            if not one.is_single:
                self.ctx.build.add(nodes.Combine(into, into, op, dst))
        elif one.is_single:
            tile.into(value, into)
        else:
            total = tile.node(einsum.reduce_op, (Value(view=into), value))
            tile.into(total, into)
        self.tally(one, into)

    def tally(self, one: Partial, into: View) -> None:
        """Note what the present tile added to a sum."""
        whole, is_across = self.ctx.spans(one.einsum, self.outer), self.choice.part in one.einsum.reduced
        self.ctx.build.add(tally(self.ctx, one.einsum, into, self.spans, whole, is_across))

    def finished(self, one: Partial) -> None:
        """Deliver a sum, after the partitions are summed too if they are among what is reduced."""
        einsum, view = one.einsum, one.into
        choice = self.choice
        part = choice.part
        if one.is_delivered:
            tile = self.targets[einsum.name].tile
            assert tile is not None
            tile.changed()
            return
        free = choice.free if choice.free not in einsum.reduced else ""
        if part in einsum.reduced:
            if self.spans[part].most > 1:
                view = across_partitions(self.ctx, view, einsum.reduce_op, einsum.name.lower())
            part = ""
        deliver(self.ctx, einsum, view, self.spans, part, free, self.targets[einsum.name])
