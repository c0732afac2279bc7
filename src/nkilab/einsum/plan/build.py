"""Building a loop tree: scopes, names, loops over tiles, and statements hoisted out of loops."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeVar

from ...errors import UnsupportedError
from ...tiles.dtypes import as_dtype
from ..tree.expr import ZERO, Expr, Whole, at_most, expr, name_of
from ..tree.nodes import SBUF, Alloc, Buffer, Comment, Loop, Statement
from .given import Ran, Turn

Kept = TypeVar("Kept")
RESERVED = {"nl", "nisa", "nki", "np", "min", "max", "range", "float"}


class UnreachableError(UnsupportedError):
    """A part of a tile that no view reaches; it is a fault of ours where no mapping asks for it."""


@dataclass(frozen=True)
class Span:
    """The values of a rank variable that one tile covers."""

    start: Expr  # the first
    count: Expr  # how many
    most: int  # the largest count; 1 makes it a point

    @property
    def is_point(self) -> bool:
        """Whether it is one value."""
        return self.most == 1

    def tile(self, local: Span) -> Span:
        """A tile of it, which a loop counts from its start."""
        return Span(self.start + local.start, local.count, local.most)


def point(at: Whole) -> Span:
    """One value."""
    return Span(expr(at), expr(1), 1)


def whole(extent: int, start: Whole = 0) -> Span:
    """So many values, from the first or another one."""
    return Span(expr(start), expr(extent), extent)


@dataclass
class Scope:
    """A body of statements under construction."""

    bytes: int = 0  # of SBUF per partition that its tiles take, with their buffers
    body: list[Statement] = field(default_factory=list)  # so far
    names: set[str] = field(default_factory=set)  # loop variables and buffers that are known from here on
    cache: dict[Any, Any] = field(default_factory=dict)  # tiles that were fetched here, by what they hold
    opened: int | None = None  # place in `body` of the loop that is open; None if none is
    turn: Turn | None = None  # the loop whose body it is, if it runs over a variable


class Builder:
    """Appends statements to the innermost open scope."""

    def __init__(self, taken: set[str]) -> None:
        self.scopes = [Scope()]
        self.taken = set(taken) | RESERVED
        self.ran: list[Ran] = []
        self.loops = 0
        # tensors whose tiles in loops have no room for a second buffer
        self.single: set[str] = set()

    @property
    def depth(self) -> int:
        """Number of open loops."""
        return len(self.scopes) - 1

    @property
    def body(self) -> list[Statement]:
        """Statements of the whole tree."""
        return self.scopes[0].body

    def add(self, statement: Statement) -> None:
        """Append a statement."""
        self.scopes[-1].body.append(statement)

    def fresh(self, hint: str) -> str:
        """A name that nothing has yet, and which stays taken."""
        base = hint if hint.isidentifier() and not keyword.iskeyword(hint) else f"{hint}_"
        name, number = base, 2
        while name in self.taken:
            name, number = f"{base}{number}" if not base[-1:].isdigit() else f"{base}_{number}", number + 1
        self.taken.add(name)
        return name

    def depth_of(self, names: frozenset[str]) -> int:
        """The depth of the innermost scope that defines one of some names."""
        found = 0
        for depth, scope in enumerate(self.scopes):
            if names & scope.names:
                found = depth
        return found

    @contextmanager
    def loop(self, hint: str, trips: int, *, is_sequential: bool = False) -> Iterator[Expr]:
        """A loop; yields its variable, or 0 where it would run once and is left out."""
        with self.tiles(hint, trips, 1, is_sequential=is_sequential) as span:
            yield span.start

    def pieces(
        self, hint: str, span: Span, block: int, is_sequential: bool = False, over: str = ""
    ) -> AbstractContextManager[Span]:
        """A loop over tiles of a span, counted from its start."""
        if span.most <= block:
            return nullcontext(Span(ZERO, span.count, span.most))
        extent = span if span.count.value is None else span.count.value
        return self.tiles(hint, extent, block, is_sequential=is_sequential, over=over)

    @contextmanager
    def tiles(
        self, hint: str, extent: int | Span, block: int, *, is_sequential: bool = False, comment: str = "",
        over: str = "",
    ) -> Iterator[Span]:  # fmt: skip
        """A loop over tiles of an extent, of the variable `over`; left out where there is one tile.

        Args:
            extent: a span where loops around may know it alone.
        """
        total = extent.count if isinstance(extent, Span) and extent.count.value is None else None
        extent = extent.most if isinstance(extent, Span) else extent
        trips = -(-extent // block)
        if trips == 1:
            if comment:
                self.add(Comment(comment))
            yield whole(extent)
            return
        variable = self.fresh(hint)
        start = name_of(variable) * block
        self.loops += 1
        scope = Scope(names={variable}, turn=Turn(over, block, self.loops) if over else None)
        count_name, count = "", None
        if (extent % block or total is not None) and block > 1:
            left = extent if total is None else total
            count_name, count = self.fresh(f"{hint}_count"), at_most(block, left - start)
            scope.names.add(count_name)
        each = block if total is not None else 1
        turns = trips if total is None else (total + (block - 1)) // block
        loop = Loop(variable, turns, scope.body, is_sequential, count_name, count, comment, total, each)
        outer = self.scopes[-1]
        outer.opened = len(outer.body)
        outer.body.append(loop)
        self.scopes.append(scope)
        try:
            yield Span(start, name_of(count_name) if count_name else expr(block), block)
        finally:
            self.scopes.pop()
            if not scope.body:  # all of it is there already
                del outer.body[outer.opened]
            outer.opened = None
            # names of closed loops may be used again
            self.taken -= {variable, count_name}

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Open loops over variables, the outermost first."""
        return tuple(s.turn for s in self.scopes if s.turn is not None)

    def note(
        self, einsum: str, spans: Mapping[str, Span], part: str, over: str = "",
        statements: tuple[Statement, ...] = (),
    ) -> None:  # fmt: skip
        """Note that an Einsum is computed here."""
        covers = {v: span.most for v, span in spans.items()}
        self.ran.append(Ran(einsum, self.turns, part, over, covers, statements))

    @contextmanager
    def hoisted(self, depth: int) -> Iterator[None]:
        """Statements go to the scope of a depth, before the loop that is open there."""
        if depth >= self.depth:
            yield
            return
        held, target = self.scopes, self.scopes[depth]
        segment = Scope(0, names=target.names, cache=target.cache)
        self.scopes = [*held[:depth], segment]
        try:
            yield
        finally:
            self.scopes = held
            assert target.opened is not None
            target.body[target.opened : target.opened] = segment.body
            target.opened += len(segment.body)
            target.bytes += segment.bytes

    def once(self, key: Hashable, depth: int, make: Callable[[], Kept]) -> Kept:
        """What a scope up to a depth keeps for a key; made at that depth where none does."""
        scopes = [scope for scope in self.scopes[: depth + 1] if key in scope.cache]
        if not scopes:
            with self.hoisted(depth):
                scopes = self.scopes[-1:]
                scopes[0].cache[key] = make()
        kept: Kept = scopes[0].cache[key]
        return kept

    def buffer(
        self, hint: str, shape: tuple[Whole, ...], dtype: str, memory: str, role: str = "tile",
        tensor: str = "",
    ) -> Buffer:  # fmt: skip
        """A new buffer, made in the present scope."""
        return self.allocated(Buffer(self.fresh(hint), shape, dtype, memory, role, tensor))

    def allocated(self, made: Buffer) -> Buffer:
        """A buffer, which is there from here on."""
        self.add(Alloc(made))
        self.scopes[-1].names.add(made.name)
        self.scopes[-1].bytes += self.bytes_of(made)
        return made

    def bytes_of(self, made: Buffer) -> int:
        """Bytes of SBUF per partition that a buffer of the present scope takes, or its two."""
        if made.memory != SBUF:
            return 0
        row = prod(expr(e).value or 1 for e in made.shape[1:])
        buffers = 2 if self.depth and made.tensor not in self.single else 1
        return row * as_dtype(made.dtype).storage.itemsize * buffers

    def live_bytes(self) -> int:
        """Bytes of SBUF per partition of all tiles in open scopes; in loops with their buffers."""
        return sum(scope.bytes for scope in self.scopes)
