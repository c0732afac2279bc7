"""Reading YAML files that people write: as data alone, with the lines that values stand on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ._lazy import ruamel_yaml
from .disk import read_text
from .errors import FileError, reason_of


def loaded(path: Path, hint: str) -> Any:
    """What a YAML file holds; mappings and lists know their lines.

    Args:
        path: of the file.
        hint: where its format is described.

    Raises:
        FileError: if it cannot be read or is no YAML.
    """
    yaml = ruamel_yaml()
    try:
        return yaml.YAML(typ="rt").load(read_text(path))
    except OSError as error:
        raise FileError(f"{path} cannot be read: {reason_of(error)}") from None
    except UnicodeDecodeError:
        raise FileError(f"{path} is no text") from None
    except yaml.error.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        told = getattr(error, "problem", None) or "it does not parse"
        raise wrong(path, mark.line + 1 if mark else 1, f"this is no YAML: {told}", hint) from None


def line_of(held: Any, place: int | None = None) -> int:
    """The line, from 1, on which what was read begins, or an entry of it."""
    return int(held.lc.line if place is None else held.lc.item(place)[0]) + 1


def key_line(held: Any, key: Any) -> int:
    """The line, from 1, of a key of a mapping that was read."""
    return int(held.lc.key(key)[0]) + 1


def wrong(path: Path, line: int, problem: str, hint: str) -> FileError:
    """An error that names file and line."""
    error = FileError(problem, hint=hint)
    error.located(f"{path.name}:{line}", "")
    return error
