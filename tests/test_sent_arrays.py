"""Arrays for another process: what it reads is what was sent, and the file goes away."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import nkilab
from nkilab import sent_arrays
from nkilab.sent_arrays import sent

from .cores.kernels import ncc, reduces


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(sent_arrays, "_MEMORY", tmp_path)
    return tmp_path


def test_another_process_reads_what_was_sent_and_may_write_it(folder: Path) -> None:
    draw = np.random.default_rng(0)
    whole = draw.standard_normal((300, 200), dtype=np.float32)
    narrow = draw.standard_normal((1000, 70)).astype(ml_dtypes.bfloat16)
    value = [(whole, {"part": whole[:, 20:180], "turned": whole.T}), narrow, whole, 3, np.arange(4)]
    on_its_way = sent(value, is_near=True)
    (path,) = folder.iterdir()
    # each large array once: 240,000, 192,000, 240,000 and 140,000 bytes, each begun at a multiple of 64
    assert 812_000 <= path.stat().st_size < 812_000 + 4 * 64
    assert len(on_its_way.pickled) < 2000
    (first, named), second, again, number, few = on_its_way.read()
    on_its_way.take_away()
    assert not [*folder.iterdir()]
    assert first is again
    assert number == 3
    for got, wanted in (
        (first, whole), (named["part"], whole[:, 20:180]), (named["turned"], whole.T), (second, narrow),
        (few, np.arange(4)),
    ):  # fmt: skip
        assert type(got) is np.ndarray
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)
    first[:] = 0
    assert whole.any()
    assert named["part"].any()


def test_what_is_sent_elsewhere_or_is_small_is_in_no_file(folder: Path) -> None:
    large = np.ones(1 << 15, np.float32)
    for on_its_way in (sent([large], is_near=False), sent([large[:100]], is_near=True)):
        assert not on_its_way.path
        assert not [*folder.iterdir()]
        assert on_its_way.read()[0].all()


def test_a_file_that_cannot_be_written_is_taken_away(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(sent_arrays, "_write", full)
    with pytest.raises(OSError, match="no space left"):
        sent([np.ones(1 << 15, np.float32)], is_near=True)
    assert not [*folder.iterdir()]


def test_ranks_in_processes_read_large_arrays_from_a_file_that_is_gone_afterwards(folder: Path) -> None:
    draw = np.random.default_rng(0)
    own = [draw.standard_normal((128, 200), dtype=np.float32)[:, :150] for _ in range(2)]
    ncc.ReplicaGroup([[0, 1]])
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
        results = nkilab.launch(reduces, 2, executor=processes)(
            nkilab.per_rank(own), ncc.ReplicaGroup([[0, 1]])
        )
    here = nkilab.launch(reduces, 2)(nkilab.per_rank(own), ncc.ReplicaGroup([[0, 1]]))
    np.testing.assert_array_equal(results[1], here[1])
    assert not [*folder.iterdir()]
