"""Where the text of a specification comes from: YAML files, docstrings, notebooks, documents."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass
from pathlib import Path

from ...disk import read_text
from ...errors import FileError, SpecError, nearest

_QUOTED = re.compile(r"(\"\"\"|''')(.*?)\1", re.S)
_KEY = re.compile(r"^\s*einsum\s*:", re.M)
_NAME = re.compile(r"\s*([\w-]+)\s*:")
# the fence of a block of code in a document
_FENCE = re.compile(r"\s*(```|~~~)")
# keys at the head of a specification
HEADS = ("einsum", "mapping", "format", "binding", "options")
MOST_BYTES = 16 << 20


@dataclass(frozen=True)
class Source:
    """The text of a specification."""

    text: str  # YAML
    file: str = ""  # it was read from; "" for a Python string
    first_line: int = 1  # line of the file that the text begins on


def source_of_file(path: Path) -> Source:
    """The specification in a file: YAML, or a docstring of a Python file, notebook or document.

    Raises:
        FileError: if it cannot be read.
        SpecError: if it holds none, or several.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise FileError(f"{path} has {path.stat().st_size} bytes; at most {MOST_BYTES} are read")
        text = read_text(path)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise FileError(f"{path} is no text") from None
    if path.suffix in (".yaml", ".yml"):
        return Source(text, str(path))
    if path.suffix == ".ipynb":
        found = _notebook(text, path)
    elif path.suffix == ".py":
        found = _python(text, path)
    else:
        found = _quoted(text, str(path))
        if not found and _KEY.search(text):
            return without_prose(Source(text, str(path)))
    if len(found) != 1:
        told = f"{len(found)} texts" if found else "no text"
        raise SpecError(
            f"{told} between triple quotes with the key einsum; one is needed",
            hint="" if found else "give a YAML file, or put the specification between triple quotes",
        ).located(str(path), "spec")
    return found[0]


def without_prose(source: Source) -> Source:
    """The specification in a docstring that has prose above or below it; lines keep their numbers.

    Prose stands apart by blank lines or the fence of a block of code. A paragraph is none where a line
    begins, as deep as `einsum:`, with a key of a specification or a word close to one: it is read, and told.
    """
    lines = source.text.split("\n")
    depth = next((_depth(line) for line in lines if _KEY.match(line)), 0)
    held = _paragraphs(lines)
    heads = [n for n, (a, b) in enumerate(held) if any(_is_head(line, depth) for line in lines[a:b])]
    if not heads:
        return source
    last = heads[-1]
    while last + 1 < len(held) and all(_depth(line) > depth for line in lines[slice(*held[last + 1])]):
        last += 1
    first, end = held[heads[0]][0], held[last][1]
    kept = ["" if n < first or n >= end else line for n, line in enumerate(lines)]
    return Source("\n".join(kept), source.file, source.first_line)


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _is_head(line: str, depth: int) -> bool:
    """Whether a line begins with a key at the head of a specification, or with a word close to one."""
    name = _NAME.match(line)
    if name is None or _depth(line) != depth:
        return False
    return bool(nearest(name[1], HEADS, alike=0.75))


def _paragraphs(lines: list[str]) -> list[tuple[int, int]]:
    """First lines, and those behind the last, of what blank lines and fences stand around."""
    found: list[tuple[int, int]] = []
    begun = -1
    for n, line in enumerate([*lines, ""]):
        is_between = not line.strip() or bool(_FENCE.match(line))
        if is_between and begun >= 0:
            found.append((begun, n))
        begun = -1 if is_between else n if begun < 0 else begun
    return found


def _quoted(text: str, file: str) -> list[Source]:
    return [
        without_prose(Source(match[2], file, 1 + text[: match.start(2)].count("\n")))
        for match in _QUOTED.finditer(text)
        if _KEY.search(match[2])
    ]


def _python(text: str, path: Path) -> list[Source]:
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise SpecError(f"this is no Python: {error.msg}").located(f"{path}:{error.lineno}", "spec") from None
    return [
        without_prose(Source(node.value, str(path), node.lineno))
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _KEY.search(node.value)
    ]


def _notebook(text: str, path: Path) -> list[Source]:
    try:
        cells = json.loads(text)["cells"]
        sources = ["".join(cell["source"]) for cell in cells]
    except (ValueError, KeyError, TypeError):
        raise SpecError("this is no notebook: it has no list of cells").located(str(path), "spec") from None
    found, alone = [], []
    for number, source in enumerate(sources):
        name = f"{path}[cell {number + 1}]"
        quoted = _quoted(source, name)
        found.extend(quoted or ([Source(source, name)] if _KEY.match(source) else []))
        # a cell of its own counts before what stands among other code, such as a test's copy
        if len(quoted) == 1 and _QUOTED.fullmatch(source.strip()):
            alone.extend(quoted)
    return alone if len(alone) == 1 else found
