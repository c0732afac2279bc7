"""What an instruction costs on an example, with the formula as the declaration computes it.

The declaration runs with a chip whose numbers remember what was computed from them, so that formula, facts
and result are one object and cannot disagree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import KernelError
from ..isa.declaration_parts import Step
from ..isa.declare import Instruction
from ..isa.uses import Tile, Use, axes_of, chips_of, form_of, operands_of, smallest_use
from ..machine import Machine
from ..timing.work import transfer_lanes

CERTAINTIES = ("documented", "measured", "fitted", "assumed")
# What examples measure along an axis where the declaration lets them: whole partitions, a bank of PSUM.
_SIZES: tuple[dict[str, int], ...] = (
    {"P": 128, "K": 128, "M": 128, "F": 512, "N": 512},
    {"P": 128, "F": 128},
    {"P": 128, "K": 128},
    {},
)
_SUM, _PRODUCT, _ATOM = range(3)


class Term(float):
    """A number that knows the formula it came from."""

    words: str
    level: int
    facts: frozenset[str]

    def __new__(cls, value: float, words: str, level: int, facts: frozenset[str]) -> Term:
        """A number, its formula, which operators bind tighter than it, and the facts in it."""
        term = super().__new__(cls, value)
        term.words, term.level, term.facts = words, level, facts
        return term

    def __add__(self, other: float) -> Term:
        return _joined(float(self) + float(other), self, "+", other, _SUM)

    def __radd__(self, other: float) -> Term:
        return _joined(float(other) + float(self), other, "+", self, _SUM)

    def __mul__(self, other: float) -> Term:
        return _joined(float(self) * float(other), self, "*", other, _PRODUCT)

    def __rmul__(self, other: float) -> Term:
        return _joined(float(other) * float(self), other, "*", self, _PRODUCT)

    def __truediv__(self, other: float) -> Term:
        return _joined(float(self) / float(other), self, "/", other, _PRODUCT)

    def __rtruediv__(self, other: float) -> Term:
        return _joined(float(other) / float(self), other, "/", self, _PRODUCT)

    def __sub__(self, other: float) -> Term:
        return _joined(float(self) - float(other), self, "-", other, _SUM)

    def __rsub__(self, other: float) -> Term:
        return _joined(float(other) - float(self), other, "-", self, _SUM)


def formula(value: float) -> str:
    """How a number was computed; the number itself where nothing is known."""
    return value.words if isinstance(value, Term) else f"{value:.10g}"


def _facts(value: float) -> frozenset[str]:
    return value.facts if isinstance(value, Term) else frozenset()


def _joined(value: float, left: float, sign: str, right: float, level: int) -> Term:
    """Both sides under one operator, in parentheses where they need them; neutral numbers leave no trace."""
    neutral = 1.0 if level == _PRODUCT else 0.0
    for side, rest, may_go in ((right, left, True), (left, right, sign in "*+")):
        if may_go and side == neutral and not _facts(side):
            return rest if isinstance(rest, Term) else Term(rest, formula(rest), _ATOM, frozenset())
    if level == _PRODUCT and value == 0:
        return Term(0.0, "0", _ATOM, frozenset())
    sides = []
    for side, binds in ((left, level), (right, level + (sign in "-/"))):
        words = formula(side)
        sides.append(f"({words})" if isinstance(side, Term) and side.level < binds else words)
    return Term(value, f" {sign} ".join(sides), level, _facts(left) | _facts(right))


class RememberingMachine:
    """A chip that answers as its row does, with terms."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def __getitem__(self, constant: str) -> float:
        """A fact as a term under its own name."""
        return Term(self._machine[constant], constant, _ATOM, frozenset([constant]))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)


@dataclass(frozen=True)
class StepCost:
    """What one step of an example takes on one chip."""

    chip: str  # name of its row
    step: Step  # as the declaration has it
    busy_ns: float  # how long the engine, or the DMA engines together, accept nothing else
    busy: str  # its formula
    latency_ns: float  # what passes from then until the result is visible
    latency: str  # its formula, or "" if there is none
    facts: frozenset[str]  # names of the chip's facts in both formulas
    certainty: str  # the least certain of the formula and the facts


@dataclass(frozen=True)
class ExampleCost:
    """The steps of one example on all chips that have the instruction and allow it."""

    words: str
    steps: tuple[tuple[StepCost, ...], ...]


def examples(cls: type[Instruction]) -> list[ExampleCost]:
    """Costs of the largest simple use in float32 and in bfloat16, where the types change them."""
    costs_found: list[ExampleCost] = []
    for dtype in ("", "bfloat16"):
        use = _example(cls, dtype)
        if use is None:
            continue
        costs = tuple(_chip_costs(cls, machine, use) for machine in _chips_that_allow(cls, use))
        if [_times(chip) for chip in costs] not in [[_times(chip) for chip in e.steps] for e in costs_found]:
            costs_found.append(ExampleCost(_described(use), costs))
    return costs_found


def _times(costs: Sequence[StepCost]) -> list[tuple[str, float]]:
    return [(cost.chip, cost.busy_ns) for cost in costs]


def _example(cls: type[Instruction], dtype: str) -> Use | None:
    """The use that most chips allow: wide along as many axes as possible, of one type where it is given."""
    shapes = [{axis: size for axis, size in sizes.items() if axis in axes_of(cls)} for sizes in _SIZES]
    free = {
        f"{name}.{part}": value
        for name, spec in operands_of(cls).items()
        if spec.axes == ("*",) and isinstance(smallest_use(cls)[name], Tile)
        for part, value in (("shape", (128, 512)), ("memory", "sbuf" if spec.is_written else ""))
        if value and (part == "shape" or value in spec.memories)
    }
    uses = [
        smallest_use(cls, {**places, **sizes, **types})
        for places in (free, {})
        for sizes in shapes
        for types in _types(cls, dtype)
    ]
    return max(uses, key=lambda use: len(_chips_that_allow(cls, use)), default=None)


def _types(cls: type[Instruction], dtype: str) -> list[dict[str, Any]]:
    """Changes that give all tiles a type that may also be float32, or all that are read; none without it."""
    if not dtype:
        return [{}]
    smallest = smallest_use(cls)
    fitting = {
        f"{name}.dtype": spec.is_written
        for name, spec in operands_of(cls).items()
        if isinstance(smallest[name], Tile) and {"float32", dtype} <= {*spec.dtypes}
    }
    read = {path: dtype for path, is_written in fitting.items() if not is_written}
    return [types for types in (dict.fromkeys(fitting, dtype), read) if types]


def _chips_that_allow(cls: type[Instruction], use: Use) -> list[Machine]:
    return [machine for machine in chips_of(cls) if _fits(cls, machine, use)]


def _fits(cls: type[Instruction], machine: Machine, use: Use) -> bool:
    try:
        form_of(cls, machine, use)
    except KernelError:
        return False
    return True


def _described(use: Use) -> str:
    """The tiles of a use: `float32[128, 512]`, those that agree named together."""
    groups: dict[str, list[str]] = {}
    for name, value in use.items():
        if isinstance(value, Tile):
            shape = ", ".join(map(str, value.shape))
            groups.setdefault(f"`{value.dtype}[{shape}]` in {value.memory}", []).append(f"`{name}`")
    return "; ".join(f"{', '.join(names)}: {tile}" for tile, names in groups.items())


def _chip_costs(cls: type[Instruction], machine: Machine, use: Use) -> tuple[StepCost, ...]:
    form = form_of(cls, machine, use)
    remembering: Any = RememberingMachine(machine)
    form.machine = remembering
    return tuple(_cost_of(machine, remembering, step) for step in form.cost())


def _cost_of(machine: Machine, remembering: Any, step: Step) -> StepCost:
    if step.engine == "dma":
        lanes, work = transfer_lanes(remembering, step.descriptors, step.descriptor_bytes)
        wait = remembering["dma_start_ns"] + step.latency_ns
        busy_ns = float(work) / float(lanes)
        busy = f"{step.descriptors} descriptors of {step.descriptor_bytes} bytes"
        facts = _facts(work) | _facts(wait)
    else:
        busy_ns, busy, wait = float(step.busy_ns), formula(step.busy_ns), step.latency_ns
        facts = _facts(step.busy_ns) | _facts(step.latency_ns)
    known = [machine.facts()[name].certainty for name in facts]
    certainty = max([*known, "assumed" if step.widening > 1 else "documented"], key=CERTAINTIES.index)
    latency = formula(wait) if wait else ""
    return StepCost(machine.name, step, busy_ns, busy, float(wait), latency, facts, certainty)


def facts_read(costs: Sequence[ExampleCost]) -> list[str]:
    """Names of all facts in any formula of the examples, in the order of a chip's row."""
    read = {name for e in costs for chip in e.steps for s in chip for name in s.facts}
    return [name for name in Machine.__struct_fields__ if name in read]
