"""Room on chip: what the tiles of a loop tree take at once, while they live, against what the chip has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from math import prod

from ..errors import UnsupportedError
from ..machine import Machine
from ..tiles.dtypes import as_dtype
from .tree.expr import expr
from .tree.nodes import PSUM, SBUF, Alloc, Buffer, Kernel, Loop, Statement, View, statements

# a tile of a loop has one buffer at least; a second lets the next turn begin
BUFFERS = (2, 1)


class NoRoomError(UnsupportedError):
    """Tiles of a plan do not fit; another plan may."""


def size_of(buffer: Buffer) -> int:
    """Bytes per partition of a tile."""
    return prod(expr(e).value or 1 for e in buffer.shape[1:]) * as_dtype(buffer.dtype).storage.itemsize


def views_of(statement: Statement) -> Iterator[tuple[str, View]]:
    """The views of a statement with the names of its fields."""
    for field in fields(statement):
        value = getattr(statement, field.name)
        if isinstance(value, View):
            yield field.name, value


def peak(body: list[Statement], cost: Callable[[Buffer], int], buffers: int, depth: int = 0) -> int:
    """The most that tiles which live at once take.

    Args:
        body: statements in order.
        cost: of a tile.
        buffers: of each tile of a loop.
        depth: loops around the body.
    """
    uses = [{id(view.buffer) for s in statements([one]) for _, view in views_of(s)} for one in body]
    live: list[tuple[int, int, int]] = []
    for number, statement in enumerate(body):
        if isinstance(statement, Alloc) and (size := cost(statement.buffer)):
            used = [n for n, held in enumerate(uses) if id(statement.buffer) in held] or [number]
            live.append((used[0], used[-1], size * (buffers if depth else 1)))
    most = 0
    for number, statement in enumerate(body):
        inside = peak(statement.body, cost, buffers, depth + 1) if isinstance(statement, Loop) else 0
        most = max(most, inside + sum(size for first, last, size in live if first <= number <= last))
    return most


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
    for cost, limit, what in costs:
        most = int(machine[limit])
        yield what, most, *_buffered(kernel, cost, most)


def _buffered(kernel: Kernel, cost: Callable[[Buffer], int], most: int) -> tuple[int, int]:
    """With how many buffers tiles fit, one if with none, and the most that they then take."""
    for buffers in BUFFERS:
        needed = peak(kernel.body, cost, buffers)
        if needed <= most:
            break
    return buffers, needed
