"""The one published specification."""

from __future__ import annotations

import io
import json
import tokenize
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import nkilab
import nkilab.einsum
from nkilab.einsum import CompiledEinsum
from nkilab.einsum import compile as compile_einsum
from nkilab.einsum.compiled import module_of
from nkilab.einsum.language.sources import source_of_file
from nkilab.einsum.language.spec import Spec, read_spec
from nkilab.einsum.written.generator import as_written
from nkilab.errors import SpecError
from tests.conformance.conftest import folder_or_skip
from tests.conformance.extract import notebook_cells

pytestmark = pytest.mark.conformance

# The three places that are marked as edited by hand: as printed, and what stood there before the edit.
EDITS = [
    ("                    BS_for_TP = BS.reshape((128, M0 // 128, N1, 128))\n", ""),
    ("BS_for_TP[:, tp_m01, tp_n1, :]", "BS[:, tp_m01, tp_n1, :]"),
    ("*[M0 // 128, N1 * 128]", "*[M0 // 128, N1, 128]"),
    (
        "                BS[:, bs_m01, :] = nl.load(BH[as_m1, bs_m01, :, as_n2, :])\n",
        "                for bs_n1 in nl.affine_range(N1):\n"
        "                    BS[:, bs_m01, bs_n1, :] = nl.load(BH[as_m1, bs_m01, :, as_n2, bs_n1, :])\n",
    ),
]


@pytest.fixture
def spec() -> Spec:
    (path,) = folder_or_skip("NKILAB_SEEDS").glob("000_*.txt")
    return read_spec(source_of_file(path))


def tokens(text: str) -> list[str]:
    kept = (tokenize.NL, tokenize.COMMENT)
    return [t.string for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type not in kept]


def test_as_written_is_the_printed_kernel_before_its_three_edits(
    spec: Spec, seed: Callable[[str], str]
) -> None:
    blocks = {b.heading: b.code for b in notebook_cells(seed("000"))}
    printed = blocks["Generated NKI function"]
    for edited, before in EDITS:
        assert printed.count(edited) == 1, edited
        printed = printed.replace(edited, before)
    assert tokens(as_written(spec)) == tokens(printed)


dialects = pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
# faults of the list that the specification has, and how often each is told
REPAIRS = {3: 1, 4: 5, 5: 1, 6: 1, 7: 1, 20: 1}
ADVICE = {1, 9, 10, 15, 16, 18, 19, 21}
SMALL = {"M1": 2, "M0": 256, "N2": 1, "N1": 2, "K1": 1, "K0": 512}


@pytest.fixture
def path() -> Path:
    (path,) = folder_or_skip("NKILAB_SEEDS").glob("000_*.txt")
    return path


@dialects
def test_it_compiles_by_default_with_its_repairs_listed(path: Path, dialect: str) -> None:
    kernel = compile_einsum(path, dialect=dialect)
    assert {n: sum(n in f.row.faults for f in kernel.repairs) for n in REPAIRS} == REPAIRS
    assert {n for f in kernel.advice for n in f.row.faults} == ADVICE
    line = "binding.fusion[0].einsums: einsums lacks DS and ZS, which ranks names"
    assert f"{path}:165:16: {line}" in [str(f) for f in kernel.repairs]
    assert not [str(v) for v in kernel.verify() if not v.is_fine]


def test_strict_refuses_it_with_the_same_texts(path: Path) -> None:
    repairs = compile_einsum(path).repairs
    with pytest.raises(SpecError) as refused:
        compile_einsum(path, strict=True)
    assert all(str(f) in str(refused.value) and f.change in str(refused.value) for f in repairs)


@pytest.mark.parametrize("as_written", [False, True])
def test_plain_arrays_go_in_and_out(path: Path, as_written: bool) -> None:
    kernel = compile_einsum(path, as_written=as_written)
    rng = np.random.default_rng(0)
    m, k = SMALL["M1"] * SMALL["M0"], SMALL["K1"] * SMALL["K0"]
    n = SMALL["N2"] * SMALL["N1"] * 128
    # whole numbers so small that float16 has every result
    a, b, c, d = (rng.integers(-1, 2, s) for s in ((m,), (m, n), (k,), (n, k)))
    a[16:] = 0
    result = kernel(
        a.reshape(2, 256), b.reshape(2, 256, 1, 2, 128), c.reshape(1, 512), d.reshape(1, 2, 128, 1, 512)
    )
    assert np.array_equal(result.reshape(n, k), d - np.outer(a @ b, c))


@dialects
def test_the_six_cells_of_its_notebook_run(
    path: Path, dialect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    notebook = json.loads(compile_einsum(path, dialect=dialect).notebook())
    names = {"__name__": "__main__"}
    with nkilab.activate():
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                exec("".join(cell["source"]), names)


EXTENTS = {"M1": 6, "M0": 2048, "N2": 11, "N1": 16, "K1": 6, "K0": 2048}


@cache
def compiled(dialect: str) -> CompiledEinsum:
    (path,) = folder_or_skip("NKILAB_SEEDS").glob("000_*.txt")
    return nkilab.einsum.compile(path, dialect=dialect, sizes=EXTENTS)


def packed(a: np.ndarray, b: np.ndarray, d: np.ndarray, columns: int) -> list[np.ndarray]:
    """Arguments in the shapes of the document's own test, for `columns` columns of B."""
    n1 = columns // 128
    return [
        a.reshape(6, 16, 128, 1), b.reshape(6, 16, 128, 1, columns), a.reshape(6, 4, 1, 512),
        d.reshape(1, n1, 128, 6, 2048),
    ]  # fmt: skip


@dialects
def test_the_default_kernel_passes_the_documents_own_test_on_a_block_of_columns(dialect: str) -> None:
    rng = np.random.default_rng(0)
    m, n = 12288, 256
    a, b, d = (rng.random(s).astype(np.float16) for s in ((m, 1), (m, n), (n, m)))
    with nkilab.activate():
        kernel = nkilab.simulate(compiled(dialect).kernel)
        z = kernel(*packed(a, b, d, n), **{**EXTENTS, "N2": 1, "N1": 2})
    # the document's tolerance
    assert np.allclose(z.reshape(n, m).T, d.T - a @ (a.T @ b), rtol=1e-2, atol=1e-3)


@dialects
def test_the_default_kernel_is_predicted_faster_than_the_edited_one(
    dialect: str, seed: Callable[[str], str]
) -> None:
    code = {b.heading: b.code for b in notebook_cells(seed("000"))}["Generated NKI function"]
    edited = module_of(code, "qr_update").qr_update
    shapes = [(6, 16, 128, 1), (6, 16, 128, 11, 2048), (6, 4, 1, 512), (11, 16, 128, 6, 2048)]
    specs = [nkilab.spec(shape, "float16") for shape in shapes]
    with nkilab.activate():
        ours = nkilab.estimate(compiled(dialect).kernel, *specs, **EXTENTS).latency_us
        theirs = nkilab.estimate(edited, *specs, **EXTENTS).latency_us
    assert ours < theirs


@dialects
def test_without_its_mapping_it_takes_at_most_1_3_times_as_long(path: Path, dialect: str) -> None:
    head, _, rest = source_of_file(path).text.partition("\nmapping:")
    tensors = ("AH", "BH", "CH", "DH", "ZH")
    unmapped = compile_einsum(
        f"{head}\noptions:{rest.partition(f'{chr(10)}options:')[2]}", dialect=dialect, sizes=EXTENTS,
        dtypes=dict.fromkeys(tensors, "float16"),
    )  # fmt: skip
    assert unmapped.estimate.latency_us <= 1.3 * compiled(dialect).estimate.latency_us
