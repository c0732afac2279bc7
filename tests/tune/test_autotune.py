"""`@autotune`: a choice per shapes, kept in the cache folder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import nkilab
from nkilab.errors import UsageError
from nkilab.hook import activate
from nkilab.runner import kernel_from
from nkilab.tune.objective import KernelObjective
from tests.tune.kernels import written

SPACE = {"columns": {"powers_of_two": [64, 2048]}}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NKILAB_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tune"


@pytest.fixture
def kernel(tmp_path: Path):
    written(tmp_path)
    with activate():
        yield kernel_from(str(tmp_path / "kernels.py") + ":copied")


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Points that are evaluated from here on."""
    points: list[object] = []
    evaluate = KernelObjective.evaluate

    def noted(self: KernelObjective, point):
        points.append(point)
        return evaluate(self, point)

    monkeypatch.setattr(KernelObjective, "evaluate", noted)
    return points


def test_a_call_runs_with_what_is_predicted_fastest(kernel, cache):
    tuned = nkilab.tune.autotune(SPACE)(kernel)
    x = np.arange(128 * 2048, dtype=np.float32).reshape(128, 2048)
    assert np.array_equal(tuned(x), x)
    spec = nkilab.spec((128, 2048), "float32")
    latencies = {n: nkilab.estimate(kernel, spec, columns=n).latency_us for n in (64, 128, 256, 512, 1024)}
    fastest = min(latencies, key=latencies.__getitem__)
    assert tuned.choice(x) == {"columns": fastest}
    assert tuned.outcome(spec).latency_us == latencies[fastest]


def test_a_choice_is_made_once_per_shape_and_type_and_kept(kernel, cache, evaluated):
    x = np.zeros((128, 2048), np.float32)
    first = nkilab.tune.autotune(SPACE)(kernel)
    choice = first.choice(x)
    assert len(evaluated) == 6
    assert first.choice(x + 1) == choice
    again = nkilab.tune.autotune(SPACE)(kernel)
    assert again.choice(nkilab.spec((128, 2048), "float32")) == choice
    assert len(evaluated) == 6
    assert len(list(cache.iterdir())) == 1
    again.choice(x.astype(np.float16))
    again.choice(np.zeros((128, 4096), np.float32))
    nkilab.tune.autotune(SPACE, target="trn1")(kernel).choice(x)
    assert len(list(cache.iterdir())) == 4


def test_another_version_of_the_model_chooses_anew(kernel, cache, evaluated, monkeypatch):
    x = np.zeros((128, 2048), np.float32)
    nkilab.tune.autotune(SPACE)(kernel).choice(x)
    monkeypatch.setattr("nkilab.tune.objective.MODEL_VERSION", "another")
    nkilab.tune.autotune(SPACE)(kernel).choice(x)
    assert len(evaluated) == 12


DAMAGED = [
    5,
    {"point": 5, "state": "timed"},
    {"point": {"columns": 64}, "state": "timed"},
    {"point": {"columns": 64}, "state": "timed", "values": {"latency": "x"}},
    {"point": {"columns": 64}, "state": "failed"},
    {"point": {"columns": 65}, "state": "timed", "values": {"latency": 1.0}},
]


def damaged(outcome: object) -> str:
    return json.dumps({"schema": "nkilab.choice/1", "outcome": outcome})


def test_a_damaged_choice_is_made_anew(kernel, cache, evaluated):
    x = np.zeros((128, 2048), np.float32)
    choice = nkilab.tune.autotune(SPACE)(kernel).choice(x)
    (path,) = cache.iterdir()
    for content in ("", "{", '{"schema": "nkilab.choice/1"}', json.dumps([1]), *map(damaged, DAMAGED)):
        path.write_text(content)
        assert nkilab.tune.autotune(SPACE)(kernel).choice(x) == choice
    assert len(evaluated) == 6 * (1 + 4 + len(DAMAGED))


def test_what_the_caller_gives_is_not_chosen(kernel, cache, evaluated):
    tuned = nkilab.tune.autotune(SPACE)(kernel)
    x = np.ones((128, 2048), np.float32)
    assert tuned.choice(x, columns=64) == {}
    assert np.array_equal(tuned(x, columns=64), x)
    assert np.array_equal(tuned(x, 64), x)
    assert evaluated == []


def test_a_parameter_that_the_kernel_lacks_is_refused(kernel, cache):
    with pytest.raises(UsageError, match="copied has no parameter rows; it has x, columns, fault"):
        nkilab.tune.autotune({"rows": [1, 2]})(kernel).choice(np.ones((128, 2048), np.float32))


def test_no_legal_point_is_told_with_the_reason(kernel, cache):
    with pytest.raises(UsageError) as caught:
        nkilab.tune.autotune({"columns": [2048]})(kernel).choice(np.ones((128, 2048), np.float32))
    assert "no point of the space of copied can be timed:\nkernels.py:17: ndarray: " in str(caught.value)


def test_a_function_that_is_no_kernel_is_refused():
    with pytest.raises(UsageError, match="plain is no NKI kernel"):

        @nkilab.tune.autotune(SPACE)
        def plain(x, columns):
            return x


def test_a_choice_that_cannot_be_kept_is_told_and_taken(kernel, tmp_path, monkeypatch, evaluated):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NKILAB_CACHE_DIR", str(tmp_path / "file"))
    x = np.ones((128, 2048), np.float32)
    with pytest.warns(
        UserWarning, match="the choice of an autotuned kernel is not kept: .*: not a directory"
    ):
        choice = nkilab.tune.autotune(SPACE)(kernel).choice(x)
    assert (list(choice), len(evaluated)) == (["columns"], 6)


def test_what_the_caller_gives_is_a_value_of_a_space(kernel, cache):
    tuned = nkilab.tune.autotune({**SPACE, "fault": ["none"]})(kernel)
    x = np.ones((128, 2048), np.float32)
    assert tuned.choice(x, columns=np.int64(64)) == {"fault": "none"}
    with pytest.raises(
        UsageError, match="columns is None; where parameters are chosen it must be a number or a word"
    ):
        tuned.choice(x, columns=None)
