"""Intervals by the errors of measured kernels: against NumPy, and on kernels made up, of known coverage."""

from __future__ import annotations

import json
from math import exp, inf

import numpy as np
import pytest

import nkilab
from nkilab.conformal import FAR, TABLE, Residuals, Traits, quantile, residuals, traits_of
from nkilab.ledger import own_rows
from nkilab.timing import MODEL_VERSION


def oracle(scores: list[tuple[str, float]], share: float) -> float:
    """The weighted quantile of conformal prediction on groups, the kernel to come at infinity, in NumPy."""
    names = np.array([name for name, _ in scores])
    values = np.array([score for _, score in scores])
    groups, counts = np.unique(names, return_counts=True)
    weights = 1 / counts[np.searchsorted(groups, names)] / (len(groups) + 1)
    order = np.argsort(values)
    reached = np.flatnonzero(np.cumsum(weights[order]) >= share - 1e-9)
    return float(values[order][reached[0]]) if len(reached) else inf


@pytest.mark.parametrize("seed", range(20))
def test_the_quantile_is_that_of_conformal_prediction_on_groups(seed: int) -> None:
    random = np.random.default_rng(seed)
    groups = [str(n) for n in random.integers(0, 25, size=80)]
    scores = list(zip(groups, random.exponential(size=80).tolist(), strict=True))
    assert quantile(scores, 0.9) == pytest.approx(oracle(scores, 0.9))


def test_groups_of_one_give_the_quantile_of_split_conformal_prediction() -> None:
    # the textbook: of n scores the one at place ceil((n + 1) * 0.9), here ceil(20 * 0.9) = 18 of 19
    assert quantile([(str(n), float(n)) for n in range(1, 20)], 0.9) == 18.0
    # eight groups tell eight ninths at most: the largest
    assert quantile([(str(n), float(n)) for n in range(8)], 0.9) == 7.0


def traits_at(place: list[float]) -> Traits:
    """A kernel that keeps an engine busy half of the time, at a place among sizes."""
    return Traits("trn2", "", (0.5, *[0.0] * 5, *place))


def synthetic(structures: int, random: np.random.Generator) -> Residuals:
    """Kernels whose error has a size that grows with the first of three traits, and a part that is shared."""
    ids, names, shapes, traits, errors = [], [], [], [], []
    for structure in range(structures):
        place = random.uniform(0, 1, size=3)
        shared = random.normal()
        for row in range(3):
            own = place + random.normal(scale=0.02, size=3)
            ids.append(f"{structure}-{row}")
            names.append(str(structure))
            shapes.append(f"{structure}-{row}")
            traits.append(traits_at(own.tolist()))
            size = 0.02 + 0.2 * max(own[0], 0.0)
            errors.append(abs(size * (0.8 * shared + 0.6 * random.normal())))
    return Residuals(tuple(ids), tuple(names), tuple(shapes), tuple(traits), np.array(errors))


def test_nine_of_ten_new_structures_lie_inside() -> None:
    random, inside, widths = np.random.default_rng(1), [], []
    for _ in range(25):
        drawn = synthetic(38, random)
        new = {str(n) for n in range(30, 38)}
        known = [n for n, name in enumerate(drawn.structures) if name not in new]
        measured = subset(drawn, known).calibrated()
        for number in range(len(drawn.ids)):
            if drawn.structures[number] in new:
                band = measured.band(drawn.traits[number])
                inside.append(drawn.errors[number] <= band.half_width)
                widths.append((drawn.traits[number].numbers[-3], band.half_width))
    # 600 kernels of 200 structures: a standard error of two points
    assert 0.86 < np.mean(inside) < 0.96
    easy, hard = (
        [width for place, width in widths if low < place < high] for low, high in ((0, 0.3), (0.7, 1))
    )
    assert np.median(hard) > 1.5 * np.median(easy)


def subset(all_rows: Residuals, numbers: list[int]) -> Residuals:
    def of(column: tuple) -> tuple:
        return tuple(column[n] for n in numbers)

    return Residuals(
        of(all_rows.ids), of(all_rows.structures), of(all_rows.shapes), of(all_rows.traits),
        all_rows.errors[numbers],
    )  # fmt: skip


def test_a_kernel_unlike_all_has_a_wider_interval_and_hears_what_is_nearest() -> None:
    measured = synthetic(30, np.random.default_rng(2)).calibrated()
    like, far = measured.traits[0], traits_at([0.5, 0.5, 3.0])
    near_band, far_band = measured.band(like), measured.band(far)
    assert not near_band.is_unlike
    assert far_band.is_unlike
    assert near_band.nearest[0] == "0"
    assert len(set(far_band.nearest)) == 3
    assert far_band.half_width > 1.5 * near_band.half_width


def test_a_chip_of_which_nothing_was_measured_makes_a_kernel_unlike() -> None:
    measured = synthetic(30, np.random.default_rng(3)).calibrated()
    like, other = measured.traits[4], replace_chip(measured.traits[4], "trn3")
    assert not measured.band(like).is_unlike
    assert measured.band(other).is_unlike
    assert measured.band(other).half_width > measured.band(like).half_width


@pytest.mark.parametrize("chip", ["trn1", "trn2"])
def test_intervals_of_one_chip_hold_by_what_was_measured_on_the_other(chip: str) -> None:
    measured = residuals()
    own = frozenset(n for n, t in zip(measured.ids, measured.traits, strict=True) if t.chip == chip)
    inside: dict[str, list[bool]] = {}
    rows = zip(measured.ids, measured.shapes, measured.traits, measured.errors.tolist(), strict=True)
    for name, shape, traits, error in rows:
        if name in own:
            inside.setdefault(shape, []).append(error <= measured.band(traits, own).half_width)
    # eleven shapes of trn1: a standard error of nine points
    assert np.mean([np.mean(rows_of_shape) for rows_of_shape in inside.values()]) > 0.75


def test_nine_of_ten_measured_kernels_have_another_structure_near() -> None:
    measured, distances = residuals(), []
    names = np.array(measured.structures)
    for structure, traits in zip(measured.structures, measured.traits, strict=True):
        distances.append(measured.expected(traits, names != structure)[1].min())
    assert 0.85 < np.mean(np.array(distances) < FAR) < 0.95


def test_a_plain_addition_is_like_what_was_measured() -> None:
    with nkilab.activate():
        import nki
        import nki.isa as nisa
        import nki.language as nl

        @nki.jit
        def add(left, right):
            out = nl.ndarray(left.shape, dtype=left.dtype, buffer=nl.shared_hbm)
            tiles = [nl.ndarray(left.shape, dtype=left.dtype, buffer=nl.sbuf) for _ in range(2)]
            nisa.dma_copy(dst=tiles[0], src=left)
            nisa.dma_copy(dst=tiles[1], src=right)
            nisa.tensor_tensor(dst=tiles[0], data1=tiles[0], data2=tiles[1], op=nl.add)
            nisa.dma_copy(dst=out, src=tiles[0])
            return out

    for columns in (128, 512, 2048):
        array = nkilab.spec((128, columns), "float32")
        assert not nkilab.estimate(add, array, array).cautions


def replace_chip(traits: Traits, chip: str) -> Traits:
    return traits._replace(chip=chip)


def test_rows_left_out_are_as_if_not_measured() -> None:
    measured = synthetic(6, np.random.default_rng(4))
    without = frozenset(["0-0", "0-1", "0-2"])
    others = subset(measured, list(range(3, 18)))
    assert measured.band(measured.traits[0], without) == others.band(measured.traits[0])


def test_an_error_near_by_weighs_more_than_one_far_away() -> None:
    # by hand: the near one at distance 0 weighs 1, the far one exp(-9.9), the common mean of 0.16 weighs 0.3;
    # where the busiest engine is idle for a quarter of the time it is a quarter more
    near, far = Traits("trn2", "", (1.0, 0.0)), Traits("trn2", "", (1.0, 2.0))
    rows = Residuals(("a", "b"), ("a", "b"), ("a", "b"), (near, far), np.array([0.02, 0.3]))
    far_weight = np.exp(-4 / 0.45**2 / 2)
    mean = (0.3 * 0.16 + 0.02 + 0.3 * far_weight) / (1.3 + far_weight)
    assert rows.band(near).half_width == pytest.approx(mean, rel=1e-6)
    idle = Traits("trn2", "", (0.75, 0.0))
    weights = np.array([np.exp(-(0.25**2) / 0.45**2 / 2), np.exp(-(0.25**2 + 4) / 0.45**2 / 2)])
    mean = (0.3 * 0.16 + weights @ [0.02, 0.3]) / (0.3 + weights.sum())
    assert rows.band(idle).half_width == pytest.approx(mean * (1 + 0.25) * 1.25, rel=1e-6)


def test_the_table_is_of_rows_that_may_be_fitted_and_of_this_model() -> None:
    document, rows = json.loads(TABLE.read_text("utf-8")), {row.id: row for row in own_rows()}
    assert document["model_version"] == MODEL_VERSION
    assert {rows[name].split for name in residuals().ids} == {"fit"}
    again = residuals().calibrated()
    assert again.score == pytest.approx(document["score"], abs=1e-3)
    for name, structure, shape in zip(
        residuals().ids, residuals().structures, residuals().shapes, strict=True
    ):
        assert (rows[name].structure, rows[name].shape) == (structure, shape)


def test_an_estimate_says_what_was_measured_near_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with nkilab.activate():
        from nkilab.ledger.kernels.copying import copy_tiled

    estimate = nkilab.estimate(copy_tiled, nkilab.spec((256, 4096), "float32"))
    band = residuals().band(estimate.traits)
    low, high = estimate.interval_us
    assert (low, high) == pytest.approx(
        (estimate.latency_us / exp(band.half_width), estimate.latency_us * exp(band.half_width))
    )
    assert estimate.to_dict()["nearest_measured"] == list(band.nearest)
    assert not estimate.cautions
    on_trn3 = nkilab.estimate(copy_tiled, nkilab.spec((256, 4096), "float32"), target="trn3")
    assert on_trn3.cautions[0].startswith(
        "no measured kernel uses the chip as this one does, so the interval is wide; the most similar are "
    )
    assert on_trn3.to_dict()["is_unlike_measured"] is True


def test_traits_are_shares_and_sizes() -> None:
    values = {
        **{f"{e}_active_time_percent": 50.0 for e in
           ("tensor_engine", "vector_engine", "scalar_engine", "gpsimd_engine", "dma")},
        "total_time": 100.0, "instruction_count": 1000, "dma_packet_time": 320.0,
        "dma_transfer_average_bytes": 1e4,
    }  # fmt: skip
    # by hand: 320 us of 16 engines are a fifth of 100 us; 0.45 * 4, 0.2 * 2, 0.3 * 1
    assert traits_of(values, 16, "trn2", "").numbers == (0.5,) * 5 + (0.2, 1.8, 0.4, 0.3)
