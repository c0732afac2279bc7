"""Proofs over a loop tree, with integer sets, before it is printed.

Proved for every tree without open parameters: what a statement touches lies inside its buffer; every
element that a statement reads of a tile was written before, and by nothing since (`reaching.py`);
each element of an output is stored; a sum adds every value of what it runs over once, and is read after
that (`sums.py`); both sides of what is copied or computed have as many elements; partitions and operands of
TensorE are within the chip's limits; and the tiles that live at once fit into SBUF and the banks of PSUM. A
proof that fails is a fault of the compiler, never of the specification; that of room says that another plan
is needed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from math import prod

from .._lazy import islpy
from ..errors import SpecError, UnsupportedError
from ..machine import Machine
from .checks.layouts import start_partitions
from .language.ast import Cascade
from .reaching import proved_order
from .reference import need_written
from .room import proved_room, size_of, views_of
from .sets import Access, PlaceError, ProofError, accesses_of, box, told, touched, turns, within
from .sums import proved_sums
from .tree import nodes
from .tree.along import axes_of
from .tree.expr import Expr, expr
from .tree.nodes import HBM, PSUM, SBUF, Alloc, Cut, Kernel, Loop, MatMul, Store, View

# statements that a kernel may run, all loops unrolled
MOST_STATEMENTS = 4_000_000


def prove(kernel: Kernel, machine: Machine) -> list[str]:
    """Prove a tree; returns what was proved, one line each.

    Raises:
        ProofError: with the first claim that fails.
        NoRoomError: if the tiles do not fit.
    """
    count = nodes.run_by(kernel.body)
    if count > MOST_STATEMENTS:
        raise UnsupportedError(
            f"the kernel runs {count:,} statements, loops unrolled; at most {MOST_STATEMENTS:,} are compiled",
            hint="give smaller extents",
        )
    if kernel.parameters:
        return [
            "extents are parameters: layouts are compared by their digits, divisibility and room are asserted"
        ]
    accesses = list(accesses_of(kernel.body))
    _limits(kernel, machine)
    sums = proved_sums(accesses)
    inside = _inside(accesses)
    ordered = proved_order(kernel.body)
    _are_ruled_out(accesses)
    _are_alike(kernel)
    stored = _stored(kernel, accesses)
    return [
        f"{inside} accesses lie inside their tensors",
        f"{ordered} reads of tiles find what their turn wrote, or what one before it hands on",
        f"every element of {', '.join(stored)} is stored",
        f"{sums} sums add every value once, and are read after that",
        f"tiles fit: {proved_room(kernel, machine)}",
    ]


def proved(kernel: Kernel, cascade: Cascade, machine: Machine) -> tuple[str, ...]:
    """What was proved of the tree of a cascade without, or with a partial, mapping.

    Raises:
        SpecError: if the cascade leaves part of an output unwritten; other failed proofs are faults of ours.
    """
    try:
        return tuple(prove(kernel, machine))
    except ProofError as error:
        name = str(error).partition(" ")[0]
        if not str(error).endswith("is not stored whole") or name not in cascade.outputs:
            raise
        need_written(cascade)
        refused = SpecError(f"the output {name} is written in part only", hint="write the rest of it")
        place = cascade.tensors[name].place
        raise refused.located(str(place), f"einsum.declaration.{name}") from None


# claims


def _inside(accesses: list[Access]) -> int:
    seen = set()
    for access in accesses:
        key = (access.view, tuple(loop.variable for loop in access.loops), access.number)
        if key in seen or isinstance(access.statement, nodes.Gather):
            continue
        seen.add(key)
        if not (_has_windows(access.view.buffer) and touched(access).is_subset(box(access.view.buffer))):
            raise ProofError(f"{told(access.statement)} touches more than {access.view.buffer.name} has")
    return len(seen)


def _has_windows(buffer: nodes.Buffer) -> bool:
    """Whether the base of a buffer has all elements of its windows, if it has any."""
    if not buffer.window or buffer.base is None:
        return True
    sizes, extents = ([expr(e).value or 0 for e in shape] for shape in (buffer.shape, buffer.base.shape))
    rows = zip(*buffer.window, strict=True)
    moves = [[c * (n - 1) for n, c in zip(sizes, row, strict=True)] for row in rows]
    least, most = ([sum(f(0, m) for m in axis) for axis in moves] for f in (min, max))
    ends = zip(buffer.first, least, most, extents, strict=True)
    return all(first + low >= 0 and first + high < extent for first, low, high, extent in ends)


def _are_ruled_out(accesses: list[Access]) -> None:
    """What is left out of the columns of a comparison fails it on every partition."""
    selects = [a for a in accesses if isinstance(a.statement, nodes.Select) and a.is_write]
    for access, left in ((a, gap) for a in selects for gap in a.statement.left):  # type: ignore[attr-defined]
        s = access.statement
        assert isinstance(s, nodes.Select)
        claims, counts = turns(access.loops)
        claims += within("_row", expr(0), access.view.cuts[0].count, counts)
        claims += within("_at", left.start, left.count, counts)
        claims.append(f"{s.offset} + {s.per_partition} * _row + {s.per_element} * _at {s.relation} 0")
        names = ", ".join([loop.variable for loop in access.loops] + ["_row", "_at"])
        if not islpy().Set(f"{{ [{names}] : {' and '.join(f'({c})' for c in claims)} }}").is_empty():
            raise ProofError(f"{told(s)} leaves out elements that it keeps")


COMPUTED = (nodes.Copy, nodes.Activate, nodes.Invert, nodes.Scale, nodes.Select)
MOVED = (nodes.Load, nodes.Store, nodes.Move)
ALIKE: dict[type[nodes.Statement], tuple[str, ...]] = {
    **dict.fromkeys((*COMPUTED, *MOVED), ("src",)),
    nodes.Combine: ("left", "right"),
    nodes.ScaleCombine: ("src", "right"),
    nodes.Choose: ("truth", "src"),
}


def _are_alike(kernel: Kernel) -> None:
    """What is copied, or computed element by element, has as many elements on both sides, axis by axis."""
    every = ((s, getattr(s, name)) for s in nodes.statements(kernel.body) for name in ALIKE.get(type(s), ()))
    for statement, source in every:
        views = (statement.dst, source)  # type: ignore[attr-defined]
        if not isinstance(source, View) or any(view.folded is not None for view in views):
            continue
        counts = [_counts(view) for view in views]
        if isinstance(statement, nodes.Load | nodes.Store):
            # behind the partitions a transfer may cut what is moved into other axes
            counts = [[*c[:1], prod(c[1:], start=expr(1))] for c in counts]
        if counts[0] != counts[1]:
            raise ProofError(f"{told(statement)} has other elements on its two sides")


def _counts(view: View) -> list[Expr]:
    """Elements along the axes of a view, as it is turned or repeated; those of one left out."""
    return [count for _, count in axes_of(view) if count.value != 1]


def _stored(kernel: Kernel, accesses: list[Access]) -> list[str]:
    names = []
    stores = [a for a in accesses if a.is_write and isinstance(a.statement, Store)]
    for output in kernel.outputs:
        own = [a for a in stores if output in (a.view.buffer, a.view.buffer.base)]
        views = {id(a.view.buffer): a.view.buffer for a in own}.values()
        parts = ((v, [touched(a) for a in own if a.view.buffer is v]) for v in views)
        if not any(box(view).is_subset(reduce(lambda one, more: one.union(more), p)) for view, p in parts):
            raise ProofError(f"{output.tensor} is not stored whole")
        names.append(output.tensor)
    return names


def _tiles_are_not_empty(kernel: Kernel) -> None:
    """Every turn of a loop has at least one element left."""
    for loop, around in ((s, loops) for s, loops in nodes.walked(kernel.body) if isinstance(s, Loop)):
        if loop.count_name and not _is_filled((*around, loop)):
            raise ProofError(f"a turn of {loop.variable} has nothing left; it touches more than there is")


def _is_filled(loops: tuple[Loop, ...]) -> bool:
    """Whether every turn of the last of some loops has an element."""
    held, counts = turns(loops)
    names = ", ".join(loop.variable for loop in loops)
    filled = " and ".join(f"({limit}) >= 1" for limit in counts[loops[-1].count_name])
    every = islpy().Set(f"{{ [{names}] : {' and '.join(held)} }}")
    return bool(every.is_subset(islpy().Set(f"{{ [{names}] : {filled} }}")))


def _limits(kernel: Kernel, machine: Machine) -> None:
    _tiles_are_not_empty(kernel)
    for statement in nodes.statements(kernel.body):
        if isinstance(statement, Alloc) and statement.buffer.memory != HBM:
            _is_no_larger(statement.buffer, machine)
        elif isinstance(statement, MatMul):
            _is_taken(statement.stationary, int(machine["stationary_free_max"]))
            _is_taken(statement.moving, int(machine["moving_free_max"]))
        _is_ordered(statement)
        if not isinstance(statement, nodes.Load | nodes.Store | nodes.Move | nodes.Gather | nodes.Loop):
            _starts_right(statement, machine)


def _is_no_larger(tile: nodes.Buffer, machine: Machine) -> None:
    """Refuse a tile that has more partitions, or takes more of PSUM, than there are."""
    rows = expr(tile.shape[0]).value or 0
    if rows > machine["partitions"]:
        raise ProofError(f"{tile.name} has {rows} partitions")
    if tile.memory == PSUM and size_of(tile) > machine["psum_banks"] * machine["psum_bank_bytes"]:
        raise ProofError(f"{tile.name} takes more than all banks of PSUM")


def _is_taken(operand: View, most: int) -> None:
    """Refuse an operand of TensorE that lies elsewhere than in SBUF, or has too many columns."""
    count = operand.cuts[-1].count.value
    if operand.buffer.memory != SBUF or (count is not None and count > most):
        raise ProofError(f"{operand.buffer.name} is no operand that TensorE takes")


def _is_ordered(statement: nodes.Statement) -> None:
    """Refuse an order that leaves out an axis of several elements, or has one twice."""
    for _, view in views_of(statement):
        places = [n for n in view.order if isinstance(n, int)]
        plain = axes_of(replace(view, order=(), is_turned=False, repeat=None))
        wide = {n for n, (_, count) in enumerate(plain) if count.value != 1}
        if view.order and (len({*places}) < len(places) or not wide <= {*places}):
            raise ProofError(f"{told(statement)} takes a part of the axes of {view.buffer.name}")


def _starts_right(statement: nodes.Statement, machine: Machine) -> None:
    """Refuse an engine's tile that begins on a partition where none of its size may begin."""
    for view in (v for v in vars(statement).values() if isinstance(v, nodes.View)):
        first = view.index[0]
        if view.buffer.memory == HBM or not isinstance(first, Cut) or first.start.value == 0:
            continue
        rows = first.count.value or expr(view.buffer.shape[0]).value or 0
        step, starts = next(((n, s) for n, s in start_partitions(machine) if rows <= n), (1, ()))
        at = first.start.value
        may_start = at in starts if at is not None else len(starts) > 1 and first.start.divides(step)
        if not may_start:
            raise PlaceError(
                f"{view.buffer.name} is read from partition {first.start} with {rows} partitions"
            )
