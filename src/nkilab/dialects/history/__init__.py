"""What every version of NKI has: names, parameters, and what replaces what is gone.

One text per release stands beside this module, named after the release; it holds what that release added or
changed. A new version is one more text and one more row of `RELEASES`. A line is one of:

    isa.rng(dst, engine=engine.vector, name=None)   a function that is new or has other parameters now
    language.add word                               a word for `op=`, which is not called
    isa.engine                                      any other name
    - language.arange : use slices                  gone; after the colon what to write instead
    ? language.range(start) : nki-library           no stub has it, kernels use it; after the colon who
    + language.load(mode=None) : public kernels     keywords that no stub has, kernels use them
    - isa.sendrecv(use_gpsimd_dma) : dma_engine=    such keywords are gone

Names are relative to `neuronxcc.nki` in Beta 1 and to `nki` from 0.1 on; `tensor` holds what tensors have.
What stands after the colon of a name that is new says what to do in the versions before it.

Source: the vendor's stubs, at the commits that each text names; release notes; published kernels.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files

from msgspec import Struct
from msgspec.structs import replace

BETA1 = "beta1"


class Release(Struct, frozen=True):
    """One release of the vendor's SDK that changed NKI."""

    name: str  # of its text: "2.23", "0.3"
    version: str  # the version of NKI that it is or, before 0.1, belongs to
    sdk: str  # the SDK that has it


RELEASES = (
    *(Release(sdk, BETA1, sdk) for sdk in ("2.20", "2.21", "2.22", "2.23", "2.24", "2.26")),
    Release("0.1", "0.1", "2.27"),
    Release("0.2", "0.2", "2.28"),
    Release("0.3", "0.3", "2.29"),
    Release("0.4", "0.4", "2.30"),
    Release("0.5", "0.5", "2.31"),
    Release("0.6", "0.6", "2.32"),
    Release("0.7", "0.7", "2.33"),
)
# Oldest first.
VERSIONS = tuple(dict.fromkeys(r.version for r in RELEASES))
# The newest of which a stub is public.
NEWEST = "0.6"


class Parameter(Struct, frozen=True):
    """One parameter."""

    name: str  # as spelled
    default: str = ""  # its text; "" if the caller must give it
    is_positional: bool = True  # whether it may be given by position
    is_listed: bool = True  # whether a stub has it


class Signature(Struct, frozen=True):
    """The parameters of a function."""

    parameters: tuple[Parameter, ...]  # in order
    is_open: bool = False  # whether it takes what is not listed: *args or **kwargs

    @property
    def positional(self) -> tuple[str, ...]:
        """Names that may be given by position, in order."""
        return tuple(p.name for p in self.parameters if p.is_positional)

    def named(self, name: str) -> Parameter | None:
        """The parameter of a name."""
        return next((p for p in self.parameters if p.name == name), None)


class Event(Struct, frozen=True):
    """What one release did to one name."""

    release: Release
    kind: str  # "function", "word", "name" or "gone"
    text: str = ""  # of the parameters of a function
    note: str = ""  # what replaces a name that is gone; who uses one that no stub has
    is_listed: bool = True  # whether a stub has it
    extras: str = ""  # text of keywords that no stub has

    @property
    def signature(self) -> Signature:
        """The parameters."""
        return _signature(self.text, self.extras)


@cache
def _signature(text: str, extras: str) -> Signature:
    function = ast.parse(f"def f({text}): ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    args = function.args
    parameters = list(_parameters(args, is_listed=True))
    if extras:
        more = ast.parse(f"def f({extras}): ...").body[0]
        assert isinstance(more, ast.FunctionDef)
        known = {p.name for p in parameters}
        unlisted = _parameters(more.args, is_listed=False)
        parameters += [replace(p, is_positional=False) for p in unlisted if p.name not in known]
    return Signature(tuple(parameters), args.vararg is not None or args.kwarg is not None)


def _parameters(arguments: ast.arguments, is_listed: bool) -> Iterator[Parameter]:
    required = len(arguments.args) - len(arguments.defaults)
    for number, arg in enumerate(arguments.args):
        default = "" if number < required else ast.unparse(arguments.defaults[number - required])
        yield Parameter(arg.arg, default, True, is_listed)
    for arg, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield Parameter(arg.arg, "" if value is None else ast.unparse(value), False, is_listed)


_LINE = re.compile(r"(?:([-?+]) )?([\w.]+)(?:\((.*?)\))?( word)?(?: : (.*))?$")


def _lines(release: Release) -> Iterator[tuple[str, str, str | None, bool, str]]:
    """Mark, name, parameters (None if there are none to give), whether it is a word, and the note of each."""
    text = files(__package__).joinpath(f"{release.name}.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            match = _LINE.fullmatch(line)
            assert match, f"{release.name}.txt: {line}"
            mark, name, parameters, word, note = match.groups()
            yield mark or "", name, parameters, bool(word), note or ""


def _kept_extras(events: list[Event], release: Release) -> str:
    """The extra parameters of a name that a release shows anew: those it had in the same spelling."""
    last = events[-1] if events else None
    if last is None or (last.release.version == BETA1) != (release.version == BETA1):
        return ""
    return last.extras


@cache
def history() -> dict[str, tuple[Event, ...]]:
    """What happened to every name, oldest first."""
    events_of: dict[str, list[Event]] = {}
    for release in RELEASES:
        for line in _lines(release):
            _add_event(events_of.setdefault(line[1], []), release, line)
    return {name: tuple(events) for name, events in events_of.items()}


def _add_event(events: list[Event], release: Release, line: tuple[str, str, str | None, bool, str]) -> None:
    """Add what a line of a release says to what happened to its name before."""
    mark, name, parameters, is_word, note = line
    if mark == "+" or (mark == "-" and parameters is not None):
        assert events, f"{release.name}.txt: {name} has no parameters to add to"
        extras = parameters if mark == "+" else ""
        event = replace(events[-1], release=release, extras=extras or "")
        if events[-1].release is release:
            events.pop()
    elif mark == "-":
        event = Event(release, "gone", note=note)
    else:
        kind = "word" if is_word else "name" if parameters is None else "function"
        event = Event(release, kind, parameters or "", note, mark != "?", _kept_extras(events, release))
    events.append(event)


def order(version: str) -> int:
    """Position of a version, the oldest first."""
    return VERSIONS.index(version)


@cache
def at(name: str, version: str) -> Event | None:
    """What a version has under a name: the event in force, or None if it has no such name."""
    until = VERSIONS[: order(version) + 1]
    events = [e for e in history().get(name, ()) if e.release.version in until]
    return events[-1] if events and events[-1].kind != "gone" else None


def versions_with(name: str) -> tuple[str, ...]:
    """The versions that have a name."""
    return tuple(v for v in VERSIONS if at(name, v) is not None)


def replacement(name: str, version: str) -> str:
    """What to write instead of a name that a version lacks; "" if nothing is known."""
    events = history().get(name, ())
    before = [e for e in events if order(e.release.version) <= order(version)]
    after = [e for e in events if order(e.release.version) > order(version) and e.is_listed]
    near = before[-1:] or after[:1]
    return near[0].note if near else ""


def story(name: str, version: str) -> str:
    """Which versions took a name away before `version` and brought it after: "NKI 0.1 removed it and ..."."""
    return _story_of(versions_with(name), version)


def keyword_story(name: str, keyword: str, version: str) -> str:
    """The same for a keyword of a function; "" if no version has it."""
    return _story_of([v for v in VERSIONS if _has_keyword(name, keyword, v)], version)


def _story_of(having: Sequence[str], version: str) -> str:
    """When what these versions have, but not `version`, went and came."""
    before = [v for v in having if order(v) < order(version)]
    after = [v for v in having if order(v) > order(version)]
    parts = []
    if before:
        parts.append(f"NKI {VERSIONS[order(before[-1]) + 1]} removed it")
    if after:
        parts.append(f"NKI {after[0]} {'brings it back' if before else 'adds it'}")
    return " and ".join(parts)


def _has_keyword(name: str, keyword: str, version: str) -> bool:
    event = at(name, version)
    return event is not None and event.kind == "function" and event.signature.named(keyword) is not None


_SHORT = {"language": "nl", "isa": "nisa", "collectives": "nki.collectives", "typing": "nki.typing",
          "compiler": "nki.compiler"}  # fmt: skip


def spelled(name: str) -> str:
    """A name as users write it: nl.load, nisa.dma_copy, nki.jit, the tensor method reshape."""
    root, _, rest = name.partition(".")
    if root == "tensor" and rest:
        return f"tensor.{rest}"
    return f"{_SHORT[root]}.{rest}" if root in _SHORT and rest else f"nki.{name}"


def canonical_name(written: str) -> str:
    """The name in the tables that a user means: nl.load, nki.language.load, load of nothing.

    Returns:
        "" if there is none.
    """
    word = written.removeprefix("neuronxcc.").removeprefix("nki.")
    for short, long in (("nl.", "language."), ("nisa.", "isa."), ("ncc.", "collectives.")):
        if word.startswith(short):
            word = long + word[len(short) :]
    if word in history():
        return word
    return next((n for n in (f"isa.{word}", f"language.{word}", f"tensor.{word}") if n in history()), "")
