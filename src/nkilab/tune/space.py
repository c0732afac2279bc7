"""What is searched: parameters with their values, and constraints between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from itertools import islice
from math import isfinite, prod
from pathlib import Path
from random import Random
from typing import Any, Protocol

from ..argument_checks import need
from ..argument_checks import path as path_of
from ..errors import FileError, UsageError, shown
from ..tracebacks import public
from ..yaml_files import key_line, line_of, loaded, wrong
from .expressions import Constraint, Value, constraint

SCHEMA = "nkilab.space/1"
HINT = "see docs/tune.md for the format"
KEYS = ("parameters", "points", "constraints")
KINDS = ("integers", "powers_of_two", "choices")
# Points that are counted, and combinations that are looked at in search of the first; more take too long.
COUNTED = 100_000
LOOKED_AT = 1_000_000

Point = dict[str, Value]


class Entry(Protocol):
    """Where an error is, of what was read from a file or written in Python."""

    def __call__(self, problem: str, hint: str = HINT) -> Exception:
        """The error with this problem."""


@dataclass(frozen=True)
class Parameter:
    """A parameter and the values it may have."""

    name: str  # of the kernel's parameter
    kind: str  # "integers", "powers_of_two" or "choices"
    values: Sequence[Value]  # in order

    @property
    def is_ordered(self) -> bool:
        """Whether neighbouring values are alike."""
        return self.kind != "choices"


def integers(name: str, low: int, high: int, step: int = 1) -> Parameter:
    """Whole numbers from low to high, both included, `step` apart."""
    return Parameter(name, "integers", range(low, high + 1, step))


def powers_of_two(name: str, low: int, high: int) -> Parameter:
    """1, 2, 4, ... as far as they lie between low and high, both included."""
    return Parameter(
        name, "powers_of_two", tuple(2**i for i in range(high.bit_length()) if low <= 2**i <= high)
    )


def choices(name: str, values: Sequence[Value]) -> Parameter:
    """Any of some numbers or words, which have no order."""
    return Parameter(name, "choices", tuple(values))


@dataclass(frozen=True)
class Space:
    """Parameters and what must hold between them.

    Args:
        parameters: at least one, names differ.
        constraints: between them.
        listed: the points themselves, where they are written one by one; () where every combination is one.
    """

    parameters: tuple[Parameter, ...]
    constraints: tuple[Constraint, ...] = ()
    listed: tuple[Point, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Of the parameters."""
        return tuple(parameter.name for parameter in self.parameters)

    @property
    def combinations(self) -> int:
        """How many combinations of values there are, constraints aside."""
        return len(self.listed) or prod(len(parameter.values) for parameter in self.parameters)

    @cached_property
    def count(self) -> int | None:
        """How many points there are; None if they are too many to count."""
        if self.combinations > LOOKED_AT:
            return None
        count = sum(1 for _ in islice(self.points(), COUNTED + 1))
        return count if count <= COUNTED else None

    def holds(self, point: Mapping[str, Value]) -> bool:
        """Whether a combination of values is listed, if points are, and satisfies every constraint."""
        return (not self.listed or point in self.listed) and self._is_allowed(point)

    def _is_allowed(self, point: Mapping[str, Value]) -> bool:
        return all(one.holds(point) for one in self.constraints)

    def contains(self, point: Mapping[str, Any]) -> bool:
        """Whether a point is one of the space."""
        if point.keys() != set(self.names):
            return False
        return all(_is_among(point[p.name], p.values) for p in self.parameters) and self.holds(point)

    def points(self) -> Iterator[Point]:
        """All points: as listed, or the last parameter changing fastest, cut by constraints early."""
        if self.listed:
            return (dict(point) for point in self.listed if self._is_allowed(point))
        return self._from({}, 0, [-1])

    def _from(self, known: Point, depth: int, left: list[int]) -> Iterator[Point]:
        """Points that begin with known values; looks at `left` values at most, if that is not negative."""
        if depth == len(self.parameters):
            yield dict(known)
            return
        parameter, due = self.parameters[depth], self._due[depth]
        for value in parameter.values:
            if left[0] == 0:
                break
            left[0] -= 1
            known[parameter.name] = value
            if all(one.holds(known) for one in due):
                yield from self._from(known, depth + 1, left)
        known.pop(parameter.name, None)

    def among_first(self) -> Iterator[Point]:
        """Points that are found among the first million values that are looked at."""
        return self.points() if self.listed else self._from({}, 0, [LOOKED_AT])

    def drawn(self, random: Random) -> Point:
        """A combination at random, whether or not the constraints allow it."""
        if self.listed:
            return dict(random.choice(self.listed))
        return {p.name: p.values[random.randrange(len(p.values))] for p in self.parameters}

    def fixed(self, known: Mapping[str, Value]) -> Space:
        """The space where some parameters have one value each, which need not be one of theirs."""
        parameters = tuple(
            Parameter(p.name, "choices", (known[p.name],)) if p.name in known else p for p in self.parameters
        )
        listed = tuple(p for p in self.listed if all(p[name] == value for name, value in known.items()))
        return replace(self, parameters=parameters, listed=listed)

    @property
    def has_points(self) -> bool:
        """Whether a point is found among the first million values that are looked at."""
        return next(self.among_first(), None) is not None

    @property
    def is_empty(self) -> bool:
        """Whether there is no point for certain."""
        left = [LOOKED_AT]
        if self.listed:
            return not self.has_points
        return next(self._from({}, 0, left), None) is None and left[0] > 0

    @cached_property
    def _due(self) -> list[list[Constraint]]:
        """Per parameter, the constraints whose last name it is."""
        place = {name: i for i, name in enumerate(self.names)}
        due: list[list[Constraint]] = [[] for _ in self.parameters]
        for one in self.constraints:
            due[max(place[name] for name in one.names)].append(one)
        return due

    @cached_property
    def digest(self) -> str:
        """What names the space: its parameters, values and constraints."""
        # a range by its ends: it may have billions of values
        parts = [
            (p.name, p.kind, p.values if isinstance(p.values, range) else list(p.values))
            for p in self.parameters
        ]
        return sha256(repr((parts, [c.text for c in self.constraints], self.listed)).encode()).hexdigest()[
            :16
        ]

    def checked(self) -> Space:
        """The space itself, if it has points.

        Raises:
            UsageError: if no point satisfies the constraints.
        """
        if self.has_points:
            return self
        empty_by_itself = next((c for c in self.constraints if Space(self._of(c), (c,)).is_empty), None)
        if empty_by_itself or self.is_empty:
            reason = (
                f"{empty_by_itself.text} holds for none"
                if empty_by_itself
                else "together the constraints hold for none"
            )
            problem = f"the space has no point: {reason} of {self.combinations:,} combinations"
        else:
            problem = (
                f"no point is found: the constraints hold for none of the first {LOOKED_AT:,} values that "
                f"are looked at, of {self.combinations:,} combinations"
            )
        error = UsageError(problem, hint="leave out a constraint, or give its parameters other values")
        error.located(empty_by_itself.where if empty_by_itself else "", "")
        raise error

    def _of(self, one: Constraint) -> tuple[Parameter, ...]:
        return tuple(p for p in self.parameters if p.name in one.names)


@public
def space_of(entries: Mapping[str, object] | Sequence[object], constraints: Sequence[str] = ()) -> Space:
    """A space written in Python.

    Args:
        entries: per parameter a list of choices, or {"integers": [1, 8]}, {"powers_of_two": [1, 16]},
            {"choices": [...]} as a file writes it; or a list of points, [{"rows": 64}, {"rows": 128}].
        constraints: expressions such as "tiles_m * tiles_n <= 16".

    Raises:
        UsageError: if it is none, or no point satisfies the constraints.
    """

    if isinstance(constraints, str) or not isinstance(constraints, Sequence):
        raise UsageError(f"constraints is {shown(constraints)}; it must be a list of expressions")

    def fault(problem: str, hint: str = HINT) -> Exception:
        return UsageError(problem, hint=hint)

    placed = [(text, "") for text in constraints]
    if not isinstance(entries, Mapping):
        need("the space", entries, (list, tuple), 'a dictionary, as {"rows": [64, 128]}, or a list of points')
        return _constrained(*_listed(entries, lambda number: fault, fault), placed)
    return _constrained(_combined(entries, lambda name: fault, fault), (), placed)


@public
def read_space(path: Path) -> Space:
    """The space that a YAML file writes.

    Raises:
        FileError: if it cannot be read, or is written otherwise; names the line.
        UsageError: if a constraint is none, or no point satisfies them.
    """
    path = path_of("path", path)
    document: Any = loaded(path, HINT)
    if not isinstance(document, Mapping) or document.get("schema") != SCHEMA:
        schema = document.get("schema") if isinstance(document, Mapping) else None
        hint = f"begin the file with the line schema: {SCHEMA}" if schema is None else HINT
        raise FileError(f"{path} has schema {schema!r}; a space has {SCHEMA!r}", hint=hint)

    def at(line: int) -> Entry:
        return lambda problem, hint=HINT: wrong(path, line, problem, hint)

    first = at(line_of(document))
    unknown: list[Any] = [key for key in document if key not in ("schema", *KEYS)]
    if unknown:
        raise at(key_line(document, unknown[0]))(f"{unknown[0]!r} is no key; there are {', '.join(KEYS)}")
    entries: Any = document.get("parameters")
    points: Any = document.get("points")
    texts = document.get("constraints", [])
    if (entries is None) == (points is None):
        raise first("a space has either parameters or points: values to combine, or a list of points")
    if points is None and not isinstance(entries, Mapping):
        raise first(f"parameters is {entries!r}; it must hold the values of a parameter by its name")
    if entries is None and not isinstance(points, list):
        raise first(
            f"points is {_plain(points)!r}; it must be a list of points, as in [{{rows: 8}}, {{rows: 16}}]"
        )
    if not isinstance(texts, list):
        raise first(f"constraints is {texts!r}; it must be a list of expressions")
    placed = [(text, f"{path.name}:{line_of(texts, i)}") for i, text in enumerate(texts)]
    if entries is None:
        return _constrained(*_listed(points, lambda i: at(line_of(points, i)), first), placed)
    return _constrained(_combined(entries, lambda name: at(key_line(entries, name)), first), (), placed)


def _constrained(
    parameters: tuple[Parameter, ...], listed: tuple[Point, ...], constraints: Sequence[tuple[Any, str]]
) -> Space:
    names = frozenset(p.name for p in parameters)
    for text, where in constraints:
        if not isinstance(text, str):
            error = UsageError(f"a constraint is {text!r}; it must be an expression", hint=HINT)
            error.located(where, "")
            raise error
    own = tuple(constraint(text, names, where) for text, where in constraints)
    return Space(parameters, own, listed).checked()


def _combined(
    entries: Mapping[str, object], at: Callable[[str], Entry], whole: Entry
) -> tuple[Parameter, ...]:
    """Parameters whose values are combined."""
    if not entries:
        raise whole("the space is empty; it needs at least one parameter")
    return tuple(_parameter(name, entry, at(name)) for name, entry in entries.items())


def _listed(
    points: Sequence[object], at: Callable[[int], Entry], whole: Entry
) -> tuple[tuple[Parameter, ...], tuple[Point, ...]]:
    """Parameters of points that are written one by one, and the points."""
    if not 0 < len(points) <= COUNTED:
        raise whole(f"the space lists {len(points):,} points; it must list one to {COUNTED:,}")
    listed: list[Point] = []
    for number, entry in enumerate(points):
        fault = at(number)
        if not isinstance(entry, Mapping) or not entry:
            raise fault(f"a point is {_plain(entry)!r}; it must hold a value per name, as in {{rows: 8}}")
        if listed and entry.keys() != listed[0].keys():
            raise fault(f"a point has {_names(entry)}; the first one has {_names(listed[0])}")
        listed.append({_name(name, fault): _value(name, value, fault) for name, value in entry.items()})
    first: dict[str, int] = {}
    for number, point in enumerate(listed):
        if first.setdefault(repr(sorted(point.items())), number) != number:
            raise at(number)(f"{_plain(points[number])!r} is listed twice")
    values = {name: {(type(p[name]), p[name]): p[name] for p in listed} for name in listed[0]}
    return tuple(choices(name, tuple(own.values())) for name, own in values.items()), tuple(listed)


def _names(point: Iterable[object]) -> str:
    return ", ".join(map(str, point))


def _name(name: object, fault: Entry) -> str:
    """The name of a parameter, of a field of one (config.rows), or of a global."""
    if not isinstance(name, str) or not all(word.isidentifier() for word in name.split(".")):
        raise fault(f"{name!r} is no name of a parameter")
    return str(name)


def _parameter(name: Any, entry: Any, fault: Entry) -> Parameter:
    name = _name(name, fault)
    if isinstance(entry, list | tuple):
        entry = {"choices": entry}
    if not isinstance(entry, Mapping) or len(set(KINDS) & entry.keys()) != 1 or set(entry) - {*KINDS, "step"}:
        advice = "write integers: [1, 8], powers_of_two: [1, 16] or choices: [...]"
        raise fault(f"{name} is {_plain(entry)!r}; {advice}")
    kind = next(k for k in KINDS if k in entry)
    if "step" in entry and kind != "integers":
        raise fault(f"{name} has a step; only integers have one")
    if kind == "choices":
        return _choices(name, entry[kind], fault)
    low, high = _bounds(name, kind, entry[kind], fault)
    step = entry.get("step", 1)
    if not _is_whole(step) or step < 1:
        raise fault(f"the step of {name} is {step!r}; it must be a whole number of at least 1")
    value_set = integers(name, low, high, step) if kind == "integers" else powers_of_two(name, low, high)
    if not value_set.values:
        raise fault(f"{name} has no value: no {kind.replace('_', ' ')} lie between {low} and {high}")
    return value_set


def _is_among(value: object, values: Sequence[Value]) -> bool:
    """Whether a value is one of them, with its type: True is not 1 to a kernel."""
    if isinstance(values, range):
        return type(value) is int and value in values
    return any(type(value) is type(one) and value == one for one in values)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _bounds(name: str, kind: str, bounds: Any, fault: Entry) -> tuple[int, int]:
    if not isinstance(bounds, list | tuple) or len(bounds) != 2 or not all(map(_is_whole, bounds)):
        raise fault(f"{kind} of {name} is {bounds!r}; it must be the lowest and the highest, as in [1, 8]")
    if abs(bounds[0]) > 2**40 or abs(bounds[1]) > 2**40:
        raise fault(f"{kind} of {name} is {list(bounds)}; the bounds are below 2 ** 40")
    return int(bounds[0]), int(bounds[1])


def _choices(name: str, listed: object, fault: Entry) -> Parameter:
    if not isinstance(listed, list | tuple) or not listed:
        raise fault(f"choices of {name} is {listed!r}; it must be a list with at least one value")
    values = [_value(name, value, fault) for value in listed]
    if len({(type(v), v) for v in values}) < len(values):
        raise fault(f"choices of {name} has a value twice")
    return choices(name, values)


def _value(name: str, value: Any, fault: Entry) -> Value:
    """A choice as a plain value: what a YAML file holds knows its line."""
    for plain in (bool, int, float, str):
        if isinstance(value, plain) and (not isinstance(value, float) or isfinite(value)):
            return plain(value)
    raise fault(f"a choice of {name} is {value!r}; it must be a finite number or a word")
