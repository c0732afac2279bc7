"""Turns that sum over all turns before, in blocks: what earlier blocks and strips left is summed by products.

The columns of the state lie on the partitions, its turns along a row. Before a block of as many turns as
there are partitions, TensorE sums over all blocks before; before a strip of 32 of them, over the strips
before in its block. What is left for a turn is the sum over the turns before in its strip, on VectorE. Where
no turn has written, the state is zero.

Such a block solves a triangular system, or the like: a turn sums products with the values of earlier turns,
combines the sum element by element with what it reads, and hands on one value.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from ..language.ast import Access, Affine, Cascade, Einsum, Iterate, Operand, Scalar
from ..language.operators import OPERATORS
from ..tree import nodes
from ..tree.expr import ZERO, Expr, expr
from ..tree.nodes import PSUM, SBUF, At, Buffer, Cut, View, all_of, columns_of, upto
from .build import Span, whole
from .context import Context
from .fetch import fetch
from .stage import stage
from .storage import Storage
from .values import Tile, Value
from .want import Want

# turns of a strip, within which sums are taken turn by turn
STRIP = 32
# bytes of an element of what is summed
WIDE = 4
# of the room on chip that the tiles of a block may take
SHARE = 0.95


@dataclass(frozen=True)
class Substitution:
    """A block that is one."""

    turn: str  # the variable that is iterated
    summed: Einsum  # the Einsum that sums over the turns before
    factor: Access  # what it multiplies their values with, indexed by the turn and the turn before
    state: Access  # what it reads of them
    combined: tuple[Einsum, ...]  # the others, element by element, the value that is handed on last
    kept: Einsum  # the copy that keeps the value of every turn

    @property
    def over(self) -> str:
        """The variable of the turns before."""
        return self.state.variables[0]

    @property
    def column(self) -> str:
        """The variable whose values are independent of each other."""
        return self.summed.output.variables[0]


def substitution_in(block: Iterate, cascade: Cascade, lanes: int) -> Substitution | None:
    """A block, without the iterated rank where a turn needs one value alone, as a substitution; or None.

    Its turns are whole strips, and whole blocks of as many as lanes if they are more; so are its columns.
    """
    found = _form_of(block)
    if found is None:
        return None
    turns, columns = (cascade.extent(v, found.summed) for v in (found.turn, found.column))
    is_whole = turns % min(turns, lanes) == 0 and columns % min(columns, lanes) == 0
    return found if is_whole and turns % STRIP == 0 and turns > STRIP else None


def _form_of(block: Iterate) -> Substitution | None:
    """A block as a substitution, whatever its extents; None if it is none."""
    *body, kept = block.body
    if not body or not _keeps(kept, block.variable, body[-1]):
        return None
    readers = [e for e in body if kept.name in e.reads]
    sides = _sides(readers[0], kept, block.variable) if len(readers) == 1 else None
    if sides is None or len({e.name for e in block.body}) < len(block.body):
        return None
    summed = readers[0]
    combined = tuple(e for e in body if e is not summed)
    substitution = Substitution(block.variable, summed, *sides, combined, kept)
    return substitution if all(_is_combined(e, substitution) for e in combined) else None


def _keeps(kept: Einsum, turn: str, last: Einsum) -> bool:
    """Whether an Einsum keeps the value that another one leaves, turn by turn along its first axis."""
    is_copy = not (kept.map_op or kept.reduce_op or kept.condition) and kept.operands == (last.output,)
    return is_copy and [i.plain for i in kept.output.indices] == [turn, *last.output.variables]


def _sides(summed: Einsum, kept: Einsum, turn: str) -> tuple[Access, Access] | None:
    """The factor and the state of a sum over the turns before; None if an Einsum is none."""
    is_sum = summed.map_op == "multiply" and summed.reduce_op == "add" and len(summed.accesses) == 2
    if not is_sum or len(summed.operands) != 2 or len(summed.reduced) != 2 or summed.otherwise:
        return None
    over = next((v for v in summed.reduced if v != turn), "")
    column = summed.output.variables[0] if len(summed.output.variables) == 1 else ""
    asked = summed.condition.difference if summed.condition is not None else Affine()
    relation = summed.condition.relation if summed.condition is not None else ""
    before = {"<": ((over, 1), (turn, -1)), ">": ((over, -1), (turn, 1))}.get(relation, ())
    if set(asked.terms) != set(before) or asked.constant or not over or not column:
        return None
    factor, state = sorted(summed.accesses, key=lambda a: a.tensor == kept.name)
    is_state = state.tensor == kept.name and [i.plain for i in state.indices] == [over, column]
    return (factor, state) if is_state and [i.plain for i in factor.indices] == [turn, over] else None


def _is_combined(einsum: Einsum, substitution: Substitution) -> bool:
    """Whether an Einsum combines columns of a turn with each other, or with numbers, by one operator."""
    op = OPERATORS.get(einsum.map_op)
    if op is None or not op.alu or len(einsum.operands) != 2 or einsum.reduce_op or einsum.condition:
        return False
    if einsum.positions:
        return False
    columns = {substitution.summed.name, *(e.name for e in substitution.combined)}
    is_column = [i.plain for i in einsum.output.indices] == [substitution.column]

    def is_known(access: Access) -> bool:
        indices, turn = [i.plain for i in access.indices], substitution.turn
        if access.tensor in columns:
            return indices == [substitution.column]
        return access.tensor != substitution.kept.name and indices in ([turn, substitution.column], [turn])

    has_column = any(substitution.column in a.variables for a in einsum.accesses)
    return is_column and has_column and all(map(is_known, einsum.accesses))


@dataclass
class Solve:
    """Lowers a block."""

    ctx: Context  # the plan
    form: Substitution  # what the block does
    state: Storage  # the tile that holds the state of all turns
    columns: int  # how many values a turn computes
    turns: int  # how many turns there are

    @property
    def rows(self) -> int:
        """Partitions that the columns take."""
        return min(self.columns, self.ctx.lanes)

    @property
    def size(self) -> int:
        """Turns of a block."""
        return min(self.turns, self.ctx.lanes)

    @property
    def blocks(self) -> int:
        """Blocks of partitions that the columns take."""
        return self.columns // self.rows

    @property
    def bytes(self) -> int:
        """Bytes per partition that its tiles take, those of a block once."""
        size, strip = self.size, STRIP * STRIP * self.blocks
        of_block = 3 * self.turns + 4 * size * self.blocks + strip
        return (self.turns // size * self.columns + of_block) * WIDE

    def lower(self) -> None:
        """Append the nest."""
        ctx, build, form = self.ctx, self.ctx.build, self.form
        self.numbers = self.spread_numbers()
        size = self.size
        shape = (size, self.turns // size, self.columns)
        self.straight = build.buffer(f"{form.kept.name.lower()}_straight", shape, "float32", SBUF)
        build.add(nodes.Fill(all_of(self.straight), 0.0))
        comment = f"{form.summed}: blocks of {size} turns of {form.turn}, strips of {STRIP}"
        with build.tiles(
            f"{form.turn}_block", self.turns, size, is_sequential=True, comment=comment, over=form.turn
        ) as span:
            factors = self.factors(span)
            others = self.others(span)
            before = self.summed_before(factors)
            with build.tiles(f"{form.turn}_strip", size, STRIP, is_sequential=True) as strip:
                self.turn_straight(span)
                begun = self.summed_strips(span, strip, factors, before)
                self.strip(span, strip, self.combined_strip(begun, strip, others), others)
            self.turn_straight(span)
            self.stored(span)
        self.state.changed()
        for storage in ctx.storages[form.kept.name]:
            storage.changed()

    # views

    def tile(self, hint: str, *free: int, memory: str = SBUF, dtype: str = "float32") -> Buffer:
        """A tile with the columns on the partitions, block after block."""
        shape = (self.rows, *((self.blocks,) if self.blocks > 1 else ()), *free)
        return self.ctx.build.buffer(hint, shape, dtype, memory, "sum" if memory == PSUM else "tile")

    def view(self, buffer: Buffer, *free: At | Cut, block: Expr | None = None) -> View:
        """All columns of a tile, or those of a block."""
        own = upto(self.blocks) if block is None else At(block)
        return View(buffer, (upto(self.rows), *((own,) if self.blocks > 1 else ()), *free))

    def of_state(self, free: At | Cut) -> View:
        """Turns of the state."""
        return self.view(self.state.buffer, free)

    # before a block

    def spread_numbers(self) -> dict[str, View]:
        """The numbers of all turns, on every partition."""
        found = {}
        spans = {self.form.turn: whole(self.turns), self.form.column: whole(self.rows)}
        for access in (a for e in self.form.combined for a in e.accesses if self.is_number(a)):
            found[str(access)] = fetch(self.ctx, Want(access, spans, self.form.column, self.form.turn))
        return found

    def is_number(self, access: Access) -> bool:
        """Whether an operand is one number a turn."""
        return access.variables == (self.form.turn,)

    def factors(self, span: Span) -> Buffer:
        """What the turns of a block multiply with, all turns before on the partitions, else zeros."""
        ctx, build, form = self.ctx, self.ctx.build, self.form
        spans = {form.turn: span, form.over: whole(self.turns)}
        rows = fetch(ctx, Want(form.factor, spans, form.turn, form.over))
        name, size = form.factor.tensor.lower(), span.most
        chosen = ctx.tile(f"{name}_before", span, whole(self.turns))
        build.add(nodes.Select(chosen, rows, ZERO - span.start, -1, 1, "<", 0.0))
        made = build.buffer(f"{name}_turned", (size, self.turns // size, size), "float32", SBUF)
        every = upto(size)
        blocks = self.turns // size
        most = self.ctx.bank_bytes // (size * WIDE)
        each = max(n for n in range(1, most + 1) if blocks % n == 0)
        with build.tiles("b", blocks, each) as group:
            psum = build.buffer("turned", (size, each, size), "float32", PSUM)
            with build.loop("r", each) as r:
                piece = columns_of(chosen, (group.start + r) * size, expr(size))
                build.add(nodes.Transpose(View(psum, (every, At(r), every)), piece))
            build.add(nodes.Copy(View(made, (every, Cut(group.start, expr(each)), every)), all_of(psum)))
        return made

    def others(self, span: Span) -> dict[str, Storage]:
        """Operands of all turns of a block."""
        spans = {self.form.turn: span, self.form.column: whole(self.columns)}
        made = {self.form.summed.name, *(e.name for e in self.form.combined)}
        return {
            str(a): stage(self.ctx, a, spans, self.form.column, self.ctx.dtypes[a.tensor])
            for e in self.form.combined
            for a in e.accesses
            if a.tensor not in made and not self.is_number(a)
        }

    def summed_before(self, factors: Buffer) -> Buffer:
        """The sums of a block over all turns of blocks before: those that are not there yet are zero."""
        build, form = self.ctx.build, self.form
        size = self.size
        sums = self.tile(f"{form.summed.name.lower()}_sum", size, memory=PSUM)
        every = upto(size)
        with self.each_block() as block:
            dst = self.view(sums, every, block=block)
            with build.tiles(form.over, self.turns, size, over=form.over) as before:
                place = At(before.start // size)
                stationary = View(self.straight, (every, place, self.columns_of(block)))
                over = tuple(before.start.names)
                build.add(nodes.MatMul(dst, stationary, View(factors, (every, place, every)), over))
                every_turn = expr(self.turns)
                added = nodes.Summed(form.over, before.start, before.count, ZERO, every_turn, self.turns)
                build.add(nodes.Tally(dst, (added,)))
        made = self.tile(f"{form.summed.name.lower()}_before", size)
        build.add(nodes.Copy(self.view(made, every), self.view(sums, every)))
        return made

    def each_block(self) -> AbstractContextManager[Expr]:
        """A loop over the blocks of the columns."""
        return self.ctx.build.loop(self.form.column, self.blocks)

    def columns_of(self, block: Expr) -> Cut:
        """The columns of a block."""
        return Cut(block * self.rows, expr(self.rows))

    # before a strip

    def turn_straight(self, span: Span) -> None:
        """The state of a block with its turns on the partitions."""
        build, size = self.ctx.build, span.most
        own = Cut(span.start, span.count)
        most = max(1, self.ctx.bank_bytes // (self.rows * WIDE))
        each = max(n for n in range(1, most + 1) if self.blocks % n == 0)
        every = upto(size)
        with build.loop("g", self.blocks // each) as group:
            psum = build.buffer("turned", (size, each * self.rows), self.state.buffer.dtype, PSUM)
            with build.loop("r", each) as r:
                source = self.view(self.state.buffer, own, block=group * each + r)
                build.add(nodes.Transpose(View(psum, (every, self.columns_of(r))), source))
            columns = Cut(group * (each * self.rows), expr(each * self.rows))
            dst = View(self.straight, (every, At(span.start // size), columns))
            build.add(nodes.Copy(dst, all_of(psum)))

    def summed_strips(self, span: Span, strip: Span, factors: Buffer, before: Buffer) -> Buffer:
        """The sums of a strip over all turns before it."""
        build, name = self.ctx.build, self.form.summed.name.lower()
        every, place = upto(span.most), At(span.start // span.most)
        own, all_of = Cut(strip.start, expr(STRIP)), upto(STRIP)
        sums = self.tile(f"{name}_strip_sum", STRIP, memory=PSUM)
        with self.each_block() as block:
            stationary = View(self.straight, (every, place, self.columns_of(block)))
            moving = View(factors, (every, place, own))
            build.add(nodes.MatMul(self.view(sums, all_of, block=block), stationary, moving, ()))
        made = self.tile(f"{name}_strip", STRIP)
        build.add(
            nodes.Combine(self.view(made, all_of), self.view(before, own), "add", self.view(sums, all_of))
        )
        return made

    @property
    def is_combined_first(self) -> bool:
        """Whether what a turn adds to its sum, or takes from it, goes to that of the strips before."""
        first = self.form.combined[0]
        others = [o for o in first.operands if not isinstance(o, Access) or o.tensor != self.form.summed.name]
        is_known = len(others) == 1 and isinstance(others[0], Access) and not self.is_number(others[0])
        return is_known and len(self.form.combined) > 1 and first.map_op in ("add", "subtract")

    def combined_strip(self, sums: Buffer, strip: Span, others: dict[str, Storage]) -> Buffer:
        """The sums of a strip, with what its turns add to them, or take from them."""
        if not self.is_combined_first:
            return sums
        first, every = self.form.combined[0], upto(STRIP)
        made = self.tile(f"{first.name.lower()}_strip", STRIP)
        left, right = (
            self.view(others[str(o)].buffer, Cut(strip.start, expr(STRIP)))
            if str(o) in others
            else self.view(sums, every)
            for o in first.operands
        )
        self.ctx.build.add(nodes.Combine(self.view(made, every), left, first.map_op, right))
        return made

    # turns

    def strip(self, span: Span, strip: Span, begun: Buffer, others: dict[str, Storage]) -> None:
        """The turns of a strip: the first, which has none before it in the strip, and the others."""
        build, form = self.ctx.build, self.form
        start = span.start + strip.start
        factors = self.own_factors(start)
        self.turn(start, self.view(begun, At(ZERO)), others)
        with build.tiles(form.turn, STRIP - 1, 1, is_sequential=True) as turn:
            # as many turns are before it as its place says
            place = count = turn.start + 1
            terms = self.view(self.tile("terms", STRIP), upto(count))
            blocks = (upto(self.blocks),) if self.blocks > 1 else ()
            own = View(factors, (upto(self.rows), At(place), *blocks, upto(count)))
            build.add(nodes.Combine(terms, self.of_state(Cut(start, count)), "multiply", own))
            late = self.column(f"{form.summed.name.lower()}_late")
            build.add(nodes.Reduce(late, "add", terms))
            total, is_taken = self.column(f"{form.summed.name.lower()}_tile"), self.takes_sum
            op = "subtract" if is_taken else "add"
            build.add(nodes.Combine(total, self.view(begun, At(place)), op, late))
            self.turn(start + place, total, others)

    @property
    def takes_sum(self) -> bool:
        """Whether turns take their sum from what else they combine it with."""
        first = self.form.combined[0]
        is_right = isinstance(first.operands[1], Access) and first.operands[1].tensor == self.form.summed.name
        return self.is_combined_first and first.map_op == "subtract" and is_right

    def column(self, hint: str, dtype: str = "float32") -> View:
        """A new tile of one value for every column."""
        return self.view(self.tile(hint, 1, dtype=dtype), At(ZERO))

    def own_factors(self, start: Expr) -> Buffer:
        """What turns of a strip multiply each other with, on all partitions, for every block of columns."""
        build, form = self.ctx.build, self.form
        shape = (self.rows, STRIP, *((self.blocks,) if self.blocks > 1 else ()), STRIP)
        source = self.ctx.storage_of(form.factor)[0].buffer
        made = build.buffer(f"{form.factor.tensor.lower()}_strip", shape, source.dtype, SBUF)
        own = Cut(start, expr(STRIP))
        every = upto(STRIP)
        with self.each_block() as block:
            place = (At(block),) if self.blocks > 1 else ()
            dst = View(made, (upto(self.rows), every, *place, every))
            build.add(nodes.Load(dst, View(source, (own, own), repeat=expr(self.rows))))
        return made

    def turn(self, at: Expr, total: View, others: dict[str, Storage]) -> None:
        """What a turn makes of its sum, and its value in the state."""
        first, *rest = self.form.combined
        known = {(first if self.is_combined_first else self.form.summed).name: Value(view=total)}
        tile = Tile(self.ctx, self.column, self.column)
        for einsum in rest if self.is_combined_first else self.form.combined:
            operands = [self.operand(o, at, known, others) for o in einsum.operands]
            value = known[einsum.name] = tile.operator(einsum.map_op, operands)
            value.place = partial(self.column, f"{einsum.name.lower()}_tile")
        tile.into(value, self.of_state(At(at)))

    def operand(
        self, operand: Operand, at: Expr, known: dict[str, Value], others: dict[str, Storage]
    ) -> Value:
        """An operand of a turn: its columns, a column of one number, or a number."""
        if not isinstance(operand, Access):
            assert isinstance(operand, Scalar)
            return Value(number=self.ctx.number(operand))
        if operand.tensor in known:
            return known[operand.tensor]
        if self.is_number(operand):
            row = self.numbers[str(operand)]
            return Value(view=View(row.buffer, (row.index[0], Cut(at, expr(1)))), is_column=True)
        storage = others[str(operand)]
        return Value(view=self.view(storage.buffer, At(at - storage.bases[0])))

    def stored(self, span: Span) -> None:
        """Store the turns of a block."""
        hbm = self.ctx.hbm(self.form.kept.name)
        if hbm is None:
            return
        rows = upto(span.most)
        columns = upto(self.columns)
        source = View(self.straight, (rows, At(span.start // span.most), columns))
        if hbm.buffer.dtype != "float32":
            made = self.ctx.tile("out_tile", span, whole(self.columns), hbm.buffer.dtype)
            self.ctx.build.add(nodes.Copy(made, source))
            source = made
        self.ctx.build.add(nodes.Store(View(hbm.buffer, (Cut(span.start, span.count), columns)), source))


def solve_of(ctx: Context, block: Iterate, outer: dict[str, Span]) -> Solve | None:
    """A block as a solve; None if it is none, or does not come in whole blocks that fit on chip."""
    form = substitution_in(block, ctx.cascade, ctx.lanes) if not ctx.given.is_watched and not outer else None
    state = ctx.chip(form.kept.name) if form is not None else None
    if form is None or state is None or state.dims != ("free", "part"):
        return None
    turns, columns = ctx.cascade.shape(form.kept.name)
    solve = Solve(ctx, form, state, columns, turns)
    if not ctx.storage_of(form.factor)[0].is_hbm or solve.bytes > ctx.room() * SHARE:
        return None
    told = f"how turns of {form.turn} sum over turns before"
    if ctx.pick(told, ("in blocks, on TensorE", "one by one")) == "one by one":
        return None
    ctx.choices.append(f"{form.summed.name}: over blocks of turns before on TensorE, else on VectorE")
    return solve
