"""Programs take turns: against a model of ten lines, and in every way to end."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest
from greenlet import getcurrent, greenlet
from hypothesis import given
from hypothesis import strategies as st

from nkilab.cores.schedule import Schedule, Wait
from nkilab.errors import DeadlockError

MARK: ContextVar[str] = ContextVar("mark", default="unset")
HINT = (
    "  hint: let all programs come to the same calls of sendrecv and core_barrier, in the same order\n"
    "  source: nki.isa.sendrecv, pipe_id; nki.isa.core_barrier"
)


def wait(key: Any, where: str = "kernel.py:1", letter: Any = None) -> Wait:
    return Wait(key, f"meeting {key}", "meet", where, letter)


def schedule_of(*works: Callable[[Schedule, int], Any]) -> Schedule:
    """A schedule whose programs get it and their rank."""
    schedules: list[Schedule] = []
    schedules.append(Schedule([lambda w=w, r=r: w(schedules[0], r) for r, w in enumerate(works)]))
    return schedules[0]


class OwnError(Exception):
    """What a program of these tests raises."""


def run_plans(plans: list[list[str]]) -> tuple[list[tuple[int, int]], Any]:
    """Run programs that each meet under the keys of their plan; who did what when, and how it ended."""
    log: list[tuple[int, int]] = []

    def work(schedule: Schedule, rank: int) -> int:
        for column, key in enumerate(plans[rank]):
            log.append((rank, column))
            if key == "raise":
                raise OwnError(rank)
            met = schedule.meet(rank, wait(key, letter=(rank, column)))
            assert [w.letter for w in met] == [(r, column) for r in range(len(plans))]
        log.append((rank, len(plans[rank])))
        return rank

    try:
        results = schedule_of(*[work] * len(plans)).run()
    except OwnError as error:
        return log, ("raised", error.args[0])
    except DeadlockError:
        return log, "deadlock"
    assert results == list(range(len(plans)))
    return log, "done"


def predicted(plans: list[list[str]]) -> tuple[list[tuple[int, int]], Any]:
    """The same by a model: column after column; who came last to a meeting leaves it first, then round."""
    count, column, log = len(plans), 0, []
    order = list(range(count))
    while True:
        actions = []
        for rank in order:
            log.append((rank, column))
            actions.append(plans[rank][column] if column < len(plans[rank]) else "end")
            if actions[-1] == "raise":
                return log, ("raised", rank)
        if len(set(actions)) > 1:
            return log, "deadlock"
        if actions[0] == "end":
            return log, "done"
        order = [(order[-1] + k) % count for k in range(count)]
        column += 1


PLANS = st.lists(
    st.lists(st.sampled_from(["a", "a", "a", "a", "b", "raise"]), max_size=6), min_size=2, max_size=4
)
ALIKE = st.integers(2, 4).flatmap(
    lambda n: st.lists(st.sampled_from("ab"), max_size=8).map(lambda p: [p] * n)
)


@given(PLANS | ALIKE)
def test_programs_run_in_the_order_of_the_model_and_end_as_it_does(plans: list[list[str]]) -> None:
    assert run_plans(plans) == predicted(plans)


def test_twenty_runs_are_one() -> None:
    plans = [["a", "b", "a"], ["a", "b", "a"], ["a", "b", "a"]]
    assert {str(run_plans(plans)) for _ in range(20)} == {str(predicted(plans))}


def test_a_ring_of_barriers_hands_letters_round() -> None:
    # hand: after k steps a program holds the letter of the program k ranks below it
    def work(schedule: Schedule, rank: int) -> list[int]:
        work = [rank]
        for step in range(8):
            met = schedule.meet(rank, wait(step, letter=work[-1]))
            work.append(met[(rank - 1) % 4].letter)
        return work

    results = schedule_of(*[work] * 4).run()
    assert results == [[(rank - step) % 4 for step in range(9)] for rank in range(4)]


def test_programs_that_do_not_meet_run_in_the_callers_thread() -> None:
    names = schedule_of(*[lambda _, rank: threading.current_thread()] * 3).run()
    assert names == [threading.current_thread()] * 3


def test_one_program_alone_meets_nobody_and_has_no_thread() -> None:
    def work(schedule: Schedule, rank: int) -> tuple[int, threading.Thread]:
        return len(schedule.meet(rank, wait("a"))), threading.current_thread()

    assert schedule_of(work).run() == [(1, threading.current_thread())]


def test_exactly_one_program_runs() -> None:
    running, most = [0], [0]

    def work(schedule: Schedule, rank: int) -> None:
        for step in range(5):
            running[0] += 1
            time.sleep(0.001)
            most[0] = max(most[0], running[0])
            running[0] -= 1
            schedule.meet(rank, wait(step))

    schedule_of(*[work] * 3).run()
    assert most == [1]


def test_programs_see_the_callers_context_variables() -> None:
    token = MARK.set("the caller's")
    try:
        seen = schedule_of(*[lambda schedule, rank: (schedule.meet(rank, wait(0)), MARK.get())[1]] * 2).run()
    finally:
        MARK.reset(token)
    assert seen == ["the caller's"] * 2


def test_a_program_that_returned_is_waited_for_in_vain() -> None:
    def waits(schedule: Schedule, rank: int) -> None:
        schedule.meet(rank, wait("a", f"kernel.py:{10 + rank}"))

    with pytest.raises(DeadlockError) as caught:
        schedule_of(waits, lambda schedule, rank: None, waits).run()
    assert str(caught.value) == (
        "kernel.py:10: meet: nobody can run: each program waits for one that does not come\n"
        "  program 0 waits at kernel.py:10 for meeting a\n"
        "  program 1 has returned\n"
        "  program 2 waits at kernel.py:12 for meeting a\n" + HINT
    )


def test_the_first_program_may_be_the_one_that_returned() -> None:
    with pytest.raises(DeadlockError) as caught:
        schedule_of(lambda schedule, rank: None, lambda schedule, rank: schedule.meet(rank, wait("a"))).run()
    assert "program 0 has returned\n  program 1 waits at kernel.py:1 for meeting a" in str(caught.value)


AFTER_A, FOR_B = "goes on at kernel.py:1 after meeting a", "waits at kernel.py:1 for meeting b"


# hand: the last one to come to a goes on to b, then 0 and 1 do
@pytest.mark.parametrize(
    ("failing", "standing"),
    [
        (0, f"program 1 {AFTER_A}\n  program 2 {FOR_B}"),
        (1, f"program 0 {FOR_B}\n  program 2 {FOR_B}"),
        (2, f"program 0 {AFTER_A}\n  program 1 {AFTER_A}"),
    ],
)
def test_what_one_program_raises_ends_the_others_and_their_finally_blocks_run(
    failing: int, standing: str
) -> None:
    cleaned: list[int] = []
    noticed: list[int] = []

    def work(schedule: Schedule, rank: int) -> None:
        try:
            schedule.meet(rank, wait("a"))
            if rank == failing:
                raise OwnError(rank)
            schedule.meet(rank, wait("b"))
        except Exception:
            noticed.append(rank)
            raise
        finally:
            cleaned.append(rank)

    with pytest.raises(OwnError) as caught:
        schedule_of(work, work, work).run()
    assert caught.value.args == (failing,)
    assert caught.value.__context__ is None
    assert caught.value.__notes__ == [f"raised in program {failing} of 3\n  {standing}"]
    assert sorted(cleaned) == [0, 1, 2]
    # the others do not take their end for an error of theirs
    assert noticed == [failing]
    assert "work" in [entry.name for entry in caught.traceback]


def test_a_program_that_is_told_to_end_cannot_meet_again() -> None:
    def stubborn(schedule: Schedule, rank: int) -> None:
        try:
            schedule.meet(rank, wait("a"))
        finally:
            schedule.meet(rank, wait("b"))

    def fails(schedule: Schedule, rank: int) -> None:
        raise OwnError

    with pytest.raises(OwnError):
        schedule_of(stubborn, fails).run()


def test_a_deadlock_that_a_program_catches_is_still_raised() -> None:
    def catches(schedule: Schedule, rank: int) -> None:
        try:
            schedule.meet(rank, wait(rank))
        except DeadlockError:
            return

    with pytest.raises(DeadlockError):
        schedule_of(catches, catches).run()


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_no_program_outlives_one_that_failed(failing: int) -> None:
    places: list[greenlet] = []

    def work(schedule: Schedule, rank: int) -> None:
        places.append(getcurrent())
        schedule.meet(rank, wait("a"))
        if rank == failing:
            raise OwnError
        schedule.meet(rank, wait("b"))

    with pytest.raises(OwnError):
        schedule_of(work, work, work).run()
    assert len(places) == 3
    assert all(place.dead for place in places)


def test_a_program_has_the_context_of_the_caller_and_changes_its_own() -> None:
    token = MARK.set("of the caller")

    def work(schedule: Schedule, rank: int) -> tuple[str, str]:
        before = MARK.get()
        MARK.set(f"of {rank}")
        schedule.meet(rank, wait("a"))
        return before, MARK.get()

    try:
        assert schedule_of(work, work).run() == [("of the caller", "of 0"), ("of the caller", "of 1")]
        assert MARK.get() == "of the caller"
    finally:
        MARK.reset(token)


@pytest.mark.parametrize("failing", [0, 1])
def test_exit_of_a_program_is_passed_on(failing: int) -> None:
    def work(schedule: Schedule, rank: int) -> None:
        if rank == failing:
            raise SystemExit(7)
        schedule.meet(rank, wait("a"))

    with pytest.raises(SystemExit):
        schedule_of(work, work).run()


def interrupt() -> None:
    """What Ctrl-C does."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def test_ctrl_c_ends_a_program_that_never_meets_while_another_waits() -> None:
    def spins(schedule: Schedule, rank: int) -> None:
        if rank == 0:
            schedule.meet(rank, wait("a"))
        interrupt()
        while True:
            time.sleep(0.001)

    with pytest.raises(KeyboardInterrupt):
        schedule_of(spins, spins).run()


def test_ctrl_c_ends_a_program_after_the_first_one_returned() -> None:
    def first(schedule: Schedule, rank: int) -> None:
        schedule.meet(rank, wait("a"))

    def spins(schedule: Schedule, rank: int) -> None:
        # the third comes last and lets the first one return; then this one goes on
        schedule.meet(rank, wait("a"))
        interrupt()
        while True:
            time.sleep(0.001)

    with pytest.raises(KeyboardInterrupt):
        schedule_of(first, spins, first).run()


def test_ctrl_c_in_one_program_ends_the_one_that_waits() -> None:
    def work(schedule: Schedule, rank: int) -> None:
        schedule.meet(rank, wait("a"))
        if rank == 0:
            interrupt()
            time.sleep(60)
        schedule.meet(rank, wait("b"))

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        schedule_of(work, work).run()
    assert time.monotonic() - started < 50
