"""Nothing in the package needs Linux, or a folder that only some systems have; what does is named here."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from .sources import ROOT, SOURCES, dotted, name_of, nodes

REPOSITORY = Path(__file__).parents[1]
# what a browser, a reader or another program is given besides the package
SCRIPTS = [
    path
    for folder in ("docs", "examples", "benchmarks")
    for path in sorted((REPOSITORY / folder).rglob("*.py"))
]
# Modules of one kind of system, and functions of `os` and `signal` that not all have.
MODULES = {"fcntl", "resource", "pwd", "grp", "pty", "termios", "tty", "posix", "syslog", "curses", "crypt"}
CALLS = re.compile(
    r"os\.(fork\w*|getuid|geteuid|getpgid|setsid|killpg|nice|mkfifo|sched_\w+|uname|posix_\w+)$"
    r"|signal\.(SIG(?!INT$|TERM$)[A-Z0-9]+|alarm|setitimer|pthread_kill|pause)$|multiprocessing\.get_context$"
)
PLACES = re.compile(r"^(/tmp|/proc|/dev/|/sys/|/usr|/etc|/var|/bin|/opt|/home|~/|[A-Za-z]:\\)")
# What limits a foreign test suite reads the memory of the process and interrupts it; it is loaded by name
# alone and says so on a system that lacks either. Locks of files, the cores that a process may use, and
# alarms that end a point which takes too long are looked for, and done without.
EXCEPTIONS = {
    "records.py": {"os.sched_getaffinity"},
    "suites/limits.py": {"resource", "signal.SIGALRM", "signal.pthread_kill", "/proc/self/statm"},
    "_lazy.py": {"fcntl"},
    # arrays for other processes lie in a file system in memory where there is one, else among temporary files
    "sent_arrays.py": {"/dev/shm"},
    "tune/executors.py": {"signal.SIGALRM", "signal.setitimer"},
}


def needs(path):
    """What a file names that not every system has."""
    docstrings = {
        id(node.body[0].value)
        for node in nodes(path)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body
        and isinstance(node.body[0], ast.Expr)
    }  # fmt: skip
    for node in nodes(path):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names if alias.name in MODULES)
            case ast.ImportFrom() if node.module in MODULES and not node.level:
                yield node.module
            case ast.Attribute() if CALLS.match(dotted(node)):
                yield dotted(node)
            case ast.Constant(value=str(text)) if id(node) not in docstrings:
                if PLACES.match(text):
                    yield text
            case ast.Call() if dotted(node.func).endswith("import_module") and node.args:
                argument = node.args[0]
                if isinstance(argument, ast.Constant) and argument.value in MODULES:
                    yield argument.value


def without_encoding(path):
    """Lines on which a file reads or writes text in whatever encoding the system prefers."""
    for node in nodes(path):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else dotted(node.func)
            is_told = any(word.arg == "encoding" for word in node.keywords)
            if name in ("read_text", "write_text"):
                is_told |= len(node.args) > (name == "write_text")
            elif dotted(node.func) in ("open", "os.fdopen"):
                modes = [*node.args[1:2], *(word.value for word in node.keywords if word.arg == "mode")]
                is_told |= any(isinstance(mode, ast.Constant) and "b" in mode.value for mode in modes)
            else:
                continue
            if not is_told:
                yield f"{path.name}:{node.lineno}"


def test_modules_call_nothing_that_only_some_systems_have():
    for path in SOURCES:
        assert set(needs(path)) <= EXCEPTIONS.get(name_of(path), set()), name_of(path)


def test_text_is_read_and_written_as_utf_8():
    assert [line for path in [*SOURCES, *SCRIPTS] for line in without_encoding(path)] == []


def test_exceptions_are_still_needed():
    for name, allowed in EXCEPTIONS.items():
        assert set(needs(ROOT / name)) == allowed


@pytest.mark.parametrize(
    "text",
    ["open('x')", "path.read_text()", "path.write_text('x')", "os.fdopen(3, 'w')", "open('x', mode='w')"],
)
def test_the_search_finds_text_without_encoding(tmp_path, text):
    path = tmp_path / "module.py"
    path.write_text(f"{text}\nopen('x', 'rb')\nopen('x', encoding='utf-8')\npath.read_text('utf-8')\n")
    assert list(without_encoding(path)) == ["module.py:1"]


@pytest.mark.parametrize(
    "text",
    [
        "import resource",
        "import os\nos.fork()",
        "import signal\nsignal.SIGALRM",
        "open('/tmp/x')",
        "x = '/proc/self'",
    ],
)
def test_the_search_finds_what_it_looks_for(tmp_path, text):
    path = tmp_path / "module.py"
    path.write_text(text)
    assert list(needs(path))
