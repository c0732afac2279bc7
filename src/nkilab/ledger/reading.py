"""Reading ledgers: YAML files of groups, whose rows say what their group does not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any

from ..errors import FileError, NkilabError, did_you_mean
from ..machine import Machine, chip_named
from ..views.explorer.card import read_profile
from ..yaml_files import line_of, loaded, wrong
from .counters import quantities_in
from .quantities import QUANTITIES
from .row import KINDS, SPLITS, TRUSTS, Call, Row, Source

SCHEMA = "nkilab.ledger/1"
FORMAT = "see docs/ledger.md for the format"
OWN = Path(__file__).parent / "rows"
_ROW_KEYS = {f.name for f in fields(Row)} - {"calls", "line"} | {"args", "calls", "profile", "rows"}
_NEEDED = [f.name for f in fields(Row) if f.default is MISSING and f.default_factory is MISSING]
_WORDS = {"kind": KINDS, "split": SPLITS, "trust": TRUSTS}
_TEXTS = ("id", "family", "kernel", "chip", "dialect", "hardware", "label", "notes", "reason", "source")
_OF_TYPE: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(("measured", "keywords", "options"), (Mapping, "names and values")),
    **dict.fromkeys(("args", "calls", "units", "contradicts"), (list, "a list")),
    **dict.fromkeys(_TEXTS, (str, "a text")),
    "noise": (int | float, "a number"),
}


@cache
def own_rows() -> tuple[Row, ...]:
    """The rows that come with nkilab."""
    rows = [row for path in sorted(OWN.glob("*.yaml")) if path.stem != "left_out" for row in _rows_in(path)]
    _refuse_twins(rows, OWN)
    return tuple(rows)


@cache
def left_out() -> dict[str, str]:
    """Published measurements that the ledger leaves out, by name, with the reason of each."""
    document = loaded(OWN / "left_out.yaml", FORMAT)
    return {str(name): str(entry["reason"]) for entry in document["entries"] for name in entry["ids"]}


def ledger_rows(path: Path) -> tuple[Row, ...]:
    """The rows of a ledger.

    Raises:
        FileError: if there is no such file, or it holds no ledger.
    """
    rows = _rows_in(path)
    _refuse_twins(rows, path)
    return tuple(rows)


def _rows_in(path: Path) -> list[Row]:
    document = loaded(path, FORMAT)
    if not isinstance(document, Mapping) or document.get("schema") != SCHEMA:
        schema = document.get("schema") if isinstance(document, Mapping) else None
        raise _wrong(path, 1, f"the schema is {schema!r}; a ledger has {SCHEMA!r}")
    sources = _sources(path, document.get("sources"))
    rows: list[Row] = []
    for group in _listed(path, document, "groups"):
        common = {k: v for k, v in group.items() if k != "rows"}
        for schema in _listed(path, group, "rows"):
            # what a row does not say, its group says
            own = "args" in schema or "calls" in schema
            inherited = {k: v for k, v in common.items() if not (own and k in ("args", "calls"))}
            entry = _with_profile(path, {**inherited, **schema}, line_of(schema))
            rows.append(_row(path, entry, line_of(schema), sources))
    return rows


def _with_profile(path: Path, entry: dict[str, Any], line: int) -> dict[str, object]:
    """A row whose quantities the profile that it names has, besides those that stand in the row.

    Raises:
        FileError: if there is no such profile.
    """
    if "profile" not in entry:
        return entry
    if not isinstance(entry["profile"], str):
        raise _wrong(path, line, f"profile is {entry['profile']!r}; it must be the path of a profile")
    measured = quantities_in(read_profile(path.parent / entry["profile"]).metrics)
    own = {k: v for k, v in entry.items() if k != "profile"}
    return {**own, "measured": {**measured, **entry.get("measured", {})}}


def _listed(path: Path, document: Any, name: str) -> Iterable[Any]:
    """The mappings in a list that a mapping holds by name."""
    entries, line = document.get(name), line_of(document)
    if not isinstance(entries, list) or not entries:
        raise _wrong(path, line, f"{name} is {entries!r}; it must be a list with at least one entry")
    for place, entry in enumerate(entries):
        if not isinstance(entry, Mapping):
            line = line_of(entries, place)
            raise _wrong(path, line, f"an entry of {name} is {entry!r}; it must hold names and values")
    return entries


def _sources(path: Path, document: Any) -> dict[str, Source]:
    sources_by_name: dict[str, Source] = {}
    if not isinstance(document, Mapping):
        raise _wrong(path, 1, f"sources is {document!r}; it must hold a source by each name")
    line = line_of(document)
    for name, entry in document.items():
        unknown = set(entry) - {"ref", "commit", "link"} if isinstance(entry, Mapping) else {"..."}
        if unknown or "ref" not in entry:
            raise _wrong(path, line, f"source {name} has ref, and may have commit and link")
        sources_by_name[str(name)] = Source(str(name), **{k: str(v) for k, v in entry.items()})
    return sources_by_name


def _row(path: Path, entry: Mapping[str, Any], line: int, sources: Mapping[str, Source]) -> Row:
    problem, hint = next(_faults(entry, sources), ("", ""))
    if problem:
        raise _wrong(path, line, problem, hint)
    row = {k: _plain(v) for k, v in entry.items() if k not in ("args", "calls", "source")}
    for name in ("units", "contradicts"):
        row[name] = tuple(row.get(name, ()))
    calls = tuple(_call(row["kernel"], call) for call in _calls(entry))
    return Row(**row, calls=calls, source=sources[entry["source"]], line=line)


def _faults(entry: Mapping[str, Any], sources: Mapping[str, Source]) -> Iterator[tuple[str, str]]:
    """What is wrong with a row, and a hint or ""; the first is told."""
    unknown = sorted(set(entry) - _ROW_KEYS)
    if unknown:
        yield f"a row has no {', '.join(unknown)}", f"it has {', '.join(sorted(_ROW_KEYS - {'rows'}))}"
    if ("args" in entry) == ("calls" in entry):
        yield "a row has args, or calls with the args of each", ""
    missing = [name for name in _NEEDED if name not in entry and name != "calls"]
    if missing:
        yield f"the row has no {', '.join(missing)}", ""
    for name, (kind, kind_words) in _OF_TYPE.items():
        if name in entry and not isinstance(entry[name], kind):
            yield f"{name} is {entry[name]!r}; it must be {kind_words}", ""
    if not _calls(entry) or not all(_is_call(call) for call in _calls(entry)):
        yield "an entry of calls is neither a list of args nor kernel and args", ""
    for name, words in _WORDS.items():
        if entry.get(name, words[0]) not in words:
            yield f"{name} is {entry[name]!r}; it must be one of {', '.join(words)}", ""
    if not _is_number(entry["noise"]) or entry["noise"] < 0:
        yield f"noise is {entry['noise']!r}; it must be a number of at least 0", ""
    if entry["source"] not in sources:
        yield f"source is {entry['source']!r}; the file has {', '.join(sources)}", ""
    yield from _measured_faults(entry["measured"])
    try:
        yield from _constant_faults(entry.get("options", {}), chip_named(entry["chip"]))
    except NkilabError as error:
        yield error.problem, ""


def _constant_faults(options: Mapping[str, object], chip: Machine) -> Iterator[tuple[str, str]]:
    constants = options.get("constants", {})
    if not isinstance(constants, Mapping):
        yield f"constants is {constants!r}; it must hold names and values", ""
        return
    known = chip.facts()
    for name, value in constants.items():
        if name not in known:
            yield f"{name} is no constant of {chip.name}", did_you_mean(str(name), known)
        elif needed := chip.needs(name, value):
            yield f"{name} is {value!r}; it must be {needed}", ""


def _measured_faults(measured: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if not measured:
        yield "measured is empty; a row measures something", ""
    for metric, value in measured.items():
        if metric not in QUANTITIES:
            yield f"{metric} is no quantity", f"quantities are {', '.join(QUANTITIES)}"
        if not _is_number(value) or value <= 0:
            yield f"{metric} is {value!r}; it must be a number above 0", ""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _calls(entry: Mapping[str, Any]) -> list[Any]:
    return entry["calls"] if "calls" in entry else [entry["args"]]


def _is_call(entry: Any) -> bool:
    if not isinstance(entry, Mapping):
        return isinstance(entry, list)
    kernel, args = entry.get("kernel"), entry.get("args")
    return set(entry) == {"kernel", "args"} and isinstance(kernel, str) and isinstance(args, list)


def _call(kernel: str, entry: Any) -> Call:
    """A call, of the row's kernel where it names none."""
    named, args = (entry["kernel"], entry["args"]) if isinstance(entry, Mapping) else (kernel, entry)
    return Call(str(named), tuple(_plain(args)))


def _plain(value: Any) -> Any:
    """Built-in types instead of those that remember their place in the file."""
    match value:
        case Mapping():
            return {str(k): _plain(v) for k, v in value.items()}
        case list():
            return [_plain(v) for v in value]
        case bool():
            return bool(value)
        case int() | float() | str():
            return next(t for t in (int, float, str) if isinstance(value, t))(value)
    return value


def _refuse_twins(rows: Iterable[Row], path: Path) -> None:
    seen: set[str] = set()
    for row in rows:
        if row.id in seen:
            raise _wrong(path, row.line, f"id {row.id} stands twice")
        seen.add(row.id)


def _wrong(path: Path, line: int, problem: str, hint: str = "") -> FileError:
    return wrong(path, line, problem, hint or FORMAT)
