"""nc_matmul: products, types, accumulation as a state, double_row."""

from __future__ import annotations

import numpy as np
import pytest

from nkilab.errors import NkilabWarning, RuleError
from nkilab.isa import REGISTRY
from nkilab.machine import MACHINES
from nkilab.tiles.tile import View, array_of
from nkilab.trace.session import Session
from tests.uses import Tile, call, new_tile, open_session, part_of, result

NC_MATMUL, TENSOR_COPY, MEMSET = REGISTRY["nc_matmul"], REGISTRY["tensor_copy"], REGISTRY["memset"]
FORMATS = ["float32", "tfloat32", "bfloat16", "float16", "float8_e4m3", "float8_e5m2"]


def small_integers(seed: int, *shape: int) -> np.ndarray:
    """-4 to 4, exact in every format, and so are sums of a few hundred products in float32."""
    return np.random.default_rng(seed).integers(-4, 5, shape)


def psum(session: Session, rows: int = 8, columns: int = 16) -> View:
    return new_tile(session, Tile((rows, columns), memory="psum"), name="acc")


def multiply(session: Session, dst: View, value: float = 1.0, **use: object) -> None:
    """Add or write `value` into every element of dst: one row of ones times one row of `value`."""
    rows, columns = dst.layout.shape
    left = new_tile(session, np.ones((1, rows)), name="left")
    right = new_tile(session, np.full((1, columns), value), name="right")
    call(session, NC_MATMUL, dst=dst, stationary=left, moving=right, **use)


@pytest.mark.parametrize("name", FORMATS)
def test_a_product_is_exact_on_small_integers(name: str) -> None:
    left, right = small_integers(1, 32, 16), small_integers(2, 32, 24)
    got = result(NC_MATMUL, Tile((16, 24), memory="psum"), stationary=(left, name), moving=(right, name))
    np.testing.assert_array_equal(got, left.T @ right)


@pytest.mark.parametrize(
    ("left", "right"), [("bfloat16", "float8_e4m3"), ("float16", "bfloat16"), ("float32", "tfloat32")]
)
def test_types_of_one_width_class_mix(left: str, right: str) -> None:
    x, y = small_integers(3, 8, 4), small_integers(4, 8, 5)
    got = result(NC_MATMUL, Tile((4, 5), memory="psum"), stationary=(x, left), moving=(y, right))
    np.testing.assert_array_equal(got, x.T @ y)


def test_products_of_bfloat16_are_summed_in_float32() -> None:
    # 256 + 1 has no bfloat16
    got = result(
        NC_MATMUL, Tile((1, 1), memory="psum"),
        stationary=(np.array([[1], [1]]), "bfloat16"), moving=(np.array([[256], [1]]), "bfloat16"),
    )  # fmt: skip
    assert got[0, 0] == 257


def test_free_axes_count_as_one() -> None:
    left, right = small_integers(5, 8, 2, 3), small_integers(6, 8, 4, 5)
    got = result(NC_MATMUL, Tile((6, 4, 5), memory="psum"), stationary=(left,), moving=(right,))
    expected = np.einsum("kab,kcd->abcd", left, right).reshape(6, 4, 5)
    np.testing.assert_array_equal(got, expected)


def test_a_product_into_columns_of_a_bank_leaves_the_rest() -> None:
    session = open_session(MACHINES["trn2"])
    whole = new_tile(session, np.full((4, 8), 7.0), memory="psum")
    multiply(session, part_of(whole, (0, 2), (4, 3)), 5.0, accumulate=False)
    expected = np.full((4, 8), 7.0)
    expected[:, 2:5] = 5
    np.testing.assert_array_equal(array_of(whole), expected)


def test_trn3_rounds_a_bfloat16_result_once() -> None:
    # 256 + 3 = 259 lies between the bfloat16 258 and 260 and goes to the even 260
    got = result(
        NC_MATMUL, Tile((1, 1), "bfloat16", "psum"), machine="trn3",
        stationary=(np.array([[1], [1]]), "bfloat16"), moving=(np.array([[256], [3]]), "bfloat16"),
    )  # fmt: skip
    assert float(got[0, 0]) == 260


@pytest.mark.parametrize("name", ["float8_e4m3", "float8_e5m2"])
@pytest.mark.parametrize("chip", ["trn2", "trn3"])
def test_double_row_contracts_over_both_rows(name: str, chip: str) -> None:
    left, right = small_integers(7, 16, 2, 8), small_integers(8, 16, 2, 12)
    got = result(
        NC_MATMUL, Tile((8, 12), memory="psum"), machine=chip, perf_mode="double_row",
        stationary=(left, name), moving=(right, name),
    )  # fmt: skip
    np.testing.assert_array_equal(got, np.einsum("krm,krn->mn", left, right))


def test_double_row_names_the_shape_that_does_not_fit() -> None:
    session = open_session(MACHINES["trn2"])
    left = new_tile(session, small_integers(1, 16, 2, 8), "float8_e4m3", name="a")
    right = new_tile(session, small_integers(2, 16, 2, 12), "float8_e4m3", name="b")
    with pytest.raises(RuleError) as caught:
        call(
            session,
            NC_MATMUL,
            dst=psum(session, 8, 24),
            stationary=left,
            moving=right,
            perf_mode="double_row",
        )
    assert str(caught.value).split(": ", 1)[1] == (
        "nc_matmul: stationary has 8 columns and moving 12 per row; dst is [8, 24]\n"
        "  dst = acc: float32[8, 24] in psum\n"
        "  stationary = a: float8_e4m3[16, 2, 8] in sbuf\n"
        "  moving = b: float8_e4m3[16, 2, 12] in sbuf\n"
        "  source: nki.isa.nc_matmul, layout"
    )


def test_the_first_matmul_overwrites_and_later_ones_add() -> None:
    session = open_session(MACHINES["trn2"])
    acc = psum(session)
    for expected in (2, 4, 6):
        multiply(session, acc, 2.0)
        assert (array_of(acc) == expected).all()
    assert [session.program.values_of(row) for row in range(3)] == [(False,), (True,), (True,)]


def test_a_read_does_not_end_an_accumulation_group() -> None:
    session = open_session(MACHINES["trn2"])
    acc = psum(session)
    multiply(session, acc, 1.0)
    call(session, TENSOR_COPY, dst=new_tile(session, Tile((8, 16))), src=acc)
    multiply(session, acc, 1.0)
    assert (array_of(acc) == 2).all()


def test_another_instruction_that_writes_ends_an_accumulation_group() -> None:
    session = open_session(MACHINES["trn2"])
    acc = psum(session)
    multiply(session, acc, 1.0)
    call(session, MEMSET, dst=acc, value=100)
    multiply(session, acc, 3.0)
    assert (array_of(acc) == 3).all()


def test_accumulate_false_overwrites_and_true_adds() -> None:
    session = open_session(MACHINES["trn2"])
    acc = psum(session)
    multiply(session, acc, 5.0, accumulate=False)
    multiply(session, acc, 1.0, accumulate=True)
    assert (array_of(acc) == 6).all()
    multiply(session, acc, 2.0, accumulate=False)
    assert (array_of(acc) == 2).all()


def test_accumulate_true_adds_to_what_a_memset_left() -> None:
    session = open_session(MACHINES["trn2"])
    acc = psum(session)
    call(session, MEMSET, dst=acc, value=10)
    multiply(session, acc, 1.0, accumulate=True)
    assert (array_of(acc) == 11).all()


def test_accumulate_true_on_a_tile_never_written_reads_nan_and_warns() -> None:
    session = open_session(MACHINES["trn2"])
    acc = psum(session)
    with pytest.warns(NkilabWarning, match=r"^reads acc: float32\[8, 16\] in psum, which was never written"):
        multiply(session, acc, 1.0, accumulate=True)
    assert np.isnan(array_of(acc)).all()


def test_rectangles_accumulate_apart_from_each_other() -> None:
    session = open_session(MACHINES["trn2"])
    acc = psum(session)
    left, right = part_of(acc, (0, 0), (8, 8)), part_of(acc, (0, 8), (8, 8))
    multiply(session, left, 1.0)
    multiply(session, left, 1.0)
    multiply(session, right, 5.0)
    assert array_of(acc)[0].tolist() == [2] * 8 + [5] * 8
    # both halves are accumulated now: the whole adds
    multiply(session, acc, 1.0)
    assert array_of(acc)[0].tolist() == [3] * 8 + [6] * 8


def test_a_partial_overlap_is_refused_with_the_ways_out() -> None:
    session = open_session(MACHINES["trn2"])
    acc = psum(session)
    multiply(session, part_of(acc, (0, 0), (8, 4)), 1.0)
    with pytest.raises(RuleError) as caught:
        multiply(session, acc, 1.0)
    assert str(caught.value).split(": ", 1)[1] == (
        "nc_matmul: dst overlaps what earlier matmuls wrote in part; accumulate is ambiguous\n"
        "  dst = acc: float32[8, 16] in psum\n"
        "  stationary = left: float32[1, 8] in sbuf\n"
        "  moving = right: float32[1, 16] in sbuf\n"
        "  hint: say accumulate=True or accumulate=False, or write one rectangle at a time\n"
        "  source: nki.isa.nc_matmul, accumulation mode"
    )
    multiply(session, acc, 1.0, accumulate=False)
    assert (array_of(acc) == 1).all()


def test_the_accumulate_flag_is_a_value_and_not_part_of_the_form() -> None:
    session = open_session(MACHINES["trn2"])
    acc = psum(session)
    for flag in (False, True, None):
        multiply(session, acc, 1.0, accumulate=flag)
    assert len(session.program.forms) == 1


def test_infinity_times_zero_is_nan_and_silent() -> None:
    got = result(
        NC_MATMUL, Tile((1, 1), memory="psum"), stationary=np.float32([[np.inf]]), moving=np.float32([[0]])
    )
    assert np.isnan(got[0, 0])


def test_onezero_hints_do_not_change_the_product() -> None:
    left, right = small_integers(1, 4, 4), small_integers(2, 4, 4)
    plain, hinted = (
        result(
            NC_MATMUL, Tile((4, 4), memory="psum"), stationary=(left,), moving=(right,),
            is_stationary_onezero=flag, is_moving_onezero=flag,
        )
        for flag in (False, True)
    )  # fmt: skip
    np.testing.assert_array_equal(plain, hinted)


def test_unequal_contraction_sizes_are_named() -> None:
    session = open_session(MACHINES["trn2"])
    a, b = new_tile(session, np.ones((4, 8))), new_tile(session, np.ones((5, 16)))
    with pytest.raises(RuleError) as caught:
        call(session, NC_MATMUL, dst=psum(session), stationary=a, moving=b)
    assert caught.value.problem == "moving is 5 along K; it must be 4, as in the operands before it"


def test_a_double_row_of_ocp_numbers_mixes_with_e5m2_on_trn3() -> None:
    left, right = small_integers(1, 16, 2, 8), small_integers(2, 16, 2, 12)
    got = result(
        NC_MATMUL, Tile((8, 12), memory="psum"), machine="trn3", perf_mode="double_row",
        stationary=(left, "float8_e4m3fn"), moving=(right, "float8_e5m2"),
    )  # fmt: skip
    np.testing.assert_array_equal(got, np.einsum("krm,krn->mn", left, right))


def test_a_double_row_flattens_the_axes_after_its_rows() -> None:
    left, right = small_integers(3, 16, 2, 2, 4), small_integers(4, 16, 2, 3, 5)
    got = result(
        NC_MATMUL, Tile((8, 3, 5), memory="psum"), perf_mode="double_row",
        stationary=(left, "float8_e4m3"), moving=(right, "float8_e4m3"),
    )  # fmt: skip
    expected = np.einsum("krab,krcd->abcd", left, right).reshape(8, 3, 5)
    np.testing.assert_array_equal(got, expected)


# nki.isa.nc_matmul, tiling mode: any of the row tiles times any of the column tiles
@pytest.mark.parametrize("size", [(32, 32), (32, 128), (64, 64), (128, 32), (128, 128)])
def test_a_tile_of_the_array_gives_the_same_product(size: tuple[int, int]) -> None:
    left, right = small_integers(5, 32, 16), small_integers(6, 32, 24)
    for position in ((0, 0), (128 - size[0], 128 - size[1])):
        got = result(
            NC_MATMUL, Tile((16, 24), memory="psum"), stationary=(left,), moving=(right,),
            tile_size=size, tile_position=position,
        )  # fmt: skip
        np.testing.assert_array_equal(got, left.T @ right)


def test_products_of_column_tiles_lie_below_each_other() -> None:
    session = open_session(MACHINES["trn2"])
    acc = new_tile(session, Tile((128, 16), memory="psum"))
    for column in (0, 32, 64, 96):
        multiply(
            session, part_of(acc, (column, 0), (32, 16)), float(column), tile_size=(128, 32),
            tile_position=(0, column),
        )  # fmt: skip
    assert array_of(acc)[::32, 0].tolist() == [0, 32, 64, 96]


def test_a_tile_position_is_a_pair() -> None:
    with pytest.raises(RuleError) as caught:
        NC_MATMUL.attributes["tile_size"].canonical("tile_size", (64, 64, 64))
    assert caught.value.problem == "a tile position or size has 3 numbers; it must be (row, column)"


def test_trn3_fills_psum_with_one_product() -> None:
    right = small_integers(7, 4, 8192)
    left = small_integers(8, 4, 2)
    got = result(
        NC_MATMUL, Tile((2, 8192), "bfloat16", "psum"), machine="trn3",
        stationary=(left, "bfloat16"), moving=(right, "bfloat16"),
    )  # fmt: skip
    np.testing.assert_array_equal(got.astype(np.float32), left.T @ right)


def test_transpose_mode_moves_infinities_and_nan_bit_for_bit() -> None:
    data = np.float32([[np.inf, 1], [np.nan, -np.inf], [2, 3]])
    got = result(
        NC_MATMUL, Tile((2, 3), memory="psum"), stationary=data, moving=np.eye(3, dtype=np.float32),
        is_transpose=True,
    )  # fmt: skip
    np.testing.assert_array_equal(got, data.T)
