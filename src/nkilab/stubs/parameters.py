"""The parameters of a function as a stub has them, with types from its declaration."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from ..dialects.generated_functions import MISSING
from ..dialects.history import BETA1, VERSIONS, Signature, at
from ..isa.declare import Attribute, Instruction, Operand

_PLAIN = {"bool": "bool", "int": "int", "str": "str", "float": "float"}
_SHAPES = ("shape", "new_shape")


def parameters_of(module: str, name: str, function: Callable[..., Any], version: str) -> str:
    """The parameters of a served function.

    Of one version they are those of its stub. Of all versions they are the function's own, then whatever else
    a version takes by keyword.
    """
    declared: type[Instruction] | None = getattr(function, "instruction", None) or getattr(
        getattr(function, "__wrapped__", None), "instruction", None
    )
    types = _types(function, declared)
    listed = _listed(module, name, version)
    if version and listed:
        return _of_version(listed[0], types)
    return _of_all(function, listed, types)


def _listed(module: str, name: str, version: str) -> list[Signature]:
    """Signatures of the tables of `history`, the newest first."""
    is_beta = module.startswith("neuronxcc")
    below = module.removeprefix("neuronxcc.").removeprefix("nki").removeprefix(".")
    called = f"{below}.{name}" if below else name
    asked = (version,) if version else (BETA1,) if is_beta else reversed(VERSIONS[1:])
    events = [at(called, v) for v in asked]
    signatures = [event.signature for event in events if event is not None and event.kind == "function"]
    return list(dict.fromkeys(signatures))


def _of_version(listed: Signature, types: dict[str, str]) -> str:
    # a stub that names no position takes *args
    takes_any = listed.is_open and not listed.positional
    heads = ["*args: Any"] if takes_any else []
    is_keyword = takes_any
    for parameter in listed.parameters:
        if not parameter.is_positional and not is_keyword:
            heads.append("*")
            is_keyword = True
        heads.append(
            f"{parameter.name}: {types.get(parameter.name, 'Any')}" + (" = ..." if parameter.default else "")
        )
    return ", ".join([*heads, *(["**kwargs: Any"] if listed.is_open else [])])


def _of_all(function: Callable[..., Any], listed: list[Signature], types: dict[str, str]) -> str:
    own = own_parameters(function)
    if _tells_nothing(own):
        first = listed[0] if listed and listed[0].parameters else None
        return _of_version(first, types) if first is not None else ", ".join(heads_of(own, types))
    # what is generated takes and tells whatever else is given
    is_generated = any(p.name == "unknown" for p in own)
    own = [p for p in own if not (is_generated and p.name in ("unknown", "rest"))]
    heads = list(heads_of(own, types))
    names = {p.name for p in own}
    is_open = any(p.kind is p.VAR_KEYWORD for p in own)
    further = {p.name for signature in listed for p in signature.parameters} - names
    if further and not is_open:
        if not any(p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL) for p in own):
            heads.append("*")
        heads += [f"{name}: {types.get(name, 'Any')} = ..." for name in sorted(further)]
    return ", ".join(heads)


def own_parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of a function, or of what it wraps where it passes on whatever it is given."""
    own = list(inspect.signature(function, follow_wrapped=False).parameters.values())
    return list(inspect.signature(function).parameters.values()) if _tells_nothing(own) else own


def _tells_nothing(own: list[inspect.Parameter]) -> bool:
    return bool(own) and all(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in own)


def heads_of(own: list[inspect.Parameter], types: dict[str, str]) -> Iterator[str]:
    """Parameters as a stub has them; the type of those that have none is Any."""
    is_keyword = False
    for parameter in own:
        if parameter.kind is parameter.KEYWORD_ONLY and not is_keyword:
            yield "*"
        is_keyword = is_keyword or parameter.kind in (parameter.VAR_POSITIONAL, parameter.KEYWORD_ONLY)
        yield _head(parameter, types.get(parameter.name, "Any"))


def _head(parameter: inspect.Parameter, kind: str) -> str:
    match parameter.kind:
        case parameter.VAR_POSITIONAL:
            return f"*{parameter.name}: Any"
        case parameter.VAR_KEYWORD:
            return f"**{parameter.name}: Any"
    is_needed = parameter.default is parameter.empty or parameter.default is MISSING
    return f"{parameter.name}: {kind}" + ("" if is_needed else " = ...")


def _types(function: Callable[..., Any], declared: type[Instruction] | None) -> dict[str, str]:
    """Types by parameter: of operands, of attributes that are plain, of what is annotated."""
    types_by_name = dict.fromkeys(_SHAPES, "_Shape")
    annotated = {p.name: str(p.annotation) for p in own_parameters(function)}
    types_by_name |= {
        name: _PLAIN[annotation] for name, annotation in annotated.items() if annotation in _PLAIN
    }
    if declared is not None:
        types_by_name |= {
            name: _operand(declared_member) for name, declared_member in declared.operands.items()
        }
        types_by_name |= {
            name: _attribute(declared_member) for name, declared_member in declared.attributes.items()
        }
    types_by_name |= {"dtype": "_DType", "name": "str | None"}
    return types_by_name


def _operand(operand: Operand) -> str:
    """Tiles come as tensors or as views and indices of them, which only the run tells apart."""
    kinds = ["list[Any] | tuple[Any, ...]" if operand.most else "_Tensor"]
    if operand.may_be_number:
        kinds.append("float")
    if operand.is_optional:
        kinds.append("None")
    return "Any" if kinds == ["_Tensor"] and operand.takes_rows else " | ".join(kinds)


def _attribute(attribute: Attribute) -> str:
    return "bool" if isinstance(attribute.default, bool) else "Any"
