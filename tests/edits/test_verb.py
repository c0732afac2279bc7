"""`nkilab advise`: what it lists, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import inside

from .kernels import CASES

FUSE = CASES["fuse_alu, nki"]
ARGS = [word for arg in FUSE.args for word in ("--arg", arg)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kernel.py").write_text(FUSE.text)
    return tmp_path


def test_the_list_is_that_of_check_and_profile(folder: Path, capfd) -> None:
    lists = []
    for verb in ("advise", "check", "profile"):
        assert inside(verb, "kernel.py:kernel", *ARGS, "--json", folder=folder) == 0
        lists.append(json.loads(capfd.readouterr().out)["advice"])
    assert lists[0] == lists[1] == lists[2]
    assert any(piece["combined_with"] for piece in lists[0])
    assert lists[0][0]["id"] == "fuse_alu"


def test_the_list_says_how_to_go_on(folder: Path, capfd) -> None:
    assert inside("advise", "kernel.py:kernel", *ARGS, folder=folder) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].startswith(" 1  kernel.py:")
    assert lines[-1] == "--apply N writes one as a diff, runs it and compares"


def test_a_change_is_printed_and_the_file_stays(folder: Path, capfd) -> None:
    assert inside("advise", "kernel.py:kernel", *ARGS, "--apply", "1", folder=folder) == 0
    printed = capfd.readouterr().out
    diff, rest = printed.split("the results are equal, bit for bit\n")
    assert diff.startswith("--- a/kernel.py\n+++ b/kernel.py\n@@ ")
    assert f"+        {FUSE.says}\n" in diff
    assert [line.split(":")[0] for line in rest.splitlines()[:3]] == ["before", "after", "saved"]
    assert rest.endswith("the file is as it was; --write changes it\n")
    assert (folder / "kernel.py").read_text() == FUSE.text


def test_write_changes_the_file_alone(folder: Path, capfd) -> None:
    assert inside("advise", "kernel.py:kernel", *ARGS, "--apply", "1", "--write", folder=folder) == 0
    assert capfd.readouterr().out.endswith("wrote kernel.py\n")
    assert FUSE.says in (folder / "kernel.py").read_text()
    assert [path.name for path in folder.iterdir() if path.name != "__pycache__"] == ["kernel.py"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--write",), "--write has nothing to write\n  hint: name a piece of advice: --apply 1 --write"),
        (("--apply", "9"), "there is no advice 9\n  hint: give a number from 1 to 3"),
        (("--apply", "0"), "--apply is 0; it must be a whole number of at least 1"),
        (
            ("--apply", "2"),
            "advice 2 is not mechanical: finer_tiles: no constant says the size of a tile; give it a name, "
            "as in TILE = 128\n  hint: cut the tile into parts along its free axis, each loaded, computed "
            "and stored by itself",
        ),
        (
            ("--apply", "3"),
            # the first of finer_tiles + shift_engine
            "advice 3 is not mechanical: finer_tiles: no constant says the size of a tile; give it a name, "
            "as in TILE = 128\n  hint: cut the tile into parts along its free axis, each loaded, computed "
            "and stored by itself; then give some of the instructions to the idle engine, by "
            "engine=nisa.engine.NAME",
        ),
    ],
)
def test_what_cannot_be_applied_is_said(folder: Path, capfd, more: tuple[str, ...], says: str) -> None:
    assert inside("advise", "kernel.py:kernel", *ARGS, *more, folder=folder) == 2
    assert capfd.readouterr().err == f"nkilab: {says}\n"
    assert (folder / "kernel.py").read_text() == FUSE.text


def test_a_layout_of_its_own_is_not_mechanical(folder: Path, capfd) -> None:
    text = """
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((128, 4096), nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 4096), nl.float32, buffer=nl.sbuf)
    for i in range(64):
        nisa.dma_copy(tile[:, i * 64 : i * 64 + 64], x[:, i * 64 : i * 64 + 64])
    nisa.dma_copy(out, tile)
    return out
"""
    (folder / "rows.py").write_text(text)
    arguments = ("advise", "rows.py:kernel", "--arg", "f32[128,4096]")
    assert inside(*arguments, "--json", folder=folder) == 0
    ids = [own["id"] for own in json.loads(capfd.readouterr().out)["advice"]]
    number = str(ids.index("contiguous_rows") + 1)
    assert inside(*arguments, "--apply", number, folder=folder) == 2
    assert capfd.readouterr().err == (
        f"nkilab: advice {number} is not mechanical: contiguous_rows: it asks for loops, layouts or an order "
        "of work of its own\n  hint: load wider rows, or lay the tensor out so that a tile's rows are "
        "contiguous\n"
    )


def test_the_change_of_a_helper_in_another_module_is_made_there(tmp_path: Path, capfd) -> None:
    head, body = FUSE.text.split("@nki.jit\n")
    package = tmp_path / "kernels"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "work.py").write_text(head + body)
    (package / "entry.py").write_text(
        "import nki\nfrom .work import kernel as work\n\n@nki.jit\ndef kernel(x):\n    return work(x)\n"
    )
    options = ("advise", "kernels/entry.py:kernel", *ARGS, "--apply", "1", "--write")
    assert inside(*options, folder=tmp_path) == 0, capfd.readouterr().err
    assert FUSE.says in (package / "work.py").read_text()


def test_a_kernel_that_fails_is_told_as_by_its_run(folder: Path, capfd) -> None:
    (folder / "kernel.py").write_text(FUSE.text.replace("operand0=0.5", "operand0=half"))
    assert inside("advise", "kernel.py:kernel", *ARGS, folder=folder) == 1
    assert "kernel.py:15: tensor_scalar: " in capfd.readouterr().err


def test_a_kernel_that_breaks_off_tells_what_ran(folder: Path, capfd) -> None:
    broken = FUSE.text.replace("return out", "nisa.nc_matmul(out, out, out)\n    return out")
    (folder / "kernel.py").write_text(broken)
    assert inside("advise", "kernel.py:kernel", *ARGS, folder=folder) == 1
    printed = capfd.readouterr()
    assert printed.out.startswith("note: the kernel stopped before its end, after ")
    assert "us predicted); advice is for kernels that run to it\n" in printed.out
    assert "nc_matmul: dst is in " in printed.err


COPY = """
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((128, 65536), nl.float32, buffer=nl.shared_hbm)
    for i in range(16):
        tile = nl.ndarray((128, 4096), nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(tile, x[:, nl.ds(i * 4096, 4096)])
        nisa.dma_copy(out[:, nl.ds(i * 4096, 4096)], tile)
    return out
"""


def test_a_kernel_near_its_roofline_is_told_so(folder: Path, capfd) -> None:
    (folder / "kernel.py").write_text(COPY)
    assert inside("advise", "kernel.py:kernel", "--arg", "f32[128,65536]", folder=folder) == 0
    near = "It is within 4 % of its roofline: nothing here pays"
    assert capfd.readouterr().out.startswith(
        f"{near}, but for a second core.\n 1  kernel.py:12: 16 independent "
    )
    assert (
        inside("advise", "kernel.py:kernel", "--arg", "f32[128,65536]", "--target", "trn1", folder=folder)
        == 0
    )
    assert capfd.readouterr().out == f"{near}.\n"
