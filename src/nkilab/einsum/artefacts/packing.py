"""Host code between plain arrays and a kernel: shapes checked, types converted, layouts as specified."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ...tiles.dtypes import as_dtype
from ..language.ast import Cascade
from ..language.spec import Placement, Spec
from ..written.ranks import Ranks

_CHECK = '''\
def _sizes(given, sizes):
    """Extents of all ranks, after the shapes of the arrays are found to fit."""
    for name, (array, ranks) in given.items():
        shape = list(np.shape(array))
        if len(shape) != len(ranks):
            raise ValueError(f"{name} has the shape {shape}; its ranks are [{', '.join(ranks)}]")
        for rank, size in zip(ranks, shape):
            if sizes.setdefault(rank, size) != size:
                raise ValueError(f"{name} has the shape {shape}; {rank} is {sizes[rank]}, not {size}")
    return sizes
'''


@dataclass(frozen=True)
class Side:
    """An array between host and kernel."""

    tensor: str  # its name
    ranks: tuple[str, ...]  # as declared
    dtype: str  # in the kernel
    # per rank, extents of its parts, the outermost first: numbers, or a rank and what divides it
    parts: tuple[tuple[int | tuple[str, int], ...], ...]
    order: tuple[int, ...]  # for each axis in the kernel, its number among all parts

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Its shape in the kernel."""
        flat = [p if isinstance(p, int) else sizes[p[0]] // p[1] for held in self.parts for p in held]
        return tuple(flat[n] for n in self.order)

    @property
    def is_plain(self) -> bool:
        """Whether the kernel takes the array as it is declared."""
        return all(len(p) == 1 for p in self.parts) and self.order == tuple(range(len(self.ranks)))


def sides(
    spec: Spec, cascade: Cascade, dtypes: Mapping[str, str], tensors: Sequence[str],
    transposed: Collection[str] = (),
) -> list[Side]:  # fmt: skip
    """Inputs or outputs of a kernel.

    Args:
        spec: its placements in HBM say how tensors lie; those without one lie as declared.
        cascade: with extents as far as known.
        dtypes: of the tensors.
        transposed: those whose two axes the kernel has the other way round.
    """
    ranks = Ranks(spec)
    found = []
    for tensor in tensors:
        placed = next(
            (p for p in spec.placements.values() if p.tensor == tensor and p.component == "HBM"), None
        )
        placed = None if placed is not None and placed.is_plain else placed
        side = _side(ranks, cascade, tensor, dtypes[tensor], placed)
        found.append(replace(side, order=side.order[::-1]) if tensor in transposed else side)
    return found


def _side(ranks: Ranks, cascade: Cascade, tensor: str, dtype: str, placed: Placement | None) -> Side:
    declared = cascade.tensors[tensor].ranks
    einsum = placed.einsum if placed else ""
    names = [(r,) if ranks.has_edge(einsum, r) else ranks.names_after(einsum, r) for r in declared]
    parts = tuple(
        tuple(_extent(ranks, cascade, einsum, rank, number, len(held)) for number in range(len(held)))
        for rank, held in zip(declared, names)
    )
    flat = [name for held in names for name in held]
    if placed is None:
        return Side(tensor, declared, dtype, parts, tuple(range(len(flat))))
    order = dict.fromkeys(ranks.edge_of(einsum, name) or name for name in placed.ranks)
    return Side(tensor, declared, dtype, parts, tuple(flat.index(name) for name in order))


def _extent(
    ranks: Ranks, cascade: Cascade, einsum: str, rank: str, number: int, count: int
) -> int | tuple[str, int]:
    """The extent of part `number`, counted from the outermost of `count`."""
    shapes = ranks.spec.partitioning.get(einsum, {}).get(rank, ()) if count > 1 else ()
    inner = shapes[number] if number < len(shapes) else 1
    if number:
        return int(shapes[number - 1] // inner)
    size = cascade.sizes.get(rank)
    return (rank, inner) if size is None else size // inner


def _text(extent: int | tuple[str, int]) -> str:
    if isinstance(extent, int):
        return str(extent)
    rank, divisor = extent
    return f'sizes["{rank}"]' + (f" // {divisor}" if divisor > 1 else "")


def _shape(extents: Sequence[int | tuple[str, int]]) -> str:
    return f"({', '.join(map(_text, extents))})" if extents else "(())"


def numpy_type(dtype: str) -> str:
    """How NumPy code names a type."""
    storage = as_dtype(dtype).storage
    return f"np.{storage.name}" if storage.type.__module__ == "numpy" else f"ml_dtypes.{storage.name}"


def packing_text(
    name: str, inputs: Sequence[Side], outputs: Sequence[Side], sizes: Mapping[str, int],
    parameters: Sequence[str],
) -> str:  # fmt: skip
    """Functions `pack` and `unpack`.

    Args:
        sizes: extents that are fixed.
        parameters: ranks whose extents the kernel takes as arguments.
    """
    told = [f"    {s.tensor}: {s.dtype} [{', '.join(s.ranks)}]" for s in inputs]
    used = {r: sizes[r] for s in inputs for r in s.ranks if r in sizes}
    given = [f'        "{s.tensor}": ({s.tensor}, {s.ranks!r}),' for s in inputs]
    lines = [
        _CHECK, "", f"def pack({', '.join(s.tensor for s in inputs)}):",
        f'    """Arguments of {name} by name, from plain arrays.', "", *told, '    """',
        "    given = {", *given, "    }", f"    {'sizes = ' if parameters else ''}_sizes(given, {used!r})",
    ]  # fmt: skip
    extents = (e for side in (*inputs, *outputs) for parts in side.parts for e in parts)
    for rank, part in dict.fromkeys(e for e in extents if not isinstance(e, int) and e[1] > 1):
        claim = f"{rank} is {{sizes['{rank}']}}; it must be a multiple of {part}"
        lines += [f'    if sizes["{rank}"] % {part}:', f'        raise ValueError(f"{claim}")']
    lines.append("    return {")
    lines += [f'        "{s.tensor}": {_packed(s)},' for s in inputs]
    lines += [f'        "{rank}": sizes["{rank}"],' for rank in parameters]
    return "\n".join([*lines, "    }", "", "", *_unpack(name, outputs, bool(parameters))]) + "\n"


def _packed(side: Side) -> str:
    text = f"np.asarray({side.tensor}, {numpy_type(side.dtype)})"
    if not side.is_plain:
        text += f".reshape{_shape([p for held in side.parts for p in held])}"
        if side.order != tuple(range(len(side.order))):
            text += f".transpose{side.order!r}"
    # a tensor without ranks is one element in HBM
    return text if side.ranks else f"{text}.reshape(1)"


def _unpack(name: str, outputs: Sequence[Side], needs_sizes: bool) -> list[str]:
    told = ", ".join(f"{s.tensor} [{', '.join(s.ranks)}]" for s in outputs)
    lines = ["def unpack(results, arguments):",
             f'    """Plain arrays from what {name} returned for these arguments: {told}."""']  # fmt: skip
    if needs_sizes:
        lines.append("    sizes = arguments")
    lines.append("    results = results if isinstance(results, (tuple, list)) else (results,)")
    names = [f"np.asarray(results[{n}]){_unpacked(s)}" for n, s in enumerate(outputs)]
    if len(names) == 1:
        return [*lines, f"    return {names[0]}"]
    return [*lines, "    return (", *(f"        {n}," for n in names), "    )"]


def _unpacked(side: Side) -> str:
    flat = [p for held in side.parts for p in held]
    text = f".reshape{_shape([flat[n] for n in side.order])}"
    back = tuple(side.order.index(n) for n in range(len(side.order)))
    if back != tuple(range(len(back))):
        text += f".transpose{back!r}"
    if any(len(p) > 1 for p in side.parts):
        text += f".reshape{_shape([_whole(p) for p in side.parts])}"
    return text


def _whole(parts: tuple[int | tuple[str, int], ...]) -> int | tuple[str, int]:
    first = parts[0]
    if isinstance(first, tuple):
        return first[0], 1
    total = first
    for part in parts[1:]:
        total *= part if isinstance(part, int) else 1
    return total


def module_text(source: str, packing: str) -> str:
    """The text of a kernel's module with its host code: imports joined, functions below the kernel."""
    wanted = ["import numpy as np"] + (["import ml_dtypes"] if "ml_dtypes." in packing else [])
    lines = source.rstrip().split("\n")
    at = next(n for n, line in enumerate(lines) if line.startswith("import "))
    lines[at:at] = sorted(w for w in wanted if w not in lines)
    return "\n".join(lines) + "\n\n\n" + packing
