"""Points that never come back, and executors that lose what they are given."""

from __future__ import annotations

import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from threading import Thread

import pytest

from nkilab.errors import UsageError
from nkilab.tune import executors
from nkilab.tune.executors import Pooled, Work, evaluate_in_worker, limited
from nkilab.tune.outcome import TIMED, Outcome

POINT = {"n": 1}
OUT_OF_TIME = "it takes more than 0.05 seconds; --point-seconds says how many it may"


def quick(point):
    return Outcome(point, TIMED, {"latency": 1.0})


def for_ever(point):
    while True:
        try:
            time.sleep(0)
        except Exception:
            continue


def asleep(point):
    time.sleep(60)


@pytest.mark.parametrize("evaluate", [for_ever, asleep])
def test_a_point_that_never_comes_back_fails(evaluate):
    assert limited(evaluate, POINT, 0.05) == Outcome(
        POINT, "failed", reason="out of time", message=OUT_OF_TIME
    )


def test_it_fails_in_a_thread_too():
    outcomes: list[Outcome] = []
    thread = Thread(target=lambda: outcomes.append(limited(for_ever, POINT, 0.05)))
    thread.start()
    thread.join(30)
    assert [outcome.message for outcome in outcomes] == [OUT_OF_TIME]


@pytest.mark.parametrize("seconds", [0.0, 60.0, 1e30, float("inf")])
def test_what_ends_in_time_is_left_alone(seconds):
    assert limited(quick, POINT, seconds) == quick(POINT)


class Forgetful(Executor):
    """Never answers what concerns n = 2."""

    def submit(self, function, work, point):
        future: Future = Future()
        if point["n"] != 2:
            future.set_result(quick(point))
        return future


def test_points_that_an_executor_loses_fail_and_the_others_are_found(monkeypatch):
    monkeypatch.setattr(executors, "PATIENCE", 0.05)
    pool = Pooled(Work("kernels.py:copied", limit=0.01), Forgetful, workers=2)
    by_point = {o.point["n"]: o for o in pool.evaluate([{"n": n} for n in range(6)])}
    assert {n: o.state for n, o in by_point.items()} == {
        0: "timed", 1: "timed", 2: "failed", 3: "timed", 4: "timed", 5: "timed",
    }  # fmt: skip
    assert by_point[2].message == "its worker gave no answer, twice"


def test_another_release_of_nkilab_does_not_answer():
    work = replace(Work("kernels.py:copied"), made_by="nkilab 0.0.9, timing model 1")
    with pytest.raises(UsageError) as caught:
        evaluate_in_worker(work, POINT)
    assert str(caught.value) == (
        f"a worker has {executors.release()}; this is nkilab 0.0.9, timing model 1\n"
        "  hint: install the same on all machines"
    )


def test_a_worker_without_nkilab_is_told(monkeypatch):
    def broken(work, point):
        raise ModuleNotFoundError("No module named 'nkilab'")

    monkeypatch.setattr(executors, "evaluate_in_worker", broken)
    pool = Pooled(Work("kernels.py:copied"), lambda: ThreadPoolExecutor(1), workers=1)
    with pytest.raises(UsageError) as caught:
        list(pool.evaluate([POINT]))
    pool.close()
    assert str(caught.value) == (
        "a worker breaks off with ModuleNotFoundError: No module named 'nkilab'\n"
        f"  hint: install {executors.release()} on all machines, or evaluate with --workers 1"
    )
