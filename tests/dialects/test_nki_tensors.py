"""Tensors of `nki`: what they tell of themselves, where they lie, assignment, and inputs written in place."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from tests.dialects.spellings import marked_line, program_of, ramp, refusal
from tests.dialects.spellings import nisa2 as nisa
from tests.dialects.spellings import nki2 as nki
from tests.dialects.spellings import nl2 as nl

import nkilab
from nkilab.errors import LimitError, NkilabWarning, RuleError, SpellingError, UnsupportedError, UseError


def out_of(tile):
    """A result with the elements of a tile."""
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile if tile.buffer == nl.sbuf else nl.copy(tile))
    return out


def run(body, *arrays, target="trn2"):
    """The result of a kernel on a chip."""
    with nkilab.api.chosen(target=target):
        return nki.simulate(body)(*arrays)


def test_a_tensor_tells_its_strides_offset_and_pattern():
    def kernel(x):
        t = nl.zeros((8, 6, 4), nl.float32, name="held")
        part = t[2:6, 1:5:2, 3]
        assert (t.strides, t.offset, t.ndim, t.size) == ((24, 4, 1), 0, 3, 192)
        assert (part.shape, part.strides, part.offset) == ((4, 2), (24, 8), 2 * 24 + 4 + 3)
        assert part.get_pattern() == part.pattern == [[24, 4], [8, 2]]
        assert (t.is_contiguous(), t.is_identity(), part.is_contiguous()) == (True, True, False)
        # partitions are apart anyway
        assert (t[2:6].is_contiguous(), t[2:6].is_identity()) == (True, False)
        assert not part.is_indirect()
        assert (t.name, part.name) == ("held", "held")
        return out_of(t)

    run(kernel, ramp(1, 1))


def test_a_tensor_lies_in_a_region_that_equals_its_name():
    def kernel(x):
        out = nl.ndarray((1, 1), nl.float32, buffer=nl.shared_hbm)
        tiles = [nl.ndarray((2, 2), nl.float32, buffer=b) for b in (nl.sbuf, nl.psum, nl.hbm, nl.private_hbm)]
        assert [t.buffer for t in (*tiles, out, x)] == [
            nl.sbuf, nl.psum, nl.hbm, nl.private_hbm, nl.shared_hbm, nl.hbm,
        ]  # fmt: skip
        assert [str(t.buffer == "hbm") for t in (*tiles, out)] == ["False", "False", "True", "True", "False"]
        assert nl.sbuf == "sbuf" != nl.psum
        assert (nl.is_sbuf(nl.sbuf), nl.is_psum(nl.sbuf), nl.is_hbm(nl.hbm)) == (True, False, True)
        assert [nl.is_on_chip(b) for b in (nl.psum, nl.shared_hbm, "sbuf")] == [True, False, True]
        assert isinstance(x, nl.NkiTensor)
        assert isinstance(nl.sbuf, nl.MemoryRegion)
        nl.store(out, nl.load(x))
        return out

    run(kernel, ramp(1, 1))


def test_reinterpret_cast_is_view_and_view_takes_a_shape():
    def kernel(x):
        tile = nl.load(x)
        assert tile.reinterpret_cast(nl.uint8).shape == (4, 24)
        assert tile.view(nl.uint16, (4, 3, 4)).shape == (4, 3, 4)
        assert tile.reshape(new_shape=(4, 2, 3)).shape == tile.reshape(shape=(4, 2, 3)).shape == (4, 2, 3)
        return out_of(tile)

    run(kernel, ramp(4, 6))


def test_assignment_copies_transfers_and_fills():
    def kernel(x):
        tile = nl.load(x)
        tile[:, 0:2] = tile[:, 4:6]
        tile[0:1, 5:6] = -1.0
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        out[...] = tile
        return out

    expected = ramp(4, 6)
    expected[:, 0:2] = expected[:, 4:6]
    expected[0, 5] = -1
    np.testing.assert_array_equal(run(kernel, ramp(4, 6)), expected)
    rows = program_of(nki.jit(kernel), ramp(4, 6))
    assert [rows.form_of(r).name for r in range(len(rows))] == [
        "dma_copy", "tensor_copy", "memset", "dma_copy",
    ]  # fmt: skip


def test_tensors_at_overlapping_addresses_are_one_memory():
    def kernel(x):
        whole = nl.ndarray((4, 8), nl.float32, address=(0, 64))
        # bytes 80 to 95 of partitions 0 to 3: columns 4 to 7 of `whole`
        right = nl.ndarray((4, 4), nl.float32, address=(0, 80))
        nisa.memset(dst=whole, value=1.0)
        nisa.dma_copy(dst=right, src=x)
        bits = nl.ndarray((4, 8), nl.int32, address=(0, 64))
        nisa.tensor_scalar(dst=bits[:, 0:1], data=bits[:, 0:1], op0=nl.bitwise_xor, operand0=-(2**31))
        apart = nl.ndarray((4, 4), nl.float32, address=(0, 96))
        nisa.memset(dst=apart, value=9.0)
        return out_of(whole)

    expected = np.ones((4, 8), np.float32)
    expected[:, 4:] = ramp(4, 4)
    expected[:, 0] = -1
    np.testing.assert_array_equal(run(kernel, ramp(4, 4)), expected)


def test_a_tensor_at_an_address_shows_what_was_written_there_before():
    def kernel(x):
        first = nl.ndarray((32, 4), nl.float32, buffer=nl.psum, address=(32, 2048))
        nisa.nc_transpose(dst=first, data=nl.load(x))
        again = nl.ndarray((32, 2), nl.float32, buffer=nl.psum, address=(32, 2048))
        return out_of(again)

    np.testing.assert_array_equal(run(kernel, ramp(4, 32)), ramp(4, 32).T[:, 0:2])


def test_memory_that_nothing_was_written_to_at_an_address_is_told():
    def kernel(x):
        nisa.memset(dst=nl.ndarray((4, 2), nl.float32, address=(0, 0)), value=1.0)
        return out_of(nl.ndarray((4, 4), nl.float32, address=(0, 8)))

    with pytest.warns(NkilabWarning, match="which was never written"):
        assert np.isnan(run(kernel, ramp(4, 4))).all()


def test_pieces_of_a_region_hold_tensors_side_by_side_and_one_over_the_other():
    def kernel(x):
        region = nl.sbuf.ptr(size=(4, 32))
        left, right = region.ptr(size=(4, 16), offset=(0, 0)), region.ptr(size=(4, 16), offset=(0, 16))
        nisa.dma_copy(dst=left.view(nl.float32, (4, 4)), src=x)
        nisa.memset(dst=nl.ndarray((4, 4), nl.float32, buffer=right), value=5.0)
        whole = region.view(nl.float32, (4, 8))
        assert (right.start, right.size, right.name) == ((0, 16), (4, 16), "sbuf")
        assert whole.address.size == (4, 32)
        return out_of(whole)

    np.testing.assert_array_equal(run(kernel, ramp(4, 4)), np.hstack([ramp(4, 4), np.full((4, 4), 5)]))


def test_a_piece_at_an_offset_is_an_address_of_its_memory():
    def kernel(x):
        piece = nl.sbuf.ptr(size=(4, 16), offset=(32, 64))
        nisa.dma_copy(dst=nl.ndarray((4, 4), nl.float32, address=(32, 64)), src=x)
        return out_of(piece.view(nl.float32, (4, 4)))

    np.testing.assert_array_equal(run(kernel, ramp(4, 4)), ramp(4, 4))


def beyond_sbuf(x):
    nl.ndarray((4, 4), nl.float32, address=(0, 212980))  # refused


def beyond_the_partitions(x):
    nl.ndarray((64, 4), nl.float32, address=(96, 0))  # refused


def inside_a_bank(x):
    nl.ndarray((4, 4), nl.float32, buffer=nl.psum, address=(0, 256))  # refused


def address_in_hbm(x):
    nl.ndarray((4, 4), nl.float32, buffer=nl.hbm, address=(0, 0))  # refused


def address_of_one_number(x):
    nl.ndarray((4, 4), nl.float32, address=3)  # refused


def too_large_for_its_region(x):
    nl.ndarray((4, 8), nl.float32, buffer=nl.sbuf.ptr(size=(4, 16)))  # refused


def piece_of_hbm(x):
    nl.hbm.ptr(size=(4, 16))  # refused


def piece_at_an_odd_place(x):
    nl.sbuf.ptr(size=(4, 16), offset=(3, 0))  # refused


def piece_too_large(x):
    nl.sbuf.ptr(size=(4, 16)).ptr(size=(4, 12), offset=(0, 8))  # refused


def indirect_view(x):
    nl.load(x).indirect(nl.load(x))  # refused


MIGRATION = "\n  source: NKI migration guide, Improved allocation API"
REFUSED = [
    (beyond_sbuf, LimitError,
     "ndarray: 16 bytes in each from 212980 on are asked for; nl.sbuf of trn2 has 212984" + MIGRATION),
    (beyond_the_partitions, LimitError,
     "ndarray: 64 partitions from 96 on are asked for; nl.sbuf of trn2 has 128" + MIGRATION),
    (inside_a_bank, RuleError,
     "ndarray: byte 256 of psum is inside a slot of a bank; tensors of NKI 0.6 begin every 512 bytes\n"
     "  hint: write address=(0, bank * 2048)" + MIGRATION),
    (address_in_hbm, RuleError,
     "ndarray: address is given with a buffer in hbm; addresses are of sbuf and psum"),
    (address_of_one_number, UseError, "ndarray: address is 3; it must be a pair: partitions, bytes in each"),
    (too_large_for_its_region, LimitError,
     "ndarray: the tensor has 4 partitions of 32 bytes; the region has 4 of 16"),
    (piece_of_hbm, RuleError,
     "ptr: ptr of nl.private_hbm; pieces are made of nl.sbuf and nl.psum\n  source: NKI 0.2 guide"),
    (piece_at_an_odd_place, RuleError,
     "ptr: the piece begins at partition 3, byte 0; pieces begin at partition 0, 32, 64 or 96 and at an even "
     "byte\n  source: NKI 0.2 compiler front end"),
    (piece_too_large, LimitError,
     "ptr: 12 bytes in each from 8 on are asked for; the region sbuf has 16" + MIGRATION),
    (indirect_view, UnsupportedError,
     "indirect: tensor indirection of compute instructions is not modelled: the documents leave open whether "
     "each group of 16 or 32 partitions has offsets of its own\n"
     "  (unnamed): float32[4, 6] in sbuf\n"
     "  hint: gather with nisa.nc_n_gather or nisa.local_gather, or rows with vector_select"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "kind", "text"), REFUSED, ids=[r[0].__name__ for r in REFUSED])
def test_a_place_that_does_not_fit_is_refused(body, kind, text):
    assert refusal(nki.jit(body), ramp(4, 6), kind=kind) == f"HERE: {text}"


@nki.jit
def doubled_in_place(x, y):
    before = nl.load(x)
    doubled = nl.add(before, before)
    nisa.dma_copy(dst=x, src=doubled)
    # what was loaded stays what it was
    nisa.dma_copy(dst=y[0:2], src=before[0:2])
    return x


def test_an_input_that_is_written_changes_the_array_of_the_caller():
    x, y = ramp(4, 6), np.zeros((4, 6), np.float32)
    result = doubled_in_place(x, y)
    np.testing.assert_array_equal(x, 2 * ramp(4, 6))
    np.testing.assert_array_equal(result, x)
    np.testing.assert_array_equal(y, np.vstack([ramp(4, 6)[:2], np.zeros((2, 6))]))


def test_an_input_in_any_layout_is_written():
    x, y = np.asfortranarray(ramp(4, 6)), np.zeros((8, 6), np.float32)[::2]
    doubled_in_place(x, y)
    np.testing.assert_array_equal(x, 2 * ramp(4, 6))
    np.testing.assert_array_equal(y[:2], ramp(4, 6)[:2])


def test_an_array_that_may_not_change_stays_as_it_is_and_is_told():
    x, y = ramp(4, 6), np.zeros((4, 6), np.float32)
    x.flags.writeable = False
    with pytest.warns(NkilabWarning, match="writes to x, a read-only array, which stays as it is"):
        np.testing.assert_array_equal(doubled_in_place(x, y), 2 * ramp(4, 6))
    np.testing.assert_array_equal(x, ramp(4, 6))


def test_a_failing_kernel_changes_no_input():
    @nki.jit
    def kernel(x):
        nisa.dma_copy(dst=x, src=nl.add(nl.load(x), 1))
        raise RuntimeError("afterwards")

    x = ramp(4, 6)
    with pytest.raises(RuntimeError, match="afterwards"):
        kernel(x)
    np.testing.assert_array_equal(x, ramp(4, 6))


@pytest.mark.torch
def test_an_input_of_torch_is_written_in_place():
    torch = pytest.importorskip("torch")
    x, y = torch.ones(4, 6, dtype=torch.bfloat16), torch.zeros(4, 6, dtype=torch.bfloat16)
    result = doubled_in_place(x, y)
    assert bool((x == 2).all())
    assert bool((result == 2).all())
    assert y.sum() == 12


def test_both_cores_of_a_launch_write_one_input():
    @nki.jit
    def kernel(x):
        i = nl.program_id(0)
        half = nl.load(x[2 * i : 2 * i + 2])
        nisa.dma_copy(dst=x[2 * i : 2 * i + 2], src=nl.add(half, 10))
        return x

    x = ramp(4, 6)
    kernel[2](x)
    np.testing.assert_array_equal(x, ramp(4, 6) + 10)


def in_version(version, body):
    """What `body` gives in a kernel of one version, for a tile [4, 2, 3] that holds 0, 1, 2, ..."""
    seen = []
    with nkilab.activate(nki=version):
        modules = {name: importlib.import_module(f"nki{name}") for name in ("", ".isa", ".language")}

        @modules[""].jit
        def kernel(x):
            tile = modules[".language"].ndarray((4, 2, 3), "float32", buffer=modules[".language"].sbuf)
            modules[".isa"].dma_copy(dst=tile, src=x)
            seen.append(body(tile))
            out = modules[".language"].ndarray((4, 2, 3), "float32", buffer=modules[".language"].shared_hbm)
            modules[".isa"].dma_copy(dst=out, src=tile)
            return out

        kernel(ramp(4, 2, 3))
    return seen[0]


@pytest.mark.parametrize(
    ("version", "shape"), [("0.1", (2, 3)), ("0.2", (2, 3)), ("0.3", (1, 2, 3)), ("", (1, 2, 3))]
)
def test_an_integer_drops_the_partition_axis_until_version_0_2(version, shape):
    assert in_version(version, lambda tile: tile[1, ...].shape) == shape


def test_a_row_of_version_0_2_is_indexed_and_reshaped_by_its_free_axes():
    def body(tile):
        row = tile[1]
        assert (row.shape, len(row), row[0:1].shape, row[1, 1:3].shape) == ((2, 3), 2, (1, 3), (2,))
        return np.array(row[1, 1:3].reshape((1, 2))).tolist()

    # row 1 of the second partition holds 9, 10, 11
    assert in_version("0.2", body) == [[[10, 11]]]


def test_a_reshape_of_version_0_2_takes_the_first_elements():
    assert in_version("0.2", lambda tile: np.array(tile.reshape((4, 2)))[1].tolist()) == [6, 7]
    with pytest.raises(RuleError, match="does not reshape to"):
        in_version("0.3", lambda tile: tile.reshape((4, 2)))


@pytest.mark.parametrize(
    ("version", "kind", "body", "text"),
    [
        ("0.2", UseError, lambda tile: tile[:, -1], "index -1 is negative; subscripts of NKI 0.1 and 0.2"),
        (
            "0.2",
            SpellingError,
            lambda tile: tile.__setitem__(slice(None), 1),
            "a tile is assigned through a sub",
        ),
    ],
)
def test_what_an_older_version_has_not_is_refused(version, kind, body, text):
    with pytest.raises(kind, match=text):
        in_version(version, body)


def test_an_input_is_not_written_in_version_0_2():
    with nkilab.activate(nki="0.2"):
        nki02, nisa02 = importlib.import_module("nki"), importlib.import_module("nki.isa")

        @nki02.jit
        def kernel(x):
            nisa02.dma_copy(dst=x, src=x)

        with pytest.raises(UseError, match="dst is an input of the kernel, which may not be written"):
            kernel(ramp(4, 6))


def test_products_over_a_window_add_where_they_overlap():
    def kernel(x):
        acc = nl.ndarray((2, 3, 3), nl.float32, buffer=nl.psum)
        weights = nl.shared_identity_matrix(2, dtype=nl.float32)
        data = nl.load(x).reshape((2, 2, 2))
        for row in range(2):
            for column in range(2):
                window = acc[:, row : row + 2, column : column + 2]
                nisa.nc_matmul(dst=window, stationary=weights, moving=data)
        return out_of(nl.copy(acc).reshape((2, 9)))

    # each element of [[a, b], [c, d]] lands on the four corners of its window
    x = ramp(2, 4) + 1
    expected = np.zeros((2, 3, 3), np.float32)
    for row in range(2):
        for column in range(2):
            expected[:, row : row + 2, column : column + 2] += x.reshape(2, 2, 2)
    np.testing.assert_array_equal(run(kernel, x), expected.reshape(2, 9))


@nki.jit
def asked_for(x, index=None):
    tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    if tile and index:  # asked
        nisa.tensor_scalar(tile, tile, op0=nl.add, operand0=1.0)
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def test_the_truth_of_a_tensor_is_that_it_is_there_and_of_one_element_that_is_told():
    x, nothing = np.ones((4, 2), np.float32), np.zeros((1, 1), np.int32)
    np.testing.assert_array_equal(asked_for(x), x)
    with pytest.warns(NkilabWarning) as caught:
        np.testing.assert_array_equal(asked_for(x, nothing), x + 1)
    assert [str(w.message) for w in caught] == [
        "the truth of index: int32[1, 1] in hbm says that it is there, not what it holds: "
        "write `is not None`, or load the element into a register"
    ]
    assert marked_line(asked_for.func, "# asked").endswith(f":{caught[0].lineno}")
