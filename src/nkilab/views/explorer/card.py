"""Reads what the vendor's profiler writes of a run on a card: summaries as text or JSON, Parquet tables.

Times are seconds there and what ends in _percent is a share from 0 to 1; here they are microseconds and
percent, as `METRICS` has them.

Source: neuron-profile user guide, "Alternative output formats"; Neuron Explorer, "Profile parquet schema
reference".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import NoReturn

from ..._lazy import pyarrow
from ...disk import read_whole
from ...errors import FileError, UsageError
from ..metrics import METRICS

HINT = "pass what `neuron-profile view --output-format summary-json`, summary-text or parquet writes"
TABLE = "Summary.parquet"
_SCALES = {"us": 1e6, "percent": 100.0}
_LINE = re.compile(r"\s*([A-Za-z_]\w*)[\s:=|]+(\S+?)\s*\|?\s*")
# A metric without which a profile tells nothing here.
_TIME = "total_time"


@dataclass(frozen=True)
class CardProfile:
    """What the profiler says of one run."""

    path: Path  # of the file or folder
    format: str  # "summary-json", "summary-text" or "parquet"
    metrics: dict[str, float]  # those of `METRICS`, by name, in its units


def is_profile(designation: str) -> bool:
    """Whether a name on a command line is that of a profile: by its ending, or a folder of tables."""
    path = Path(designation)
    return path.suffix in (".json", ".txt", ".parquet") or (path / TABLE).is_file()


def read_profile(path: Path) -> CardProfile:
    """The metrics of a profile.

    Args:
        path: of a summary as JSON or text, of Summary.parquet, or of the folder that it lies in.

    Raises:
        FileError: if it cannot be read, is none, or holds what no profile does; names the line.
        UsageError: if it is Parquet and pyarrow is missing.
    """
    if path.is_dir() or path.suffix == ".parquet":
        return _read_table(path / TABLE if path.is_dir() else path, path)
    text = read_whole(path).decode("utf-8", "replace")
    if text.lstrip()[:1] in ("{", "["):
        return CardProfile(path, "summary-json", _metrics(path, _in_json(path, text), text))
    return CardProfile(path, "summary-text", _metrics(path, _in_text(path, text), text))


def _in_json(path: Path, text: str) -> Mapping[str, object]:
    """The one object with metrics: as it stands, under the hash of a program, or in a list."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise _wrong(path, error.lineno, f"it is no JSON: {error.msg}") from None
    except RecursionError:
        raise _wrong(path, 1, "it nests too deep") from None
    summaries = _summaries(document)
    if len(summaries) != 1:
        problem = f"it has {len(summaries)} summaries with a {_TIME}; a profile of one program has one"
        raise _wrong(path, 1, problem)
    return summaries[0]


def _summaries(document: object, depth: int = 3) -> list[Mapping[str, object]]:
    if isinstance(document, Mapping) and _TIME in document:
        return [document]
    inner = (
        document.values() if isinstance(document, Mapping) else document if isinstance(document, list) else ()
    )
    return [one for value in inner for one in _summaries(value, depth - 1)] if depth else []


def _in_text(path: Path, text: str) -> Mapping[str, object]:
    """A metric per line: its name and its value, with or without the lines of a table."""
    matches = [match for line in text.splitlines() if (match := _LINE.fullmatch(line.strip().lstrip("|")))]
    values = {match[1]: _number(match[2]) for match in matches}
    if _TIME not in values:
        raise _wrong(path, 1, f"no line has {_TIME} and a number")
    return values


def _number(word: str) -> object:
    try:
        return float(word)
    except ValueError:
        return word


def _read_table(path: Path, named: Path) -> CardProfile:
    if not path.is_file():
        raise FileError(f"{named} has no {TABLE}", hint=HINT)
    try:
        parquet = pyarrow("parquet")
    except ModuleNotFoundError:
        raise UsageError(
            "Parquet tables are read by the package pyarrow, which is not installed",
            hint="install nkilab[parquet]",
        ) from None
    try:
        rows = parquet.read_table(path).to_pylist()
    except Exception as error:
        raise FileError(f"{path} is no Parquet table: {str(error).splitlines()[0]}", hint=HINT) from None
    if len(rows) != 1 or _TIME not in rows[0]:
        raise FileError(f"{path} has {len(rows)} rows; a summary has one, with a {_TIME}", hint=HINT)
    return CardProfile(named, "parquet", _metrics(path, rows[0], ""))


def _metrics(path: Path, values: Mapping[str, object], text: str) -> dict[str, float]:
    """The values that `METRICS` knows, checked, in its units."""
    metrics: dict[str, float] = {}
    for name, metric in METRICS.items():
        value = values.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value < 0:
            _refuse(path, name, value, text)
        metrics[name] = value * _SCALES.get(metric.unit, 1.0)
    if not metrics.get(_TIME):
        _refuse(path, _TIME, values.get(_TIME), text)
    return metrics


def _refuse(path: Path, name: str, value: object, text: str) -> NoReturn:
    at = re.search(rf"\b{name}\b", text)
    problem = f"{name} is {value!r}; it must be a number {'above 0' if name == _TIME else 'from 0 on'}"
    if at is None:
        raise FileError(f"{path}, row 1: {problem}", hint=HINT)
    raise _wrong(path, text.count("\n", 0, at.start()) + 1, problem)


def _wrong(path: Path, line: int, problem: str) -> FileError:
    return FileError(f"{path}:{line}: {problem}", hint=HINT)
