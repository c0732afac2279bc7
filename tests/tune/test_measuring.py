"""`nkilab tune --measure`, and the form of `--confirm`: points measured by a program, or by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.command_line import call, outcome_of
from tests.tune.kernels import written
from tests.tune.test_verb import ARG, TUNE, tuned
from tests.views.test_schemas import check


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path)


MEASURE = """\
import json
import sys

document = json.load(open(sys.argv[1]))
assert document["schema"] == "nkilab.point/1" and document["cases"][0]["args"] == [
    {"shape": [128, 2048], "dtype": "float32"}
]
print("compiled in 3 s")
print({64: 90.0, 128: 51.0, 256: 30.0, 512: 25.0, 1024: 16.0}[document["parameters"]["columns"]])
"""


def test_a_program_that_measures_finds_the_point_that_the_model_did_not(folder):
    """The card likes 1024 columns best by far; the model takes 512."""
    (folder / "measure.py").write_text(MEASURE)
    command = f"{sys.executable} measure.py {{file}}"
    arguments = (*TUNE, *ARG, "--json", "--measure", command, "--confirm", "times.yaml")
    status, output, complaint = outcome_of(call(*arguments, folder=folder))
    assert status == 0, complaint
    document = json.loads(output)
    check(document)
    assert document["best"]["point"] == {"columns": 1024}
    assert document["best"]["measured_us"] == 16.0
    assert "columns=1024: measured 16 us" in complaint
    # the times are kept, and enough without the program
    again = tuned(folder, "--confirm", "times.yaml")
    assert again["best"] == document["best"]


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("print('done')", "prints 'done' last; it must be a number of microseconds above 0"),
        ("print(-1)", "prints '-1' last; it must be a number of microseconds above 0"),
        ("print(float('nan'))", "prints 'nan' last; it must be a number of microseconds above 0"),
        ("import sys; sys.exit(3)", "ends with status 3"),
        ("import time; time.sleep(60)", "takes more than 2 seconds"),
    ],
)
def test_a_program_that_measures_nothing_is_named_with_its_point(program, problem, folder):
    seconds = "2" if "2 seconds" in problem else "60"
    (folder / "measure.py").write_text(program)
    command = f"{sys.executable} measure.py {{file}}"
    done = call(*TUNE, *ARG, "--measure", command, "--point-seconds", seconds, folder=folder)
    assert outcome_of(done) == (
        2,
        "",
        f"nkilab: --measure {command!r} {problem}, for columns=512\n"
        "  hint: docs/tune.md has a program that does it\n",
    )


def test_a_program_that_is_not_there_or_is_told_no_file_is_refused(folder):
    for command, rest in {
        "no-such-program {file}": " cannot be started: No such file or directory",
        "python3 measure.py": "; it needs {file} where the path of the point belongs",
    }.items():
        problem = f"--measure{'' if '{' in command else ' is'} {command!r}{rest}"
        status, _, complaint = outcome_of(call(*TUNE, *ARG, "--measure", command, folder=folder))
        assert (status, complaint.splitlines()[0].removeprefix("nkilab: ").split(", for")[0]) == (2, problem)


def test_a_form_is_written_for_the_times_of_the_points_worth_measuring(folder):
    done = call(*TUNE, *ARG, "--confirm", "times.yaml", folder=folder)
    status, output, _ = outcome_of(done)
    assert status == 0
    wrote = "wrote times.yaml with 2 points: fill in latency_us and give the same command again"
    assert wrote in output.splitlines()
    form = (folder / "times.yaml").read_text()
    assert form == (
        "schema: nkilab.measured/1\npoints:\n"
        "  - {columns: 512, latency_us: null}\n  - {columns: 1024, latency_us: null}\n"
    )
    unfilled = outcome_of(call(*TUNE, *ARG, "--confirm", "times.yaml", folder=folder))
    message = "times.yaml:1: no point has a latency_us yet\n  hint: write the measured microseconds in\n"
    assert unfilled == (1, "", message)
    (folder / "times.yaml").write_text(form.replace("null", "20.5", 1))
    assert tuned(folder, "--confirm", "times.yaml")["confirmed"]["points"] == [
        {"columns": 512, "latency_us": 20.5}
    ]
