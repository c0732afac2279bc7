"""Selections by position and value, and reductions over partitions, against loops written out here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nkilab.errors import RuleError
from nkilab.isa import REGISTRY
from nkilab.machine import MACHINES
from nkilab.tiles.tile import array_of
from tests.isa.warned import heard
from tests.uses import Tile, call, form_of, new_tile, open_session, refused, result, smallest_use

AFFINE_SELECT, REDUCE = REGISTRY["affine_select"], REGISTRY["tensor_partition_reduce"]
BOUNDS, NONZERO = REGISTRY["sequence_bounds"], REGISTRY["nonzero_with_count"]
FP32_MIN = float(np.finfo(np.float32).min)


def test_a_causal_mask_keeps_the_lower_triangle() -> None:
    data = np.random.default_rng(1).standard_normal((32, 32)).astype(np.float32)
    got = result(
        AFFINE_SELECT, (32, 32), pattern=[[-1, 32]], channel_multiplier=1, on_true_tile=data,
        on_false_value=FP32_MIN, cmp_op="greater",
    )  # fmt: skip
    expected = np.where(np.arange(32)[:, None] > np.arange(32)[None, :], data, np.float32(FP32_MIN))
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("op", "function"),
    [
        ("equal", np.equal), ("not_equal", np.not_equal), ("less", np.less), ("less_equal", np.less_equal),
        ("greater", np.greater), ("greater_equal", np.greater_equal),
    ],
)  # fmt: skip
def test_a_pattern_of_four_axes_is_walked_as_the_page_says(op: str, function: Any) -> None:
    pattern = [[7, 2], [-3, 3], [2, 2], [-1, 4]]
    data = np.arange(4 * 48, dtype=np.float32).reshape(4, 6, 8)
    got = result(
        AFFINE_SELECT, (4, 48), pattern=pattern, channel_multiplier=-2, on_true_tile=data,
        on_false_value=-1.0, cmp_op=op, offset=3,
    )  # fmt: skip
    for p in range(4):
        for at in range(48):
            w, z, y, x = np.unravel_index(at, (2, 3, 2, 4))
            value = 3 - 2 * p + 7 * w - 3 * z + 2 * y - x
            assert got[p, at] == (data.reshape(4, 48)[p, at] if function(value, 0) else -1)


def test_the_affine_value_wraps_around_like_an_int32() -> None:
    data = np.ones((1, 2), np.float32)
    got = result(
        AFFINE_SELECT, (1, 2), pattern=[[1, 2]], channel_multiplier=0, on_true_tile=data, on_false_value=0,
        cmp_op="greater", offset=2**31 - 1,
    )  # fmt: skip
    np.testing.assert_array_equal(got, [[1, 0]])


def test_a_constant_is_rounded_to_the_type_of_dst() -> None:
    # hand: 300.7 saturates int8; elements pass through float32
    data = (np.array([[1, -5]]), "int32")
    got = result(
        AFFINE_SELECT, Tile((1, 2), "int8"), pattern=[[1, 2]], channel_multiplier=0, on_true_tile=data,
        on_false_value=300.7,
    )  # fmt: skip
    np.testing.assert_array_equal(got, [[1, 127]])


@pytest.mark.parametrize(
    ("op", "function"), [("add", np.sum), ("maximum", np.max), ("average", np.mean), (np.add, np.sum)]
)
def test_partitions_are_reduced(op: Any, function: Any) -> None:
    # small integers: sums are exact in any order
    data = np.random.default_rng(2).integers(-9, 9, (64, 8, 4)).astype(np.float32)
    got = result(REDUCE, (1, 8, 4), op=op, data=data)
    np.testing.assert_array_equal(got, function(data, axis=0, keepdims=True).astype(np.float32))


def test_bits_are_reduced_over_partitions_as_they_are() -> None:
    data = np.array([[1, -1], [6, 2**30], [8, 5]])
    either = result(REDUCE, Tile((1, 2), "int32"), op="bitwise_or", data=(data, "int32"))
    both = result(REDUCE, Tile((1, 2), "int32"), op="bitwise_and", data=(data, "int32"))
    np.testing.assert_array_equal(either, [[15, -1]])
    np.testing.assert_array_equal(both, [[0, 0]])


def bounds_of(ids: list[int]) -> list[list[int]]:
    """sequence_bounds by walking from each position to both sides."""
    begins, ends = [], []
    for at, number in enumerate(ids):
        first = last = at
        while first > 0 and ids[first - 1] == number:
            first -= 1
        while last < len(ids) - 1 and ids[last + 1] == number:
            last += 1
        begins.append(len(ids) if number == 0 else first)
        ends.append(-1 if number == 0 else last + 1)
    return [begins, ends]


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_the_bounds_of_segments_are_those_of_the_page(dtype: str) -> None:
    # the example in the public test of sequence_bounds
    ids = [0, 1, 1, 2, 2, 2, 0, 3, 3]
    got = result(BOUNDS, Tile((1, 2, 9), dtype), segment_ids=(np.array([ids]), dtype))
    np.testing.assert_array_equal(got, [[[9, 1, 1, 3, 3, 3, 9, 7, 7], [-1, 3, 3, 6, 6, 6, -1, 9, 9]]])


@pytest.mark.parametrize("seed", range(4))
def test_the_bounds_of_random_segments_are_found(seed: int) -> None:
    ids = np.random.default_rng(seed).integers(0, 3, 50)
    got = result(BOUNDS, Tile((1, 2, 50), "int32"), segment_ids=(ids[None], "int32"))
    np.testing.assert_array_equal(got, [bounds_of(ids.tolist())])


def test_nonzero_writes_the_first_partition_of_each_core_alone() -> None:
    session = open_session(MACHINES["trn2"])
    src = np.zeros((48, 4), np.float32)
    src[0, 1], src[32, 0], src[32, 3], src[5] = 2, np.nan, -1, 9
    dst = new_tile(session, np.full((48, 5), 77), "int32")
    call(session, NONZERO, dst=dst, src=new_tile(session, src), index_offset=100, padding_val=-7)
    got = array_of(dst)
    np.testing.assert_array_equal(got[0], [101, -7, -7, -7, 1])
    np.testing.assert_array_equal(got[16], [-7, -7, -7, -7, 0])
    np.testing.assert_array_equal(got[32], [100, 103, -7, -7, 2])
    others = np.arange(48) % 16 != 0
    assert (got[others] == 77).all()


def test_the_partitions_that_nonzero_leaves_count_as_unwritten() -> None:
    session = open_session(MACHINES["trn2"])
    dst = new_tile(session, Tile((32, 5), "int32"))
    call(session, NONZERO, dst=dst, src=new_tile(session, np.ones((32, 4))))
    bits = dst.storage.written.bits.reshape(32, 5)
    np.testing.assert_array_equal(bits, np.repeat(np.arange(32)[:, None] % 16 == 0, 5, axis=1))


def test_affine_select_takes_150_and_n_cycles() -> None:
    # 2.26 costs, affine_select
    use = smallest_use(AFFINE_SELECT, {"F": 512, "pattern": [[1, 512]]})
    (step,) = form_of(AFFINE_SELECT, MACHINES["trn1"], use).steps
    assert step.busy_ns == pytest.approx(662 / 1.4)
    assert step.widening == 1


@pytest.mark.parametrize("cls", [REDUCE, BOUNDS, NONZERO])
def test_a_cost_without_a_source_widens_the_interval(cls: Any) -> None:
    (step,) = form_of(cls, MACHINES["trn2"], smallest_use(cls)).steps
    assert step.engine == "gpsimd"
    assert step.widening > 1


REFUSED = [
    (
        AFFINE_SELECT, {"pattern": []},
        "pattern has no axis, or more than four\n  source: nki.isa.affine_select",
    ),
    (
        AFFINE_SELECT, {"pattern": [[1, 4], [2, 5]]},
        "the counts of pattern do not multiply to the elements per partition of dst\n"
        "  source: nki.isa.affine_select, tile size",
    ),
    (AFFINE_SELECT, {"pattern": 7}, "pattern is 7; it must be a list of up to four [step, count]"),
    (AFFINE_SELECT, {"cmp_op": "add"}, "cmp_op is no comparison\n  source: nki.isa.affine_select, cmp_op"),
    (
        AFFINE_SELECT, {"on_true_tile.memory": "psum"},
        "on_true_tile is in psum; it must be in sbuf\n  hint: copy it to sbuf first, with tensor_copy\n"
        "  source: nki.isa.affine_select\n  key: err_unsupported_memory",
    ),
    (
        REDUCE, {"op": "multiply"},
        "op is multiply; it must be one of add, average, maximum, bitwise_or, bitwise_and\n"
        "  source: nki.isa.tensor_partition_reduce",
    ),
    (
        REDUCE, {"op": "bitwise_and"},
        "op is bitwise and an operand is not of an integer type\n"
        "  source: nki.isa.tensor_partition_reduce",
    ),
    (
        REDUCE, {"dst.shape": (2, 16)},
        "dst is 2 along axis 0; it must be 1\n  source: nki.isa.tensor_partition_reduce",
    ),
    (BOUNDS, {"dst.shape": (1, 3, 16)}, "dst is 3 along axis 1; it must be 2\n  source: "
                                        "nki.isa.sequence_bounds"),
    (
        BOUNDS, {"segment_ids.dtype": "int16"},
        "segment_ids is int16; it must be float32 or int32\n  source: nki.isa.sequence_bounds",
    ),
    (
        NONZERO, {"G": 16},
        "dst does not hold one element per partition more than src\n"
        "  source: nki.isa.nonzero_with_count, constraints",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("cls", "changes", "message"), REFUSED)
def test_a_selection_that_may_not_be_is_refused(cls: Any, changes: dict[str, Any], message: str) -> None:
    assert refused(cls, changes) == message


def test_trn1_has_no_nonzero_with_count() -> None:
    assert refused(NONZERO, {}, "trn1") == (
        "trn1 has no nonzero_with_count\n  source: nki.isa.nonzero_with_count, constraints"
    )


@pytest.mark.parametrize(
    ("cls", "values", "message"),
    [
        (
            AFFINE_SELECT, {"channel_multiplier": 1.5},
            "offset or channel_multiplier is not an int32\n  source: nki.isa.affine_select",
        ),
        (
            AFFINE_SELECT, {"on_false_value": "none"},
            "on_false_value is not a number\n  source: nki.isa.affine_select, data types",
        ),
        (
            NONZERO, {"padding_val": 2**31},
            "index_offset or padding_val is not an int32\n  source: nki.isa.nonzero_with_count, constraints",
        ),
    ],
)  # fmt: skip
def test_a_value_that_may_not_be_is_refused(cls: Any, values: dict[str, Any], message: str) -> None:
    session = open_session(MACHINES["trn2"], has_data=False)
    use = smallest_use(cls, values)
    views = {n: new_tile(session, t) for n, t in use.items() if isinstance(t, Tile)}
    with pytest.raises(RuleError) as caught:
        call(session, cls, **{**use, **views})
    problem, source = message.split("\n  source: ")
    assert (caught.value.problem, caught.value.source) == (problem, source)


@pytest.mark.parametrize(("written", "missing"), [(4, 0), (3, 1), (0, 4)])
def test_what_a_causal_mask_drops_may_be_unwritten_and_what_it_takes_is_handed_on(
    written: int, missing: int
) -> None:
    # of each row p only columns up to p are taken: 1, 2, 3 and 4 elements; columns up to `written` exist
    session = open_session(MACHINES["trn2"])
    data, dst = new_tile(session, np.ones((4, 4)), name="s"), new_tile(session, Tile((4, 4)))
    taken = np.tril(np.ones((4, 4), np.bool_))
    data.storage.written.remove_where(data, ~taken | (np.arange(4) >= written))
    with heard() as texts:
        call(
            session, AFFINE_SELECT, dst=dst, pattern=[[-1, 4]], channel_multiplier=1, on_true_tile=data,
            on_false_value=-8.0, cmp_op="greater_equal",
        )  # fmt: skip
    if written:
        assert texts == []
        assert dst.storage.written.missing(dst).tolist() == (taken & (np.arange(4) >= written)).tolist()
        assert dst.storage.written.missing(dst).sum() == missing
    else:
        assert texts == [
            "reads s: float32[4, 4] in sbuf, which was never written; unwritten elements read as nan"
        ]
    expected = np.where(taken, np.where(np.arange(4) < written, 1.0, np.nan), -8.0)
    np.testing.assert_array_equal(array_of(dst), expected)
