"""What the names of a point set: parameters, fields of them, globals, the launch."""

from __future__ import annotations

from pathlib import Path

import pytest

from nkilab import spec
from nkilab.errors import UsageError
from nkilab.hook import activate
from nkilab.machine import chip_named
from nkilab.runner import kernel_from
from nkilab.tune.binding import bound
from nkilab.tune.measuring import document_of
from nkilab.tune.objective import Case, KernelObjective
from nkilab.tune.space import space_of

KERNEL = """\
from dataclasses import dataclass
from typing import NamedTuple

import nki
import nki.isa as nisa
import nki.language as nl
import sizes

ROWS = 128


@dataclass(frozen=True)
class Config:
    columns: int = 512


class Pair(NamedTuple):
    first: int = 1
    second: int = 2


@nki.jit
def copied(x, config: Config = None, pair=Pair()):
    config = config or Config()
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for n in nl.affine_range(x.shape[1] // config.columns):
        lo = n * config.columns
        for m in range(config.columns // sizes.PIECE):
            for r in range(128 // ROWS):
                tile = nl.ndarray((ROWS, sizes.PIECE), dtype=x.dtype, buffer=nl.sbuf)
                first = lo + m * sizes.PIECE
                part = (slice(r * ROWS, (r + 1) * ROWS), slice(first, first + sizes.PIECE))
                nisa.dma_copy(dst=tile, src=x[part])
                nisa.dma_copy(dst=out[part], src=tile)
    return out


@nki.jit
def without_class(x, config=None):
    return x


@nki.jit
def unannotated(x, config=None):
    config = config or Config()
    assert config.columns == 64
    return copied.func(x, config)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "sizes.py").write_text("PIECE = 256\n")
    (tmp_path / "bound_kernels.py").write_text(KERNEL)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "sizes", raising=False)
    return tmp_path


def objective_of(folder: Path, name: str = "copied") -> KernelObjective:
    kernel = kernel_from(f"{folder / 'bound_kernels.py'}:{name}")
    return KernelObjective(kernel, [Case((spec((128, 1024), "float32"),))], chip_named("trn2"))


# (point, transfers, bytes): both by hand. 1024 columns go in and out in pieces of ROWS by PIECE.
POINTS = [
    ({}, 8, 2 * 128 * 1024 * 4),
    ({"sizes.PIECE": 512}, 4, 2 * 128 * 1024 * 4),
    ({"sizes.PIECE": 128, "ROWS": 64}, 32, 2 * 128 * 1024 * 4),
    ({"config.columns": 256, "sizes.PIECE": 256}, 8, 2 * 128 * 1024 * 4),
    # pieces longer than a block: none is copied
    ({"dtype": "bfloat16"}, 8, 2 * 128 * 1024 * 2),
    ({"lnc": 1}, 8, 2 * 128 * 1024 * 4),
]


@pytest.mark.parametrize(("point", "transfers", "moved"), POINTS)
def test_a_point_sets_what_it_names(point, transfers, moved, folder):
    with activate():
        objective = objective_of(folder)
        case = objective.evaluate(point).cases[0]
        assert (case.transfers, case.dma_bytes) == (transfers, moved)
        # and nothing of it stays
        assert objective.evaluate({}).cases[0].transfers == 8


def test_fields_of_records_are_replaced_in_copies(folder):
    with activate():
        kernel = kernel_from(f"{folder / 'bound_kernels.py'}:copied")
        x = spec((128, 1024), "float32")
        call = bound(kernel, (x,), {}, {"config.columns": 64, "pair.second": 9})
    assert call.args == (x,)
    assert (call.kwargs["config"].columns, tuple(call.kwargs["pair"])) == (64, (1, 9))
    of_the_caller = kernel.function.__globals__["Config"](columns=8)
    assert bound(kernel, (x, of_the_caller), {}, {"config.columns": 16}).args[1].columns == 16
    assert of_the_caller.columns == 8


def test_grid_lnc_and_ranks_are_those_of_the_launch(folder):
    with activate():
        kernel = kernel_from(f"{folder / 'bound_kernels.py'}:copied")
    assert bound(kernel, (), {}, {"grid": 2}).kernel.grid == (2,)
    assert bound(kernel, (), {}, {"grid": "2,3"}).kernel.grid == (2, 3)
    assert bound(kernel, (), {}, {"lnc": 2}).kernel.grid == (2,)
    assert bound(kernel, (), {}, {"ranks": 4}).ranks == 4
    with pytest.raises(UsageError, match="ranks is 'four'; it must be a whole number of at least 1"):
        bound(kernel, (), {}, {"ranks": "four"})


REFUSED = {
    "config.rows": "config.rows is searched; a Config has no rows",
    "sizes.WIDTH": "copied has no parameter sizes.WIDTH; it has x, config, pair",
    "rows": "copied has no parameter rows; it has x, config, pair",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_name_that_stands_for_nothing_is_refused(name, folder):
    with activate():
        objective = objective_of(folder)
        with pytest.raises(UsageError) as caught:
            objective.check(space_of({name: [1]}))
            bound(objective.kernel, objective.cases[0].args, {}, {name: 1})
    assert str(caught.value).splitlines()[0] == REFUSED[name]


def test_a_record_without_annotation_is_of_the_only_class_with_the_field(folder):
    with activate():
        objective = objective_of(folder, "unannotated")
        assert objective.evaluate({"config.columns": 64, "sizes.PIECE": 64}).is_timed


def test_a_record_that_nobody_makes_is_refused(folder):
    with activate():
        objective = objective_of(folder, "without_class")
    outcome = objective.evaluate({"config.rows": 1})
    assert outcome.state == "pruned"
    assert "config is None with no class named that makes one" in outcome.message


def test_a_document_of_a_point_says_what_each_name_sets(folder):
    with activate():
        objective = objective_of(folder)
    point = {"config.columns": 64, "sizes.PIECE": 64, "ROWS": 64, "lnc": 1}
    document = document_of(objective, "bound_kernels.py:copied", point)
    from tests.views.test_schemas import check

    check(document)
    assert document["fields"] == {"config.columns": 64}
    assert document["constants"] == {"sizes.PIECE": 64, "ROWS": 64}
    assert document["launch"] == {"lnc": 1}
    assert document["cases"] == [
        {"weight": 1.0, "args": [{"shape": [128, 1024], "dtype": "float32"}], "kwargs": {}}
    ]
