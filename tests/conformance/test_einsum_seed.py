"""The specification of seed 000."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Callable

import numpy as np
import pytest

import nkilab
import nkilab.einsum
from nkilab.einsum.compiler import CompiledEinsum, module_of
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


EXTENTS = {"M1": 6, "M0": 2048, "N2": 11, "N1": 16, "K1": 6, "K0": 2048}
dialects = pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])


def compiled(dialect: str, **options: bool) -> CompiledEinsum:
    (path,) = folder_or_skip("NKILAB_SEEDS").glob("000_*.txt")
    return nkilab.einsum.compile(path, dialect=dialect, sizes=EXTENTS, **options)


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


def test_its_repairs_are_told_and_refused_under_strict() -> None:
    repairs = [n for n in compiled("nki").notes if n.startswith("repair: ")]
    for told in (
        "lacks DS, ZS",
        "AS in TP",
        "BS in TP",
        "TP in TP",
        "TP in TS",
        "TS in TS",
        "N1 is",
        "as_m1 carries TS",
    ):
        assert any(told in repair for repair in repairs), told
    with pytest.raises(SpecError, match="lacks DS, ZS"):
        compiled("nki", strict=True)
