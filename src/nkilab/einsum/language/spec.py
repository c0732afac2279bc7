"""Specifications: a cascade, and what is given of its mapping, format, binding and options."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...errors import NkilabError, SpecError, nearest
from ...tiles.dtypes import as_dtype
from .ast import Cascade, Einsum, Iterate, Recurrence, Step, Tensor
from .formulas import NAME, read_expression
from .nodes import Node, read_nodes, shown
from .sources import Source

_SPLIT = re.compile(r"uniform_shape\(\s*(\w+)\s*\)")
# bounds of what strangers send
MOST_EINSUMS, MOST_SPLITS = 500, 8
COMPONENTS = ("HBM", "SBUF", "PSUM")
CONSTRUCTORS = ("empty", "zeros")
BIT_WIDTHS = {32: "float32", 16: "float16"}


@dataclass(frozen=True)
class Placement:
    """Where a tensor lies as one Einsum sees it."""

    tensor: str  # its name
    einsum: str  # the Einsum
    component: str  # HBM, SBUF or PSUM
    constructor: str  # empty or zeros at the producer; "" elsewhere
    unbound: tuple[str, ...]  # ranks that exist over time only
    outer: tuple[str, ...]  # partition ranks, in HBM the noncontiguous ones
    inner: tuple[str, ...]  # free ranks, in HBM the contiguous ones
    node: Node = field(compare=False)  # of the entry
    # whether a tensor in HBM lies as it is declared, whatever its ranks are split into
    is_plain: bool = False

    @property
    def ranks(self) -> tuple[str, ...]:
        """Ranks of the tensor's shape, in order."""
        return self.outer + self.inner


@dataclass(frozen=True)
class Execution:
    """Which instruction of which engine runs an Einsum, and which ranks it consumes."""

    einsum: str
    component: str
    instruction: str
    ranks: tuple[str, ...]
    node: Node = field(compare=False)


@dataclass(frozen=True)
class Fusion:
    """A fused section: its Einsums, and groups of (einsum, rank) that share a loop."""

    einsums: tuple[str, ...] | None
    groups: tuple[tuple[tuple[str, str], ...], ...]
    node: Node = field(compare=False)


@dataclass(frozen=True)
class Spec:
    """Everything that a specification says."""

    cascade: Cascade  # its Einsums
    # per Einsum and rank, the shapes it is split by, the outermost first
    partitioning: Mapping[str, Mapping[str, tuple[int, ...]]] = field(default_factory=dict)
    loop_order: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # per Einsum
    # per Einsum, ranks in space and time
    spacetime: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = field(default_factory=dict)
    # per tensor and Einsum
    rank_order: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)  # per tensor, where given
    any_layout: frozenset[str] = frozenset()  # outputs that may be returned transposed
    # fusion, engines, placements: the binding
    fusion: tuple[Fusion, ...] = ()
    engines: Mapping[str, Execution] = field(default_factory=dict)
    placements: Mapping[tuple[str, str], Placement] = field(default_factory=dict)
    kernel_name: str = ""  # of the function
    root: Node | None = field(default=None, compare=False)  # all of it, with places
    text: str = field(default="", compare=False)  # as it was given; "" for what was made in Python

    @property
    def is_mapped(self) -> bool:
        """Whether it says how Einsums run: splits, loops, space and time, fusion, engines or placements."""
        timed = self.partitioning or self.loop_order or self.spacetime
        return bool(timed or self.fusion or self.engines or self.placements)

    def node(self, *keys: str) -> Node:
        """The node that keys lead to; one at the first Einsum where the specification is no text."""
        if self.root is None:
            return Node(None, ".".join(keys), self.cascade.einsums[0].place)
        return self.root.within(*keys)


def read_spec(source: Source) -> Spec:
    """The specification that a YAML text holds.

    Raises:
        SpecError: at the key that has no meaning.
    """
    root = read_nodes(source.text, source.file, source.first_line)
    top = root.only("einsum", "mapping", "format", "binding", "options")
    if "einsum" not in top:
        raise root.fail("the key einsum is missing", "add einsum: with declaration and expressions")
    options = top["options"].only("kernel-name", "cascade-outputs") if "options" in top else {}
    cascade = _cascade(top["einsum"], options.get("cascade-outputs"))
    mapping = top["mapping"].only("partitioning", "loop-order", "spacetime") if "mapping" in top else {}
    binding = top["binding"].only("fusion", "engine", "tensor") if "binding" in top else {}
    return Spec(
        cascade,
        {e: _splits(n) for e, n in _of(mapping, "partitioning").items()},
        {e: n.words() for e, n in _of(mapping, "loop-order").items()},
        {e: _spacetime(n) for e, n in _of(mapping, "spacetime").items()},
        **_formats(_of(top, "format")),
        fusion=tuple(_fusion(n) for n in binding["fusion"].items()) if "fusion" in binding else (),
        engines=_unique([_execution(n) for n in binding["engine"].items()] if "engine" in binding else []),
        placements=_placements(binding["tensor"]) if "tensor" in binding else {},
        kernel_name=_identifier(options["kernel-name"]) if "kernel-name" in options else "",
        root=root,
        text=source.text,
    )


def _of(held: Mapping[str, Node], key: str) -> dict[str, Node]:
    return held[key].entries() if key in held else {}


def _identifier(node: Node) -> str:
    name = node.text()
    if not name.isidentifier():
        raise node.fail(f"{name!r} is no Python name")
    return name


def _cascade(node: Node, outputs: Node | None) -> Cascade:
    held = node.only("declaration", "expressions", "shape", "scalars")
    for key in ("declaration", "expressions"):
        if key not in held:
            raise node.fail(f"the key {key} is missing", f"add {key}: under einsum:", at_key=True)
    tensors = {}
    for name, ranks in held["declaration"].entries().items():
        if not name.isidentifier():
            raise ranks.fail(f"{name!r} is no name of a tensor", at_key=True)
        tensors[name] = Tensor(name, ranks.words(), ranks.key_place)
    own = {*tensors, *NAME.findall(str(held["expressions"].value))}
    taken = {*own}
    steps = tuple(step for entry in held["expressions"].items() for step in _steps(entry, taken))
    declare_parts([e for step in steps for e in step.body], tensors, taken - own)
    if not steps:
        raise held["expressions"].fail("there are no expressions", "write one: Z[m] = A[m]", at_key=True)
    count = sum(len(s.body) if isinstance(s, Iterate) else 1 for s in steps)
    if count > MOST_EINSUMS:
        raise held["expressions"].fail(f"there are {count} Einsums; at most {MOST_EINSUMS}", at_key=True)
    sizes = {rank: n.whole() for rank, n in _of(held, "shape").items()}
    scalars = {name: n.number() for name, n in _of(held, "scalars").items()}
    return _checked(Cascade(tensors, steps, (), scalars, sizes), outputs, node)


def _steps(node: Node, taken: set[str]) -> list[Step]:
    """What an entry stands for; names of tensors that formulas add join those that are taken."""
    if isinstance(node.value, str):
        return [*read_expression(node.value, node.place, node.path, taken)]
    if not isinstance(node.value, dict):
        raise node.fail(f"{shown(node.value)} stands where an expression or an iterate block is needed")
    held = node.only("iterate", "body")
    if set(held) != {"iterate", "body"}:
        raise node.fail("an iterate block has the keys iterate and body")
    body = tuple(e for entry in held["body"].items() for e in _turn(entry, taken))
    return [Iterate(held["iterate"].text(), body, held["iterate"].place)]


def _turn(node: Node, taken: set[str]) -> Iterator[Einsum]:
    """The Einsums of an entry of a block; those of a block in it say along which variable that runs."""
    for step in _steps(node, taken):
        inner = step.variable if isinstance(step, Iterate) else ""
        if any(e.recurrence for e in step.body if inner):
            raise node.fail("blocks stand in each other three deep", "iterate two variables at most")
        known = Recurrence(inner, "turns") if inner else None
        yield from (replace(e, recurrence=known) if inner else e for e in step.body)


def declare_parts(einsums: Sequence[Einsum], tensors: dict[str, Tensor], parts: Collection[str]) -> None:
    """Declare what formulas add: for each variable the rank of its name, else one that it indexes alone.

    Where a part depends on where it stands alone, that is the rank of what its formula writes.
    """
    known = {rank for tensor in tensors.values() for rank in tensor.ranks}
    ends, open_ = {e.place: e.output for e in einsums if e.name not in parts}, set[str]()
    for einsum in (e for e in einsums if e.name in parts):
        ranks = list[str]()
        for v in einsum.output.variables:
            accesses = [a for a in einsum.accesses if v in a.variables and a.tensor in tensors]
            is_open = all(a.tensor in open_ for a in accesses) and einsum.place in ends
            accesses = [a for a in (*accesses, *[ends[einsum.place]] * is_open) if a.tensor in tensors]
            axes = (axis for a in accesses for axis in zip(tensors[a.tensor].ranks, a.indices, strict=False))
            own = (rank for rank, index in axes if index.plain == v)
            open_ |= {einsum.name} if is_open else set()
            ranks.append(v.upper() if v.upper() in known and not is_open else next(own, v.upper()))
        tensors[einsum.name] = Tensor(einsum.name, tuple(ranks), einsum.place)


def _checked(cascade: Cascade, outputs: Node | None, node: Node) -> Cascade:
    """The cascade with its outputs, after its names are found to be declared and used with their ranks."""
    for einsum in cascade.einsums:
        check_einsum(einsum, cascade)
    names = outputs.words() if outputs else (cascade.einsums[-1].name,)
    complete = replace(cascade, outputs=names)
    for problem, hint in _unwritten(complete):
        raise (outputs or node).fail(problem, hint)
    return complete


def _unwritten(cascade: Cascade) -> Iterator[tuple[str, str]]:
    """What is wrong with each output that no Einsum writes, and a hint."""
    written = cascade.written
    for name in cascade.outputs:
        if name not in written:
            told = "is never written" if name in cascade.tensors else "is not declared"
            yield f"the output {name} {told}", f"the tensors written are {', '.join(written)}"


def check_einsum(einsum: Einsum, cascade: Cascade) -> None:
    """Refuse names that are not declared, and accesses with another number of indices than ranks.

    Raises:
        SpecError: at the access.
    """
    held = [einsum.output, *einsum.accesses]
    for access in [*held, *(g.access for a in held for g in a.gathers)]:
        tensor = cascade.tensors.get(access.tensor)
        told = hint = ""
        if tensor is None:
            told, close = f"{access.tensor} is not declared", nearest(access.tensor, cascade.tensors, 1, 0.5)
            hint = f"write {close[0]}, if that is meant, or " if close else ""
            hint += f"add {access.tensor}: [...] to declaration"
        elif len(tensor.ranks) != len(access.indices):
            told = (
                f"{access.tensor} has the ranks [{', '.join(tensor.ranks)}] "
                f"and the indices [{', '.join(map(str, access.indices))}] here, not one for each"
            )
            hint = f"write one index for each: {access.tensor}[{', '.join(r.lower() for r in tensor.ranks)}]"
        if told:
            raise einsum.located(SpecError(told, hint=hint), access)
    if einsum.output.gathers and next(e for e in cascade.einsums if e.name == einsum.name) is not einsum:
        told = f"{einsum.name} is written before, and a sum by index begins at zero"
        hint = f"sum into a tensor of its own, and add it: T[...] = {einsum.name}[...] + U[...]"
        raise einsum.located(SpecError(told, hint=hint))
    extents = {rank for tensor in cascade.tensors.values() for rank in tensor.ranks}
    for operand in einsum.operands:
        name = getattr(operand, "name", "")
        if name and name not in {*cascade.scalars, *extents}:
            hint = (
                f"write a number in its place, add {name}: VALUE under einsum.scalars, or in Python "
                f"scalars={{{name!r}: VALUE}}"
            )
            raise einsum.located(SpecError(f"the scalar {name} has no value", hint=hint))
    for name in (v for o in einsum.positions for v in o.variables if v in cascade.scalars):
        error = SpecError(f"{name} is a scalar, and a variable of this expression", hint="rename one of them")
        raise einsum.located(error)


def _splits(node: Node) -> dict[str, tuple[int, ...]]:
    found = {}
    for rank, directives in node.entries().items():
        sizes = tuple(_split(entry) for entry in directives.items())
        if len(sizes) > MOST_SPLITS:
            raise directives.fail(f"{rank} is split {len(sizes)} times; at most {MOST_SPLITS}", at_key=True)
        if not sizes:
            raise directives.fail("no split is given", f"leave {rank} out", at_key=True)
        found[rank] = sizes
    return found


def _split(node: Node) -> int:
    match = _SPLIT.fullmatch(node.text().strip())
    if match is None or not match[1].isdigit() or int(match[1]) < 1:
        raise node.fail(f"{node.value!r} is no split; write uniform_shape(NUMBER)")
    return int(match[1])


def _spacetime(node: Node) -> tuple[tuple[str, ...], tuple[str, ...]]:
    held = node.only("space", "time", "opt")
    return tuple(held[k].words() if k in held else () for k in ("space", "time"))  # type: ignore[return-value]


def _formats(entries: Mapping[str, Node]) -> dict[str, Any]:
    """What a format says: orders of ranks, types, outputs that may be transposed."""
    orders, dtypes, free = {}, {}, set()
    for tensor, entry in entries.items():
        held = entry.only("rank-order", "bit-width", "dtype", "layout")
        if "rank-order" in held:
            orders[tensor] = {e: n.words() for e, n in held["rank-order"].entries().items()}
        given = held.get("dtype") or held.get("bit-width")
        if given is not None:
            dtypes[tensor] = _dtype(given) if "dtype" in held else _dtype_of_width(given)
        if "layout" in held:
            _need_any_layout(held["layout"])
            free.add(tensor)
    return {"rank_order": orders, "dtypes": dtypes, "any_layout": frozenset(free)}


def _need_any_layout(node: Node) -> None:
    if node.text() != "any-layout":
        raise node.fail(f"{node.value!r} is no layout; it must be any-layout or left out")


def _dtype_of_width(node: Node) -> str:
    width = node.whole()
    if width not in BIT_WIDTHS:
        raise node.fail(
            f"{width} bits name no type; {', '.join(f'{w} is {d}' for w, d in BIT_WIDTHS.items())}",
            "write dtype: with a name instead",
        )
    return BIT_WIDTHS[width]


def _dtype(node: Node) -> str:
    try:
        return as_dtype(node.text()).name
    except NkilabError as error:
        raise node.fail(error.problem) from None


def _fusion(node: Node) -> Fusion:
    held = node.only("einsums", "ranks")
    groups = []
    for group in held["ranks"].items() if "ranks" in held else []:
        members = tuple(_member(entry) for entry in group.items())
        if not members:
            raise group.fail("the group is empty", "leave it out")
        groups.append(members)
    return Fusion(held["einsums"].words() if "einsums" in held else None, tuple(groups), node)


def _member(node: Node) -> tuple[str, str]:
    einsum, dot, rank = node.text().partition(".")
    if not dot:
        raise node.fail(f"{node.value!r} is no EINSUM.RANK")
    return einsum, rank


def _execution(node: Node) -> Execution:
    held = node.only("einsum", "component", "instruction", "ranks")
    _need_keys(node, held, "einsum", "instruction")
    return Execution(
        held["einsum"].text(),
        held["component"].text() if "component" in held else "",
        held["instruction"].text(),
        held["ranks"].words() if "ranks" in held else (),
        node,
    )


def _need_keys(node: Node, held: Mapping[str, Node], *keys: str) -> None:
    for key in keys:
        if key not in held:
            raise node.fail(f"the key {key} is missing")


def _unique(entries: list[Execution]) -> dict[str, Execution]:
    found: dict[str, Execution] = {}
    for entry in entries:
        if entry.einsum in found:
            raise entry.node.fail(
                f"{entry.einsum} is bound twice; the first binding is at {found[entry.einsum].node.place}"
            )
        found[entry.einsum] = entry
    return found


def _placements(node: Node) -> dict[tuple[str, str], Placement]:
    found: dict[tuple[str, str], Placement] = {}
    for entry in node.items():
        held = entry.only("name", "einsum", "component", "constructor", "ranks")
        _need_keys(entry, held, "name", "einsum", "component", "ranks")
        component = held["component"].text()
        if component not in COMPONENTS:
            raise held["component"].fail(
                f"{component} is no memory; it must be one of {', '.join(COMPONENTS)}"
            )
        kinds = ("noncontiguous", "contiguous") if component == "HBM" else ("partition", "free")
        ranks = held["ranks"].only("unbound", *kinds)
        constructor = held["constructor"].text() if "constructor" in held else ""
        if constructor and constructor not in CONSTRUCTORS:
            raise held["constructor"].fail(f"{constructor} is no constructor; it is empty or zeros")
        unbound, outer, inner = (ranks[k].words() if k in ranks else () for k in ("unbound", *kinds))
        tensor, einsum = key_of = held["name"].text(), held["einsum"].text()
        if key_of in found:
            raise entry.fail(f"{tensor} in {einsum} is placed twice; first at {found[key_of].node.place}")
        found[key_of] = Placement(tensor, einsum, component, constructor, unbound, outer, inner, entry)
    return found


def spec_of_cascade(cascade: Cascade) -> Spec:
    """A specification that says nothing but a cascade.

    Raises:
        SpecError: if its names are not declared.
    """
    for einsum in cascade.einsums:
        check_einsum(einsum, cascade)
    for problem, hint in _unwritten(cascade):
        raise SpecError(problem, hint=hint).located("", "outputs")
    return Spec(cascade)
