"""Whatever a user does wrong ends in a short message of its own, never in a traceback of ours."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nkilab.cli import main
from nkilab.errors import did_you_mean, nearest
from tests.command_line import SOURCE, call, inside, script
from tests.test_json import KERNELS, LEDGER

PRINTS = 'print("the user\'s module prints")\n'
ARG = ("--arg", "f32[128,512]")
OF = ("estimate", "kernels.py:double", *ARG)
FAILING = """\
import nki

@nki.jit
def kernel(x):
    return 1 / 0
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wrong")
    texts = {
        "kernels.py": KERNELS.replace(PRINTS, ""), "mine.yaml": LEDGER, "failing.py": FAILING,
        "broken.py": "def f(:\n", "needs.py": "import not_there\n", "bad.yaml": "a: [\n",
        "fails.py": "raise RuntimeError('mine')\n",
    }  # fmt: skip
    for name, text in texts.items():
        script(folder, text, name)
    for name in ("binary.py", "binary.yaml", "binary.npy"):
        (folder / name).write_bytes(bytes(range(256)))
    for name in ("folder", "folder.py", "folder.yaml"):
        (folder / name).mkdir()
    return folder


def cases():
    """Arguments, exit status and the beginning of the message, from the table beside this module."""
    text = (Path(__file__).parent / "wrong_uses.txt").read_text()
    for entry in text.split("\n$ ")[1:]:
        words, answer = entry.split("\n", 1)
        status, message = answer.split(" ", 1)
        yield words, int(status), message.rstrip("\n").replace("\\n", "\n")


CASES = list(cases())


@pytest.mark.parametrize(("words", "status", "expected"), CASES, ids=[words for words, _, _ in CASES])
def test_a_wrong_use_is_told_in_one_message(folder, capfd, words, status, expected):
    before = sorted(path.name for path in folder.iterdir())
    arguments = [part for word in words.split() for part in {"ARG": ARG, "OF": OF}.get(word, (word,))]
    assert inside(*arguments, folder=folder) == status
    printed = capfd.readouterr()
    assert printed.err.startswith(expected)
    assert printed.out == ""
    assert f"{SOURCE}{os.sep}nkilab{os.sep}" not in printed.err
    assert "this is a bug" not in printed.err
    assert len(printed.err.splitlines()) <= 8
    assert sorted(path.name for path in folder.iterdir()) == before


def test_a_module_that_is_missing_is_told_with_the_environment(folder, capfd):
    assert inside("run", "needs.py", folder=folder) == 1
    captured = capfd.readouterr().err.splitlines()
    assert captured[1:] == [
        '  File "needs.py", line 1, in <module>',
        "    import not_there",
        "ModuleNotFoundError: No module named 'not_there'",
        f"nkilab: the environment of {sys.executable} has no module not_there",
    ]


def test_a_fault_of_ours_is_told_as_one(folder, capfd, monkeypatch):
    monkeypatch.setattr("nkilab.doctor.PACKAGES", None)
    assert inside("doctor", folder=folder) == 3
    captured = capfd.readouterr().err
    assert captured.startswith("Traceback ")
    assert captured.endswith("\nnkilab: this is a bug of nkilab; please report it with the lines above\n")


def piped(folder, *words, **streams):
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    return subprocess.Popen(
        [sys.executable, "-m", "nkilab", *words],
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams},
        cwd=folder,
        env=environment,
        text=True,
    )


@pytest.mark.parametrize(
    "words", [("ops",), ("explain", "nc_matmul"), ("run", "many.py")], ids=lambda w: w[0]
)
def test_a_reader_that_has_enough_ends_it_quietly(folder, words):
    if words[0] == "run":
        script(folder, "for number in range(200_000):\n    print(number)\n", "many.py")
    process = piped(folder, *words)
    process.stdout.close()
    assert (process.wait(60), process.stderr.read()) == (141, "")
    process.stderr.close()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device that is full is one of Linux")
def test_output_that_cannot_be_written_is_told(folder):
    with open("/dev/full", "w") as full:
        process = piped(folder, "doctor", stdout=full)
        assert process.wait(60) == 1
    assert process.stderr.read() == "nkilab: standard output cannot be used: no space left on device\n"
    process.stderr.close()


def test_an_encoding_without_our_characters_is_told(folder):
    done = call(*OF, folder=folder, env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 1
    assert done.stderr == (
        "nkilab: standard output takes no '\\u2581': its encoding is ascii\n"
        "  hint: set PYTHONIOENCODING=utf-8\n"
    )


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise there")
def test_an_interruption_is_one_line(folder):
    waits = "open('begun', 'w')\nimport time\ntime.sleep(60)\n"
    script(folder, KERNELS.replace(PRINTS, waits), "sleeps.py")
    process = piped(folder, "estimate", "sleeps.py:double", *ARG)
    while not (folder / "begun").exists():
        time.sleep(0.02)
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert process.stdout.read() == ""
    assert len(process.stderr.read().splitlines()) <= 1
    process.stdout.close()
    process.stderr.close()


def test_the_nearest_of_equals_is_the_first_whatever_its_capitals():
    assert nearest("TRN", ["trn2", "trn1", "trn3"]) == ["trn2"]
    assert nearest("nc_matmull", ["nc_matmul", "nc_matmul_mx", "iota"], 2) == ["nc_matmul", "nc_matmul_mx"]
    assert did_you_mean("zzz", ["trn1"], "else") == "else"


@pytest.mark.parametrize("verb", main.commands.values(), ids=list(main.commands))
def test_every_verb_shows_examples_that_it_takes(verb, capfd):
    if verb.name == "neuron-profile":
        return
    assert verb.examples
    for line in verb.examples:
        assert line in verb.get_help(verb.make_context(verb.name, [], resilient_parsing=True))
        command = _words(line)
        assert command[0] in ("nkilab", "cd", "eval"), line
        if command[0] == "nkilab":
            # raises where an option is none, or an argument is missing
            main.commands[command[1]].make_context(command[1], command[2:])


def _words(line):
    return shlex.split(line.partition(">")[0].partition("#")[0] if "completion" in line else line)
