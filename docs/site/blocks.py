"""Runs the code blocks of pages and holds what they print to what the pages show.

    python docs/site/blocks.py PAGE...            tells what differs
    python docs/site/blocks.py --write PAGE...    writes what was printed into the pages

The blocks of a page run in order, in a folder of their own. What becomes of one, its first word and its
neighbours say:

- `python` runs, all of a page in one process; an `output` block below shows what it prints;
- `console`: lines after `$ ` run in a shell; below them stands what they print, `...` for lines left out. A
  command without output shown has to succeed;
- below a line that ends with a file's name and a colon, any other block is that file; below "From `NAME`:",
  a part of it;
- above a line "Not run by the tests: REASON" it does not run. What is `text` is only shown.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

import nkilab
from nkilab.code_cache import base_folder

KINDS = {"python", "console", "output", "text", "yaml", "toml", "sh", "json", "ini"}
PLUGIN = "nkilab.suites.plugin"
_FILE = re.compile(r"`([\w./-]+\.\w+)`:$")
_PART = re.compile(r"From `([\w./-]+\.\w+)`:$")
_NOT_RUN = re.compile(r"^\*?Not run by the tests: (.+?)\*?$", re.S)

# Executes what it is sent, and answers with what that printed.
_CHILD = """
import contextlib, io, json, linecache, sys, traceback
names, answers = {"__name__": "__main__"}, sys.stdout
for line in sys.stdin:
    asked, printed, failed = json.loads(line), io.StringIO(), False
    name, text = asked["name"], asked["text"]
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            exec(compile(text, name, "exec"), names)
        except BaseException as error:
            failed = True
            print("Traceback (most recent call last):")
            traceback.print_tb(error.__traceback__.tb_next)
            print("".join(traceback.format_exception_only(error)), end="")
    answers.write(json.dumps({"printed": printed.getvalue(), "failed": failed}) + "\\n")
    answers.flush()
"""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Args:
        kind: its first word.
        text: what stands in it.
        start, end: lines of the page, from 0, fences included.
        file: the file that it is, if it is one.
        part_of: the file that it is a part of.
        reason: why it does not run.
    """

    kind: str
    text: str
    start: int
    end: int
    file: str = ""
    part_of: str = ""
    reason: str = ""

    def __str__(self) -> str:
        return f"line {self.start + 1}"


class Mismatch(AssertionError):
    """A block that does not do what its page says."""


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    tokens = [t for t in MarkdownIt("commonmark").enable("table").parse(page) if t.type != "html_block"]
    return [_block(tokens, place) for place, token in enumerate(tokens) if token.type == "fence"]


def indented(page: str) -> list[int]:
    """Lines of blocks that are indented, and so have no kind."""
    return [t.map[0] + 1 for t in MarkdownIt("commonmark").parse(page) if t.type == "code_block" and t.map]


def _block(tokens: list[Token], place: int) -> Block:
    token = tokens[place]
    assert token.map is not None
    above = tokens[place - 2].content if place >= 2 and tokens[place - 1].type == "paragraph_close" else ""
    if token.info.strip() in ("console", "output"):
        above = ""
    below = tokens[place + 2].content if tokens[place + 1 : place + 2] and _is_text(tokens, place + 1) else ""
    part, file, reason = _PART.search(above), _FILE.search(above), _NOT_RUN.match(below)
    return Block(
        token.info.strip(),
        token.content,
        *token.map,
        file=file[1] if file and not part else "",
        part_of=part[1] if part else "",
        reason=reason[1] if reason else "",
    )


def _is_text(tokens: list[Token], place: int) -> bool:
    return tokens[place].type == "paragraph_open" and place + 1 < len(tokens)


def commands(text: str) -> Iterator[tuple[str, str]]:
    """The commands of a console block, each with the output that is shown."""
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        command = lines[at].removeprefix("$ ")
        if command == lines[at]:
            raise Mismatch(f"no command: {lines[at]}")
        at += 1
        while command.endswith("\\"):
            command += f"\n{lines[at]}"
            at += 1
        shown = []
        while at < len(lines) and not lines[at].startswith("$ "):
            shown.append(lines[at])
            at += 1
        yield command, "\n".join(shown)


def agrees(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed; `...` stands for any lines, or for the rest of one."""
    lines = []
    for line in shown.strip("\n").splitlines():
        start, dots, end = line.rstrip().rpartition("...")
        if dots and not end:
            lines.append(re.escape(start) + r".*\n" if start.strip() else r"(?:.*\n)*?")
        else:
            lines.append(re.escape(line.rstrip()) + r"\n")
    return re.fullmatch("".join(lines), _plain(printed) + "\n") is not None


def _plain(printed: str) -> str:
    return "\n".join(line.rstrip() for line in printed.strip("\n").splitlines())


def _plugin() -> str:
    """Options that make pytest find the plugin of this checkout where another one, or none, is installed."""
    installed = [point.value for point in entry_points(group="pytest11", name="nkilab")]
    return "" if installed == [PLUGIN] else f"-p no:nkilab -p {PLUGIN}"


class Runner:
    """A folder with a shell and a Python process, as the reader of one page has them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._programs = folder.parent / f"{folder.name}-programs"
        self._programs.mkdir(parents=True)
        for name, words in (
            ("nkilab", "-m nkilab"),
            ("python", ""),
            ("python3", ""),
        ):
            path = self._programs / name
            path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n', encoding="utf-8")
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        self._environment = {
            **os.environ,
            "PATH": f"{self._programs}{os.pathsep}{os.environ['PATH']}",
            # as it is installed: Python has its modules compiled, and numba the code of jobs for all pages
            "PYTHONPATH": str(Path(nkilab.__file__).parents[1]),
            "NUMBA_CACHE_DIR": str(base_folder()),
            "NKILAB_CACHE_DIR": str(self._programs / "cache"),
            "NKILAB_PROGRESS": "0",
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "COLUMNS": "100",
            "NO_COLOR": "1",
            "PYTEST_ADDOPTS": _plugin(),
        }
        self._child: subprocess.Popen[str] | None = None

    def shell(self, command: str) -> tuple[str, bool]:
        """What a command prints on both streams, and whether it failed."""
        done = subprocess.run(
            ["sh", "-c", command], cwd=self.folder, env=self._environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        return self._without_places(done.stdout), done.returncode != 0

    def python(self, text: str, name: str) -> tuple[str, bool]:
        """What a block prints, and whether it raised."""
        if self._child is None:
            self._child = subprocess.Popen(
                [sys.executable, "-c", _CHILD], cwd=self.folder, env=self._environment,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(json.dumps({"text": text, "name": name}) + "\n")
        self._child.stdin.flush()
        answer = json.loads(self._child.stdout.readline())
        return self._without_places(answer["printed"]), answer["failed"]

    def close(self) -> None:
        """End the process and remove the programs."""
        if self._child is not None:
            self._child.communicate()
        shutil.rmtree(self._programs)

    def _without_places(self, printed: str) -> str:
        # whether code is compiled first depends on what ran on this computer before
        printed = re.sub(r"nkilab: compiling .*, once\n", "", printed)
        return printed.replace(f"{self.folder}{os.sep}", "").replace(str(self.folder), ".")


def run(page: str, folder: Path, *, write: bool = False) -> str:
    """Run the blocks of a page; the page with what they print, if that is to be written.

    Raises:
        Mismatch: at the first block that fails, or prints something else than the page shows.
    """
    runner = Runner(folder)
    lines = page.splitlines()
    page_blocks = blocks(page)
    changes: list[tuple[int, int, list[str]]] = []
    try:
        for block, after in pairwise([*page_blocks, None]):
            assert block is not None
            shown = after if after and after.kind == "output" else None
            for place, text in _done(runner, block, shown, write):
                changes.append((place.start, place.end, [lines[place.start], *text.splitlines(), "```"]))
    finally:
        runner.close()
    for start, end, text in reversed(changes):
        lines[start:end] = text
    return "\n".join(lines) + "\n"


def _done(runner: Runner, block: Block, shown: Block | None, write: bool) -> Iterator[tuple[Block, str]]:
    """Run one block; yields what is to be written instead of which block."""
    path = runner.folder / (block.file or block.part_of or ".")
    if block.part_of:
        if block.text.strip() not in path.read_text(encoding="utf-8"):
            raise Mismatch(f"{block}: {block.part_of} has no such part")
    elif block.file:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")
    elif block.reason or block.kind in ("text", "output"):
        return
    elif block.kind == "console":
        rebuilt = [_command_done(runner, block, *pair, write) for pair in commands(block.text)]
        yield block, "\n".join(text for pair in rebuilt for text in pair if text)
    elif block.kind == "python":
        # lines as in the page, so that errors name them
        printed, failed = runner.python("\n" * (block.start + 1) + block.text, "page.py")
        yield from _checked(block, shown, printed, failed, write)
    else:
        raise Mismatch(f"{block}: {block.kind} is neither run nor a file; name it in the line above")


def _checked(
    block: Block, shown: Block | None, printed: str, failed: bool, write: bool
) -> Iterator[tuple[Block, str]]:
    if shown is None:
        if failed or printed.strip():
            raise Mismatch(f"{block}: prints what no output block shows:\n{printed}")
    elif not agrees(shown.text, printed):
        if not write:
            raise Mismatch(f"{shown}: it prints\n{printed}")
        yield shown, _plain(printed)


def _command_done(runner: Runner, block: Block, command: str, shown: str, write: bool) -> tuple[str, str]:
    printed, failed = runner.shell(command)
    if failed and not shown:
        raise Mismatch(f"{block}: $ {command}\n{printed}")
    if shown and not agrees(shown, printed):
        if not write:
            raise Mismatch(f"{block}: $ {command}\nprints\n{printed}")
        return f"$ {command}", _plain(printed)
    return f"$ {command}", shown


def main(arguments: list[str]) -> int:
    """Run the pages that are named; returns the exit code."""
    write = "--write" in arguments
    status = 0
    for path in [Path(a) for a in arguments if a != "--write"]:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place).resolve() / "page"
            folder.mkdir()
            try:
                new_text = run(path.read_text("utf-8"), folder, write=write)
            except Mismatch as error:
                sys.stderr.write(f"{path}: {error}\n")
                status = 1
                continue
        if write:
            path.write_text(new_text, "utf-8")
        sys.stdout.write(f"{path}: fine\n")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
