"""Random numbers: their recurrence against plain integers, their distribution, seeds, states, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nkilab.errors import RuleError
from nkilab.isa import REGISTRY
from nkilab.isa.random_numbers import drawn
from nkilab.machine import MACHINES
from nkilab.tiles.tile import View, array_of
from nkilab.trace.session import Session
from tests.uses import Tile, call, form_of, new_tile, open_session, part_of, refused, smallest_use

DROPOUT, RNG, RAND2 = REGISTRY["dropout"], REGISTRY["rng"], REGISTRY["rand2"]
SET_SEED, SET_STATE, GET_STATE = (
    REGISTRY["set_rng_seed"],
    REGISTRY["rand_set_state"],
    REGISTRY["rand_get_state"],
)
SIZE = 4096


@pytest.fixture
def trn3() -> Session:
    return open_session(MACHINES["trn3"])


def xorwow(state: list[int], count: int) -> tuple[list[int], list[int]]:
    """Marsaglia, "Xorshift RNGs" (2003), section 3.1, word by word: numbers and the state after them."""
    x, y, z, w, v, d = state
    numbers = []
    for _ in range(count):
        t = x ^ (x >> 2)
        x, y, z, w = y, z, w, v
        v = (v ^ (v << 4) ^ t ^ (t << 1)) % 2**32
        d = (d + 362437) % 2**32
        numbers.append((v + d) % 2**32)
    return numbers, [x, y, z, w, v, d]


def seed(session: Session, number: int) -> None:
    call(session, SET_SEED, src_seeds=new_tile(session, np.array([[number]]), "uint32"))


def bits(session: Session, shape: tuple[int, ...], dtype: str = "uint32", **use: Any) -> np.ndarray:
    dst = new_tile(session, Tile(shape, dtype))
    call(session, RNG, dst=dst, **use)
    return array_of(dst).copy()


def test_a_generator_follows_the_published_recurrence() -> None:
    state = np.random.default_rng(1).integers(0, 2**32, (3, 6), dtype=np.uint32)
    expected = [xorwow([int(word) for word in lane], 20) for lane in state]
    np.testing.assert_array_equal(drawn(state, 20), [number for number, _ in expected])
    np.testing.assert_array_equal(state, [after for _, after in expected])


def test_four_generators_take_turns_along_a_row() -> None:
    state = np.random.default_rng(2).integers(0, 2**32, (2, 24), dtype=np.uint32)
    words = [[int(word) for word in lane] for lane in state]
    got = drawn(state, 9)
    for lane in range(2):
        rows = [xorwow(words[lane][6 * g : 6 * g + 6], 3)[0] for g in range(4)]
        assert got[lane].tolist() == [rows[k % 4][k // 4] for k in range(9)]


def test_a_state_that_is_read_and_set_continues_the_numbers(trn3: Session) -> None:
    for engine, words in (("gpsimd", 6), ("vector", 24)):
        state = new_tile(trn3, Tile((32, words), "uint32"))
        bits(trn3, (32, 8), engine=engine)
        call(trn3, GET_STATE, dst=state, engine=engine)
        first = bits(trn3, (32, 8), engine=engine)
        call(trn3, SET_STATE, src_seeds=state, engine=engine)
        np.testing.assert_array_equal(bits(trn3, (32, 8), engine=engine), first)


def test_a_state_belongs_to_the_lanes_of_its_partitions(trn3: Session) -> None:
    whole = new_tile(trn3, np.arange(64 * 6).reshape(64, 6), "uint32")
    call(trn3, SET_STATE, src_seeds=part_of(whole, (32, 0), (32, 6)))
    lanes = trn3.registers["random"]["gpsimd"]
    np.testing.assert_array_equal(lanes[32:64], np.arange(192, 384).reshape(32, 6))
    assert (lanes[:32] != np.arange(192).reshape(32, 6)).all()


def test_equal_seeds_give_equal_numbers(trn3: Session) -> None:
    seed(trn3, 42)
    first, second = bits(trn3, (8, 16)), bits(trn3, (8, 16))
    seed(trn3, 42)
    np.testing.assert_array_equal(bits(trn3, (8, 16)), first)
    assert (first != second).any()
    seed(trn3, 43)
    assert (bits(trn3, (8, 16)) != first).any()


def test_a_launch_without_a_seed_is_reproducible() -> None:
    first, again = (bits(open_session(MACHINES["trn2"]), (8, 16)) for _ in range(2))
    np.testing.assert_array_equal(first, again)


def test_the_engines_have_generators_of_their_own(trn3: Session) -> None:
    other = bits(trn3, (8, 16), engine="gpsimd")
    seed(trn3, 7)
    first = bits(trn3, (8, 16))
    seed(trn3, 7)
    bits(trn3, (8, 16), engine="gpsimd")
    np.testing.assert_array_equal(bits(trn3, (8, 16)), first)
    assert (other != first).any()


@pytest.mark.parametrize("dtype", ["int32", "int16", "int8", "uint16", "uint8"])
def test_a_narrower_type_takes_the_lowest_bits(trn3: Session, dtype: str) -> None:
    seed(trn3, 5)
    words = bits(trn3, (4, 32)).astype(np.int64)
    seed(trn3, 5)
    narrow = bits(trn3, (4, 32), dtype)
    size = narrow.itemsize * 8
    np.testing.assert_array_equal(narrow.astype(np.int64) % 2**size, words % 2**size)


def test_every_bit_is_as_often_one_as_zero(trn3: Session) -> None:
    words = bits(trn3, (128, SIZE // 8))
    share = np.unpackbits(words.view(np.uint8)).reshape(-1, 32).mean(axis=0)
    # 65536 draws: one standard deviation is 0.002
    np.testing.assert_allclose(share, 0.5, atol=0.01)


def uniform(session: Session, low: Any, high: Any, dtype: str = "float32") -> np.ndarray:
    dst = new_tile(session, Tile((128, SIZE // 128 * 4), dtype))
    call(session, RAND2, dst=dst, min=low, max=high)
    return array_of(dst).astype(np.float64)


def test_rand2_is_uniform_from_min_to_max(trn3: Session) -> None:
    got = uniform(trn3, -2.0, 6.0)
    assert got.min() >= -2
    assert got.max() <= 6
    # 16384 draws: one standard deviation of the mean is 0.018, of a share 0.003
    assert got.mean() == pytest.approx(2, abs=0.1)
    shares = np.histogram(got, 8, (-2, 6))[0] / got.size
    np.testing.assert_allclose(shares, 1 / 8, atol=0.015)


def test_rand2_takes_a_range_per_partition(trn3: Session) -> None:
    low = np.arange(128.0).reshape(128, 1)
    got = uniform(trn3, new_tile(trn3, low), new_tile(trn3, low + 1))
    assert (got >= low).all()
    assert (got <= low + 1).all()


def test_rand2_rounds_once_into_integers(trn3: Session) -> None:
    got = uniform(trn3, 0.0, 3.0, "int8")
    shares = [float((got == k).mean()) for k in range(4)]
    # hand: rounding to nearest gives the ends half of what the middle has
    np.testing.assert_allclose(shares, [1 / 6, 1 / 3, 1 / 3, 1 / 6], atol=0.02)


def dropped(session: Session, data: np.ndarray, prob: Any, dtype: str = "float32") -> np.ndarray:
    dst = new_tile(session, Tile(data.shape, dtype))
    probability = new_tile(session, prob) if isinstance(prob, np.ndarray) else prob
    call(session, DROPOUT, dst=dst, data=new_tile(session, data, dtype), prob=probability)
    return array_of(dst)


@pytest.mark.parametrize("prob", [0.0, 0.2, 0.5, 1.0, 40.0])
def test_dropout_zeroes_the_share_asked_for(session: Session, prob: float) -> None:
    data = np.ones((128, 256), np.float32)
    got = dropped(session, data, prob)
    assert set(np.unique(got)) <= {0.0, 1.0}
    # 32768 draws: one standard deviation is at most 0.003; 0 and 1 are exact
    share = float((got == 0).mean())
    assert share == pytest.approx(min(prob, 1), abs=0.015 if prob in (0.2, 0.5) else 0)


def test_dropout_has_a_probability_per_partition_and_keeps_the_bits(session: Session) -> None:
    data = np.full((4, 512), 2**31 - 1)
    prob = np.array([[0.0], [1.0], [0.25], [0.75]])
    got = dropped(session, data, prob, "int32")
    assert set(np.unique(got)) == {0, 2**31 - 1}
    # 512 draws per row: one standard deviation is 0.02
    np.testing.assert_allclose((got == 0).mean(axis=1), prob[:, 0], atol=0.08)


def test_dropout_draws_new_numbers_each_time(session: Session) -> None:
    data = np.ones((32, 64), np.float32)
    assert (dropped(session, data, 0.5) != dropped(session, data, 0.5)).any()


def test_a_random_number_takes_the_documented_cycles() -> None:
    # 2.26 costs, dropout: max(64, N), and 60 to access a tensor; trn3 guide: four values per lane and cycle
    cases = [
        (DROPOUT, "trn1", 572 / 1.12),
        (RNG, "trn3", 128 / 1.2 + 32),
        (RAND2, "trn3", 128 / 1.2 + 32),
    ]
    for cls, chip, busy_ns in cases:
        (step,) = form_of(cls, MACHINES[chip], smallest_use(cls, {"F": 512})).steps
        assert (step.engine, step.widening) == ("vector", 1)
        assert step.busy_ns == pytest.approx(busy_ns)


SIZES = "the row of a lane is not 6 words for gpsimd, or 24 for vector\n  source: nki.isa.{}, tile size"
NO_STATE = "engine is vector; on trn2 only gpsimd has a visible state\n  source: nki.isa.{}, constraints"
NO_PSUM = (
    "engine is gpsimd, which cannot reach psum\n"
    "  source: nki.isa.{}, constraints\n  key: err_unsupported_memory"
)
REFUSED = [
    (
        DROPOUT, "trn2", {"dst.dtype": "bfloat16"},
        "dst and data differ in type\n  hint: cast with tensor_copy afterwards\n  source: nki.isa.dropout",
    ),
    (
        DROPOUT, "trn2", {"dst.dtype": "int32", "data.dtype": "int32", "prob.dtype": "float16"},
        "data is of an integer type and prob is not float32\n  hint: cast prob with tensor_copy\n"
        "  source: nki.isa.dropout",
    ),
    (RNG, "trn2", {"engine": "gpsimd", "dst.memory": "psum"}, NO_PSUM.format("rng")),
    (
        RNG, "trn1", {"engine": "gpsimd"},
        "engine is gpsimd; on trn1 only vector makes random numbers\n  source: nki.isa.rng, constraints",
    ),
    (
        RNG, "trn2", {"dst.dtype": "float32"},
        "dst is float32; it must be int32 or int16 or int8 or uint32 or uint16 or uint8\n  source: "
        "nki.isa.rng",
    ),
    (
        RAND2, "trn2", {},
        "rand2 exists from trn3 on\n  hint: fill an integer tile with rng and scale it\n"
        "  source: nki.isa.rand2",
    ),
    (SET_STATE, "trn1", {}, "trn1 has no rand_set_state\n  source: nki.isa.rand_set_state, constraints"),
    (GET_STATE, "trn1", {}, "trn1 has no rand_get_state\n  source: nki.isa.rand_get_state, constraints"),
    (SET_STATE, "trn2", {"engine": "vector", "W": 24}, NO_STATE.format("rand_set_state")),
    (GET_STATE, "trn2", {"engine": "vector", "W": 24}, NO_STATE.format("rand_get_state")),
    (SET_STATE, "trn2", {"W": 24}, SIZES.format("rand_set_state")),
    (GET_STATE, "trn3", {"W": 6, "engine": "vector"}, SIZES.format("rand_get_state")),
    (GET_STATE, "trn3", {"dst.memory": "psum"}, NO_PSUM.format("rand_get_state")),
    (
        SET_SEED, "trn2", {"src_seeds.dtype": "int16"},
        "src_seeds is int16; it must be float32 or int32 or uint32\n  source: nki.isa.set_rng_seed",
    ),
    (
        SET_SEED, "trn2", {"src_seeds.shape": (1, 2)},
        "src_seeds is 2 along the free axes; it must be 1\n  source: nki.isa.set_rng_seed",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("cls", "chip", "changes", "message"), REFUSED)
def test_a_random_number_that_may_not_be_is_refused(
    cls: Any, chip: str, changes: dict[str, Any], message: str
) -> None:
    assert refused(cls, changes, chip) == message


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (2, -2)])
def test_a_range_that_is_empty_is_refused(trn3: Session, low: float, high: float) -> None:
    dst: View = new_tile(trn3, Tile((4, 4)), name="noise")
    with pytest.raises(RuleError) as caught:
        call(trn3, RAND2, dst=dst, min=low, max=high)
    assert str(caught.value).split(": ", 1)[1] == (
        "rand2: min is not below max\n  dst = noise: float32[4, 4] in sbuf\n"
        f"  min = {low}\n  max = {high}\n  source: nki.isa.rand2, constraints"
    )
