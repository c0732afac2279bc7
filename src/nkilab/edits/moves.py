"""Statements that move: out of a loop, into one, away; and loops that change places."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence

from ..migrate.source import Edit
from .statements import Place, Refusal, at_line, read


def hoisted(place: Place, _: str) -> Iterator[str]:
    """A statement, and those that it takes, before the loops that change nothing in it; farthest first."""
    texts: list[str] = []
    own = place
    while own.loops and (group := _group(own, _constant(own, own.loops[0].body, _changing(own)))):
        loop = own.loops[0]
        block = own.block(group, own.indent(loop))
        ahead = own.block(group[: group.index(own.statement)], "").count("\n")
        line = own.first_line(loop) + ahead + own.statement.lineno - own.first_line(own.statement)
        texts.append(own.text([own.inserted(block, loop), *own.cut(group)]))
        own = at_line(own.source, texts[-1], line)
    kept = [text for text in _kept(own) if text]
    if not texts and not kept:
        raise Refusal("the statement needs something that each iteration of its loop makes anew")
    yield from (*kept, *reversed(texts))


def _changing(place: Place) -> set[str]:
    return place.written(place.loops[0])


def _constant(place: Place, body: Sequence[ast.stmt], changing: Collection[str]) -> list[ast.stmt]:
    """The statements of a loop's body that do the same in each iteration, as far as names tell."""
    constant: list[ast.stmt] = [s for s in body if isinstance(s, ast.Assign | ast.Expr) and place.written(s)]
    # what an iteration reads before it writes it comes from the one before
    carried, first = set[str](), dict[str, int]()
    for at, own in enumerate(body):
        carried |= {name for name in place.taken(own) if name not in first}
        first |= {name: at for name in place.written(own) if name not in first}
    carried &= first.keys()
    fixed = False
    while not fixed:
        inside = {name for s in constant for name in place.written(s)}
        outside = {name for s in body if s not in constant for name in place.written(s)}
        moving = (set(changing) - inside) | outside | carried
        remaining = [s for s in constant if not (read(s) | place.written(s)) & moving]
        fixed, constant = len(remaining) == len(constant), remaining
    return constant


def _group(place: Place, constant: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Those of some statements that one hangs together with by what they write; none if it is not of them."""
    written = {name for s in constant for name in place.written(s)}
    names = {s: (read(s) & written) | place.written(s) for s in constant}
    group = [s for s in constant if s is place.statement]
    for _ in group and constant:
        reached = {name for s in group for name in names[s]}
        group = [s for s in constant if names[s] & reached]
    return group


def _kept(place: Place) -> Iterator[str]:
    """Before the outermost loop that changes nothing in a statement: all its tiles, in lists."""
    loops = place.loops
    for far in range(len(loops) - 1, 0, -1):
        inner, outer = loops[:far][::-1], loops[far]
        constant = _constant(place, inner[-1].body, place.written(outer) - _indices(inner))
        group = _group(place, constant)
        counts = [loop.iter.args for loop in inner if isinstance(loop.iter, ast.Call)]
        changing = {name for loop in inner for name in read(loop.iter)} & place.written(outer)
        if group and not changing and [len(own) for own in counts] == [1] * far:
            yield place.text(_lists(place, inner, outer, group))


def _lists(
    place: Place, inner: Sequence[ast.For], outer: ast.For, group: Sequence[ast.stmt]
) -> list[Edit]:  # fmt: skip
    """Edits that make the tiles of a group before a loop, one for each iteration of the loops within."""
    written = {name for own in group for name in place.written(own)}
    rest = [s for s in inner[-1].body if s not in group]
    names = sorted(written & {name for own in rest for name in read(own)})
    indent, looked = place.indent(outer), [f"{name}_tiles" for name in names]
    text = "".join(f"{indent}{tiles} = []\n" for tiles in looked)
    for depth, loop in enumerate(inner):
        index = place.source.text_of(loop.target)
        text += f"{indent}for {index} in {place.source.text_of(loop.iter)}:\n"
        indent += "    "
        added = ["[]"] * len(names) if depth < len(inner) - 1 else names
        text += place.block(group, indent) if added is names else ""
        text += "".join(f"{indent}{tiles}.append({own})\n" for tiles, own in zip(looked, added))
        looked = [f"{tiles}[{index}]" for tiles in looked]
    own = place.indent(group[0])
    lines = "".join(f"{own}{name} = {tiles}\n" for name, tiles in zip(names, looked))
    return [place.inserted(text, outer), place.inserted(lines, group[0]), *place.cut(group)]


def _indices(loops: Sequence[ast.For]) -> set[str]:
    return {n.id for loop in loops for n in ast.walk(loop.target) if isinstance(n, ast.Name)}


def made_inside(place: Place, _: str) -> Iterator[str]:
    """The tiles that a statement and its like write, made anew in each iteration of a loop around them."""
    name = place.target(place.statement)
    allocation = place.allocation(name)
    loops = [loop for loop in place.loops if allocation and loop.lineno > allocation.lineno]
    if allocation is None or not loops:
        raise Refusal(f"no single statement before the loop makes the tile {name}".rstrip())
    for loop in loops:
        names = _written_alike(place, loop)
        if len(names) > 1:
            yield _made_in(place, loop, names)
        yield _made_in(place, loop, [name])


def _written_alike(place: Place, loop: ast.For) -> list[str]:
    """Tiles made before a loop that its body writes as the place's statement writes its own, and reads."""
    own = place.called(place.statement)
    alike = [s for s in loop.body if own and (call := place.called(s)) and call.name == own.name]
    names = dict.fromkeys(place.target(s) for s in alike)
    makers = {name: place.allocation(name) for name in names}
    # what nothing reads here is for who comes after the loop: a result in HBM
    taken = {name for own in loop.body for name in place.taken(own)}
    tiles = {name: maker for name, maker in makers.items() if maker is not None and name in taken}
    return [name for name, maker in tiles.items() if maker.lineno < loop.lineno]


def _made_in(place: Place, loop: ast.For, names: Sequence[str]) -> str:
    edits: list[Edit] = []
    for name in names:
        first = next(s for s in loop.body if name in {n.id for n in ast.walk(s) if isinstance(n, ast.Name)})
        allocation = place.allocation(name)
        assert allocation is not None
        block = place.block([allocation], place.indent(first))
        edits += [place.inserted(block, first), *place.cut([allocation])]
    return place.text(edits)


def without_use(place: Place, _: str) -> Iterator[str]:
    """A statement left out, with the tile that it writes."""
    if not isinstance(place.statement, ast.Assign | ast.Expr):
        raise Refusal("the line is no single instruction")
    allocations = [place.allocation(name) for name in place.written(place.statement)]
    yield place.text(place.erased([place.statement, *filter(None, allocations)]))


def interchanged(place: Place, _: str) -> Iterator[str]:
    """The headers of two loops exchanged, of which one is all that the other does."""
    pairs = [(far, near) for near, far in zip(place.loops, place.loops[1:])
             if far.body == [near] and not read(near.iter) & _indices([far])]  # fmt: skip
    if not pairs:
        raise Refusal("statements stand between the two loops, or the inner one needs the outer one's index")
    for pair in pairs:
        ways = [(old, new) for one, other in (pair, pair[::-1])
                for old, new in ((one.target, other.target), (one.iter, other.iter))]  # fmt: skip
        yield place.text(
            [own for old, new in ways for own in place.replaced([old], place.source.text_of(new))]
        )
