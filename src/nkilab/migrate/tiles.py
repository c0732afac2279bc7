"""Which variables of a function hold tiles, from the calls that made them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from msgspec import Struct

from .source import Function, Source

CREATES = {"language.ndarray", "language.zeros", "language.ones", "language.full", "language.zeros_like",
           "language.empty_like", "language.rand"}  # fmt: skip
# Names of nki.language that give no tile.
_NO_TILE = {"language.arange", "language.mgrid", "language.ds", "language.par_dim", "language.program_id",
            "language.num_programs", "language.program_ndim", "language.affine_range", "language.finfo",
            "language.sequential_range", "language.static_range", "language.nc", "language.spmd_dim",
            "language.store", "language.device_print", "language.dynamic_range", "language.range",
            "isa.get_nc_version", "isa.register_alloc", "isa.dma_copy", "isa.nc_stream_shuffle"}  # fmt: skip


class Creation(Struct, frozen=True):
    """What is known of a tile from the call that made it."""

    memory: str  # "sbuf", "psum", "hbm", "private_hbm", "shared_hbm"; "" if it cannot be told
    dtype: str  # name; "" if it cannot be told
    rank: int  # number of axes; 0 if it cannot be told
    call: ast.Call
    creator: str  # name in the tables of `history`

    @property
    def is_on_chip(self) -> bool:
        """Whether it lies in SBUF or PSUM."""
        return self.memory in ("sbuf", "psum")


def argument(call: ast.Call, keyword: str, place: int) -> ast.expr | None:
    """An argument by keyword or position."""
    for argument in call.keywords:
        if argument.arg == keyword:
            return argument.value
    return call.args[place] if 0 <= place < len(call.args) else None


def buffer_place(creator: str) -> int:
    """The position of buffer= in a call of nki that makes a tile; dtype= stands before it."""
    return 3 if creator == "language.full" else 2


def _tail(source: Source, node: ast.expr | None) -> str:
    """The last part of a name of NKI, or the characters of a string."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    resolved = source.resolve(node) if node is not None else None
    return resolved[1].rpartition(".")[2] if resolved is not None else ""


def _rank(node: ast.expr | None) -> int:
    return len(node.elts) if isinstance(node, ast.Tuple | ast.List) else 0


def creation_by(source: Source, node: ast.expr) -> Creation | None:
    """What a call makes, if it makes a tile."""
    resolved = source.resolve(node.func) if isinstance(node, ast.Call) else None
    if resolved is None or not isinstance(node, ast.Call):
        return None
    spelling, name = resolved
    if name in CREATES:
        place = buffer_place(name)
        dtype = _tail(source, argument(node, "dtype", place - 1))
        buffer = argument(node, "buffer", place if spelling == "nki" else -1)
        memory = _tail(source, buffer) if buffer is not None else "sbuf"
        return Creation(memory, dtype, _rank(argument(node, "shape", 0)), node, name)
    if spelling == "neuronxcc" and name.startswith("isa.") and name not in _NO_TILE:
        memory = "psum" if name == "isa.nc_matmul" else "sbuf" if name != "isa.nc_transpose" else ""
        return Creation(memory, "", 0, node, name)
    is_function = name.startswith("language.") and name not in _NO_TILE and name.count(".") == 1
    return (
        Creation("psum" if name == "language.matmul" else "sbuf", "", 0, node, name) if is_function else None
    )


def tiles_of(source: Source, function: Function | None) -> dict[str, Creation]:
    """The variables of a function, or of the module, that hold a tile."""
    known: dict[str, Creation] | None = source.kept.get(function)
    if known is None:
        known = source.kept[function] = dict(_assigned(source, function))
    return known


def _assigned(source: Source, function: Function | None) -> Iterator[tuple[str, Creation]]:
    for node in source.assignments(function):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        creation = creation_by(source, node.value) if node.value is not None else None
        if creation is not None:
            yield from ((target.id, creation) for target in targets if isinstance(target, ast.Name))


def tile_of(source: Source, node: ast.expr) -> Creation | None:
    """What is known of the tile that an expression is, a part of, or makes."""
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Name):
        return tiles_of(source, source.function_of(node)).get(node.id)
    return creation_by(source, node)
