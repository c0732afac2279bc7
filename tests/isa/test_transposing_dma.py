"""Transposes and sums in the DMA engines against NumPy, lists of operands, and what is refused."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from nkilab.errors import KernelError
from nkilab.isa import REGISTRY
from nkilab.isa.declare import NUMBER
from nkilab.machine import MACHINES
from nkilab.tiles.tile import View, array_of
from nkilab.trace.session import Session
from tests.uses import Tile, call, form_of, new_tile, open_session, refused, result, smallest_use

TRANSPOSE, COMPUTE = REGISTRY["dma_transpose"], REGISTRY["dma_compute"]
DIRECT = "nki.isa.dma_transpose, direct transpose constraints"
TWO_BYTES = {"src.dtype": "bfloat16", "dst.dtype": "bfloat16"}


@pytest.mark.parametrize(
    ("shape", "axes"), [((24, 16), (1, 0)), ((5, 3, 16), (2, 1, 0)), ((4, 2, 3, 8), (3, 1, 2, 0))]
)
@pytest.mark.parametrize("memory", ["hbm", "sbuf"])
def test_a_transpose_moves_bits(shape: tuple[int, ...], axes: tuple[int, ...], memory: str) -> None:
    bits = np.random.default_rng(1).integers(0, 2**32, shape, dtype=np.uint32)
    expected = np.transpose(bits, axes)
    for permutation in (None, axes):
        dst = Tile(expected.shape, "uint32")
        got = result(TRANSPOSE, dst, src=(bits, "uint32", memory), axes=permutation)
        np.testing.assert_array_equal(got, expected)


def test_a_tile_may_be_transposed_in_place() -> None:
    session = open_session(MACHINES["trn2"])
    data = np.arange(16.0).reshape(4, 4)
    tile = new_tile(session, data)
    call(session, TRANSPOSE, dst=tile, src=tile)
    np.testing.assert_array_equal(array_of(tile), data.T)


@pytest.mark.parametrize("shape", [(16, 128), (1, 16, 128), (8, 2, 64), (4, 3, 4, 128)])
def test_hardware_descriptors_transpose_the_documented_blocks(shape: tuple[int, ...]) -> None:
    axes = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}[len(shape)]
    shape_after = tuple(shape[a] for a in axes)
    changes = {"dge_mode": "hwdge", **TWO_BYTES, "src.shape": shape, "dst.shape": shape_after}
    assert refused(TRANSPOSE, changes) == ""


def test_a_transpose_moves_every_byte_once() -> None:
    changes = {**TWO_BYTES, "src.shape": (512, 128), "dst.shape": (128, 512)}
    (step,) = form_of(TRANSPOSE, MACHINES["trn2"], smallest_use(TRANSPOSE, changes)).steps
    # hand: a whole HBM tensor is one run; a descriptor holds a row of 128 elements of 2 bytes
    assert (step.engine, step.descriptors, step.descriptor_bytes) == ("dma", 512, 256)
    assert step.widening > 1


def test_a_transposed_result_lies_in_sbuf() -> None:
    fresh = TRANSPOSE.fresh({"src": Tile((4, 2, 3, 8), "float16", "hbm").layout()}, {})
    assert (fresh.shape, fresh.dtype.name, fresh.memory) == ((8, 2, 3, 4), "float16", "sbuf")


REFUSED = [
    (
        TRANSPOSE, "trn2", {"src.shape": (4, 2, 2, 2, 2)},
        "src has not two, three or four axes\n  source: nki.isa.dma_transpose",
    ),
    (
        TRANSPOSE, "trn2", {"axes": (0, 1)},
        "axes is not (1, 0) for two axes of src, (2, 1, 0) for three, (3, 1, 2, 0) for four\n"
        "  source: nki.isa.dma_transpose, axes",
    ),
    (TRANSPOSE, "trn2", {"axes": 1}, "axes is 1; it must be None or a tuple of integers"),
    (
        TRANSPOSE, "trn2", {"src.shape": (16, 1, 1, 16)},
        "the shape of dst is not that of src with its axes permuted\n"
        "  hint: give dst as many axes as src has\n  source: release notes of NKI 0.4, dma_transpose",
    ),
    (
        TRANSPOSE, "trn2", {"dst.dtype": "bfloat16"},
        "dst and src differ in type; a transpose does not cast\n  source: nki.isa.dma_transpose, src",
    ),
    (
        TRANSPOSE, "trn2", {"src.dtype": "float8_e4m3", "dst.dtype": "float8_e4m3"},
        "an element has one byte; a transpose moves elements of two or four\n"
        "  hint: reinterpret pairs of elements with view, or transpose on TensorE\n"
        "  source: trn2 guide, DMA transpose",
    ),
    (
        TRANSPOSE, "trn2", {"src.shape": (16, 129), "dst.shape": (129, 16)},
        "the last axis of src is longer than dst has partitions\n"
        "  hint: split the last axis of `src` into tiles of as many elements as there are partitions\n"
        f"  source: {DIRECT}",
    ),
    (
        TRANSPOSE, "trn2", {"priority": 0},
        "priority is given; DMA priorities exist from trn3 on\n  source: nki.isa.dma_transpose, priority",
    ),
    (TRANSPOSE, "trn3", {"priority": 4}, "priority is 4; it must be one of None, 0, 1, 2, 3"),
    (
        TRANSPOSE, "trn2", {"dge_mode": "swdge"},
        "dge_mode is swdge or none and no vector_offset gathers rows of src; it must be unknown or hwdge\n"
        f"  hint: leave dge_mode out\n  source: {DIRECT}",
    ),
    (
        TRANSPOSE, "trn1", {"dge_mode": "hwdge"},
        "dge_mode is hwdge; trn1 has no hardware descriptor generator\n"
        "  source: nki.isa.dma_transpose, dge_mode",
    ),
    (
        TRANSPOSE, "trn2", {"dge_mode": "hwdge"},
        f"dge_mode is hwdge and an element has not two bytes\n  source: {DIRECT}",
    ),
    (
        TRANSPOSE, "trn2", {"dge_mode": "hwdge", **TWO_BYTES, "src.shape": (8, 16), "dst.shape": (16, 8)},
        f"dge_mode is hwdge and the first axis of a two-dimensional src is not 16\n  source: {DIRECT}",
    ),
    (
        TRANSPOSE, "trn3",
        {"dge_mode": "hwdge", **TWO_BYTES, "src.shape": (32, 2, 16), "dst.shape": (16, 2, 32)},
        "dge_mode is hwdge and the first axis of src is not 1, 2, 4, 8 or 16, or its product with the last "
        f"axis but one is no multiple of 16\n  source: {DIRECT}",
    ),
    (
        COMPUTE, "trn2", {"reduce_op": "maximum"},
        "reduce_op is not add; a transfer can only add\n  source: nki.isa.dma_compute, reduce_op",
    ),
    (
        COMPUTE, "trn2", {"scales": [1.0, 1.0, 1.0]},
        "scales does not hold one number for each of srcs\n  source: nki.isa.dma_compute, scales",
    ),
    (
        COMPUTE, "trn2", {"scales": [1.0, 2.0]},
        "scales holds a number that is not 1.0\n  hint: scale the tile with tensor_scalar first\n"
        "  source: nki.isa.dma_compute, scales",
    ),
    (COMPUTE, "trn2", {"scales": "one"}, "scales is 'one'; it must be None or a list of numbers"),
    (
        COMPUTE, "trn2", {"srcs[1].shape": (16, 5)},
        "dst and one of srcs hold different numbers of elements\n  source: nki.isa.dma_compute, tile size",
    ),
    (
        COMPUTE, "trn2", {"unique_indices": False},
        "unique_indices is False; indices that repeat are not supported\n"
        "  source: nki.isa.dma_compute, unique_indices",
    ),
    (
        COMPUTE, "trn2", {"srcs[0].memory": "psum"},
        "srcs[0] is in psum; it must be in hbm or sbuf\n  source: nki.isa.dma_compute\n"
        "  key: err_unsupported_memory",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("cls", "chip", "changes", "message"), REFUSED)
def test_a_transfer_that_may_not_be_is_refused(
    cls: Any, chip: str, changes: dict[str, Any], message: str
) -> None:
    assert refused(cls, changes, chip) == message


def sources(session: Session, count: int) -> list[View]:
    return [new_tile(session, np.full((4, 8), 2.0**k), memory="hbm") for k in range(count)]


@pytest.mark.parametrize("count", [1, 2, 16])
def test_up_to_sixteen_tiles_are_added(count: int) -> None:
    session = open_session(MACHINES["trn2"])
    dst = new_tile(session, Tile((4, 8), memory="hbm"))
    call(session, COMPUTE, dst=dst, srcs=sources(session, count), reduce_op="add", scales=[1.0] * count)
    assert (array_of(dst) == 2.0**count - 1).all()


def test_a_sum_is_float32_and_rounded_once() -> None:
    # hand: 256 + 1 + 1 is 258 in bfloat16; rounded after each addition it would stay 256
    parts = [(np.array([[v]]), "bfloat16") for v in (256.0, 1.0, 1.0)]
    session = open_session(MACHINES["trn2"])
    dst = new_tile(session, Tile((1, 1), "bfloat16"))
    call(session, COMPUTE, dst=dst, srcs=[new_tile(session, *p) for p in parts], reduce_op="add")
    assert float(array_of(dst)[0, 0]) == 258


def test_a_row_remembers_every_tile_of_a_list() -> None:
    session = open_session(MACHINES["trn2"])
    dst = new_tile(session, Tile((4, 8)))
    tiles = sources(session, 3)
    call(session, COMPUTE, dst=dst, srcs=tiles, reduce_op="add")
    names = [(a.operand, a.storage, a.is_written) for a in session.program.accesses(0)]
    assert names == [
        ("dst", dst.storage.number, True),
        *[(f"srcs[{k}]", v.storage.number, False) for k, v in enumerate(tiles)],
    ]
    assert [form.srcs for form in session.program.forms] == [tuple(v.layout for v in tiles)]
    # one transfer per source, all bytes of each
    steps = session.program.forms[0].steps
    assert [s.descriptors * s.descriptor_bytes for s in steps] == [128, 128, 128]


def test_lists_of_two_lengths_are_two_forms() -> None:
    session = open_session(MACHINES["trn2"])
    dst = new_tile(session, Tile((4, 8)))
    for count in (2, 3, 2):
        call(session, COMPUTE, dst=dst, srcs=sources(session, count), reduce_op="add")
    assert len(session.program.forms) == 2
    assert len(session.program) == 3


@pytest.mark.parametrize(
    ("count", "problem"),
    [(0, "srcs holds 0 tiles; it must hold 1 to 16"), (17, "srcs holds 17 tiles; it must hold 1 to 16")],
)
def test_a_list_that_is_too_long_or_empty_is_refused(count: int, problem: str) -> None:
    session = open_session(MACHINES["trn2"])
    dst = new_tile(session, Tile((4, 8)), name="sum")
    with pytest.raises(KernelError) as caught:
        call(session, COMPUTE, dst=dst, srcs=sources(session, count), reduce_op="add")
    place, text = str(caught.value).split(": ", 1)
    assert re.fullmatch(r"test_transposing_dma\.py:\d+", place)
    listed = "".join(f"\n  srcs[{k}] = float32[4, 8] in hbm" for k in range(count))
    assert text == (
        f"dma_compute: {problem}\n  dst = sum: float32[4, 8] in sbuf{listed}\n  source: nki.isa.dma_compute"
    )


def test_one_tile_where_a_list_belongs_is_refused() -> None:
    session = open_session(MACHINES["trn2"])
    dst, src = new_tile(session, Tile((4, 8)), name="sum"), new_tile(session, Tile((4, 8)), name="part")
    with pytest.raises(KernelError) as caught:
        call(session, COMPUTE, dst=dst, srcs=src, reduce_op="add")
    assert str(caught.value).split(": ", 1)[1] == (
        "dma_compute: srcs is of type View; it must be a list of tensors\n"
        "  dst = sum: float32[4, 8] in sbuf\n  srcs[0] = part: float32[4, 8] in sbuf"
    )


def test_a_number_in_a_list_of_tiles_is_refused() -> None:
    dst = Tile((4, 8)).layout()
    with pytest.raises(KernelError) as caught:
        COMPUTE(MACHINES["trn2"], [dst, dst, NUMBER], (*smallest_attributes(),))
    assert str(caught.value) == "srcs[1] is a number; it must be a tile [*]\n  source: nki.isa.dma_compute"


def smallest_attributes() -> list[Any]:
    use = smallest_use(COMPUTE)
    return [spec.canonical(name, use[name]) for name, spec in COMPUTE.attributes.items()]
