"""What is written: whole or not at all, and never over what a command reads."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import click
import pytest

from nkilab import neuron_profile
from nkilab.cli import main
from nkilab.command_line import FOLDER, OUTPUT
from nkilab.disk import check_outputs, write_whole, write_whole_folder
from nkilab.errors import FileError, UsageError
from tests.command_line import KERNEL, SOURCE, call, inside, outcome_of

ARG = ("--arg", "f32[64,512]")
# How the help of what is written begins.
WORDS = (
    "Write",
    "Draw",
    "Folder for",
    "Where a",
    "Where outcomes",
    "The machine file to",
    "The NTFF to",
    "A file for",
    "A file that keeps",
    "Folder that its files",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "helper.py").write_text("FACTOR = 2.0\n")
    (tmp_path / "kernels.py").write_text("import helper\n" + KERNEL)
    (tmp_path / "space.yaml").write_text("schema: nkilab.space/1\nparameters: {factor: [1.0, 2.0]}\n")
    (tmp_path / "host.py").write_text("import kernels\n")
    (tmp_path / "sum.yaml").write_text("declaration:\n  A: [K]\n  Z: []\nexpressions:\n  - Z = A[k]\n")
    (tmp_path / "measured.yaml").write_text("rows: []\n")
    (tmp_path / "soft.svg").symlink_to("kernels.py")
    os.link(tmp_path / "kernels.py", tmp_path / "hard.svg")
    return tmp_path


PROFILE = ("profile", "kernels.py:doubled", *ARG)
TUNE = ("tune", "kernels.py:doubled", *ARG, "--space", "space.yaml")
OVERWRITES = {
    "html": (*PROFILE, "--html", "kernels.py"),
    "trace": (*PROFILE, "--trace", "./kernels.py"),
    "a link": (*PROFILE, "--html", "soft.svg"),
    "a hard link": (*PROFILE, "--html", "hard.svg"),
    "sarif": ("check", "kernels.py:doubled", *ARG, "--sarif", "kernels.py"),
    "run": ("run", "--json", "host.py", "host.py"),
    "an argument of a script": ("run", "--json", "space.yaml", "host.py", "space.yaml"),
    "diff": ("diff", "kernels.py:doubled", "kernels.py:added", "--html", "kernels.py"),
    "einsum": ("einsum", "sum.yaml", "--notebook", "sum.yaml"),
    "journal": (*TUNE, "--journal", "space.yaml"),
    "picture": (*TUNE, "--picture", "soft.svg"),
    "calibrate": ("calibrate", "--from", "measured.yaml", "-o", "measured.yaml"),
    "validate": ("validate", "measured.yaml", "--picture", "measured.yaml"),
    "capture": ("neuron-profile", "capture", "-n", "a.neff", "-s", "a.neff"),
    "the second capture": (
        "neuron-profile", "capture", "-n", "a_exec_2.ntff", "-s", "a.ntff", "--profile-nth-exec", "2",
    ),
    "view": ("neuron-profile", "view", "-n", "ntff.json", "--output-format", "json"),
}  # fmt: skip


@pytest.mark.parametrize("what", OVERWRITES)
def test_no_output_replaces_an_input(what: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.neff", "a_exec_2.ntff", "ntff.json"):
        (folder / name).write_text("an input")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert inside(*OVERWRITES[what], folder=folder) == 2
    said = capsys.readouterr().err
    assert said.endswith(", which the command reads\n  hint: name another file\n"), said
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_the_message_names_option_and_path(folder: Path) -> None:
    done = call(*PROFILE, "--html", "soft.svg", folder=folder)
    assert outcome_of(done) == (
        2, "", "nkilab: --html is soft.svg, which the command reads\n  hint: name another file\n"
    )  # fmt: skip


def test_no_driver_of_an_einsum_replaces_its_specification(folder: Path) -> None:
    text = '"""\neinsum:\n"""\n'
    (folder / "test_k.py").write_text(text)
    done = call("einsum", "test_k.py", "-o", "k.py", "--test", folder=folder)
    assert (done.returncode, done.stderr) == (
        2, "nkilab: the test of --test is test_k.py, which the command reads\n  hint: name another file\n"
    )  # fmt: skip
    assert (folder / "test_k.py").read_text() == text


def test_no_output_replaces_a_source_that_is_imported(folder: Path) -> None:
    done = call(*PROFILE, "--html", "helper.py", folder=folder)
    problem = "nkilab: helper.py is the source of the module helper\n  hint: name another file\n"
    assert outcome_of(done) == (1, "imported\n", problem)
    assert (folder / "helper.py").read_text() == "FACTOR = 2.0\n"


def test_no_journal_is_begun_in_a_source(folder: Path) -> None:
    (folder / "helper.py").write_text("")
    done = call(*TUNE, "--journal", "helper.py", folder=folder)
    assert (done.returncode, done.stderr) == (
        1, "nkilab: helper.py is the source of the module helper\n  hint: name another file\n"
    )  # fmt: skip
    assert (folder / "helper.py").read_bytes() == b""


def test_every_option_that_writes_is_checked() -> None:
    """What says that it writes has a type that `Verb.invoke` checks; two verbs check paths of their own."""
    programs = [main, neuron_profile.command]
    verbs = [verb for program in programs for verb in program.commands.values()]
    writes = {
        (verb.name, parameter.name)
        for verb in verbs for parameter in verb.params
        if isinstance(parameter, click.Option) and parameter.metavar and parameter.help
        and parameter.help.startswith(WORDS)
    }  # fmt: skip
    checked = {(v.name, p.name) for v in verbs for p in v.params if p.type in (OUTPUT, FOLDER)}
    assert len(writes) > 12
    assert writes - checked == {("view", "output")}
    assert checked - writes == {("init", "folder"), ("stubs", "folder")}


def refusal(outputs: dict[str, str], folders: tuple[str, ...] = ()) -> str:
    with pytest.raises(UsageError) as refused:
        check_outputs(outputs, [], folders)
    return str(refused.value)


def test_paths_that_nothing_can_be_written_to_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("file")
    file, none = tmp_path / "file", tmp_path / "none" / "a.html"
    assert refusal({"--html": str(tmp_path)}) == (
        f"{tmp_path} is a folder; a file is to be written there\n  hint: name a file in it"
    )
    assert refusal({"--html": str(none)}) == (
        f"the folder of {none} does not exist\n  hint: make {none.parent}, or name another file"
    )
    assert refusal({"--parquet": str(file)}, ("--parquet",)) == (
        f"{file} is a file; a folder is to be written there\n  hint: name another folder"
    )
    assert refusal({"--parquet": str(file / "a" / "b")}, ("--parquet",)) == (
        f"{file} is a file; a folder is to be written there\n  hint: name another folder"
    )
    assert refusal({"--html": str(file), "--trace": str(tmp_path / "link")}) == (
        f"--html and --trace both name {tmp_path / 'link'}\n  hint: give each file a name of its own"
    )
    # the superuser may write everywhere
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) not in (file, tmp_path))
    assert refusal({"--html": str(file)}) == f"{file} may not be written\n  hint: name another file"
    assert refusal({"--html": str(tmp_path / "a")}) == (
        f"the folder of {tmp_path / 'a'} may not be written\n  hint: name a file elsewhere"
    )
    assert refusal({"--parquet": str(tmp_path / "a")}, ("--parquet",)) == (
        f"the folder {tmp_path} may not be written\n  hint: name another folder"
    )


def test_a_file_that_is_written_again_keeps_its_rights(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("")
    (tmp_path / "own").chmod(0o600)
    write_whole(tmp_path / "own", b"new")
    write_whole_folder(tmp_path, {"own": b"newer"})
    assert stat.S_IMODE((tmp_path / "own").stat().st_mode) == 0o600
    assert (tmp_path / "own").read_bytes() == b"newer"


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("broken", [0, 1, 2])
def test_a_folder_gets_all_files_or_none(
    is_new: bool, broken: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "a" / "b"
    if not is_new:
        place.mkdir(parents=True)
        (place / "one").write_text("before")
    plain, count = Path.write_bytes, 0

    def full(path: Path, content: bytes) -> int:
        nonlocal count
        count += 1
        if count > broken:
            raise OSError(errno.ENOSPC, "No space left on device")
        return plain(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(FileError) as refused:
        write_whole_folder(place, {"one": b"1", "deep/er/two": b"2", "three": b"3"})
    assert str(refused.value) == f"{place} cannot be written: no space left on device"
    left = [path.name for path in tmp_path.rglob("*")]
    assert sorted(left) == ([] if is_new else ["a", "b", "one"])
    assert is_new or (place / "one").read_text() == "before"


# as on a disk that is full: a file may have so many bytes
LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
from nkilab.cli import main
main.main(sys.argv[2:], "nkilab")
"""
FULL = {
    "demo": (30_000, ("demo", "--output", "new")),
    "demo in a folder": (30_000, ("demo", "--output", "there")),
    "stubs": (4_000, ("stubs", "new/typings")),
    "init": (600, ("init", "new")),
    "parquet": (3_000, (*PROFILE, "--parquet", "new")),
    "run": (9_000, ("run", "--profile", "new", "launch.py")),
    "html": (9_000, (*PROFILE, "--html", "new.html")),
}


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit to the size of files")
@pytest.mark.parametrize("what", FULL)
def test_a_disk_that_takes_no_more_leaves_nothing_half_written(what: str, folder: Path) -> None:
    if what == "parquet":
        pytest.importorskip("pyarrow")
    limit, words = FULL[what]
    (folder / "there").mkdir()
    (folder / "launch.py").write_text(
        "import numpy as np\nfrom kernels import doubled\ndoubled(np.ones((64, 512), np.float32))\n"
    )
    before = sorted(folder.rglob("*"))
    command = [sys.executable, "-B", "-c", LIMITED, str(limit), *words]
    # what measures coverage would write beyond the limit, too
    plain = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    environment = {**plain, "PYTHONPATH": SOURCE}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "cannot be written: file too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(folder.rglob("*")) == before
