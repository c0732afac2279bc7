"""Our `dataclass`, which compiles a method at its first call, against the standard library's."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from typing import Any

import pytest

from nkilab._dataclasses import dataclass

OPTIONS: dict[str, dict[str, bool]] = {
    "plain": {},
    "frozen": {"frozen": True},
    "by identity": {"frozen": True, "eq": False},
    "slots": {"slots": True},
    "by name": {"frozen": True, "kw_only": True},
}


def _class(decorator: Callable[..., Any], options: dict[str, bool]) -> Any:
    @decorator(**options)
    class Point:
        """A point."""

        x: int
        y: object = 2
        names: list[str] = field(default_factory=list)
        hidden: int = field(default=0, repr=False, compare=False)

        def __post_init__(self) -> None:
            if self.x == 13:
                raise ValueError("x is 13")

    return Point


def _outcome(action: Callable[[], object]) -> object:
    try:
        return action()
    except Exception as error:
        return type(error), str(error).replace("'", "")


def _said(cls: Any) -> list[object]:
    """What instances say that are made in every way."""
    one, like = cls(x=1), cls(x=1, hidden=5)
    other = cls(x=1, y=(3,), names=["a"])
    assert cls(x=1).names is not cls(x=1).names
    return [
        *map(repr, (one, like, other)),
        one == one, one == like, one == other, one != other, one == 1,
        _outcome(lambda: hash(cls(x=1, names=())) == hash(cls(x=1, names=(), hidden=5))),
        _outcome(lambda: hash(one) and True),
        _outcome(lambda: cls()), _outcome(lambda: cls(x=13)), _outcome(lambda: cls(x=1, z=2)),
        _outcome(lambda: repr(cls(1, 2))),
        _outcome(lambda: setattr(one, "x", 2)), _outcome(lambda: delattr(other, "x")),
        repr(dataclasses.replace(one, x=7)), dataclasses.asdict(like),
        [(f.name, f.kw_only) for f in dataclasses.fields(cls)],
        repr(copy.copy(one)), copy.deepcopy(one) == one,
        getattr(cls, "__match_args__", None), hasattr(one, "__dict__"),
    ]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_class_says_what_one_of_the_standard_library_says(options: dict[str, bool]) -> None:
    # the second time nothing is left to compile
    ours, theirs = _class(dataclass, options), _class(dataclasses.dataclass, options)
    assert _said(ours) == _said(theirs)
    assert _said(ours) == _said(theirs)


@dataclass(frozen=True)
class Pair:
    """A pair."""

    left: float
    right: float = 1.0


@dataclass(frozen=True)
class Named(Pair):
    """A pair with a name."""

    name: str = "pair"


def test_an_instance_that_comes_from_another_process_is_frozen_and_equal() -> None:
    text = pickle.dumps(Pair(3.0))
    again = pickle.loads(text)
    assert again == Pair(3.0)
    assert hash(again) == hash(Pair(3.0))
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'left'"):
        again.left = 2.0


def test_a_subclass_takes_the_fields_before_its_own() -> None:
    assert repr(Named(1.0, name="a")) == "Named(left=1.0, right=1.0, name='a')"
    assert Named(1.0) != Pair(1.0)


def test_a_value_that_differs_from_itself_is_equal_in_the_same_place() -> None:
    nan = float("nan")
    assert Pair(nan) == Pair(nan)
    assert Pair(nan) != Pair(float("nan"))


def test_a_method_of_the_class_is_kept() -> None:
    @dataclass(frozen=True)
    class Quiet:
        """Says nothing."""

        x: int

        def __repr__(self) -> str:
            return "quiet"

        def __eq__(self, other: object) -> bool:
            return True

    assert repr(Quiet(1)) == "quiet"
    assert Quiet(1) == Quiet(2)
    assert hash(Quiet(1)) == hash((1,))
