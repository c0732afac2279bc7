"""The Python interface: simulate, estimate, spec, activate; and the world that dialects ask."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import environ
from pathlib import Path
from typing import Any

import numpy as np

from .arrays import ArraySpec, framework_of
from .benchmark import BenchmarkResult, table
from .cores import signature, simulate_together
from .dialects.dst_first.registers import ASKED, TRIPS
from .dialects.kernel import Kernel
from .dialects.value_returning.top import Measured
from .errors import FileError, UsageError
from .files import neff, ntff
from .launches import Launched, calls_of, launch, launch_ranks
from .machine import Machine, Topology, machine_named
from .place import Plan, plan
from .place.compiled import compiled
from .progress import phase
from .timing import Timeline
from .timing import simulate as run_clock
from .trace.program import Program
from .trace.session import set_world
from .views.cores import Cores
from .views.notebook import short_html
from .views.run import Run
from .views.summary import Summary, summarize

DEFAULT_TARGET = "trn2"
# where nki.profile puts its summaries, beside the program and the traces
REPORTS = "json_reports"


@dataclass(frozen=True)
class Settings:
    """What a user chose for a process or a block.

    Args:
        target: chip that overrides the kernel's and the environment's; "" for none.
        version: NKI version asked for; "" for whatever some version accepts.
        shows_notices: whether notices go to standard error.
        watch: called with the programs of every launch of a script; None for nobody.
    """

    target: str = ""
    version: str = ""
    shows_notices: bool = True
    watch: Callable[[tuple[Program, ...]], None] | None = None


_DEFAULTS = Settings()
_settings: ContextVar[Settings | None] = ContextVar("nkilab_settings", default=None)


def settings() -> Settings:
    """The choices in force."""
    return _settings.get() or _DEFAULTS


@contextmanager
def chosen(**changes: Any) -> Iterator[Settings]:
    """Put other choices in force for a block."""
    token = _settings.set(replace(settings(), **changes))
    try:
        yield settings()
    finally:
        _settings.reset(token)


def choose(**changes: Any) -> None:
    """Put other choices in force from here on."""
    _settings.set(replace(settings(), **changes))


def machine_for(kernel: Kernel | None, target: str = "") -> Machine:
    """The chip: the one named, else the kernel's `platform_target`, the environment's, trn2.

    Raises:
        UsageError: if no chip has the name.
    """
    named = (
        target
        or settings().target
        or (kernel.platform_target if kernel is not None else "")
        or environ.get("NEURON_PLATFORM_TARGET_OVERRIDE", "")
        or DEFAULT_TARGET
    )
    return machine_named(named)


def as_kernel(kernel: Any) -> Kernel:
    """The kernel that a decorated function, a measured one or a plain function means.

    Raises:
        UsageError: if it is none.
    """
    if isinstance(kernel, Measured):
        return kernel.kernel
    if isinstance(kernel, Kernel):
        return kernel
    raise UsageError(
        f"{getattr(kernel, '__name__', kernel)!s} is no NKI kernel; "
        "decorate it with nki.jit of either spelling"
    )


def spec(shape: Any, dtype: Any) -> ArraySpec:
    """Stand in for an array where only shapes matter.

    Args:
        shape: extents; a number for one axis.
        dtype: name or NumPy, ml_dtypes, torch, jax type.

    Raises:
        UsageError: if an extent is no whole number of at least 1, or no tile holds the type.
    """
    if isinstance(shape, int):
        shape = (shape,)
    return ArraySpec(tuple(shape) if isinstance(shape, Iterable) else shape, dtype)


def simulate(kernel: Any) -> Callable[..., Any]:
    """A function that runs a kernel, with or without a grid, on arrays and returns arrays of their kind."""
    held = as_kernel(kernel)

    def run(*args: Any, **kwargs: Any) -> Any:
        return held(*args, **kwargs)

    return run


@dataclass(frozen=True)
class Estimate:
    """A latency predicted from shapes, with how sure it is.

    Args:
        kernel_name: of the function.
        target: name of the chip.
        program: what was traced, as the compiler leaves it.
        plan: addresses, reuse and spills.
        timeline: when everything happens.
        notes: what the numbers leave out.
        cores: of a launch over several cores, all of them; program, plan and timeline are of the slowest.
    """

    kernel_name: str
    target: str
    program: Program = field(repr=False)
    plan: Plan = field(repr=False)
    timeline: Timeline = field(repr=False)
    notes: tuple[str, ...] = field(default=(), repr=False)
    cores: tuple[Cores, ...] = field(default=(), repr=False)

    @property
    def latency_us(self) -> float:
        """Microseconds from the start of the kernel on the NeuronCore to its end."""
        return self.timeline.latency_ns / 1000

    @property
    def interval_us(self) -> tuple[float, float]:
        """Microseconds between which the latency is believed to lie.

        The chip's `interval_dma` or `interval_engines`, by what bounds the kernel, widened by what assumed
        costs contribute to the work; the lower end is never below a tenth.
        """
        name = "interval_dma" if self.summary.bound.startswith("DMA") else "interval_engines"
        part = self.program.machine[name] * self._widening
        return self.latency_us * max(1 - part, 0.1), self.latency_us * (1 + part)

    @cached_property
    def _widening(self) -> float:
        """The mean of the steps' widening factors, weighted by the time they keep their engine busy.

        A transfer counts as long as all DMA engines together need for its bytes.
        """
        forms, machine = self.program.forms, self.program.machine
        rate = machine["dma_engines"] * machine["dma_bytes_per_ns"]
        counts = np.bincount(np.asarray(self.program.form_column, np.int64), minlength=len(forms)).tolist()
        spent = [
            (count * (step.busy_ns + step.descriptors * step.descriptor_bytes / rate), step.widening)
            for form, count in zip(forms, counts, strict=True)
            for step in form.steps
        ]
        total = sum(time for time, _ in spent)
        return sum(time * factor for time, factor in spent) / total if total else 1.0

    @property
    def window_us(self) -> float:
        """Microseconds from the first to the last DMA byte."""
        return self.timeline.window_ns / 1000

    @property
    def profile_us(self) -> float:
        """Microseconds that a profile of the kernel spans: the latency, and what the profiler adds."""
        return self.latency_us + self.program.machine["profile_extra_ns"] / 1000

    @cached_property
    def summary(self) -> Summary:
        """Metrics under the names of the vendor's profiler."""
        return summarize(self.program, self.plan, self.timeline)

    @cached_property
    def run(self) -> Run:
        """What views of the run are made from: critical path, stalls, lines, memories, transfers."""
        return Run(self.program, self.plan, self.timeline, self.summary, self.interval_us, self.notes)

    def _repr_html_(self) -> str:
        return short_html(self.run)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the rows, ready for JSON."""
        low, high = self.interval_us
        return {
            "schema": "nkilab.estimate/1",
            "kernel": self.kernel_name,
            "target": self.target,
            "model_version": self.timeline.model,
            "latency_us": self.latency_us,
            "interval_us": [low, high],
            "window_us": self.window_us,
            "profile_us": self.profile_us,
            "notes": list(self.notes),
            "instructions": self.program.opcodes(),
            "summary": self.summary.to_dict(),
            "cores": [cores.to_dict() for cores in self.cores],
        }


def estimate(
    kernel: Any, *args: Any, target: str = "", trips: Mapping[str, int] | None = None, ranks: int = 1,
    topology: Topology | None = None, **kwargs: Any,
) -> Estimate:  # fmt: skip
    """Predict the latency of a kernel from the shapes of its arguments; no data is touched.

    Of a launch on several cores or ranks the estimate is that of the slowest core, in the time of all; notes
    say what each does, and how much faster several cores of one rank are than one.

    Args:
        kernel: decorated by nki.jit of either spelling, with or without a grid.
        args: arrays or specs, and whatever else the kernel takes.
        target: chip; see `machine_for` for the default.
        trips: how often lines go round whose registers say it only where there are data, by "file.py:41".
        ranks: how many run the kernel together; `per_rank` arguments are their own.
        topology: where ranks lie; see `ranks.launch`.
        kwargs: likewise.

    Raises:
        UsageError: if no loop that asks stands on a line of `trips`.
    """
    made = estimate_programs(traced(kernel, args, kwargs, target, trips, ranks, topology))
    if len(made.cores) == 0 or ranks > 1:
        return made
    alone = _on_one_core(as_kernel(kernel), args, kwargs, target, trips, made)
    return made if alone is None else replace(made, notes=(*made.notes, alone))


def _on_one_core(
    kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], target: str,
    trips: Mapping[str, int] | None, made: Estimate,
) -> str | None:  # fmt: skip
    """How much faster several cores are than one; None for a kernel that does not do all of it on one."""
    grid = (1,) if kernel.spelling == "nki" else kernel.grid_sizes
    single = Kernel(kernel.function, kernel.spelling, kernel.version, kernel.options, grid)
    try:
        alone = estimate_programs(traced(single, args, kwargs, target, trips))
    except Exception:
        # it needs its partner
        return None
    count = sum(len(cores.titles) for cores in made.cores)
    written = sum(len(c.titles) * c.estimate.summary["hbm_write_bytes"] for c in made.cores)
    if alone.summary["hbm_write_bytes"] < 0.99 * written:
        return None
    return (
        f"one core takes {alone.latency_us:.2f} us, bound by {alone.summary.bound}; {count} cores are "
        f"{alone.latency_us / made.latency_us:.2f} times as fast, bound by {made.summary.bound}"
    )


def traced(
    kernel: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    target: str = "",
    trips: Mapping[str, int] | None = None,
    ranks: int = 1,
    topology: Topology | None = None,
) -> tuple[Program, ...]:
    """The programs of a launch on shapes, one per core; see `estimate`."""
    held = as_kernel(kernel)
    machine, said = machine_for(held, target), dict(trips or {})
    asked: set[str] = set()
    left = launch_ranks(
        held, calls_of(args, kwargs, ranks), range(ranks), machine, launched=ranks, has_data=False,
        topology=topology, keyed={TRIPS: said, ASKED: asked},
    )  # fmt: skip
    for place in sorted(said.keys() - asked):
        raise UsageError(
            f"--trips names {place}; no register that only data could tell decides how often it goes round",
            hint="name the line that the error shows which is told without --trips",
        )
    return tuple(program for launched in left for program in launched.programs)


def estimate_programs(programs: Sequence[Program]) -> Estimate:
    """Predict the latency of programs that run together: that of the slowest, which is shown.

    Equal programs are compiled and placed once.
    """
    if len(programs) == 1:
        return estimate_program(programs[0])
    keys = [signature(program) for program in programs]
    first = {key: number for number, key in reversed(list(enumerate(keys)))}
    with phase("placing", total=sum(len(programs[number]) for number in first.values())):
        held = {key: compiled(programs[number]) for key, number in first.items()}
        plans = {key: plan(program) for key, program in held.items()}
    own = [held[key].named_as(program) for key, program in zip(keys, programs, strict=True)]
    with phase("simulating", total=sum(map(len, own))):
        together = simulate_together(own, [plans[key] for key in keys], keys)
    each = [
        Estimate(
            own[p].kernel_name, own[p].machine.label, own[p], plans[keys[p]], timeline, tuple(own[p].notes)
        )
        for p, timeline in zip(together.members, together.timelines, strict=True)
    ]
    slowest = max(range(len(each)), key=lambda c: (each[c].latency_us, -c))
    titles = [[p.title for p, c in zip(own, together.of, strict=True) if c == n] for n in range(len(each))]
    cores = tuple(Cores(tuple(names), one) for names, one in zip(titles, each, strict=True))
    return replace(each[slowest], cores=cores, notes=(*each[slowest].notes, *(c.told() for c in cores)))


def estimate_program(program: Program) -> Estimate:
    """Predict the latency of a traced program, as the compiler leaves it."""
    with phase("placing", total=len(program)):
        program = compiled(program)
        placed = plan(program)
    with phase("simulating", total=len(program)):
        timeline = run_clock(program, placed)
    return Estimate(
        program.kernel_name, program.machine.label, program, placed, timeline, tuple(program.notes)
    )


class NkilabWorld:
    """What dialects ask for; see `trace.session.World`."""

    def __init__(self) -> None:
        self._noticed: set[str] = set()
        # what launches kernels; checks put themselves around it
        self.launching: Callable[..., Launched] = launch
        self.launching_ranks: Callable[..., list[Launched]] = launch_ranks

    def run(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a kernel on arrays; specs among them are refused by the launch."""
        return self._launch(kernel, args, kwargs).results

    simulate = run

    def _launch(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Launched:
        launched = self.launching(kernel, args, kwargs, machine_for(kernel), has_data=True)
        _show(launched.programs)
        return launched

    def _estimate(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Estimate:
        """Time a kernel from the shapes of arrays."""
        shapes = tuple(map(_shape_only, args))
        programs = traced(kernel, shapes, {name: _shape_only(value) for name, value in kwargs.items()})
        _show(programs)
        return estimate_programs(programs)

    def baremetal(
        self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]
    ) -> Any:
        """Run a kernel on arrays and save the files that `options` name."""
        launched = self._launch(kernel, args, kwargs)
        _save(launched.program, options.get("save_neff_name"), options.get("save_trace_name"))
        return launched.results

    def benchmark(
        self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]
    ) -> BenchmarkResult:
        """Time a kernel from shapes, print the table, save files."""
        predicted = self._estimate(kernel, args, kwargs)
        neff_name = options.get("save_neff_name")
        trace_name = options.get("save_trace_name")
        if trace_name and not neff_name:
            neff_name = "file.neff"
        _save(predicted.program, neff_name, trace_name, predicted.timeline)
        result = BenchmarkResult.from_latency(predicted.latency_us, predicted.interval_us, predicted.target)
        print(table(Path(str(neff_name)).stem if neff_name else kernel.name, result))
        return result

    def profile(
        self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]
    ) -> None:
        """Time a kernel from shapes and write its program, a trace and a report per execution to a folder."""
        folder = _folder(options.get("working_directory"))
        name = Path(options.get("save_trace_name") or "profile.ntff")
        executions = _executions(options.get("profile_nth", 1), options.get("num_execs", 1))
        program = folder / (options.get("save_neff_name") or "file.neff")
        stems = [name.stem if n == 1 else f"{name.stem}_exec_{n}" for n in executions]
        traces = [folder / name.with_name(stem + name.suffix) for stem in stems]
        reports = [folder / REPORTS / f"{stem}.json" for stem in stems]
        for path in (program, *traces, *reports):
            if path.exists() and not options.get("overwrite"):
                raise FileError(f"{path} exists", hint="pass overwrite=True, or name another file")
        predicted = self._estimate(kernel, args, kwargs)
        (folder / REPORTS).mkdir(parents=True, exist_ok=True)
        for trace, report in zip(traces, reports, strict=True):
            _save(predicted.program, program, trace, predicted.timeline)
            report.write_text(json.dumps(predicted.to_dict(), indent=1) + "\n")

    def machine(self) -> Machine:
        """The chip chosen for kernels that name none: the setting's, the environment's, trn2."""
        return machine_for(None)

    def notice(self, text: str) -> None:
        """Print a notice once per process to standard error."""
        if text not in self._noticed and settings().shows_notices:
            self._noticed.add(text)
            print(f"nkilab: notice: {text}", file=sys.stderr)


def _folder(given: Any) -> Path:
    """The folder that a profile goes to, whose parent exists.

    Raises:
        FileError: if it is none.
    """
    folder = Path(given or "")
    if not folder.is_absolute() or not folder.parent.is_dir() or (folder.exists() and not folder.is_dir()):
        held = "not given" if given is None else repr(str(given))
        raise FileError(
            f"working_directory is {held}; it is the absolute path of a folder, whose parent exists",
            hint="pass working_directory=Path.cwd()",
        )
    return folder


def _executions(nth: Any, count: Any) -> list[int]:
    """Which executions are profiled: every n-th up to a number of them, the n-th in any case.

    Raises:
        UsageError: if they do not count from 1.
    """
    for name, number in (("profile_nth", nth), ("num_execs", count)):
        if not isinstance(number, int) or number < 1:
            raise UsageError(f"{name} is {number!r}; executions count from 1")
    return list(range(nth, count + 1, nth)) or [nth]


def _show(programs: tuple[Program, ...]) -> None:
    """Show the programs of a launch to whoever watches."""
    watch = settings().watch
    if watch is not None:
        watch(programs)


def _shape_only(value: Any) -> Any:
    """An array as its spec; anything else as it is."""
    return ArraySpec(tuple(value.shape), value.dtype) if framework_of(value) not in ("", "spec") else value


def _save(program: Program, neff_path: Any, trace_path: Any, timeline: Timeline | None = None) -> None:
    """Write the program, as the compiler leaves it, and its trace where paths are given."""
    program = compiled(program)
    if neff_path:
        neff.write(Path(neff_path), program)
    if trace_path:
        ntff.write(Path(trace_path), program, timeline or estimate_program(program).timeline)


WORLD = NkilabWorld()
set_world(WORLD)
