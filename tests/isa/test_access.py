"""Accesses whose neighbours lie far apart, with hand calculations from the trn1 guide, "Access pattern"."""

from __future__ import annotations

import pytest

from nkilab.isa import REGISTRY
from nkilab.isa.operators import OPERATORS
from nkilab.machine import MACHINES
from nkilab.tiles.dtypes import DTYPES
from nkilab.tiles.tile import PSUM, SBUF, Layout

TRN1 = MACHINES["trn1"]


def tile(free: int, apart: int = 1, dtype: str = "float32") -> Layout:
    """[128, free] in SBUF, neighbours so many elements apart."""
    return Layout((128, free), (free * apart, apart), DTYPES[dtype], SBUF, 0, 0)


def busy_ns(name: str, *layouts: Layout | None, **attributes: object) -> float:
    """How long its first step keeps the engine busy."""
    cls = REGISTRY[name]
    values = [attributes.get(key, spec.default) for key, spec in cls.attributes.items()]
    return cls(TRN1, layouts, values).steps[0].busy_ns


@pytest.mark.parametrize(
    ("dtype", "apart", "cycles"),
    [
        # 4, 12 and 16 bytes apart
        ("float32", 1, 512),
        ("float32", 3, 512),
        ("float32", 4, 1024),
        ("bfloat16", 7, 512),
        ("bfloat16", 8, 1024),
    ],
)
def test_from_16_bytes_between_neighbours_on_a_copy_takes_twice_as_long(dtype, apart, cycles):
    # VectorE at 1.12 GHz, 60 cycles besides
    far = busy_ns("tensor_copy", tile(512, dtype=dtype), tile(512, apart, dtype), engine="vector")
    assert far == pytest.approx((cycles + 60) / 1.12)


def test_it_is_the_same_for_what_is_written_and_on_other_engines():
    written = busy_ns("tensor_copy", tile(512, 4), tile(512), engine="vector")
    assert written == pytest.approx(1084 / 1.12)
    gathered = busy_ns("tensor_copy", tile(512, 4), tile(512), engine="gpsimd")
    assert gathered == pytest.approx((150 + 1024) / 1.4)


def test_what_takes_two_cycles_an_element_anyway_is_no_slower():
    # two float32 inputs in SBUF take 2 cycles an element on trn1 (2.26 costs)
    near, far = (
        busy_ns("tensor_tensor", tile(512), tile(512), tile(512, apart), op=OPERATORS["add"], engine="vector")
        for apart in (1, 4)
    )
    assert near == far == pytest.approx(1084 / 1.12)


def test_a_column_has_no_neighbours():
    assert busy_ns("tensor_copy", tile(1, 64), tile(1, 64), engine="vector") == pytest.approx(64 / 1.12)


@pytest.mark.parametrize(
    ("dtype", "apart", "cycles"),
    [
        # float32 loads two cycles a column (profiles: halves of 128 rows in 112 ns), bfloat16 one
        ("float32", 1, 256),
        ("float32", 36, 512),
        ("bfloat16", 1, 128),
        ("bfloat16", 36, 128),
    ],
)
def test_weights_of_float32_that_lie_far_apart_load_half_as_fast(dtype, apart, cycles):
    cls = REGISTRY["nc_matmul"]
    values = [spec.default for spec in cls.attributes.values()]
    dst = Layout((128, 512), (512, 1), DTYPES["float32"], PSUM, 0, 0)
    layouts = (dst, tile(128, apart, dtype), tile(512, 1, dtype))
    loads = [step for step in cls(MACHINES["trn2"], layouts, values).steps if step.label == "LDWEIGHTS"]
    assert loads
    for step in loads:
        # 2.4 GHz; 52 ns more until they are there
        assert step.hidden_ns == pytest.approx(cycles / 2.4)
        assert step.latency_ns == pytest.approx(cycles / 2.4 + 52)
