"""A file that is cut off, garbage, of another kind, a folder or a pipe ends in our error that names it."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from nkilab.arguments import argument
from nkilab.einsum.language.sources import source_of_file
from nkilab.errors import NkilabError
from nkilab.files import neff, ntff
from nkilab.ledger.reading import ledger_rows
from nkilab.machine import machine_named
from nkilab.migrate import migration
from nkilab.runner import kernel_from
from nkilab.tune import autotuned, confirm
from nkilab.tune.confirm import read_measured
from nkilab.tune.journal import Journal
from nkilab.tune.outcome import TIMED, Outcome
from nkilab.tune.space import read_space
from tests.files.test_files import mixed_program, timeline_of


def neff_bytes() -> bytes:
    return neff.packed(mixed_program())


def ntff_bytes() -> bytes:
    program = mixed_program()
    return ntff.packed(program, timeline_of(program))


def array_bytes(tmp: Path) -> bytes:
    np.save(tmp / "made.npy", np.arange(12, dtype=np.float32).reshape(3, 4))
    return (tmp / "made.npy").read_bytes()


def journal_bytes(tmp: Path) -> bytes:
    with Journal(tmp / "made.jsonl", "study") as journal:
        for n in (1, 2):
            journal.add("chip", Outcome({"n": n}, TIMED, values={"latency": 2.0}))
    return (tmp / "made.jsonl").read_bytes()


SPACE = "schema: nkilab.space/1\nparameters:\n  n: [1, 2, 3]\nconstraints:\n  - n < 3\n"
MACHINE = "schema: nkilab.machine/1\nchip: trn2\nsource: a test\nconstants:\n  dma_start_ns: 800.0\n"
SCHEMA = f"schema: {confirm.SCHEMA}\n"
EINSUM = "einsum:\n  declaration:\n    A: [K]\n    Z: []\n  expressions:\n    - Z = A[k]\n"


def space_of(tmp: Path) -> object:
    (tmp / "space.of.measured.yaml").write_text(SPACE)
    return read_space(tmp / "space.of.measured.yaml")


@dataclass(frozen=True)
class Kind:
    """Files of one kind: a name, a good content, and what reads them."""

    name: str
    content: Callable[[Path], bytes]
    read: Callable[[Path], object]


def read_journal(path: Path) -> object:
    with Journal(path, "study") as journal:
        return journal.known("chip")


KINDS = {
    "neff": Kind("a.neff", lambda _: neff_bytes(), neff.read),
    "ntff": Kind("a.ntff", lambda _: ntff_bytes(), ntff.read),
    "array": Kind("a.npy", array_bytes, lambda path: argument(f"@{path}")),
    "journal": Kind("a.jsonl", journal_bytes, read_journal),
    "space": Kind("a.yaml", lambda _: SPACE.encode(), read_space),
    "machine": Kind("a.yaml", lambda _: MACHINE.encode(), lambda path: machine_named(str(path))),
    "ledger": Kind("a.yaml", lambda _: LEDGER, ledger_rows),
    "measured": Kind("a.yaml", lambda _: MEASURED, lambda path: read_measured(path, space_of(path.parent))),
    "einsum": Kind("a.yaml", lambda _: EINSUM.encode(), source_of_file),
    "migrate": Kind("a.py", lambda _: b"import nki\n", lambda path: migration(str(path))),
    "kernel": Kind("a.py", lambda _: b"f = 1\n", lambda path: kernel_from(f"{path}:f")),
}  # fmt: skip
MEASURED = SCHEMA.encode() + b"points:\n  - {n: 1, latency_us: 2.0}\n  - {n: 2, latency_us: 3, noise: 0.1}\n"
LEDGER = b"""schema: nkilab.ledger/1
sources:
  lab: {ref: our notebook}
groups:
  - {family: doubling, kernel: "kernels.py:double", chip: trn2, dialect: nki, trust: B,
     split: fit, noise: 0.02, source: lab, rows: [
       {id: small, args: ['f32[128,512]'], measured: {nc_latency_us: 25}}]}
"""
# of a user's own Python, the user's own errors
PYTHON = {"kernel"}


def ends_well(kind: Kind, path: Path) -> None:
    """Read a file: that works, or ends in an error of ours that names it."""
    message = path.name
    try:
        kind.read(path)
    except NkilabError as error:
        message = str(error)
    assert path.name in message
    assert len(message) < 2000


@pytest.fixture
def _alarm() -> Iterator[None]:
    """A file that nobody writes to must not be waited for."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def ring(*_: object) -> None:
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("what", sorted(set(KINDS) - PYTHON))
def test_a_file_that_is_cut_off_or_damaged_is_told(what: str, tmp_path: Path) -> None:
    kind, random = KINDS[what], Random(8)
    content = kind.content(tmp_path)
    path = tmp_path / kind.name
    path.write_bytes(content)
    cuts = sorted(set(range(0, len(content), max(1, len(content) // 40))))
    damaged = [content[:cut] for cut in cuts]
    for _ in range(20):
        at = random.randrange(len(content))
        damaged.append(content[:at] + bytes([random.randrange(256)]) + content[at + 1 :])
        damaged.append(random.randbytes(random.randrange(200)))
        damaged.append(content[:at] + random.randbytes(5) + content[at:])
    for number, one in enumerate(damaged):
        # another name each time: machine files are remembered
        own = path.with_name(f"{number}-{kind.name}")
        own.write_bytes(one)
        ends_well(kind, own)


WRONG = [
    b"[]",
    b"null",
    b"1",
    b'"text"',
    b"{}",
    b"- 1\n",
    b"schema: 1\n",
    b"\xff\xfe",
    b"a: &a [*a]\n",
    b"\0" * 100,
]


@pytest.mark.parametrize("what", sorted(set(KINDS) - PYTHON))
def test_a_file_of_another_type_or_schema_is_told(what: str, tmp_path: Path) -> None:
    kind = KINDS[what]
    content = kind.content(tmp_path)
    versions = [content.replace(b"/1", b"/999"), content.replace(b"schema", b"scheme"), content[::-1]]
    for number, one in enumerate([*WRONG, *versions]):
        own = tmp_path / f"{number}-{kind.name}"
        own.write_bytes(one)
        ends_well(kind, own)


@pytest.mark.usefixtures("_alarm")
@pytest.mark.parametrize("what", KINDS)
@pytest.mark.parametrize("stands", ["nothing", "folder", "pipe", "loop", "unreadable"])
def test_what_is_no_file_is_told(
    stands: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = KINDS[what]
    path = tmp_path / kind.name
    if stands == "folder":
        path.mkdir()
    elif stands == "pipe":
        getattr(os, "mkfifo", lambda _: pytest.skip("there are no named pipes here"))(path)
    elif stands == "loop":
        path.symlink_to(path)
    elif stands == "unreadable":
        path.write_bytes(kind.content(tmp_path))
        path.chmod(0)
        plain = io.open

        def refused_open(file: Any, *args: Any, **more: Any) -> Any:
            # the superuser reads everything
            if str(file) == str(path):
                raise PermissionError(13, "Permission denied", str(file))
            return plain(file, *args, **more)

        monkeypatch.setattr("builtins.open", refused_open)
        monkeypatch.setattr(io, "open", refused_open)
    if (what, stands) == ("journal", "nothing"):
        return
    with pytest.raises(NkilabError) as refused:
        kind.read(path)
    assert path.name in str(refused.value)


@pytest.mark.parametrize("what", KINDS)
def test_the_files_that_the_tests_damage_are_good(what: str, tmp_path: Path) -> None:
    path = tmp_path / KINDS[what].name
    path.write_bytes(KINDS[what].content(tmp_path))
    KINDS[what].read(path)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b'{"schema": "nkilab.choice/1"}', b"\xff", None]
)
def test_a_damaged_choice_of_an_autotuned_kernel_is_made_anew(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NKILAB_CACHE_DIR", str(tmp_path))
    path = autotuned._path("key")
    path.parent.mkdir(parents=True)
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    (tmp_path / "space.yaml").write_text(SPACE)
    assert autotuned._read("key", read_space(tmp_path / "space.yaml")) is None
