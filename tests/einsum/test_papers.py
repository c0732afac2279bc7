"""Cascades of papers: right in both spellings at small sizes, and in few long instructions."""

from __future__ import annotations

import numpy as np
import pytest

import nkilab.einsum
from nkilab.einsum.compiled import CompiledEinsum
from tests.einsum.numbers import numbers_of
from tests.einsum.papers import PAPERS
from tests.einsum.test_fuzz import need_no_fault

pytestmark = pytest.mark.corpus

BY_NAME = {case.name: case for case in PAPERS}
# extents that are no multiples of anything, and rows enough to be split over partitions
SMALL = {
    "grouped_query_causal": "H=2 G=2 P=160 M=160 E=32 F=32",
    "bert_attention": "B=2 S=70 T=90 H=3 E=16",
    "group_norm": "B=3 G=5 C=4 P=33",
    "batch_norm": "B=3 C=37 P=50",
    "heads_normed": "T=256 H=4 E=24",
    "squeeze_and_excite": "B=4 C=150 P=60 R=8",
    "rotary_halves": "T=140 H=3 E=128 D=64",
    "einsum_small_vectors": "N=640 I=5 J=6",
    "einsum_heads_out": "B=2 S=40 H=3 D=24",
    "einsum_many_dots": "B=128 H=4 D=24",
    "einsum_reversed_axes": "A=20 B=30 C=40",
    "einsum_merge_heads": "B=2 S=70 D=30 H=4 E=20",
    "einsum_channel_scale": "B=2 C=20 H=9 W=11",
    "einsum_two_ranks_summed": "A=6 B=30 C=8 D=9",
    "einsum_cp": "I=20 J=21 K=22 R=5",
    "heat_3d": "A=18 B=22 C=26 P=16 Q=20 R=24",
    "conv2d_depthwise": "B=2 C=37 H=12 W=13 P=10 Q=11 R=3 S=3",
    "conv2d_channels_last": "B=2 H=12 W=13 C=20 K=24 P=10 Q=11 R=3 S=3",
    "max_of_windows_channels_last": "H=12 W=14 C=20 P=6 Q=7 R=2 S=2",
    "expert_dispatch": "T=150 E=3 C=20 D=40 F=30",
    "lion": "M=130 N=70",
    "weight_decay_row": "N=65536",
}
STRINGS = {
    "einsum_small_vectors": "nij,nj->ni", "einsum_heads_out": "bshd->bhsd", "einsum_many_dots": "bhd,bhd->bh",
    "einsum_reversed_axes": "abc->cba", "einsum_merge_heads": "bshe,hed->bsd",
    "einsum_channel_scale": "bchw,c->bchw", "einsum_two_ranks_summed": "abcd,cd->ab",
    "einsum_cp": "ir,jr,kr->ijk",
}  # fmt: skip


def compiled(name: str, dialect: str = "nki", dtype: str = "float32") -> CompiledEinsum:
    sizes = {rank: int(size) for rank, size in (part.split("=") for part in SMALL[name].split())}
    kernel = nkilab.einsum.compile(BY_NAME[name].cascade, sizes=sizes, dtypes=dtype, dialect=dialect)
    need_no_fault(kernel)
    return kernel


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
@pytest.mark.parametrize("name", SMALL)
def test_cascades_of_papers_pass_their_probes(name: str, dialect: str) -> None:
    verdicts = compiled(name, dialect, "bfloat16" if dialect == "nki" else "float32").verify()
    assert verdicts
    assert not [str(v) for v in verdicts if not v.is_fine]


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
@pytest.mark.parametrize("name", STRINGS)
def test_strings_of_numpy_agree_with_numpy(name: str, dialect: str) -> None:
    kernel = compiled(name, dialect)
    rng = np.random.default_rng(3)
    inputs = [rng.integers(-3, 4, kernel.cascade.shape(t)).astype(np.float32) for t in kernel.inputs]
    result = kernel(*inputs)
    expected = np.einsum(STRINGS[name], *inputs)
    assert np.shape(result) == expected.shape
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
def test_a_diagonal_of_several_axes_is_that_of_numpy(dialect: str) -> None:
    # a variable that stands in two axes has one value in both
    x = np.random.default_rng(0).random((3, 2, 5, 3)).astype(np.float32)
    kernel = nkilab.einsum.compile("aeba->abe", sizes={"A": 3, "E": 2, "B": 5}, dialect=dialect)
    assert np.array_equal(kernel(x), np.einsum("aeba->abe", x))


def test_ranks_that_lie_side_by_side_are_one_and_callers_see_theirs() -> None:
    source = numbers_of(compiled("einsum_merge_heads"))
    # (b, s) and (h, e) are a row and a sum: one product of matrices
    assert "A = A.reshape((140, 80))" in source
    assert "Z = nl.ndarray((2, 70, 30)" in source
    assert "z_view = Z.reshape((140, 30))" in source
    assert "return Z" in source


def test_short_rows_fill_their_partitions() -> None:
    # 1,024 rows of 24 elements: eight behind each other on a partition, one transfer and one square of all
    source = numbers_of(compiled("heads_normed"))
    assert "X = X.reshape((128, 8, 24))" in source
    assert "nl.square" in source or source.count("nisa.tensor_tensor(") >= 1
    assert "for " not in source


def test_what_is_read_or_written_side_by_side_is_one_transfer() -> None:
    source = numbers_of(compiled("rotary_halves"))
    # both halves of a head come in one row, and leave in one
    assert "src=X[nl.ds(t * 128, t_count), :, :]" in source
    assert "dst=Z[nl.ds(t * 128, t_count), :, :]" in source


def test_three_engines_share_what_one_would_be_late_with() -> None:
    case = BY_NAME["heat_3d"]
    kernel = nkilab.einsum.compile(case.cascade, sizes=case.extents())
    busy = kernel.estimate.summary
    assert busy["gpsimd_engine_active_time"] > 0.2 * busy["vector_engine_active_time"]


@pytest.mark.parametrize("name", [n for n in SMALL if n != "weight_decay_row"])
def test_no_kernel_is_faster_than_its_roofline(name: str) -> None:
    for dtype in ("float32", "bfloat16"):
        kernel = compiled(name, dtype=dtype)
        assert kernel.estimate.latency_us >= kernel.roofline.least_us
