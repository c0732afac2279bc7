"""Operands that lie turned in HBM: loaded as they lie, many rows at once, and transposed bank by bank.

A transfer costs as much to issue as half a microsecond of moving bytes, and every instruction an overhead. So
whole blocks of rows come at once, and what TensorE transposes fills a bank of PSUM before it is copied out.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from ..language.ast import Affine
from ..tree import nodes
from ..tree.expr import ZERO, Expr, expr
from ..tree.nodes import At, Cut, View, all_of
from .build import Span, whole
from .context import Context, tensor_type
from .storage import Storage, positions
from .want import Want


def turned_in_bulk(ctx: Context, want: Want, storage: Storage, into: Callable[[Span, Span], View]) -> bool:
    """Bring what is wanted on chip transposed; whether that is possible.

    Args:
        want: `part`, along the last axis of the tensor, goes to the partitions, `free` to the columns; both
            are at most one block of partitions or whole blocks.
        storage: where it lies in HBM.
        into: the place of a block of `part` and several of `free`.
    """
    plan = _Bulk(ctx, want, storage, into)
    if not plan.is_possible:
        return False
    plan.lower()
    return True


def is_turned_in_bulk(ctx: Context, want: Want, storage: Storage) -> bool:
    """Whether what is wanted may be brought on chip transposed, many rows at once."""
    return _Bulk(ctx, want, storage, lambda _, __: View(storage.buffer, ())).is_possible


def turned_in_psum(ctx: Context, want: Want, storage: Storage) -> View | None:
    """What is wanted as a transposed tile in PSUM, if it fits into one bank; None if it does not."""
    plan = _Bulk(ctx, want, storage, lambda _, __: View(storage.buffer, ()))
    if not plan.is_possible or plan.columns.most > ctx.lanes or plan.rows.most * plan.size > ctx.bank_bytes:
        return None
    straight = plan.loaded(*(whole(s.most) for s in (plan.rows, plan.columns)))
    height, blocks = plan.columns.most, plan.rows.most // ctx.lanes
    return plan.bank(straight, ZERO, ZERO, height, blocks)


class _Bulk:
    def __init__(
        self, ctx: Context, want: Want, storage: Storage, into: Callable[[Span, Span], View]
    ) -> None:
        self.ctx, self.want, self.storage, self.into = ctx, want, storage, into
        self.dtype = tensor_type(storage.buffer.dtype)
        self.size = ctx.bytes_of(self.dtype)
        self.rows, self.columns = want.columns, want.rows

    @property
    def is_possible(self) -> bool:
        """Whether both axes come in whole blocks, one step apart, and more than one block does."""
        want, counts = self.want, [self.rows.count.value, self.columns.count.value]
        if not self.ctx.may_turn(self.storage.buffer) or self.storage.buffer.role == "scratch":
            return False
        pair, last = (want.part, want.free), len(want.access.indices) - 1
        axes = [want.access.axis_of(v) for v in pair]
        indices = [want.access.indices[n] for n in axes if n is not None]
        steps = [i.coefficient(v) for i, v in zip(indices, pair) if isinstance(i, Affine)]
        if steps != [1, 1] or axes[0] != last or axes[1] == last:
            return False
        if any(c is None for c in counts) or self.rows.most % self.ctx.lanes:
            return False
        columns = self.columns.most
        return (columns <= self.ctx.lanes or columns % self.ctx.lanes == 0) and max(
            self.rows.most, columns
        ) > self.ctx.lanes

    def lower(self) -> None:
        """Transfers of up to a mebibyte, and what is made of each."""
        most = max(self.ctx.knobs.transfer_bytes // self.ctx.lanes, self.size * self.ctx.lanes)
        width = _largest(self.columns.most, self.ctx.lanes, most // self.size)
        blocks = _largest(self.rows.most // self.ctx.lanes, 1, most // (width * self.size))
        build, want = self.ctx.build, self.want
        with ExitStack() as stack:
            tiles = []
            for span, block, hint in (
                (self.rows, blocks * self.ctx.lanes, want.free), (self.columns, width, want.part)
            ):  # fmt: skip
                local = stack.enter_context(build.tiles(hint, span.most, block))
                tiles.append(whole(block, local.start))
            self.transposed(*tiles)

    def transposed(self, rows: Span, columns: Span) -> None:
        """One transfer, its blocks transposed into banks of PSUM, and these copied out."""
        build = self.ctx.build
        straight = self.loaded(rows, columns)
        height = min(columns.most, self.ctx.lanes)
        held = self.ctx.bank_bytes // (self.ctx.lanes * self.size)
        along = _largest(rows.most // self.ctx.lanes, 1, held)
        with ExitStack() as stack:
            block = stack.enter_context(build.tiles("b", columns.most, height))
            group = stack.enter_context(build.tiles("g", rows.most, along * self.ctx.lanes))
            done = self.bank(straight, block.start, group.start, height, along)
            place = self.into(
                whole(height, columns.start + block.start),
                whole(along * self.ctx.lanes, rows.start + group.start),
            )
            build.add(nodes.Copy(place, done))

    def bank(self, straight: nodes.Buffer, column: Expr, row: Expr, height: int, blocks: int) -> View:
        """Blocks of 128 rows of some columns, transposed side by side into one bank of PSUM."""
        build = self.ctx.build
        psum = build.buffer("turned", (height, blocks * self.ctx.lanes), straight.dtype, nodes.PSUM)
        with build.loop("r", blocks) as r:
            place = [At(row // self.ctx.lanes + r)] if len(straight.shape) == 3 else []
            source = View(straight, (Cut(ZERO, expr(self.ctx.lanes)), *place, Cut(column, expr(height))))
            dst = View(psum, (Cut(ZERO, expr(height)), Cut(r * self.ctx.lanes, expr(self.ctx.lanes))))
            build.add(nodes.Transpose(dst, source))
        return all_of(psum)

    def loaded(self, rows: Span, columns: Span) -> nodes.Buffer:
        """Rows as they lie, in blocks of 128."""
        want, build = self.want, self.ctx.build
        blocks = rows.most // self.ctx.lanes
        shape = (self.ctx.lanes, blocks, columns.most) if blocks > 1 else (self.ctx.lanes, columns.most)
        hint = f"{want.access.tensor.lower()}_rows"
        tile = build.buffer(hint, shape, self.dtype, nodes.SBUF)
        spans = {**want.spans, want.free: self.rows.tile(rows), want.part: self.columns.tile(columns)}
        at = positions(want.access, spans)
        axis = want.access.axis_of(want.free)
        folded = (axis, self.ctx.lanes) if blocks > 1 and axis is not None else None
        build.add(nodes.Load(all_of(tile), View(self.storage.buffer, tuple(at), folded=folded)))
        return tile


def _largest(extent: int, unit: int, most: int) -> int:
    """The largest part of an extent, in whole units, that divides it and is at most so much, or a unit."""
    if extent <= max(most, unit):
        return extent
    units = extent // unit
    return max((d for d in range(1, units + 1) if units % d == 0 and d * unit <= most), default=1) * unit
