"""`nkilab einsum` as a user calls it: exit codes, what stands where, files whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nkilab.einsum.verb import sizes_of
from nkilab.errors import UsageError
from tests.command_line import call
from tests.einsum.specs import PRODUCT

SIZES = ("--size", "M=130", "--size", "K=40", "--size", "N=33")


def test_a_kernel_goes_to_standard_output_and_its_report_to_standard_error(tmp_path: Path) -> None:
    done = call("einsum", "mk,kn->mn", *SIZES, folder=tmp_path)
    assert done.returncode == 0
    compile(done.stdout, "kernel.py", "exec")
    assert "def kernel(A, B):" in done.stdout
    assert "def pack(A, B):" in done.stdout
    assert done.stderr.startswith("kernel: nki, for trn2\n")
    assert "\n  predicted " in done.stderr


def test_extents_are_given_apart_or_separated_by_commas() -> None:
    assert sizes_of(["M=130,K=40", "N=33"]) == {"M": 130, "K": 40, "N": 33}
    for wrong in ("M=130,", "M=130,K", "M=130,K=0", "M=1,M=x", "M=1,M=1"):
        with pytest.raises(UsageError):
            sizes_of([wrong])


def test_files_are_written_beside_one_another_and_work(tmp_path: Path) -> None:
    (tmp_path / "product.yaml").write_text(PRODUCT)
    done = call(
        "einsum", "product.yaml", "-o", "made.py", "--test", "--notebook", "made.ipynb", folder=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "ZH on whole numbers: error 0, bound 0: exact" in done.stdout
    names = ["benchmark_made.py", "made.ipynb", "made.py", "product.yaml", "profile_made.py", "test_made.py"]
    assert sorted(p.name for p in tmp_path.iterdir()) == names
    done = call("run", "test_made.py", folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, "product computes its cascade\n")


def test_json_stands_alone(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(PRODUCT.replace("einsums: [DS, P, ZS, ZH]", "einsums: [DS, P]"))
    done = call("einsum", "s.yaml", "--json", folder=tmp_path)
    document = json.loads(done.stdout)
    assert (done.returncode, done.stderr, document["schema"]) == (0, "", "nkilab.einsum/1")
    (finding,) = document["findings"]
    assert (finding["id"], finding["grade"], finding["line"], finding["key"]) == (
        "fusion-list", "repair", 42, "binding.fusion[0].einsums",
    )  # fmt: skip


def test_a_refused_specification_is_exit_1_and_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(PRODUCT.replace("einsums: [DS, P, ZS, ZH]", "einsums: [DS, P]"))
    done = call("einsum", "s.yaml", "--strict", "-o", "k.py", folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "s.yaml:42:16: binding.fusion[0].einsums: einsums lacks ZS and ZH, which ranks names\n"
        "  hint: write [DS, P, ZS, ZH], or leave einsums out\n"
    )
    assert [p.name for p in tmp_path.iterdir()] == ["s.yaml"]


def test_wrong_usage_is_exit_2(tmp_path: Path) -> None:
    for arguments in (
        ("mk,kn->mn", "--size", "M"),
        ("mk,kn->mn", *SIZES, "--size", "L=4"),
        ("mk,kn->mn", *SIZES, "--dtype", "A=float32", "--dtype", "bfloat16"),
        ("mk,kn->mn", *SIZES, "-o", "kernel.txt"),
        ("mk,kn->mn", *SIZES, "--target", "trn9"),
        ("mk,kn->mn", *SIZES, "--dialect", "cuda"),
        ("mk,kn->mn", *SIZES, "--search", "-1"),
        (),
    ):
        assert call("einsum", *arguments, folder=tmp_path).returncode == 2, arguments


def test_what_cannot_be_written_is_told_and_nothing_is(tmp_path: Path) -> None:
    done = call("einsum", "mk,kn->mn", *SIZES, "-o", "k.py", "--notebook", "nowhere/k.ipynb", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "nkilab: the folder of nowhere/k.ipynb does not exist\n  hint: make nowhere, or name another file\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_explain_tells_the_story(tmp_path: Path) -> None:
    done = call("einsum", "mk,kn->mn", *SIZES, "--explain", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    titles = ("Einsums", "Passes", "Loop tree", "Tensors", "Instructions")
    assert all(f"\n{title}\n" in done.stdout for title in titles)
