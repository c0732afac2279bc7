"""Iterations that follow from others leave what running them leaves: the definition is the plain run."""

from __future__ import annotations

import numpy as np
import pytest

import nkilab
from nkilab import api
from nkilab.errors import UseError
from nkilab.launches import launch
from nkilab.trace import affine
from nkilab.trace import repeats as subject
from nkilab.trace.affine import REPEATS, Repeats

with nkilab.activate():
    from tests.dialects import partly_repeated, repeated, repeated_beta1

    from nkilab.ledger.kernels import matmul

COLUMNS = ("form_column", "line_column", "position_column", "value_column", "storage_column", "offset_column")
TABLES = ("lines", "positions", "unrolled", "storages", "notes", "met")
X = nkilab.spec((1024, 1024), "float32")


def traced(kernel, *args, **kwargs):
    """The program of a kernel, with loops continued and as it stands."""
    machine, nki_kernel = api.machine_for(None), api.as_kernel(kernel)
    both = []
    for is_wanted in (True, False):
        known = {REPEATS: Repeats(is_wanted=is_wanted)}
        with nkilab.activate():
            both.append(launch(nki_kernel, args, kwargs, machine, has_data=False, keyed=known).program)
    return both


def assert_equal(program, plain):
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(program, name), getattr(plain, name), name)
    for name in TABLES:
        assert getattr(program, name) == getattr(plain, name), name
    assert repr(program.values) == repr(plain.values)
    assert [(type(f), f.layouts, f.attribute_values) for f in program.forms] == [
        (type(f), f.layouts, f.attribute_values) for f in plain.forms
    ]
    for name in plain.marks.__struct_fields__:
        mark = getattr(plain.marks, name)
        assert name == "_spaces" or getattr(program.marks, name) == mark, name


@pytest.fixture(autouse=True)
def short_loops_too(monkeypatch):
    """Loops are continued even where that saves nothing."""
    monkeypatch.setattr(affine, "FEWEST_ROWS", 1)


@pytest.fixture
def written(monkeypatch):
    """How many loops were continued."""
    counts = []
    original = subject.continued

    def counting(*args, **kwargs):
        is_written = original(*args, **kwargs)
        counts.append(is_written)
        return is_written

    monkeypatch.setattr(subject, "continued", counting)
    return counts


@pytest.fixture
def starts(monkeypatch):
    """An entry for each time that a launch starts again."""
    again, original = [], Repeats.start_again

    def starting(repeats):
        again.append(repeats)
        return original(repeats)

    monkeypatch.setattr(Repeats, "start_again", starting)
    return again


@pytest.mark.parametrize("kernel", [*repeated.LIKE, *repeated_beta1.LIKE], ids=lambda k: k.name)
def test_loops_that_repeat_themselves_are_continued_to_the_same_program(kernel, written):
    program, plain = traced(kernel, X)
    assert_equal(program, plain)
    assert any(written)


@pytest.mark.parametrize("kernel", partly_repeated.PARTLY_LIKE, ids=lambda k: k.name)
def test_the_iterations_that_are_alike_are_continued_and_the_launch_begins_once(kernel, written, starts):
    program, plain = traced(kernel, X)
    assert_equal(program, plain)
    assert any(written)
    assert starts == []


@pytest.mark.parametrize("kernel", partly_repeated.ASKING, ids=lambda k: k.name)
def test_the_value_of_an_index_is_no_reason_to_start_again(kernel, starts):
    assert_equal(*traced(kernel, X))
    assert starts == []


@pytest.mark.parametrize("kernel", [*repeated.UNLIKE, *repeated_beta1.UNLIKE], ids=lambda k: k.name)
def test_loops_that_only_seem_to_repeat_themselves_give_the_same_program(kernel):
    assert_equal(*traced(kernel, X))


def test_what_a_kernel_changes_beyond_itself_is_changed_once():
    repeated.SEEN.clear()
    with nkilab.activate():
        nkilab.estimate(repeated.kept_aside, X)
    assert repeated.SEEN == [0, 1, 2, 3, 4, 5, 6, 7]


def test_a_name_of_the_module_is_stored_in_the_module():
    repeated.TURNS = -1
    with nkilab.activate():
        nkilab.estimate(repeated.counting_turns, X)
    assert repeated.TURNS == 8


def test_a_kernel_that_prints_runs_once(capsys):
    with nkilab.activate():
        nkilab.estimate(repeated.printing, X)
    assert capsys.readouterr().out == "traced\n"


def test_a_kernel_that_imports_what_prints_runs_once(capsys):
    with nkilab.activate():
        nkilab.estimate(repeated.importing, X)
    assert capsys.readouterr().out == "traced\n"


def test_what_a_kernel_keeps_at_a_function_is_kept_once():
    repeated.keeping.calls.clear()
    with nkilab.activate():
        nkilab.estimate(repeated.kept_at_a_function, X)
    assert repeated.keeping.calls == [0]


def test_a_kernel_that_draws_from_numpy_by_another_name_draws_once():
    np.random.seed(1)
    with nkilab.activate():
        nkilab.estimate(repeated.drawing, X)
    # the second number of the seed, by a generator of its own
    assert np.random.rand() == np.random.RandomState(1).rand(2)[1]


def test_a_name_that_a_helper_stores_is_read_as_stored():
    for is_wanted in (True, False):
        repeated.TURNS = 2
        known = {REPEATS: Repeats(is_wanted=is_wanted)}
        with nkilab.activate():
            nki_kernel = api.as_kernel(repeated.counted_by_another)
            launched = launch(nki_kernel, (X,), {}, api.machine_for(None), has_data=False, keyed=known)
        # three iterations, each a load and a store
        assert len(launched.program) == 6


def test_an_index_beyond_the_array_is_refused_at_the_same_iteration_with_the_same_words():
    said = []
    for is_wanted in (True, False):
        with nkilab.activate(), pytest.raises(UseError) as caught:
            launch(
                api.as_kernel(repeated.out_of_bounds), (X,), {}, api.machine_for(None), has_data=False,
                keyed={REPEATS: Repeats(is_wanted=is_wanted)},
            )  # fmt: skip
        said.append(str(caught.value))
    assert "slice 1024:1152 is outside axis 0" in said[0]
    assert said[0] == said[1]


@pytest.mark.parametrize("kernel", [matmul.blocked, matmul.blocked_tiles], ids=lambda k: k.name)
def test_the_estimates_of_a_grid_of_blocks_are_the_same(kernel):
    machine, nki_kernel = api.machine_for(None), api.as_kernel(kernel)
    specs = (nkilab.spec((1024, 512), "float32"), nkilab.spec((1024, 2048), "float32"))
    known = Repeats()
    for tiles_m, tiles_n, tiles_k in [(1, 1, 1), (1, 4, 2), (2, 2, 4), (4, 1, 8), (2, 1, 1)]:
        point = {"tiles_m": tiles_m, "tiles_n": tiles_n, "tiles_k": tiles_k}
        programs = []
        for repeats in (known, Repeats(is_wanted=False)):
            with nkilab.activate():
                launched = launch(nki_kernel, specs, point, machine, has_data=False, keyed={REPEATS: repeats})
            programs.append(launched.program)
        assert_equal(*programs)
        estimate, plain = map(api.estimate_programs, ([p] for p in programs))
        assert estimate.to_dict() == plain.to_dict()
    assert not known.refused


def test_the_kernel_of_an_einsum_is_continued_to_the_same_program(written):
    sizes = {"M": 512, "N": 1024, "K": 768}
    compiled = nkilab.einsum.compile("km,kn->mn", sizes=sizes)
    assert_equal(*traced(compiled.kernel, **compiled.specs))
    assert any(written)
