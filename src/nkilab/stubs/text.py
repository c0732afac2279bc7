"""The text of one stub: classes, functions and values as a type checker reads them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from keyword import iskeyword
from typing import Any

from ..dialects.dst_first.tensor import Tensor
from ..dialects.generated_functions import MISSING
from ..dialects.history import BETA1, VERSIONS, Signature, at
from ..dialects.value_returning.tensor import Tensor as ReturnedTensor
from ..isa.declare import Instruction, Operand

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
        types_by_name |= {name: _operand(operand) for name, operand in declared.operands.items()}
        flags = {name for name, member in declared.attributes.items() if isinstance(member.default, bool)}
        types_by_name |= {name: "bool" if name in flags else "Any" for name in declared.attributes}
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


HEAD = """\
# Written by `nkilab stubs`: names and parameters as nkilab serves them. Not for installation.
from collections.abc import Callable, Iterator
from typing import Any, overload
"""
TENSORS = (Tensor, ReturnedTensor)
# What every module of a spelling names, and where it stands.
_SHARED = "_Tensor, _Kernel, _Op, _DType, _Shape"
_KERNEL = '''
# an operator, activation function or word for op=
_Op = Any
# a data type of nl, its name, or one of NumPy, ml_dtypes, torch or jax
_DType = Any
_Shape = int | tuple[int, ...] | list[int]

class _Kernel:
    """A kernel: called with arrays it returns arrays of their kind."""
    @property
    def __name__(self) -> str: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __getitem__(self, grid: Any) -> _Kernel: ...
'''
_DECORATOR = '''
@overload
def {name}({first}: Callable[..., Any], /) -> {return_type}: ...
@overload
def {name}({options}**kwargs: Any) -> Callable[[Callable[..., Any]], {return_type}]:
    """{sentence}"""
'''
_SAVES = "save_neff_name: str = ..., save_trace_name: str = ..., "
_DECORATORS = {
    "jit": "mode: str = ..., platform_target: str = ..., ",
    "trace": "",
    "benchmark": f"warmup: int = ..., iters: int = ..., {_SAVES}",
    "profile": f"working_directory: Any = ..., {_SAVES}",
    "baremetal": _SAVES,
}
# what our functions say that they return, as stubs say it
_RETURNED = {
    "Tensor": "_Tensor", "NkiTensor": "_Tensor", "int": "int", "bool": "bool", "str": "str", "None": "None",
}  # fmt: skip
# methods of Python's own that a tensor may have, and what they return
_BINARY = (
    "add", "sub", "mul", "truediv", "mod", "pow", "floordiv", "and", "or", "xor", "lshift", "rshift",
    "matmul",
)  # fmt: skip
_OPERATIONS = {
    **{f"__{r}{word}__": "_Tensor" for r in ("", "r", "i") for word in _BINARY},
    **{f"__{word}__": "_Tensor" for word in ("neg", "pos", "abs", "invert")},
    **{f"__{word}__": "_Tensor" for word in ("lt", "le", "gt", "ge")},
}  # fmt: skip


def root_text(module: str, names: Mapping[str, Any], children: Sequence[str], version: str) -> str:
    """The stub of a package that holds what its modules share."""
    tensor = TENSORS[module == "neuronxcc.nki"]
    asked = [version] if version else [BETA1] if tensor is ReturnedTensor else list(VERSIONS[1:])
    lines = [HEAD, *_imports(children), _KERNEL, *_tensor(tensor, asked)]
    return "\n".join([*lines, *_definitions(module, names, version)]) + "\n"


def module_text(module: str, names: Mapping[str, Any], children: Sequence[str], version: str) -> str:
    """The stub of a module."""
    lines = [HEAD, *_imports(children)]
    if names:
        root = "neuronxcc.nki" if module.startswith("neuronxcc") else "nki"
        lines.append(f"from {root} import {_SHARED}")
    return "\n".join([*lines, *_definitions(module, names, version)]) + "\n"


def _imports(children: Sequence[str]) -> list[str]:
    return [f"from . import {child} as {child}" for child in children]


def _definitions(module: str, names: Mapping[str, Any], version: str) -> Iterator[str]:
    # classes first: values may be of them
    for name, value in sorted(names.items(), key=lambda pair: not isinstance(pair[1], type)):
        if not name.isidentifier() or iskeyword(name):
            continue
        yield from _definition(module, name, value, version)


def _definition(module: str, name: str, value: Any, version: str) -> Iterator[str]:
    if isinstance(value, type):
        yield from _class(name, value)
    elif isinstance(value, Enum):
        yield f"{name}: {type(value).__name__ if module.endswith(('isa', 'language')) else 'Any'}"
    elif module in ("nki", "neuronxcc.nki") and name in _DECORATORS:
        first = "fn" if module == "nki" else "func"
        yield _DECORATOR.format(
            name=name,
            first=first,
            return_type="_Kernel",
            options=_DECORATORS[name],
            sentence=sentence_of(value),
        )
    elif callable(value):
        yield from _function(module, name, value, version)
    else:
        yield f"{name}: {type(value).__name__ if isinstance(value, int | float) else 'Any'}"


def _class(name: str, value: type) -> Iterator[str]:
    if issubclass(value, TENSORS):
        yield f"{name} = _Tensor"
        return
    if issubclass(value, Enum):
        yield f"class {name}:"
        yield from _docstring(value)
        yield from (f"    {member}: {name}" for member in value.__members__ if not iskeyword(member))
        return
    base = "(Exception)" if issubclass(value, Exception) else ""
    if value.__module__.startswith("nkilab."):
        yield f"class {name}{base}:"
        yield from _docstring(value)
        yield "    def __init__(self, *args: Any, **kwargs: Any) -> None: ..."
        yield f"    def __class_getitem__(cls, shape: Any) -> type[{name}]: ..."
        yield "    def __getattr__(self, name: str) -> Any: ..."
    else:
        # a type of NumPy or ml_dtypes
        yield f"{name}: _DType"


def _tensor(tensor: type, versions: Sequence[str]) -> Iterator[str]:
    """The class of tensors: the names that versions have, and the operations of Python's that it has."""
    yield "\nclass _Tensor:"
    yield from _docstring(tensor)
    shapes = {"shape": "tuple[int, ...]", "ndim": "int", "size": "int", "itemsize": "int", "buffer": "Any"}
    for name in sorted(n for n in dir(tensor) if any(at(f"tensor.{n}", v) is not None for v in versions)):
        member = inspect.getattr_static(tensor, name)
        if isinstance(member, property) or not callable(member):
            yield f"    @property\n    def {name}(self) -> {shapes.get(name, 'Any')}: ..."
        else:
            yield from (f"    {line}" for line in _method(name, member))
    yield "    def __getitem__(self, index: Any) -> _Tensor: ..."
    yield "    def __setitem__(self, index: Any, value: Any) -> None: ..."
    for name, return_type in _OPERATIONS.items():
        if name in dir(tensor) and getattr(tensor, name) is not getattr(object, name, None):
            other = "" if name.strip("_") in ("neg", "pos", "abs", "invert") else ", other: Any"
            yield f"    def {name}(self{other}) -> {return_type}: ..."
    yield "    def __bool__(self) -> bool: ..."


def _method(name: str, member: Any) -> Iterator[str]:
    signature = inspect.signature(member)
    parameters = list(signature.parameters.values())[1:]
    heads = ["self", *heads_of(parameters, {"dtype": "_DType"})]
    return_type = _RETURNED.get(str(signature.return_annotation), "Any")
    yield f"def {name}({', '.join(heads)}) -> {return_type}:"
    yield f'    """{sentence_of(member)}"""'


def _function(module: str, name: str, value: Any, version: str) -> Iterator[str]:
    yield f"def {name}({parameters_of(module, name, value, version)}) -> {_returned(module, name, value)}:"
    yield f'    """{sentence_of(value)}"""'


def _returned(module: str, name: str, value: Any) -> str:
    """The type that a function returns: an instruction of `nki` a handle, one of Beta 1 a tile."""
    if name in ("affine_range", "sequential_range", "static_range", "dynamic_range"):
        return "Iterator[Any]"
    # in Beta 1 a tensor may be blocks of tiles, of a class of their own that is used as the other is
    if module.startswith("neuronxcc") and (hasattr(value, "instruction") or name == "ndarray"):
        return "_Tensor"
    return _RETURNED.get(str(inspect.signature(value).return_annotation), "Any")


def _docstring(value: type) -> Iterator[str]:
    yield f'    """{sentence_of(value)}"""'


def sentence_of(value: Any) -> str:
    """The first sentence of a docstring, as text of a stub."""
    text = inspect.getdoc(value) or ""
    return " ".join(text.partition("\n\n")[0].split()).replace("\\", "\\\\").replace('"""', "'''").rstrip('"')
