"""Plans and timelines that another process made are read, and never where they may be wrong or planted."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

import nkilab
from nkilab import estimates, kept_estimates, private_files
from nkilab.errors import UseError
from nkilab.machine.model import assumed
from nkilab.trace.program import Program
from tests.views import runs

KERNEL = """
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def copies(x, times):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for _ in range(times):
        tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile, x)
        nisa.dma_copy(out, tile)
    return out
"""


def loaded_copied_stored() -> Program:
    """A program of three rows."""
    return runs.loaded_copied_stored().program


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of estimates, not yet made; short programs are kept too."""
    monkeypatch.setenv("NKILAB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(kept_estimates, "FEWEST_ROWS", 1)
    for function in (private_files.tell_once, private_files._checked):
        function.cache_clear()
    yield tmp_path / "cache" / "estimates" / f"programs-{private_files._user()}"
    private_files._checked.cache_clear()


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of each program that is simulated."""
    rows: list[int] = []
    simulate = estimates.simulate
    monkeypatch.setattr(estimates, "simulate", lambda p, *more: rows.append(len(p)) or simulate(p, *more))
    return rows


def test_an_equal_program_is_looked_up_and_all_that_is_told_of_it_is_the_same(
    place: Path, timed: list[int]
) -> None:
    first, second = (estimates.estimate_program(loaded_copied_stored()) for _ in range(2))
    assert timed == [len(first.program)]
    assert second.timeline == first.timeline
    assert second.to_dict() == first.to_dict()
    for name in first.plan.waits.__struct_fields__:
        again, own = getattr(second.plan.waits, name), getattr(first.plan.waits, name)
        assert again.dtype == own.dtype
        np.testing.assert_array_equal(again, own)
    (file,) = place.iterdir()
    assert not file.stat().st_mode & 0o077


def _slower(program: Program) -> None:
    program.machine = replace(program.machine, dma_start_ns=assumed(5.0, "a test"))


CHANGES: dict[str, Callable[[Program], object]] = {
    "a constant of the chip": _slower,
    "how it is compiled": lambda program: setattr(program, "compiler", "as written"),
    "a line": lambda program: program.lines.__setitem__(0, ("other.py", 3)),
    "a type of a tile": lambda program: program.storages.__setitem__(
        1, program.storages[1]._replace(shape=(128, 33))
    ),
    "a place in loops": lambda program: program.positions.append((0, 7, 0)),
    "a value": lambda program: program.values.append((True,)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_decides_a_plan_or_its_times_decides_the_name(change: str) -> None:
    program, other = loaded_copied_stored(), loaded_copied_stored()
    assert kept_estimates.path_of(other) == kept_estimates.path_of(program)
    CHANGES[change](other)
    assert kept_estimates.path_of(other) != kept_estimates.path_of(program)


def test_a_program_of_which_files_do_not_have_everything_is_not_kept() -> None:
    program = loaded_copied_stored()
    program.met = [((0, 0), (1, 0))]
    assert kept_estimates.path_of(program) is None
    program.met = []
    assert kept_estimates.path_of(program) is not None
    program.forms[1].is_indirect = True
    assert kept_estimates.path_of(program) is None


def test_changed_modules_of_the_model_make_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    before = kept_estimates.path_of(loaded_copied_stored())
    monkeypatch.setattr(kept_estimates, "_makers", lambda: [("timing/clock.py", 1, 1)])
    assert kept_estimates.path_of(loaded_copied_stored()) != before


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut": lambda content: content[:-1],
    "a bit": lambda content: content[:200] + bytes([content[200] ^ 1]) + content[201:],
    "another message": lambda content: sha256(b"\x93\1\2\3").digest() + b"\x93\1\2\3",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_made_again(
    damage: str, place: Path, timed: list[int], capfd: pytest.CaptureFixture[str]
) -> None:
    first = estimates.estimate_program(loaded_copied_stored())
    (file,) = place.iterdir()
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    for _ in range(2):
        assert estimates.estimate_program(loaded_copied_stored()).timeline == first.timeline
    assert len(timed) == 2
    assert capfd.readouterr().err.startswith(f"nkilab: the estimate in {file} is not used: ")


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owners here")
def test_an_entry_that_others_may_write_is_not_used(place: Path, timed: list[int]) -> None:
    estimates.estimate_program(loaded_copied_stored())
    (file,) = place.iterdir()
    file.chmod(0o666)
    estimates.estimate_program(loaded_copied_stored())
    assert len(timed) == 2


def test_no_more_is_kept_than_the_bound_and_what_was_used_last_stays(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_estimates, "_SHARE", 1)
    for name in "abc":
        kept_estimates.FOLDER.write(kept_estimates.FOLDER.place() / name, bytes(600_000))
    for name, used in (("a", 30), ("b", 10), ("c", 20)):
        os.utime(place / name, (used, used))
    monkeypatch.setenv("NKILAB_ESTIMATES", "1")
    estimates.estimate_program(loaded_copied_stored())
    assert {"a"} == {file.name for file in place.iterdir()} & set("abc")
    assert len([*place.iterdir()]) == 2


def test_nothing_is_kept_where_nobody_wants_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NKILAB_ESTIMATES", "0")
    estimates.estimate_program(loaded_copied_stored())
    assert not place.exists()
    monkeypatch.setenv("NKILAB_ESTIMATES", "many")
    sentence = (
        "NKILAB_ESTIMATES is 'many'; it must be a whole number, the megabytes of estimates that are kept"
    )
    with pytest.raises(UseError, match=sentence):
        estimates.estimate_program(loaded_copied_stored())


def test_two_processes_that_write_one_folder_lose_nothing(tmp_path: Path, place: Path) -> None:
    (tmp_path / "copies.py").write_text(KERNEL)
    script = (
        "import sys, nkilab\nfrom nkilab import kept_estimates\nkept_estimates.FEWEST_ROWS = 1\n"
        "with nkilab.activate():\n    from copies import copies\n"
        "    for times in range(2, 22):\n"
        "        nkilab.estimate(copies, nkilab.spec((128, int(sys.argv[1])), 'float32'), times)\n"
    )
    paths = os.pathsep.join([str(tmp_path), str(Path(nkilab.__file__).parents[1])])
    both = [
        subprocess.Popen([sys.executable, "-c", script, width], env={**os.environ, "PYTHONPATH": paths})
        for width in ("64", "96", "64")
    ]
    assert [process.wait() for process in both] == [0, 0, 0]
    files = [*place.iterdir()]
    assert len(files) == 40
    for file in files:
        assert kept_estimates.recalled(file) is not None
