"""What outlives a run of a kernel: changes are seen and put back; what no object tells is not known."""

from __future__ import annotations

import itertools
import os
import random
import time
from collections import defaultdict
from collections.abc import Callable
from enum import Enum
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from tests import chips

from nkilab.dialects.lasting import Lasting, can_start_again

NUMBER = 0
LIST: list[Any] = [1, [2]]
NAMES = {"a": {"b"}}
TABLE = np.arange(4)
BY_NAME: dict[str, list[int]] = defaultdict(list)
NUMBERS = itertools.count()


class Colour(Enum):
    RED = 1


class Counter:
    count: ClassVar[int] = 0

    def __init__(self) -> None:
        self.own: list[int] = []

    def step(self) -> None:
        self.own.append(len(self.own))


class Narrow:
    __slots__ = ("own",)


COUNTER, NARROW = Counter(), Narrow()


def number() -> None:
    global NUMBER
    NUMBER += 1


def nested_list() -> None:
    LIST[1].append(Colour.RED)


def nested_set() -> None:
    NAMES["a"].add("c")


def array() -> None:
    TABLE[2] = 7


def by_default() -> None:
    BY_NAME["new"].append(1)


def in_class() -> None:
    Counter.count += 1


def in_object() -> None:
    COUNTER.step()


def in_module() -> None:
    chips.LEFT = 1  # type: ignore[attr-defined]


def own_attribute() -> None:
    own_attribute.calls = 1  # type: ignore[attr-defined]


def by_way_of_others() -> None:
    partial(_second, [lambda: in_object()])()


def _second(steps: list[Callable[[], None]]) -> None:
    for step in steps:
        step()


def _with_cell() -> Callable[[], None]:
    calls = 0

    def count() -> None:
        nonlocal calls
        calls += 1

    return count


in_cell = _with_cell()


def leaves_nothing() -> int:
    counter = Counter()
    counter.step()
    LIST.append(1)
    return int(LIST.pop()) + len(counter.own)


CHANGES = [number, nested_list, nested_set, array, by_default, in_class, in_object, in_module, own_attribute,
           by_way_of_others, in_cell]  # fmt: skip


@pytest.mark.parametrize("function", CHANGES)
def test_what_a_function_changes_is_seen_and_put_back(function: Callable[[], None]) -> None:
    lasting = Lasting(function)
    assert lasting.is_known
    before, said = lasting.hold(), [repr(lasting.objects), NUMBER]
    assert lasting.is_as(before)
    function()
    assert not lasting.is_as(before)
    lasting.put_back(before)
    assert lasting.is_as(before)
    assert [repr(lasting.objects), NUMBER] == said


def test_objects_that_a_run_makes_are_its_own() -> None:
    lasting = Lasting(leaves_nothing)
    before = lasting.hold()
    leaves_nothing()
    assert lasting.is_known
    assert lasting.is_as(before)


def test_what_arguments_hold_outlives_a_run() -> None:
    settings = SimpleNamespace(sizes=[1, 2])
    lasting = Lasting(leaves_nothing, [[settings.sizes], 3])
    before = lasting.hold()
    settings.sizes.append(3)
    assert not lasting.is_as(before)


def _reads_a_file() -> None:
    open("/dev/null").close()


def _asks_the_time() -> float:
    return time.time()


def _asks_the_process() -> int:
    return os.getpid()


def _draws() -> float:
    return random.random()


def _draws_of_numpy() -> Any:
    return np.random.rand()


def _counts() -> int:
    return next(NUMBERS)


def _has_slots() -> None:
    NARROW.own = 1


@lru_cache
def _remembers(key: int) -> list[int]:
    return [key]


def _asks_who_remembers() -> list[int]:
    return _remembers(1)


def _sets_by_name() -> None:
    setattr(_asks_the_time, "calls", 1)  # noqa: B010


UNKNOWN = [_reads_a_file, _asks_the_time, _asks_the_process, _draws, _draws_of_numpy, _counts, _has_slots,
           _asks_who_remembers, _sets_by_name]  # fmt: skip


@pytest.mark.parametrize("function", UNKNOWN)
def test_what_no_object_tells_is_not_known(function: Callable[[], Any]) -> None:
    assert not Lasting(function).is_known


def _prints() -> None:
    print("said")


def _is_silent() -> int:
    return max(1, NUMBER, *Colour.RED.value)


@pytest.mark.parametrize("function", [*CHANGES, *UNKNOWN, leaves_nothing, _prints])
def test_what_prints_or_may_change_something_does_not_start_again(function: Callable[[], Any]) -> None:
    assert not can_start_again(function, [])
    assert can_start_again(_is_silent, [np.zeros(2), 1])
    assert not can_start_again(_is_silent, [[1]])
