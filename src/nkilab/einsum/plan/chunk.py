"""Several blocks of partitions per transfer, where a nest would load or store little for each block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ..language.ast import Access, Affine, Einsum
from ..tree import nodes
from ..tree.expr import ZERO
from ..tree.nodes import Cut, View, all_of
from .build import Span, whole
from .choose import Choice
from .context import Context
from .deliver import Target
from .reach import leaving
from .stage import extents_of, stage
from .storage import Storage, positions

# bytes of a block from which it is worth a transfer of its own
WORTH = 128 * 1024


@dataclass
class Chunks:
    """What a nest loads and stores for several blocks at once.

    Args:
        ctx: the plan.
        choice: how the nest runs.
        blocks: of 128 partitions that one transfer covers.
        loaded: operands.
        stored: Einsums whose results go to HBM.
    """

    ctx: Context
    choice: Choice
    blocks: int
    loaded: Sequence[Access]
    stored: Sequence[Einsum]

    @contextmanager
    def turns(
        self, spans: dict[str, Span], staged: dict[str, Storage], targets: dict[str, Target], comment: str
    ) -> Iterator[None]:
        """Loops over chunks and over their blocks; `spans`, `staged` and `targets` are those of a block."""
        build, part, before, kept = self.ctx.build, self.choice.part, spans[self.choice.part], dict(targets)
        size = self.blocks * self.ctx.lanes
        with build.tiles(part, before.most, size, comment=comment, over=part) as chunk:
            start = before.start + chunk.start
            spans[part] = whole(size, start)
            for access in self.loaded:
                dtype = self.ctx.dtypes[access.tensor]
                staged[str(access)] = stage(self.ctx, access, spans, part, dtype)
            made = [self.made(einsum, spans) for einsum in self.stored]
            targets |= {e.name: Target(tile, None) for e, tile in zip(self.stored, made, strict=True)}
            every = dict(spans)
            with build.tiles(part, size, self.ctx.lanes, over=part) as block:
                spans[part] = whole(self.ctx.lanes, start + block.start)
                yield
            for einsum, tile in zip(self.stored, made, strict=True):
                self.store(einsum, tile, every, kept[einsum.name].hbm)
        spans[part] = before
        targets |= kept

    def made(self, einsum: Einsum, spans: dict[str, Span]) -> Storage:
        """A tile for the results of a chunk."""
        axes = extents_of(einsum.output, _written(einsum, spans), self.choice.part)
        dtype, hint = self.ctx.dtypes[einsum.name], f"{einsum.name.lower()}_rows"
        return self.ctx.add_tile(einsum.name, axes, dtype, hint)

    def store(self, einsum: Einsum, tile: Storage, spans: dict[str, Span], hbm: Storage | None) -> None:
        """Store the results of a chunk."""
        assert hbm is not None
        axis = next(a for a, i in enumerate(einsum.output.indices) if self.choice.part in i.variables)
        at = positions(einsum.output, _written(einsum, spans))
        source = all_of(tile.buffer)
        if (
            len(source.cuts) > 2
            and source.cuts[-1].count.value == 1
            and len([i for i in at if isinstance(i, Cut)]) == 1
        ):
            source = View(tile.buffer, (*source.index[:-1], nodes.At(ZERO)))
        self.ctx.build.add(nodes.Store(View(hbm.buffer, tuple(at), folded=(axis, self.ctx.lanes)), source))
        hbm.changed()


def chunks_of(
    ctx: Context,
    einsums: Sequence[Einsum],
    targets: dict[str, Target],
    choice: Choice,
    spans: dict[str, Span],
    staged: dict[str, Storage],
) -> Chunks | None:
    """What a nest loads and stores in chunks; None if every block is worth its own transfers."""
    part, span = choice.part, spans.get(choice.part)
    if not part or span is None or choice.block(part) != ctx.lanes or choice.loops:
        return None
    if (
        span.count.value != span.most
        or span.most % ctx.lanes
        or span.most == ctx.lanes
        or any(part in e.reduced for e in einsums)
    ):
        return None
    loaded = _loaded(ctx, einsums, choice, spans, staged)
    # a column per block takes so little room that all of it is brought on chip before the loops
    for name, access in list(loaded.items()):
        if choice.free not in access.variables and span.most // ctx.lanes <= ctx.lanes:
            staged[name] = stage(ctx, loaded.pop(name), spans, part, ctx.dtypes[access.tensor])
    stored = [
        e for e in einsums
        if e.name in targets and targets[e.name].tile is None and not e.condition
        and _is_small(ctx, e.output, choice, spans, is_out=True)
    ]  # fmt: skip
    if not loaded and not stored:
        return None
    row = sum(_row_bytes(ctx, a, choice, spans) for a in (*loaded.values(), *(e.output for e in stored)))
    blocks = span.most // ctx.lanes
    most = min(ctx.knobs.transfer_bytes // ctx.lanes, int(max(ctx.room(), 0) * 0.2))
    each = max((d for d in range(1, blocks + 1) if blocks % d == 0 and d * row <= most), default=1)
    return Chunks(ctx, choice, each, list(loaded.values()), stored) if each > 1 else None


def _written(einsum: Einsum, spans: dict[str, Span]) -> dict[str, Span]:
    """Spans of what an Einsum writes: a scan that begins with a value of its own writes that too."""
    kind = einsum.recurrence
    if kind is None or not kind.has_first:
        return spans
    span = spans[kind.variable]
    start = span.start if kind.is_descending else span.start - 1
    return {**spans, kind.variable: Span(start, span.count + 1, span.most + 1)}


def _loaded(
    ctx: Context,
    einsums: Sequence[Einsum],
    choice: Choice,
    spans: dict[str, Span],
    staged: dict[str, Storage],
) -> dict[str, Access]:
    """Operands of which a block is little, and that are not on chip yet."""
    made = {e.name for e in einsums}
    return {
        str(a): a
        for e in einsums
        for a in e.accesses
        if a.tensor not in made and str(a) not in staged and _is_small(ctx, a, choice, spans)
    }


def _row_bytes(ctx: Context, access: Access, choice: Choice, spans: dict[str, Span]) -> int:
    columns = spans[choice.free].most if choice.free in access.variables else 1
    return columns * ctx.bytes_of(ctx.dtypes[access.tensor])


def _is_small(
    ctx: Context, access: Access, choice: Choice, spans: dict[str, Span], is_out: bool = False
) -> bool:
    """Whether an operand in HBM, or a result, lies straight and a block of it is little."""
    held = ctx.storages.get(access.tensor, ())
    if (
        access.gathers
        or any(v in ctx.turns for v in access.variables)
        or not held
        or (not is_out and not all(s.is_hbm for s in held))
    ):
        return False
    if not all(isinstance(i, Affine) and len(i.variables) <= 1 for i in access.indices):
        return False
    wide = [i for i in access.indices for v in i.variables if not spans[v].is_point]
    names = [v for i in wide if isinstance(i, Affine) for v, c in i.terms if c == 1]
    if names not in ([choice.part], [choice.part, choice.free]) or wide[-1] is not access.indices[-1]:
        return False
    if choice.free in names and spans[choice.free].count.value != spans[choice.free].most:
        return False
    if choice.free in names and 0 < choice.block(choice.free) < spans[choice.free].most:
        return False
    return not leaving(ctx, access, spans) and _row_bytes(ctx, access, choice, spans) * ctx.lanes < WORTH
