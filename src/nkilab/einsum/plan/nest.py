"""Element-wise and reducing Einsums: clusters that share a nest of loops over tiles [partitions, columns]."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial

from ...errors import UnsupportedError
from ..language.ast import Access, Affine, Einsum, Operand, Position, Scalar
from ..language.operators import OPERATORS
from ..lower.scan import Scans
from ..tree import nodes
from ..tree.expr import ZERO, expr
from ..tree.nodes import View
from .build import Span, point, whole
from .choose import Choice, Cluster, choose, running
from .context import Context, part_of, tally
from .deliver import Target, deliver, targets_of
from .fetch import fetch
from .fold import Partial, across_partitions, common_copies, folded, is_folded
from .reach import leaving
from .stage import stage, staged_around, staged_before
from .storage import Storage, counted, first_rows
from .values import Tile, Value
from .want import Want


class Nest:
    """Lowers one cluster.

    Args:
        outer: spans that loops around it have chosen.
        choice: how it runs; None for the cheapest.
    """

    def __init__(
        self, ctx: Context, cluster: Cluster, outer: dict[str, Span], choice: Choice | None = None
    ) -> None:
        self.ctx, self.cluster, self.outer = ctx, cluster, outer
        self.spans: dict[str, Span] = {}
        for einsum in cluster.einsums:
            self.spans |= ctx.spans(einsum, outer)
        self.choice = choice or choose(ctx, cluster.einsums, self.spans)
        self.summable = {self.choice.free} - {""}  # what instructions that compute a tile can sum over
        self.is_late, self.blocks = False, 0
        self.copies = common_copies(ctx, cluster.einsums, self.choice.part)
        self.targets: dict[str, Target] = {}
        self.locals: dict[str, Value] = {}
        self.staged: dict[str, Storage] = {}
        self.scans = Scans(self, [e for e in cluster.einsums if e.recurrence is not None])

    def lower(self) -> None:
        """Append the nest."""
        part, einsums = self.choice.part, self.cluster.einsums
        for einsum in self.kept:
            copies = self.ctx.lanes if part in einsum.reduced else self.copies
            self.targets[einsum.name] = target = targets_of(self.ctx, einsum, self.outer, part, copies)
            # what others write too has no copies
            self.copies = min(self.copies, target.tile.copies if target.tile is not None else self.copies)
        if is_folded(self.ctx, einsums, self.targets, self.choice, self.spans):
            self.fold()
            return
        self.staged = self.padded() | self.staged_before()
        self.is_late = self.is_combined_late()
        self.summed_up()

    def summed_up(self) -> None:
        """Tiles of what some Einsum reduces, and what is done with their sums."""
        sums = self.begun_sums() if self.is_late else []
        with self.result_loops():
            along = self.begun_sums() if not self.is_late and self.scans.variable in self.reduced else []
            for _ in self.scans.pieces():
                self.piece(sums or along)
            self.finish(along)
        self.finish(sums)

    def piece(self, sums: list[Partial]) -> None:
        """Tiles of one piece of the columns, with sums of its own where none run on behind it."""
        own = [] if sums else self.begun_sums()
        with self.sum_loops():
            self.tile(sums or own)
        self.finish(own)

    def is_combined_late(self) -> bool:
        """Whether what partitions have of sums is combined behind all loops: of few results, or of turns."""
        choice, reduced = self.choice, self.reduced
        if any(running(self.ctx, e, self.outer) for e in self.cluster.einsums):
            return True
        is_apart = choice.part in reduced and (not choice.free or choice.free in reduced)
        loops = [v for v in self.looped if v not in reduced]
        is_one = is_apart and len(loops) == 1 and not self.scans.variable
        return is_one and choice.block(loops[0]) == 1 and self.spans[loops[0]].most <= self.ctx.lanes

    @contextmanager
    def result_loops(self) -> Iterator[None]:
        """Loops over what no Einsum reduces."""
        title, looped = self.cluster.title, [v for v in self.looped if v not in self.reduced]
        loops = [self.tiled(v, "" if n else title) for n, v in enumerate(self.in_order(looped))]
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
            if not a.gathers and self.ctx.storages.get(a.tensor) and leaving(self.ctx, a, self.spans)
        }

    def staged_before(self) -> dict[str, Storage]:
        """Operands that an earlier nest, or turns of an outer loop, have on chip as this nest wants them."""
        found: dict[str, Storage] = {}
        for access in (a for a in self.from_hbm() if self.choice.part in a.variables):
            before = staged_before(self.ctx, access, self.spans, self.choice.part)
            before = before or staged_around(self.ctx, access, self.spans, self.choice.part)
            found |= {str(access): before} if before is not None else {}
        return found

    def fold(self) -> None:
        """Columns of several blocks of partitions in one instruction: the blocks become the columns."""
        self.ctx.build.add(nodes.Comment(self.cluster.title))
        self.blocks = self.spans[self.choice.part].most // self.ctx.lanes
        self.piece([])

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
        is_wide = any(not self.spans[v].is_point or v not in self.outer for v in einsum.reduced)
        return is_wide or bool(self.ctx.carried(einsum, self.outer))

    def is_settled(self, variable: str) -> bool:
        """Whether a variable needs no loop: it is a point, or its tile is chosen outside."""
        return self.blocks > 0 or self.choice.block(variable) == 0

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
        if self.blocks or not self.choice.part:
            return whole(self.ctx.lanes if self.blocks else self.copies)
        return self.spans[self.choice.part]

    @property
    def columns(self) -> Span:
        return self.spans[self.choice.free] if self.choice.free else whole(max(self.blocks, 1))

    def new(self, hint: str, dtype: str = "float32") -> View:
        return self.ctx.tile(hint, self.rows, self.columns, dtype)

    def new_column(self, hint: str, dtype: str = "float32") -> View:
        return self.ctx.tile(hint, self.rows, whole(1), dtype)

    def tile(self, sums: list[Partial]) -> None:
        """The instructions of one tile."""
        tile = Tile(self.ctx, self.new, self.new_column, self.columns.most == 1)
        # a few elements take GpSimdE no longer than VectorE, which has the wide tiles to go through
        tile.engine = "gpsimd" if self.blocks else ""
        held, self.locals = {one.einsum.name: one for one in sums}, {}
        body = self.ctx.build.scopes[-1].body
        for einsum in self.cluster.einsums:
            is_alone, before = bool(self.ctx.given.instruction(einsum.name)), len(body)
            value = self.mapped(einsum, tile)
            is_kept = einsum.name in self.cluster.kept and einsum.name not in held and not einsum.is_last
            if is_alone and not is_kept:
                tile.view(value)
            if einsum.name in held:
                self.summed(held[einsum.name], value, tile)
            else:
                self.locals[einsum.name] = value
            if is_kept:
                self.settle_readers(einsum, value, tile)
                self.keep(einsum, value, tile, self.sum_along(einsum, value, sums, tile))
            own = tuple(body[before:]) if is_alone else ()
            self.ctx.build.note(einsum.name, self.spans, self.choice.part, statements=own)

    def settle_readers(self, einsum: Einsum, value: Value, tile: Tile) -> None:
        """Compute what reads the old elements of a tensor before its new value overwrites them."""
        home, later = self.targets[einsum.name].tile, self.cluster.einsums[len(self.until(einsum)) :]
        # what nothing but this value is computed of may go into its instructions
        own = {id(v) for v in value.inside()} - {id(self.locals.get(t)) for e in later for t in e.reads}
        others = [other for other in self.locals.values() if other is not value and id(other) not in own]
        fused = {id(v) for other in others for v in other.inside()}
        for other in (o for o in others if o.is_pending_op and id(o) not in fused):
            if any(home and v.view and v.view.buffer is home.buffer for v in other.inside(is_pending=True)):
                tile.view(other)
        for name in {t for e in later for t in e.reads} & self.locals.keys():
            copied = self.locals[name]
            if home and copied is not value and copied.view and copied.view.buffer is home.buffer:
                made = (self.new_column if copied.is_column else self.new)(f"{name.lower()}_tile")
                tile.into(copied, made)
                copied.view = made

    def sum_along(self, einsum: Einsum, value: Value, sums: list[Partial], tile: Tile) -> Partial | None:
        """The sum of a value's rows that the instruction which computes it can take along."""
        if not tile.is_summed_along(value) or self.columns.most == 1:
            return None
        for one in sums:
            other = one.einsum
            if self.ctx.given.instruction(other.name):
                continue
            is_plain = other.reads == (einsum.name,) and not other.map_op and other.condition is None
            own = {*other.reduced} - {self.choice.part}
            if is_plain and other.reduce_op == "add" and own == self.summable:
                return one
        return None

    def mapped(self, einsum: Einsum, tile: Tile) -> Value:
        """The value of the map operator of an Einsum."""
        if einsum.recurrence is not None:
            return self.scans.value(einsum, tile)
        fetched = {o: self.operand(o) for o in dict.fromkeys(einsum.operands)}
        operands = [fetched[o] for o in einsum.operands]
        if self.ctx.given.instruction(einsum.name):
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

    def operand(self, operand: Operand) -> Value:
        """An operand as a tile, a column, or a number."""
        if isinstance(operand, Position):
            return self.position(operand.index)
        if isinstance(operand, Scalar):
            return Value(number=self.ctx.number(operand))
        if operand.tensor in self.locals:
            return self.locals[operand.tensor]
        return self.fetched(operand)

    def position(self, index: Affine) -> Value:
        """The values of an index over the tile, which stay as long as loops do not change them."""
        where = counted(index, self.spans, self.choice.part, self.choice.free)
        along = bool(where[2])
        tile = self.ctx.positions(where, (self.rows.most, self.columns.most if along else 1))
        view = part_of(tile, self.rows.count, self.columns.count if along else 1)
        return Value(view=view, is_column=not along and self.columns.most > 1)

    def fetched(self, operand: Access) -> Value:
        """An operand that no Einsum of the cluster computes."""
        chip, part = self.ctx.chip(operand.tensor), self.choice.part
        if self.blocks and chip is not None and part in operand.variables:
            return Value(view=folded(chip, self.spans[part], self.blocks))
        staged = self.staged.get(str(operand))
        spans = {**self.spans, part: self.rows} if self.blocks else self.spans
        want = Want(operand, spans, part, self.choice.free, staged, True, self.copies)
        view = fetch(self.ctx, want)
        is_column = not want.has(self.choice.free) and self.columns.most > 1
        if is_column and "int" in view.buffer.dtype:  # numbers of partitions are float32
            self.ctx.build.add(nodes.Copy(column := self.new_column("numbers"), view))
            view = column
        return Value(view=view, is_column=is_column)

    def selected(self, einsum: Einsum, value: Value, tile: Tile) -> Value:
        """The mapped value where the condition holds, the other elsewhere."""
        condition = einsum.condition
        assert condition is not None
        where = counted(condition.difference, self.spans, self.choice.part, self.choice.free)
        source = tile.widened(value) if value.is_scalar else value
        src = tile.in_sbuf(tile.view(source))
        # of comparisons one after the other all leave their values where the first operand lies
        own = src if einsum.name in self.ctx.overwritten and einsum.name not in self.cluster.kept else None
        made = self.place_of(einsum) or own or self.new(f"{einsum.name.lower()}_selected")
        tile.add(nodes.Select(made, src, *where, condition.relation, einsum.otherwise))
        return Value(view=made)

    def place_of(self, einsum: Einsum) -> View | None:
        """Where an instruction may write an Einsum's values at once: nothing sums or reads them before."""
        target = self.targets.get(einsum.name)
        is_used = bool(einsum.reduce_op) or any(einsum.name in e.reads for e in self.until(einsum))
        if einsum.name not in self.cluster.kept or target is None or is_used or target.dtype != "float32":
            return None
        return target.direct(self.ctx, einsum, self.spans, self.choice.part)

    def until(self, einsum: Einsum) -> list[Einsum]:
        """The Einsums of the cluster up to one."""
        return self.cluster.einsums[: self.cluster.einsums.index(einsum) + 1]

    def keep(self, einsum: Einsum, value: Value, tile: Tile, along: Partial | None = None) -> None:
        """Write a value where the tensor lies, with the sum of its rows if one goes along."""
        target = self.targets[einsum.name]
        wide = tile.widened(value) if value.is_column and self.columns.most > 1 else value
        direct = target.direct(self.ctx, einsum, self.spans, self.choice.part)
        if self.blocks and target.tile is not None:
            direct = folded(target.tile, self.spans[self.choice.part], self.blocks, is_written=True)
        if direct is not None and (self.blocks or wide.view in (None, direct)):
            self.into(wide, direct, tile, along)
            if target.tile is not None:
                target.tile.changed()
            if target.hbm is not None:
                target, part, free = replace(target, tile=None), self.choice.part, self.choice.free
                deliver(self.ctx, einsum, direct, self.spans, part, free, target)
            return
        if wide.view is None and wide.number is None:
            hint = f"{einsum.name.lower()}_tile"
            self.into(wide, self.ctx.tile(hint, self.rows, self.columns, target.dtype), tile, along)
        view = tile.view(wide)
        deliver(self.ctx, einsum, view, self.spans, self.choice.part, self.choice.free, target)

    def into(self, value: Value, dst: View, tile: Tile, along: Partial | None) -> None:
        """Compute a value into a view, if it does not lie there."""
        if along is None:
            tile.into(value, dst)
        else:
            into = self.rows_of(along.into, along.einsum)
            total = into if along.is_single else self.new_column("partial")
            tile.unary(value, dst, total)
            if not along.is_single:
                self.ctx.build.add(nodes.Combine(into, into, "add", total))
            self.tally(along, into)
            along.is_taken = True
        value.view = dst

    def rows_of(self, view: View, einsum: Einsum) -> View:
        """The part of a sum's place that the present tile has."""
        if not self.is_late:
            return first_rows(view, self.rows.count)
        own = [self.spans[v] for v in self.kept_by(einsum)] or [point(0)]
        index: list[nodes.At | nodes.Cut] = [nodes.Cut(ZERO, self.rows.count)]
        index += [nodes.At(s.start) for s in own[:-1]]
        return View(view.buffer, (*index, nodes.Cut(own[-1].start, own[-1].count)))

    def kept_by(self, einsum: Einsum) -> list[str]:
        """Variables along the columns of a sum's place that has all of it, those of loops first."""
        return [v for v in (*self.choice.loops, self.choice.free) if v in einsum.output.variables]

    # reductions

    def begun_sums(self) -> list[Partial]:
        """The places of all sums, before the loops that they run over."""
        return [self.begun(e) for e in self.cluster.einsums if e.reduced and self.is_reduced(e)]

    def begun(self, einsum: Einsum) -> Partial:
        """Make the place of a sum before the loops that it runs over."""
        looped = [v for v in einsum.reduced if not self.is_settled(v)]
        is_single = all(self.spans[v].most <= self.choice.block(v) for v in looped)
        is_single &= not (self.is_late or running(self.ctx, einsum, self.outer))
        direct = None if self.is_late else self.direct_sum(einsum)
        if self.ctx.carried(einsum, self.outer):
            if direct is None:
                raise einsum.located(UnsupportedError(f"{einsum.name} has no place that takes up its sum"))
            return Partial(einsum, direct, False, True)
        hint = f"{einsum.name.lower()}_{'sum' if einsum.reduce_op == 'add' else einsum.reduce_op[:3]}"
        with self.ctx.outside(einsum.name if running(self.ctx, einsum, self.outer) else "", self.outer):
            into = direct if direct is not None else self.new_sum(einsum, hint)
            if not is_single:
                self.ctx.build.add(nodes.Fill(into, float(OPERATORS[einsum.reduce_op].identity or 0.0)))
        return Partial(einsum, into, is_single, direct is not None)

    def new_sum(self, einsum: Einsum, hint: str) -> View:
        """A place of its own for a sum."""
        rows = min(self.ctx.lanes, self.rows.most)
        if self.is_late:
            extents = [self.spans[v].most for v in self.kept_by(einsum)] or [1]
            return nodes.all_of(self.ctx.build.buffer(hint, (rows, *extents), "float32", nodes.SBUF))
        columns = point(0) if self.choice.free in (*einsum.reduced, "") else self.spans[self.choice.free]
        count = expr(rows) if self.choice.part in einsum.reduced else self.rows.count
        return part_of(self.ctx.temporary(hint, rows, columns.most), count, columns.count)

    def direct_sum(self, einsum: Einsum) -> View | None:
        """The place of a sum in the tile that keeps it, if that is float32 and lies right."""
        target = self.targets[einsum.name]
        is_kept_alone = target.tile is not None and target.hbm is None and target.dtype == "float32"
        return self.place_in(target, einsum) if is_kept_alone else None

    def place_in(self, target: Target, einsum: Einsum) -> View | None:
        """Where the tile that keeps a sum has its present part, if it lies as the nest has it."""
        part = self.choice.part
        return None if part in einsum.reduced else target.direct(self.ctx, einsum, self.spans, part)

    def summed(self, one: Partial, value: Value, tile: Tile) -> None:
        """Take one tile into a sum."""
        einsum, choice = one.einsum, self.choice
        op = OPERATORS[einsum.reduce_op].alu
        over_free = (choice.free in einsum.reduced or self.blocks > 0) and self.columns.most > 1
        if one.is_taken:
            return
        into = self.rows_of(one.into, einsum)
        is_wide = int(str(one.into.buffer.shape[-1])) > 1 or over_free
        if is_wide and value.is_scalar and self.columns.most > 1:
            value = tile.widened(value)
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
        own = one.einsum
        over = {*running(self.ctx, own, self.outer), *self.ctx.carried(own, self.outer)}
        outer = {v: span for v, span in self.outer.items() if v not in over}
        whole, is_across = self.ctx.spans(one.einsum, outer), self.choice.part in one.einsum.reduced
        self.ctx.build.add(tally(self.ctx, one.einsum, into, self.spans, whole, is_across))

    def finish(self, sums: list[Partial]) -> None:
        """Deliver sums, those that lie in place already apart, or leave it to the end of loops around."""
        for one in sums:
            tile = self.targets[one.einsum.name].tile
            if one.is_delivered and tile is not None:
                tile.changed()
            elif running(self.ctx, one.einsum, self.outer):
                self.ctx.ended.append(partial(self.combined, one, {}))
            elif self.is_late:
                self.combined(one, self.outer)
            else:
                self.finished(one, self.choice.free)

    def combined(self, one: Partial, outer: dict[str, Span]) -> None:
        """Deliver a sum of which one place has all, as many columns at once as go through a bank."""
        self.spans, kept = self.ctx.spans(one.einsum, outer), self.kept_by(one.einsum)
        with ExitStack() as stack:
            for v in kept:
                block, extent = self.ctx.bank if v == kept[-1] else 1, self.spans[v].most
                self.spans[v] = stack.enter_context(self.ctx.build.tiles(v, extent, block, over=v))
            view = self.rows_of(one.into, one.einsum)
            rows = expr(one.into.buffer.shape[0])
            self.finished(replace(one, into=first_rows(view, rows)), kept[-1] if kept else "")

    def finished(self, one: Partial, free: str) -> None:
        """Deliver a sum, after the partitions are summed too if they are among what is reduced."""
        einsum, view, part = one.einsum, one.into, self.choice.part
        free = free if free not in einsum.reduced else ""
        if part in einsum.reduced:
            if self.spans[part].most > 1:
                tile = self.targets[einsum.name].tile
                copies = tile.copies if tile is not None else 1
                view = across_partitions(self.ctx, view, einsum.reduce_op, einsum.name.lower(), copies)
            part = ""
        deliver(self.ctx, einsum, view, self.spans, part, free, self.targets[einsum.name])
