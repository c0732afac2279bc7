"""Filling a tile with what it holds of a tensor: many blocks and rows at once where one way takes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from ..language.ast import Access
from ..tree import nodes
from ..tree.expr import ZERO, expr
from ..tree.nodes import At, Cut, View
from .build import Span, point, whole
from .bulk import is_turned_in_bulk, turned_in_bulk
from .context import Context, part_of, tensor_type
from .fetch import fetch, in_sbuf, is_few, lies_right, turn, two_axes
from .storage import Storage, positions
from .want import Want

# bytes of a run below which transfers are slower than transposing
SHORT_RUN = 64
# rows that are transposed at once, as a part of what others would be
FEWEST = 4
# bytes of a transfer from several places, from which two overlap better
MOST_MOVED = 1 << 18


@dataclass(frozen=True)
class Filling:
    """A part of a tensor that goes to a tile."""

    ctx: Context  # the plan
    access: Access  # of the tensor, a variable per axis
    at: Mapping[str, Span]  # spans of these variables
    part: str  # the one on the partitions; "" for none
    free: tuple[str, ...]  # the others of more than one value
    tile: Storage  # that is filled
    source: Storage  # where the tensor lies

    def lower(self) -> None:
        """Fill it at once, or block of partitions by block, along the last of its free axes."""
        if self.is_done_at_once():
            return
        if pieces := self.blocks_and_rest():
            for piece in pieces:
                piece.lower()
            return
        ctx, last = self.ctx, self.last_free
        rest = tuple(n for n in self.free if n != last)
        if self.part and self.rows.most > ctx.lanes:
            total = self.rows.count.value
            assert total is not None
            with ctx.build.tiles(self.part.split("_")[0][:1], total, ctx.lanes) as block:
                self.over(self.part, self.rows.tile(block)).lower()
        elif self.source.is_hbm and self.is_straight:
            self.loaded_straight()
        elif rest:
            total = self.at[rest[0]].count.value
            assert total is not None
            with ctx.build.loop("i", total) as i:
                one = point(self.at[rest[0]].start + i)
                replace(self.over(rest[0], one), free=(last, *rest[1:])).lower()
        else:
            self.tile_by_tile(last)

    def is_done_at_once(self) -> bool:
        """Fill it by one of the ways that take several blocks or rows at once; whether one does."""
        if self.is_turned_at_once and self.blocks_of_a_bank > 1:
            self.turned_at_once()
            return True
        if self.source.is_hbm and self.is_loaded_in_blocks:
            self.loaded_in_blocks()
            return True
        is_column = bool(self.part) and not self.free
        if self.source.is_hbm and is_column and self.loaded_as_rows():
            return True
        return self.turned_in_bulk() or (is_column and self.dealt_out())

    def blocks_and_rest(self) -> list[Filling]:
        """Whole blocks of an axis, if they may come at once, and what is left of it; else nothing."""
        lanes, blocks, pieces = self.ctx.lanes, self, list[Filling]()
        for v in filter(None, dict.fromkeys((self.last_free, self.part))):
            total = self.at[v].count.value or 0
            unit = lanes * (self.blocks_together if v == self.part else 1)
            if total <= 2 * lanes or not total % lanes:
                continue
            start, many = self.at[v].start, total - total % unit
            spans = whole(many, start), whole(total - many, start + many)
            blocks, pieces = blocks.over(v, spans[0]), [self.over(v, span) for span in spans]
        is_loaded = blocks.source.is_hbm and blocks.is_loaded_in_blocks
        is_turned = blocks.is_turned_at_once and blocks.blocks_of_a_bank > 1
        return pieces if is_loaded or is_turned or blocks.is_turned_in_bulk else []

    # what is filled

    @property
    def rows(self) -> Span:
        """What lies on the partitions."""
        return self.at[self.part]

    @property
    def positions(self) -> tuple[At | Cut, ...]:
        """Of the tensor."""
        return tuple(positions(self.access, dict(self.at)))

    @property
    def place(self) -> View:
        """What is filled of the tile."""
        return self.tile.view(list(self.positions))

    def over(self, variable: str, span: Span) -> Filling:
        """The same over another span of a variable."""
        return replace(self, at={**self.at, variable: span})

    def axis(self, variable: str) -> int:
        """The axis of the tensor that a variable runs along."""
        return next(a for a, i in enumerate(self.access.indices) if variable in i.variables)

    def want(self, part: str, free: str) -> Want:
        """What is filled as [part, free]."""
        return Want(self.access, dict(self.at), part, free, self.source)

    @property
    def last_free(self) -> str:
        """The free axis that is copied at once: the one on the partitions of a tile, else the innermost."""
        ragged = [n for n in self.free if self.at[n].count.value is None]
        across = self.source.part_variable(self.access) if not self.source.is_hbm else ""
        if ragged or not self.free:
            return ragged[0] if ragged else ""
        order = [v for i in self.access.indices for v in i.variables]
        if self.source.is_hbm and order[-1] not in self.free:
            # rows that are transposed: the more at once the better
            return max(self.free, key=lambda n: self.at[n].most)
        return across if across in self.free else max(self.free, key=order.index)

    @property
    def is_straight(self) -> bool:
        """Whether one transfer fills all axes as they lie in HBM."""
        return bool(self.part) and len(self.order) > 1 and self.part in self.order[:-1]

    @property
    def order(self) -> list[str]:
        """Variables of more than one value, as they lie."""
        return [v for i in self.access.indices for v in i.variables if not self.at[v].is_point]

    def loaded_straight(self) -> None:
        """Transfers as it lies in HBM, of some of what lies before the partitions each where that is much."""
        first, outer = self.order.index(self.part), self.order[0]
        size = prod(self.at[v].most for v in self.order) * self.source.itemsize
        count = self.at[outer].count.value
        if not first or count is None or size <= MOST_MOVED:
            order = (first, *(n for n in range(len(self.order)) if n != first)) if first else ()
            source = View(self.source.buffer, self.positions, order=order)
            self.ctx.build.add(nodes.Load(self.place, source))
            return
        each = max(
            n for n in range(1, count + 1) if count % n == 0 and (n == 1 or n * size <= MOST_MOVED * count)
        )
        if each == 1 and len(self.order) > 2:
            with self.ctx.build.loop("i", count) as i:
                one = self.over(outer, point(self.at[outer].start + i))
                replace(one, free=tuple(v for v in self.free if v != outer)).lower()
            return
        with self.ctx.build.tiles("i", count, each) as some:
            self.over(outer, self.at[outer].tile(some)).loaded_straight()

    @property
    def rows_before(self) -> str:
        """The axis before that of the partitions, whose rows are loaded and transposed; "" for long runs."""
        order, source, part = self.order, self.source, self.part
        if not source.is_hbm or len(self.free) < 2 or part not in order[1:] or source.itemsize > 4:
            return ""
        place = order.index(part)
        height, longest = (
            max(self.at[v].most for v in some) for some in (order[place - 1 : place], self.free)
        )
        is_low = height * FEWEST < longest // -(-longest // self.ctx.lanes)
        is_ragged = height > self.ctx.lanes and height % self.ctx.lanes
        if part == order[-1] and (is_low or is_ragged or self.rows.most > self.ctx.lanes):
            return ""
        run, every = (prod(self.at[v].most for v in some) for some in (order[place + 1 :], order))
        run, size = run * source.itemsize, every // height * -(-height // self.ctx.lanes) * source.itemsize
        # hw: what is transposed leaves PSUM for partitions from the first on, not from that behind an edge
        first = self.at[part].start - self.tile.bases[self.axis(part)]
        is_whole = first == ZERO and all(self.at[v].count.value is not None for v in order)
        return order[place - 1] if is_whole and run < SHORT_RUN and size <= self.ctx.room() * 0.2 else ""

    # one tile

    def tile_by_tile(self, last: str) -> None:
        """One tile [partitions, columns], transposed where it lies the other way round."""
        want, source, part = self.want(self.part, last), self.source, self.part
        is_wide = bool(part and last)
        if is_wide and source.is_hbm:
            is_last = self.axis(part) == len(self.access.indices) - 1
            is_turned = is_last and not is_few(self.ctx, want.rows.most * want.columns.most)
        else:
            across = not source.is_hbm and source.part_variable(self.access) == last
            is_turned = is_wide and across and not lies_right(source, want)
        if is_turned:
            self.turned(last)
        elif source.is_hbm:
            axes = (self.axis(v) if v and not self.at[v].is_point else None for v in (part, last))
            self.ctx.build.add(nodes.Load(self.place, two_axes(source.buffer, list(self.positions), *axes)))
        else:
            place = self.place
            self.ctx.build.add(nodes.Copy(place, fetch(self.ctx, want)))

    def turned(self, free: str) -> None:
        """Transposed blocks of at most so many columns as there are partitions."""
        ctx, columns, lanes = self.ctx, self.at[free], self.ctx.lanes
        if columns.most <= lanes:
            place = self.place
            turn(ctx, fetch(ctx, self.want(free, self.part)), place, self.rows.most)
            return
        with ctx.build.pieces("b", columns, lanes) as block:
            self.over(free, columns.tile(block)).turned(free)

    @property
    def is_across(self) -> bool:
        """Whether its partitions run along the last axis in HBM."""
        is_last = bool(self.part and self.free) and self.access.indices[-1].plain == self.part
        return self.source.is_hbm and is_last and not (len(self.free) > 1 and self.has_extents)

    @property
    def is_turned_in_bulk(self) -> bool:
        """Whether many rows may be transposed together."""
        operand = self.want(self.part, self.last_free) if self.is_across else None
        return operand is not None and is_turned_in_bulk(self.ctx, operand, self.source)

    def turned_in_bulk(self) -> bool:
        """Fill a tile whose partitions run along the last axis in HBM; whether it is done."""
        last = self.last_free
        if not self.is_across:
            return False

        def into(columns: Span, rows: Span) -> View:
            block = self.over(self.part, self.rows.tile(columns))
            return block.over(last, self.at[last].tile(rows)).place

        return turned_in_bulk(self.ctx, self.want(self.part, last), self.source, into)

    @property
    def has_extents(self) -> bool:
        """Whether no free axis is cut by a value that is known at run time alone."""
        return all(self.at[n].count.value for n in self.free)

    # blocks of partitions

    @property
    def is_loaded_in_blocks(self) -> bool:
        """Whether one transfer may fill several blocks of partitions: rows lie along the last axis."""
        if not self.part or not self.tile.has_blocks or not self.free:
            return False
        total = self.rows.count.value
        if total is None or total % self.tile.lanes or any(self.at[n].count.value is None for n in self.free):
            return False
        return self.access.indices[-1].plain == self.order[-1] != self.part

    def loaded_in_blocks(self) -> None:
        """Transfers of up to a mebibyte, several blocks of partitions at once."""
        ctx, lanes = self.ctx, self.ctx.lanes
        blocks, row = self.rows.most // lanes, ctx.bytes_of(self.source.buffer.dtype)
        for name, span in self.at.items():
            row *= 1 if name == self.part else span.most
        divisors = [d for d in range(1, blocks + 1) if blocks % d == 0]
        each = max(d for d in divisors if d == 1 or d * lanes * row <= ctx.knobs.transfer_bytes)
        with ctx.build.loop(f"{self.part[:1]}_blocks" if each > 1 else self.part[:1], blocks // each) as n:
            start = self.rows.start + n * (each * lanes)
            here = self.over(self.part, whole(each * lanes, start))
            first = self.over(self.part, whole(lanes, start)).place
            block = first.index[1]
            assert isinstance(block, At)
            into = View(self.tile.buffer, (first.index[0], Cut(block.at, expr(each)), *first.index[2:]))
            folded = (self.axis(self.part), lanes)
            ctx.build.add(nodes.Load(into, View(self.source.buffer, here.positions, folded=folded)))

    @property
    def is_turned_at_once(self) -> bool:
        """Whether transposed blocks may come together into one bank of PSUM, to be copied out together."""
        source, is_wide = self.source, bool(self.part) and len(self.free) == 1
        if source.is_hbm or source.buffer.memory == nodes.PSUM or not is_wide or not self.tile.has_blocks:
            return False
        columns, total, lanes = self.at[self.free[0]], self.rows.count.value, self.tile.lanes
        if source.part_variable(self.access) != self.free[0] or total is None:
            return False
        if columns.most > lanes and (columns.most % lanes or columns.count.value is None):
            return False
        start = self.rows.start.value
        return start is not None and start % lanes == total % lanes == 0

    @property
    def of_a_bank(self) -> int:
        """Elements of the source's type in a bank of PSUM."""
        return self.ctx.bank_bytes // self.ctx.bytes_of(tensor_type(self.source.buffer.dtype))

    @property
    def blocks_together(self) -> int:
        """Blocks that are worth being transposed into a bank together, apart from what is left; 1 for all."""
        blocks = self.rows.most // self.ctx.lanes
        if self.source.is_hbm or len(self.free) != 1 or blocks < 2:
            return 1
        most = self.of_a_bank // min(self.at[self.free[0]].most, self.ctx.lanes)
        return most if -(-blocks // most) < blocks // max(self.blocks_of_a_bank, 1) else 1

    @property
    def blocks_of_a_bank(self) -> int:
        """Transposed blocks that are copied out of a bank together: as many as fit, in equal groups."""
        lanes = self.tile.lanes
        most = self.of_a_bank // min(self.at[self.free[0]].most, lanes)
        blocks = self.rows.most // lanes
        return max((n for n in range(1, blocks + 1) if blocks % n == 0 and n <= most), default=0)

    def turned_at_once(self) -> None:
        """Transpose block by block into one bank of PSUM, as many rows as it holds, and copy it out at once.

        A search may have smaller copies, every second of which ScalarE makes.
        """
        ctx, lanes, columns = self.ctx, self.ctx.lanes, self.at[self.free[0]]
        blocks, together = self.rows.most // lanes, self.blocks_of_a_bank
        if together < blocks:
            with ctx.build.tiles("g", blocks * lanes, together * lanes) as group:
                self.over(self.part, self.rows.tile(group)).turned_at_once()
            return
        most = self.of_a_bank // (blocks * lanes)
        if columns.count.value is None or columns.most % lanes:
            most = 1
        each = max(d for d in range(1, most + 1) if d == 1 or columns.most % (d * lanes) == 0) * lanes
        engines = ("", "scalar")
        pairs, rest = divmod(columns.most, len(engines) * lanes)
        what = f"engines that copy {self.access.tensor} transposed"
        is_paired = pairs > 0 and not rest
        if not is_paired or ctx.pick(what, ("VectorE", "VectorE and ScalarE")) == "VectorE":
            with ctx.build.tiles("r", columns.most, each) as rows:
                is_one = rows.most == columns.most
                self.turned_rows(Span(ZERO, columns.count, columns.most) if is_one else rows, "")
            return
        with ctx.build.loop("r", pairs) as pair:
            for n, engine in enumerate(engines):
                self.turned_rows(Span((pair * len(engines) + n) * lanes, expr(lanes), lanes), engine)

    def turned_rows(self, rows: Span, engine: str) -> None:
        """Transpose some rows, in blocks of partitions, and have an engine copy them out."""
        ctx, lanes, (free,) = self.ctx, self.ctx.lanes, self.free
        blocks, dtype = self.rows.most // lanes, tensor_type(self.source.buffer.dtype)
        psum = ctx.build.buffer("turned", (lanes, blocks, rows.most), dtype, nodes.PSUM)
        with ctx.build.tiles("r", rows.most, lanes) as inner, ctx.build.loop("b", blocks) as b:
            count = rows.count if inner.most == rows.most else inner.count
            start = self.at[free].start + rows.start + inner.start
            block = whole(lanes, self.rows.start + b * lanes)
            here = self.over(free, Span(start, count, inner.most)).over(self.part, block)
            straight = in_sbuf(ctx, fetch(ctx, here.want(free, self.part)), dtype, "straight")
            into = View(psum, (Cut(ZERO, expr(lanes)), At(b), Cut(inner.start, count)))
            ctx.build.add(nodes.Transpose(into, straight))
        every, columns = Cut(ZERO, expr(lanes)), Cut(ZERO, rows.count)
        first = (self.rows.start - self.tile.bases[self.tile.dims.index("part")]) // lanes
        place = self.at[free].start - self.tile.bases[self.axis(free)] + rows.start
        into = View(self.tile.buffer, (every, Cut(first, expr(blocks)), Cut(place, rows.count)))
        ctx.build.add(nodes.Copy(into, View(psum, (every, Cut(ZERO, expr(blocks)), columns)), engine))

    # one element per partition, in blocks

    def loaded_as_rows(self) -> bool:
        """Fill columns from rows of one block each, transposed; whether that is possible."""
        ctx, lanes, dtype = self.ctx, self.ctx.lanes, tensor_type(self.source.buffer.dtype)
        blocks, rest = divmod(self.rows.count.value or 0, lanes)
        axis = self.axis(self.part)
        is_last = axis == len(self.access.indices) - 1
        if rest or not 1 < blocks <= lanes or not is_last or not ctx.may_turn(self.source.buffer):
            return False
        hint = f"{self.access.tensor.lower()}_rows"
        rows = part_of(ctx.temporary(hint, blocks, lanes, dtype), blocks, lanes)
        source = View(self.source.buffer, self.positions, is_turned=True, folded=(axis, lanes))
        ctx.build.add(nodes.Load(rows, source))
        turn(ctx, rows, View(self.tile.buffer, (*_block(lanes, blocks), At(ZERO))), lanes)
        return True

    def dealt_out(self) -> bool:
        """Fill columns from a row on chip, transposed into one bank of PSUM; whether that is possible."""
        ctx, source, lanes = self.ctx, self.source, self.ctx.lanes
        blocks, rest = divmod(self.rows.count.value or 0, lanes)
        dtype = tensor_type(source.buffer.dtype)
        is_row = not source.is_hbm and source.buffer.memory == nodes.SBUF
        if not is_row or source.part_variable(self.access) or rest or self.rows.start.value != 0:
            return False
        if not 1 < blocks <= ctx.bank_bytes // ctx.bytes_of(dtype) or not self.tile.has_blocks:
            return False
        start = source.view(list(self.positions)).index[0]
        if not isinstance(start, Cut) or start.start.value != 0:
            return False
        psum = ctx.temporary("turned", lanes, blocks, dtype, nodes.PSUM)
        with ctx.build.loop("b", blocks) as b:
            here = self.over(self.part, whole(lanes, self.rows.start + b * lanes))
            row = in_sbuf(ctx, source.view(list(here.positions)), dtype, "straight")
            ctx.build.add(nodes.Transpose(part_of(psum, lanes, 1, b), row))
        every = _block(lanes, blocks)
        ctx.build.add(nodes.Copy(View(self.tile.buffer, (*every, At(ZERO))), View(psum, every)))
        return True


def _block(rows: int, columns: int) -> tuple[Cut, Cut]:
    """The first rows and columns of a tile."""
    return Cut(ZERO, expr(rows)), Cut(ZERO, expr(columns))
