"""Stubs as editors and type checkers read them: whole, right about kernels, and never imported."""

from __future__ import annotations

import ast
import json
import re
import sys

import pytest

from nkilab.dialects.history import BETA1, VERSIONS
from nkilab.dialects.serve import tables
from nkilab.errors import UsageError
from nkilab.stubs import stub_texts, write_stubs
from tests.command_line import call, script

NKI = """\
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def product(a: nl.NkiTensor, b: nl.NkiTensor) -> nl.NkiTensor:
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    lhs = nl.ndarray((128, 128), nl.bfloat16, buffer=nl.sbuf)
    rhs = nl.ndarray((128, 512), nl.bfloat16, buffer=nl.sbuf)
    sums = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)
    for k in nl.affine_range(4):
        nisa.dma_copy(dst=lhs, src=a[k * 128 : (k + 1) * 128])
        nisa.dma_copy(dst=rhs, src=b[k * 128 : (k + 1) * 128])
        nisa.nc_matmul(dst=sums, stationary=lhs, moving=rhs)
    held = nl.ndarray(sums.shape, nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=held, data=sums, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out, src=held)
    return out


grid = product[2]
name: str = product.__name__
"""
BETA = """\
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
from neuronxcc import nki as same


@nki.jit(mode="auto")
def scaled(x: nl.tile_type, factor: float = 2.0) -> nl.tile_type:
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i, j = nl.mgrid[0:128, 0:512]
    for t in nl.affine_range(x.shape[0] // 128):
        tile = nl.load(x[t * 128 + i, j])
        high = nisa.tensor_scalar(tile, op0=nl.multiply, operand0=factor)
        nl.store(out[t * 128 + i, j], value=high + -tile, mask=(i < 64))
    return out


@nki.benchmark(warmup=2, iters=10, save_neff_name="k.neff")
def timed(x: nl.tile_type) -> nl.tile_type:
    return x
""".replace("nl.tile_type", "same.tensor")
WRONG = """\
import nki.isa as nisa
import nki.language as nl

nl.affine_rang(3)
nisa.tensor_copy(dst=nl.ndarray((1, 1), nl.float32, buffer=nl.sbuf))
nisa.tensor_copy(1, 2)
nisa.nc_matmul(nl.x, nl.y, nl.z, acumulate=True)
"""


def test_every_served_name_of_every_version_is_in_the_stubs():
    for version in ("", *VERSIONS):
        texts = stub_texts(version)
        trees = {path: ast.parse(text) for path, text in texts.items()}
        for root in ("nki", "neuronxcc"):
            if version and (root == "neuronxcc") != (version == BETA1):
                assert not any(path.startswith(f"{root}/") for path in texts)
                continue
            for module, names in tables(root, version).items():
                tree = trees["/".join([*module.split("."), "__init__.pyi"])]
                assert set(filter(str.isidentifier, names)) <= _defined(tree), (version, module)


def _defined(tree):
    definitions = set()
    for node in tree.body:
        match node:
            case ast.FunctionDef() | ast.ClassDef():
                definitions.add(node.name)
            case ast.AnnAssign():
                definitions.add(node.target.id)
            case ast.Assign():
                definitions.add(node.targets[0].id)
    return definitions


def test_a_stub_of_one_version_has_the_parameters_of_that_version():
    """By hand from the stubs of NKI 0.2 and 0.3: dma_copy took dst_rmw_op, then engine."""

    def named(version):
        text = stub_texts(version)["nki/isa/__init__.pyi"]
        return re.search(r"def dma_copy\((.*)\) ->", text)[1]

    assert "dst_rmw_op" in named("0.2")
    assert "dst_rmw_op" not in named("0.3")
    assert "engine" in named("0.3")
    assert "engine" not in named("0.2").replace("dma_engine", "")


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """What mypy says of three files, strictly, with nothing but the stubs."""
    api = pytest.importorskip("mypy.api")
    folder = tmp_path_factory.mktemp("typed")
    write_stubs(folder / "typings", "")
    (folder / "mypy.ini").write_text(
        f"[mypy]\nmypy_path = {folder / 'typings'}\nstrict = True\nno_site_packages = True\n"
        "disallow_any_decorated = False\n"
    )
    files = [
        script(folder, text, name) for name, text in (("a.py", NKI), ("b.py", BETA), ("wrong.py", WRONG))
    ]
    out, err, _ = api.run(
        ["--config-file", str(folder / "mypy.ini"), "--cache-dir", str(folder / "cache"), *map(str, files)]
    )
    assert err == ""
    return [line.rpartition("/")[2] for line in out.splitlines()]


def test_mypy_finds_nothing_wrong_with_a_kernel_in_either_spelling(checked):
    assert [line for line in checked if line.startswith(("a.py", "b.py"))] == []
    assert any(line.startswith("wrong.py") for line in checked)


def test_mypy_finds_wrong_names_parameters_and_types(checked):
    errors = [line for line in checked if line.startswith("wrong.py") and "error:" in line]
    patterns = [
        r'wrong\.py:4: error: .*"affine_rang".*',
        r'wrong\.py:5: error: Missing positional argument "src" in call to "tensor_copy".*',
        r'wrong\.py:6: error: Argument 1 to "tensor_copy" has incompatible type "int"; expected "_Tensor".*',
        r'wrong\.py:7: error: Unexpected keyword argument "acumulate" for "nc_matmul"; did you mean "acc.*',
    ]
    for pattern in patterns:
        assert any(re.fullmatch(pattern, line) for line in errors), (pattern, errors)


def test_the_verb_writes_where_it_is_told_and_again(tmp_path):
    done = call("stubs", "typings", "--nki", "0.3", "--json", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    files_written = sorted(
        str(p.relative_to(tmp_path / "typings")) for p in (tmp_path / "typings").rglob("*.pyi")
    )
    assert (document["nki"], document["files"]) == ("0.3", files_written)
    assert "nki/isa/__init__.pyi" in files_written
    assert write_stubs(tmp_path / "typings", "")["files"]


def test_what_others_wrote_is_not_written_over(tmp_path):
    (tmp_path / "nki").mkdir()
    script(tmp_path / "nki", "", "__init__.py")
    with pytest.raises(UsageError) as caught:
        write_stubs(tmp_path, "")
    assert str(caught.value) == (
        f"{tmp_path / 'nki' / '__init__.py'} was not written by nkilab stubs\n"
        "  hint: name a folder for stubs alone, such as typings"
    )
    assert [p.name for p in tmp_path.iterdir()] == ["nki"]


def test_stubs_cannot_be_imported(tmp_path, monkeypatch):
    write_stubs(tmp_path, "")
    monkeypatch.syspath_prepend(tmp_path)
    code = "import nki.isa; print(dir(nki.isa))"
    done = call(python=("-c", code), env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 0
    # a folder without modules is an empty package to Python
    assert "nc_matmul" not in done.stdout
    assert sys.path[0] == str(tmp_path)
