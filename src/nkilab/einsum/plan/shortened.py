"""Loops over columns that comparisons of indices rule out, made shorter (`masks.py` says by how much)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..room import views_of
from ..tree import nodes
from ..tree.along import floored, partners
from ..tree.expr import ZERO, Expr, at_most, expr, name_of
from ..tree.nodes import At, Buffer, Cut, Loop, Select, Statement, Tally, View
from ..tree.rewrite import Change, copied
from .masks import RESULTS, Bound, Mask, Unfit, factor


def without_ruled_out(kernel: nodes.Kernel, lanes: int, fresh: Callable[[str], str]) -> list[str]:
    """Cut the loops of a kernel in place; what was done, for the report."""
    notes: list[str] = []
    done: list[Loop] = []
    every = [(s, loops) for s, loops in nodes.walked(kernel.body) if isinstance(s, Loop)]
    for loop, around in every:
        selects = [s for s in nodes.statements(loop.body) if isinstance(s, Select)]
        is_decided = any(loop.variable in s.offset.names for s in selects)
        if not is_decided or any(one is other for one in around for other in done):
            continue
        try:
            shorter = Shortened(Mask(kernel, loop, around, lanes), fresh).loop()
        except Unfit:
            continue
        body = around[-1].body if around else kernel.body
        body[next(n for n, s in enumerate(body) if s is loop)] = shorter
        done.append(loop)
        notes.append(f"turns of {loop.variable} go through what comparisons leave, and no more")
    return notes


@dataclass(frozen=True)
class Piece:
    """Positions that an iteration goes through, as the plan has it and as it will be."""

    start: Expr
    count: Expr
    new_start: Expr
    new_count: Expr


class Shortened:
    """A loop with less to do."""

    def __init__(self, mask: Mask, fresh: Callable[[str], str]) -> None:
        self.mask, self.fresh = mask, fresh
        self.low, self.count, self.extent = mask.low, mask.high - mask.low, expr(mask.extent)
        # columns of an iteration about in the middle
        self.share = int(sum(mask.range_of(self.count))) // 2

    def loop(self) -> Loop:
        """It."""
        whole = Piece(ZERO, self.extent, self.low, self.count)
        body = self.body(self.mask.loop.body, [whole], ())
        most = int(self.mask.range_of(self.count)[1])
        # of two loops the ends alone are looked at, and a window is widest between them
        is_less = most < self.mask.extent and len(self.count.names) == 1
        return replace(self.mask.loop, body=self.fitted(body, most) if is_less else body)

    def fitted(self, body: list[Statement], most: int) -> list[Statement]:
        """Statements with tiles of as many columns as an iteration goes through at most, not of all."""
        views = [v for s in nodes.statements(body) for _, v in views_of(s)]
        odd = {id(v.buffer) for v in views if len(v.index) != len(v.buffer.shape) or v.has_parts}
        tiles, moved = dict[int, Buffer](), dict[int, tuple[int, Expr]]()
        for tile in (s.buffer for s in nodes.statements(body) if isinstance(s, nodes.Alloc)):
            along = self.mask.where[id(tile)] if id(tile) in self.mask.shorter - odd else None
            each = max(along.lanes, 1) if along else 1
            if along is None or along.axis is None or tile.shape[along.axis] != self.mask.extent // each:
                continue
            shape = (*tile.shape[: along.axis], most // each, *tile.shape[along.axis + 1 :])
            tiles[id(tile)] = replace(tile, shape=shape)
            moved[id(tile)] = along.axis, floored(self.low, each)

        def view(one: View) -> View:
            if id(one.buffer) not in tiles:
                return one
            (axis, low), index = moved[id(one.buffer)], [*one.index]
            place = index[axis]
            at = At(place.at - low) if isinstance(place, At) else replace(place, start=place.start - low)
            return replace(one, buffer=tiles[id(one.buffer)], index=(*index[:axis], at, *index[axis + 1 :]))

        return copied(body, Change({}, view, tiles))

    def body(self, body: list[Statement], pieces: list[Piece], loops: tuple[Loop, ...]) -> list[Statement]:
        """Statements of an iteration."""
        statements: list[Statement] = []
        before: Statement = nodes.Comment("")
        for s in body:
            if isinstance(s, Tally):
                statements.append(self.tally(s, before, pieces))
                continue
            if isinstance(s, Loop):
                statements.append(self.inner(s, pieces, loops))
            elif isinstance(s, nodes.Alloc | nodes.Comment) or not self.mask.positions(s):
                statements.append(s)
            elif isinstance(s, Select):
                statements.append(self.select(s, pieces, loops))
            else:
                statements.append(replace(s, **self.views(s, pieces)))
            before = s if not isinstance(s, nodes.Alloc | nodes.Comment) else before
        return statements

    def views(self, s: Statement, pieces: list[Piece]) -> dict[str, View]:
        """The operands of a statement that go along, as far as they are kept."""
        views = {}
        for name, (view, along) in self.mask.positions(s).items():
            piece = _of(pieces, along.start(view), along.count(view))
            # what is new for the columns of an iteration begins where they do
            is_moved = along.base.names - self.mask.names
            moved = ZERO if is_moved else piece.new_start - piece.start
            views[name] = along.part(view, moved, piece.new_count)
        return views

    def inner(self, loop: Loop, pieces: list[Piece], loops: tuple[Loop, ...]) -> Loop:
        """A loop inside, over the columns or not."""
        around, within = (*loops, loop), [*nodes.walked(loop.body)]
        starts = [a.start(v) for s, _ in within for v, a in self.mask.positions(s).values()]
        steps = {factor(start, loop.variable) for start in starts}
        if steps <= {0}:
            return replace(loop, body=self.body(loop.body, pieces, around))
        each, variables = max(steps), {loop.variable, *(e.variable for _, inner in within for e in inner)}
        bases = {start.replaced(dict.fromkeys(variables, ZERO)) for start in starts}
        parent, trips = pieces[-1], expr(loop.trips).value or 0
        is_through = -each < (parent.count.value or 0) - trips * each <= 0
        if len(steps) > 1 or bases != {parent.start} or not is_through or not self.may_be_shorter(loop):
            raise Unfit
        begun, is_even = name_of(loop.variable) * each, each == self.mask.lanes
        name = "" if is_even else loop.count_name or self.fresh(f"{loop.variable}_count")
        before = name_of(loop.count_name) if loop.count_name else expr(each)
        after = expr(each) if is_even else name_of(name)
        piece = Piece(parent.start + begun, before, parent.new_start + begun, after)
        return replace(
            loop, trips=floored(parent.new_count + (each - 1) * (not is_even), each), total=parent.new_count,
            each=each, usual=-(-trips * self.share // self.mask.extent), count_name=name,
            count=None if is_even else at_most(each, parent.new_count - begun),
            body=self.body(loop.body, [*pieces, piece], around),
        )  # fmt: skip

    def may_be_shorter(self, loop: Loop) -> bool:
        """Whether iterations whose columns are all ruled out do nothing that outlives them."""
        own = {id(s.buffer) for s in nodes.statements(loop.body) if isinstance(s, nodes.Alloc)}
        statements = [s for s in nodes.statements(loop.body) if not isinstance(s, Tally)]
        written = [(s, id(v.buffer)) for s in statements for n, v in views_of(s) if n in RESULTS]
        passing = own | self.mask.shorter
        return all(b in passing or self.mask.adds_nothing(s, loop) for s, b in written)

    # comparisons

    def select(self, s: Select, pieces: list[Piece], loops: Sequence[Loop]) -> Select:
        """A comparison over what is kept; in place, over what it does not keep on all partitions."""
        along, bound = self.mask.where[id(s.dst.buffer)], self.mask.bound_of(s, loops)
        piece, views = _of(pieces, along.start(s.dst), along.count(s.dst)), self.views(s, pieces)
        start, left = piece.new_start, s.left
        if s.dst == s.src and len(pieces) == 1 and bound is not None:
            start, count = self.deciding(bound)
            views["dst"] = views["src"] = along.part(s.dst, start - along.start(s.dst), count)
        if bound is not None:
            high = self.low + self.count
            first, last = (high, self.extent) if bound.is_end else (ZERO, self.low)
            low, end = self.mask.ends_of((bound,))
            # of several comparisons another one may rule out more
            is_out = self.mask.range_of(high - end if bound.is_end else low - self.low)[0] >= 0
            left = (Cut(first - start, last - first),) if first != last and is_out else ()
        offset = s.offset + (start - piece.start) * s.per_element
        return replace(s, dst=views["dst"], src=views.get("src", s.src), offset=offset, left=left)

    def deciding(self, bound: Bound) -> tuple[Expr, Expr]:
        """The columns that a comparison keeps on some partitions only, in whole blocks: start and count."""
        mask, (first, last) = self.mask, (bound.all, bound.any) if bound.is_end else (bound.any, bound.all)
        width, count = (mask.rounded(last, True) - mask.rounded(first, False)).value, self.count
        if width and width > 0:
            count = expr(width) if mask.range_of(count)[0] >= width else at_most(width, count)
        return self.low + self.count - count if bound.is_end else self.low, count

    # sums

    def tally(self, tally: Tally, before: Statement, pieces: list[Piece]) -> Tally:
        """What is noted of a sum over the columns."""
        views = self.mask.positions(before)
        is_sum = not views and len(pieces) > 1 and isinstance(before, nodes.Combine)
        if isinstance(before, nodes.Activate) and before.total is not None:
            is_sum = bool(views) and tally.into.buffer is before.total.buffer
        elif views:
            pairs = (partners(before, n, a, v) for n, (v, a) in views.items() if n != "dst")
            is_sum = not any(other == "dst" for every in pairs for other, _ in every)
        added = tuple(self.added(one, pieces) for one in tally.added) if is_sum else tally.added
        return replace(tally, into=self.views(tally, pieces).get("into", tally.into), added=added)

    def added(self, one: nodes.Summed, pieces: list[Piece]) -> nodes.Summed:
        """Values of one variable of a sum."""
        ends = (one.start, one.count), (one.whole_start, one.whole_count)
        own, whole = (next((p for p in pieces[::-1] if (p.start, p.count) == end), None) for end in ends)
        if own is None or whole is None:
            return one
        return replace(
            one, start=own.new_start, count=own.new_count, whole_start=whole.new_start,
            whole_count=whole.new_count, all_start=self.low, all_count=self.count,
        )  # fmt: skip


def _of(pieces: list[Piece], start: Expr, count: Expr) -> Piece:
    """The piece that has some positions."""
    piece = next((p for p in pieces[::-1] if (p.start, p.count) == (start, count)), None)
    if piece is None:
        raise Unfit
    return piece
