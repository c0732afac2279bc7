"""From a mapped specification to the loop tree: loops and places as given, better where nothing forbids it.

What is changed against the published generator, and told: transfers take what lies side by side in one
piece; Einsums on which a loop has no influence move out of it; sums are kept in float32 and begun
explicitly; a broadcast is a transfer that reads a row again and again; element-wise Einsums that only each
other read become one instruction.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod

from ...errors import UnsupportedError
from ...machine import Machine
from ..language.ast import Access, Operand, Scalar
from ..language.operators import OPERATORS
from ..language.spec import Spec
from ..plan.build import Builder, Scope
from ..plan.context import Context, part_of
from ..plan.values import Tile, Value
from ..tree import nodes
from ..tree.expr import ZERO, Expr, Whole, at_most, expr, name_of
from ..tree.nodes import HBM, PSUM, SBUF, Alloc, Argument, Buffer, Cut, Kernel, Loop, Summed, Tally, View
from ..written.ranks import Group, Ranks, merged
from .complete import is_entry
from .decide import Decisions, Plan
from .views import Place, Views

ELEMENTWISE = ("SimpleTensorScalar", "SimpleTensorTensor", "Activation")


def build(spec: Spec, machine: Machine, name: str, title: str) -> tuple[Kernel, list[str]]:
    """The loop tree of a mapped specification, and what was changed against the published rules.

    Raises:
        UnsupportedError: if it has an instruction, or a combination, that is not served.
    """
    return _Build(spec, machine, name, title).kernel()


class _Build:
    def __init__(self, spec: Spec, machine: Machine, name: str, title: str) -> None:
        self.spec, self.machine, self.name, self.title = spec, machine, name, title
        self.ranks = Ranks(spec)
        cascade = spec.cascade
        self.parameters = tuple(r for r in self.ranks.declared if r not in cascade.sizes)
        build = Builder({*cascade.inputs, *cascade.outputs, *self.parameters, name})
        types = {t: spec.dtypes.get(t, "float32") for t in cascade.tensors}
        self.ctx = Context(cascade, machine, types, build)
        self.pending: dict[str, Value] = {}
        self.bytes: list[Expr] = []
        self.sums: list[Expr] = []
        decided = Decisions(spec, self.ranks, types)
        self.einsums, self.plans = decided.einsums, decided.plans
        self.views = Views(spec, self.ranks, decided.einsums)
        self.view, self.add = self.views.view, build.add
        self.notes, self.sequential, self.is_reduced = decided.notes, decided.sequential, decided.is_reduced

    # the kernel

    def kernel(self) -> tuple[Kernel, list[str]]:
        cascade = self.spec.cascade
        arguments = []
        for tensor in cascade.inputs:
            placed = next((p for p in self.spec.placements.values() if p.tensor == tensor), None)
            if placed is None:
                raise UnsupportedError(
                    f"the binding does not place {tensor}, which is an input",
                    hint=f"take {tensor} out of the declaration",
                )
            axes = self.ranks.hbm_axes(placed)
            shape = tuple(d.extent for d in axes) or (1,)
            self.views.places[tensor] = Place(
                Buffer(tensor, shape, self.ctx.dtypes[tensor], HBM, "input", tensor), [], axes
            )
            declared = tuple(self.ranks.size("", r) for r in cascade.tensors[tensor].ranks)
            arguments.append(Argument(tensor, shape, self.ctx.dtypes[tensor], declared=declared))
        scalars = {o.name for e in cascade.einsums for o in e.operands if isinstance(o, Scalar) and o.name}
        arguments.extend(Argument(n, value=v) for n, v in cascade.scalars.items() if n in scalars)
        for tensor in cascade.outputs:
            self.allocate_hbm(tensor)
        for is_apart in (True, False):
            # an Einsum that left loops around those that it stays in runs before the others
            run = [n for n, p in self.plans.items() if p.is_apart is is_apart and not p.is_skipped]
            self.emit(run, 0)
        outputs = tuple(self.views.places[t].buffer for t in cascade.outputs)
        kernel = Kernel(
            self.name,
            tuple(arguments),
            self.ctx.build.body,
            outputs,
            self.title,
            self.parameters,
            self.asserts(),
        )
        return kernel, self.notes

    def asserts(self) -> tuple[str, ...]:
        """Claims on open extents, which the compiler cannot prove: splits leave nothing over, tiles fit."""
        splits = ((base, shapes) for held in self.spec.partitioning.values() for base, shapes in held.items())
        divided = ((base, shapes[0]) for base, shapes in splits if base in self.parameters and shapes[0] > 1)
        found = [f"{base} % {part} == 0" for base, part in divided]
        total = sum(self.bytes, ZERO)
        if total.names:
            found.append(f"{total} <= {self.machine['sbuf_bytes_per_partition']}")
        if any(size.names for size in self.sums):
            banks = " + ".join(f"-(-({size}) // {self.machine['psum_bank_bytes']})" for size in self.sums)
            found.append(f"{banks} <= {self.machine['psum_banks']}")
        return tuple(dict.fromkeys(found))

    def allocate_hbm(self, tensor: str, role: str = "output") -> None:
        placed = self.ranks.placement(tensor, tensor)
        axes = self.ranks.hbm_axes(placed)
        self.ctx.build.taken.discard(tensor)
        shape = tuple(d.extent for d in axes) or (1,)
        buffer = self.ctx.build.buffer(tensor, shape, self.ctx.dtypes[tensor], HBM, role, tensor)
        self.views.places[tensor] = Place(buffer, [], axes)

    def need_place(self, tensor: str) -> None:
        """Make the place in HBM of a tensor that is stored and read again."""
        if tensor not in self.views.places:
            with self.ctx.build.hoisted(0):
                self.allocate_hbm(tensor, "scratch")

    def emit(self, names: list[str], depth: int) -> None:
        """Statements and loops of Einsums at a depth, in order; those with the same next loop share it."""
        loops = {name: self.plans[name].loops for name in names}
        for group, together in self.ranks.in_turns(loops, names, depth):
            for member in together:
                self.allocate(member, depth)
            if group is None:
                self.emit_one(together[0], depth)
            else:
                self.loop(group, together[0], together, depth)

    def emit_one(self, name: str, depth: int) -> None:
        """The statement of an Einsum in its innermost loop."""
        if not depth:
            self.add(nodes.Comment(self.text_of(name)))
        self.statement(self.plans[name])

    def loop(self, group: Group, name: str, together: list[str], depth: int) -> None:
        rank = group.rank_of(name)
        variable = self.ctx.build.fresh(group.variable)
        comment = "; ".join(self.text_of(n) for n in together if len(self.plans[n].loops) == depth + 1)
        body: list[nodes.Statement] = []
        trips, is_ordered = self.ranks.size(name, rank), self.carries(group, together)
        base, before = self.ranks.edge_of(name, rank), self.views.counts
        count_name, count, total, each = "", None, before.get(base), self.ranks.digit(name, rank).stride
        if base and each > 1:
            count_name = self.ctx.build.fresh(f"{variable}_count")
            left = total if total is not None else self.ranks.size("", base)
            count = at_most(each, left - name_of(variable) * each)
            self.views.counts = {**before, base: name_of(count_name)}
        if total is not None:
            # of a part that is shorter there are fewer parts
            trips = total if each == 1 else (total + (each - 1)) // each
        each = each if total is not None else 1
        made = Loop(variable, trips, body, is_ordered, count_name, count, comment, total, each)
        outer = self.ctx.build.scopes[-1]
        outer.opened = len(outer.body)
        self.add(made)
        self.ctx.build.scopes.append(Scope(body=body))
        self.views.variables = {**self.views.variables, group.variable: variable}
        self.emit(together, depth + 1)
        self.ctx.build.scopes.pop()
        outer.opened = None
        self.views.counts = before
        self.ctx.build.taken -= {variable, count_name}

    def text_of(self, name: str) -> str:
        """An Einsum as it is written."""
        return self.einsums[name].text or str(self.einsums[name])

    def carries(self, group: Group, together: list[str]) -> bool:
        """Whether a turn of a loop adds to what the turn before left."""
        return any((name, group.variable) in self.sequential for name in together)

    # places

    def allocate(self, name: str, depth: int) -> None:
        placed = self.ranks.producer(name)
        if placed is None or placed.component == "HBM" or name in self.views.places or self.is_fused(name):
            return
        plan = self.plans[name]
        unbound = [r for r in placed.unbound if r not in plan.dropped]
        if plan.is_apart:
            # loops that it shares with others only outside become axes of its place
            extra, unbound = unbound, []
        else:
            extra = []
        if len(unbound) != depth:
            return
        parts = merged(self.ranks.digits(name, placed.outer))
        axes = merged([*self.ranks.digits(name, tuple(extra)), *self.ranks.digits(name, placed.inner)])
        rows = prod((expr(part.extent) for part in parts), start=expr(1))
        memory = placed.component.lower()
        dtype = "float32" if memory == PSUM else self.ctx.dtypes[name]
        shape: tuple[Whole, ...] = (rows, *(d.extent for d in axes)) if axes else (rows, 1)
        role = "sum" if memory == PSUM else "tile"
        made = Buffer(self.ctx.build.fresh(name), shape, dtype, memory, role, name)
        self.add(Alloc(made))
        self.views.places[name] = Place(made, parts, axes)
        size = prod(map(expr, shape[1:]), start=expr(self.ctx.bytes_of(dtype)))
        (self.bytes if memory == SBUF else self.sums).append(size)
        is_tiled = plan.instruction == "TensorReduce"
        if plan.instruction == "LoopReduce" or (is_tiled and self.is_summed_by_loops(plan)):
            whole = View(made, tuple(Cut(ZERO, expr(e)) for e in shape))
            self.add(nodes.Fill(whole, float(OPERATORS[plan.einsum.reduce_op].identity or 0.0)))

    def is_fused(self, name: str) -> bool:
        """Whether an element-wise result is read once, by an element-wise Einsum in the same loops."""
        plan, readers = self.plans[name], [p for p in self.plans.values() if name in p.einsum.reads]
        if len(readers) != 1 or any(p.instruction not in ELEMENTWISE for p in (plan, *readers)):
            return False
        return readers[0].loops == plan.loops and self.is_one(readers[0]) == self.is_one(plan)

    # statements

    def statement(self, plan: Plan) -> None:
        name, source = plan.name, plan.source
        match plan.instruction:
            case "Load":
                dst = self.view(name, plan)
                self.add(nodes.Load(dst, with_row(self.views.in_order(source, name, plan), dst)))
            case "Store":
                self.need_place(name)
                tile = self.view(source, plan)
                self.add(nodes.Store(with_row(self.views.in_order(name, source, plan), tile), tile))
            case "BroadcastTo":
                self.broadcast(plan)
            case "MatVec":
                self.product(plan)
            case "TensorCopy":
                self.add(nodes.Copy(self.view(name, plan), self.view(source, plan)))
            case "Transpose":
                self.transpose(plan)
            case "TensorReduce" | "LoopReduce":
                self.reduction(plan)
            case "SimpleTensorScalar" | "SimpleTensorTensor" | "Activation":
                self.elementwise(plan)
            case other:
                raise UnsupportedError(f"the instruction {other} of {name} is not served")

    def transpose(self, plan: Plan) -> None:
        """Partitions and columns of a tile change places, through PSUM."""
        source, dst = self.view(plan.source, plan), self.view(plan.name, plan)
        rows, columns = source.cuts[0], source.cuts[-1]
        most = self.machine["partitions"]
        shape: tuple[Whole, ...] = tuple(c.count if c.count.value else int(most) for c in (columns, rows))
        transposed = Buffer(self.ctx.build.fresh("turned"), shape, source.buffer.dtype, PSUM)
        self.add(Alloc(transposed))
        view = part_of(transposed, columns.count, rows.count)
        self.add(nodes.Transpose(view, source))
        self.add(nodes.Copy(dst, view))

    def reduction(self, plan: Plan) -> None:
        """A reduction over the columns that the instruction covers, and over loops."""
        op = OPERATORS[plan.einsum.reduce_op].alu
        dst, source = self.view(plan.name, plan), self.view(plan.source, plan)
        if plan.instruction == "TensorReduce":
            partial = self.like(plan, "partial", columns=1) if self.is_summed_by_loops(plan) else dst
            self.add(nodes.Reduce(partial, op, source))
            source = partial
        if source is not dst:
            self.add(nodes.Combine(dst, dst, op, source))
        self.tally(plan, dst)

    def tally(self, plan: Plan, into: View) -> None:
        """Note what a statement added to the sum of an Einsum: values of each part of what is summed over."""
        name = plan.name
        added: list[tuple[str, Expr, Expr, Expr | int]] = []
        for variable in plan.einsum.reduced:
            parts = self.ranks.names_after(name, variable.upper())
            if any(self.ranks.edge_of(name, r) for r in parts):
                # the inner part of a rank has fewer values in the last turn of the outer
                whole = self.ranks.digit(name, variable.upper())
                cut = self.views.along(whole, plan, parts)
                held = cut if isinstance(cut, Cut) else Cut(cut.at, expr(1))
                added.append((variable, held.start, held.count, whole.extent))
                continue
            added += [self.added_along(plan, rank) for rank in parts]
        summed = (Summed(v, at, count, ZERO, expr(n), expr(n).value or 0) for v, at, count, n in added)
        self.add(Tally(into, tuple(summed)))

    def added_along(self, plan: Plan, rank: str) -> tuple[str, Expr, Expr, Expr]:
        """What a statement adds along a part of a rank: its variable, first value, count and extent."""
        name = plan.name
        group, extent = self.ranks.group(name, rank), self.ranks.size(name, rank)
        if rank in plan.consumed or group is None or group.variable not in self.views.variables:
            return rank.lower(), ZERO, extent, extent
        return rank.lower(), name_of(self.views.variables[group.variable]), expr(1), extent

    def is_summed_by_loops(self, plan: Plan) -> bool:
        """Whether a loop runs over a rank that an Einsum reduces."""
        members = (member for group in plan.loops for member in group.members)
        return any(self.is_reduced(plan.einsum, r) for e, r in members if e == plan.name)

    def broadcast(self, plan: Plan) -> None:
        """Read a row of an input to every partition."""
        loader, dst = self.plans[plan.source], self.view(plan.name, plan)
        source = self.views.row(plan, loader.source, loader.name, self.views.places[loader.source])
        self.add(nodes.Load(dst, View(source.buffer, source.index, repeat=dst.cuts[0].count)))

    def product(self, plan: Plan) -> None:
        """A sum of products; the operand with the rank of the result's partitions is stationary."""
        einsum, name = plan.einsum, plan.name
        on_parts = set(self.ranks.digits(name, plan.placed.outer))
        stationary = moving = None
        for access in einsum.accesses:
            inner = self.ranks.placement(access.tensor, name).inner
            if on_parts & {self.ranks.digit(name, r) for r in inner if r in plan.consumed}:
                stationary = access
            else:
                moving = access
        if not on_parts:
            # of a result of one partition either operand may be stationary
            stationary, moving = einsum.accesses
        if stationary is None or moving is None:
            raise UnsupportedError(f"no operand of {name} has the rank that its partitions have")
        running = tuple(
            self.views.variables[g.variable]
            for g in plan.loops[len(plan.placed.unbound) :]
            if any(self.is_reduced(einsum, r) for e, r in g.members if e == name)
        )
        dst, first, second = (self.view(t, plan) for t in (name, stationary.tensor, moving.tensor))
        self.add(nodes.MatMul(dst, first, second, running))
        self.tally(plan, dst)

    def elementwise(self, plan: Plan) -> None:
        einsum, name = plan.einsum, plan.name
        tile = Tile(self.ctx, partial(self.like, plan), partial(self.like, plan, columns=1))
        fetched = {operand: self.operand(operand, plan) for operand in dict.fromkeys(einsum.operands)}
        operands = [fetched[operand] for operand in einsum.operands]
        value = tile.operator(einsum.map_op, operands) if einsum.map_op else operands[0]
        is_given = is_entry(self.spec.engines[name].node.path)
        value.is_activation = plan.instruction == "Activation" and is_given
        if einsum.condition is not None:
            value = self.selected(plan, value, tile)
        if self.is_fused(name):
            self.pending[name] = value
            reader = next(e.name for e in self.einsums.values() if name in e.reads)
            self.notes.append(
                f"changed: {name} is computed on the way to {reader}; it has no place of its own"
            )
            return
        tile.into(value, self.view(name, plan))

    def operand(self, operand: Operand, plan: Plan) -> Value:
        """An operand of an element-wise Einsum: a number, what is computed on the way, or a view."""
        if not isinstance(operand, Access):
            assert isinstance(operand, Scalar)
            return Value(number=self.ctx.number(operand))
        if operand.tensor in self.pending:
            return self.pending.pop(operand.tensor)
        view = self.view(operand.tensor, plan)
        return Value(view=view, is_column=view.cuts[-1].count.value == 1 and not self.is_one(plan))

    def selected(self, plan: Plan, value: Value, tile: Tile) -> Value:
        """The value where the condition of an Einsum holds, its number elsewhere."""
        einsum, name = plan.einsum, plan.name
        condition = einsum.condition
        assert condition is not None
        whole = condition.difference
        offset, steps = expr(whole.constant), [0, 0]
        for variable, c in whole.at(self.spec.cascade.sizes).terms:
            rank = variable.upper()
            parts = self.ranks.names_after(name, rank)
            at = self.views.along(self.ranks.digit(name, rank), plan, parts)
            offset = offset + (at.start if isinstance(at, Cut) else at.at) * c
            if isinstance(at, Cut):
                # a covered part of a rank lies on the partitions or along the columns
                steps[not any(r in plan.placed.outer and r in plan.consumed for r in parts)] += c * at.step
        offset = offset + whole.at(self.spec.cascade.sizes).constant - whole.constant
        made = self.like(plan, f"{name.lower()}_selected")
        rows, columns = steps
        source = made
        if value.is_scalar:
            tile.fill(made, value.number if value.number is not None else 0.0)
            if value.number is None:
                tile.add(nodes.Scale(made, made, "add", tile.scalar(value)))
        else:
            source = tile.in_sbuf(tile.view(value))
        tile.add(nodes.Select(made, source, offset, rows, columns, condition.relation, einsum.otherwise))
        return Value(view=made)

    def is_one(self, plan: Plan) -> bool:
        """Whether the result has one column."""
        return all(self.ranks.size(plan.name, r).value == 1 for r in plan.columns)

    def like(self, plan: Plan, hint: str, dtype: str = "float32", columns: int = 0) -> View:
        """A new tile of the size of an Einsum's result."""
        name, sides = plan.name, (plan.placed.outer, plan.columns)
        rows, width = (prod((self.ranks.size(name, r) for r in ranks), start=expr(1)) for ranks in sides)
        count, wide = (self.views.covered(name, ranks) for ranks in sides)
        width, wide = (expr(columns), expr(columns)) if columns else (width, wide)
        buffer = Buffer(self.ctx.build.fresh(hint), (rows, width), dtype, SBUF)
        self.add(Alloc(buffer))
        return part_of(buffer, count, wide)


def with_row(view: View, tile: View) -> View:
    """A part of HBM as a tile of one partition sees it: with an axis of one in front."""
    if tile.cuts[0].count.value != 1 or not view.cuts:
        return view
    order = (0, *(n + 1 if isinstance(n, int) else n for n in view.order)) if view.order else ()
    return replace(view, index=(Cut(ZERO, expr(1)), *view.index), order=order)
