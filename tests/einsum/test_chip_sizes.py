"""Sizes come from the chip: kernels for one that nobody makes use all of it, are proved, and are right."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import nkilab.einsum
from nkilab import api
from nkilab.einsum.tree.nodes import HBM, PSUM, Alloc, MatMul, statements
from tests.chips import SIZES, write_odd_chip
from tests.einsum.cascades import CASES, Case
from tests.einsum.realistic import REALISTIC
from tests.sources import SOURCES, name_of, nodes

pytestmark = pytest.mark.corpus

# modules that still write down what is a size of trn2: columns from which something pays, bytes of a row or
# of a transfer that pays. It only gets shorter
KNOWN = {
    "einsum/attempts.py": {512},
    "einsum/chain.py": {512},
    "einsum/plan/balance.py": {512},
    "einsum/plan/choose.py": {512},
}


def literal_sizes(path: Path) -> set[int]:
    """The sizes of trn2 that a module writes down: partitions, columns of a bank."""
    return {n.value for n in nodes(path) if isinstance(n, ast.Constant) and n.value in (128, 512)}


def test_sizes_of_a_chip_are_written_down_nowhere_else() -> None:
    modules = [path for path in SOURCES if name_of(path).startswith("einsum/")]
    assert {name_of(p): literal_sizes(p) for p in modules if literal_sizes(p)} == KNOWN


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_kernels_for_an_odd_chip_pass_their_probes(case: Case, dialect: str, tmp_path: Path) -> None:
    chip = write_odd_chip(tmp_path)
    kernel = nkilab.einsum.compile(case.cascade, sizes=case.extents(), dialect=dialect, target=chip)
    assert not [change for change in kernel.changes if "PLANNED ANOTHER WAY" in change]
    assert kernel.estimate.target == "trn2 (odd.yaml)"
    assert kernel.machine["partitions"] == SIZES["partitions"]
    with api.chosen(target=chip):
        assert not [str(v) for v in kernel.verify() if not v.is_fine]


@pytest.mark.parametrize("case", REALISTIC, ids=lambda c: c.name)
def test_kernels_for_an_odd_chip_are_proved_and_use_all_partitions(case: Case, tmp_path: Path) -> None:
    chip = write_odd_chip(tmp_path)
    kernel = nkilab.einsum.compile(case.cascade, sizes=case.extents(), dtypes="bfloat16", target=chip)
    assert kernel.proofs
    assert kernel.estimate.latency_us > 0
    assert kernel.tree is not None
    tiles = [
        s.buffer for s in statements(kernel.tree.body) if isinstance(s, Alloc) and s.buffer.memory != HBM
    ]
    # a convolution sums over 3 * 64 values, a pool has 128 channels
    most = {"convolution": 192, "largest_of_windows": 128}.get(case.name, SIZES["partitions"])
    assert max(int(str(t.shape[0])) for t in tiles) == most


def test_a_product_for_an_odd_chip_fills_its_array_and_its_banks(tmp_path: Path) -> None:
    case = next(c for c in REALISTIC if c.name == "matrix_product")
    kernel = nkilab.einsum.compile(
        case.cascade, sizes=case.extents(), dtypes="bfloat16", target=write_odd_chip(tmp_path)
    )
    assert kernel.tree is not None
    products = [
        s for s in statements(kernel.tree.body) if isinstance(s, MatMul) and s.dst.buffer.memory == PSUM
    ]
    sizes = {tuple(str(cut.count) for v in (s.stationary, s.moving) for cut in v.cuts) for s in products}
    assert sizes == {("256", "256", "256", "1024")}
