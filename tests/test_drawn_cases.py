"""Which cases of a law over many kernels run, and how many examples, where nobody asks for all of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import conftest
from tests.conftest import drawn
from tests.examples import ALL, DRAWN, examples


@pytest.mark.parametrize(("cases", "share"), [(1, 1), (2, 1), (12, 1), (13, 2), (44, 4)])
def test_a_twelfth_rounded_up_is_drawn_in_whatever_order_they_come(cases: int, share: int) -> None:
    names = [f"law[{i}]" for i in range(cases)]
    assert len(drawn(names)) == share
    assert drawn(names) == drawn(reversed(names)) <= set(names)


def test_parameters_that_take_turns_are_all_drawn() -> None:
    names = [f"law[{name}-{dialect}]" for name in range(22) for dialect in ("nki", "neuronxcc")]
    assert {name.partition("-")[2] for name in drawn(names)} == {"nki]", "neuronxcc]"}


class Item:
    """What is asked of a test that was collected."""

    def __init__(self, nodeid: str, *marks: str, obj: object = None) -> None:
        self.nodeid, self.obj = nodeid, obj
        self.marks: dict[str, object] = {name: getattr(pytest.mark, name) for name in marks}

    def get_closest_marker(self, name: str) -> object:
        return self.marks.get(name)

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks[mark.name] = mark


def run_by(markexpr: str, *, further: bool = False) -> list[str]:
    """The names of tests that a run tries: of a law of 19 cases, a random one, a plain one, slow ones."""

    @given(st.integers())
    def random(_number: int) -> None: ...

    items: Any = [Item(f"law[{n}]", "corpus", *["slow"] * (n == 18)) for n in range(19)]
    items += [Item("random[nki]", obj=random), Item("random[neuronxcc]", obj=random)]
    items += [Item("plain", obj=run_by), Item("slow", "slow"), Item("seconds")]
    items[-1].add_marker(pytest.mark.corpus(drawn=False))
    before, left_out = list(items), []
    hook = SimpleNamespace(pytest_deselected=lambda items: left_out.extend(items))
    config: Any = SimpleNamespace(option=SimpleNamespace(markexpr=markexpr, further=further), hook=hook)
    conftest.pytest_collection_modifyitems(config, items)
    assert {*items, *left_out} == set(before)
    # pytest itself goes by the marks
    return [item.nodeid for item in items if "corpus" not in markexpr or "corpus" in item.marks]


def test_what_the_first_run_leaves_out_of_a_law_the_further_one_runs_and_random_tests_run_in_both() -> None:
    laws = {f"law[{n}]" for n in range(18)}
    by_default, further = run_by(""), run_by("corpus", further=True)
    assert {*by_default, *further} == laws | {"random[nki]", "random[neuronxcc]", "plain", "seconds"}
    assert "seconds" not in by_default
    assert {*by_default} & {*further} == {"random[nki]", "random[neuronxcc]"}
    assert 2 <= len(laws & {*by_default}) <= 3
    assert {*run_by("corpus")} == laws | {"random[nki]", "random[neuronxcc]", "seconds"}
    assert {*run_by("slow")} > {"slow"}


def test_a_sixth_of_the_examples_is_drawn(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NKILAB_FUZZ", raising=False)
    counts = []
    for share in (DRAWN, ALL):
        settings.load_profile(f"{share} %")
        counts.append([examples(count) for count in (1, 5, 50)])
    conftest.pytest_configure(pytestconfig)
    assert counts == [[1, 1, 8], [1, 5, 50]]
    monkeypatch.setenv("NKILAB_FUZZ", "7")
    assert examples(50) == 7
