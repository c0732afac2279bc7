"""Room on chip: what the tiles of a loop tree take at once, while they live, against what the chip has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from math import prod

from ..errors import UnsupportedError
from ..machine import Machine
from ..tiles.dtypes import as_dtype
from .tree.expr import expr
from .tree.nodes import PSUM, SBUF, Alloc, Buffer, Kernel, Loop, Statement, View

# a tile of a loop has one buffer at least; a second lets the next turn begin
BUFFERS = (2, 1)


class NoRoomError(UnsupportedError):
    """Tiles of a plan do not fit; another plan may."""


def size_of(buffer: Buffer) -> int:
    """Bytes per partition of a tile."""
    return prod(expr(e).value or 1 for e in buffer.shape[1:]) * as_dtype(buffer.dtype).storage.itemsize


def views_of(statement: Statement) -> Iterator[tuple[str, View]]:
    """The views of a statement with the names of its fields."""
    for name, value in vars(statement).items():
        if isinstance(value, View):
            yield name, value


@dataclass(frozen=True)
class Lives:
    """When the tiles of a body live."""

    length: int  # statements of the body
    tiles: tuple[tuple[Buffer, int, int], ...]  # each with the first and the last statement that uses it
    loops: dict[int, Lives]  # those of the body, by their place
    used: frozenset[int]  # all tiles that statements use, those of loops too, by identity

    def peak(self, cost: Callable[[Buffer], int], buffers: int, depth: int = 0) -> int:
        """The most that tiles which live at once take.

        Args:
            cost: of a tile.
            buffers: of each tile of a loop.
            depth: loops around the body.
        """
        change = [0] * (self.length + 1)
        for buffer, first, last in self.tiles:
            size = cost(buffer) * (buffers if depth else 1)
            change[first] += size
            change[last + 1] -= size
        inside = {n: loop.peak(cost, buffers, depth + 1) for n, loop in self.loops.items()}
        return max((inside.get(n, 0) + own for n, own in enumerate(accumulate(change))), default=0)


def lives_of(body: list[Statement]) -> Lives:
    """When the tiles of a body live, and those of its loops."""
    loops = {n: lives_of(s.body) for n, s in enumerate(body) if isinstance(s, Loop)}
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for number, statement in enumerate(body):
        used = {id(view.buffer) for _, view in views_of(statement)}
        for buffer in used | loops[number].used if number in loops else used:
            first.setdefault(buffer, number)
            last[buffer] = number
    allocated = [(n, s.buffer) for n, s in enumerate(body) if isinstance(s, Alloc)]
    tiles = tuple((b, first.get(id(b), n), last.get(id(b), n)) for n, b in allocated)
    return Lives(len(body), tiles, loops, frozenset(first))


def proved_room(kernel: Kernel, machine: Machine) -> str:
    """The sentence that says that the tiles of a tree fit, and with how many buffers.

    Raises:
        NoRoomError: if they do not fit with one buffer each.
    """
    told = []
    for what, most, buffers, needed in _needed(kernel, machine):
        if needed > most:
            raise NoRoomError(
                f"tiles of {kernel.name} take {needed} {what} at once; {machine.name} has {most}",
                hint="give smaller extents or splits, or narrower types",
            )
        many = "two buffers" if buffers == 2 else "one buffer"
        told.append(f"{needed} {what} of {most}, loops with {many} each")
    return "; ".join(told)


def buffers_that_fit(kernel: Kernel, machine: Machine) -> list[int]:
    """With how many buffers each the tiles of a tree fit into SBUF, and into PSUM; 0 if with none."""
    return [buffers if needed <= most else 0 for _, most, buffers, needed in _needed(kernel, machine)]


def _needed(kernel: Kernel, machine: Machine) -> Iterator[tuple[str, int, int, int]]:
    """Of each memory what it has, how much, with how many buffers tiles fit, and what they then take."""
    bank = int(machine["psum_bank_bytes"])
    costs: list[tuple[Callable[[Buffer], int], str, str]] = [
        (lambda b: size_of(b) if b.memory == SBUF else 0,
         "sbuf_bytes_per_partition", "bytes per partition of SBUF"),
        (lambda b: -(-size_of(b) // bank) if b.memory == PSUM else 0, "psum_banks", "banks of PSUM"),
    ]  # fmt: skip
    lives = lives_of(kernel.body)
    for cost, limit, what in costs:
        most = int(machine[limit])
        tries = [(lives.peak(cost, BUFFERS[0]), BUFFERS[0])]
        tries += [(lives.peak(cost, n), n) for n in BUFFERS[1:] if tries[0][0] > most]
        needed, buffers = tries[-1]
        yield what, most, buffers, needed
