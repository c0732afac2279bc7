"""Functions of `nki` held to the parameters of one version, or taking those of all.

The text of a function is generated where its own parameters are not those asked for: the usual call costs one
more call, and what only some versions spell so goes the long way, through `_Plan.call`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter as OwnParameter
from inspect import signature
from typing import Any, NoReturn

import numpy as np

from ..errors import NkilabError, SpellingError, UnsupportedError
from ..isa.declare import Instruction
from ..tiles.tile import View
from ..trace.session import ask
from ..trace.source import place_of, user_frame
from ..tracebacks import leave_out_ours, public
from . import enums
from .generated_functions import MISSING, called_through, guarded_body, refuse_unknown
from .history import NEWEST, Event, Signature, at, keyword_story, order, spelled, versions_with

# What a keyword of some version means in the parameters of the function that is served.
Translation = Callable[[Any], dict[str, Any]]
TRANSLATIONS: dict[tuple[str, str], Translation] = {
    ("isa.register_move", "imm"): lambda value: {"src": value},
    ("isa.register_move", "src"): lambda value: {"imm": value},
    ("isa.sendrecv", "use_gpsimd_dma"): lambda value: {"dma_engine": "gpsimd_dma" if value else "dma"},
    ("isa.nc_matmul", "is_moving_zero"): lambda value: {"is_moving_onezero": value},
    # bit 0 marks the first product of a group, which overwrites (KLR front end)
    ("isa.nc_matmul", "psumAccumulateFlag"): lambda value: (
        {} if value is None else {"accumulate": not int(value) & 1}
    ),
}
FP32_MIN = float(np.finfo(np.float32).min)


class Word:
    """A word for `op=`, which is no function, or none in a version; "" for all of them."""

    def __init__(self, name: str, version: str = "") -> None:
        self.__name__ = self.name = name
        self._version = version

    @public
    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        own, version = f"language.{self.name}", self._version or NEWEST
        later = [v for v in versions_with(own) if order(v) > order(version)]
        called = next((v for v in later if (event := at(own, v)) and event.kind == "function"), "")
        raise SpellingError(
            f"nl.{self.name} is a word for op={self._version and f' in NKI {version}'}, not a function"
            + (f"; NKI {called} makes it one" if called else ""),
            hint=f"use it as op=nl.{self.name} in nisa.tensor_tensor, tensor_scalar or activation",
            source=f"stubs of NKI {version}",
        ).located(place_of(user_frame()), f"nl.{self.name}")

    def __repr__(self) -> str:
        return f"nl.{self.name}"


def limited_to_version(name: str, target: Any, version: str) -> Any:
    """What a version has under a name that it has: the target, or a stand-in with the version's parameters.

    Args:
        name: in the tables of `history`.
        target: what is served.
        version: one version, or "" for the parameters of all.
    """
    events = _events(name, version)
    if not events or not callable(target) or isinstance(target, type):
        return target
    if version and events[0].kind == "word":
        return Word(name.rpartition(".")[2], version)
    signatures = [e.signature for e in events if e.kind == "function"]
    if not signatures or signatures[0].is_open:
        return target
    own = _own_parameters(target)
    if own is None or _agrees(name, own, signatures, version):
        return target
    return _Plan(name, target, own, signatures, version).function()


def _events(name: str, version: str) -> list[Event]:
    """The events in force in the versions asked for, the newest first, each once."""
    versions = (version,) if version else tuple(v for v in versions_with(name) if v != "beta1")
    events = [at(name, v) for v in reversed(versions)]
    return list(dict.fromkeys(e for e in events if e is not None))


def _own_parameters(target: Any) -> dict[str, OwnParameter] | None:
    """The parameters of what is served; None if it takes any."""
    try:
        parameters = signature(target).parameters
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_POSITIONAL for p in parameters.values()):
        return None
    return {n: p for n, p in parameters.items() if p.kind is not p.VAR_KEYWORD}


def _is_required(parameter: OwnParameter) -> bool:
    return parameter.default is parameter.empty or parameter.default is MISSING


def _agrees(
    name: str, own: Mapping[str, OwnParameter], signatures: Sequence[Signature], version: str
) -> bool:
    """Whether the parameters served are those asked for: no stand-in is needed."""
    first = signatures[0]
    # a label, which every version takes; whether also by position matters to nobody
    listed = [p for p in first.parameters if p.name != "name"]
    mine = [p for p in own.values() if p.name != "name"]
    positional = [p.name for p in mine if p.kind is not p.KEYWORD_ONLY]
    if positional[: len(first.positional)] != [p.name for p in listed if p.is_positional]:
        return False
    if version and {p.name for p in listed} != {p.name for p in mine}:
        return False
    if version and any(_is_required(own[p.name]) != (not p.default) for p in listed):
        return False
    if version and any(_default_changed(name, p.name, p.default) for p in listed):
        return False
    if version and any(_conflict(first, e.signature) < _required(first) for e in _events(name, "")):
        return False
    older = {p.name for s in signatures[1:] for p in s.parameters if p.is_listed} - {"name"}
    return older <= set(own) and not any(_conflict(first, s) < len(s.positional) for s in signatures[1:])


def _conflict(first: Signature, other: Signature) -> int:
    """The first position where two signatures differ."""
    pairs = zip(first.positional, other.positional, strict=False)
    same = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    short = min(len(first.positional), len(other.positional))
    place = short if same is None else same
    is_label = other.positional[place:] == ("name",)
    return len(other.positional) if is_label else place


def _required(signature: Signature) -> int:
    """How many parameters a caller must give."""
    return sum(not p.default for p in signature.parameters)


def _default_changed(name: str, keyword: str, text: str) -> bool:
    """Whether a default is another one than in the newest version that has the parameter."""
    for version in reversed([v for v in versions_with(name) if order(v) <= order(NEWEST)]):
        event = at(name, version)
        newest = event.signature.named(keyword) if event is not None and event.kind == "function" else None
        if newest is not None:
            return bool(text) and newest.default != text
    return False


def _resolved(text: str) -> Any:
    """The value that the text of a default means; operators and dtypes stand for themselves."""
    if text == "FP32_MIN":
        return FP32_MIN
    owner, _, member = text.partition(".")
    if member and hasattr(enums, owner):
        return getattr(getattr(enums, owner), member)
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


class _Plan:
    """How one function is called in other words than its own.

    Args:
        name: in the tables of `history`.
        target: what is served.
        own: its parameters.
        signatures: those accepted, the newest first.
        version: the one version asked for, or "".
    """

    def __init__(
        self, name: str, target: Callable[..., Any], own: Mapping[str, OwnParameter],
        signatures: Sequence[Signature], version: str,
    ) -> None:  # fmt: skip
        self.name, self.target, self.own, self.version = name, called_through(target), own, version
        self.signatures = tuple(signatures)
        first = self.signatures[0]
        places = [_conflict(first, s) for s in self.signatures[1:]]
        if version:
            # arguments in the order of another version are told, not misread
            places += [
                p for e in _events(name, "") if (p := _conflict(first, e.signature)) < _required(first)
            ]
        foreign = [i for i, n in enumerate(first.positional) if n not in own]
        # those that every version gives by the same position; what follows them is looked at closely
        self.leading = first.positional[: min([len(first.positional), *places, *foreign])]
        # what the newest has not goes the long way, where it is noticed
        self.defaults = {n: self._default(n) for n in own if first.named(n)}
        self.needed = [n for n, d in self.defaults.items() if d is MISSING and not _is_required(own[n])]

    def _named(self, keyword: str) -> Signature | None:
        return next((s for s in self.signatures if s.named(keyword)), None)

    def _default(self, keyword: str) -> Any:
        plan_named = self._named(keyword)
        listed = plan_named.named(keyword) if plan_named is not None else None
        mine = self.own[keyword]
        if listed is None or not listed.default:
            return MISSING if self.version or _is_required(mine) else mine.default
        if _is_required(mine) or (self.version and _default_changed(self.name, keyword, listed.default)):
            return _resolved(listed.default)
        return mine.default

    def function(self) -> Callable[..., Any]:
        """The function, generated."""
        called = self.name.rpartition(".")[2]
        rest = [n for n in self.defaults if n not in self.leading]
        heads = [*(f"{n}=_d_{n}" for n in self.leading), "*rest", *(f"{n}=_d_{n}" for n in rest)]
        named = ", ".join(f"{n}={n}" for n in self.defaults)
        test = " or ".join(["rest", "unknown", *(f"{n} is _MISSING" for n in self.needed)])
        text = [
            f"    if {test}:",
            f"        return _call(rest, dict({named}), unknown)",
            f"    return _target({self._passed()})",
        ]
        text = [f"def {called}({', '.join(heads)}, **unknown):", *guarded_body(text)]
        scope: dict[str, Any] = {
            "_call": self.call, "_target": self.target, "_MISSING": MISSING,
            "_leave_out_ours": leave_out_ours,
        }  # fmt: skip
        scope.update((f"_d_{n}", d) for n, d in self.defaults.items())
        exec(compile("\n".join(text), f"<nkilab {self.name}>", "exec"), scope)
        function: Callable[..., Any] = scope[called]
        function.__doc__ = self.target.__doc__
        function.__qualname__ = called
        function.__wrapped__ = self.target  # type: ignore[attr-defined]
        return function

    def _passed(self) -> str:
        """The arguments of the target, by position as far as its parameters allow: that costs less."""
        by_position = []
        for name, parameter in self.own.items():
            if parameter.kind is parameter.KEYWORD_ONLY or name not in self.defaults:
                break
            by_position.append(name)
        rest = [n for n in self.defaults if n not in by_position]
        return ", ".join([*by_position, *(f"{n}={n}" for n in rest)])

    def call(self, rest: Sequence[Any], named: Mapping[str, Any], unknown: Mapping[str, Any]) -> Any:
        """Call the target with what was given, in the words of the first signature that it fits."""
        arguments = {n: v for n, v in named.items() if v is not self.defaults[n]} | dict(unknown)
        chosen, arguments = self._fitting(rest, arguments)
        if chosen is not self.signatures[0] and rest:
            self._notice("positional arguments in an older order", self._since(chosen))
        words: dict[str, Any] = {}
        for keyword, value in arguments.items():
            words |= self._translated(keyword, value)
        full = {n: d for n, d in self.defaults.items() if d is not self.own[n].default} | words
        absent = [p.name for p in chosen.parameters if not p.default and p.name not in arguments]
        if absent and self.version:
            what = f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not given"
            raise SpellingError(
                f"{what}; NKI {self.version} has no default",
                hint=f"give {' and '.join(f'{n}=' for n in absent)}",
            ).located(place_of(user_frame()), self.name.rpartition(".")[2])
        return self.target(**{n: v for n, v in full.items() if v is not MISSING})

    def _fitting(self, rest: Sequence[Any], arguments: Mapping[str, Any]) -> tuple[Signature, dict[str, Any]]:
        """The first signature that the arguments fit, and the arguments by its names."""
        for candidate in self.signatures:
            names = candidate.positional[len(self.leading) :][: len(rest)]
            all_given = dict(zip(names, rest, strict=False)) | dict(arguments)
            is_whole = len(names) == len(rest) and len(all_given) == len(rest) + len(arguments)
            known = all(candidate.named(n) for n in all_given)
            if is_whole and known and self._fits(all_given):
                return candidate, all_given
        first = self.signatures[0]
        names = first.positional[len(self.leading) :]
        if rest and self.version:
            self._refuse_older_order(rest, arguments)
        if len(rest) > len(names):
            most = len(first.positional)
            raise SpellingError(
                f"{len(self.leading) + len(rest)} positional arguments are given; it takes {most}"
            ).located(place_of(user_frame()), self.name.rpartition(".")[2])
        return first, dict(zip(names, rest, strict=False)) | dict(arguments)

    def _refuse_older_order(self, rest: Sequence[Any], arguments: Mapping[str, Any]) -> None:
        """Say so if what does not fit the version asked for stands in the order of another."""
        first = self.signatures[0]
        for other in (e.signature for e in _events(self.name, "") if e.kind == "function"):
            names = other.positional[len(self.leading) :][: len(rest)]
            all_given = dict(zip(names, rest, strict=False)) | dict(arguments)
            fits = (
                len(names) == len(rest) and all(other.named(n) for n in all_given) and self._fits(all_given)
            )
            if fits and len(all_given) == len(rest) + len(arguments):
                called = self.name.rpartition(".")[2]
                meant = other.positional[: len(self.leading)] + names
                wanted = [n for n in first.positional if n != "name"]
                raise SpellingError(
                    f"the positional arguments stand for {', '.join(meant)}; in NKI {self.version} they "
                    f"stand for {', '.join(wanted)}",
                    hint="give them by keyword",
                ).located(place_of(user_frame()), called)

    def _fits(self, arguments: Mapping[str, Any]) -> bool:
        """Whether tiles stand where the instruction has operands, and words where it has attributes."""
        cls: type[Instruction] | None = getattr(self.target, "instruction", None)
        return cls is None or all(_suits(cls, n, v) for n, v in arguments.items())

    def _since(self, chosen: Signature) -> str:
        having = [v for v in versions_with(self.name) if v != "beta1"]
        last = [v for v in having if chosen in [e.signature for e in _events(self.name, v)]][-1]
        return f"NKI {having[having.index(last) + 1]} changed it"

    def _translated(self, keyword: str, value: Any) -> dict[str, Any]:
        """One argument in the words of the target."""
        newest = self.signatures[0].named(keyword)
        if newest is None:
            self._unknown(keyword, value)
            story = keyword_story(self.name, keyword, NEWEST)
            self._notice(f"the keyword {keyword}", story)
        if keyword in self.own:
            return {keyword: value}
        translate = TRANSLATIONS.get((self.name, keyword))
        if translate is not None:
            return translate(value)
        parameter = next(p for s in self.signatures for p in s.parameters if p.name == keyword)
        if parameter.is_listed and value != _resolved(parameter.default):
            raise UnsupportedError(
                f"{keyword} is {value!r}; nkilab models {spelled(self.name)} without {keyword}="
            ).located(place_of(user_frame()), self.name.rpartition(".")[2])
        if not parameter.is_listed:
            ask().notice(f"{spelled(self.name)} ignores the keyword {keyword}")
        return {}

    def _unknown(self, keyword: str, value: Any) -> None:
        """Refuse a keyword that no version asked for has."""
        if self._named(keyword) is None:
            known = [p.name for p in self.signatures[0].parameters]
            refuse_unknown(self.name.rpartition(".")[2], {keyword: value}, known, self.name, self.version)

    def _notice(self, what: str, story: str) -> None:
        if not self.version:
            ask().notice(f"{what} of {spelled(self.name)}: {story}")


def _suits(cls: type[Instruction], name: str, value: Any) -> bool:
    """Whether a value may stand for a parameter of an instruction, from its kind alone."""
    if name in cls.operands:
        spec = cls.operands[name]
        if isinstance(value, list | tuple):
            return bool(spec.most)
        if isinstance(value, View) or not isinstance(value, int | float | np.generic | str | type(None)):
            return not callable(value)
        return (value is None and spec.is_optional) or (spec.may_be_number and not isinstance(value, str))
    if name in cls.attributes:
        try:
            cls.attributes[name].canonical(name, value)
        except NkilabError:
            return False
        return True
    return not isinstance(value, View | str | list | tuple)
