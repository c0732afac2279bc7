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
from nkilab.einsum import compile
from nkilab.tune.report import time_left
from nkilab.tune.study import Progress
from tests.command_line import SOURCE, call, outcome_of, read_piece
from tests.test_wrong_use import piped
from tests.tune.kernels import FAULTS, ODD, SPACE, written
from tests.views.test_schemas import check

ARG = ("--arg", "f32[128,2048]")
TUNE = ("tune", "kernels.py:copied", "--space", "space.yaml")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path)


def tuned(folder: Path, *options: str) -> dict:
    status, output, complaint = outcome_of(call(*TUNE, *ARG, "--json", *options, folder=folder))
    assert (status, complaint) == (0, "")
    document = json.loads(output)
    check(document)
    return document


def test_parameters_on_the_command_line_are_a_space(folder: Path) -> None:
    call_of = ("tune", "kernels.py:copied", "--param", "columns=64, 128", *ARG, "--json")
    document = json.loads(outcome_of(call(*call_of, folder=folder))[1])
    assert {o["point"]["columns"]: o["values"]["latency"] for o in document["outcomes"]} == {
        columns: estimated(folder, columns)["latency_us"] for columns in (64, 128)
    }


def estimated(folder: Path, columns: int, arg: str = ARG[1]) -> dict:
    """What `nkilab estimate` says of one point: it knows nothing of the tuner."""
    arguments = ("estimate", "kernels.py:copied", "--arg", arg, "--kw", f"columns={columns}", "--json")
    return json.loads(outcome_of(call(*arguments, folder=folder))[1])


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["table", "json"])
def test_a_reader_that_has_enough_ends_a_search_quietly(folder, options):
    process = piped(folder, *TUNE, *ARG, *options)
    process.stdout.close()
    assert (process.wait(60), process.stderr.read()) == (141, "")
    process.stderr.close()


def test_the_best_is_what_estimate_predicts_fastest(folder):
    document = tuned(folder)
    assert (document["schema"], document["kernel"], document["target"]) == ("nkilab.tune/1", "copied", "trn2")
    # 2048 asks for a tile of 256 partitions
    assert document["counts"] == {"timed": 5, "pruned": 1, "failed": 0, "is_whole": True}
    assert document["pruned"] == {"LimitError, ndarray, kernels.py:17": 1}
    expected = {columns: estimated(folder, columns) for columns in (64, 512, 1024)}
    by_point = {o["point"]["columns"]: o for o in document["outcomes"]}
    for columns, estimate in expected.items():
        assert by_point[columns]["values"]["latency"] == estimate["latency_us"]
        assert by_point[columns]["interval_us"] == estimate["interval_us"]
        case = by_point[columns]["cases"][0]
        assert case["dma_bytes"] == estimate["summary"]["metrics"]["dma_transfer_total_bytes"]
        assert case["transfers"] == estimate["summary"]["metrics"]["dma_transfer_count"]
    timed = [o for o in document["outcomes"] if o["state"] == "timed"]
    fastest = min(o["values"]["latency"] for o in timed)
    assert document["best"] == next(o for o in timed if o["values"]["latency"] == fastest)


def test_several_cases_are_weighted(folder):
    args = ("--arg", "f32[128,2048] | bf16[128,4096]", "--weights", "3,0.5", "--json")
    document = json.loads(outcome_of(call(*TUNE, *args, folder=folder))[1])
    one = estimated(folder, 512)["latency_us"]
    other = estimated(folder, 512, "bf16[128,4096]")["latency_us"]
    point = next(o for o in document["outcomes"] if o["point"] == {"columns": 512})
    assert point["values"]["latency"] == pytest.approx(3 * one + 0.5 * other)


def test_a_front_of_two_goals_and_its_picture(folder):
    document = tuned(folder, "--objective", "latency,sbuf", "--picture", "front.svg")
    values = [(o["values"]["latency"], o["values"]["sbuf"]) for o in document["front"]]
    assert len(values) > 1
    assert values == sorted(values)
    assert [sbuf for _, sbuf in values] == sorted((sbuf for _, sbuf in values), reverse=True)
    picture = (folder / "front.svg").read_text()
    assert picture.startswith("<svg ")
    assert "SBUF in use, bytes per partition" in picture
    assert picture.count("<circle") >= 5


def test_text_names_best_reasons_counts_and_what_is_too_close(folder):
    status, output, complaint = outcome_of(call(*TUNE, *ARG, folder=folder))
    assert (status, complaint) == (0, "")
    assert output.startswith("copied on trn2: ")
    assert "6 points, the whole space: 5 timed, 1 pruned before they were timed, 0 failed" in output
    assert "  pruned     1  LimitError, ndarray, kernels.py:17" in output
    assert "the interval of the model cannot separate" in output
    assert all(len(line) <= 100 for line in output.splitlines())


def test_a_kernel_that_breaks_off_on_some_points_is_recorded_and_the_search_goes_on(folder):
    written(folder, FAULTS)
    document = tuned(folder)
    assert document["counts"] == {"timed": 9, "pruned": 2, "failed": 1, "is_whole": True}
    assert document["failed"] == [
        {
            "point": {"columns": 256, "fault": "raise"},
            "state": "failed",
            "reason": "ZeroDivisionError, kernels.py:11",
            "message": "kernels.py:11: ZeroDivisionError: it breaks",
        }
    ]


ODDLY = ("tune", "odd.py:odd", "--space", "space.yaml", *ARG)
FIVE = "schema: nkilab.space/1\nparameters:\n  columns: {powers_of_two: [64, 1024]}\n"


def test_a_kernel_that_ends_the_program_fails_on_that_point(folder):
    (folder / "odd.py").write_text(ODD)
    (folder / "space.yaml").write_text(FIVE + "  fault: [end]\n")
    document = json.loads(outcome_of(call(*ODDLY, "--json", folder=folder))[1])
    assert document["counts"] == {"timed": 4, "pruned": 0, "failed": 1, "is_whole": True}
    assert document["failed"][0]["message"] == "odd.py:14: SystemExit"


def test_a_kernel_that_keeps_state_is_found_out(folder):
    (folder / "odd.py").write_text(ODD)
    (folder / "space.yaml").write_text(FIVE + "  fault: [state]\n")
    status, output, complaint = outcome_of(call(*ODDLY, folder=folder))
    assert (status, output) == (1, "")
    assert complaint.startswith("nkilab: the best point of odd, columns=512, fault='state', has ")
    assert complaint.endswith(
        "hint: let the kernel depend on its arguments alone; if it does, delete the journal\n"
    )


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no terminals here")
def test_a_search_that_is_interrupted_tells_how_far_it_came_and_leaves_a_clean_terminal(folder):
    (folder / "odd.py").write_text(ODD)
    (folder / "space.yaml").write_text(
        "schema: nkilab.space/1\nparameters:\n  columns: {integers: [16, 1024], step: 16}\n  fault: [slow]\n"
    )
    ours, theirs = os.openpty()
    environment = {**os.environ, "PYTHONPATH": SOURCE, "TERM": "xterm", "COLUMNS": "80"}
    running = subprocess.Popen(
        [sys.executable, "-m", "nkilab", *ODDLY, "--journal", "journal"],
        cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    written, is_sent = b"", False
    while chunk := read_piece(ours):
        written += chunk
        if not is_sent and b" left, best " in written:
            running.send_signal(signal.SIGINT)
            is_sent = True
    output, _ = running.communicate()
    os.close(ours)
    assert (running.returncode, output) == (130, b"")
    last = written.decode().replace("\r\n", "\n")
    told_last = last[last.rindex("nkilab: interrupted") :]
    kept = (folder / "journal").read_bytes().count(b"\n") - 1
    assert told_last.startswith(f"nkilab: interrupted after {kept} of 64 points; the best has ")
    assert told_last.endswith("\n  journal has them: the same command goes on from there\n")
    # the bar is taken away before that: the line that it stood in is erased
    assert "\x1b[2K" in last[: last.rindex("nkilab: interrupted")][-40:]


def test_the_time_that_is_left_is_that_of_points_which_no_journal_knows():
    # by hand: 10 points in 5 seconds, 30 of 100 to go, 60 were known
    assert time_left(Progress(70, 100, 10, None), 5.0) == "0:00:15 left,"
    assert time_left(Progress(60, 100, 0, None), 5.0) == ""


def test_workers_find_the_same_and_outlive_a_point_that_ends_them(folder):
    written(folder, SPACE + "  fault: [none, exit]\n")
    document = tuned(folder, "--workers", "2", "--journal", "journal")
    assert document["counts"] == {"timed": 9, "pruned": 2, "failed": 1, "is_whole": True}
    assert document["failed"][0]["point"] == {"columns": 256, "fault": "exit"}
    assert document["failed"][0]["message"] == "its worker ended without an answer, twice"
    # a header, and a line for every point, none twice
    lines = (folder / "journal").read_text().splitlines()
    assert len(lines) == 13
    written(folder)
    one_worker = tuned(folder)
    same = [o for o in document["outcomes"] if o["point"]["fault"] == "none"]
    assert [o["values"] for o in same if o["state"] == "timed"] == [
        o["values"] for o in one_worker["outcomes"] if o["state"] == "timed"
    ]


BUSY = """
import time
from pathlib import Path

@nki.jit
def busy(x, columns=1):
    Path(f"pid.{os.getpid()}").touch()
    while time.monotonic():
        pass
"""
LAUNCH = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import nkilab
import numpy as np

from busy import busy

if __name__ == "__main__":
    pool = ProcessPoolExecutor(2, multiprocessing.get_context("{way}"))
    nkilab.launch(busy, 2, executor=pool, groups=[[0], [1]])(np.ones((4, 4), np.float32))
"""
SEARCH = ("tune", "busy.py:busy", *ARG, "--space", "space.yaml", "--workers", "2")
ORPHANS = {"tune": SEARCH, "launch": ("run", "spawn.py"), "launch in forks": ("run", "fork.py")}


def is_alive(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.skipif(sys.platform == "win32", reason="tells by signals who is alive")
@pytest.mark.parametrize("who", ORPHANS)
def test_workers_end_with_who_started_them(who, folder):
    (folder / "busy.py").write_text((folder / "kernels.py").read_text() + BUSY)
    for way in ("spawn", "fork"):
        (folder / f"{way}.py").write_text(LAUNCH.format(way=way))
    running = subprocess.Popen(
        [sys.executable, "-m", "nkilab", *ORPHANS[who]], cwd=folder, env={**os.environ, "PYTHONPATH": SOURCE},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    until = time.monotonic() + 60
    while time.monotonic() < until and len(list(folder.glob("pid.*"))) < 2:
        time.sleep(0.05)
    processes = [int(path.suffix[1:]) for path in folder.glob("pid.*")]
    assert len(processes) == 2
    assert running.pid not in processes
    running.send_signal(signal.SIGKILL)
    running.wait()
    until = time.monotonic() + 20
    while time.monotonic() < until and any(map(is_alive, processes)):
        time.sleep(0.05)
    assert [process for process in processes if is_alive(process)] == []


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
    document = tuned(folder, "--journal", "journal")
    assert journal.read_bytes().startswith(before)
    points = [
        json.loads(line)["outcome"]["point"]["columns"] for line in journal.read_text().splitlines()[1:]
    ]
    assert sorted(points) == list(range(16, 1025, 16))
    assert document["outcomes"] == tuned(folder)["outcomes"]


REFUSED = {
    ("kernels.py:copied",): "no parameter is named\n  hint: write --param NAME=VALUE,VALUE or --space",
    ("kernels.py:copied", "--param", "columns"): "--param is 'columns'; write NAME=VALUE,VALUE",
    (*TUNE[1:], *ARG, "--param", "columns=64"): "--param and --space are both given",
    ("kernels.py:copied", "--space", "none.yaml"): "none.yaml cannot be read",
    ("kernels.py:other", "--space", "space.yaml"): "kernels.py has no other",
    (*TUNE[1:], *ARG, "--kw", "columns=64"): "columns is in the search space and is also given a value",
    (
        *TUNE[1:],
        *ARG,
        "--objective",
        "sbuf",
    ): "the objective is 'sbuf'; it must be latency, or latency and some of",
    (*TUNE[1:], *ARG, "--workers", "none"): "--workers is 'none'; it must be a number of processes",
    (*TUNE[1:], *ARG, "--weights", "x"): "--weights is 'x'; write numbers, as in 3,1",
    (*TUNE[1:], *ARG, "--weights", "1,2"): (
        "--weights is 1,2; it must have a number above 0 for each of 1 cases, 1e+12 at most"
    ),
    (*TUNE[1:], *ARG, "--sampler", "random", "--seed", "-1"): (
        "the seed is -1; it must be a whole number from 0 to 4,294,967,295"
    ),
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
    assert outcome_of(call(*TUNE, *ARG, folder=folder)) == (
        2,
        "",
        "nkilab: copied has no parameter rows; it has x, columns, fault\n"
        "  hint: name a parameter of the kernel, a field of one (config.rows), a global of its module, or "
        "grid, lnc, ranks, dtype\n",
    )


def test_a_space_without_a_legal_point_is_told_with_the_reason(folder):
    (folder / "space.yaml").write_text("schema: nkilab.space/1\nparameters: {columns: [2048]}\n")
    status, output, complaint = outcome_of(call(*TUNE, *ARG, folder=folder))
    assert (status, output) == (2, "")
    assert complaint.startswith(
        "nkilab: none of 1 points of copied can be timed: 1 LimitError, ndarray, kernels.py:17\n"
        "kernels.py:17: ndarray: number of partitions 256 exceed architecture limitation of 128"
    )


EINSUM = """\
einsum:
  declaration:
    A: [K, M]
    B: [K, N]
    Z: [M, N]
  expressions:
  - Z[m, n] = A[k, m] . B[k, n] ;; M mul V add
"""


SIZES = [word for rank in ("K=256", "M=256", "N=1024") for word in ("--kw", rank)]
FEW = "schema: nkilab.space/1\nparameters:\n  group_blocks: [0, 1, 2]\n  most_columns: [16384, 1024]\n"


@pytest.fixture
def einsum(folder: Path) -> Path:
    (folder / "spec.yaml").write_text(EINSUM)
    (folder / "space.yaml").write_text(FEW)
    return folder


def mapped(folder: Path, *options: str) -> dict:
    document = json.loads(outcome_of(call("tune", "spec.yaml", *SIZES, "--json", *options, folder=folder))[1])
    check(document)
    return document


def test_mappings_of_an_einsum_are_at_least_as_fast_as_the_rules(einsum):
    document = mapped(einsum)
    assert document["counts"]["is_whole"]
    assert document["space"]["points"] == 120
    rules = {"group_blocks": 0, "most_columns": 16384, "transfer_bytes": 1 << 20, "share": 0.85}
    own = next(o for o in document["outcomes"] if o["point"] == rules)
    assert own["values"]["latency"] == document["rules_us"]
    assert document["best"]["values"]["latency"] <= document["rules_us"]
    # the compiler knows nothing of the tuner, and tries a few plans beside that of its rules
    sizes = {"K": 256, "M": 256, "N": 1024}
    assert compile(einsum / "spec.yaml", sizes=sizes).estimate.latency_us <= document["rules_us"]


def test_workers_find_the_same_mappings(einsum):
    document = mapped(einsum, "--space", "space.yaml")
    assert document["counts"]["timed"] == 6
    both = mapped(einsum, "--space", "space.yaml", "--workers", "2", "--journal", "journal")
    assert both == document
    assert len((einsum / "journal").read_text().splitlines()) == 7


def test_measured_mappings_are_read_back(einsum):
    document = mapped(einsum, "--space", "space.yaml")
    # a machine that takes a quarter longer for everything
    measured = "".join(
        f"  - {{group_blocks: {o['point']['group_blocks']}, most_columns: {o['point']['most_columns']}, "
        f"latency_us: {1.25 * o['values']['latency']}}}\n"
        for o in document["outcomes"][:5]
    )
    (einsum / "measured.yaml").write_text(f"schema: nkilab.measured/1\npoints:\n{measured}")
    after = mapped(einsum, "--space", "space.yaml", "--confirm", "measured.yaml")
    assert after["confirmed"]["mape"]["after"] < 0.02 < after["confirmed"]["mape"]["before"]
    assert after["outcomes"][0]["measured_us"] == 1.25 * document["outcomes"][0]["values"]["latency"]
    last = after["outcomes"][-1]["values"]["latency"] / document["outcomes"][-1]["values"]["latency"]
    assert last == pytest.approx(1.25, rel=0.05)
    assert after["rules_us"] == pytest.approx(1.25 * document["rules_us"], rel=0.05)


def test_what_is_no_choice_of_the_compiler_is_refused(folder):
    (folder / "spec.yaml").write_text(EINSUM)
    assert outcome_of(call("tune", "spec.yaml", "--space", "space.yaml", *SIZES, folder=folder)) == (
        2,
        "",
        "nkilab: columns is no choice of the Einsum compiler; there are group_blocks, most_columns, transfer_"
        "bytes, share, is_fused, is_edged, is_spread, is_ordered, has_products\n"
        "  hint: leave --space out to search all of them\n",
    )


FAULTY = """\
import nki
import nki.isa as nisa
import nki.language as nl


def placed(byte, dtype=nl.float32):
    return nl.ndarray((128, 512), dtype, buffer=nl.sbuf, address=(0, byte))


@nki.jit
def multiplied(x, gap, column):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    left, right, result = placed(0, x.dtype), placed(gap, x.dtype), placed(8192)
    nisa.dma_copy(dst=left, src=x)
    nisa.dma_copy(dst=right, src=x)
    total = nl.ndarray((128, 1024), nl.float32, buffer=nl.psum)
    sums = total[:, column : column + 512]
    nisa.nc_matmul(dst=sums, stationary=left[:, 384:512], moving=right)
    nisa.tensor_copy(dst=result, src=sums)
    nisa.dma_copy(dst=out, src=result)
    return out
"""


def test_points_that_fail_a_check_are_pruned_before_they_are_timed(folder):
    # a tile of bfloat16 [128, 512] has 1024 bytes in each partition, so that 512 bytes further lies another
    # one; and a bank has 512 columns of float32, so that 512 columns from the 256th on lie in two
    (folder / "kernels.py").write_text(FAULTY)
    (folder / "space.yaml").write_text(
        "schema: nkilab.space/1\nparameters: {gap: [512, 1024], column: [0, 256, 512]}\n"
    )
    command = ("tune", "kernels.py:multiplied", "--space", "space.yaml", "--arg", "bf16[128,512]", "--json")
    document = json.loads(outcome_of(call(*command, folder=folder))[1])
    check(document)
    assert document["pruned"] == {
        "UseError, lifetime-conflict, kernels.py:18": 3,
        "UseError, psum-bank-crossing, kernels.py:18": 1,
    }
    timed = [o["point"] for o in document["outcomes"] if o["state"] == "timed"]
    assert timed == [{"gap": 1024, "column": 0}, {"gap": 1024, "column": 512}]


@pytest.mark.cluster
@pytest.mark.slow
def test_a_worker_of_a_cluster_that_is_killed_loses_and_doubles_nothing(folder, monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setenv("PYTHONPATH", SOURCE)
    (folder / "space.yaml").write_text(
        "schema: nkilab.space/1\nparameters:\n  columns: {integers: [16, 1024], step: 16}\n"
    )
    one_worker = tuned(folder)
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
    assert json.loads(output)["outcomes"] == one_worker["outcomes"]
    points = [
        json.loads(line)["outcome"]["point"]["columns"] for line in journal.read_text().splitlines()[1:]
    ]
    assert sorted(points) == list(range(16, 1025, 16))


def test_the_parts_are_reached_from_the_package():
    assert part("tune").autotune is __import__("nkilab").tune.autotune
