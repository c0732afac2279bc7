"""Parts of a model that deserve a kernel: few tensors cross their border, and much time could be saved."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ..api import machine_for
from ..einsum.roofline import Roofline, elementwise_rate
from ..errors import UsageError
from ..machine import Machine
from ..tracebacks import public
from .graphs import Graph, Operator, graph_of

# how many parts are looked at that end in one operator
_LOOKED_AT = 400
# Time saved is divided by the number of tensors that cross the border, to this power. Of attention and of
# transformer layers 1 leaves the last product out, 0 joins attention with the layer after it.
_DISCOUNT = 1 / 3
_NOTE = """Times are rooflines, the longest of: bytes that cross the border at the bandwidth of DMA and HBM,
products at the peak of TensorE, other work at that of VectorE, ScalarE and GpSimdE. No kernel is faster;
nkilab.estimate predicts one."""


@dataclass(frozen=True)
class Candidate:
    """A part of a model, and where else it occurs.

    Args:
        operators: names, in the order in which they run.
        nodes: of the graph, per occurrence.
        inputs: tensors that it reads, of the first occurrence.
        outputs: tensors that others read.
        flops: of its products.
        roofline: of the part as one kernel.
        apart_us: microseconds of the rooflines of its operators, one kernel each.
    """

    operators: tuple[str, ...]
    nodes: tuple[tuple[str, ...], ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    flops: int
    roofline: Roofline
    apart_us: float

    @property
    def times(self) -> int:
        """How often it occurs."""
        return len(self.nodes)

    @property
    def roofline_us(self) -> float:
        """Microseconds below which no kernel of one occurrence comes."""
        return self.roofline.least_us

    @property
    def saved_us(self) -> float:
        """Microseconds that one kernel saves by the rooflines, in all occurrences."""
        return self.times * (self.apart_us - self.roofline_us)


@dataclass(frozen=True)
class Candidates:
    """What deserves a kernel in a model, most time saved first.

    Args:
        target: the chip.
        rows: the candidates; no operator is in two of them.
        apart_us: microseconds of the rooflines of all operators of the model, one kernel each.
        left_out: operators whose work is not known, by name, with their number.
    """

    target: str
    rows: tuple[Candidate, ...]
    apart_us: float
    left_out: dict[str, int] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> Candidate:
        return self.rows[number]

    def __str__(self) -> str:
        lines = [
            f"Candidates for kernels on {self.target}, by roofline; the model's operators one by one: "
            f"{self.apart_us:.2f} us",
            f"{'saved us':>9} {'roofline us':>11} {'apart us':>9} {'times':>5} {'in':>3} {'out':>3} "
            f"{'kB':>9} {'MFLOP':>9}  {'bound':<11} operators",
        ]
        for row in self.rows:
            lines.append(
                f"{row.saved_us:9.2f} {row.roofline_us:11.2f} {row.apart_us:9.2f} {row.times:5d} "
                f"{len(row.inputs):3d} {len(row.outputs):3d} {row.roofline.bytes / 1e3:9.1f} "
                f"{row.flops / 1e6:9.1f}  {row.roofline.bound:<11} {' '.join(row.operators)}"
            )
        if self.left_out:
            counts = ", ".join(f"{name} ({count})" for name, count in sorted(self.left_out.items()))
            lines.append(f"Left out, their work is not known: {counts}")
        return "\n".join([*lines, _NOTE])

    __repr__ = __str__


@dataclass(frozen=True)
class _Part:
    nodes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class _Parts:
    """The parts of a graph that a kernel could take, and their rooflines on a chip."""

    def __init__(self, graph: Graph, machine: Machine) -> None:
        self.graph, self.machine = graph, machine
        self.readers: dict[str, set[str]] = {}
        for operator in graph.operators.values():
            for tensor in operator.inputs:
                self.readers.setdefault(tensor, set()).add(operator.node)
        for node, tensors in graph.others.items():
            for tensor in tensors:
                self.readers.setdefault(tensor, set()).add(node)
        self._order = {node: number for number, node in enumerate(graph.bytes)}

    def part(self, nodes: Collection[str]) -> _Part:
        """Operators as a part, with the tensors that cross its border."""
        ordered = tuple(sorted(nodes, key=self._order.__getitem__))
        read = dict.fromkeys(t for node in ordered for t in self.graph.operators[node].inputs)
        inputs = tuple(tensor for tensor in read if tensor not in nodes)
        outputs = tuple(
            node for node in ordered
            if node in self.graph.results or not self.readers.get(node, set()) <= set(nodes)
        )  # fmt: skip
        return _Part(ordered, inputs, outputs)

    def ending_in(self, last: str, most: int) -> Iterator[_Part]:
        """Parts that end in an operator: it, and again and again an operator that makes what they read."""
        seen = {frozenset([last])}
        waiting = [frozenset([last])]
        while waiting:
            nodes = waiting.pop(0)
            part = self.part(nodes)
            if self._is_convex(part):
                yield part
            if len(nodes) == most or len(seen) > _LOOKED_AT:
                continue
            grown = [nodes | {tensor} for tensor in part.inputs if tensor in self.graph.operators]
            waiting += [larger for larger in grown if larger not in seen]
            seen.update(grown)

    def _is_convex(self, part: _Part) -> bool:
        """Whether nothing outside is computed from a part and read by it."""
        inside = set(part.nodes)
        outside = {r for node in part.outputs for r in self.readers.get(node, ()) if r not in inside}
        last = self._order[part.nodes[-1]]
        while outside:
            readers = self.readers.get(outside.pop(), set())
            if readers & inside:
                return False
            outside |= {reader for reader in readers if self._order[reader] < last}
        return True

    def roofline(self, part: _Part) -> Roofline:
        """The roofline of a part as one kernel."""
        moved = sum(self.graph.bytes[tensor] for tensor in (*part.inputs, *part.outputs))
        return self._times(moved, [self.graph.operators[node] for node in part.nodes])

    def apart_us(self, node: str) -> float:
        """Microseconds of an operator's roofline as a kernel of its own, or as several of its steps."""
        operator = self.graph.operators[node]
        moved = sum(self.graph.bytes[tensor] for tensor in (*operator.inputs, node))
        return self._times(moved + operator.inner_bytes, [operator]).least_us

    def _times(self, moved: int, operators: list[Operator]) -> Roofline:
        machine = self.machine
        bandwidth = min(machine["dma_engines"] * machine["dma_bytes_per_ns"], machine["hbm_bytes_per_ns"])
        times = {"hbm": moved / bandwidth, "tensor": 0.0, "scalar": 0.0, "elementwise": 0.0}
        for one in operators:
            passes = 1 if one.narrow else machine["fp32_passes"]
            times["tensor"] += one.flops * passes / (machine["peak_tflops_bf16"] * 1000)
            lanes = machine["partitions"]
            times["scalar"] += one.functions / lanes / machine["scalar_clock_ghz"]
            times["elementwise"] += (
                (one.elements + one.functions) / lanes / elementwise_rate(machine, one.narrow)
            )
        return Roofline(times, moved)

    def alike(self, part: _Part) -> Hashable:
        """What parts have in common that are one kernel: operators with their work, and what reads what."""
        places = {name: number for number, name in enumerate((*part.inputs, *part.nodes))}
        operators = [self.graph.operators[node] for node in part.nodes]
        wiring = [(replace(o, node="", inputs=()), tuple(places[t] for t in o.inputs)) for o in operators]
        return tuple(wiring), tuple(places[t] for t in part.outputs)


@public
def candidates(
    model: Any, *args: Any, target: str = "", max_operators: int = 8, max_inputs: int = 8,
    max_outputs: int = 2, **kwargs: Any,
) -> Candidates:  # fmt: skip
    """Rank the parts of a model that deserve a kernel, by roofline time on a chip.

    The model is exported (torch.export). A part is a connected group of operators that few tensors enter and
    leave. It saves what its operators take one by one, each reading and writing HBM, beyond what they take as
    one kernel. Parts are taken in the order of time saved, discounted by the number of tensors that cross
    the border; alike parts count together. They are listed by time saved.

    Args:
        model: a module, or an exported program.
        args: what it is called with; only shapes and types count.
        target: chip; see `api.machine_for` for the default.
        max_operators: of a part; views do not count.
        max_inputs: tensors that enter a part, weights among them.
        max_outputs: tensors that leave it.
        kwargs: keyword arguments of the model.

    Raises:
        UsageError: if a bound is below 1, or no chip has the name.
    """
    bounds = {"max_operators": max_operators, "max_inputs": max_inputs, "max_outputs": max_outputs}
    for name, bound in bounds.items():
        if not isinstance(bound, int) or bound < 1:
            raise UsageError(f"{name} is {bound!r}; it must be a whole number of at least 1")
    machine = machine_for(None, target)
    parts = _Parts(graph_of(model, args, kwargs), machine)
    groups: dict[Hashable, list[_Part]] = {}
    parts_found = (part for node in parts.graph.operators for part in parts.ending_in(node, max_operators))
    for part in parts_found:
        if len(part.inputs) <= max_inputs and len(part.outputs) <= max_outputs:
            groups.setdefault(parts.alike(part), []).append(part)
    apart = {node: parts.apart_us(node) for node in parts.graph.operators}
    rows = _chosen(parts, groups, apart)
    return Candidates(machine.label, tuple(rows), sum(apart.values()), dict(parts.graph.left_out))


def _chosen(parts: _Parts, groups: dict[Hashable, list[_Part]], apart: dict[str, float]) -> list[Candidate]:
    """Parts that share no operator, those first that save most for the tensors that cross their border."""
    rated = []
    for number, group in enumerate(groups.values()):
        first, roofline = group[0], parts.roofline(group[0])
        one_by_one = sum(apart[node] for node in first.nodes)
        crossing = len(first.inputs) + len(first.outputs)
        saved = len(_disjoint(group, set())) * (one_by_one - roofline.least_us)
        rated.append((-saved / crossing**_DISCOUNT, -one_by_one, number, group, roofline, one_by_one))
    taken: set[str] = set()
    rows = []
    for *_, group, roofline, one_by_one in sorted(rated, key=lambda row: row[:3]):
        free = _disjoint(group, taken)
        if not free:
            continue
        taken.update(node for part in free for node in part.nodes)
        operators = [parts.graph.operators[node] for node in free[0].nodes]
        rows.append(
            Candidate(
                tuple(o.name for o in operators), tuple(part.nodes for part in free), free[0].inputs,
                free[0].outputs, sum(o.flops for o in operators), roofline, one_by_one,
            )
        )  # fmt: skip
    return sorted(rows, key=lambda row: (-row.saved_us, -row.times * row.roofline_us))


def _disjoint(group: list[_Part], taken: set[str]) -> list[_Part]:
    """Parts of a group that share no operator with what is taken nor with each other."""
    used, kept = set(taken), []
    for part in group:
        if used.isdisjoint(part.nodes):
            used.update(part.nodes)
            kept.append(part)
    return kept
