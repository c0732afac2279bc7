"""Integer sets of a loop tree: the turns of loops, the elements that a statement touches in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .._lazy import islpy
from .room import views_of
from .tree.expr import Atom, Expr, expr
from .tree.nodes import Alloc, At, Buffer, Comment, Loop, Statement, Tally, View, walked


class ProofError(AssertionError):
    """The compiler made a tree that does not hold what it promises."""


class PlaceError(ProofError):
    """A tile begins on a partition where none may begin; parts that a mapping gives may ask for it."""


@dataclass(frozen=True)
class Access:
    """One access of a statement."""

    view: View  # what it touches
    is_write: bool  # whether it writes it
    loops: tuple[Loop, ...]  # around the statement, the outermost first
    number: int  # of the statement, in order
    statement: Statement  # the statement


def told(statement: Statement) -> str:
    """A statement in a few words."""
    dst = getattr(statement, "dst", None)
    return f"{type(statement).__name__}{f' into {dst.buffer.name}' if dst is not None else ''}"


def accesses_of(body: list[Statement]) -> Iterator[Access]:
    """Every access of a body, in order; a tally has the number of the statement that it tells of."""
    number = 0
    for statement, loops in walked(body):
        if isinstance(statement, Tally):
            yield Access(statement.into, False, loops, number, statement)
        elif not isinstance(statement, Alloc | Comment | Loop):
            number += 1
            yield from (
                Access(view, name in ("dst", "total"), loops, number, statement)
                for name, view in views_of(statement)
            )


def turns(loops: tuple[Loop, ...]) -> tuple[list[str], dict[str, list[Expr]]]:
    """Constraints on loop variables, and what the counts of ragged tiles are at most."""
    held: list[str] = []
    counts: dict[str, list[Expr]] = {}
    for loop in loops:
        limits = limits_of(expr(loop.trips) if loop.total is None else loop.total, counts)
        begun = f"{loop.each} * {loop.variable}"
        held.append(" and ".join([f"0 <= {loop.variable}", *(f"{begun} < ({n})" for n in limits)]))
        if loop.count_name and loop.count is not None:
            counts[loop.count_name] = limits_of(loop.count, counts)
    return held, counts


def points(view: View, counts: Mapping[str, Sequence[Expr]]) -> list[str]:
    """Constraints that put a point D0, D1, ... into a view; loops have small letters."""
    shape = view.buffer.shape or (1,)
    index = view.index[len(view.index) - len(shape) :]
    held = []
    for axis, i in enumerate(index):
        d = f"D{axis}"
        if isinstance(i, At):
            held.append(f"{d} = ({i.at})")
        elif i.each is not None:
            whole, inner = (n.value for n in (i.count, i.each.count))
            reach = f"({i.start}) + {i.step} * E{axis} + {i.each.step} * F{axis}"
            limits = f"0 <= E{axis} < {whole} and 0 <= F{axis} < {inner}"
            held.append(f"exists (E{axis}, F{axis}: {limits} and {d} = {reach})")
        elif i.step == 1:
            held += within(d, i.start, i.count, counts)
        else:
            e = f"E{axis}"
            limits = "".join(f" and {e} < ({limit})" for limit in limits_of(i.count, counts))
            held.append(f"exists {e}: 0 <= {e} and {d} = ({i.start}) + {i.step} * {e}{limits}")
    return held


def within(name: str, start: Expr, count: Expr, counts: Mapping[str, Sequence[Expr]]) -> list[str]:
    """Constraints that put a name among `count` values from `start`."""
    limits = [f"{name} < ({start}) + ({limit})" for limit in limits_of(count, counts)]
    return [f"({start}) <= {name}", *limits]


def limits_of(count: Expr, counts: Mapping[str, Sequence[Expr]]) -> list[Expr]:
    """What a count is at most: itself, or both sides of a minimum, or as many times either."""
    for atom in count.atoms:
        if not isinstance(atom, str) and atom.operator == "min":
            sides: tuple[dict[Atom, Expr], ...] = ({atom: expr(atom.number)}, {atom: atom.value})
            return [limit for side in sides for limit in limits_of(count.replaced(side), counts)]
    for name in counts.keys() & count.names:
        return [limit for side in counts[name] for limit in limits_of(count.replaced({name: side}), counts)]
    return [count]


def touched(access: Access, fixed: tuple[Loop, ...] = ()) -> Any:
    """The elements that an access touches in all turns of its loops, those in `fixed` left as parameters."""
    rank = len(access.view.buffer.shape or (1,))
    held, counts = turns(access.loops)
    held += points(access.view, counts)
    names = [loop.variable for loop in fixed]
    free = [loop.variable for loop in access.loops if loop.variable not in names]
    point = ", ".join(f"D{n}" for n in range(rank))
    inner = " and ".join(f"({h})" for h in held)
    body = f"exists ({', '.join(free)}: {inner})" if free else inner
    return set_of(f"[{', '.join(names)}] -> {{ [{point}] : {body} }}")


def box(buffer: Buffer) -> Any:
    """All elements of a buffer."""
    shape = [str(e) for e in (buffer.shape or (1,))]
    point = ", ".join(f"D{n}" for n in range(len(shape)))
    inside = " and ".join(f"0 <= D{n} < {e}" for n, e in enumerate(shape))
    return set_of(f"{{ [{point}] : {inside} }}")


@lru_cache(maxsize=1024)
def set_of(text: str) -> object:
    """A set, read once: statements of a kernel are much alike."""
    return islpy().Set(text)
