"""YAML as data with places: parsed without running anything, bounded in size, without aliases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from io import StringIO
from typing import Any

from ..._lazy import ruamel_yaml
from ...errors import SpecError, nearest
from .ast import Place

MOST_CHARACTERS = 1 << 18
MOST_NODES = 20_000
LONGEST_VALUE = 4000
DEEPEST = 16
CORE_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "seq", "map")}


@dataclass(frozen=True)
class Node:
    """A value of a specification, with its key and place."""

    value: Any  # a dictionary of nodes, a list of nodes, or a text, number, truth value or None
    path: str  # keys from the root, joined by dots
    place: Place  # of the value
    key_place: Place = field(default=Place())  # of the key it stands under

    def fail(self, problem: str, hint: str = "", *, at_key: bool = False) -> SpecError:
        """An error at this place."""
        error = SpecError(problem, hint=hint)
        error.located(str(self.key_place if at_key and self.key_place.line else self.place), self.path)
        return error

    def within(self, *keys: str) -> Node:
        """The node that keys, and last a word of a list, lead to; the nearest above it that is written."""
        node = self
        for key in keys:
            below = node.value
            if isinstance(below, list):
                return next((entry for entry in below if entry.value == key), node)
            if not isinstance(below, dict) or key not in below:
                break
            node = below[key]
        return node

    @property
    def at_key(self) -> Node:
        """It with the place of its key."""
        return replace(self, place=self.key_place) if self.key_place.line else self

    def entries(self) -> dict[str, Node]:
        """The keys and values of a mapping; none where nothing is written.

        Raises:
            SpecError: if it is none.
        """
        if self.value is None:
            return {}
        if not isinstance(self.value, dict):
            hint = f"write {self.path.rpartition('.')[2]}: {{KEY: VALUE}}"
            raise self.fail(f"{shown(self.value)} stands where keys and values are needed", hint)
        return self.value

    def items(self) -> list[Node]:
        """The entries of a list; none where nothing is written.

        Raises:
            SpecError: if it is none.
        """
        if self.value is None:
            return []
        if not isinstance(self.value, list):
            hint = "put it into brackets, or begin it with '- '"
            raise self.fail(f"{shown(self.value)} stands where a list is needed", hint)
        return self.value

    def text(self) -> str:
        """A word.

        Raises:
            SpecError: if it is none.
        """
        if not isinstance(self.value, str):
            raise self.fail(f"{shown(self.value)} stands where a name is needed")
        return self.value

    def words(self) -> tuple[str, ...]:
        """A list of words."""
        return tuple(entry.text() for entry in self.items())

    def whole(self, least: int = 1) -> int:
        """A whole number.

        Raises:
            SpecError: if it is none, or below `least`.
        """
        if isinstance(self.value, bool) or not isinstance(self.value, int) or self.value < least:
            hint = "leave the quotes out" if isinstance(self.value, str) and self.value.isdecimal() else ""
            told = f"{shown(self.value)} stands where a whole number of at least {least} is needed"
            raise self.fail(told, hint)
        return self.value

    def number(self) -> float:
        """A number.

        Raises:
            SpecError: if it is none.
        """
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise self.fail(f"{shown(self.value)} stands where a number is needed")
        return self.value

    def only(self, *known: str) -> dict[str, Node]:
        """The entries of a mapping all of whose keys are known.

        Raises:
            SpecError: at the first key that is not.
        """
        held = self.entries()
        for key, node in held.items():
            if key not in known:
                close = nearest(key.replace("_", "-"), known)
                raise node.fail(
                    f"{key[:60]} is no key here; the keys are {', '.join(known)}",
                    f"write {close[0]}, if that is meant" if close else "",
                    at_key=True,
                )
        return held


def shown(value: Any) -> str:
    """A value in a message."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return "nothing" if value is None else repr(value)[:60]


class _Builder:
    def __init__(self, file: str, first_line: int) -> None:
        self.file, self.first = file, first_line

    def place(self, mark: tuple[int, int] | None) -> Place:
        return Place(self.file, mark[0] + self.first, mark[1] + 1) if mark else Place(self.file)

    def node(self, value: Any, path: str, place: Place, key_place: Place) -> Node:
        if isinstance(value, Mapping):
            marks: Any = value
            held = {}
            for key in value:
                at_key, at = self.place(marks.lc.key(key)), self.place(marks.lc.value(key))
                name = f"{path}.{key}" if path else str(key)
                held[str(key)] = self.node(value[key], name, at, at_key)
            return Node(held, path, place, key_place)
        if isinstance(value, list):
            marks = value
            entries = [
                self.node(entry, f"{path}[{i}]", self.place(marks.lc.item(i)), key_place)
                for i, entry in enumerate(value)
            ]
            return Node(entries, path, place, key_place)
        return Node(_plain(value, path, place), path, place, key_place)


def _plain(value: Any, path: str, place: Place) -> Any:
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    if value is None:
        return None
    raise SpecError(f"a value of type {type(value).__name__} is no text or number").located(str(place), path)


def read_nodes(text: str, file: str = "", first_line: int = 1) -> Node:
    """The values of a YAML text with their places.

    Args:
        text: YAML; tags are refused, so that it can only hold texts, numbers, lists and mappings.
        file: name for messages.
        first_line: line of the file that the text begins on.

    Raises:
        SpecError: if it does not parse, is too large or too deep.
    """
    if len(text) > MOST_CHARACTERS:
        raise SpecError(
            f"the specification has {len(text)} characters; at most {MOST_CHARACTERS} are read"
        ).located(file, "spec")
    yaml = ruamel_yaml()
    guard = _Guard(file, first_line)
    try:
        # events come one after the other: what is too much is refused before anything is built of it
        for event in yaml.YAML(typ="rt").parse(StringIO(text)):
            guard.look(event)
        loaded = yaml.YAML(typ="rt").load(text)
    except (yaml.error.YAMLError, ValueError, TypeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f"{file}:{mark.line + first_line}:{mark.column + 1}" if mark else file
        told = (getattr(error, "problem", None) or str(error) or "it does not parse").split("\n")[0]
        told, *others = told.split(" with value ")  # of a key that stands twice
        hint = "write it once" if others else "indent keys of one level alike, and close what is opened"
        told = f"this is no YAML: {told[:200]}"
        raise SpecError(told, hint=hint).located(line.lstrip(":"), "spec") from None
    builder = _Builder(file, first_line)
    return builder.node(loaded, "", Place(file, first_line, 1), Place())


class _Guard:
    """Refuses tags, anchors, aliases, which make a small text large, and what is too deep or too much."""

    def __init__(self, file: str, first_line: int) -> None:
        self.file, self.first, self.depth, self.count = file, first_line, 0, 0

    def look(self, event: Any) -> None:
        """Take one event into account.

        Raises:
            SpecError: if it is refused.
        """
        kind, told = type(event).__name__, ""
        self.count += 1
        self.depth += kind in ("SequenceStartEvent", "MappingStartEvent")
        self.depth -= kind in ("SequenceEndEvent", "MappingEndEvent")
        tag = getattr(event, "tag", None)
        if tag and str(tag) not in CORE_TAGS:
            told = f"the tag {tag} is refused; a specification holds texts, numbers, lists and mappings"
        elif kind == "AliasEvent":
            told = f"the alias *{event.anchor} is refused; write the value out"
        elif getattr(event, "anchor", None):
            told = f"the anchor &{event.anchor} is refused; nothing may refer to it"
        elif kind == "ScalarEvent" and event.value == "<<":
            told = "the key << is refused; write the keys out"
        elif kind == "DocumentStartEvent" and self.count > 2:
            told = "a second document begins; one is read"
        elif self.depth > DEEPEST:
            told = f"the specification has more than {DEEPEST} levels"
        elif self.count > MOST_NODES:
            told = f"the specification has more than {MOST_NODES} values"
        elif len(str(getattr(event, "value", ""))) > LONGEST_VALUE:
            told = f"a value has more than {LONGEST_VALUE} characters"
        if told:
            mark = event.start_mark
            place = f"{self.file}:{mark.line + self.first}:{mark.column + 1}".lstrip(":")
            raise SpecError(told).located(place, "spec")


def walk(node: Node) -> Iterator[Node]:
    """A node and all below it."""
    yield node
    below = node.value.values() if isinstance(node.value, dict) else node.value
    if isinstance(node.value, dict | list):
        for entry in below:
            yield from walk(entry)
