"""Launching a kernel: arrays become HBM tensors, the function runs as Python, results become arrays."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from contextvars import copy_context
from functools import partial
from inspect import BoundArguments
from typing import Any, TypeVar
from warnings import catch_warnings

from msgspec import Struct, field
from msgspec.structs import replace

from .arguments import Call
from .arrays import chosen_framework, from_numpy, write_back
from .border import (
    BoundCall,
    bind,
    check_results,
    input_tensor,
    map_arrays,
    map_tensors,
    output_array,
    raise_placed,
    seen_by,
    tensors_in,
)
from .cores import (
    ProgramGrid,
    Rendezvous,
    Schedule,
    are_alike,
    as_each_rank,
    instances_of,
    joined,
    note_rendezvous,
    of_all_ranks,
    run_in_turns,
)
from .dialects.dst_first.collectives import ReplicaGroup
from .dialects.kernel import Kernel
from .dialects.lasting import Lasting, can_start_again
from .dialects.loops import with_ranges
from .dialects.outputs import changed_inputs, check_outputs, inputs_to_write_back, note_holes
from .dialects.schedules import check_schedule
from .dialects.uniform import has_uniform_loops
from .errors import NkilabError
from .execute import execute, one_blas_thread, open_threads
from .machine import Machine, Topology
from .place.compiler_passes import AS_WRITTEN, MIDDLE_END, STANDALONE
from .place.limits import refuse_what_cannot_exist
from .progress import phase
from .remembered import asked, recalled, remember
from .tapes import TAPE, Tape, explain, forget_tapes, tape_of
from .trace.affine import PATIENCE, REPEATS, Repeats, TraceAgain
from .trace.builder import FORMS
from .trace.program import Program, errors_know
from .trace.session import Execute, MemoryKey, RunNeeded, Session, Together, TurnsNeeded, tracing
from .tracebacks import is_from_outside

# From what computes a row, what computes it and looks on.
Watch = Callable[[Execute], Execute]
# what sessions know from the beginning; see `Session.keyed`
Keyed = Mapping[Any, Any]


class Launched(Struct, frozen=True):
    """What a launch leaves."""

    programs: tuple[Program, ...]  # one per core
    results: Any  # of the kernel as arrays; as specs without data
    origins: tuple[str, ...] = ()  # per tensor among the results the input that it is, or ""
    changed: tuple[str, ...] = ()  # the inputs that the kernel writes
    # per memory that all programs see, the number of its storage in each program, or None where the program
    # has none
    memories: dict[MemoryKey, tuple[int | None, ...]] = field(default_factory=dict)
    rendezvous: tuple[Rendezvous, ...] = ()  # where the programs met, in the order in which they did
    is_rank_asked: bool = False  # whether something else than collectives asked which rank it is

    @property
    def program(self) -> Program:
        """The program of the first core."""
        return self.programs[0]


T = TypeVar("T")
# runs a kernel with what its sessions know from the beginning
Run = Callable[[Keyed], list[Launched]]


def launch(
    kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], machine: Machine, *, has_data: bool,
    keyed: Keyed | None = None, watch: Watch | None = None,
) -> Launched:  # fmt: skip
    """Run a kernel once per program instance, on one rank; see `launch_ranks`.

    Instances on one core run one after another and make one program. Several cores run together, one at a
    time: each until it waits for another.

    Args:
        args: positional arguments; arrays become HBM tensors, anything else is passed on.
        kwargs: keyword arguments, likewise.
    """
    (launched,) = launch_ranks(
        kernel, [(args, kwargs)], [0], machine, launched=1, has_data=has_data, keyed=keyed, watch=watch
    )
    return launched


def _on_data(
    kernel: Kernel, call: Call, program_grid: ProgramGrid, machine: Machine, run: Run, on_shapes: Run
) -> Launched:
    """Run a kernel on data, compute again what launches like this one compute, or look up what it left."""
    bound = BoundCall.of(kernel, call)
    tape = tape_of(kernel, bound, machine)
    launch_asked = asked(tape, bound)
    known = recalled(launch_asked)
    if tape is not None and isinstance(tape.launched, Launched) and known is not None:
        return replace(tape.launched, results=map_tensors(tape.results, lambda _: known.pop(0)))
    is_ours = False
    try:
        is_ours = tape is not None and tape.lock.acquire(blocking=False)
        if tape is None or not is_ours:
            return run({})[0]
        if not tape.was_tried and has_uniform_loops(kernel.function):
            _trace(tape, on_shapes)
        launched, is_fixed = _on_tape(tape, kernel, bound, program_grid, machine, run)
    except BaseException as error:
        if is_from_outside(error):
            # wherever it was broken off, no later launch goes on with it
            forget_tapes()
        raise
    finally:
        if tape is not None and is_ours:
            tape.was_tried = True
            tape.rewind()
            tape.lock.release()
    if is_fixed and not any(launched.origins):
        remember(launch_asked, launched.results)
    return launched


def _trace(tape: Tape, on_shapes: Run) -> None:
    """Have a tape keep the rows of a launch that shapes alone tell, where they follow from a few iterations.

    What goes wrong then, or would be told, is left to the launch on data.
    """
    repeats, known = Repeats(patience=PATIENCE), None
    with catch_warnings(record=True) as messages:
        known = _unless_it_fails(lambda: _with_repeats(on_shapes, {TAPE: tape}, repeats))
    if known is None or messages or not repeats.is_used or tape.says_more:
        tape.launched = None


def _on_tape(
    tape: Tape, kernel: Kernel, bound: BoundCall, program_grid: ProgramGrid, machine: Machine, run: Run
) -> tuple[Launched, bool]:
    """Run a kernel whose rows a tape may keep, or compute those that it has.

    Returns:
        What it leaves, and whether that follows from the arrays alone and nothing was told to the user.
    """
    recorded = tape.launched
    if not isinstance(recorded, Launched):
        launched = run({TAPE: tape})[0]
        return launched, tape.launched is not None
    try:
        if tape.has_calls:
            elements = iter(tape.again(bound.elements(kernel)))
            results = map_tensors(tape.results, lambda _: from_numpy(next(elements), bound.framework))
            return replace(recorded, results=results), True
        rank = _prepared(kernel, bound.call, _sessions(kernel, machine, program_grid, 0, None, execute), {})
        session = rank.sessions[0]
        with one_blas_thread(), tracing(session), phase("executing"):
            tape.play(session)
            framework = bound.framework
            results = map_tensors(tape.results, lambda t: output_array(session, kernel, t, framework))
    except (NkilabError, RunNeeded):
        # what the user is told, the kernel says at its lines
        return run({})[0], False
    return replace(recorded, results=results), True


def _on_shapes(
    kernel: Kernel, calls: Sequence[Call], program_grid: ProgramGrid, keyed: Keyed, run: Run
) -> list[Launched]:
    """Run a kernel on shapes alone: where one program runs, iterations of loops may follow from others.

    What then asks for the value of an index, or goes wrong, runs again: at last as it stands.
    """
    if len(program_grid) > 1:
        return run(keyed)
    args, kwargs = calls[0]
    repeats = (keyed.get(REPEATS) or Repeats()).of_launch()
    is_wanted = repeats.is_wanted and can_start_again(kernel.function, [*args, *kwargs.values()])
    launched = _with_repeats(run, keyed, repeats) if is_wanted else None
    if launched is not None:
        return launched
    repeats.is_off = True
    return run({**keyed, REPEATS: repeats})


def _with_repeats(run: Run, keyed: Keyed, repeats: Repeats) -> list[Launched] | None:
    """The programs of a run of which iterations follow from others; None where it is to run as it stands."""
    goes_on = True
    while goes_on:
        launched = _unless_it_fails(partial(run, {**keyed, REPEATS: repeats}), lambda: repeats.is_used)
        if launched is not None and not repeats.is_broken:
            return launched
        may_go_on = repeats.is_broken
        goes_on = repeats.start_again() and may_go_on
    return None


def _unless_it_fails(run: Callable[[], T], is_why: Callable[[], bool] = lambda: True) -> T | None:
    """What a run on shapes gives; None where it went wrong and another run tells of that, or does not."""
    try:
        return run()
    except (Exception, TraceAgain) as error:
        if is_from_outside(error) or not is_why():
            raise
        return None


def launch_ranks(
    kernel: Kernel, calls: Sequence[Call], ranks: Sequence[int], machine: Machine, *, launched: int,
    has_data: bool, topology: Topology | None = None, keyed: Keyed | None = None,
    own: Sequence[Kernel] = (), watch: Watch | None = None,
) -> list[Launched]:  # fmt: skip
    """Run a kernel on several ranks of a launch, which meet in collectives.

    Args:
        kernel: with its grid, which every rank has.
        calls: per rank that runs here its arguments.
        ranks: their numbers, ascending.
        machine: the chip.
        launched: ranks of the whole launch, here and elsewhere.
        has_data: whether to compute; False traces shapes alone.
        topology: where ranks lie; None for chips and nodes as the machine has them.
        keyed: what each session is told beforehand; see `Session.keyed`.
        own: per rank the kernel as its own script made it; the same for all if not given.
        watch: makes of what computes a row what is called in its place.

    Returns:
        Per rank what its launch leaves; the rendezvous, of all of them, stand in the first.

    Raises:
        KernelError: what the kernel asks for and the machine or the language does not allow.
        DeadlockError: if programs wait for each other without end.
        UseError: if the arguments do not fit the kernel's parameters. Of several ranks, a note tells which.
    """
    # what an interrupt leaves set in the context goes with it
    apart = copy_context().run
    try:
        cores = len(instances_of(kernel.grid, kernel.grid_sizes, kernel.spelling, machine))
        program_grid = ProgramGrid(tuple(ranks), cores, launched)
        compute = None if not has_data else execute if watch is None else watch(execute)

        # what is alike in several programs is checked once
        shared: Keyed = {FORMS: {}} if launched > 1 else {}

        def run(keyed: Keyed, compute: Execute | None = compute) -> list[Launched]:
            return _launch(kernel, calls, program_grid, machine, topology, compute, {**shared, **keyed}, own)

        if has_data and len(program_grid) == 1 and not (launched > 1 or own or keyed or watch):
            on_shapes = partial(run, compute=None)
            return [apart(_on_data, kernel, calls[0], program_grid, machine, run, on_shapes)]
        if has_data and len(program_grid) > 1:
            explain(kernel.name, "several programs run together")
        alike = not has_data and not own and are_alike(calls, program_grid)
        known = keyed or {}
        if alike and (left := apart(_traced_once, kernel, calls[0], program_grid, machine, topology, known)):
            return left
        if has_data or launched > 1 or own:
            return apart(run, known)
        return apart(_on_shapes, kernel, calls, program_grid, known, run)
    except (NkilabError, AttributeError) as error:
        raise_placed(error, kernel)


def _traced_once(
    kernel: Kernel, call: Call, program_grid: ProgramGrid, machine: Machine, topology: Topology | None,
    keyed: Keyed,
) -> list[Launched] | None:  # fmt: skip
    """What ranks leave that are called alike, of which the first is traced; None where others may differ."""
    args, kwargs = call
    values = [v for v in (*args, *kwargs.values()) if not isinstance(v, ReplicaGroup)]
    single = replace(program_grid, ranks=program_grid.ranks[:1], is_one_for_all=True)

    def trace() -> tuple[tuple[Program, ...], list[Launched]] | None:
        with catch_warnings(record=True) as messages:
            # what goes wrong is told of where all ranks run
            run = partial(_launch, kernel, [call], single, machine, topology, None, keyed)
            traced = _unless_it_fails(run)
        first, known = traced and traced[0], None
        if first and not (messages or first.is_rank_asked):
            known = of_all_ranks(first.programs, program_grid, first.rendezvous)
        if not first or known is None:
            return None
        programs, met = known
        note_rendezvous([p for of_rank in programs for p in of_rank], program_grid, met)
        left = [replace(first, programs=tuple(of_rank), rendezvous=()) for of_rank in programs]
        return left[0].programs, [replace(left[0], rendezvous=tuple(met)), *left[1:]]

    return as_each_rank(trace, lambda: Lasting(kernel.function, values), len(program_grid.ranks))


class _Rank(Struct):
    """One rank under way: its programs, its arguments as tensors, and where they came from."""

    sessions: list[Session]
    bound: BoundArguments
    frameworks: list[Any]


def _launch(
    kernel: Kernel, calls: Sequence[Call], program_grid: ProgramGrid, machine: Machine,
    topology: Topology | None,
    compute: Execute | None, keyed: Keyed, own: Sequence[Kernel] = (), *,
    takes_turns: bool = False,
) -> list[Launched]:  # fmt: skip
    cores = instances_of(kernel.grid, kernel.grid_sizes, kernel.spelling, machine)
    kernels = own or [kernel] * len(calls)
    ranks = [
        _prepared(kernel, call, _sessions(kernel, machine, program_grid, rank, topology, compute), keyed)
        for call, rank in zip(calls, program_grid.ranks, strict=True)
    ]
    sessions = [session for rank in ranks for session in rank.sessions]
    works = [
        partial(_run_in_turns if takes_turns else _run, session, kernel_of_rank, rank.bound, instances)
        for kernel_of_rank, rank in zip(kernels, ranks, strict=True)
        for session, instances in zip(rank.sessions, cores, strict=True)
    ]
    all_rendezvous: list[Rendezvous] = []
    try:
        with nullcontext() if compute is None else one_blas_thread():
            results = _run_together(works, sessions, program_grid, all_rendezvous)
    except TurnsNeeded:
        # nothing left the launch yet: it starts again
        if compute is not None:
            explain(kernel.name, "instances of its grid meet")
        others = {name: known for name, known in keyed.items() if name not in (REPEATS, TAPE)}
        return _launch(kernel, calls, program_grid, machine, topology, compute, others, own, takes_turns=True)
    note_rendezvous([session.program for session in sessions], program_grid, all_rendezvous)
    if compute is execute:
        # who watches plans, and so does who computes nothing
        for session in sessions:
            refuse_what_cannot_exist(session.program)
    per = program_grid.cores
    left = [_finished(kernel, rank, results[i * per : (i + 1) * per]) for i, rank in enumerate(ranks)]
    left[0] = replace(left[0], rendezvous=tuple(all_rendezvous))
    return left


def _prepared(kernel: Kernel, call: Call, sessions: list[Session], keyed: Keyed) -> _Rank:
    """A rank whose arrays have become tensors."""
    first = sessions[0]
    for session in sessions:
        session.keyed.update(keyed)
        if REPEATS in keyed:
            # a launch that starts again does not warn again
            session.together.warned = keyed[REPEATS].warned
    bound = bind(kernel, *call)
    frameworks: list[Any] = []
    with tracing(first):
        declared = {
            name: map_arrays(value, name, lambda v, n: input_tensor(first, kernel, v, n, frameworks))
            for name, value in bound.arguments.items()
        }
        bound.arguments.update(declared)
    return _Rank(sessions, bound, frameworks)


def _finished(kernel: Kernel, rank: _Rank, results: list[Any]) -> Launched:
    """What a rank leaves once all programs ended."""
    sessions, first = rank.sessions, rank.sessions[0]
    with tracing(first):
        framework = chosen_framework(rank.frameworks)
        check_results(kernel, sessions, results)
        check_outputs(kernel, sessions, rank.bound.arguments, tensors_in(results[0]))
        check_schedule(kernel.schedule, sessions)
        if not first.has_data:
            note_holes(sessions, tensors_in(results[0]))
        converted = map_tensors(results[0], lambda t: output_array(first, kernel, t, framework))
    for storage in inputs_to_write_back(sessions):
        if storage.data is not None and not write_back(storage.host_array, storage.data):
            code = kernel.function.__code__
            first.where = (code.co_filename, code.co_firstlineno)
            first.warn(f"{kernel.name} writes to {storage.name}, a read-only array, which stays as it is")
    programs = tuple(session.program for session in sessions)
    memories = {
        key: tuple(s.shared[key].number if key in s.shared else None for s in sessions)
        for key in first.together.storages
    }
    storages = [tensor.storage for tensor in tensors_in(results[0])]
    origins = tuple(storage.name if storage.scope == "input" else "" for storage in storages)
    launched = Launched(programs, converted, origins, changed_inputs(sessions), memories,
                        is_rank_asked=first.together.is_rank_asked)  # fmt: skip
    if TAPE in first.keyed:
        first.keyed[TAPE].finish(first, replace(launched, results=None), results[0])
    return launched


def _sessions(
    kernel: Kernel, machine: Machine, program_grid: ProgramGrid, rank: int, topology: Topology | None,
    compute: Execute | None,
) -> list[Session]:  # fmt: skip
    """A session per core of a rank."""
    together = Together(program_grid.cores, rank, program_grid.launched, topology)
    sizes = kernel.grid_sizes
    sessions = [
        Session(machine, Program(machine, kernel.name), compute, kernel.version, sizes, together, core)
        for core in range(program_grid.cores)
    ]
    for session in sessions:
        session.program.compiler = _compiler_of(kernel)
        session.threads = open_threads() if compute is not None else None
        session.changed_inputs = sessions[0].changed_inputs
    return sessions


def _compiler_of(kernel: Kernel) -> str:
    """How a kernel is compiled."""
    if kernel.spelling == "nki":
        return STANDALONE
    return AS_WRITTEN if kernel.options.get("skip_middle_end_transformations") else MIDDLE_END


def _run(session: Session, kernel: Kernel, bound: BoundArguments, instances: list[tuple[int, ...]]) -> Any:
    """Run the instances of one core; returns what the last one returns."""
    results = None
    session.keyed["options"] = kernel.options
    tape = session.keyed.get(TAPE)
    with (
        tracing(session),
        errors_know(session.program),
        nullcontext() if tape is None else tape.watches(session),
        phase("executing" if session.has_data else "tracing", lambda: len(session.program)),
    ):
        if session.rank:
            own = {name: map_tensors(v, partial(seen_by, session)) for name, v in bound.arguments.items()}
            bound = BoundArguments(bound.signature, OrderedDict(own))
            session.catch_up()
        repeats = session.keyed.get(REPEATS)
        as_it_stands = repeats is None or repeats.is_off
        # the other one reads a copy of its module's names, in which a helper's `global` stores nothing
        function = kernel.function if as_it_stands else with_ranges(kernel.function)
        for instance in instances:
            session.begin(instance)
            results = function(*bound.args, **bound.kwargs)
            session.flush()
    return results


def _run_in_turns(
    session: Session, kernel: Kernel, bound: BoundArguments, instances: list[tuple[int, ...]]
) -> Any:
    """Run the instances of one core that meet each other; returns what the last one returns."""
    session.keyed["options"] = kernel.options
    session.threads = None
    return run_in_turns(session, instances, lambda: kernel.function(*bound.args, **bound.kwargs))[-1]


def _run_together(
    works: Sequence[Callable[[], Any]], sessions: list[Session], program_grid: ProgramGrid,
    all_rendezvous: list[Rendezvous],
) -> list[Any]:  # fmt: skip
    """Run the programs of all cores; returns what each returns."""
    if len(works) == 1 and not program_grid.is_one_for_all:
        return [works[0]()]
    schedule = Schedule(works, program_grid.names)
    step = joined(schedule, program_grid, sessions[0].execute, all_rendezvous)
    for session in sessions:
        session.execute = step
    return schedule.run()
