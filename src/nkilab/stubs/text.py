"""The text of one stub: classes, functions and values as a type checker reads them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from keyword import iskeyword
from typing import Any

from ..dialects.dst_first.tensor import Tensor
from ..dialects.history import BETA1, VERSIONS, at
from ..dialects.value_returning.tensor import Tensor as ReturnedTensor
from .parameters import heads_of, parameters_of

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
        yield f"{name}: {_type_of(value)}"


def _type_of(value: Any) -> str:
    return type(value).__name__ if isinstance(value, int | float) else "Any"


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
