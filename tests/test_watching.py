"""`nkilab watch` and `%%nki`: what is told again after each change of a kernel."""

from __future__ import annotations

import json
import linecache
import os
import signal
import subprocess
import sys
import threading
import time
from importlib import import_module
from types import ModuleType, SimpleNamespace

import pytest

from nkilab import activate, spec
from nkilab.watching import Watched, rounds
from tests.command_line import SOURCE, inside, script
from tests.test_json import check

KERNEL = """\
import nki
import nki.isa as nisa
import nki.language as nl
from helper import COLUMNS

@nki.jit
def copied(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4096 // COLUMNS):
        tile = nl.ndarray((128, COLUMNS), x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile, x[:, i * COLUMNS : (i + 1) * COLUMNS])
        nisa.dma_copy(out[:, i * COLUMNS : (i + 1) * COLUMNS], tile)
    return out
"""
CALL = ((spec((128, 4096), "float32"),), {}, ())


@pytest.fixture
def folder(tmp_path):
    script(tmp_path, KERNEL, "kernels.py")
    script(tmp_path, "COLUMNS = 64\n", "helper.py")
    return tmp_path


def texts_after(folder, *edits):
    """What is told at once and after each edit, a function of the folder."""

    def changes():
        for edit in edits:
            edit(folder)
            yield

    watched = Watched()
    before = {*sys.modules}
    with activate():
        texts = [*rounds(watched, f"{folder}/kernels.py:copied", (CALL, ""), changes())]
    # what the kernel imports is forgotten each time
    assert not {"helper", "kernels"} & ({*sys.modules} - before)
    return texts, watched.rounds


def helper(text):
    return lambda folder: script(folder, text, "helper.py")


def kernel(old, new):
    return lambda folder: script(folder, KERNEL.replace(old, new), "kernels.py")


def test_a_change_tells_the_difference_of_latency_and_findings(folder):
    # rows of 256 bytes are short, rows of 2048 are not: docs/checks.md
    texts, seen = texts_after(folder, helper("COLUMNS = 64 * 8\n"))
    first, second = (one["predicted"]["latency_us"] for one in seen)
    # 8 transfers of 256 KiB could still be fewer
    assert {one["rule"] for one in seen[0]["new"]} == {"contiguous_rows", "bigger_transfers", "split_cores"}
    assert [{one["rule"] for one in seen[1][key]} for key in ("new", "gone")] == [set(), {"contiguous_rows"}]
    assert texts[0].endswith(f"watching {folder}/kernels.py:copied; Ctrl-C ends it")
    # as the list of the round before: the store may save more than the load
    assert texts[1].splitlines()[1].startswith("gone: kernels.py:12: advice: 64 transfers in runs of 256 b")
    assert texts[1].splitlines()[-1] == f"{first - second:.2f} us less than the last time"


def test_an_edit_that_changes_nothing_says_so_and_lines_may_move(folder):
    texts, seen = texts_after(folder, kernel("@nki.jit", "# a comment\n@nki.jit"))
    assert (seen[1]["new"], seen[1]["gone"]) == ([], [])
    assert texts[1].splitlines()[-1] == "as long as the last time"


def test_a_half_written_file_is_told_and_the_next_round_is_compared_with_the_last_that_ran(folder):
    texts, seen = texts_after(
        folder, kernel("    return out", "    return ("), helper("COLUMNS = \n"), helper("COLUMNS = 64\n"),
        kernel("", ""),
    )  # fmt: skip
    kinds = [one["error"] and one["error"]["kind"] for one in seen]
    assert kinds == [None, "syntax", "syntax", "syntax", None]
    assert [texts[1].splitlines()[1], texts[1].splitlines()[-1]] == [
        f'  File "{folder}/kernels.py", line 13', "SyntaxError: '(' was never closed",
    ]  # fmt: skip
    assert texts[-1].splitlines()[-1] == "as long as the last time"


@pytest.mark.parametrize("line", ["raise ValueError('mine')", "import sys; sys.exit(0)", "nl.no_such_name"])
def test_what_a_kernel_does_wrong_does_not_end_the_watch(folder, line):
    _, seen = texts_after(folder, kernel("    return out", f"    {line}\n    return out"), kernel("", ""))
    assert [one["passes"] for one in seen] == [True, False, True]


def test_a_module_of_the_name_that_was_there_before_keeps_its_place(folder, monkeypatch):
    other = ModuleType("kernels")
    monkeypatch.setitem(sys.modules, "kernels", other)
    _, seen = texts_after(folder, kernel("    return out", "    return ("), kernel("", ""))
    assert [one["error"] and one["error"]["kind"] for one in seen] == [None, "syntax", None]
    assert sys.modules["kernels"] is other


def test_a_file_that_is_edited_is_read_anew_by_whoever_reads_its_text(folder):
    """The text of loops is read once per file in other processes; stale text would be of other lines."""
    _, seen = texts_after(
        folder, kernel("4096 // COLUMNS", "2048 // COLUMNS"), kernel("@nki.jit", "\n\n@nki.jit")
    )
    # by hand: half the columns are not written; the tensor stands in line 8, then the kernel is whole again
    (unwritten,) = (one for one in seen[1]["new"] if one["severity"] == "error")
    assert (unwritten["rule"], unwritten["where"]) == ("unwritten-output", "kernels.py:8")
    assert [one["where"] for one in seen[2]["gone"]] == ["kernels.py:8"]


def test_a_watch_of_a_small_kernel_takes_less_than_half_a_second(folder):
    watched = Watched()
    with activate():
        marks = []

        def changes():
            for number in range(3):
                helper(f"COLUMNS = 512\n# {number}\n")(folder)
                marks.append(time.process_time())
                yield
                marks.append(time.process_time())

        [*rounds(watched, f"{folder}/kernels.py:copied", (CALL, ""), changes())]
    assert min(marks[1] - marks[0], marks[3] - marks[2], marks[5] - marks[4]) < 0.5


def lines_of(process):
    """What waits until a process prints a line with a text, behind those waited for before."""
    lines = []
    arrived = threading.Condition()

    def read():
        for line in process.stdout:
            with arrived:
                lines.append(line)
                arrived.notify()

    threading.Thread(target=read, daemon=True).start()

    def wait(text):
        with arrived:
            assert arrived.wait_for(lambda: any(text in line for line in lines), timeout=60), lines
            del lines[: next(n for n, line in enumerate(lines) if text in line) + 1]

    return wait


def test_a_process_sees_saves_and_ends_at_ctrl_c(folder):
    pytest.importorskip("watchfiles")
    command = [sys.executable, "-m", "nkilab", "watch", "kernels.py:copied", "--arg", "f32[128,4096]"]
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        wait = lines_of(process)
        wait("watching kernels.py:copied; Ctrl-C ends it")
        helper("COLUMNS = 512\n")(folder)
        wait("us less than the last time")
        # as an editor does that writes beside the file and moves it there
        script(folder, KERNEL + "def (\n", "saved")
        os.replace(folder / "saved", folder / "kernels.py")
        wait("SyntaxError: invalid syntax")
        script(folder, KERNEL, "kernels.py")
        wait("as long as the last time")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_the_document_of_a_watch_has_every_round(folder, capfd, monkeypatch):
    def changes(files):
        yield
        helper("COLUMNS = 512\n")(folder)
        yield
        raise KeyboardInterrupt

    monkeypatch.setattr("nkilab.watching.saves", changes)
    assert inside("watch", "kernels.py:copied", "--arg", "f32[128,4096]", "--json", folder=folder) == 0
    document = json.loads(capfd.readouterr().out)
    check(document)
    assert len(document["rounds"]) == 3


def test_a_watch_without_watchfiles_says_what_to_install(folder, capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    assert inside("watch", "kernels.py:copied", folder=folder) == 2
    assert capfd.readouterr().err == (
        "nkilab: nkilab watch needs the package watchfiles\n  hint: pip install 'nkilab[watch]'\n"
    )


# the extension of IPython


class Shell:
    """What the extension asks of IPython: magics by name, cells in one namespace, their text kept."""

    def __init__(self):
        self.user_ns, self.magics = {}, {}

    def register_magic_function(self, function, kind):
        self.magics[kind, function.__name__] = function

    def run_line_magic(self, name, line):
        assert name == "load_ext"
        import_module(line).load_ipython_extension(self)

    def run_cell_magic(self, name, line, cell):
        self.magics["cell", name](line, cell)

    def run_cell(self, cell):
        file = f"<cell {len(linecache.cache)}>"
        linecache.cache[file] = len(cell), None, cell.splitlines(keepends=True), file
        try:
            exec(compile(cell, file, "exec"), self.user_ns)
        except Exception as error:
            print(f"the shell tells of {type(error).__name__}")
            return SimpleNamespace(success=False)
        return SimpleNamespace(success=True)


@pytest.fixture(params=["IPython", "a shell like it"])
def shell(request):
    if request.param == "IPython":
        shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell()
    else:
        shell = Shell()
    finders, modules = list(sys.meta_path), set(sys.modules)
    shell.run_line_magic("load_ext", "nkilab")
    yield shell
    sys.meta_path[:] = finders
    for name in set(sys.modules) - modules:
        if name.split(".")[0] in ("nki", "neuronxcc", "nkilab"):
            del sys.modules[name]


CELL = KERNEL.replace("from helper import COLUMNS", "COLUMNS = 64")


def test_a_cell_is_timed_checked_and_compared_with_the_last(shell, capsys):
    line = "copied --arg f32[128,4096]"
    shell.run_cell_magic("nki", line, CELL)
    assert "copied on trn2: 0 errors, 0 warnings, 3 pieces of advice" in capsys.readouterr().out
    shell.run_cell_magic("nki", line, CELL.replace("COLUMNS = 64", "COLUMNS = 512"))
    assert capsys.readouterr().out.splitlines()[-1].endswith("us less than the last time")
    assert "copied" in shell.user_ns


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", "%%nki: FILE.py:KERNEL is not given"),
        ("copied --arg f32[", "%%nki: --arg is 'f32['; write DTYPE[N,...]"),
        ("other --arg f32[4]", "nkilab: the notebook has no other"),
        ("copied --nki 0.3", "%%nki: there is no option --nki"),
    ],
)
def test_a_wrong_line_above_a_cell_is_one_message(shell, capsys, line, problem):
    shell.run_cell_magic("nki", line, CELL)
    assert capsys.readouterr().out.startswith(problem)


def test_a_cell_that_fails_is_the_shells_to_tell_and_the_next_one_is_compared(shell, capsys):
    line = "copied --arg f32[128,4096]"
    shell.run_cell_magic("nki", line, CELL)
    shell.run_cell_magic("nki", line, "1 / 0")
    assert "predicted" in capsys.readouterr().out.partition("ZeroDivisionError")[0]
    broken = CELL.replace("    return out", "    raise LookupError('mine')")
    shell.run_cell_magic("nki", line, broken)
    assert capsys.readouterr().out.splitlines()[-1].endswith("it cannot be timed")
    shell.run_cell_magic("nki", line, f"{CELL}# the same\n")
    assert capsys.readouterr().out.splitlines()[-1] == "as long as the last time"
    shell.run_cell_magic("nki", "copied --arg f32[128,4096] --target trn1", CELL)
    assert "copied on trn1" in capsys.readouterr().out
