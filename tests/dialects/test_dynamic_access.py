"""Addresses known at run time in `nki`: gathers, scatters, offsets, registers, loops; against NumPy."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nkilab
from nkilab.errors import KernelError, NkilabWarning


@pytest.fixture(autouse=True)
def served() -> Iterator[None]:
    with nkilab.activate(), warnings.catch_warnings():
        warnings.simplefilter("error", NkilabWarning)
        yield


def modules() -> tuple[Any, Any, Any]:
    import nki  # type: ignore[import-not-found]
    import nki.isa as nisa  # type: ignore[import-not-found]
    import nki.language as nl  # type: ignore[import-not-found]

    return nki, nisa, nl


def column(nisa: Any, nl: Any, indices: Any, dtype: str = "int32") -> Any:
    """The indices [P, 1] in SBUF."""
    tile = nl.ndarray(indices.shape, dtype=dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=indices)
    return tile


def gather(data: np.ndarray, indices: np.ndarray, mode: str = "error", spelled: str = "ap") -> np.ndarray:
    nki, nisa, nl = modules()
    rows, width = len(indices), data.shape[1]

    @nki.jit
    def kernel(data, indices):
        out = nl.ndarray((rows, width), dtype=data.dtype, buffer=nl.shared_hbm)
        at = column(nisa, nl, indices)
        tile = nl.ndarray((rows, width), dtype=data.dtype, buffer=nl.sbuf)
        nisa.memset(tile, -1)
        if spelled == "ap":
            chosen = data.ap([[width, rows], [1, width]], offset=0, vector_offset=at, indirect_dim=0)
        elif spelled == "method":
            chosen = data.vector_select(0, at)
        else:
            chosen = data[at, :]
        nisa.dma_copy(dst=tile, src=chosen, oob_mode=getattr(nisa.oob_mode, mode))
        nisa.dma_copy(dst=out, src=tile)
        return out

    return kernel(data, indices)


indices_of = st.lists(st.integers(-3, 11), min_size=1, max_size=16)


@given(indices_of, st.sampled_from(["ap", "method", "subscript"]))
def test_a_gather_reads_the_rows_and_skips_those_out_of_bounds(indices: list[int], spelled: str) -> None:
    data = np.arange(24, dtype=np.float32).reshape(8, 3)
    at = np.array(indices, np.int32).reshape(-1, 1)
    expected = np.full((len(indices), 3), -1, np.float32)
    for row, index in enumerate(indices):
        if 0 <= index < 8:
            expected[row] = data[index]
    with nkilab.activate():
        np.testing.assert_array_equal(gather(data, at, "skip", spelled), expected)


def scatter(src: np.ndarray, indices: np.ndarray, rows: int, mode: str, *, adds: bool = False) -> np.ndarray:
    nki, nisa, nl = modules()
    count, width = src.shape

    @nki.jit
    def kernel(src, indices):
        out = nl.ndarray((rows, width), dtype=src.dtype, buffer=nl.shared_hbm)
        fill = nl.ndarray((rows, width), dtype=src.dtype, buffer=nl.sbuf)
        nisa.memset(fill, 100)
        nisa.dma_copy(dst=out, src=fill)
        at = column(nisa, nl, indices)
        tile = nl.ndarray((count, width), dtype=src.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=src)
        chosen = out.ap([[width, count], [1, width]], vector_offset=at)
        if adds:
            nisa.dma_compute(dst=chosen, srcs=[chosen, tile], reduce_op=nl.add)
        else:
            nisa.dma_copy(dst=chosen, src=tile, oob_mode=getattr(nisa.oob_mode, mode))
        return out

    return kernel(src, indices)


@given(indices_of)
def test_a_scatter_writes_the_rows_and_the_last_of_equal_ones_stays(indices: list[int]) -> None:
    src = np.arange(len(indices) * 2, dtype=np.float32).reshape(-1, 2)
    expected = np.full((8, 2), 100, np.float32)
    for row, index in enumerate(indices):
        if 0 <= index < 8:
            expected[index] = src[row]
    with nkilab.activate():
        at = np.array(indices, np.int32).reshape(-1, 1)
        np.testing.assert_array_equal(scatter(src, at, 8, "skip"), expected)


def test_a_scatter_with_addition_adds_to_what_the_rows_hold() -> None:
    src = np.array([[1, 2], [3, 4]], np.float32)
    out = scatter(src, np.array([[2], [0]], np.int32), 3, "error", adds=True)
    np.testing.assert_array_equal(out, [[103, 104], [100, 100], [101, 102]])


def test_a_row_out_of_bounds_is_an_error_that_names_it() -> None:
    with pytest.raises(KernelError) as caught:
        gather(np.zeros((8, 3), np.float32), np.array([[0], [9]], np.int32))
    assert (
        str(caught.value)
        .split("\n")[0]
        .endswith(
            "dma_copy: row 1 of data: float32[2, 3] in hbm at run-time rows has the index 9; "
            "the axis has 8 elements"
        )
    )
    assert caught.value.key == "err_tensor_access_out_of_bound"


def test_what_the_step_of_a_gathered_axis_says_counts_for_nothing() -> None:
    # access pattern guide, vector dynamic access: the row size of the base tensor is taken
    nki, nisa, nl = modules()

    @nki.jit
    def kernel(data, indices):
        out = nl.ndarray((2, 2), dtype=data.dtype, buffer=nl.shared_hbm)
        at = column(nisa, nl, indices)
        nisa.dma_copy(dst=out, src=data.ap([[1, 2], [1, 2]], offset=1, vector_offset=at))
        return out

    data = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(kernel(data, np.array([[2], [0]], np.int32)), [[9, 10], [1, 2]])


@pytest.mark.parametrize(
    ("axis", "start", "expected"), [(0, 1, [[12, 13]]), (1, 2, [[4, 5]]), (2, 1, [[1, 2]])]
)
def test_an_offset_counts_in_rows_of_the_axis_it_names(axis: int, start: int, expected: Any) -> None:
    # offset + scalar_offset * prod(A.shape[indirect_dim + 1:]), with A of shape (2, 6, 2)
    nki, nisa, nl = modules()

    @nki.jit
    def kernel(data, where):
        out = nl.ndarray((1, 2), dtype=data.dtype, buffer=nl.shared_hbm)
        at = column(nisa, nl, where)
        nisa.dma_copy(dst=out, src=data.ap([[2, 1], [1, 2]], scalar_offset=at, indirect_dim=axis))
        return out

    data = np.arange(24, dtype=np.float32).reshape(2, 6, 2)
    np.testing.assert_array_equal(kernel(data, np.array([[start]], np.int32)), expected)


def test_an_offset_out_of_bounds_skips_the_whole_transfer_or_is_refused() -> None:
    nki, nisa, nl = modules()

    @nki.jit
    def kernel(data, where, skips):
        out = nl.ndarray((1, 2), dtype=data.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray((1, 2), dtype=data.dtype, buffer=nl.sbuf)
        nisa.memset(tile, 5)
        at = column(nisa, nl, where, "uint32")
        mode = nisa.oob_mode.skip if skips else nisa.oob_mode.error
        nisa.dma_copy(dst=tile, src=data.ap([[2, 1], [1, 2]], scalar_offset=at), oob_mode=mode)
        nisa.dma_copy(dst=out, src=tile)
        return out

    data, far = np.zeros((4, 2), np.float32), np.array([[2**32 - 1]], np.uint32)
    np.testing.assert_array_equal(kernel(data, far, True), [[5, 5]])
    with pytest.raises(KernelError, match=r"the index of data.* is 4294967295; the axis has 4 elements"):
        kernel(data, far, False)


def test_a_free_axis_on_chip_is_selected_by_a_register() -> None:
    nki, nisa, nl = modules()

    @nki.jit
    def kernel(data, where):
        out = nl.ndarray((2, 2), dtype=data.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray((2, 3, 2), dtype=data.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=data)
        register = nisa.register_alloc()
        nisa.register_load(register, where)
        part = nl.ndarray((2, 2), dtype=data.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=part, src=tile[:, register, :])
        nisa.dma_copy(dst=out, src=part)
        return out

    data = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    np.testing.assert_array_equal(kernel(data, np.array([[2]], np.int32)), data[:, 2])


def test_a_run_of_elements_begins_where_a_tile_says() -> None:
    nki, nisa, nl = modules()

    @nki.jit
    def kernel(data, where):
        out = nl.ndarray((1, 2), dtype=data.dtype, buffer=nl.shared_hbm)
        at = column(nisa, nl, where)
        nisa.dma_copy(dst=out, src=data[0:1, nl.ds(at, 2)])
        return out

    data = np.arange(8, dtype=np.float32).reshape(1, 8)
    np.testing.assert_array_equal(kernel(data, np.array([[5]], np.int32)), [[5, 6]])
    with pytest.raises(KernelError, match="is 7; the axis has 7 elements"):
        kernel(data, np.array([[7]], np.int32))


def test_a_gathering_transpose_takes_the_indices_column_by_column() -> None:
    # nki.isa.dma_transpose: flat_indices = indices.T.flatten()[:src.shape[0]]; dst = src[flat_indices].T
    nki, nisa, nl = modules()

    @nki.jit
    def kernel(data, indices):
        out = nl.ndarray((16, 144), dtype=data.dtype, buffer=nl.shared_hbm)
        at = column(nisa, nl, indices, "uint32")
        tile = nl.ndarray((16, 144), dtype=data.dtype, buffer=nl.sbuf)
        nisa.dma_transpose(dst=tile, src=data.ap([[16, 144], [1, 16]], vector_offset=at), axes=(1, 0))
        nisa.dma_copy(dst=out, src=tile)
        return out

    draw = np.random.default_rng(1)
    data = draw.integers(0, 1000, (300, 16)).astype(np.float16)
    indices = draw.integers(0, 300, (128, 2)).astype(np.uint32)
    expected = data[indices.T.flatten()[:144]].T
    np.testing.assert_array_equal(kernel(data, indices), expected)


def test_registers_move_load_and_store() -> None:
    nki, nisa, nl = modules()

    @nki.jit
    def kernel(stored):
        out = nl.ndarray((1, 4), dtype=nl.int32, buffer=nl.shared_hbm)
        first, second = nisa.register_alloc(7), nisa.register_alloc()
        nisa.register_store(out[0:1, 0:1], first)
        nisa.register_move(second, first)
        nisa.register_move(first, -1)
        nisa.register_store(out[0:1, 1:2], second)
        nisa.register_load(second, stored)
        nisa.register_store(out[0:1, 2:3], second)
        nisa.register_store(out[0:1, 3:4], first)
        return out

    np.testing.assert_array_equal(kernel(np.array([[2**32 - 3]], np.uint32)), [[7, 7, -3, -1]])


def test_loops_go_round_as_often_as_their_registers_say() -> None:
    nki, nisa, nl = modules()

    @nki.jit
    def kernel(bound):
        out = nl.ndarray((1, 3), dtype=nl.int32, buffer=nl.shared_hbm)
        sums = nl.ndarray((1, 3), dtype=nl.int32, buffer=nl.sbuf)
        nisa.memset(sums, 0)
        last = nisa.register_alloc()
        nisa.register_load(last, bound)

        def add(column, register):
            term = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
            nisa.register_store(term, register)
            at = sums[0:1, column : column + 1]
            nisa.tensor_tensor(dst=at, data1=at, data2=term, op=nl.add)

        for i in nl.dynamic_range(1, last, 2):
            add(0, nisa.register_alloc(i))
        nl.fori_loop(0, last, lambda i: add(1, i))

        def down(register):
            add(2, register)
            left = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
            nisa.register_store(left, register)
            nisa.tensor_scalar(dst=left, data=left, op0=nl.subtract, operand0=1.0)
            nisa.register_load(register, left)
            return register

        nl.while_loop(last, down)
        nisa.dma_copy(dst=out, src=sums)
        return out

    # 1 + 3 + 5; 0 + 1 + ... + 5; 6 + 5 + ... + 1
    np.testing.assert_array_equal(kernel(np.array([[6]], np.int32)), [[9, 15, 21]])


def test_a_loop_needs_the_value_of_its_register() -> None:
    nki, nisa, _ = modules()

    @nki.jit
    def kernel(bound):
        register = nisa.register_alloc()
        nisa.register_load(register, bound)
        while register:
            pass

    with pytest.raises(KernelError, match="the value of a register decides what runs") as caught:
        nkilab.estimate(kernel, nkilab.spec((1, 1), "int32"))
    assert "it is computed from bound; give data: --arg bound=@bound.npy" in str(caught.value)


def test_shapes_alone_suffice_for_gathers_and_offsets() -> None:
    nki, nisa, nl = modules()

    @nki.jit
    def kernel(data, indices):
        out = nl.ndarray((64, 32), dtype=data.dtype, buffer=nl.shared_hbm)
        at = column(nisa, nl, indices)
        tile = nl.ndarray((64, 32), dtype=data.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=data.vector_select(0, at))
        nisa.dma_copy(dst=out, src=tile)
        return out

    predicted = nkilab.estimate(kernel, nkilab.spec((128, 32), "float32"), nkilab.spec((64, 1), "int32"))
    rows = list(predicted.program.accesses(1))
    assert [a.operand for a in rows] == ["dst", "src", "src.index"]
    assert rows[2].is_read
    # the gather waits for the indices
    events = predicted.timeline
    assert events.start_ns[1] >= events.end_ns[0]


@pytest.mark.parametrize(
    ("spelled", "problem"),
    [
        ("on_chip_rows", "a tile of indices chooses rows of a tensor in sbuf; it chooses rows in hbm"),
        ("second_axis", "indirect_dim is 1 with a vector_offset; only axis 0 takes one"),
        ("both", "scalar_offset and vector_offset are both given; an access has at most one of them"),
        ("float", "the index is float32[4, 1] in sbuf; it must be an integer in sbuf or a register"),
        ("sliced", "axis 0 of float32[4, 8] in hbm at run-time rows, which the indices select, is sliced or "
         "reshaped; it stays as it is"),
        ("partition", "the index of the partition axis is known at run time only; on chip it is fixed"),
        ("twice", "the view has an index known at run time already; a view has at most one"),
        ("compute", "src is float32[4, 8] in hbm at run-time rows, which indices choose; "
         "it must be at fixed rows"),
    ],
)  # fmt: skip
def test_refusals(spelled: str, problem: str) -> None:
    nki, nisa, nl = modules()

    @nki.jit
    def kernel(data, indices):
        at = column(nisa, nl, indices)
        one = nisa.register_alloc(0)
        tile = nl.ndarray((4, 8), dtype=nl.float32, buffer=nl.sbuf)
        floats = nl.ndarray((4, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(tile, 0)
        pattern = [[8, 4], [1, 8]]
        match spelled:
            case "on_chip_rows":
                tile.ap(pattern, vector_offset=at)
            case "second_axis":
                data.ap(pattern, vector_offset=at, indirect_dim=1)
            case "both":
                data.ap(pattern, vector_offset=at, scalar_offset=one)
            case "float":
                data.ap(pattern, vector_offset=floats)
            case "sliced":
                data.vector_select(0, at)[0:2]
            case "partition":
                tile.select(0, one)
            case "twice":
                data.select(1, one).select(0, one)
            case "compute":
                nisa.register_load(one, data.vector_select(0, at))

    with pytest.raises(KernelError) as caught:
        kernel(np.zeros((8, 8), np.float32), np.zeros((4, 1), np.int32))
    assert caught.value.problem == problem or caught.value.problem.startswith(problem)
