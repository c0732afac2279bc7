"""Proofs over a loop tree, with integer sets, before it is printed.

Proved for every tree without open parameters: what a statement touches lies inside its buffer; every
element that a statement reads of a tile was written by statements before it, loops around both held fixed,
or, in a tile with versions for two turns, by the turn before, and by nothing since; each element of an output
is stored; a sum is read outside of the loops that it runs over alone; partitions and operands of TensorE are
within the chip's limits; and the tiles that live at once fit into SBUF and the banks of PSUM. A proof that
fails is a fault of the compiler, never of the specification; that of room says that another plan is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from .._lazy import islpy
from ..machine import Machine
from .room import proved_room, size_of, views_of
from .tree import nodes
from .tree.expr import Expr, expr
from .tree.nodes import (
    HBM,
    PSUM,
    SBUF,
    TURNS,
    Alloc,
    At,
    Buffer,
    Comment,
    Cut,
    Kernel,
    Loop,
    MatMul,
    Statement,
    Store,
    View,
)


@dataclass(frozen=True)
class Access:
    """One access of a statement.

    Args:
        view: what it touches.
        is_write: whether it writes it.
        loops: around the statement, the outermost first.
        number: of the statement, in order.
        statement: the statement.
    """

    view: View
    is_write: bool
    loops: tuple[Loop, ...]
    number: int
    statement: Statement


class ProofError(AssertionError):
    """The compiler made a tree that does not hold what it promises."""


def prove(kernel: Kernel, machine: Machine) -> list[str]:
    """Prove a tree; returns what was proved, one line each.

    Raises:
        ProofError: with the first claim that fails.
        NoRoomError: if the tiles do not fit.
    """
    if kernel.parameters:
        return [
            "extents are parameters: layouts are compared by their digits, divisibility and room are asserted"
        ]
    accesses = list(_accesses(kernel.body))
    _limits(kernel, machine)
    _sums(accesses)
    inside = _inside(accesses)
    covered = _covered(accesses)
    stored = _stored(kernel, accesses)
    return [
        f"{inside} accesses lie inside their tensors",
        f"{covered} reads of tiles find every element written before",
        f"every element of {', '.join(stored)} is stored",
        f"tiles fit: {proved_room(kernel, machine)}",
    ]


def _accesses(body: list[Statement]) -> Iterator[Access]:
    number = 0

    def walk(body: list[Statement], loops: tuple[Loop, ...]) -> Iterator[Access]:
        nonlocal number
        for statement in body:
            if isinstance(statement, Loop):
                yield from walk(statement.body, (*loops, statement))
            elif not isinstance(statement, Alloc | Comment):
                number += 1
                for name, view in views_of(statement):
                    is_write = name in ("dst", "total")
                    yield Access(view, is_write, loops, number, statement)

    yield from walk(body, ())


# sets


def _bounds(loops: tuple[Loop, ...]) -> tuple[list[str], dict[str, list[str]]]:
    """Constraints on loop variables, and what the counts of ragged tiles are at most."""
    held, counts = [], {}
    for loop in loops:
        held.append(f"0 <= {loop.variable} < {loop.trips}")
        if loop.count_name and loop.count is not None:
            text = str(loop.count)
            first, _, rest = text.removeprefix("min(").removesuffix(")").partition(", ")
            counts[loop.count_name] = [first, rest]
    return held, counts


def _index(view: View, counts: dict[str, list[str]], prefix: str = "d") -> list[str]:
    """Constraints that put a point d0, d1, ... into a view."""
    shape = view.buffer.shape or (1,)
    index = view.index[len(view.index) - len(shape) :]
    held = []
    for axis, i in enumerate(index):
        d = f"{prefix}{axis}"
        if isinstance(i, At):
            held.append(f"{d} = {_isl(i.at)}")
            continue
        limits = counts.get(str(i.count), [str(i.count)])
        if i.step == 1:
            held.append(f"{_isl(i.start)} <= {d}")
            held.extend(f"{d} < {_isl(i.start)} + {_text(limit)}" for limit in limits)
        else:
            e = f"e{axis}"
            held.append(f"exists {e}: 0 <= {e} and {d} = {_isl(i.start)} + {i.step} * {e}")
            held[-1] += "".join(f" and {e} < {_text(limit)}" for limit in limits)
    return held


def _isl(value: Expr) -> str:
    return _text(str(value))


def _text(value: str) -> str:
    return f"({value})"


def touched(access: Access, fixed: tuple[Loop, ...] = ()) -> Any:
    """The elements that an access touches in all turns of its loops, those in `fixed` left as parameters."""
    rank = len(access.view.buffer.shape or (1,))
    held, counts = _bounds(access.loops)
    held += _index(access.view, counts)
    names = [loop.variable for loop in fixed]
    free = [loop.variable for loop in access.loops if loop.variable not in names]
    points = ", ".join(f"d{n}" for n in range(rank))
    inner = " and ".join(f"({h})" for h in held)
    body = f"exists ({', '.join(free)}: {inner})" if free else inner
    return islpy().Set(f"[{', '.join(names)}] -> {{ [{points}] : {body} }}")


def box(buffer: Buffer) -> Any:
    """All elements of a buffer."""
    shape = [str(e) for e in (buffer.shape or (1,))]
    points = ", ".join(f"d{n}" for n in range(len(shape)))
    inside = " and ".join(f"0 <= d{n} < {e}" for n, e in enumerate(shape))
    return islpy().Set(f"{{ [{points}] : {inside} }}")


# claims


def _inside(accesses: list[Access]) -> int:
    seen = set()
    for access in accesses:
        key = (access.view, tuple(loop.variable for loop in access.loops), access.number)
        if key in seen or isinstance(access.statement, nodes.Gather):
            continue
        seen.add(key)
        if not touched(access).is_subset(box(access.view.buffer)):
            raise ProofError(f"{access.statement} touches more than {access.view.buffer.name} has")
    return len(seen)


def _covered(accesses: list[Access]) -> int:
    writes: dict[int, list[Access]] = {}
    for access in accesses:
        if access.is_write and access.view.buffer.memory != HBM:
            writes.setdefault(id(access.view.buffer), []).append(access)
    count = 0
    for read in accesses:
        if read.is_write or read.view.buffer.memory == HBM:
            continue
        held = writes.get(id(read.view.buffer), [])
        if read.view.buffer.role == TURNS:
            is_covered = _is_handed(read, held)
        else:
            before = (w for w in held if w.number < read.number)
            is_covered = _is_within(touched(read, read.loops), (touched(w, _common(w, read)) for w in before))
        if not is_covered:
            raise ProofError(f"{read.statement} reads of {read.view.buffer.name} what nothing wrote before")
        count += 1
    return count


def _common(one: Access, other: Access) -> tuple[Loop, ...]:
    """Loops around both of two accesses."""
    return tuple(a for a, b in zip(one.loops, other.loops, strict=False) if a is b)


def _union(sets: Iterable[Any]) -> Any:
    """All elements of some sets; None if there is no set."""
    found = None
    for one in sets:
        found = one if found is None else found.union(one)
    return found


def _is_handed(read: Access, writes: list[Access]) -> bool:
    """Whether a read finds in a tile of two versions what was written for its turn, and nothing newer.

    That is what was written before it in the same turn; or what the turn before wrote, and what stands before
    the loop for the first turn; or, behind the loop, what its last turn wrote.
    """
    wanted = touched(read, read.loops)
    turns = next(loop for w in writes for loop in w.loops if _chooses(loop, w.view))
    i, last = turns.variable, (expr(turns.trips).value or 0) - 1
    inside = [(w, (*w.loops[: w.loops.index(turns)], turns)) for w in writes if turns in w.loops]
    before = [(w, _common(w, read)) for w in writes if turns not in w.loops and w.number < read.number]
    if turns not in read.loops:
        is_behind = any(w.number < read.number for w, _ in inside)
        ended = (_where(touched(w, f), i, f"before = {last}") for w, f in inside)
        return _is_within(wanted, ended if is_behind else (touched(w, f) for w, f in before))
    newer = [touched(w, f) for w, f in inside if w.number < read.number]
    if _is_within(wanted, newer):
        return True
    earlier = (_where(touched(w, f), i, f"before = {i} - 1") for w, f in inside)
    later, start = (islpy().Set(f"[{i}] -> {{ : {claim} }}") for claim in (f"{i} >= 1", f"{i} = 0"))
    return (
        _is_within(wanted.intersect_params(later), earlier)
        and _is_within(wanted.intersect_params(start), (touched(w, f) for w, f in before))
        and all(wanted.is_disjoint(one) for one in newer)
    )


def _is_within(wanted: Any, found: Iterable[Any]) -> bool:
    """Whether sets together have all that is wanted."""
    together = _union(found)
    return together is not None and bool(wanted.is_subset(together))


def _chooses(loop: Loop, view: View) -> bool:
    """Whether the turns of a loop choose the version of a tile."""
    return any(
        f"({loop.variable} % 2)" in str(i) or f"({loop.variable} + 1) % 2" in str(i) for i in view.index
    )


def _where(touches: Any, variable: str, claim: str) -> Any:
    """What is touched in the turn, named `before`, that a claim chooses."""
    kind = islpy().dim_type.param
    place = touches.find_dim_by_name(kind, variable)
    named = touches.set_dim_name(kind, place, "before")
    chosen = named.intersect_params(islpy().Set(f"[{variable}, before] -> {{ : {claim} }}"))
    return chosen.project_out(kind, chosen.find_dim_by_name(kind, "before"), 1)


def _stored(kernel: Kernel, accesses: list[Access]) -> list[str]:
    told = []
    for output in kernel.outputs:
        found = None
        for access in accesses:
            if access.is_write and access.view.buffer is output and isinstance(access.statement, Store):
                here = touched(access)
                found = here if found is None else found.union(here)
        if found is None or not box(output).is_subset(found):
            raise ProofError(f"{output.name} is not stored whole")
        told.append(output.name)
    return told


def _sums(accesses: list[Access]) -> None:
    """A sum is read outside of the loops that it alone runs over."""
    over: dict[int, set[str]] = {}
    for access in accesses:
        if isinstance(access.statement, MatMul) and access.is_write:
            over.setdefault(id(access.view.buffer), set()).update(access.statement.over)
    for access in accesses:
        running = over.get(id(access.view.buffer), set())
        if not access.is_write and running & {loop.variable for loop in access.loops}:
            raise ProofError(f"{access.statement} reads {access.view.buffer.name} before its sum is complete")


def _tiles_are_not_empty(loop: Loop) -> None:
    """Every turn of a loop has at least one element left."""
    held, counts = _bounds((loop,))
    for limits in counts.values():
        turns = islpy().Set(f"{{ [{loop.variable}] : {held[0]} }}")
        filled = " and ".join(f"{_text(limit)} >= 1" for limit in limits)
        if not turns.is_subset(islpy().Set(f"{{ [{loop.variable}] : {filled} }}")):
            raise ProofError(f"a turn of {loop.variable} has nothing left; it touches more than there is")


def _limits(kernel: Kernel, machine: Machine) -> None:
    for statement in nodes.statements(kernel.body):
        if isinstance(statement, Loop):
            _tiles_are_not_empty(statement)
        if isinstance(statement, Alloc) and statement.buffer.memory != HBM:
            rows = expr(statement.buffer.shape[0]).value or 0
            if rows > machine["partitions"]:
                raise ProofError(f"{statement.buffer.name} has {rows} partitions")
            if (
                statement.buffer.memory == PSUM
                and size_of(statement.buffer) > machine["psum_banks"] * machine["psum_bank_bytes"]
            ):
                raise ProofError(f"{statement.buffer.name} takes more than all banks of PSUM")
        elif isinstance(statement, MatMul):
            for view, limit in (
                (statement.stationary, "stationary_free_max"),
                (statement.moving, "moving_free_max"),
            ):
                count = view.cuts[-1].count.value
                if view.buffer.memory != SBUF or (count is not None and count > machine[limit]):
                    raise ProofError(f"{view.buffer.name} is no operand that TensorE takes")


__all__ = ["Cut", "ProofError", "prove", "touched"]
