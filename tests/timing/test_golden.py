"""Whole small kernels against a calculation by hand, with the figures of docs/timing-model.md typed in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from nkilab.api import estimate, spec
from nkilab.hook import activate

# ns; trn2
START, END = 9200, 2300
FIRST_BYTE, SPREAD, DONE, SIGNAL = 750, 15 * 24, 319, 58
ISSUE = 486 + 128 * 1.05
VECTOR = {"busy": 40, "seen": 158}
SCALAR_SEEN, FUNCTION, TABLE = 158, 110, 1323
TENSOR_SEEN = 170


def rows_of(size: float) -> float:
    """128 rows of `size` bytes over 16 engines: 8 runs each, and a semaphore write."""
    return 8 * (2.2 + size / 27.3 + 5 * min(1, size / 4096)) + 8


def transfer(size: float) -> float:
    """From the issue of a transfer of 128 rows to the end of its last engine."""
    return FIRST_BYTE + rows_of(size) + SPREAD


@pytest.fixture(autouse=True)
def served() -> Iterator[None]:
    with activate():
        yield


def latency(kernel: Any, *shapes: tuple[int, ...], dtype: str = "float32", target: str = "trn2") -> float:
    return estimate(kernel, *(spec(s, dtype) for s in shapes), target=target).timeline.latency_ns


def compiled(text: str) -> Any:
    """The kernel that a text with both spellings' usual names defines."""
    names: dict[str, Any] = {"np": np}
    exec("import nki, nki.isa as nisa, nki.language as nl", names)
    exec("import neuronxcc.nki as old, neuronxcc.nki.language as onl, neuronxcc.nki.isa as oisa", names)
    exec(compile(text, "golden.py", "exec"), names)
    return names["kernel"]


def unary(body: str) -> Any:
    """Load x, do something to the tile t, store it."""
    return compiled(f"""
@nki.jit
def kernel(x):
    t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x)
    {body}
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=t)
    return out
""")


def test_copy() -> None:
    # load, its signal, store
    by_hand = START + transfer(2048) + DONE + transfer(2048) + END
    assert latency(unary("pass"), (128, 512)) == pytest.approx(by_hand, abs=0.01)


def test_scale_on_vector_e() -> None:
    # float32 in SBUF: two elements a cycle at 0.96 GHz; an operand per partition is seen 58 ns later
    scale = 512 / 2 / 0.96 + VECTOR["seen"] + 58
    by_hand = START + transfer(2048) + DONE + scale + SIGNAL + transfer(2048) + END
    body = "nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)"
    assert latency(unary(body), (128, 512)) == pytest.approx(by_hand, abs=0.01)


def test_exponential_on_scalar_e() -> None:
    # an element a cycle at 1.2 GHz, after the table of exp
    exp = TABLE + 512 / 1.2 + SCALAR_SEEN + FUNCTION
    by_hand = START + transfer(2048) + DONE + exp + SIGNAL + transfer(2048) + END
    body = "nisa.activation(dst=t, op=nl.exp, data=t)"
    assert latency(unary(body), (128, 512)) == pytest.approx(by_hand, abs=0.01)


def test_two_dependent_scalings() -> None:
    # each waits until it sees the result of the one before
    scale = 512 / 2 / 0.96 + VECTOR["seen"] + 58
    by_hand = START + transfer(2048) + DONE + 2 * scale + SIGNAL + transfer(2048) + END
    body = "[nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0) for _ in range(2)]"
    assert latency(unary(body), (128, 512)) == pytest.approx(by_hand, abs=0.01)


def test_square_in_bfloat16() -> None:
    # tensor_tensor of 16-bit types in SBUF: two elements a cycle; rows of 1 KiB
    square = 512 / 2 / 0.96 + VECTOR["seen"]
    by_hand = START + transfer(1024) + DONE + square + SIGNAL + transfer(1024) + END
    body = "nisa.tensor_tensor(dst=t, data1=t, data2=t, op=nl.multiply)"
    assert latency(unary(body), (128, 512), dtype="bfloat16") == pytest.approx(by_hand, abs=0.01)


def test_sum_of_two_tensors() -> None:
    # the second load stands behind the first in the queue of loads, or is issued later still
    add = 512 / 0.96 + VECTOR["seen"]
    second = max(FIRST_BYTE + rows_of(2048), ISSUE + FIRST_BYTE) + rows_of(2048) + SPREAD
    by_hand = START + second + DONE + add + SIGNAL + transfer(2048) + END
    kernel = compiled("""
@nki.jit
def kernel(x, y):
    a, b = (nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf) for _ in range(2))
    nisa.dma_copy(dst=a, src=x)
    nisa.dma_copy(dst=b, src=y)
    nisa.tensor_tensor(dst=a, data1=a, data2=b, op=nl.add)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=a)
    return out
""")
    assert latency(kernel, (128, 512), (128, 512)) == pytest.approx(by_hand, abs=0.01)


PRODUCT = """
@nki.jit
def kernel(x):
    t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x)
    p = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    for _ in nl.affine_range(COUNT):
        nisa.nc_matmul(dst=p, stationary=t[:, 0:128], moving=t)
    s = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=s, src=p, engine=nisa.vector_engine)
    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=s)
    return out
"""
# PSUM to SBUF: an element a cycle
EVICT = 512 / 0.96 + VECTOR["seen"]


def test_one_product_in_bfloat16() -> None:
    # 128 columns of weights, then 520 cycles at half the clock of 2.4 GHz: the first multiplication is cold
    product = 128 / 2.4 + 2 * 520 / 2.4 + TENSOR_SEEN
    # float32 in PSUM to bfloat16 in SBUF
    by_hand = START + transfer(1024) + DONE + product + SIGNAL + EVICT + SIGNAL + transfer(1024) + END
    latency_ns = latency(compiled(PRODUCT.replace("COUNT", "1")), (128, 512), dtype="bfloat16")
    assert latency_ns == pytest.approx(by_hand, abs=0.01)


def test_sixteen_products_that_accumulate() -> None:
    # those that begin in the first 3 us are cold: 3000 / (2 * 520 / 2.4) = 6.9, that is 7; weights hide
    products = 128 / 2.4 + 7 * 2 * 520 / 2.4 + 9 * 520 / 2.4 + TENSOR_SEEN
    by_hand = START + transfer(1024) + DONE + products + SIGNAL + EVICT + SIGNAL + transfer(1024) + END
    latency_ns = latency(compiled(PRODUCT.replace("COUNT", "16")), (128, 512), dtype="bfloat16")
    assert latency_ns == pytest.approx(by_hand, abs=0.01)


def test_one_product_in_float32() -> None:
    # two instructions of two passes, cold; the second one's weights load beside the first
    product = 256 / 2.4 + 2 * 2 * (1024 + 8) / 2.4 + TENSOR_SEEN
    by_hand = START + transfer(2048) + DONE + product + SIGNAL + EVICT + SIGNAL + transfer(2048) + END
    latency_ns = latency(compiled(PRODUCT.replace("COUNT", "1")), (128, 512))
    assert latency_ns == pytest.approx(by_hand, abs=0.01)


# four products on column tiles of the array, into four parts of one bank
TILED = "nisa.nc_matmul(dst=p[32 * i : 32 * i + 32], stationary=t[:, 0:32], moving=t, " \
    "tile_position=(0, 32 * i), tile_size=(128, 32))"  # fmt: skip


def test_four_products_side_by_side() -> None:
    # 32 columns of weights; the products begin 72 cold cycles apart, and the last one streams 520
    products = 32 / 2.4 + 3 * 2 * 72 / 2.4 + 2 * 520 / 2.4 + TENSOR_SEEN
    by_hand = START + transfer(1024) + DONE + products + SIGNAL + EVICT + SIGNAL + transfer(1024) + END
    text = PRODUCT.replace("nisa.nc_matmul(dst=p, stationary=t[:, 0:128], moving=t)", TILED)
    kernel = compiled(text.replace("for _ in nl.affine_range(COUNT)", "for i in range(4)"))
    assert latency(kernel, (128, 512), dtype="bfloat16") == pytest.approx(by_hand, abs=0.01)


def test_two_products_side_by_side_in_beta_1() -> None:
    # 64 columns of weights; the second product begins 72 cold cycles after the first
    products = 64 / 2.4 + 2 * 72 / 2.4 + 2 * 520 / 2.4 + TENSOR_SEEN
    moved = 1300 - 58 - 50 + rows_of(1024) + SPREAD
    by_hand = START + moved + DONE + products + SIGNAL + EVICT + SIGNAL + moved + END
    kernel = compiled("""
@old.jit
def kernel(x):
    t = onl.load(x)
    p = onl.ndarray((128, 512), dtype=onl.float32, buffer=onl.psum)
    for i in onl.static_range(2):
        p[64 * i : 64 * i + 64, 0:512] = oisa.nc_matmul(
            t[:, 0:64], t, tile_position=(0, 64 * i), tile_size=(128, 64)
        )
    s = oisa.tensor_copy(p, dtype=x.dtype, engine=oisa.vector_engine)
    out = onl.ndarray(x.shape, dtype=x.dtype, buffer=onl.shared_hbm)
    onl.store(out, s)
    return out
""")
    assert latency(kernel, (128, 512), dtype="bfloat16") == pytest.approx(by_hand, abs=0.01)


def test_sums_of_rows() -> None:
    # an element a cycle; the result is a column: 128 runs of 4 bytes, of at least 10 ns
    column = 8 * 10 + 8
    reduce = 512 / 0.96 + VECTOR["seen"]
    by_hand = START + transfer(2048) + DONE + reduce + SIGNAL + FIRST_BYTE + column + SPREAD + END
    kernel = compiled("""
@nki.jit
def kernel(x):
    t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x)
    s = nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=s, op=nl.add, data=t, axis=1)
    out = nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=s)
    return out
""")
    assert latency(kernel, (128, 512)) == pytest.approx(by_hand, abs=0.01)


BETA_1 = """
@old.jit
def kernel(x):
    out = onl.ndarray(x.shape, dtype=x.dtype, buffer=onl.shared_hbm)
    t = onl.load(x)
    onl.store(out, onl.exp(t))
    return out
"""


def test_beta_1_writes_descriptors_beforehand() -> None:
    # they are read from HBM: 1300 ns from a signal to the first byte, 58 and 50 of which are counted apart
    moved = 1300 - 58 - 50 + rows_of(2048) + SPREAD
    by_hand = START + moved + DONE + TABLE + 512 / 1.2 + SCALAR_SEEN + FUNCTION + SIGNAL + moved + END
    assert latency(compiled(BETA_1), (128, 512)) == pytest.approx(by_hand, abs=0.01)


def test_beta_1_on_trn1() -> None:
    # 13 us for the launch, engines of 18.1 bytes/ns, ScalarE at 1.4 GHz and 143 ns until a result is seen
    moved = 1300 - 58 - 50 + 8 * (11 + 2048 / 18.1 + 2.5) + 8 + SPREAD
    by_hand = 13000 + moved + DONE + TABLE + 512 / 1.4 + 143 + SIGNAL + moved + END
    assert latency(compiled(BETA_1), (128, 512), target="trn1") == pytest.approx(by_hand, abs=0.01)
