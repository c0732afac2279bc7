"""What tile statements cost on a chip: the steps that the declarations of their instructions make of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..isa.array_tiles import part_of_array
from ..isa.declare import NUMBER, Step
from ..machine import Machine
from ..tiles.dtypes import DTYPES
from ..tiles.tile import IndexLayout, Layout, layout
from ..timing.work import TABLELESS, transfer_lanes
from .language.ast import Einsum
from .tree.along import axes_of
from .tree.expr import Whole, expr
from .tree.instructions import instruction_of
from .tree.nodes import HBM, Cut, Gather, Statement, View, statements, weighted

# what a ragged tile counts at most, by the name of its count
Counts = Mapping[str, int]


class Hardware:
    """Prices statements."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._steps: dict[tuple[object, ...], list[Step]] = {}
        # the same of statements that were priced, by identity, and they themselves
        self._priced: dict[int, tuple[Statement, list[Step]]] = {}
        # what engines are judged to take for Einsums, by all that it depends on, for other plans of a cascade
        self.judged: dict[tuple[object, ...], tuple[Einsum, tuple[float, float, bool]]] = {}
        # and what the cheaper of them is judged to take
        self.least: dict[tuple[object, ...], tuple[Einsum, float]] = {}

    def steps(self, statement: Statement) -> list[Step]:
        """The steps of a statement, a ragged tile taken as a full one.

        Raises:
            KernelError: if the chip has no such instruction.
        """
        if id(statement) not in self._priced:
            self._priced[id(statement)] = statement, self._steps_of(statement)
        return self._priced[id(statement)][1]

    def _steps_of(self, statement: Statement) -> list[Step]:
        call = instruction_of(statement)
        if call is None:
            return []
        instruction, arguments = call
        sizes = _sizes([v for v in arguments.values() if isinstance(v, View)])
        layouts = [self._operand(statement, arguments.get(n, s.default), sizes)
                   for n, s in instruction.operands.items()]  # fmt: skip
        attributes = tuple(
            spec.canonical(name, _spelled(arguments.get(name, spec.default), sizes))
            for name, spec in instruction.attributes.items()
        )
        key = (instruction, *layouts, *map(str, attributes))
        if key not in self._steps:
            self._steps[key] = list(instruction(self.machine, layouts, attributes).steps)
        return self._steps[key]

    def _operand(self, statement: Statement, value: object, sizes: Counts) -> object:
        if not isinstance(value, View):
            return None if value is None else NUMBER
        if isinstance(statement, Gather) and value is statement.table:
            return _gathered(statement, sizes)
        return layout_of(value, sizes)

    def time_ns(self, step: Step) -> float:
        """How long a step keeps its engine; of a transfer, what issues it, moves it, or HBM: the longest."""
        if step.engine != "dma":
            return step.busy_ns * part_of_array(step)
        issued = step.descriptors * self.machine["dma_descriptor_issue_ns"]
        return max(self.machine["dma_issue_ns"] + issued, self.moving_ns(step))

    def moving_ns(self, step: Step) -> float:
        """How long what moves in a transfer keeps what issues it, the DMA engines, or HBM: the longest."""
        machine = self.machine
        lanes, work = transfer_lanes(machine, step.descriptors, step.descriptor_bytes)
        issue = step.descriptors * machine["dma_descriptor_issue_ns"]
        return max(issue, work / lanes, step.moved_bytes / machine["hbm_bytes_per_ns"])

    def work_ns(self, step: Step) -> float:
        """How long a transfer keeps all of its DMA engines together."""
        return transfer_lanes(self.machine, step.descriptors, step.descriptor_bytes)[1]

    def of(self, statement: Statement) -> tuple[str, float]:
        """The engine of a statement that one engine computes, and how long it is kept."""
        return self.steps(statement)[0].engine, sum(ns for _, ns in self.times(statement))

    def times(self, statement: Statement) -> Iterator[tuple[str, float]]:
        """Engines of a statement, and how long each step keeps its own.

        Weights load behind the multiplication before, where that takes as long.
        """
        loading_ns = 0.0
        for step in self.steps(statement):
            is_hidden = bool(step.hidden_ns) and not step.busy_ns
            yield step.engine, 0.0 if is_hidden else max(loading_ns, self.time_ns(step))
            loading_ns = step.hidden_ns if is_hidden else 0.0

    def tables(self, statement: Statement) -> list[str]:
        """The function tables that a statement, or those of a loop in turn, needs on ScalarE."""
        steps = (step for inner in statements([statement]) for step in self.steps(inner))
        return [step.table for step in steps if step.table not in TABLELESS]

    def total(self, body: list[Statement], turns: int = 1) -> dict[str, float]:
        """Time per engine of a body with its loops."""
        times: dict[str, float] = {}
        for statement, count in weighted(body, turns):
            for engine, ns in self.times(statement):
                times[engine] = times.get(engine, 0.0) + ns * count
        return times


def _sizes(views: list[View]) -> dict[str, int]:
    """What counts that no number tells are at most: the least that a tile of these has room for."""
    sizes: dict[str, int] = {}
    axes = (a for v in views for a in zip(v.index, (1, *v.buffer.shape)[-len(v.index) :], strict=True))
    for index, extent in axes:
        most = expr(extent).value
        if isinstance(index, Cut) and index.count.value is None and most is not None:
            sizes[str(index.count)] = min(most, sizes.get(str(index.count), most))
    return sizes


def _size(count: Whole, sizes: Counts) -> int:
    number = expr(count).value
    return sizes.get(str(count), 1) if number is None else number


def _spelled(value: object, sizes: Counts) -> object:
    if isinstance(value, tuple) and not all(isinstance(n, int) for n in value):
        return [[step, _size(count, sizes)] for step, count in value]
    return value


def layout_of(view: View, sizes: Counts) -> Layout:
    """The layout of a view as its instruction sees it."""
    axes = [(_size(count, sizes), _size(step, sizes)) for step, count in axes_of(view)] or [(1, 1)]
    shape, steps = zip(*axes)
    memory, first = view.buffer.memory, view.index[0]
    start = first.start.value or 0 if memory != HBM and isinstance(first, Cut) else 0
    axis = None if memory == HBM else 0
    return layout(shape, steps, DTYPES[view.buffer.dtype], memory, axis, start)


def _gathered(gather: Gather, sizes: Counts) -> Layout:
    """The layout of a table some of whose rows indices choose."""
    whole, rows = layout_of(gather.table, sizes), layout_of(gather.rows, sizes)
    indices = (IndexLayout(rows, is_vector=not gather.is_slice),)
    shape, steps = whole.shape, whole.strides
    if not gather.is_slice:
        shape, steps = (_size(gather.dst.cuts[0].count, sizes), *shape[1:]), (0, *steps[1:])
    return layout(shape, steps, whole.dtype, whole.memory, None, 0, indices)
