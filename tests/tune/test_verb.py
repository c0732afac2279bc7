"""`nkilab tune` as a user calls it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nkilab._lazy import part
from tests.program import SOURCE, call, told
from tests.tune.kernels import FAULTS, SPACE, written

ARG = ("--arg", "f32[128,2048]")
TUNE = ("tune", "kernels.py:copied", "--space", "space.yaml")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path)


def tuned(folder: Path, *options: str) -> dict:
    status, output, complaint = told(call(*TUNE, *ARG, "--json", *options, folder=folder))
    assert (status, complaint) == (0, "")
    return json.loads(output)


def estimated(folder: Path, columns: int, arg: str = ARG[1]) -> dict:
    """What `nkilab estimate` says of one point: it knows nothing of the tuner."""
    arguments = ("estimate", "kernels.py:copied", "--arg", arg, "--kw", f"columns={columns}", "--json")
    return json.loads(told(call(*arguments, folder=folder))[1])


def test_the_best_is_what_estimate_predicts_fastest(folder):
    held = tuned(folder)
    assert (held["schema"], held["kernel"], held["target"]) == ("nkilab.tune/1", "copied", "trn2")
    # 2048 asks for a tile of 256 partitions
    assert held["counts"] == {"timed": 5, "pruned": 1, "failed": 0, "is_whole": True}
    assert held["pruned"] == {"LimitError, ndarray, kernels.py:17": 1}
    expected = {columns: estimated(folder, columns) for columns in (64, 512, 1024)}
    by_point = {o["point"]["columns"]: o for o in held["outcomes"]}
    for columns, estimate in expected.items():
        assert by_point[columns]["values"]["latency"] == estimate["latency_us"]
        assert by_point[columns]["interval_us"] == estimate["interval_us"]
        case = by_point[columns]["cases"][0]
        assert case["dma_bytes"] == estimate["summary"]["metrics"]["dma_transfer_total_bytes"]
    fastest = min(
        (o for o in held["outcomes"] if o["state"] == "timed"), key=lambda o: o["values"]["latency"]
    )
    assert held["best"] == fastest


def test_several_cases_are_weighted(folder):
    args = ("--arg", "f32[128,2048] | bf16[128,4096]", "--weights", "3,0.5", "--json")
    held = json.loads(told(call(*TUNE, *args, folder=folder))[1])
    one = estimated(folder, 512)["latency_us"]
    other = estimated(folder, 512, "bf16[128,4096]")["latency_us"]
    point = next(o for o in held["outcomes"] if o["point"] == {"columns": 512})
    assert point["values"]["latency"] == pytest.approx(3 * one + 0.5 * other)


def test_a_front_of_two_goals_and_its_picture(folder):
    held = tuned(folder, "--objective", "latency,sbuf", "--picture", "front.svg")
    values = [(o["values"]["latency"], o["values"]["sbuf"]) for o in held["front"]]
    assert len(values) > 1
    assert values == sorted(values)
    assert [sbuf for _, sbuf in values] == sorted((sbuf for _, sbuf in values), reverse=True)
    picture = (folder / "front.svg").read_text()
    assert picture.startswith("<svg ")
    assert "SBUF in use, bytes per partition" in picture
    assert picture.count("<circle") >= 5


def test_text_names_best_reasons_counts_and_what_is_too_close(folder):
    status, output, complaint = told(call(*TUNE, *ARG, folder=folder))
    assert (status, complaint) == (0, "")
    assert output.startswith("copied on trn2: ")
    assert "6 points, the whole space: 5 timed, 1 pruned before they were timed, 0 failed" in output
    assert "  pruned     1  LimitError, ndarray, kernels.py:17" in output
    assert "the interval of the model cannot separate" in output
    assert all(len(line) <= 100 for line in output.splitlines())


def test_a_kernel_that_breaks_off_on_some_points_is_recorded_and_the_search_goes_on(folder):
    written(folder, FAULTS)
    held = tuned(folder)
    assert held["counts"] == {"timed": 9, "pruned": 2, "failed": 1, "is_whole": True}
    assert held["failed"] == [
        {
            "point": {"columns": 256, "fault": "raise"},
            "state": "failed",
            "reason": "ZeroDivisionError, kernels.py:11",
            "message": "kernels.py:11: ZeroDivisionError: it breaks",
        }
    ]


def test_workers_find_the_same_and_outlive_a_point_that_ends_them(folder):
    written(folder, SPACE + "  fault: [none, exit]\n")
    held = tuned(folder, "--workers", "2", "--journal", "journal")
    assert held["counts"] == {"timed": 9, "pruned": 2, "failed": 1, "is_whole": True}
    assert held["failed"][0]["point"] == {"columns": 256, "fault": "exit"}
    assert held["failed"][0]["message"] == "its worker ended without an answer, twice"
    # a header, and a line for every point, none twice
    lines = (folder / "journal").read_text().splitlines()
    assert len(lines) == 13
    written(folder)
    alone = tuned(folder)
    same = [o for o in held["outcomes"] if o["point"]["fault"] == "none"]
    assert [o["values"] for o in same if o["state"] == "timed"] == [
        o["values"] for o in alone["outcomes"] if o["state"] == "timed"
    ]


def test_a_search_that_is_killed_goes_on_from_its_journal(folder):
    (folder / "space.yaml").write_text(
        "schema: nkilab.space/1\nparameters:\n  columns: {integers: [16, 1024], step: 16}\n"
    )
    command = [sys.executable, "-m", "nkilab", *TUNE, *ARG, "--json", "--journal", "journal"]
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    running = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    journal = folder / "journal"
    until = time.monotonic() + 60
    while time.monotonic() < until and (not journal.exists() or journal.read_bytes().count(b"\n") < 5):
        time.sleep(0.01)
    running.send_signal(signal.SIGKILL)
    running.wait()
    before = journal.read_bytes()
    before = before[: before.rfind(b"\n") + 1]
    held = tuned(folder, "--journal", "journal")
    assert journal.read_bytes().startswith(before)
    points = [
        json.loads(line)["outcome"]["point"]["columns"] for line in journal.read_text().splitlines()[1:]
    ]
    assert sorted(points) == list(range(16, 1025, 16))
    assert held["outcomes"] == tuned(folder)["outcomes"]


REFUSED = {
    ("kernels.py:copied",): "--space is missing",
    ("kernels.py:copied", "--space", "none.yaml"): "none.yaml cannot be read",
    ("kernels.py:other", "--space", "space.yaml"): "kernels.py has no other",
    (*TUNE[1:], *ARG, "--kw", "columns=64"): "columns is searched and has a value besides",
    (
        *TUNE[1:],
        *ARG,
        "--objective",
        "sbuf",
    ): "the objective is 'sbuf'; it is latency, or latency and some of",
    (*TUNE[1:], *ARG, "--workers", "none"): "--workers is 'none'; it is a number of processes",
    (*TUNE[1:], *ARG, "--weights", "x"): "--weights is 'x'; write numbers, as in 3,1",
    (*TUNE[1:], *ARG, "--weights", "1,2"): "--weights is 1,2; it has a number above 0 for each of 1 cases",
    (*TUNE[1:], *ARG, "--picture", "x.png"): "--picture is x.png; pictures are SVG",
    (*TUNE[1:], "--arg", "f32[8] | f32[16]", "--arg", "f32[8]|f32[8]|f32[8]"): (
        "--arg 'f32[8] | f32[16]' has 2 shapes, another one has 3"
    ),
}


@pytest.mark.parametrize("arguments", REFUSED)
def test_wrong_usage_is_refused(arguments, folder):
    done = call("tune", *arguments, folder=folder)
    assert done.returncode in (1, 2)
    assert REFUSED[arguments] in done.stderr
    assert "Traceback" not in done.stderr


def test_a_parameter_that_the_kernel_lacks_is_refused(folder):
    (folder / "space.yaml").write_text("schema: nkilab.space/1\nparameters: {rows: [1, 2]}\n")
    assert told(call(*TUNE, *ARG, folder=folder)) == (
        2,
        "",
        "copied has no parameter rows; it has x, columns, fault\n"
        "  hint: name parameters of the kernel in the space\n",
    )


def test_a_space_without_a_legal_point_is_told_with_the_reason(folder):
    (folder / "space.yaml").write_text("schema: nkilab.space/1\nparameters: {columns: [2048]}\n")
    status, output, complaint = told(call(*TUNE, *ARG, folder=folder))
    assert (status, output) == (2, "")
    assert complaint.startswith(
        "none of 1 points of copied can be timed: 1 LimitError, ndarray, kernels.py:17\n"
        "kernels.py:17: ndarray: number of partitions 256 exceed architecture limitation of 128"
    )


def test_an_einsum_is_told_to_wait(folder):
    assert told(call("tune", "spec.yaml", folder=folder)) == (
        1,
        "",
        "spec.yaml is an Einsum; searching its mappings waits for the Einsum compiler, which is not here "
        "yet\n"
        "  hint: tune a kernel: nkilab tune FILE.py:KERNEL --space SPACE.yaml --arg ...\n",
    )


@pytest.mark.cluster
@pytest.mark.slow
def test_a_worker_of_a_cluster_that_is_killed_loses_and_doubles_nothing(folder, monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setenv("PYTHONPATH", SOURCE)
    (folder / "space.yaml").write_text(
        "schema: nkilab.space/1\nparameters:\n  columns: {integers: [16, 1024], step: 16}\n"
    )
    alone = tuned(folder)
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs="CRITICAL"
    )
    with cluster:
        victim = next(iter(cluster.workers.values())).pid
        command = [sys.executable, "-m", "nkilab", *TUNE, *ARG, "--json", "--journal", "journal"]
        running = subprocess.Popen(
            [*command, "--workers", cluster.scheduler_address], cwd=folder,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        journal = folder / "journal"
        until = time.monotonic() + 60
        while time.monotonic() < until and (not journal.exists() or journal.read_bytes().count(b"\n") < 9):
            time.sleep(0.01)
        os.kill(victim, signal.SIGKILL)
        output, _ = running.communicate(timeout=120)
    assert running.returncode == 0
    assert json.loads(output)["outcomes"] == alone["outcomes"]
    points = [
        json.loads(line)["outcome"]["point"]["columns"] for line in journal.read_text().splitlines()[1:]
    ]
    assert sorted(points) == list(range(16, 1025, 16))


def test_the_parts_are_reached_from_the_package():
    assert part("tune").autotune is __import__("nkilab").tune.autotune
