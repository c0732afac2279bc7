"""Reading YAML files that people write: as data alone, with the lines that values stand on."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from ._lazy import ruamel_yaml
from .disk import read_text
from .errors import FileError, reason_of

# What people write stays below; what would take long, or more memory than the file, lies above.
_DEEPEST, _MOST_ALIASES = 32, 1000


class _TooMuch(Exception):
    """What a file nests or repeats is refused before anything is made of it.

    Args:
        problem: what is wrong.
        line: from 1.
    """

    def __init__(self, problem: str, line: int) -> None:
        super().__init__(problem)
        self.problem, self.line = problem, line


@cache
def _bounded_parser() -> type:
    """The parser of a reader, which refuses deep nesting and aliases that multiply."""

    class Bounded(ruamel_yaml().parser.RoundTripParser):  # type: ignore[misc]
        # whether each collection around has an anchor; how many aliases there were
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.anchored: list[bool] = []
            self.aliases = 0

        def get_event(self) -> Any:
            event = super().get_event()
            kind, line = type(event).__name__, event.start_mark.line + 1
            if kind in ("SequenceStartEvent", "MappingStartEvent"):
                self.anchored.append(event.anchor is not None)
                if len(self.anchored) > _DEEPEST:
                    raise _TooMuch(f"lists and mappings stand in each other more than {_DEEPEST} deep", line)
            elif kind in ("SequenceEndEvent", "MappingEndEvent"):
                self.anchored.pop()
            elif kind == "AliasEvent":
                self.aliases += 1
                if any(self.anchored):
                    raise _TooMuch(
                        f"the alias *{event.anchor} stands below an anchor; write the value out", line
                    )
                if self.aliases > _MOST_ALIASES:
                    raise _TooMuch(f"there are more than {_MOST_ALIASES} aliases", line)
            return event

    return Bounded


def loaded(path: Path, hint: str) -> Any:
    """What a YAML file holds; mappings and lists know their lines.

    Args:
        path: of the file.
        hint: where its format is described.

    Raises:
        FileError: if it cannot be read, is no YAML, or nests or repeats too much.
    """
    yaml = ruamel_yaml()
    reader = yaml.YAML(typ="rt")
    reader.Parser = _bounded_parser()
    try:
        return reader.load(read_text(path))
    except OSError as error:
        raise FileError(f"{path} cannot be read: {reason_of(error)}") from None
    except UnicodeDecodeError:
        raise FileError(f"{path} is no text") from None
    except yaml.error.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or "it does not parse"
        raise wrong(path, mark.line + 1 if mark else 1, f"this is no YAML: {reason}", hint) from None
    except _TooMuch as error:
        raise wrong(path, error.line, error.problem, hint) from None
    except ValueError as error:
        raise wrong(path, 1, f"a value cannot be read: {str(error).partition(';')[0]}", hint) from None


def line_of(node: Any, place: int | None = None) -> int:
    """The line, from 1, on which what was read begins, or an entry of it."""
    return int(node.lc.line if place is None else node.lc.item(place)[0]) + 1


def key_line(node: Any, key: Any) -> int:
    """The line, from 1, of a key of a mapping that was read."""
    return int(node.lc.key(key)[0]) + 1


def wrong(path: Path, line: int, problem: str, hint: str) -> FileError:
    """An error that names file and line."""
    error = FileError(problem, hint=hint)
    error.located(f"{path.name}:{line}", "")
    return error
