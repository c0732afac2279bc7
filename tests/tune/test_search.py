"""Searching: samplers, journals, interruption, and the same points whoever evaluates them."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

import nkilab
from nkilab.errors import FileError, UsageError
from nkilab.tune.executors import Inline, Work
from nkilab.tune.journal import Journal
from nkilab.tune.outcome import Outcome, Timed, key_of, outcome_from
from nkilab.tune.samplers import Beginning, sampler_named
from nkilab.tune.space import Point, Space, space_of
from nkilab.tune.study import Found, search
from nkilab.tune.verdict import front_of, verdict_of
from tests.tune.kernels import HALF

SPACE = space_of({"a": {"integers": [1, 30]}, "b": {"powers_of_two": [1, 64]}}, ["a * b <= 400"])


class Bowl:
    """An objective that is known: latency (a - 17)^2 + 10 |log2 b - 3| + 5, illegal where a is 13."""

    goals: tuple[str, ...] = ("latency",)
    target = "trn2"
    digest = "bowl"
    constants = "known"

    def __init__(self) -> None:
        self.seen: list[str] = []

    def evaluate(self, point: Point) -> Outcome:
        self.seen.append(key_of(point))
        a, b = int(point["a"]), int(point["b"])
        if a == 13:
            return Outcome(point, "pruned", reason="unlucky", message="a is 13")
        latency = float((a - 17) ** 2 + 10 * abs(b.bit_length() - 4) + 5)
        case = Timed(latency, 0.9 * latency, 1.1 * latency, a * b, a, b, 0, "dependence", {"DMA issue": 0.5})
        values = {"latency": latency, "sbuf": float(b)}
        own = {goal: values[goal] for goal in self.goals}
        return Outcome(point, "timed", own, (0.9 * latency, 1.1 * latency), (case,))

    def under(self, machine: object) -> Bowl:
        return self


class Reversed:
    """An evaluator that hands outcomes back in another order, as workers do."""

    def __init__(self, objective: Bowl) -> None:
        self._objective = objective

    def evaluate(self, points: Sequence[Point]) -> Generator[Outcome, None, None]:
        yield from [self._objective.evaluate(point) for point in reversed(points)]


class Killed(Exception):
    """Stands for a kill."""


class Dying:
    """An evaluator that ends after some points."""

    def __init__(self, objective: Bowl, left: int) -> None:
        self._objective, self._left = objective, left

    def evaluate(self, points: Sequence[Point]) -> Generator[Outcome, None, None]:
        for point in points:
            if not self._left:
                raise Killed
            self._left -= 1
            yield self._objective.evaluate(point)


def search_result(
    sampler: str, seed: int = 0, trials: int = 60, journal: Journal | None = None, kind: type = Inline,
    space: Space = SPACE, objective: Bowl | None = None,
) -> Found:  # fmt: skip
    goal = objective or Bowl()
    own = sampler_named(sampler, space, trials, len(goal.goals), seed)
    return search(space, goal, own, kind(goal), trials=trials, journal=journal)


SAMPLERS = ["exhaustive", "random", pytest.param("tpe", marks=pytest.mark.optuna)]


@pytest.fixture(autouse=True)
def _needs_optuna(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("optuna"):
        pytest.importorskip("optuna")


def test_exhaustive_finds_the_best_and_counts_what_is_illegal():
    result = search_result("exhaustive", trials=1000)
    legal = [p for p in SPACE.points() if p["a"] != 13]
    assert result.is_whole
    assert result.timed[0].point == {"a": 17, "b": 8}
    assert result.timed[0].latency_us == 5
    assert len(result.timed) == len(legal)
    assert result.pruned == {"unlucky": SPACE.count - len(legal)}


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_same_seed_gives_the_same_points_in_whatever_order_they_are_evaluated(sampler):
    one, other = search_result(sampler, 3), search_result(sampler, 3, kind=Reversed)
    assert one.outcomes == other.outcomes
    points = [key_of(o.point) for o in one.outcomes]
    assert len(points) == len(set(points)) == 60


@pytest.mark.parametrize("sampler", SAMPLERS[1:])
def test_another_seed_gives_other_points(sampler):
    assert search_result(sampler, 3).outcomes != search_result(sampler, 4).outcomes


@pytest.mark.optuna
@pytest.mark.slow
def test_a_sampler_that_learns_comes_closer_than_chance():
    learnt = [search_result("tpe", seed).timed[0].latency_us for seed in range(3)]
    drawn = [search_result("random", seed).timed[0].latency_us for seed in range(3)]
    assert sum(learnt) < sum(drawn)


@pytest.mark.optuna
def test_a_sampler_that_learns_sees_every_point_of_a_small_space_once():
    space = space_of({"a": {"integers": [1, 5]}, "b": [1, 2]}, ["a * b != 4"])
    result = search_result("tpe", trials=100, space=space)
    assert result.is_whole
    assert len(result.outcomes) == space.count == 8


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("after", [0, 1, 17, 33])
def test_a_search_that_is_killed_goes_on_where_it_was(sampler, after, tmp_path: Path):
    whole = search_result(sampler, 1)
    path = tmp_path / "journal"
    first, second = Bowl(), Bowl()
    with pytest.raises(Killed):
        own = sampler_named(sampler, SPACE, 60, 1, 1)
        with Journal(path, "study") as journal:
            search(SPACE, first, own, Dying(first, after), trials=60, journal=journal)
    with Journal(path, "study") as journal:
        again = search_result(sampler, 1, journal=journal, objective=second)
    assert again.outcomes == whole.outcomes
    assert again.evaluated == 60 - after
    assert not set(first.seen) & set(second.seen)
    # a header, and a line for every point
    assert len(path.read_text().splitlines()) == 61


def test_a_line_that_was_cut_off_is_dropped_and_its_point_done_again(tmp_path: Path):
    path = tmp_path / "journal"
    with Journal(path, "study") as journal:
        search_result("exhaustive", journal=journal)
    whole = path.read_bytes()
    for cut in (1, 2, 40):
        path.write_bytes(whole[:-cut])
        with Journal(path, "study") as journal:
            assert search_result("exhaustive", journal=journal).evaluated == 1
        assert path.read_bytes() == whole


def test_a_journal_of_another_search_is_refused(tmp_path: Path):
    path = tmp_path / "journal"
    Journal(path, "one").close()
    with pytest.raises(UsageError) as caught:
        Journal(path, "two")
    assert str(caught.value) == (
        f"{path} is the journal of another search: kernel, shapes, space or chip differ\n"
        "  hint: name another journal, or delete this one"
    )


def test_a_file_that_is_no_journal_is_refused_and_left_alone(tmp_path: Path):
    path = tmp_path / "notes.txt"
    for content in ("my notes\n", "my notes", '{"schema": "other"}\n', "[1]\n"):
        path.write_text(content)
        with pytest.raises(FileError, match="is no journal of nkilab tune"):
            Journal(path, "study")
        assert path.read_text() == content


def test_a_damaged_line_is_named(tmp_path: Path):
    path = tmp_path / "journal"
    with Journal(path, "study") as journal:
        search_result("exhaustive", trials=3, journal=journal)
    lines = path.read_text().splitlines()
    no_constants = json.dumps({"outcome": json.loads(lines[2])["outcome"]})
    others = (
        '{"constants": "a", "outcome": 5}',
        '{"constants": "a", "outcome": {"point": 5, "state": "timed"}}',
    )
    for damaged in (lines[2][5:], no_constants, *others):
        path.write_text("\n".join([*lines[:2], damaged, lines[3], ""]))
        with pytest.raises(FileError, match="journal:3: this line is damaged"):
            Journal(path, "study")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there are no such devices here")
def test_what_is_no_plain_file_is_refused():
    for path in ("/dev/full", "/dev/null"):
        with pytest.raises(FileError) as caught:
            Journal(Path(path), "study")
        message = f"{path} keeps nothing: it is no plain file\n  hint: name another file"
        assert str(caught.value) == message


def test_two_searches_do_not_write_to_one_journal(tmp_path: Path):
    with (
        Journal(tmp_path / "journal", "study"),
        pytest.raises(UsageError, match="is in use by another process"),
    ):
        Journal(tmp_path / "journal", "study")


def test_outcomes_of_other_constants_stay_apart(tmp_path: Path):
    path, outcome = tmp_path / "journal", Bowl().evaluate({"a": 1, "b": 1})
    with Journal(path, "study") as journal:
        journal.add("old", outcome)
        journal.add("old", outcome)
    with Journal(path, "study") as journal:
        assert journal.known("new") == {}
        assert journal.known("old") == {key_of(outcome.point): outcome}
    assert len(path.read_text().splitlines()) == 2


@pytest.mark.parametrize("a", [1, 13])
def test_an_outcome_survives_json(a):
    outcome = Bowl().evaluate({"a": a, "b": 1})
    assert outcome_from(json.loads(json.dumps(outcome.to_dict()))) == outcome


def test_a_search_stops_when_its_time_is_up():
    objective = Bowl()
    own = sampler_named("exhaustive", SPACE, 60, 1, 0)
    result = search(SPACE, objective, own, Inline(objective), trials=60, seconds=0.0)
    assert (result.outcomes, result.is_whole) == ((), False)


def test_a_verdict_names_what_the_interval_cannot_separate():
    verdict = verdict_of(search_result("exhaustive", trials=1000))
    # by hand: the best takes 5, up to 5.5; another one that takes x begins at 0.9 x, so up to 6.1
    assert verdict.best.latency_us == 5
    assert sorted(o.latency_us for o in verdict.overlapping) == [6, 6]
    # 6 percent each, 8.5 together: 5 * 1.088 is below 6
    assert verdict.close == ()


def test_a_front_holds_what_nothing_else_beats():
    class Two(Bowl):
        goals = ("latency", "sbuf")

    result = search_result("exhaustive", trials=1000, objective=Two())
    front = [(o.values["latency"], o.values["sbuf"]) for o in front_of(result.timed)]
    # by hand: b = 8, 4, 2, 1 at a = 17; more than 8 costs both
    assert front == [(5, 8), (15, 4), (25, 2), (35, 1)]


def test_a_sampler_that_does_not_exist_is_refused():
    with pytest.raises(
        UsageError, match="--sampler is 'best'; there are auto, exhaustive, random, tpe, nsga2, gp"
    ):
        sampler_named("best", SPACE, 10, 1, 0)


def test_a_point_that_leaves_a_part_of_a_result_unwritten_is_pruned(tmp_path):
    (tmp_path / "half.py").write_text(HALF)
    work = Work(f"{tmp_path / 'half.py'}:blocks", ("f32[128,2048]",))
    with nkilab.activate():
        outcomes = [work.objective().evaluate({"columns": n}) for n in (512, 600, 4096)]
    assert [o.state for o in outcomes] == ["timed", "pruned", "pruned"]
    # by hand: three blocks of 600 of 2048 columns, in 128 rows; none of 4096
    assert "with 230400 of 262144 elements written" in outcomes[1].message
    assert "with 0 of 262144 elements written" in outcomes[2].message


def test_a_search_that_begins_with_a_point_never_ends_with_a_slower_one():
    # by hand: 5 + 10 * 3 at a = 17, b = 1
    first = {"a": 17, "b": 1}
    for trials in (1, 2, 5):
        for seed in range(3):
            own = Beginning(first, sampler_named("random", SPACE, trials, 1, seed))
            result = search(SPACE, Bowl(), own, Inline(Bowl()), trials=trials)
            keys = [key_of(o.point) for o in result.outcomes]
            assert keys[0] == key_of(first)
            assert len(set(keys)) == len(keys) == trials
            assert result.timed[0].latency_us <= 35
