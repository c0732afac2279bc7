"""Sums of products over a variable that both operands have: TensorE, with that variable on the partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import product as pairs
from math import prod

from ...isa.array_tiles import ARRAY
from ..language.ast import Access, Einsum, Scalar
from ..tree import nodes
from ..tree.expr import ZERO, expr
from ..tree.nodes import Cut, View, all_of
from .batched import batch_of, lower_batch
from .beside import lower_rows, rows_beside
from .build import Span, point, whole
from .choose import is_settled
from .context import Context, part_of, tally
from .deliver import Target, deliver, targets_of
from .fetch import fetch
from .operands import Operands, masked
from .part import Parts, parts_of_sum
from .product import (
    Blocks,
    Product,
    block_sizes,
    even_tile,
    keeps_given,
    lies_turned,
    matmul_dtype,
    of_total,
    places_of,
    traffic,
    width_of,
)
from .reach import leaving
from .stack import of_stack
from .stage import stage, staged_bytes, staged_whole
from .storage import Storage, positions
from .want import Want


class Contraction:
    """Lowers one Einsum as a product."""

    def __init__(self, ctx: Context, einsum: Einsum, product: Product, outer: dict[str, Span]) -> None:
        self.ctx, self.einsum, self.product, self.outer = ctx, einsum, product, outer
        self.spans = ctx.spans(einsum, outer)
        self.dtype = matmul_dtype(ctx, product.left, product.right)
        self.lanes, self.bank, self.is_turned_by_tile = ctx.lanes, ctx.bank, False
        self.parts: Parts | None = None  # what of the moving operand stays on chip over turns
        # rows of an image that tiles of the systolic array take beside each other, and where these are
        self.panels, self.places = list[Span](), list[tuple[int, ...]]()
        # what takes the tiles of the result out of PSUM, given what they cover, if any, and where that leads
        self.ending: Callable[[dict[str, Span]], None] | None = None
        self.results = list[tuple[Access, Target]]()

    def lower(self) -> None:
        """Append the nest."""
        product, build = self.product, self.ctx.build
        self.target = Target(None, None)
        if self.ending is None:
            self.target = targets_of(self.ctx, self.einsum, self.outer, product.part or self.wanted())
        operands = Operands(self.ctx, self.einsum, product, self.spans, self.dtype)
        self.stack, self.padded = operands.stack, operands.held
        operands.stage_small(self.is_staged)
        operands.stage_padded(is_forced=not product.outer)
        self.beside, each = rows_beside(self.ctx, self.einsum, product, self.spans, self.target, self.padded)
        batch = batch_of(self) if not self.beside and self.ending is None else None
        comment = self.einsum.title
        with ExitStack() as stack:
            loops = [v for v in operands.loops(self.beside) if batch is None or v != batch.variable]
            for variable in (v for v in loops if v != self.beside):
                span = stack.enter_context(
                    build.tiles(variable, self.spans[variable].most, 1, comment=comment, over=variable)
                )
                self.spans[variable] = self.spans[variable].tile(span)
                comment = ""
                operands.stage_padded(is_forced=variable == loops[-1])
            if self.beside:
                lower_rows(self, each, comment, operands)
                return
            if comment:
                build.add(nodes.Comment(comment))
            if batch is not None:
                lower_batch(self, batch)
                return
            self.of_result()

    def wanted(self) -> str:
        """The variable of a row that its readers in the same turn have along the partitions; "" for none."""
        ctx, turns = self.ctx, {block.variable for block in self.ctx.cascade.blocks}
        is_waited_for = turns & {v for v, _ in ctx.loops} and self.einsum.name not in ctx.memories
        return ctx.wanted.get(self.einsum.name, "") if is_waited_for else ""

    def of_result(self) -> None:
        """Append the loops over blocks of the result."""
        product = self.product
        if not self.beside and not self.stack:
            self.parts = parts_of_sum(self.ctx, product, self.spans, self.dtype)
        if self.parts and product.right is not None:
            spans = {**self.spans, product.over: self.parts.stays}
            self.padded[1] = stage(self.ctx, product.right, spans, product.over, self.dtype)
            self.staged()
            self.tiles(None)
            return
        self.blocks = self.chosen_blocks()
        sides = [(product.part, self.blocks.part), (product.free, self.blocks.free)]
        self.over_blocks(sides[:: -1 if self.blocks.is_free_first else 1])

    def over_blocks(self, sides: Sequence[tuple[str, int]]) -> None:
        """Append the loops over blocks of some variables of the result, and what they hold."""
        if sides:
            for _ in self.blocks_of(*sides[0]):
                self.over_blocks(sides[1:])
        elif self.blocks.over < self.spans[self.product.over].most:
            self.in_blocks()
        else:
            self.staged()
            self.tiles(None)

    def blocks_of(self, variable: str, block: int, is_sequential: bool = False) -> Iterator[None]:
        """The blocks of a variable, in a loop; then what they leave of it, where that may be many tiles."""
        span = self.spans[variable] if variable else point(0)
        if is_settled(span, self.lanes) or block >= span.most:
            yield
            return
        rest = span.most % block if block > self.lanes else 0
        parts = [(0, span.most - rest), (span.most - rest, rest)]
        for start, extent in parts if rest else parts[:1]:
            with self.ctx.build.tiles(
                f"{variable}_block", extent, block, is_sequential=is_sequential, over=variable
            ) as local:
                self.spans[variable] = span.tile(replace(local, start=local.start + start))
                yield
        self.spans[variable] = span

    def may_be(self, blocks: Blocks, room: float, is_cut: bool) -> bool:
        """Whether the operands of blocks fit, with the sums where these are cut, and are what is given."""
        needed = self.needed(blocks.part, blocks.free, blocks.over)
        if is_cut:
            needed += -(-blocks.part // self.lanes) * blocks.free * (8 if self.ctx.build.depth else 4)
        return needed <= room and self.is_given(blocks)

    def chosen_blocks(self) -> Blocks:
        """The largest blocks whose operands fit, with the least traffic."""
        product, spans = self.product, self.spans
        part, free, over = (spans[v].most if v else 1 for v in (product.part, product.free, product.over))
        room = max(self.ctx.room() * 0.9, 4096)
        options, fewest = list[tuple[float, Blocks]](), 0
        for depth in block_sizes(self.ctx, over, self.lanes) if not self.beside else [over]:
            sizes = pairs(block_sizes(self.ctx, part, self.lanes), block_sizes(self.ctx, free, self.bank))
            fitting = (
                b for b in (Blocks(*two, depth) for two in sizes) if self.may_be(b, room, depth < over)
            )
            options += [(traffic(self.ctx, self.einsum, product, spans, b), b) for b in fitting]
            fewest = fewest or len(options)
            if len(options) > fewest + 8:
                break
        if not options:
            depth = over if self.beside else min(over, self.lanes)
            return Blocks(min(part, self.lanes), min(free, self.bank), depth)
        # sums in one piece first, then those that are cut
        uncut = sorted(options[:fewest], key=lambda o: o[0])
        cut = sorted(options[fewest:], key=lambda o: o[0])[:4]
        held = [blocks for _, blocks in (*uncut[:12], *cut)]
        first = [b for b in held if b.part < part and b.free < free]
        first = [b for b in first if self.is_given(replace(b, is_free_first=True))]
        return self.ctx.pick(
            f"blocks of {self.einsum}", [*held, *(replace(b, is_free_first=True) for b in first[:4])],
            lambda b: f"{b.part} x {b.free} x {b.over}",
        )  # fmt: skip

    def is_given(self, blocks: Blocks) -> bool:
        """Whether blocks go with the parts and the order of loops that a mapping gives."""
        tiles = [*self.tile_order(), (self.product.over, self.tile(self.product.over, self.lanes))]
        return keeps_given(self.ctx, self.einsum, self.product, blocks, tiles)

    def tile(self, variable: str, most: int) -> int:
        """Elements of a tile of TensorE along a variable."""
        return self.ctx.given.fitting([self.einsum.name], variable, most)

    def tile_order(self) -> list[tuple[str, int]]:
        """The variables of the result with the sizes of its tiles, the outer loop first."""
        product = self.product
        width = self.column_block(self.spans[product.free]) if product.free else 1
        held = {product.part: self.tile(product.part, self.lanes), product.free: width}
        order = self.ctx.given.sorted([self.einsum.name], [product.part, product.free])
        return [(v, held[v]) for v in order if v]

    def needed(self, rows: int, columns: int, depth: int) -> int:
        total = 0
        for access, own, size in (
            (self.product.left, self.product.part, rows),
            (self.product.right, self.product.free, columns),
        ):
            if not access or not self.is_staged(access, own) or leaving(self.ctx, access, self.spans):
                continue
            spans = self.block_spans(own, size, depth)
            is_once = all(spans[v].most == self.spans[v].most for v in access.variables)
            size_of = staged_bytes(self.ctx, access, spans, self.product.over, self.dtype)
            is_there = staged_whole(self.ctx, access, spans, self.product.over, self.dtype) is not None
            total += 0 if is_there else size_of * (self.buffers(access) if is_once else 2)
        return total

    def buffers(self, access: Access) -> int:
        """Buffers of what is read: one where it is brought before all loops, else two."""
        names = frozenset[str]().union(*(self.spans[v].start.names for v in access.variables))
        depths = (s.depth for s in self.ctx.storage_of(access))
        return 2 if max(self.ctx.build.depth_of(names), *depths) else 1

    def block_spans(self, own: str, size: int, depth: int) -> dict[str, Span]:
        spans = dict(self.spans)
        for variable, count in ((own, size), (self.product.over, depth)):
            if variable and not is_settled(spans[variable], self.lanes):
                spans[variable] = whole(min(count, spans[variable].most), spans[variable].start)
        return spans

    def is_staged(self, access: Access, own: str) -> bool:
        """Whether an operand is brought on chip for a whole block: it is read again, or lies otherwise."""
        chip = self.ctx.chip(access.tensor)
        if chip is None and self.tile(self.product.over, self.lanes) != self.lanes:
            return False  # what is staged lies in blocks of 128
        if chip is not None:
            q = chip.part_variable(access)
            is_right = q == self.product.over
            return not is_right or chip.buffer.dtype != self.dtype or chip.buffer.memory == nodes.PSUM
        product, spans = self.product, self.spans
        loops = [*product.inner, product.over, product.part, product.free]
        most = {product.over: self.lanes, product.part: self.lanes, product.free: self.bank}
        return prod(-(-spans[v].most // most.get(v, 1)) for v in loops if v) > 1

    def staged(self) -> None:
        """Bring operands on chip for the present block."""
        self.held = dict(self.padded)
        product = self.product
        for n, (access, own) in enumerate(((product.left, product.part), (product.right, product.free))):
            is_beside = n == 1 and self.beside and access is not None and not self.ctx.chip(access.tensor)
            if access is None or n in self.held or not (is_beside or self.is_staged(access, own)):
                continue
            if is_beside or self.fits(access):
                self.held[n] = stage(self.ctx, access, self.spans, product.over, self.dtype)
        self.is_turned_by_tile = 1 not in self.held and lies_turned(self.ctx, product.right, product.over)

    def fits(self, access: Access) -> bool:
        if staged_whole(self.ctx, access, self.spans, self.product.over, self.dtype) is not None:
            return True
        size = staged_bytes(self.ctx, access, self.spans, self.product.over, self.dtype)
        return size * self.buffers(access) <= max(self.ctx.room(), 4096)

    def in_blocks(self) -> None:
        """Sum block by block of what is summed over, in float32 on chip."""
        product, build = self.product, self.ctx.build
        rows, columns = (self.spans[v].most if v else 1 for v in (product.part, product.free))
        blocks = -(-rows // self.lanes)
        shape = (min(rows, self.lanes), blocks, columns)
        total = build.buffer(f"{self.einsum.name.lower()}_total", shape, "float32", nodes.SBUF)
        build.add(nodes.Fill(all_of(total), 0.0))
        for _ in self.blocks_of(product.over, self.blocks.over, is_sequential=True):
            self.staged()
            self.tiles(total)
        for span, column in self.result_tiles():
            view = of_total(total, span, column, self.spans, product)
            self.deliver(view, {**self.spans, **self.named(span, column)})

    def deliver(self, view: View, spans: dict[str, Span]) -> None:
        """Write a tile of the result, scaled, to where it lies."""
        product, target = self.product, self.target
        if self.ending is not None:
            return self.end(self.scaled(view), spans)
        tile = target.tile if target.tile is not None and target.tile.copies == 1 else None
        direct = target.direct(self.ctx, self.einsum, spans, product.part) if tile is not None else None
        view = self.scaled(view, direct)
        if tile is not None and view is direct:
            tile.changed()
            target = replace(target, tile=None)
        deliver(self.ctx, self.einsum, view, spans, product.part, product.free, target)

    def end(self, view: View, spans: dict[str, Span]) -> None:
        """Have a tile of the result read where it is."""
        ctx, output = self.ctx, self.einsum.output
        if len(view.buffer.shape) > len(view.cuts):
            rows, columns = (spans[v] if v else point(0) for v in (self.product.part, self.product.free))
            copy = ctx.tile(f"{output.tensor.lower()}_tile", rows, columns)
            ctx.build.add(nodes.Copy(copy, view))
            view = copy
        dims = [
            "part" if i.plain == self.product.part else "gone" if spans[i.plain].is_point else "free"
            for i in output.indices
        ]
        bases = tuple(spans[i.plain].start for i in output.indices)
        place = Storage(view.buffer, tuple(dims), bases, depth=ctx.build.depth)
        ctx.storages.setdefault(output.tensor, []).insert(0, place)
        assert self.ending is not None
        self.ending({**self.outer, **{v: spans[v] for v in output.variables}})
        ctx.storages[output.tensor].remove(place)

    def named(self, rows: Span, columns: Span) -> dict[str, Span]:
        return {v: s for v, s in ((self.product.part, rows), (self.product.free, columns)) if v}

    def result_tiles(self, columns: int = 0) -> Iterator[tuple[Span, Span]]:
        """Tiles of the present block of the result, in loops; of so many columns, if that is told."""
        product, spans = self.product, self.spans
        tiles = {**spans, "": point(0)}
        order = [(v, columns if columns and v == product.free else b) for v, b in self.tile_order()]
        with ExitStack() as stack:
            for variable, block in ((v, b) for v, b in order if spans[v].most > b):
                local = stack.enter_context(
                    self.ctx.build.pieces(variable, spans[variable], block, over=variable)
                )
                tiles[variable] = spans[variable].tile(local)
            yield tiles[product.part], tiles[product.free]

    def column_block(self, columns: Span) -> int:
        """Columns of a tile of the result: a bank of PSUM; less where what is turned would be ragged."""
        width = self.bank
        if columns.most > self.bank and columns.most % self.bank:
            if not self.is_straight():
                width = self.lanes
            elif self.is_turned_by_tile:
                width = even_tile(self.ctx, columns.most)
        return self.tile(self.product.free, width)

    def is_straight(self) -> bool:
        part, free = self.product.part, self.product.free
        for output, target in self.results or [(self.einsum.output, self.target)]:
            order = [v for i in output.indices for v in i.variables]
            if target.tile is not None and target.tile.part_variable(output) != part:
                return False
            if target.hbm is not None and part and free and order.index(part) > order.index(free):
                return False
        return True

    def abreast(self) -> tuple[list[tuple[int, ...]], int]:
        """Places on the systolic array of products beside each other, and the columns of each; 0 for all."""
        columns = self.spans[self.product.free] if self.product.free else point(0)
        is_bound = self.ending or self.beside or self.stack or self.ctx.given.is_watched
        if is_bound or self.einsum.name in self.ctx.memories or columns.count.value is None:
            return self.places if len(self.places) > 1 else [], 0
        places = places_of(self.ctx, self.product.part, self.spans)
        width = width_of(self.ctx, places, columns.most)
        return (places, width) if width else ([], 0)

    def tiles(self, total: nodes.Buffer | None) -> None:
        """One tile of the result, or some beside each other, after the other."""
        places, width = self.abreast()
        for rows, columns in self.result_tiles(width * len(places)):
            named = self.named(rows, columns)
            panels = [{**named, self.beside: panel} for panel in self.panels] or [named]
            if width:
                spans = (columns.tile(whole(width, expr(n * width))) for n in range(len(places)))
                panels = [self.named(rows, span) for span in spans]
            for psum, panel in zip(self.summed(panels, places, total is None), panels, strict=True):
                self.finished(psum, panel, total)

    def finished(self, psum: View, panel: dict[str, Span], total: nodes.Buffer | None) -> None:
        """Write a tile of the result to where it lies, or add it to what blocks of the sum came to."""
        tile = self.target.tile
        if tile is not None and tile.buffer is psum.buffer:
            return
        if total is None:
            self.deliver(psum, {**self.spans, **panel})
            return
        rows, columns = (panel.get(v, point(0)) for v in (self.product.part, self.product.free))
        view = of_total(total, rows, columns, self.spans, self.product)
        self.ctx.build.add(nodes.Combine(view, view, "add", psum))
        self.tally(view, self.spans)

    def summed(
        self, panels: Sequence[dict[str, Span]], places: Sequence[tuple[int, ...]], is_whole: bool
    ) -> list[View]:
        """The products of tiles, accumulated in PSUM: where the result stays, if the sum is not cut."""
        tile, spans = self.target.tile, [{**self.spans, **panel} for panel in panels]
        if is_whole and tile is not None and tile.buffer.memory == nodes.PSUM:
            views = [tile.view(positions(self.einsum.output, spans[0]))]
            tile.changed()
        else:
            views = [self.sum_of(s, at) for s, (_, at) in zip(spans, places or [(0, 0)], strict=True)]
        self.accumulated(views, spans, places)
        return views

    def sum_of(self, covered: dict[str, Span], first: int = 0) -> View:
        """A new tile of PSUM, from a partition on."""
        hint = f"{self.einsum.name.lower()}_sum"
        rows, columns = (covered[v] if v else point(0) for v in (self.product.part, self.product.free))
        spans = (rows, *([covered[self.beside]] if self.beside else []), columns)
        shape = (first + rows.most, *(s.most for s in spans[1:]))
        psum = self.ctx.build.buffer(hint, shape, "float32", nodes.PSUM, "sum")
        return View(psum, (Cut(expr(first), rows.count), *(Cut(ZERO, s.count) for s in spans[1:])))

    def accumulated(
        self, views: Sequence[View], every: Sequence[dict[str, Span]], places: Sequence[tuple[int, ...]] = ()
    ) -> None:
        """Add products up in tiles of PSUM, which each cover their spans."""
        build, spans = self.ctx.build, every[0]
        with ExitStack() as stack:
            inner = dict[str, Span]()
            for variable, each in self.inner():
                turns = build.tiles(variable, spans[variable].most, each, is_sequential=True, over=variable)
                inner[variable] = stack.enter_context(turns)
            carried = self.ctx.carried(self.einsum, self.outer)
            running = [n for v in carried for n in sorted(self.outer[v].start.names)]
            running += [name for span in inner.values() for name in span.start.names]
            covered = [{**own, **inner} for own in every]
            if self.parts is None:
                self.add_products(views, covered, places, running, spans[self.product.over])
                return
            step = stack.enter_context(build.loop("part", self.parts.steps, is_sequential=True))
            for part, is_late in zip(self.parts.of(step), (False, True), strict=True):
                self.add_products(views, covered, places, [*running, *step.names], part, is_late)

    def add_products(
        self, views: Sequence[View], every: Sequence[dict[str, Span]], places: Sequence[tuple[int, ...]],
        running: list[str], part: Span, is_late: bool = False,
    ) -> None:  # fmt: skip
        """Add products of a part of the sum up, in loops over others; a late one is brought on chip there."""
        product, build, over = self.product, self.ctx.build, self.product.over
        with build.pieces(over, part, self.tile(over, self.lanes), True, over) as local:
            running = [*running, *local.start.names]
            every = [{**own, over: part.tile(local)} for own in every]
            self.held |= self.padded
            if is_late and product.right is not None:
                first, count = every[0][product.free], sum(own[product.free].most for own in every)
                columns = {product.free: replace(first, count=expr(count), most=count)}
                self.held[1] = stage(self.ctx, product.right, {**every[0], **columns}, over, self.dtype)
            stationary = self.operand(0, product.left, product.part, every[0])
            size = (ARRAY, ARRAY // len(places)) if places else ()
            for view, covered, at in zip(views, every, places or [()], strict=True):
                moving = self.operand(1, product.right, product.free, covered)
                build.add(nodes.MatMul(view, stationary, moving, tuple(running), at, size, is_late))
                build.note(self.einsum.name, covered, product.part, over)
                self.tally(view, covered)

    def inner(self) -> list[tuple[str, int]]:
        """Variables of the loops in which a sum runs, and how many of their values go at once."""
        if self.stack is None:
            return [(v, 1) for v in self.product.inner]
        held = {self.stack.more: self.stack.each}
        return [(v, held.get(v, 1)) for v in self.product.inner if v != self.stack.variable]

    def tally(self, into: View, spans: dict[str, Span]) -> None:
        """Note what was added to a sum: of all values those of `spans`, of a block those of its part."""
        carried = self.ctx.carried(self.einsum, self.outer)
        every = self.ctx.spans(self.einsum, {v: s for v, s in self.outer.items() if v not in carried})
        if into.buffer.memory == nodes.PSUM and not carried:
            every = {**every, self.product.over: self.spans[self.product.over]}
        self.ctx.build.add(tally(self.ctx, self.einsum, into, spans, every))

    def operand(self, n: int, access: Access | None, own: str, spans: dict[str, Span]) -> View:
        ctx, over = self.ctx, spans[self.product.over]
        if access is None:
            return part_of(ctx.constant(1.0, self.dtype), over.count, 1)
        if self.stack is not None:
            copies = expr(spans[self.stack.variable].most)
            first = {**spans, self.stack.variable: point(0)}
            if self.stack.more:
                copies = spans[self.stack.more].count * spans[self.stack.variable].most
                first[self.stack.more] = point(spans[self.stack.more].start)
            return of_stack(fetch(ctx, Want(access, first, self.product.over, own, self.held[n])), copies)
        want = Want(access, spans, self.product.over, own, self.held.get(n))
        view = fetch(ctx, want)
        if view.buffer.dtype != self.dtype:
            columns = Span(ZERO, view.cuts[1].count, spans[own].most if own else 1)
            cast = ctx.tile(f"{access.tensor.lower()}_cast", over, columns, self.dtype)
            ctx.build.add(nodes.Copy(cast, view))
            view = cast
        wide = {v for v, s in self.spans.items() if not s.is_point}
        return masked(ctx, self.einsum, self.product, own, view, spans, wide)

    def scaled(self, view: View, direct: View | None = None) -> View:
        """The result times scalars of the expression, the last product where it may lie at once."""
        scalars = [o for o in self.einsum.operands if isinstance(o, Scalar)]
        for scalar in scalars:
            rows, columns = (int(str(view.buffer.shape[axis])) for axis in (0, -1))
            tile = self.ctx.temporary(f"{self.einsum.name.lower()}_scaled", rows, columns)
            place = part_of(tile, view.cuts[0].count, view.cuts[1].count)
            if direct is not None and scalar is scalars[-1]:
                place = direct
            self.ctx.build.add(nodes.Scale(place, view, "multiply", self.ctx.number(scalar)))
            view = place
        return view
