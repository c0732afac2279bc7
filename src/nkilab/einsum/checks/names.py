"""Names and sizes: of tensors, ranks, Einsums, and every key of the mapping that refers to them."""

from __future__ import annotations

import keyword
from collections import Counter
from collections.abc import Iterator
from math import inf, prod

import numpy as np

from ...errors import shown
from ..grades import Finding, found
from ..language.ast import Cascade, Iterate, Scalar, is_variable
from ..language.nodes import Node
from ..language.spec import Spec
from .model import close_to

# words that kernels use for themselves
TAKEN = {"nki", "nisa", "nl", "ni", "np", "range", "float", "min", "max", "const", "inf", "unary", "binary"}
# functions of its module
BESIDE_KERNEL = ("pack", "unpack")
# elements of a tensor that are compiled; more is a slip of the pen
MOST_ELEMENTS = 1 << 40
MOST_EXTENT = 1 << 31
LARGEST = float(np.finfo(np.float32).max)
# whole numbers beyond are meant as magnitudes
MOST_EXACT = 1 << 53


def check_cascade(spec: Spec) -> Iterator[Finding]:
    """Names of tensors and ranks, sizes, the order of reads and writes."""
    yield from _tensor_names(spec)
    yield from _sizes(spec)
    yield from _numbers(spec)
    yield from _outputs(spec)
    yield from _reads(spec)


def _tensor_names(spec: Spec) -> Iterator[Finding]:
    names = [(t, "the tensor", spec.node("einsum", "declaration", t)) for t in spec.cascade.tensors]
    names += [(s, "the scalar", spec.node("einsum", "scalars", s)) for s in spec.cascade.scalars]
    if spec.kernel_name:
        names.append((spec.kernel_name, "the kernel", spec.node("options", "kernel-name")))
    for name, what, node in names:
        is_taken = name in TAKEN or (what == "the kernel" and name in BESIDE_KERNEL)
        if keyword.iskeyword(name) or is_taken or not name.isascii():
            yield found("reserved-name", node.at_key, name=name, what=what)
    for tensor, rank in ((t.name, r) for t in spec.cascade.tensors.values() for r in t.ranks):
        if is_variable(rank) or not rank.isidentifier() or not rank.isascii():
            node = spec.node("einsum", "declaration", tensor)
            yield found("rank-name", node, rank=rank, tensor=tensor, capital=rank.capitalize())


def known_ranks(cascade: Cascade) -> list[str]:
    """Ranks that are declared, that variables run over, or that indices name."""
    found = [r for t in cascade.tensors.values() for r in t.ranks]
    for einsum, block in cascade.walk():
        found += [v.upper() for v in einsum.variables]
        if isinstance(block, Iterate):
            found.append(block.variable.upper())
        found += [n for i in einsum.indices for n in i.extents]
    return list(dict.fromkeys(found))


def _sizes(spec: Spec) -> Iterator[Finding]:
    cascade = spec.cascade
    known = known_ranks(cascade)
    for rank, size in cascade.sizes.items():
        node = spec.node("einsum", "shape", rank)
        if rank not in known and spec.root is not None and node.path.endswith(f"shape.{rank}"):
            yield found("shape-rank", node.at_key, rank=rank, ranks=known, close=close_to(rank, known))
        if size > MOST_EXTENT:
            yield found("size", node, what=f"rank {rank}", size=size, most=MOST_EXTENT)
            return
    for name in (t.name for t in cascade.tensors.values() if all(r in cascade.sizes for r in t.ranks)):
        size = prod(cascade.shape(name))
        if size > MOST_ELEMENTS:
            node = spec.node("einsum", "declaration", name).at_key
            yield found("size", node, what=name, size=size, most=MOST_ELEMENTS)


def _numbers(spec: Spec) -> Iterator[Finding]:
    """Numbers that float32 does not have; it has infinities."""
    numbers: list[tuple[str, float, Node]] = [
        (f"the scalar {name}", value, spec.node("einsum", "scalars", name))
        for name, value in spec.cascade.scalars.items()
    ]
    for einsum in spec.cascade.einsums:
        node = Node(None, "einsum.expressions", einsum.place)
        values = [o.value for o in einsum.operands if isinstance(o, Scalar)]
        values += [number for p in einsum.positions for _, number in (("", p.index.constant), *p.index.terms)]
        numbers += [("a number", value, node) for value in (*values, einsum.otherwise)]
    for what, value, node in numbers:
        if value != value or LARGEST < abs(value) < inf:
            yield found("number", node, what=what, value=shown(value), most=f"{LARGEST:.3g}")
        elif (
            float(value).is_integer()
            and abs(value) < MOST_EXACT
            and (near := int(np.float32(value))) != value
        ):
            yield found("whole-number", node, what=what, value=int(value), near=near)


def _outputs(spec: Spec) -> Iterator[Finding]:
    for tensor, times in Counter(spec.cascade.outputs).items():
        if times > 1:
            yield found("output-twice", spec.node("options", "cascade-outputs"), tensor=tensor)


def _reads(spec: Spec) -> Iterator[Finding]:
    cascade = spec.cascade
    numbered = [(number, einsum) for number, step in enumerate(cascade.steps) for einsum in step.body]
    first: dict[str, int] = {}
    for number, einsum in numbered:
        first.setdefault(einsum.name, number)
    for number, einsum in numbered:
        node = Node(None, "einsum.expressions", einsum.place)
        for tensor in (t for t in einsum.reads if first.get(t, -1) > number):
            later = next(e for e in cascade.einsums if e.name == tensor)
            is_own = later.place == einsum.place and later.place.line
            key = "reads-itself" if is_own else "read-before-written"
            yield found(key, node, tensor=tensor, text=later.text or str(later))
        before = [e.output for n, e in numbered if n < number and e.name == einsum.name]
        since = {t for n, e in numbered if first[einsum.name] <= n <= number for t in e.reads}
        is_whole = len({i.plain for i in einsum.output.indices} - {""}) == len(einsum.output.indices)
        is_again = einsum.output in before or (is_whole and before)
        if is_again and einsum in cascade.steps and einsum.name not in since:
            yield found("written-over", node, tensor=einsum.name)
        # in a block the turns before may have written it
        if first[einsum.name] == number and einsum.name in einsum.reads and einsum in cascade.steps:
            yield found("reads-itself", node, tensor=einsum.name)


def check_references(spec: Spec) -> Iterator[Finding]:
    """Every name in mapping, format and binding belongs to something."""
    einsums, tensors = spec.cascade.written, tuple(spec.cascade.tensors)
    orders = [(e, ("format", t, "rank-order", e)) for t, held in spec.rank_order.items() for e in held]
    named = [*_einsums(spec), *((e, spec.node(*keys).at_key) for e, keys in orders)]
    named += [(e, f.node.within("einsums", e)) for f in spec.fusion for e in f.einsums or ()]
    for name, node in named:
        if name not in einsums:
            yield found("no-einsum", node, name=name, names=einsums, close=close_to(name, einsums))
    typed = dict.fromkeys((*spec.dtypes, *spec.rank_order, *spec.any_layout))
    held_tensors = [(t, spec.node("format", t).at_key) for t in typed]
    held_tensors += [(t, placed.node.within("name")) for (t, _), placed in spec.placements.items()]
    for name, node in held_tensors:
        if name not in tensors:
            yield found("no-tensor", node, name=name, names=tensors, close=close_to(name, tensors))
    for einsum, rank, node, is_split in _ranks(spec):
        known = _parts(spec, einsum, is_split) if einsum in einsums else [rank]
        if rank not in known:
            yield found("no-rank", node, einsum=einsum, rank=rank, ranks=known, close=close_to(rank, known))


def _einsums(spec: Spec) -> Iterator[tuple[str, Node]]:
    """The Einsums that something is given for, and where that stands."""
    keys = {"partitioning": spec.partitioning, "loop-order": spec.loop_order, "spacetime": spec.spacetime}
    yield from ((e, spec.node("mapping", key, e).at_key) for key, held in keys.items() for e in held)
    yield from ((e, held.node.within("einsum")) for e, held in spec.engines.items())
    yield from ((e, placed.node.within("einsum")) for (_, e), placed in spec.placements.items())
    yield from ((e, node) for e, _, node in _members(spec))


def _members(spec: Spec) -> Iterator[tuple[str, str, Node]]:
    """Einsums and ranks that share loops, and where they stand."""
    groups = ((g, n) for f in spec.fusion for g, n in zip(f.groups, f.node.within("ranks").items()))
    yield from ((e, r, at) for group, node in groups for (e, r), at in zip(group, node.items()))


def _ranks(spec: Spec) -> Iterator[tuple[str, str, Node, bool]]:
    """Ranks that are named of an Einsum, where that stands, and whether splits have named them."""
    for einsum, splits in spec.partitioning.items():
        node = spec.node("mapping", "partitioning", einsum)
        yield from ((einsum, rank, node.within(rank).at_key, False) for rank in splits)
    for einsum, held in spec.engines.items():
        yield from ((einsum, rank, held.node.within("ranks", rank), True) for rank in held.ranks)
    yield from ((*member, True) for member in _members(spec))


def _parts(spec: Spec, einsum: str, is_split: bool) -> list[str]:
    """The ranks of an Einsum, after splits or as they are."""
    held = spec.cascade.einsum(einsum)
    splits = spec.partitioning.get(einsum, {}) if is_split else {}
    return [
        f"{v.upper()}{n}" if v.upper() in splits else v.upper()
        for v in held.variables
        for n in range(len(splits.get(v.upper(), ())), -1, -1)
    ]


def check_writers(spec: Spec) -> Iterator[Finding]:
    """Where loops are built as given, one Einsum writes each tensor that something is given for."""
    times = Counter(e.name for e in spec.cascade.einsums)
    for name, node in _einsums(spec):
        if times[name] > 1:
            yield found("ambiguous-einsum", node, name=name, count=times[name])
