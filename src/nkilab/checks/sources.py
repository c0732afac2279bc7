"""The text behind a finding: lines, where a caret goes, and comments that silence a rule."""

from __future__ import annotations

import ast
import io
import linecache
import os
import re
import tokenize
from collections.abc import Iterator
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from ..errors import UsageError
from ..migrate.source import Source, parse
from .finding import Site

# how a text names the front end that runs kernels as Python instead of parsing them
_TRACER = rb"\bTracer(?:Frontend)"
_TRACING = re.compile(
    rb"^[^#\n]*(?:%b\s*\(|\.%b\b|\bimport [^#\n]*%b\b)" % (_TRACER, _TRACER, _TRACER), re.MULTILINE
)
_PROJECT_FILES = (".git", "pyproject.toml", "setup.py", "setup.cfg")
# of one project that are looked through
_MOST_FILES = 5000
_IGNORE = re.compile(r"#\s*nkilab:\s*ignore(?:\[([^\]]*)\])?\s*(.*)")


class Span(NamedTuple):
    """Columns of a line in characters, from 0; `end` is behind the last."""

    start: int
    end: int


class Ignore(Struct, frozen=True):
    """A comment that silences rules on a line."""

    line: int  # of the comment
    # first, last: lines of the statement that it stands in
    first: int
    last: int
    rules: tuple[str, ...]  # identifiers; () if none is given
    reason: str  # what follows them


class SourceFile:
    """One file of the user's, read when it is first asked for.

    Args:
        path: of the file.
        text: of it; "" where it cannot be read (a removed file).
    """

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text

    @cached_property
    def lines(self) -> list[str]:
        """Its lines without their ends."""
        return self.text.splitlines()

    def line(self, number: int) -> str:
        """A line as it stands, or ""."""
        return self.lines[number - 1] if 0 < number <= len(self.lines) else ""

    @cached_property
    def source(self) -> Source | None:
        """Its syntax, and which names are NKI's; None where it is no Python."""
        try:
            return parse(self.path, self.text.encode())
        except UsageError:
            return None

    def calls_on(self, number: int) -> list[ast.Call]:
        """The calls whose text reaches over a line."""
        calls = self.source.nodes(ast.Call) if self.source is not None else ()
        return [call for call in calls if call.lineno <= number <= (call.end_lineno or 0)]

    def span(self, number: int) -> Span:
        """Where a caret goes on a line: the call or assignment that begins there, else the whole text."""
        text = self.line(number)
        whole = Span(len(text) - len(text.lstrip()), len(text.rstrip()))
        span = self._spans.get(number)
        if span is None:
            return whole
        start, end = span
        # columns of the syntax tree count bytes
        encoded = text.encode()
        start, end = (len(encoded[:n].decode(errors="replace")) for n in (start, end))
        return Span(start, min(max(end, start + 1), whole.end)) if start < whole.end else whole

    @cached_property
    def _spans(self) -> dict[int, tuple[int, int]]:
        """Per line the columns of the widest call that begins on it."""
        spans: dict[int, tuple[int, int]] = {}
        if self.source is None:
            return spans
        for node in self.source.nodes(ast.Call):
            end = node.end_col_offset or 0
            if node.end_lineno != node.lineno:
                end = len(self.line(node.lineno).encode())
            known = spans.get(node.lineno)
            if known is None or end - node.col_offset > known[1] - known[0]:
                spans[node.lineno] = (node.col_offset, end)
        return spans

    @cached_property
    def ignores(self) -> tuple[Ignore, ...]:
        """The comments that silence rules."""
        return tuple(self._ignores())

    def _ignores(self) -> Iterator[Ignore]:
        if "nkilab:" not in self.text:
            return
        statements = self._statements()
        try:
            tokens = list(tokenize.generate_tokens(io.StringIO(self.text).readline))
        except (tokenize.TokenError, SyntaxError):
            return
        for token in tokens:
            comment = _IGNORE.search(token.string) if token.type == tokenize.COMMENT else None
            if comment is None:
                continue
            line = token.start[0]
            is_alone = not self.line(line)[: token.start[1]].strip()
            below = self._below(line) if is_alone else line
            first, last = statements.get(below, (line, line))
            rules = tuple(word.strip() for word in (comment[1] or "").split(",") if word.strip())
            yield Ignore(line, min(line, first), last, rules, comment[2].strip())

    def _below(self, number: int) -> int:
        """The line below a comment, and below the comments that follow it."""
        number += 1
        while self.line(number).lstrip().startswith("#"):
            number += 1
        return number

    def _statements(self) -> dict[int, tuple[int, int]]:
        """Per line the first and last line of the simple statement that it belongs to."""
        statements: dict[int, tuple[int, int]] = {}
        if self.source is None:
            return statements
        for node in self.source.nodes(ast.stmt):
            inner = getattr(node, "body", None)
            last = inner[0].lineno - 1 if inner else node.end_lineno or node.lineno
            for line in range(node.lineno, max(last, node.lineno) + 1):
                statements[line] = (node.lineno, max(last, node.lineno))
        return statements


@lru_cache(64)
def _file(path: str, _changed: int, _size: int) -> SourceFile:
    """A file as it was when it was last changed; a script may launch its kernels thousands of times."""
    try:
        raw = Path(path).read_bytes()
        encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        return SourceFile(path, raw.decode(encoding))
    except (OSError, SyntaxError, LookupError, ValueError):
        return SourceFile(path, "")


@lru_cache(64)
def tracing_file(path: str) -> str:
    """The file of a kernel's project that has kernels compiled by being run, or "".

    A project is what lies below the uppermost folder around the file that has a pyproject.toml or the like,
    within its repository; else the file's own folder.
    """
    folders = Path(path).resolve().parents[:-1]
    repository = next((n for n, folder in enumerate(folders) if (folder / ".git").exists()), len(folders))
    around = [f for f in folders[: repository + 1] if any((f / name).exists() for name in _PROJECT_FILES)]
    pattern = "**/*.py" if around else "*.py"
    for file in islice((around or folders)[-1 if around else 0].glob(pattern), _MOST_FILES):
        is_installed = "site-packages" in file.parts
        if not is_installed and file.is_file() and _TRACING.search(file.read_bytes()):
            return file.name
    return ""


class Sources:
    """The files of the user's that findings speak of."""

    def __init__(self) -> None:
        self._files: dict[str, SourceFile] = {}

    def file(self, path: str) -> SourceFile:
        """A file, empty where it cannot be read."""
        known = self._files.get(path)
        if known is None:
            try:
                status = os.stat(path)
                known = _file(path, status.st_mtime_ns, status.st_size)
            except OSError:
                # a notebook keeps the text of its cells here
                known = SourceFile(path, "".join(linecache.getlines(path)))
            self._files[path] = known
        return known

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that were asked for."""
        return tuple(self._files)

    def line(self, site: Site) -> str:
        """The text of a line."""
        return self.file(site.file).line(site.line) if site.file else ""

    def span(self, site: Site) -> Span:
        """Where the caret goes on it."""
        return self.file(site.file).span(site.line)
