"""Classes of objects that kernels define: fields, defaults, the decorator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import pytest

import nkilab

with nkilab.activate():
    import nki.language as nl


class Sizes(nl.NKIObject):
    rows: int
    columns: int = 4
    LIMIT: ClassVar[int] = 9
    scale = None

    @property
    def area(self):
        return self.rows * self.columns


@dataclass
class Decorated(nl.NKIObject):
    first: int
    last: int
    tiles: list = field(default_factory=list)
    stride = None


@dataclass
class WithInit(nl.NKIObject):
    total: int

    def __init__(self, parts):
        self.total = sum(parts)


def test_fields_are_taken_by_position_and_keyword_and_default_otherwise():
    sizes = Sizes(3, scale=0.5)
    assert (sizes.rows, sizes.columns, sizes.scale, sizes.area) == (3, 4, 0.5, 12)
    assert Sizes(3) == Sizes(rows=3) != Sizes(5)


def test_a_field_without_default_that_is_not_given_is_none_even_with_the_decorator():
    wrapped = Decorated(first=1)
    assert (wrapped.first, wrapped.last, wrapped.stride) == (1, None, None)


def test_values_of_the_class_body_are_fields_even_with_the_decorator():
    assert Decorated(1, 2, stride=3).stride == 3


def test_a_default_factory_makes_a_list_per_object():
    one, two = Decorated(1), Decorated(1)
    one.tiles.append(0)
    assert (one.tiles, two.tiles) == ([0], [])


def test_an_init_of_its_own_is_called():
    assert WithInit([1, 2]).total == 3


def test_a_name_that_is_no_field_is_refused():
    with pytest.raises(nkilab.errors.SpellingError) as caught:
        Sizes(rows=1, height=2)
    assert "Sizes: there is no field height; it has rows, columns, scale" in str(caught.value)
