"""Which cases of a law over many kernels run where nobody asks for all of them."""

from __future__ import annotations

import pytest

from tests.conftest import drawn


@pytest.mark.parametrize(("cases", "share"), [(1, 1), (2, 1), (4, 1), (5, 2), (44, 11)])
def test_a_quarter_rounded_up_is_drawn_in_whatever_order_they_come(cases: int, share: int) -> None:
    names = [f"law[{i}]" for i in range(cases)]
    assert len(drawn(names)) == share
    assert drawn(names) == drawn(reversed(names)) <= set(names)


def test_parameters_that_take_turns_are_all_drawn() -> None:
    names = [f"law[{name}-{dialect}]" for name in range(22) for dialect in ("nki", "neuronxcc")]
    assert {name.partition("-")[2] for name in drawn(names)} == {"nki]", "neuronxcc]"}
