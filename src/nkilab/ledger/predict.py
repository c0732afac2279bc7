"""Running the kernels of rows on shapes alone, once per kernel and shapes, under any constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from .._lazy import part
from ..api import Estimate, as_kernel, estimate_programs
from ..arguments import argument
from ..dialects.kernel import Kernel
from ..errors import FileError, UsageError
from ..estimates import estimate_planned
from ..launches import Launched, launch_ranks
from ..machine import FREE, Machine, Topology, machine_named
from ..trace.program import Program
from ..trace.program import recosted as recosted
from .quantities import QUANTITIES
from .row import Row

Programs = tuple[Program, ...]


@dataclass(frozen=True)
class Judged:
    """A measured quantity and what predicts it: all that fitting constants needs to know of a row."""

    row: Row  # where it stands
    metric: str  # which of the row's quantities
    measured: float  # its value, in the unit that the metric's name carries
    predict: Callable[[Machine], float]  # the same predicted under a chip's row with whatever constants


class Predictor:
    """Traces and estimates the calls of rows, each kernel on each shapes once.

    A trace does not depend on the constants of the clock: under other constants the same rows get new costs.

    Args:
        load: finds the kernel that "FILE.py:KERNEL" names.
    """

    def __init__(self, load: Callable[[str], Any] | None = None) -> None:
        self._load = load
        self._programs: dict[tuple[object, ...], Programs] = {}
        # of what may be fitted to, as the compiler leaves it: predicted again under other constants
        self._planned: dict[tuple[str, int], Estimate] = {}
        self._known: dict[str, dict[str, float]] = {}

    def programs(self, row: Row, call: int) -> Programs:
        """What a call of a row traces on its chip."""
        named, args = row.calls[call].kernel, row.calls[call].args
        is_static = row.options.get("dge") == "static"
        where = row.options.get("topology")
        over = row.options.get("ranks", 1), Topology(*where) if where else None
        words = repr((args, sorted(row.keywords.items()), row.options.get("constants")))
        key = (named, row.chip, is_static, over, words)
        known = self._programs.get(key)
        if known is None:
            machine, kernel = measured_machine(row, machine_named(row.chip)), self.kernel(row, named)
            arguments = tuple(_argument(row, text) for text in args)
            left = _launched(kernel, arguments, dict(row.keywords), machine, *over)
            known = self._programs[key] = tuple(program for one in left for program in one.programs)
            for program in known:
                program.has_static_descriptors = is_static
        return known

    def kernel(self, row: Row, named: str) -> Any:
        """A kernel that a row names.

        Raises:
            FileError: if there is none of this name.
        """
        if ":" in named and self._load is not None:
            return as_kernel(self._load(named))
        module, _, name = named.rpartition(".")
        try:
            return as_kernel(getattr(part(f"ledger.kernels.{module}"), name))
        except (ModuleNotFoundError, AttributeError):
            raise FileError(
                f"row {row.id} of line {row.line} names kernel {named}; the ledger has none",
                hint="write MODULE.FUNCTION of nkilab.ledger.kernels, or FILE.py:KERNEL",
            ) from None

    def estimates(self, row: Row, machine: Machine | None = None) -> list[Estimate]:
        """Estimates of all calls of a row, on its chip or under the constants given."""
        return [self._estimate(row, call, machine) for call in range(len(row.calls))]

    def _estimate(self, row: Row, call: int, machine: Machine | None) -> Estimate:
        """Times and rates move no tile: what was planned under other ones is simulated anew."""
        known = self._planned.get((row.id, call))
        if machine is not None:
            machine = measured_machine(row, machine)
        if known is not None and machine is not None and _times_alone_differ(machine, known.program.machine):
            return estimate_planned(recosted(known.program, machine), known.plan)
        programs = self.programs(row, call)
        if machine is not None:
            programs = tuple(recosted(program, machine) for program in programs)
        result = estimate_programs(programs)
        if row.split == "fit" and machine is None and len(programs) == 1:
            self._planned[row.id, call] = result
        return result

    def known(self, row: Row, machine: Machine) -> dict[str, float]:
        """All quantities of a row under the constants of its chip as they are, predicted once."""
        if row.id not in self._known:
            own = self.estimates(row, machine)
            self._known[row.id] = {name: QUANTITIES[name].predict(row, own) for name in row.measured}
        return self._known[row.id]

    def predict(self, row: Row, metric: str, machine: Machine | None = None) -> float:
        """One quantity of a row."""
        return QUANTITIES[metric].predict(row, self.estimates(row, machine))


def judged(rows: Iterable[Row], predictor: Predictor, *, secondary: bool = False) -> list[Judged]:
    """What rows measured, each with its prediction under any constants.

    Args:
        rows: of a ledger.
        predictor: holds the traces.
        secondary: whether to give every quantity of a row and not only the one it stands for.
    """
    return [
        Judged(row, metric, value, partial(_under, predictor, row, metric))
        for row in rows
        for metric, value in (row.measured.items() if secondary else [(row.metric, row.value)])
    ]


def measured_machine(row: Row, machine: Machine) -> Machine:
    """A chip with the constants that a row says it was measured with: those of older software."""
    constants = row.options.get("constants")
    return machine.with_constants(constants, row.id) if constants else machine


def _times_alone_differ(machine: Machine, other: Machine) -> bool:
    facts = other.facts()
    return all(fact.value == facts[name].value or name in FREE for name, fact in machine.facts().items())


def _launched(
    kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], machine: Machine, ranks: int,
    topology: Topology | None,
) -> list[Launched]:  # fmt: skip
    """What a launch on shapes leaves, per rank."""
    calls = [(args, kwargs)] * ranks
    return launch_ranks(
        kernel, calls, range(ranks), machine, launched=ranks, has_data=False, topology=topology
    )


def _under(predictor: Predictor, row: Row, metric: str, machine: Machine) -> float:
    return predictor.predict(row, metric, machine)


def _argument(row: Row, text: Any) -> Any:
    """An argument as a row writes it: "f32[128,512]" stands for an array, anything else for itself."""
    if not isinstance(text, str) or not text.endswith("]"):
        return text
    try:
        return argument(text)
    except UsageError:
        raise FileError(
            f"row {row.id} of line {row.line} has the argument {text!r}, which is no array",
            hint="write an array as DTYPE[N,...], as in f32[128,512]",
        ) from None
