"""Compiled code is kept for this user alone, and a cache that is damaged, foreign or full stops nothing."""

from __future__ import annotations

import os
import pickle
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from nkilab import code_cache, private_files, records

needs_owners = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owners here")
HINT = "  hint: NKILAB_CACHE_DIR names another folder\n"
COMPILING = "nkilab: compiling the sum, once\n"


def add_up(values: np.ndarray, total: np.ndarray) -> None:
    for place in range(len(values)):
        total[0] += values[place]


class Planted:
    """What leaves a mark where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, int]]:
        return os.mkdir, (str(self.mark), 0o700)


def summed() -> int:
    """The sum of three ones by a job that a fresh process would have; 3 by hand."""
    total = np.zeros(1, np.int32)
    records._announce.cache_clear()
    records.Job(add_up, "the sum").compiled(np.ones(3, np.int32), total)
    return int(total[0])


@pytest.fixture(autouse=True)
def _forgets() -> Iterator[None]:
    for function in (private_files.tell_once, private_files._checked):
        function.cache_clear()
    yield
    private_files._checked.cache_clear()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of compiled code, not yet made."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("NKILAB_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "numba" / f"code-{private_files._user()}"


@pytest.fixture
def kept(place: Path, capfd: pytest.CaptureFixture[str]) -> Path:
    """A file of compiled code."""
    assert summed() == 3
    assert capfd.readouterr().err == COMPILING
    (file,) = place.iterdir()
    return file


def test_code_that_is_kept_is_compiled_once_and_belongs_to_this_user_alone(
    kept: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert summed() == 3
    assert capfd.readouterr().err == ""
    for kept_path in (kept, *list(kept.parents)[:3]):
        assert not stat.S_IMODE(os.stat(kept_path).st_mode) & 0o077


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "one byte": lambda content: content[:1],
    "the digest alone": lambda content: content[:32],
    "cut in the middle": lambda content: content[: len(content) // 2],
    "without its last byte": lambda content: content[:-1],
    "more behind it": lambda content: content + b"0",
    "a bit of the code": lambda content: content[:9000] + bytes([content[9000] ^ 1]) + content[9001:],
    "garbage": lambda content: bytes(range(256)) * 8,
    "no code of numba": lambda content: sha256(pickle.dumps([1])).digest() + pickle.dumps([1]),
    "no pickle": lambda content: sha256(b"text").digest() + b"text",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_code_is_compiled_again_and_the_folder_named(
    damage: str, kept: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kept.write_bytes(DAMAGES[damage](kept.read_bytes()))
    assert summed() == 3
    message = f"nkilab: the compiled code in {kept} is damaged; it is compiled again\n"
    assert capfd.readouterr().err == message + COMPILING
    assert summed() == 3
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("what", ["folder", "pipe"])
def test_what_stands_in_the_place_of_a_file_is_told(
    what: str, kept: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kept.unlink()
    if what == "folder":
        kept.mkdir()
    else:
        getattr(os, "mkfifo", lambda _: pytest.skip("there are no named pipes here"))(kept)
    assert summed() == 3
    reason = {"folder": "is a directory", "pipe": "it is a named pipe, no file"}[what]
    said = capfd.readouterr().err
    assert said.startswith(f"nkilab: the compiled code in {kept} is not loaded: {reason}\n{HINT}")
    assert COMPILING in said


def test_of_more_code_than_is_kept_what_was_used_longest_ago_goes(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = kept.stat().st_size
    for name, used in (("older", 10), ("newer", 20)):
        code_cache.FOLDER.write(kept.parent / name, bytes(size - 32))
        os.utime(kept.parent / name, (used, used))
    os.utime(kept, (5, 5))
    # loading it makes it the one used last
    assert summed() == 3
    monkeypatch.setattr(code_cache, "MOST_BYTES", 3 * size)
    code_cache.FOLDER.write(kept.parent / "newest", bytes(size - 32))
    assert {file.name for file in kept.parent.iterdir()} == {kept.name, "newer", "newest"}


def test_code_of_another_release_of_numba_is_not_loaded(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numba.__version__", "0.0.1")
    assert summed() == 3
    assert len(list(kept.parent.iterdir())) == 2


@needs_owners
@pytest.mark.parametrize("who", ["another owner", "writable by all", "writable by the group"])
def test_code_that_somebody_else_may_have_planted_does_not_run(
    who: str, kept: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    planted = pickle.dumps(Planted(tmp_path / "mark"))
    kept.write_bytes(sha256(planted).digest() + planted)
    if who == "another owner":
        if private_files._user():
            pytest.skip("only the superuser gives files away")
        os.chown(kept, 12345, -1)
        reason = "it belongs to another user"
    else:
        kept.chmod(0o602 if who == "writable by all" else 0o620)
        reason = "other users may write to it"
    assert summed() == 3
    assert not (tmp_path / "mark").exists()
    message = f"nkilab: the compiled code in {kept} is not loaded: {reason}\n{HINT}"
    assert capfd.readouterr().err == message + COMPILING


def test_the_trap_of_these_tests_works(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Planted(tmp_path / "mark")))
    assert (tmp_path / "mark").exists()


@needs_owners
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o702])
def test_a_folder_that_others_may_write_is_not_used(
    mode: int, place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place.mkdir(parents=True)
    place.chmod(mode)
    assert (summed(), summed()) == (3, 3)
    # told once, compiled each time
    message = f"nkilab: compiled code is not kept in {place}: other users may write to it\n{HINT}"
    assert capfd.readouterr().err == message + 2 * COMPILING
    assert list(place.iterdir()) == []


@needs_owners
def test_a_folder_of_another_user_is_not_used(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    if private_files._user():
        pytest.skip("only the superuser gives folders away")
    place.mkdir(parents=True)
    os.chown(place, 12345, -1)
    assert summed() == 3
    message = f"nkilab: compiled code is not kept in {place}: it belongs to another user\n{HINT}"
    assert capfd.readouterr().err == message + COMPILING


@needs_owners
def test_a_folder_that_anybody_may_replace_is_not_used_and_one_in_a_sticky_folder_is(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    assert summed() == 3
    message = (
        f"nkilab: compiled code is not kept in {place}: anybody may replace it, "
        f"as {tmp_path / 'cache'} may be written by all\n{HINT}"
    )
    assert capfd.readouterr().err == message + COMPILING
    assert list(place.iterdir()) == []
    (tmp_path / "cache").chmod(0o1777)
    private_files._checked.cache_clear()
    assert summed() == 3
    assert len(list(place.iterdir())) == 1


def test_a_folder_that_may_not_be_written_costs_a_compilation_only(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    place.mkdir(parents=True, mode=0o700)
    # the superuser may write everywhere
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert summed() == 3
    message = f"nkilab: compiled code is not kept in {place}: it may not be written\n{HINT}"
    assert capfd.readouterr().err == message + COMPILING


def test_a_file_in_the_place_of_the_folder_costs_a_compilation_only(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cache").write_text("")
    assert summed() == 3
    message = f"nkilab: compiled code is not kept in {place}: not a directory\n{HINT}"
    assert capfd.readouterr().err == message + COMPILING


def test_a_user_without_a_home_folder_compiles_each_time(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in ("NKILAB_CACHE_DIR", "NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "")
    monkeypatch.setenv("USERPROFILE", "")
    monkeypatch.chdir(tmp_path)
    assert summed() == 3
    message = "nkilab: compiled code is not kept: this user has no home folder for caches\n" + HINT
    assert capfd.readouterr().err == message + COMPILING
    assert list(tmp_path.iterdir()) == []


FULL = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
from tests.test_code_cache import summed
print(summed())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit to the size of files")
def test_a_disk_that_takes_no_more_costs_a_compilation_only(place: Path) -> None:
    paths = [str(Path(__file__).parents[1]), str(Path(code_cache.__file__).parents[1])]
    # what measures coverage would write beyond the limit, too
    plain = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    done = subprocess.run(
        [sys.executable, "-c", FULL], capture_output=True, text=True, check=True,
        env={**plain, "PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip
    message = f"nkilab: compiled code is not kept in {place}: file too large\n{HINT}"
    assert (done.stdout, done.stderr) == ("3\n", COMPILING + message)
    assert list(place.iterdir()) == []
