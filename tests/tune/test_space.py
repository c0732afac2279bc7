"""Spaces of parameters: their points, their constraints, and what is refused."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from nkilab.errors import FileError, NkilabError, UsageError
from nkilab.tune.expressions import ALLOWED, constraint
from nkilab.tune.samplers import shuffled
from nkilab.tune.space import read_space, space_of

NAMES = frozenset({"a", "b", "kind"})


def test_points_are_all_combinations_that_the_constraints_allow():
    space = space_of(
        {"a": {"integers": [1, 4]}, "b": {"powers_of_two": [1, 9]}, "kind": ["x", "y"]},
        ["a * b <= 8", "kind == 'x' or a % 2 == 0"],
    )
    # by hand: the definition, without the search's cuts
    expected = [
        {"a": a, "b": b, "kind": kind}
        for a, b, kind in product((1, 2, 3, 4), (1, 2, 4, 8), ("x", "y"))
        if a * b <= 8 and (kind == "x" or a % 2 == 0)
    ]
    assert list(space.points()) == expected
    assert (space.count, space.combinations) == (len(expected), 32)
    assert space.contains({"a": 2, "b": 4, "kind": "y"})
    assert not space.contains({"a": 3, "b": 4, "kind": "x"})
    assert not space.contains({"a": 2, "b": 4})


def test_listed_points_are_all_there_is_in_their_order():
    points = [{"a": 4, "config.rows": 2}, {"a": 1, "config.rows": 8}, {"a": 1, "config.rows": 2}]
    space = space_of(points, ["a * config.rows > 2"])
    assert list(space.points()) == points[:2]
    assert (space.count, space.combinations) == (2, 3)
    # each value occurs, but not together
    assert not space.contains({"a": 4, "config.rows": 8})
    assert space.contains(points[1])
    assert sorted(map(repr, shuffled(space, 3))) == sorted(map(repr, points[:2]))
    assert list(space.fixed({"a": 1}).points()) == points[1:2]


def test_integers_have_a_step():
    assert list(space_of({"a": {"integers": [128, 512], "step": 128}}).parameters[0].values) == [
        128,
        256,
        384,
        512,
    ]


def test_a_space_too_large_to_count_still_has_its_first_point():
    space = space_of({n: {"integers": [1, 1000]} for n in ("a", "b", "kind")}, ["a + b + kind >= 30"])
    assert space.count is None
    assert next(space.points()) == {"a": 1, "b": 1, "kind": 28}


@pytest.mark.parametrize(
    ("text", "values", "allowed"),
    [
        ("a < b <= 8", {"a": 4, "b": 8}, True),
        ("a < b <= 8", {"a": 4, "b": 9}, False),
        ("not (a == 1 and b == 2)", {"a": 1, "b": 2}, False),
        ("a // 2 + b / 4 - -1 == 4.5", {"a": 5, "b": 6}, True),
        ("kind in ('x', 'y')", {"kind": "z"}, False),
        ("kind not in ['x']", {"kind": "z"}, True),
    ],
)
def test_a_constraint_means_what_it_means_in_python(text, values, allowed):
    assert constraint(text, NAMES).holds(values) is allowed


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("__import__('os').system('x')", "__import__('os').system('x') is not allowed"),
        ("a.real > 1", "a.real is not allowed"),
        ("a ** 9 ** 9 > b", "a ** 9 ** 9 is not allowed"),
        ("[a for a in (1, 2)] == b", "[a for a in (1, 2)] is not allowed"),
        ("(lambda: a)() == 1", "(lambda: a)() is not allowed"),
        ("a if b else 1", "a if b else 1 is not allowed"),
        ("a[0] == 1", "a[0] is not allowed"),
        ("a == None", "None is not allowed"),
        ("a << 90 > 1", "a << 90 is not allowed"),
        ("a +", "invalid syntax"),
        ("c > 1", "c is no parameter; there are a, b, kind"),
    ],
)
def test_anything_but_comparisons_and_arithmetic_is_refused(text, problem):
    with pytest.raises(UsageError) as caught:
        constraint(text, NAMES, "space.yaml:7")
    assert str(caught.value) == (
        f"space.yaml:7: {text!r} is no constraint: {problem}\n  hint: a constraint has {ALLOWED}"
    )


def test_a_long_or_a_deep_constraint_is_refused():
    with pytest.raises(UsageError, match="a constraint has 601 characters; it may have 500"):
        constraint("a" * 601, NAMES)
    with pytest.raises(UsageError):
        constraint("(" * 240 + "a" + ")" * 240, NAMES).holds({"a": [[]]})


def test_texts_are_not_multiplied():
    with pytest.raises(
        UsageError, match="has no value for a = 1000000, kind = 'x': arithmetic is on numbers"
    ):
        constraint("kind * a == kind", NAMES).holds({"a": 1_000_000, "kind": "x"})


def test_a_division_by_zero_names_the_values():
    with pytest.raises(UsageError) as caught:
        constraint("a % b == 0", NAMES, "space.yaml:9").holds({"a": 3, "b": 0})
    assert str(caught.value).startswith("space.yaml:9: a % b == 0 has no value for a = 3, b = 0: ")


def test_a_space_without_its_first_line_is_told_which_one_that_is(tmp_path):
    path = tmp_path / "space.yaml"
    path.write_text("parameters: {rows: [1, 2]}\n")
    with pytest.raises(FileError) as caught:
        read_space(path)
    assert str(caught.value).endswith("hint: begin the file with the line schema: nkilab.space/1")


BAD = {
    "parameters: {rows: [1, 2]}\n": "has schema None; a space has 'nkilab.space/1'",
    "schema: nkilab.space/2\n": "has schema 'nkilab.space/2'; a space has 'nkilab.space/1'",
    "schema: nkilab.space/1\nparameters: {}\n": (
        "space.yaml:1: the space is empty; it needs at least one parameter"
    ),
    "schema: nkilab.space/1\nparams: {a: [1]}\n": (
        "space.yaml:2: 'params' is no key; there are parameters, points, constraints"
    ),
    "schema: nkilab.space/1\nparameters: {a: [1]}\npoints: [{a: 1}]\n": (
        "space.yaml:1: a space has either parameters or points: values to combine, or a list of points"
    ),
    "schema: nkilab.space/1\npoints: {a: 1}\n": (
        "space.yaml:1: points is {'a': 1}; it must be a list of points, as in [{rows: 8}, {rows: 16}]"
    ),
    "schema: nkilab.space/1\npoints: []\n": (
        "space.yaml:1: the space lists 0 points; it must list one to 100,000"
    ),
    "schema: nkilab.space/1\npoints:\n  - {a: 1}\n  - {b: 1}\n": (
        "space.yaml:4: a point has b; the first one has a"
    ),
    "schema: nkilab.space/1\npoints:\n  - {a: 1, b: x}\n  - {b: x, a: 1}\n": (
        "space.yaml:4: {'b': 'x', 'a': 1} is listed twice"
    ),
    "schema: nkilab.space/1\npoints:\n  - 7\n": (
        "space.yaml:3: a point is 7; it must hold a value per name, as in {rows: 8}"
    ),
    "schema: nkilab.space/1\nparameters:\n  a..b: [1]\n": "space.yaml:3: 'a..b' is no name of a parameter",
    "schema: nkilab.space/1\nparameters:\n  a: [1, 2]\n  b: {range: [1, 2]}\n": (
        "space.yaml:4: b is {'range': [1, 2]}; "
        "write integers: [1, 8], powers_of_two: [1, 16] or choices: [...]"
    ),
    "schema: nkilab.space/1\nparameters:\n  a: {integers: [4, 1]}\n": (
        "space.yaml:3: a has no value: no integers lie between 4 and 1"
    ),
    "schema: nkilab.space/1\nparameters:\n  a: {powers_of_two: [5, 7]}\n": (
        "space.yaml:3: a has no value: no powers of two lie between 5 and 7"
    ),
    "schema: nkilab.space/1\nparameters:\n  a: {integers: [1, 2.5]}\n": (
        "space.yaml:3: integers of a is [1, 2.5]; it must be the lowest and the highest, as in [1, 8]"
    ),
    "schema: nkilab.space/1\nparameters:\n  a: {integers: [1, 8], step: 0}\n": (
        "space.yaml:3: the step of a is 0; it must be a whole number of at least 1"
    ),
    "schema: nkilab.space/1\nparameters:\n  a: {choices: []}\n": (
        "space.yaml:3: choices of a is []; it must be a list with at least one value"
    ),
    "schema: nkilab.space/1\nparameters:\n  a: [1, 1]\n": "space.yaml:3: choices of a has a value twice",
    "schema: nkilab.space/1\nparameters:\n  a: [[1]]\n": (
        "space.yaml:3: a choice of a is [1]; it must be a finite number or a word"
    ),
    "schema: nkilab.space/1\nparameters:\n  a: [1, .nan]\n": (
        "space.yaml:3: a choice of a is nan; it must be a finite number or a word"
    ),
    "schema: nkilab.space/1\nparameters:\n  a: [1, .inf]\n": (
        "space.yaml:3: a choice of a is inf; it must be a finite number or a word"
    ),
    "schema: nkilab.space/1\nparameters: {a: [1, 2]}\nconstraints:\n  - a < 3\n  - a > 5\n": (
        "space.yaml:5: the space has no point: a > 5 holds for none of 2 combinations"
    ),
    "schema: nkilab.space/1\nparameters: {a: [1, 2]}\nconstraints:\n  - a < 2\n  - a > 1\n": (
        "the space has no point: together the constraints hold for none of 2 combinations"
    ),
}


@pytest.mark.parametrize("text", BAD)
def test_a_space_that_is_none_is_refused_with_its_line(text, tmp_path: Path):
    path = tmp_path / "space.yaml"
    path.write_text(text)
    with pytest.raises(NkilabError) as caught:
        read_space(path)
    assert isinstance(caught.value, FileError | UsageError)
    assert BAD[text] in str(caught.value).splitlines()[0]


def test_a_file_that_is_missing_or_no_yaml_is_refused(tmp_path: Path):
    with pytest.raises(FileError, match="cannot be read: no such file or directory"):
        read_space(tmp_path / "none.yaml")
    (tmp_path / "bad.yaml").write_text("schema: [\n")
    with pytest.raises(FileError, match=r"bad.yaml:2: this is no YAML"):
        read_space(tmp_path / "bad.yaml")


def test_a_point_has_values_with_their_types():
    space = space_of({"a": {"integers": [1, 8]}, "b": [1, 2.0, "x"]})
    assert space.contains({"a": 1, "b": 1})
    for wrong in ({"a": True, "b": 1}, {"a": 1.0, "b": 1}, {"a": 1, "b": True}, {"a": 1, "b": 2}):
        assert not space.contains(wrong)


def test_what_is_not_known_to_be_empty_is_not_called_so(monkeypatch):
    monkeypatch.setattr("nkilab.tune.space.LOOKED_AT", 1000)
    many = {name: {"integers": [1, 100]} for name in "abcd"}
    # one point of a hundred million, and the last of them
    with pytest.raises(UsageError) as caught:
        space_of(many, ["a + b + c + d == 400"])
    assert str(caught.value).startswith(
        "no point is found: the constraints hold for none of the first 1,000 values that are looked at, "
        "of 100,000,000 combinations"
    )


def test_a_point_that_no_draw_finds_is_found_where_the_space_begins(monkeypatch):
    monkeypatch.setattr("nkilab.tune.space.LOOKED_AT", 1000)
    monkeypatch.setattr("nkilab.tune.samplers.DRAWS", 100)
    many = {name: {"integers": [1, 100]} for name in "abcd"}
    points = shuffled(space_of(many, ["a + b + c + d == 4"]), seed=1)
    assert next(points) == {"a": 1, "b": 1, "c": 1, "d": 1}


def test_a_billion_values_take_no_memory():
    space = space_of({"a": {"integers": [1, 2**39]}})
    assert space.digest == space_of({"a": {"integers": [1, 2**39]}}).digest
    assert space.digest != space_of({"a": {"integers": [1, 2**39 - 1]}}).digest
