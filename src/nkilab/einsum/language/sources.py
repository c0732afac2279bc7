"""Where the text of a specification comes from: YAML files, docstrings, notebooks, documents."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass
from pathlib import Path

from ...errors import FileError, SpecError

_QUOTED = re.compile(r"(\"\"\"|''')(.*?)\1", re.S)
_KEY = re.compile(r"^\s*einsum\s*:", re.M)
MOST_BYTES = 16 << 20


@dataclass(frozen=True)
class Source:
    """The text of a specification.

    Args:
        text: YAML.
        file: it was read from; "" for a Python string.
        first_line: line of the file that the text begins on.
    """

    text: str
    file: str = ""
    first_line: int = 1


def source_of_file(path: Path) -> Source:
    """The specification in a file: YAML, or a docstring of a Python file, notebook or document.

    Raises:
        FileError: if it cannot be read.
        SpecError: if it holds none, or several.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise FileError(f"{path} has {path.stat().st_size} bytes; at most {MOST_BYTES} are read")
        text = path.read_text(encoding="utf-8")
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
        found = _quoted(text, str(path), 1)
        if not found and _KEY.search(text):
            return Source(text, str(path))
    if len(found) != 1:
        told = f"{len(found)} texts" if found else "no text"
        raise SpecError(
            f"{told} between triple quotes with the key einsum; one is needed",
            hint="" if found else "give a YAML file, or put the specification between triple quotes",
        ).located(str(path), "spec")
    return found[0]


def _quoted(text: str, file: str, first_line: int) -> list[Source]:
    return [
        Source(match[2], file, first_line + text[: match.start(2)].count("\n"))
        for match in _QUOTED.finditer(text)
        if _KEY.search(match[2])
    ]


def _python(text: str, path: Path) -> list[Source]:
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise SpecError(f"this is no Python: {error.msg}").located(f"{path}:{error.lineno}", "spec") from None
    return [
        Source(node.value, str(path), node.lineno)
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
        quoted = _quoted(source, name, 1)
        found.extend(quoted or ([Source(source, name)] if _KEY.match(source) else []))
        # a cell of its own counts before what stands among other code, such as a test's copy
        if len(quoted) == 1 and source.strip().strip("\"'") == quoted[0].text:
            alone.extend(quoted)
    return alone if len(alone) == 1 else found
