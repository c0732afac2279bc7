"""Changes of calls: into parts of other calls, and into other sizes, types and engines."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from ..migrate.source import Edit
from .statements import Called, Place, Refusal, read

_COPIES = {"isa.tensor_copy": "src", "language.copy": "src", "isa.activation": "data"}
_ROLES = {"multiply": "scale", "add": "bias", "subtract": "bias"}
_FUNCTIONS = ("add", "subtract", "multiply", "divide", "maximum", "minimum")


def without_copy(place: Place, _: str) -> Iterator[str]:
    """A copy left out, whose readers take its source."""
    copy = _call(place, place.statement)
    name = place.target(place.statement)
    source = copy.arguments.get(_COPIES.get(copy.name, ""))
    if source is None or not name:
        raise Refusal("the line is no copy of one tile into another")
    yield place.text([*_left_out(place, name), *place.replaced(place.readers(name), place.text_of(source))])


def chained(place: Place, _: str) -> Iterator[str]:
    """Two operations of element-wise instructions in one."""
    name, first = _single(place)
    reader, then = _reader(place, name)
    data, operator, operand, is_reversed = _operation(place, first)
    call = {"data": data, "op0": operator, "operand0": operand}
    call |= {"reverse0": "True"} if is_reversed else {}
    own = then.arguments
    if then.name == "isa.tensor_tensor" or _is_tile(place, then, name):
        left, right = (own[key] for key in (("data1", "data2") if "data1" in own else ("x", "y")))
        is_first = _says(left, name)
        other = right if is_first else left
        if _says(other, name):
            raise Refusal(f"both operands of line {reader.lineno} are {name}")
        operator = _operator(place, then)
        call |= {"op1": operator, "operand1": place.text_of(other)}
        call |= {} if is_first else {"reverse1": "True"}
        called = "scalar_tensor_tensor"
    else:
        _, operator, operand, is_reversed = _operation(place, then)
        call |= {"op1": operator, "operand1": operand} | ({"reverse1": "True"} if is_reversed else {})
        called = "tensor_scalar"
    yield place.text([*_left_out(place, name), _written(place, then, called, call, own)])


def scaled(place: Place, _: str) -> Iterator[str]:
    """A scale, a shift or a copy as part of the activation that reads it."""
    name, first = _single(place)
    reader, then = _reader(place, name)
    if then.name.startswith("language."):
        then = Called("isa.activation", then.call, {"op": _function(then), "data": then.arguments["x"]})
    if then.name not in ("isa.activation", "isa.activation_reduce"):
        raise Refusal(f"line {reader.lineno} is no activation")
    if first.name in _COPIES:
        source = first.arguments[_COPIES[first.name]]
        yield place.text(
            [*_left_out(place, name), *place.replaced(place.readers(name), place.text_of(source))]
        )
        return
    data, operator, operand, is_reversed = _operation(place, first)
    word = _ROLES.get(operator.rpartition(".")[2], "")
    if not word or is_reversed or word in then.arguments:
        raise Refusal(
            f"an activation multiplies by one scale and adds one bias; it has no place for {operator}"
        )
    if word == "bias" and _is_number(operand):
        raise Refusal("the bias of an activation is a tile with a value per partition, not a number")
    edits = _left_out(place, name)
    if operator.endswith("subtract") and (maximum := _negatable(place, operand)):
        edits += place.with_argument(maximum, "negate=True")
    elif operator.endswith("subtract"):
        operand, text = _negative(place, operand, is_given="dst" in first.arguments)
        edits.append(place.inserted(text, reader))
    call = {key: place.source.text_of(own) for key, own in then.arguments.items() if key != "dst"}
    called = then.name.rpartition(".")[2]
    changed = _written(place, then, called, call | {"data": data, word: operand}, then.arguments)
    yield place.text([*edits, changed])


def _negatable(place: Place, name: str) -> Called | None:
    """The reduction that alone makes a tile which the line of the advice alone reads, if there is one."""
    makers = [s for s in place.statements if name in place.written(s) and isinstance(s, ast.Assign | ast.Expr)
              and s is not place.allocation(name)]  # fmt: skip
    readers = {id(place.statement_of(node)) for node in place.readers(name)}
    own = place.called(makers[0]) if len(makers) == 1 and readers == {id(place.statement)} else None
    return own if own and own.name == "isa.tensor_reduce" and "negate" not in own.arguments else None


def _negative(place: Place, operand: str, *, is_given: bool) -> tuple[str, str]:
    """A name for the negative of a tile, and the lines that make it."""
    name = f"negative_{re.sub(r'[^0-9A-Za-z]+', '_', operand).strip('_')}"
    nl, indent = place.module("language"), place.indent(place.statement)
    call = f"{place.module('isa')}.tensor_scalar({{}}data={operand}, op0={nl}.multiply, operand0=-1.0)"
    if not is_given:
        return name, f"{indent}{name} = {call.format('')}\n"
    tile = f"{indent}{name} = {nl}.ndarray({operand}.shape, {nl}.float32, buffer={nl}.sbuf)\n"
    return name, f"{tile}{indent}{call.format(f'dst={name}, ')}\n"


def reduced(place: Place, _: str) -> Iterator[str]:
    """A sum that the activation takes as it writes its data."""
    total = _call(place, place.statement)
    data = total.arguments.get("data", total.arguments.get("x"))
    name = data.id if isinstance(data, ast.Name) else ""
    makers = [s for s in place.statements if s.lineno < place.statement.lineno and name in place.written(s)
              and isinstance(s, ast.Assign | ast.Expr) and s is not place.allocation(name)]  # fmt: skip
    if total.name not in ("isa.tensor_reduce", "language.sum") or len(makers) != 1:
        raise Refusal("the line sums no tile that a single statement makes")
    maker = _call(place, makers[0])
    own = dict(maker.arguments)
    if maker.name.startswith("language."):
        own = {"op": _function(maker), "data": own.get("x", own.get("y"))}  # type: ignore[dict-item]
    elif maker.name != "isa.activation" or "reduce_op" in own:
        raise Refusal(f"line {makers[0].lineno} is no activation that could sum what it writes")
    call = {key: place.source.text_of(one) for key, one in own.items() if key != "dst"}
    edits = place.erased([place.statement])
    target = total.arguments.get("dst")
    if target is not None:
        result = place.source.text_of(target)
        allocation = place.allocation(place.target(place.statement))
        if allocation is not None and allocation.lineno > makers[0].lineno:
            moved = place.block([allocation], place.indent(makers[0]))
            edits += [*place.cut([allocation]), place.inserted(moved, makers[0])]
    else:
        result, nl = place.target(place.statement), place.module("language")
        shape, kind = f"({call['data']}.shape[0], 1)", f"{nl}.float32, buffer={nl}.sbuf"
        new = f"{place.indent(makers[0])}{result} = {nl}.ndarray({shape}, {kind})\n"
        edits.append(place.inserted(new, makers[0]))
    call |= {"reduce_op": f"{place.module('language')}.add", "reduce_res": result}
    yield place.text([*edits, _written(place, maker, "activation_reduce", call, maker.arguments)])


def _call(place: Place, statement: ast.stmt) -> Called:
    own = place.called(statement)
    if own is None:
        raise Refusal(f"line {statement.lineno} is no single call of an instruction")
    return own


def _single(place: Place) -> tuple[str, Called]:
    name = place.target(place.statement)
    if not name:
        raise Refusal("the line does not write one tile of a name of its own")
    return name, _call(place, place.statement)


def _reader(place: Place, name: str) -> tuple[ast.stmt, Called]:
    """The one statement that reads a tile."""
    statements = {id(s): s for s in map(place.statement_of, place.readers(name))}
    if len(statements) != 1:
        raise Refusal(f"{len(statements)} statements read {name}; one would have to be the only reader")
    (own,) = statements.values()
    return own, _call(place, own)


def _left_out(place: Place, name: str) -> list[Edit]:
    """Edits that leave out the statement, and the tile that it writes."""
    allocation = place.allocation(name)
    return place.erased([place.statement] if allocation is None else [allocation, place.statement])


def _operation(place: Place, call: Called) -> tuple[str, str, str, bool]:
    """Data, operator and operand of one element-wise operation, and whether the two are exchanged."""
    own = {key: place.source.text_of(node) for key, node in call.arguments.items()}
    if call.name == "isa.tensor_scalar" and "op1" not in own:
        return own["data"], own["op0"], own["operand0"], own.get("reverse0") == "True"
    if call.name.removeprefix("language.") in _FUNCTIONS and "y" in own:
        number = _is_number(own["x"])
        data, operand = (own["y"], own["x"]) if number else (own["x"], own["y"])
        return data, _operator(place, call), operand, number
    raise Refusal(f"line {call.call.lineno} is no element-wise instruction of one operation")


def _operator(place: Place, call: Called) -> str:
    if call.name.startswith("language."):
        return f"{place.module('language')}.{call.name.removeprefix('language.')}"
    return place.source.text_of(call.arguments["op"])


def _function(call: Called) -> ast.expr:
    assert isinstance(call.call, ast.Call)
    return call.call.func


def _is_number(text: str) -> bool:
    try:
        return isinstance(ast.literal_eval(text), int | float)
    except (ValueError, SyntaxError):
        return False


def _is_tile(place: Place, call: Called, name: str) -> bool:
    """Whether an operation of `nl` joins a tile with another one."""
    others = [place.source.text_of(own) for key, own in call.arguments.items() if key in ("x", "y")]
    return len(others) == 2 and not any(map(_is_number, others))


def _says(node: ast.expr, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(node))


def _written(
    place: Place, call: Called, name: str, arguments: Mapping[str, str], old: Mapping[str, ast.expr]
) -> Edit:
    """The call of an instruction in the place of another one, which keeps its target, engine and mask."""
    words = {"dst": old.get("dst"), "dtype": old.get("dtype"), "mask": old.get("mask")}
    first = {key: place.source.text_of(node) for key, node in words.items() if node is not None}
    listed = ", ".join(f"{key}={text}" for key, text in ({**first, **arguments}).items())
    return Edit(*place.source.span(call.call), f"{place.module('isa')}.{name}({listed})")


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
    name = words.rpartition(" on ")[2].removesuffix("E").lower()
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
