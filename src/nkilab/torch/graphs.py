"""An exported model as operators with the work they mean to a NeuronCore, and the tensors between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol, runtime_checkable

from .._lazy import torch
from ..errors import UsageError

Shape = tuple[int, ...]
# Operators that move no element where a kernel reads and writes through access patterns.
VIEWS = {
    "view", "_unsafe_view", "reshape", "flatten", "unflatten", "permute", "transpose", "t", "swapaxes",
    "movedim", "expand", "expand_as", "broadcast_to", "unsqueeze", "squeeze", "select", "slice",
    "narrow", "split", "split_with_sizes", "chunk", "unbind", "getitem", "detach", "alias",
    "contiguous", "clone", "to", "_to_copy", "type_as", "lift_fresh_copy", "view_as", "numpy_T", "mT",
}  # fmt: skip
# Functions of one value, which ScalarE computes; other element-wise operators take one pass of VectorE.
FUNCTIONS = {
    "exp", "exp2", "log", "log1p", "sqrt", "rsqrt", "sin", "cos", "tanh", "sigmoid", "silu", "gelu",
    "erf", "elu", "softplus", "mish", "reciprocal", "hardswish", "logsigmoid", "selu", "celu",
}  # fmt: skip
# Passes over the elements of the first operand, functions among them, and how often an operator that is run
# step by step writes or reads a tensor of that size besides its operands and its result.
ROWS: dict[str, tuple[int, int, int]] = {
    "softmax": (3, 1, 2), "_softmax": (3, 1, 2), "log_softmax": (3, 1, 2), "_log_softmax": (3, 1, 2),
    "rms_norm": (3, 0, 2), "layer_norm": (4, 0, 4), "native_layer_norm": (4, 0, 4),
    "group_norm": (4, 0, 4), "batch_norm": (4, 0, 4),
    "sum": (1, 0, 0), "mean": (1, 0, 0), "amax": (1, 0, 0), "amin": (1, 0, 0), "max": (1, 0, 0),
    "dropout": (1, 0, 0), "cumsum": (1, 0, 0),
    "var": (2, 0, 0), "norm": (2, 0, 0), "linalg_vector_norm": (2, 0, 0),
}  # fmt: skip
# Operators that move elements to other places, a pass over the result.
MOVES = {"cat", "stack", "pad", "constant_pad_nd", "repeat", "roll", "flip", "tril", "triu"}
# Poolings, by the number of axes that they slide along.
POOLS = {
    "max_pool1d": 1, "max_pool2d": 2, "max_pool3d": 3, "max_pool2d_with_indices": 2,
    "avg_pool1d": 1, "avg_pool2d": 2, "avg_pool3d": 3,
}  # fmt: skip
# Operators that drop elements in training alone, and then with a chance.
DROPOUTS = {"dropout", "native_dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout"}
# Poolings that take every element of the first operand once.
ADAPTIVE_POOLS = {"adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_max_pool2d"}


@dataclass(frozen=True)
class Operator:
    """One operator of a model."""

    name: str  # of the operator, without overload
    node: str  # its name in the graph
    inputs: tuple[str, ...]  # tensors it reads, by the name of the node that makes them
    shapes: tuple[Shape, ...]  # of the inputs and of the result, for telling alike operators
    flops: int  # of products, two per multiplication with addition
    elements: int  # that pass VectorE
    functions: int  # elements that pass ScalarE
    inner_bytes: int  # what it writes to HBM and reads again if it is run step by step
    narrow: bool  # whether the elements that it reads and makes have two bytes or fewer
    form: str  # arguments that are no tensor or fraction: axes, strides, flags


@dataclass(frozen=True)
class Graph:
    """A model as operators."""

    operators: Mapping[str, Operator]  # by node, in the order in which they run
    bytes: Mapping[str, int]  # of every tensor, by the node that makes it
    results: frozenset[str]  # nodes whose tensors the model returns
    # what operators read whose work is not known, by their node; a kernel cannot hold them
    others: Mapping[str, tuple[str, ...]]
    left_out: Mapping[str, int]  # operators whose work is not known, by name, with their number


@runtime_checkable
class _Node(Protocol):
    """What is read of a node of torch.fx."""

    name: str
    op: str
    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    meta: dict[str, Any]
    all_input_nodes: list[_Node]


def _sizes(value: Any) -> Shape:
    return tuple(int(n) for n in value.shape)


def _product(shapes: list[Shape], result: Shape) -> int:
    return 2 * prod(result) * shapes[0][-1]


def _by_second(shapes: list[Shape], result: Shape) -> int:
    # the second is a weight [out, in], or the first factor, behind what is added
    return 2 * prod(result) * shapes[1][-1]


def _convolution(shapes: list[Shape], result: Shape) -> int:
    # weights are [out, in per group, window]
    return 2 * prod(result) * prod(shapes[1][1:])


def _transposed(shapes: list[Shape], result: Shape) -> int:
    # weights are [in, out per group, window]
    return 2 * prod(shapes[0]) * prod(shapes[1][1:])


def _einsum_flops(equation: str, shapes: list[Shape]) -> int | None:
    """FLOP of a product of two tensors by its equation; None for anything else."""
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    if len(terms) != 2 or "." in equation:
        return None
    extents: dict[str, int] = {}
    for axis, n in (axis for term, shape in zip(terms, shapes, strict=True) for axis in zip(term, shape)):
        # an axis of one element is repeated
        extents[axis] = max(n, extents.get(axis, 1))
    return 2 * prod(extents.values())


def _attention(
    node: _Node, shapes: list[Shape], result: Shape, size: int, constants: _Constants
) -> tuple[int, int, int, int]:
    """The work of attention on the scores that its mask leaves.

    A mask counts where the model says what it is: is_causal, or a tensor that follows from its constants.
    """
    query, key, value = shapes[:3]
    scores = prod(result[:-1]) * key[-2]
    if _argument(node, "is_causal"):
        # row n takes part in the scores of the first n + 1 keys
        scores = prod(result[:-2]) * sum(min(n + 1, key[-2]) for n in range(query[-2]))
    mask = constants.value(_argument(node, "attn_mask"))
    if mask is not None:
        taken = mask if mask.dtype == torch().bool else mask > float("-inf")
        scores = scores * int(taken.sum()) // taken.numel()
    passes = 3 if _argument(node, "dropout_p") else 2
    # scores are written, read and written by the softmax, and read again
    return 2 * scores * (query[-1] + value[-1]), passes * scores, scores, 4 * scores * size


def _argument(node: _Node, name: str) -> Any:
    """What an operator is called with by the name of its schema."""
    for place, argument in enumerate(node.target._schema.arguments):
        if argument.name == name:
            default = argument.default_value if argument.has_default_value() else None
            return node.args[place] if place < len(node.args) else node.kwargs.get(name, default)
    return None


class _Constants:
    """Tensors that follow from a model and not from what it is called with; parameters are learned."""

    def __init__(self, exported: Any) -> None:
        signature = exported.graph_signature
        names = {**signature.inputs_to_buffers, **signature.inputs_to_lifted_tensor_constants}
        tensors = {**exported.state_dict, **exported.constants}
        self._values: dict[str, Any] = {node: tensors.get(name) for node, name in names.items()}

    def value(self, node: object) -> Any:
        """The tensor of a node; None where it is none, or not known."""
        if not isinstance(node, _Node):
            return None
        if node.name not in self._values:
            self._values[node.name] = self._computed(node)
        tensor = self._values[node.name]
        return None if getattr(tensor, "is_meta", False) else tensor

    def _computed(self, node: _Node) -> Any:
        is_random = torch().Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        if node.op != "call_function" or is_random:
            return None
        if any(self.value(n) is None for n in node.all_input_nodes):
            return None
        args, kwargs = torch("fx").node.map_arg((node.args, node.kwargs), self.value)
        return node.target(*args, **kwargs)


# FLOP of products by the shapes of the tensors they read, and of the result.
PRODUCTS: dict[str, Callable[[list[Shape], Shape], int]] = {
    "mm": _product, "bmm": _product, "matmul": _product, "mv": _product, "dot": _product,
    "linear": _by_second, "addmm": _by_second, "baddbmm": _by_second,
    "conv1d": _convolution, "conv2d": _convolution, "conv3d": _convolution, "convolution": _convolution,
    "conv_transpose1d": _transposed, "conv_transpose2d": _transposed, "conv_transpose3d": _transposed,
}  # fmt: skip


def _exported(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What torch.export makes of a model."""
    if not isinstance(model, torch().nn.Module):
        raise UsageError(
            f"model is {type(model).__name__}; it must be a torch.nn.Module or an exported program",
            hint="pass the module, then what it is called with",
        )
    try:
        return torch().export.export(model, args, kwargs or None)
    except Exception as error:
        problem = str(error).strip().split("\n")[0]
        raise UsageError(
            f"{type(model).__name__} cannot be exported with these arguments: "
            f"{type(error).__name__}: {problem}",
            hint="call the model with them first, then torch.export.export(model, args)",
        ) from error


def graph_of(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Graph:
    """Export a model, or take one that is exported, and read its operators."""
    is_exported = isinstance(model, torch().export.ExportedProgram)
    exported = model if is_exported else _exported(model, args, kwargs)
    operators: dict[str, Operator] = {}
    sizes: dict[str, int] = {}
    # a view is the tensor that it looks at
    roots: dict[str, str] = {}
    left_out: dict[str, int] = {}
    others: dict[str, tuple[str, ...]] = {}
    constants: set[str] = set()
    known = _Constants(exported)
    results: set[str] = set()
    for node in exported.graph.nodes:
        if node.op == "output":
            results = {roots[n.name] for n in node.all_input_nodes if n.name in roots}
            continue
        value = _first_tensor(node.meta.get("val"))
        tensors = [n for n in _read(node) if n.name in roots]
        name = _name(node)
        if tensors and (name in VIEWS or _is_identity(node, name)):
            roots[node.name] = roots[tensors[0].name]
            continue
        if value is None:
            continue
        roots[node.name] = node.name
        sizes[node.name] = prod(_sizes(value)) * value.element_size()
        if node.op != "call_function":
            continue
        inputs = tuple(dict.fromkeys(roots[n.name] for n in tensors))
        if constants.issuperset(inputs):
            constants.add(node.name)
            continue
        operator = _operator(node, name, value, tensors, inputs, known)
        if operator is not None:
            operators[node.name] = operator
            continue
        others[node.name] = inputs
        if sizes[node.name] > value.element_size():
            left_out[name] = left_out.get(name, 0) + 1
    return Graph(operators, sizes, frozenset(results), others, left_out)


def _first_tensor(value: Any) -> Any:
    """What a node makes, or the first of it; None if that is no tensor."""
    first = value[0] if isinstance(value, tuple | list) and value else value
    return first if hasattr(first, "element_size") else None


def _read(node: _Node) -> list[_Node]:
    """The nodes among the arguments of a node, one that is given twice twice."""
    arrays: list[_Node] = []
    torch("fx").node.map_arg((node.args, node.kwargs), arrays.append)
    return arrays


def _is_identity(node: _Node, name: str) -> bool:
    """Whether a dropout drops nothing."""
    return name in DROPOUTS and not (_argument(node, "train") and _argument(node, "p"))


def _name(node: _Node) -> str:
    """The name of the operator of a node, without namespace and overload; "" for inputs."""
    if node.op != "call_function":
        return ""
    schema = getattr(node.target, "_schema", None)
    own: str = schema.name.rpartition("::")[2] if schema is not None else node.target.__name__
    return own[:-1] if own.endswith("_") and not own.startswith("__") else own


def _operator(
    node: _Node, name: str, value: Any, tensors: list[_Node], inputs: tuple[str, ...], known: _Constants
) -> Operator | None:
    """The work of a node; None where it is not known, or is about single numbers."""
    operands = [n.meta["val"] for n in tensors if hasattr(n.meta.get("val"), "shape")]
    shapes, result = [_sizes(operand) for operand in operands], _sizes(value)
    if max(map(prod, (*shapes, result))) == 1:
        return None
    work = _work(node, name, shapes, result, value.element_size(), known)
    if work is None:
        return None
    is_narrow = all(tensor.element_size() <= 2 for tensor in (*operands, value) if prod(_sizes(tensor)) > 1)
    return Operator(name, node.name, inputs, (*shapes, result), *work, is_narrow, _form(node))


def _form(node: _Node) -> str:
    """The arguments of a node that are no tensor or fraction, as text."""

    def text_of(argument: object) -> str:
        if isinstance(argument, list | tuple):
            return f"[{', '.join(map(text_of, argument))}]"
        return str(argument) if isinstance(argument, int | str) else "_"

    named = [f"{key}={text_of(argument)}" for key, argument in sorted(node.kwargs.items())]
    return ", ".join([*map(text_of, node.args), *named])


def _work(
    node: _Node, name: str, shapes: list[Shape], result: Shape, size: int, known: _Constants
) -> tuple[int, int, int, int] | None:
    """FLOP of products, elements that pass VectorE and ScalarE, bytes that go to HBM in between."""
    if name == "einsum":
        flops = _einsum_flops(node.args[0], shapes)
        return None if flops is None else (flops, 0, 0, 0)
    if name == "scaled_dot_product_attention":
        return _attention(node, shapes, result, size, known)
    if name in PRODUCTS:
        is_transposed = name == "convolution" and _argument(node, "transposed")
        return (_transposed if is_transposed else PRODUCTS[name])(shapes, result), 0, 0, 0
    if name == "batch_norm" and not _argument(node, "training"):
        # means and variances are known: one multiplication with addition
        return 0, prod(result), 0, 0
    if name in ROWS:
        passes, functions_of, moved = ROWS[name]
        elements = prod(shapes[0])
        return 0, passes * elements, functions_of * elements, moved * elements * size
    if name in POOLS:
        window = node.args[1]
        taken = prod(window) if len(window) > 1 else window[0] ** POOLS[name]
        return 0, taken * prod(result), 0, 0
    if name in ADAPTIVE_POOLS:
        return 0, prod(shapes[0]), 0, 0
    if name in MOVES:
        return 0, prod(result), 0, 0
    if torch().Tag.pointwise in getattr(node.target, "tags", ()):
        return (0, 0, prod(result), 0) if name in FUNCTIONS else (0, prod(result), 0, 0)
    return None
