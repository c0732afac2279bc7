"""Kernels on many ranks: each with inputs of its own, all in this process or groups of them elsewhere."""

from __future__ import annotations

import os
import pickle
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from operator import index as as_index
from threading import Lock
from typing import Any, NoReturn

from . import api
from .argument_checks import whole
from .arguments import MOST_RANKS, Call, PerRank, calls_of, literal
from .cores import Schedule
from .cores.schedule import Wait
from .dialects.dst_first.collectives import ReplicaGroup
from .dialects.kernel import Kernel, raise_typed
from .dialects.references import Reference
from .errors import NkilabError, RuleError, UsageError
from .hook import ServedFinder, switch_on
from .launches import Launched
from .machine import Topology
from .sent_arrays import Sent, sent
from .trace.session import ask, running, set_world
from .trace.source import place_of, user_frame
from .tracebacks import public
from .workers import end_with_parent

# ranks of one process take turns; its threads are those of one launch at a time
_BUSY = Lock()


@public
def per_rank(values: Sequence[Any] | Callable[[int], Any]) -> PerRank:
    """An argument that each rank has its own of: one value per rank, or a function of the rank."""
    return PerRank(values)


@dataclass(frozen=True)
class Results(Sequence[Any]):
    """What each rank returns, by rank."""

    values: Mapping[int, Any]  # by rank, of those that ended
    missing: Mapping[int, str]  # by rank, why there is no result: what happened to the worker that ran it

    def __len__(self) -> int:
        return len(self.values) + len(self.missing)

    @public
    def __getitem__(self, rank: Any) -> Any:
        if isinstance(rank, slice):
            return [self[at] for at in range(*rank.indices(len(self)))]
        rank = as_index(rank)
        at = rank + len(self) if rank < 0 else rank
        if at in self.missing:
            raise UsageError(
                f"rank {at} has no result: {self.missing[at]}",
                hint="launch again; ranks that ended have theirs in .values",
            )
        if at not in self.values:
            raise IndexError(f"rank is {rank}; the launch has {len(self)}")
        return self.values[at]

    def __iter__(self) -> Iterator[Any]:
        return (self[rank] for rank in range(len(self)))


@public
def launch(
    kernel: Any, ranks: int, *, topology: Topology | None = None, executor: Executor | None = None,
    groups: Sequence[Sequence[int]] | None = None, target: str = "",
) -> Callable[..., Results]:  # fmt: skip
    """A function that runs a kernel on so many ranks, which meet in collectives.

    Its arguments are those of the kernel; every rank gets the same, but of `per_rank(...)` its own. It
    returns what each rank returns, by rank.

    Args:
        kernel: decorated by nki.jit, with or without a grid, which every rank has.
        ranks: how many, each a logical core.
        topology: how many ranks share a chip and a node; as on the chip's servers if None.
        executor: runs groups of ranks that have nothing to do with each other; None for this process.
        groups: ranks that run together; if None, what the ReplicaGroups among the arguments join, and all
            ranks where there is none.
        target: chip; see `api.machine_for` for the default.

    Raises:
        UsageError: if `ranks` is no whole number of at least 1, or `groups` does not name each rank once.
    """
    ranks = whole("ranks", ranks, 1, MOST_RANKS)
    launched_kernel = api.as_kernel(kernel)
    _check_options(ranks, topology, executor, groups)

    @public
    def run(*args: Any, **kwargs: Any) -> Results:
        if running() is not None:
            error = UsageError("it is called inside a kernel", hint="launch kernels from the host script")
            raise error.located(place_of(user_frame()), "launch")
        calls = calls_of(args, kwargs, ranks)
        if executor is None:
            machine = api.machine_for(launched_kernel, target)
            with _BUSY:
                left = api.WORLD.launching(
                    launched_kernel, calls, range(ranks), machine, launched=ranks, has_data=True,
                    topology=topology,
                )  # fmt: skip
            return Results({rank: one.results for rank, one in enumerate(left)}, {})
        together = [sorted(group) for group in groups] if groups is not None else joined_ranks(calls)
        is_near, tasks = isinstance(executor, ProcessPoolExecutor), list[_Running]()
        try:
            for part in together:
                own = sent([calls[rank] for rank in part], is_near=is_near)
                task = _Task.of(launched_kernel, own, part, ranks, topology, target)
                tasks.append((task, executor.submit(_run_task, task)))
            return _gathered(launched_kernel, tasks)
        finally:
            for task, _ in tasks:
                task.calls.take_away()

    return run


def _check_options(ranks: int, topology: Any, executor: Any, groups: Any) -> None:
    """Refuse options of a launch that are none."""
    if topology is not None and not isinstance(topology, Topology):
        raise UsageError(
            f"topology is {topology!r}; it must be an nkilab.Topology",
            hint="pass nkilab.Topology(ranks_per_chip=4, ranks_per_node=64)",
        )
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise UsageError(f"executor is {executor!r}; it must be a concurrent.futures.Executor")
    if groups is None:
        return
    try:
        named = sorted(as_index(rank) for group in groups for rank in group)
    except TypeError:
        named = []
    if named != list(range(ranks)):
        raise UsageError(f"groups is {groups!r}; each of the ranks 0 to {ranks - 1} stands in one of them")


def with_groups(named: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments of a command line, of which "ReplicaGroup([[0, 1]])" means the group.

    Raises:
        UsageError: if something else stands between the brackets.
    """
    return {name: _group(value) if isinstance(value, str) else value for name, value in named.items()}


def _group(text: str) -> Any:
    match = re.fullmatch(r"\s*(?:\w+\.)*ReplicaGroup\((.*)\)\s*", text, re.S)
    if not match:
        return text
    try:
        return ReplicaGroup(literal(match[1]))
    except NkilabError as error:
        raise UsageError(f"--kw has {text}: {error.problem}") from None


def joined_ranks(calls: Sequence[Call]) -> list[list[int]]:
    """The ranks that have to do with each other, by the ReplicaGroups among their arguments.

    Where there is none, the kernel may make one, so that all belong together.
    """
    groups = [g for args, kwargs in calls for v in (*args, *kwargs.values()) for g in _groups_in(v)]
    if not groups:
        return [list(range(len(calls)))]
    leader = list(range(len(calls)))
    for group in groups:
        here = [rank for rank in group if rank < len(calls)]
        leaders = {leader[rank] for rank in here}
        if leaders:
            least = min(leaders)
            leader = [least if rank_of_group in leaders else rank_of_group for rank_of_group in leader]
    return [
        [r for r, rank_of_group in enumerate(leader) if rank_of_group == first]
        for first in sorted(set(leader))
    ]


def _groups_in(value: Any) -> Iterator[list[int]]:
    if isinstance(value, ReplicaGroup):
        yield from value.groups
    elif isinstance(value, dict):
        for item in value.values():
            yield from _groups_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _groups_in(item)


@dataclass(frozen=True)
class _Task:
    """Ranks that run together in one worker, which may not serve the names of NKI yet."""

    kernel: bytes | Kernel
    calls: Sent
    ranks: tuple[int, ...]
    launched: int
    topology: Topology | None
    target: str
    version: str
    process: int

    @classmethod
    def of(
        cls, kernel: Kernel, own: Sent, ranks: Sequence[int], launched: int, topology: Topology | None,
        target: str,
    ) -> _Task:  # fmt: skip
        """What some ranks of a launch have to do with calls of their own, ready to be sent."""
        chip = target or api.settings().target
        pickled = pickle.dumps(kernel) if Reference.of(kernel.function, Kernel) else kernel
        return cls(pickled, own, tuple(ranks), launched, topology, chip, api.settings().version, os.getpid())


_Running = tuple[_Task, Future[Any]]


def _run_task(task: _Task) -> tuple[list[Any] | None, Any]:
    """What the ranks of a task return, or what one of them raised; runs in a worker."""
    if os.getpid() != task.process:
        end_with_parent()
    is_served = any(isinstance(finder, ServedFinder) for finder in sys.meta_path)
    if not is_served and os.getpid() != task.process:
        # a process of its own, which imports the kernel's module
        switch_on(task.version)
    try:
        kernel = pickle.loads(task.kernel) if isinstance(task.kernel, bytes) else task.kernel
        calls = task.calls.read()
        machine = api.machine_for(kernel, task.target)
        with _BUSY:
            left = api.WORLD.launching(
                kernel, calls, task.ranks, machine, launched=task.launched, has_data=True,
                topology=task.topology,
            )  # fmt: skip
        return [one.results for one in left], None
    except Exception as error:
        return None, _sent(error)


def _sent(error: Exception) -> Exception:
    """An error as another process can read it."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        summary = RuntimeError(f"{type(error).__name__}: {error}")
        for note in getattr(error, "__notes__", ()):
            summary.add_note(note)
        return summary
    return error


def _gathered(kernel: Kernel, tasks: Sequence[_Running]) -> Results:
    """The results of all tasks; the first rank that raised, in order of tasks, stops all."""
    values: dict[int, Any] = {}
    missing: dict[int, str] = {}
    for task, future in tasks:
        try:
            results, failure = future.result()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise UsageError(
                f"{kernel.name} cannot be sent to a worker: {error}",
                hint="define the kernel at the top of a module",
            ) from None
        except Exception as error:
            # the worker died; what other workers finished stays
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            missing.update(dict.fromkeys(task.ranks, reason))
            continue
        if failure is not None:
            _end(kernel, tasks, failure)
        values.update(zip(task.ranks, results, strict=True))
    return Results(values, missing)


def _end(kernel: Kernel, tasks: Sequence[_Running], failure: Any) -> NoReturn:
    """Begin no further task, and raise what a rank raised."""
    for _, other in tasks:
        other.cancel()
    if isinstance(failure, NkilabError):
        raise_typed(failure, kernel.spelling)
    raise failure


_RANK: ContextVar[int] = ContextVar("nkilab_rank", default=0)


class RankedWorld(api.NkilabWorld):
    """The world of scripts that run once per rank: a launch waits until every rank has come to it.

    Args:
        ranks: how many there are.
        work: the script, run once for each.
    """

    def __init__(self, ranks: int, work: Callable[[], object]) -> None:
        super().__init__()
        self._ranks = ranks
        self._work = work
        names = [f"rank {rank}" for rank in range(ranks)]
        self._schedule = Schedule([partial(self._run_script, rank) for rank in range(ranks)], names)
        self._launch_counts = [0] * ranks
        self._done: dict[int, list[Any]] = {}

    def run_scripts(self) -> None:
        """Run the script of every rank to its end."""
        self._schedule.run()

    def _run_script(self, rank: int) -> None:
        _RANK.set(rank)
        self._enter(rank)
        try:
            self._work()
        except SystemExit as request:
            if request.code:
                raise

    def _enter(self, rank: int) -> None:
        """Tell the script of a rank which it is, where scripts of many processes look."""
        os.environ.update({"RANK": str(rank), "WORLD_SIZE": str(self._ranks)})

    def _launch(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Launched:
        rank = _RANK.get()
        where = place_of(user_frame())
        grid = f"[{', '.join(map(str, kernel.grid))}]" if kernel.grid else ""
        what = f"the launch of {kernel.name}{grid}"
        wait = Wait("launch", what, kernel.name, where, (kernel, (args, kwargs)),
                    None, "let every rank launch the same kernels", "nkilab run --ranks")  # fmt: skip
        met = self._schedule.meet(rank, wait, _check_agreement)
        self._enter(rank)
        launch_number = self._launch_counts[rank]
        self._launch_counts[rank] += 1
        if launch_number not in self._done:
            self._done[launch_number] = self._together(met)
        mine: Launched = self._done[launch_number][rank]
        return mine

    def _together(self, met: Sequence[Wait]) -> list[Any]:
        kernels = [wait.letter[0] for wait in met]
        machine = api.machine_for(kernels[0])
        calls = [wait.letter[1] for wait in met]
        left = api.WORLD.launching(
            kernels[0], calls, range(self._ranks), machine, launched=self._ranks, has_data=True, own=kernels
        )
        programs = tuple(program for one in left for program in one.programs)
        args, kwargs = calls[0]
        api.show(programs, kernels[0], args, kwargs, self._ranks)
        return left


def _check_agreement(met: Sequence[Wait]) -> None:
    """Refuse a launch of ranks that launch different kernels."""
    kernels = [wait.letter[0] for wait in met]
    same = {(k.function.__code__.co_filename, k.name, k.grid_sizes, k.spelling) for k in kernels}
    if len(same) > 1:
        descriptions = [f"rank {rank} is at {wait.where} in {wait.what}" for rank, wait in enumerate(met)]
        error = RuleError(
            "ranks launch different kernels, or grids", hint="let every rank launch the same kernels"
        )
        raise error.located(met[0].where, met[0].called, descriptions)


def run_ranked(ranks: int, work: Callable[[], object]) -> None:
    """Run a script once per rank; kernels that it launches run on all ranks together.

    Raises:
        UsageError: if `ranks` is below 1.
        DeadlockError: if a rank ends, or waits elsewhere, while others wait for it.
    """
    if ranks < 1:
        raise UsageError(f"--ranks is {ranks}; it must be at least 1")
    world = RankedWorld(ranks, work)
    before = ask()
    set_world(world)
    try:
        world.run_scripts()
    finally:
        set_world(before)
