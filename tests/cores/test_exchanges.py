"""What two cores exchange and where they meet."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nkilab
from nkilab.errors import NkilabWarning
from tests.cores.kernels import exchanged, launched, loaded, output_like, parts
from tests.dialects.spellings import nisa2 as nisa
from tests.dialects.spellings import nki2 as nki
from tests.dialects.spellings import nl2 as nl
from tests.isa.warned import heard


@nki.jit
def summed(x):
    """Each program writes the sum of both parts to its part of the output."""
    out, mine = output_like(x), loaded(x)
    theirs = nl.ndarray(mine.shape, mine.dtype, buffer=nl.sbuf)
    exchanged(mine, theirs)
    nisa.tensor_tensor(mine, mine, theirs, op=nl.add)
    nisa.dma_copy(out[nl.program_id(0)], mine)
    return out


@nki.jit
def swapped_in_place(x):
    out, tile = output_like(x), loaded(x)
    exchanged(tile, tile, dma_engine=nisa.dma_engine.gpsimd_dma)
    nisa.dma_copy(out[nl.program_id(0)], tile)
    return out


@nki.jit
def read_after_a_barrier(x):
    """Each program stores its part in memory that both see, then returns what the other stored."""
    out, between = output_like(x), nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    rank = nl.program_id(0)
    nisa.dma_copy(between[rank], x[rank])
    nisa.core_barrier(between, (0, 1))
    nisa.dma_copy(out[rank], between[1 - rank])
    return out


def test_both_cores_get_the_sum_of_what_they_sent() -> None:
    x = parts(4, 8)
    np.testing.assert_array_equal(summed[2](x), [x[0] + x[1]] * 2)


def test_a_tile_is_swapped_in_place() -> None:
    x = parts(4, 8)
    np.testing.assert_array_equal(swapped_in_place[2](x), x[::-1])


def test_what_a_core_stored_before_a_barrier_is_there_after_it() -> None:
    x = parts(4, 8)
    np.testing.assert_array_equal(read_after_a_barrier[2](x), x[::-1])


@nki.jit
def parts_of_one_tile(x):
    """Half of a tile is sent, the other half of the same tile receives."""
    out, tile = output_like(x), loaded(x)
    rank, half = nl.program_id(0), x.shape[2] // 2
    mine = tile[:, rank * half : (rank + 1) * half]
    theirs = tile[:, (1 - rank) * half : (2 - rank) * half]
    exchanged(mine, theirs)
    nisa.dma_copy(out[rank], tile)
    return out


def test_halves_are_gathered_into_one_tile() -> None:
    x = parts(4, 8)
    # by hand: columns 0 to 3 of core 0, columns 4 to 7 of core 1
    whole = np.concatenate([x[0, :, :4], x[1, :, 4:]], axis=1)
    np.testing.assert_array_equal(parts_of_one_tile[2](x), [whole] * 2)


@nki.jit
def passed_on(x, pipes):
    """A value is doubled and exchanged once per pipe."""
    out, tile = output_like(x), loaded(x)
    for pipe in pipes:
        nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=nl.program_id(0) + 2.0)
        exchanged(tile, tile, pipe)
    nisa.dma_copy(out[nl.program_id(0)], tile)
    return out


@given(st.lists(st.integers(0, 3), max_size=8))
def test_exchanges_in_a_row_agree_with_the_model(pipes: list[int]) -> None:
    a, b = 3.0, 5.0
    for _ in pipes:
        a, b = 3 * b, 2 * a
    x = np.array([3, 5], np.float32).reshape(2, 1, 1)
    np.testing.assert_array_equal(passed_on[2](x, pipes).reshape(-1), [a, b])


def test_twenty_runs_agree_in_bits_rows_and_meetings() -> None:
    x = np.random.default_rng(3).standard_normal((2, 16, 32)).astype(np.float32)

    def state() -> tuple[Any, ...]:
        left = launched(passed_on[2], x, [1, 0, 2])
        columns = [(p.form_column, p.storage_column, p.offset_column, p.line_column) for p in left.programs]
        return left.results.tobytes(), str(columns), left.rendezvous, left.memories

    first = state()
    assert all(state() == first for _ in range(20))


def test_each_core_has_a_program_and_the_launch_knows_where_they_met() -> None:
    left = launched(summed[2], parts(4, 8))
    assert len(left.programs) == 2
    # rows: load, sendrecv, add, store
    assert [m.name for m in left.rendezvous] == ["sendrecv"]
    assert left.rendezvous[0].rows == (1, 1)
    assert [p.form_of(1).name for p in left.programs] == ["sendrecv"] * 2
    assert [p.values_of(1) for p in left.programs] == [(1, 1, 0), (0, 0, 0)]


def test_programs_meet_where_only_shapes_are_known() -> None:
    spec = nkilab.spec((2, 4, 8), "float32")
    left = launched(passed_on[2], spec, [0, 0], has_data=False)
    assert [m.rows for m in left.rendezvous] == [(2, 2), (4, 4)]


@nki.jit
def barred_in_sbuf(x):
    tile = loaded(x)
    nisa.core_barrier(tile, (0, 1))
    return output_like(x)


def test_tiles_in_sbuf_meet_at_a_barrier_as_published_kernels_have_it() -> None:
    with heard():
        assert [m.rows for m in launched(barred_in_sbuf[2], parts(4, 8)).rendezvous] == [(1, 1)]


@nki.jit
def unwritten(x):
    out = output_like(x)
    tile = nl.ndarray(x.shape[1:], x.dtype, buffer=nl.sbuf)
    exchanged(tile, tile)
    nisa.dma_copy(out[nl.program_id(0)], tile)
    return out


def test_sending_what_was_never_written_is_warned_of_once_and_received_as_nan() -> None:
    with heard() as texts:
        result = unwritten[2](parts(4, 8))
    assert np.isnan(result).all()
    # the name is the variable's in `exchanged`
    assert texts == [
        "reads src: float32[4, 8] in sbuf, which was never written; unwritten elements read as nan"
    ]


def test_a_warning_that_a_filter_makes_an_error_ends_both_programs() -> None:
    with warnings.catch_warnings(), pytest.raises(NkilabWarning):
        warnings.simplefilter("error")
        unwritten[2](parts(4, 8))


def test_a_barrier_moves_no_bytes_of_its_tensor() -> None:
    spec = nkilab.spec((2, 64, 512), "float32")
    values = nkilab.estimate(read_after_a_barrier[2], spec).summary.values
    # by hand: two copies of 64 * 512 float32 from HBM to HBM
    assert values["hbm_read_bytes"] == values["hbm_write_bytes"] == 2 * 64 * 512 * 4
