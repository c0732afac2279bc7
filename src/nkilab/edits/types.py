"""Numbers, types and engines that a text names: other sizes, narrower tiles, another engine."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..migrate.source import Edit
from .statements import Place, Refusal, read

_MOVES = ("isa.dma_copy", "isa.tensor_copy", "isa.nc_transpose", "isa.dma_transpose", "language.load",
          "language.copy", "language.transpose", "language.load_transpose2d")  # fmt: skip
_TYPED = ("language.ndarray", "language.zeros", "language.load", "language.copy", "language.transpose")
_FACTORS = (2, 4, 8, 16)


def resized(place: Place, _: str) -> Iterator[str]:
    """A constant of the module, or a number that a parameter defaults to, several times as large or small."""
    function = place.source.function_of(place.statement)
    assert function is not None
    used = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)}
    constants = [own.value for own in (*place.source.assignments(None), *place.source.assignments(function))
                 if isinstance(own, ast.Assign) and isinstance(own.targets[0], ast.Name)
                 and own.targets[0].id in used]  # fmt: skip
    defaults = [own for own in (*function.args.defaults, *function.args.kw_defaults) if own is not None]
    sizes = [
        own for own in (*constants, *defaults) if isinstance(own, ast.Constant) and type(own.value) is int
    ]
    if not sizes:
        raise Refusal("no constant says the size of a tile; give it a name, as in TILE = 128")
    for node in sizes:
        size = int(str(node.value))
        for text in (*(size * n for n in _FACTORS), *(size // n for n in _FACTORS[:2] if size > n)):
            yield place.text(place.replaced([node], str(text)))


def on_engine(place: Place, words: str) -> Iterator[str]:
    """An instruction on the engine that the advice names, in each or in every second iteration."""
    call = place.called(place.statement)
    name = words.rpartition(" on ")[2]
    if call is None or not isinstance(call.call, ast.Call) or not call.name.startswith("isa."):
        raise Refusal("the line calls no instruction of nki.isa, which alone takes engine=")
    isa = place.source.text_of(call.call.func).rpartition(".")[0]
    one, other = (f"{isa}.{engine}_engine" for engine in (name, "vector" if name != "vector" else "scalar"))
    if place.source.resolve(call.call.func) == ("nki", call.name):
        one, other = (f"{isa}.engine.{own.removeprefix(isa + '.')[:-7]}" for own in (one, other))
    if words.startswith("every second") and place.loops:
        one = f"{one} if {place.source.text_of(place.loops[0].target)} % 2 else {other}"
    if "engine" in call.arguments:
        yield place.text(place.replaced([call.arguments["engine"]], one))
        return
    yield place.text(place.with_argument(call, f"engine={one}"))


def narrowed(place: Place, _: str) -> Iterator[str]:
    """The operands of a product in bfloat16, from where they are loaded; all of its tiles, or these alone."""
    call = place.called(place.statement)
    operands = [] if call is None else [n for key in ("stationary", "moving", "x", "y")
                                        if (n := call.arguments.get(key)) is not None]  # fmt: skip
    names = {word for node in operands for word in read(node)}
    for _each in place.statements:
        moving = [s for s in place.statements if place.written(s) & names
                  and (call := place.called(s)) and call.name in _MOVES]  # fmt: skip
        names |= {name for statement in moving for name in read(statement)}
    bfloat16, edits = f"{place.module('language')}.bfloat16", list[Edit]()
    for statement in place.statements:
        typed = place.called(statement)
        if typed is None or typed.name not in _TYPED or not place.written(statement) & names:
            continue
        if "dtype" in typed.arguments:
            edits += place.replaced([typed.arguments["dtype"]], bfloat16)
        elif typed.name != "language.ndarray":
            edits += place.with_argument(typed, f"dtype={bfloat16}")
    if not edits:
        raise Refusal("no statement of this function says the type of the product's operands")
    yield place.text(edits)
