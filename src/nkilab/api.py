"""The Python interface: simulate, estimate, spec, activate; and the world that dialects ask."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from os import PathLike, environ
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct, structs

from .argument_checks import mapping, need, whole
from .arguments import MOST_RANKS, calls_of
from .arrays import ArraySpec, dtype_of, framework_of, is_tracer, outlined
from .dialects.dst_first.registers import ASKED, TRIPS
from .dialects.kernel import Kernel
from .dialects.value_returning.top import Measured
from .disk import write_whole_folder
from .errors import FileError, UsageError, printable
from .estimates import Estimate as Estimate
from .estimates import estimate_program as estimate_program
from .estimates import estimate_programs as estimate_programs
from .files import neff, ntff
from .launches import Launched, launch_ranks
from .machine import Machine, Topology, machine_named
from .place.compiler_passes import compiled
from .timing import Timeline
from .trace.program import Program
from .trace.session import set_world
from .tracebacks import public
from .views.cores import OneCore

PERCENTILES = (0, 1, 10, 25, 50, 90, 99, 100)


class Latency(Struct, frozen=True):
    """Latency on the NeuronCore, predicted once: every percentile is the same figure."""

    predicted_us: float  # microseconds
    interval_us: tuple[float, float]  # between which it is believed to lie

    def get_latency_percentile(self, percentile: int) -> int:
        """Microseconds, whole; the prediction is deterministic, so that all percentiles agree.

        Raises:
            UsageError: if neuron-bench does not report this percentile.
        """
        if percentile not in PERCENTILES:
            raise UsageError(
                f"percentile is {percentile}; it must be one of {', '.join(map(str, PERCENTILES))}"
            )
        return max(1, round(self.predicted_us))


class BenchmarkResult(Struct, frozen=True):
    """What `.benchmark_result` holds after a call."""

    nc_latency: Latency
    target: str

    @classmethod
    def from_latency(
        cls, latency_us: float, interval_us: tuple[float, float], target: str
    ) -> BenchmarkResult:
        """The result of one prediction."""
        return cls(Latency(latency_us, interval_us), target)


def table(name: str, result: BenchmarkResult) -> str:
    """The table that neuron-bench prints; columns that the model cannot know say so."""
    latency = result.nc_latency
    core = latency.get_latency_percentile(50)
    low, high = latency.interval_us
    heads = ("B", "NC", "NC USED", "WEIGHTS", "MODE", "INF/S", "IRES/S", "L(1)", "L(50)", "L(99)", "NCL(1)",
             "NCL(50)", "NCL(99)", "%USER")  # fmt: skip
    rate = f"{1e6 / core:.2f}"
    cells = ("1", "1", "1", "dynamic", "MODEL", rate, rate, *["n/a"] * 3, *[str(core)] * 3, "N/A")
    widths = [max(len(h), len(c)) for h, c in zip(heads, cells, strict=True)]
    rule = "+" + "+".join("-" * (w + 2) for w in widths) + "+"
    lines = [
        name,
        rule,
        "  " + "   ".join(h.ljust(w) for h, w in zip(heads, widths, strict=True)),
        "  " + "   ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)),
        rule,
        f"modelled on {result.target}: NCL is one prediction, believed between {low:.0f} and {high:.0f} us; "
        "L, the latency seen by the host, is not modelled",
    ]
    return "\n".join(line.rstrip() for line in lines)


DEFAULT_TARGET = "trn2"
TARGET = "the name of a chip or the path of a machine file"
# where nki.profile puts its summaries, beside the program and the traces
REPORTS = "json_reports"


class Shown(Struct, frozen=True):
    """A launch of a script, as whoever watches sees it."""

    programs: tuple[Program, ...]  # of all cores and ranks
    kernel: Kernel  # with its grid
    # args, kwargs: of the first rank; of arrays only shapes and types
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    ranks: int = 1  # how many ran together


class Settings(Struct, frozen=True):
    """What a user chose for a process or a block."""

    target: str = ""  # chip that overrides the kernel's and the environment's; "" for none
    version: str = ""  # NKI version asked for; "" for whatever some version accepts
    shows_notices: bool = True  # whether notices go to standard error
    watch: Callable[[Shown], None] | None = None  # called with every launch of a script; None for nobody


_DEFAULTS = Settings()
_settings: ContextVar[Settings | None] = ContextVar("nkilab_settings", default=None)


def settings() -> Settings:
    """The choices in force."""
    return _settings.get() or _DEFAULTS


@contextmanager
def chosen(**changes: Any) -> Iterator[Settings]:
    """Put other choices in force for a block."""
    token = _settings.set(structs.replace(settings(), **changes))
    try:
        yield settings()
    finally:
        _settings.reset(token)


def choose(**changes: Any) -> None:
    """Put other choices in force from here on."""
    _settings.set(structs.replace(settings(), **changes))


def machine_for(kernel: Kernel | None, target: str = "") -> Machine:
    """The chip: the one named, else the kernel's `platform_target`, the environment's, trn2.

    Raises:
        UsageError: if no chip has the name.
    """
    # nothing at all is the default
    if target is not None:
        need("target", target, (str, PathLike), TARGET)
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


@public
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


@public
def simulate(kernel: Any) -> Callable[..., Any]:
    """A function that runs a kernel, with or without a grid, on arrays and returns arrays of their kind."""
    as_nki_kernel = as_kernel(kernel)

    @public
    def run(*args: Any, **kwargs: Any) -> Any:
        return as_nki_kernel(*args, **kwargs)

    return run


_Estimated = TypeVar("_Estimated", bound=Estimate)


@public
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
    estimates_of_all = estimate_programs(traced(kernel, args, kwargs, target, trips, ranks, topology))
    if ranks > 1:
        return estimates_of_all
    return beside_one_core(estimates_of_all, as_kernel(kernel), args, kwargs, target, trips)


def beside_one_core(
    estimated: _Estimated, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], target: str = "",
    trips: Mapping[str, int] | None = None,
) -> _Estimated:  # fmt: skip
    """An estimate of a launch over several cores, with what one core takes for it if one does all of it."""
    if not estimated.cores:
        return estimated
    grid = (1,) if kernel.spelling == "nki" else kernel.grid_sizes
    single = Kernel(kernel.function, kernel.spelling, kernel.version, kernel.options, grid)
    try:
        single_core = estimate_programs(traced(single, args, kwargs, target, trips))
    except Exception:
        # it needs its partner
        return estimated
    assert estimated.together is not None
    if single_core.summary["hbm_write_bytes"] < 0.99 * estimated.together.total("hbm_write_bytes"):
        return estimated
    with_one_core = replace(estimated, one_core=OneCore(single_core.latency_us, single_core.summary.bound))
    assert with_one_core.together is not None
    return replace(with_one_core, notes=(*estimated.notes, with_one_core.together.speed_up()))


def traced(
    kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any], target: str = "",
    trips: Mapping[str, int] | None = None, ranks: int = 1, topology: Topology | None = None,
) -> tuple[Program, ...]:  # fmt: skip
    """The programs of a launch on shapes, one per core; see `estimate`."""
    checked_kernel = as_kernel(kernel)
    if trips is not None:
        mapping("trips", trips, '{"kernel.py:41": 8}')
    if topology is not None:
        need("topology", topology, Topology, "an nkilab.Topology")
    ranks = whole("ranks", ranks, 1, MOST_RANKS)
    machine, said = machine_for(checked_kernel, target), dict(trips or {})
    asked: set[str] = set()
    left = launch_ranks(
        checked_kernel, calls_of(args, kwargs, ranks), range(ranks), machine, launched=ranks, has_data=False,
        topology=topology, keyed={TRIPS: said, ASKED: asked},
    )  # fmt: skip
    for place in sorted(said.keys() - asked):
        raise UsageError(
            f"--trips names {place}; there is no loop there whose number of iterations only the data decides",
            hint="leave --trips out: the error then names the line of the loop",
        )
    return tuple(program for launched in left for program in launched.programs)


class NkilabWorld:
    """What dialects ask for; see `trace.session.World`."""

    def __init__(self) -> None:
        self._noticed: set[str] = set()
        # what launches kernels; checks put themselves around it
        self.launching: Callable[..., list[Launched]] = launch_ranks
        # what takes kernels whose arguments a framework traces, and returns what stands in for the results
        self.staging: Callable[..., Any] | None = None
        # `_launch`, of which torch.compile traces no frame
        self._apart: Callable[..., Launched] | None = None
        # called with every launch
        self.observers: list[Callable[[Shown], None]] = []

    def run(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a kernel on arrays; specs among them are refused by the launch."""
        if self.staging is not None and "jax" in sys.modules and is_tracer((args, kwargs)):
            return self.staging(kernel, args, kwargs)
        if "torch._dynamo" in sys.modules:
            # torch.compile breaks its graph at a kernel that is not wrapped, and traces none of our frames
            self._apart = self._apart or sys.modules["torch"].compiler.disable(self._launch)
            return self._apart(kernel, args, kwargs).results
        return self._launch(kernel, args, kwargs).results

    def _launch(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Launched:
        calls = [(args, kwargs)]
        (launched,) = self.launching(kernel, calls, [0], machine_for(kernel), launched=1, has_data=True)
        show(launched.programs, kernel, args, kwargs)
        return launched

    def _estimate(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Estimate:
        """Time a kernel from the shapes of arrays."""
        args, kwargs = _shapes_only(args, kwargs)
        programs = traced(kernel, args, kwargs)
        show(programs, kernel, args, kwargs)
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
        timed, timeline_json = compiled(predicted.program), json.dumps(predicted.to_dict(), indent=1) + "\n"
        files = {str(program): neff.packed(timed)}
        files |= {str(trace): ntff.packed(timed, predicted.timeline) for trace in traces}
        write_whole_folder(folder, files | {str(report): timeline_json.encode() for report in reports})

    def machine(self) -> Machine:
        """The chip chosen for kernels that name none: the setting's, the environment's, trn2."""
        return machine_for(None)

    def notice(self, text: str) -> None:
        """Print a notice once per process to standard error."""
        if text not in self._noticed and settings().shows_notices:
            self._noticed.add(text)
            print(f"nkilab: notice: {printable(text)}", file=sys.stderr)


def _folder(shown: Any) -> Path:
    """The folder that a profile goes to, whose parent exists.

    Raises:
        FileError: if it is none.
    """
    folder = Path(shown or "")
    if not folder.is_absolute() or not folder.parent.is_dir() or (folder.exists() and not folder.is_dir()):
        shown_path = "not given" if shown is None else repr(str(shown))
        raise FileError(
            f"working_directory is {shown_path}; it must be the absolute path of a folder, whose parent "
            f"exists",
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


def show(
    programs: tuple[Program, ...], kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any],
    ranks: int = 1,
) -> None:  # fmt: skip
    """Show a launch to whoever watches."""
    for watch in (settings().watch, *WORLD.observers):
        if watch is not None:
            watch(Shown(programs, kernel, *_shapes_only(args, kwargs), ranks))


def _shapes_only(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments with specs in the place of arrays."""
    return tuple(map(_shape_only, args)), {name: _shape_only(value) for name, value in kwargs.items()}


def _shape_only(value: Any) -> Any:
    """An array as its spec; anything else as it is."""
    if framework_of(value) in ("", "spec"):
        return value
    outline = outlined(value, "of the kernel")
    return ArraySpec(tuple(outline.shape), dtype_of(outline, "of the kernel"))


def _save(program: Program, neff_path: Any, trace_path: Any, timeline: Timeline | None = None) -> None:
    """Write the program, as the compiler leaves it, and its trace where paths are given."""
    program = compiled(program)
    if neff_path:
        neff.write(Path(neff_path), program)
    if trace_path:
        ntff.write(Path(trace_path), program, timeline or estimate_program(program).timeline)


WORLD = NkilabWorld()
set_world(WORLD)
