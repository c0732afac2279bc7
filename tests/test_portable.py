"""Nothing in the package needs Linux, or a folder that only some systems have; what does is named here."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import nkilab

ROOT = Path(nkilab.__file__).parent
SOURCES = sorted(ROOT.rglob("*.py"))
# Modules of one kind of system, and functions of `os` and `signal` that not all have.
MODULES = {"fcntl", "resource", "pwd", "grp", "pty", "termios", "tty", "posix", "syslog", "curses", "crypt"}
CALLS = re.compile(
    r"os\.(fork\w*|getuid|geteuid|getpgid|setsid|killpg|nice|mkfifo|sched_\w+|uname|posix_\w+)$"
    r"|signal\.(SIG[A-Z0-9]+|alarm|setitimer|pthread_kill|pause)$|multiprocessing\.get_context$"
)
PLACES = re.compile(r"^(/tmp|/proc|/dev/|/sys/|/usr|/etc|/var|/bin|/opt|/home|~/|[A-Za-z]:\\)")
# What limits a foreign test suite reads the memory of the process and interrupts it; it is loaded by name
# alone and says so on a system that lacks either. Locks of files, and the cores that a process may use, are
# looked for, and done without.
EXCEPTIONS = {
    "execute/lanes.py": {"os.sched_getaffinity"},
    "suites/limits.py": {"resource", "signal.SIGALRM", "signal.pthread_kill", "/proc/self/statm"},
    "_lazy.py": {"fcntl"},
}


def needs(path):
    """What a file names that not every system has."""
    tree = ast.parse(path.read_text())
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body
        and isinstance(node.body[0], ast.Expr)
    }  # fmt: skip
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names if alias.name in MODULES)
            case ast.ImportFrom() if node.module in MODULES and not node.level:
                yield node.module
            case ast.Attribute() if CALLS.match(ast.unparse(node)):
                yield ast.unparse(node)
            case ast.Constant(value=str(text)) if id(node) not in docstrings:
                if PLACES.match(text):
                    yield text
            case ast.Call() if ast.unparse(node.func).endswith("import_module") and node.args:
                given = node.args[0]
                if isinstance(given, ast.Constant) and given.value in MODULES:
                    yield given.value


@pytest.mark.parametrize("path", SOURCES, ids=[path.relative_to(ROOT).as_posix() for path in SOURCES])
def test_a_module_calls_nothing_that_only_some_systems_have(path):
    assert set(needs(path)) <= EXCEPTIONS.get(path.relative_to(ROOT).as_posix(), set())


def test_exceptions_are_still_needed():
    for name, allowed in EXCEPTIONS.items():
        assert set(needs(ROOT / name)) == allowed


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
