"""What comes with a kernel: host packing, reference, test, benchmark, profile, notebook; each runs."""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import nkilab
from nkilab.einsum import CompiledEinsum
from nkilab.einsum import compile as compile_einsum
from nkilab.einsum.compiled import module_of
from nkilab.errors import UsageError
from tests.einsum.mapped import SCALED_SUM
from tests.einsum.specs import PRODUCT

pytestmark = pytest.mark.corpus

dialects = pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
# a layout in HBM whose axes are not in the order of the declaration
TRANSPOSED = PRODUCT.replace(
    "{noncontiguous: [K1, K0], contiguous: [M]}", "{noncontiguous: [K0, K1], contiguous: [M]}"
)
SOFTMAX = """\
G[m] = X[m, n] ;; V max
E[m, n] = X[m, n] . G[m] ;; M binary(subtract_exp)
D[m] = E[m, n] ;; V add
R[m] = D[m] ;; M unary(reciprocal)
Z[m, n] = E[m, n] . R[m] ;; M mul
"""


def gemm(dialect: str = "nki", **options: Any) -> CompiledEinsum:
    return compile_einsum("mk,kn->mn", sizes={"M": 130, "K": 40, "N": 33}, dialect=dialect, **options)


def product_arrays() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(-3, 4, shape).astype(np.float32) for shape in ((256, 512), (256, 512), (512, 512))]


# packing


@pytest.mark.parametrize("text", [PRODUCT, TRANSPOSED], ids=["as declared", "turned"])
@dialects
def test_callers_pass_plain_arrays_whatever_the_layouts(text: str, dialect: str) -> None:
    x, y, d = product_arrays()
    # small whole numbers: sums of 256 products are exact in float32
    assert np.array_equal(compile_einsum(text, dialect=dialect)(x, y, d), x.T @ y + d)


def test_packing_is_by_the_layouts_of_the_specification() -> None:
    x, y, d = product_arrays()
    packed = compile_einsum(TRANSPOSED).arguments([x, y, d])
    # K = 2 * 128: the kernel's XH has k0 first
    assert np.array_equal(packed["XH"], x.reshape(2, 128, 512).transpose(1, 0, 2))
    assert np.array_equal(packed["DH"], d.reshape(4, 128, 512))


def test_open_extents_come_from_the_shapes() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(-2, 3, (3, 128)), rng.integers(-2, 3, (3, 128, 64))
    kernel = compile_einsum(SCALED_SUM)
    t = np.einsum("ak,akn->n", a, b)
    assert kernel.arguments([a, b])["K1"] == 3
    assert np.array_equal(kernel(a, b), t * t - t)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(130, 40), (41, 33)], "kernel: B has the shape [41, 33]; K is 40, not 41"),
        ([(130, 40, 1), (40, 33)], "kernel: A has the shape [130, 40, 1]; its ranks are [M, K]"),
        ([(130, 40)], "kernel takes A, B; got A"),
    ],
)
def test_shapes_are_checked_at_entry(shapes: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        gemm()(*(np.zeros(s, np.float32) for s in shapes))
    assert str(refused.value) == message


def test_extents_that_splits_do_not_divide_are_refused_at_entry() -> None:
    text = PRODUCT.replace("shape: {K: 256, M: 512, J: 512}", "shape: {M: 512, J: 512}")
    x, y, d = (np.zeros(s, np.float32) for s in ((200, 512), (200, 512), (512, 512)))
    with pytest.raises(UsageError, match=r"K is 200; it must be a multiple of 128"):
        compile_einsum(text)(x, y, d)


# reference and test


def test_the_reference_is_the_cascade() -> None:
    x = np.random.default_rng(0).standard_normal((37, 19))
    kernel = compile_einsum(SOFTMAX, sizes={"M": 37, "N": 19})
    expected = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    np.testing.assert_allclose(kernel.reference(x), expected, rtol=1e-12)


def modules(kernel: CompiledEinsum, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The kernel's module under the name `made`."""
    module = module_of(kernel.module_text, kernel.name)
    monkeypatch.setitem(sys.modules, "made", module)
    return module


@dialects
def test_the_generated_test_passes_and_finds_a_fault(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = gemm(dialect)
    module = modules(kernel, monkeypatch)
    names: dict[str, Any] = {}
    with nkilab.activate():
        exec(kernel.test_text("made"), names)
        names["test_kernel_computes_its_cascade"]()
        # one product too few in one column
        right = module.unpack
        monkeypatch.setitem(names, "unpack", lambda r, a: right(r, a) - np.outer(a["A"][:, 0], a["B"][0]))
        with pytest.raises(AssertionError, match=r"Z on whole numbers: .* bound 0: WRONG in"):
            names["test_kernel_computes_its_cascade"]()


@dialects
def test_benchmark_and_profile_run(
    dialect: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    kernel = gemm(dialect, dtypes="bfloat16")
    modules(kernel, monkeypatch)
    with nkilab.activate():
        exec(kernel.benchmark_text("made"), {})
        exec(kernel.profile_text("made"), {})
    assert "ms" in capsys.readouterr().out
    if dialect == "neuronxcc":
        assert {"kernel.neff", "kernel.ntff"} <= {p.name for p in tmp_path.iterdir()}


# the notebook


@pytest.mark.parametrize(
    "text", [PRODUCT, SCALED_SUM, SOFTMAX], ids=["product", "open extents", "no mapping"]
)
@dialects
def test_the_cells_of_the_notebook_run(
    text: str, dialect: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    sizes = {"M": 37, "N": 19} if text == SOFTMAX else {}
    notebook = json.loads(compile_einsum(text, dialect=dialect, sizes=sizes).notebook())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    titles = [c["source"][0].strip("# \n") for c in notebook["cells"] if c["cell_type"] == "markdown"]
    assert titles == [
        "Kernel description", "Einsum", "Generated NKI function", "Test", "Benchmark", "Profile",
    ]  # fmt: skip
    cells = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]
    assert "einsum:" in cells[0]
    names = {"__name__": "__main__"}
    said = io.StringIO()
    with nkilab.activate(), redirect_stdout(said):
        for cell in cells:
            exec(compile(cell, "<cell>", "exec"), names)
    assert "computes its cascade" in said.getvalue()


def test_a_notebook_compiles_again(tmp_path: Path) -> None:
    path = tmp_path / "product.ipynb"
    path.write_text(compile_einsum(PRODUCT).notebook())
    assert compile_einsum(path).source == compile_einsum(PRODUCT).source


def test_numbers_are_in_full_in_the_specification_that_is_written() -> None:
    # 1/12 has no end in decimal digits: with six of them the test's reference would differ by 4e-7
    kernel = compile_einsum(
        "Z[m] = A[m] . const(0.08333333333333333) ;; M mul if m < 3 else 0.1234567", sizes={"M": 4}
    )
    written, compiled = (c.einsums[0] for c in (compile_einsum(kernel.spec_text).cascade, kernel.cascade))
    assert (written.operands, written.otherwise) == (compiled.operands, compiled.otherwise)
