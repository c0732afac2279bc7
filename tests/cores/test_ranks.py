"""Ranks elsewhere: executors, workers that die, scripts that run once per rank."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nkilab
from nkilab.errors import NkilabError, RuleError, UsageError
from nkilab.ranks import joined_ranks
from tests.cores.kernels import reduces

with nkilab.activate():
    import nki
    import nki.collectives as ncc

SCRIPT = Path(__file__).with_name("ranked_script.py")
X = [np.full((2, 2), rank + 1, np.float32) for rank in range(4)]
PAIRS = ncc.ReplicaGroup([[0, 1], [2, 3]])


@nki.jit
def dies_or_fails(x, group, how):
    if how == "dies":
        os._exit(7)
    if how == "fails":
        raise KeyError("mine")
    return reduces(x, group)


def sums(results: Any) -> list[float]:
    return [float(result[0, 0]) for result in results]


class Eager(Executor):
    """Runs a task when it is submitted, and its message to and fro as processes would."""

    def submit(self, task: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(pickle.loads(pickle.dumps(task(*pickle.loads(pickle.dumps(args)), **kwargs))))
        return future


def test_groups_run_where_an_executor_puts_them() -> None:
    with ThreadPoolExecutor(2) as threads:
        for executor in (Eager(), threads):
            results = nkilab.launch(reduces, 4, executor=executor)(nkilab.per_rank(X), PAIRS)
            assert sums(results) == [3, 3, 7, 7]
            assert dict(results.missing) == {}


@pytest.mark.slow
def test_groups_run_in_processes() -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as processes:
        launch = nkilab.launch(reduces, 4, executor=processes)
        assert sums(launch(nkilab.per_rank(X), PAIRS)) == [3, 3, 7, 7]
        with pytest.raises(RuleError, match="replica_group names rank 9"):
            launch(nkilab.per_rank(X), ncc.ReplicaGroup([[0, 1], [2, 3], [9]]))


@pytest.mark.slow
def test_what_ended_before_a_worker_died_stays() -> None:
    how = ["", "", "dies", "dies"]
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
        launch = nkilab.launch(dies_or_fails, 4, executor=processes)
        results = launch(nkilab.per_rank(X), PAIRS, nkilab.per_rank(how))
    assert sums([results[0], results[1]]) == [3, 3]
    assert sorted(results.missing) == [2, 3]
    with pytest.raises(UsageError, match="rank 2 has no result: BrokenProcessPool: "):
        results[2]


def test_an_exception_elsewhere_is_the_users_own() -> None:
    how = nkilab.per_rank(["", "", "fails", ""])
    with pytest.raises(KeyError, match="mine") as caught:
        nkilab.launch(dies_or_fails, 4, executor=Eager())(nkilab.per_rank(X), PAIRS, how)
    assert caught.value.__notes__ == ["raised in rank 2 of 2\n  rank 3 has not started"]


def test_our_errors_come_back_whole() -> None:
    y = [*X[:3], np.ones((3, 2), np.float32)]
    messages = []
    for executor in (None, Eager()):
        with pytest.raises(RuleError) as caught:
            nkilab.launch(reduces, 4, executor=executor)(nkilab.per_rank(y), PAIRS)
        assert isinstance(caught.value, ValueError | NkilabError)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert "rank 2 is at kernels.py:" in messages[0]


def test_a_group_over_two_tasks_is_refused() -> None:
    with pytest.raises(RuleError, match="names rank 2, which runs in another task of the executor"):
        nkilab.launch(reduces, 4, executor=Eager(), groups=[[0, 1], [2, 3]])(
            nkilab.per_rank(X), ncc.ReplicaGroup([[0, 2], [1, 3]])
        )


def test_ranks_and_groups_of_numpy_count() -> None:
    group = ncc.ReplicaGroup(np.arange(2).reshape(1, 2))
    assert group.groups == [[0, 1]]
    assert sums(nkilab.launch(reduces, ranks=np.int64(2))(nkilab.per_rank(X[:2]), group)) == [3, 3]


def test_ranks_that_groups_join_belong_together() -> None:
    def of(*groups: Any) -> list[list[int]]:
        return joined_ranks(
            [((), {"a": [ncc.ReplicaGroup(g)]}) for g in groups] + [((), {})] * (4 - len(groups))
        )

    assert of([[0, 1], [2, 3]]) == [[0, 1], [2, 3]]
    assert of([[0, 1], [2, 3]], [[1, 2]]) == [[0, 1, 2, 3]]
    assert of([[0, 3]]) == [[0, 3], [1], [2]]
    # a kernel may make groups of its own
    assert of() == [[0, 1, 2, 3]]


@pytest.mark.cluster
@pytest.mark.slow
def test_what_ended_on_a_cluster_before_a_worker_died_stays() -> None:
    distributed = pytest.importorskip("distributed")
    dask = pytest.importorskip("dask")
    # a task whose worker died is not tried again
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        launch = nkilab.launch(dies_or_fails, 4, executor=client.get_executor(retries=0))
        results = launch(nkilab.per_rank(X), PAIRS, nkilab.per_rank(["", "", "dies", "dies"]))
    assert sums([results[0], results[1]]) == [3, 3]
    assert sorted(results.missing) == [2, 3]
    with pytest.raises(UsageError, match="rank 2 has no result: KilledWorker: "):
        results[2]


@pytest.mark.cluster
@pytest.mark.slow
def test_groups_run_on_a_cluster() -> None:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        launch = nkilab.launch(reduces, 4, executor=client.get_executor(retries=0))
        assert sums(launch(nkilab.per_rank(X), PAIRS)) == [3, 3, 7, 7]


def run(*words: str, ranks: int = 3) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nkilab", "run", "--ranks", str(ranks), str(SCRIPT), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_script_runs_once_per_rank() -> None:
    done = run()
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == [f"rank {rank} is fine" for rank in range(3)]


def test_launches_of_ranks_are_reported_and_checked(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "nkilab",
        "run",
        "--ranks",
        "3",
        "--check",
        "--profile",
        "r",
        str(SCRIPT),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0
    lines = done.stderr.splitlines()
    assert lines[:2] == ["nkilab: wrote r/001-kernel.html", "nkilab: wrote r/002-kernel.html"]
    # where logical cores are of two, sources disagree about a collective on one of them
    assert "[collective-one-core]" in done.stderr
    assert lines[-1] == "2 launches checked: 0 errors, 0 warnings, 1 note"
    page = (tmp_path / "r" / "001-kernel.html").read_text()
    assert "rank 0 to rank 2 (3 programs)" in page


def test_a_command_line_names_ranks_and_their_groups(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(
        "import nki, nki.collectives as ncc, nki.isa as nisa, nki.language as nl\n"
        "@nki.jit\ndef summed(x, group):\n"
        "    src = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name='src')\n"
        "    dst = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name='dst')\n"
        "    nisa.dma_copy(src, x)\n    ncc.all_reduce([src], [dst], group, nl.add)\n    return dst\n"
    )

    def estimate(group: str) -> subprocess.CompletedProcess[str]:
        words = [
            "estimate",
            "k.py:summed",
            "--arg",
            "f32[128,512]",
            "--ranks",
            "4",
            "--kw",
            f"group={group}",
            "--json",
        ]
        command = [sys.executable, "-m", "nkilab", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    together = json.loads(estimate("ReplicaGroup([[0, 1], [2, 3]])").stdout)["together"]
    assert [len(one["programs"]) for one in together["cores"]] == [4]
    # hand: the copy, and the collective, which reads and writes 2 * 1 / 2 of the bytes, each of 256 KiB
    assert together["hbm_read_bytes"] == 4 * 2 * 256 * 1024
    done = estimate("ReplicaGroup([[0, 0]])")
    assert done.returncode == 2
    assert "--kw has ReplicaGroup([[0, 0]]): rank 0 stands in groups [[0, 0]] more than once" in done.stderr


def test_one_scripts_exception_stops_all() -> None:
    done = run("fails")
    assert done.returncode == 1
    assert done.stdout == ""
    line = next(n for n, text in enumerate(SCRIPT.read_text().splitlines(), 1) if "total = " in text)
    assert done.stderr.splitlines()[-4:] == [
        "ValueError: rank 1 has enough",
        "raised in rank 1 of 3",
        *(f"  rank {rank} waits at ranked_script.py:{line} for the launch of kernel" for rank in (0, 2)),
    ]


def test_a_script_that_leaves_is_missed() -> None:
    done = run("leaves")
    assert done.returncode == 1
    assert "nobody can run: each program waits for one that does not come" in done.stderr
    assert "  rank 1 has returned\n" in done.stderr
    assert "  hint: let every rank launch the same kernels\n  source: nkilab run --ranks" in done.stderr


def test_ranks_that_launch_different_kernels_are_told_where_they_are() -> None:
    done = run("differs")
    assert done.returncode == 1
    line = next(n for n, text in enumerate(SCRIPT.read_text().splitlines(), 1) if "total = " in text)
    at = f"ranked_script.py:{line}"
    assert done.stderr == (
        f"{at}: kernel: ranks launch different kernels, or grids\n"
        f"  rank 0 is at {at} in the launch of kernel\n"
        f"  rank 1 is at {at} in the launch of other\n"
        f"  rank 2 is at {at} in the launch of kernel\n"
        "  hint: let every rank launch the same kernels\n"
    )
