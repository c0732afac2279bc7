"""What the model is held to: the order of grids, the choice on them, errors, intervals and counters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median

from .regret import SEEDS, Grid
from .score import Compared, families_of, score_of, settings_of

# A family with fewer settings has no coverage of its own.
ENOUGH = 8
LARGEST_ERROR = 0.35
_BUSY = ("tensor_active_percent", "vector_active_percent", "scalar_active_percent")


@dataclass(frozen=True)
class Bar:
    """A demand on the model, and what was reached."""

    name: str  # what is demanded
    demand: str  # the value to reach, in words
    reached: str  # the value reached, in words; "" if it was not measured
    is_met: bool  # whether it is met


def bars_of(compared: Sequence[Compared], grids: Iterable[Grid], left: Mapping[str, float]) -> list[Bar]:
    """The bars that predictions are held to; none of a ledger without judged rows.

    Args:
        compared: every quantity of every row.
        grids: of block sizes.
        left: mean errors of structures that the constants were not fitted to, if that was asked for.
    """
    whole = [c for c in compared if c.is_whole and c.row.split != "context"]
    judge = [c for c in whole if c.row.split == "judge"]
    if not judge:
        return []
    own = [grid for grid in grids if not grid.has_host]
    return [
        *_order(own), *_choice(own), *_errors(judge, whole, compared), *_left(left), *_intervals(whole),
        *_counters(compared),
    ]  # fmt: skip


def regret_bars(grids: Iterable[Grid]) -> list[Bar]:
    """The bars that choosing on grids is held to; those with the host's time are not judged."""
    own = [grid for grid in grids if not grid.has_host]
    return [*_order(own), *_choice(own)]


def _order(grids: Sequence[Grid]) -> list[Bar]:
    """Kendall's tau of grids that are wide enough to have an order."""
    taus = [(grid.tau, grid.name) for grid in grids if grid.is_wide and grid.tau is not None]
    if not taus:
        return []
    least, name = min(taus)
    return [
        _least("order: least Kendall tau of a grid", least, 0.6, "{:.2f}", name),
        _least("order: mean Kendall tau of grids", mean(tau for tau, _ in taus), 0.8, "{:.2f}"),
    ]


def _choice(grids: Sequence[Grid]) -> list[Bar]:
    """Regret on whole grids, and of searches of 20 points drawn at random."""
    if not grids:
        return []
    bars = []
    ways: dict[str, Callable[[Grid], float]] = {
        "the whole grid": lambda grid: grid.regret,
        f"20 trials, the worst of {len(SEEDS)} seeds": lambda grid: grid.searched,
    }
    for way, regret in ways.items():
        worst = max(grids, key=regret)
        good = sum(regret(grid) <= 0.05 for grid in grids)
        text = f"{good} of {len(grids)}"
        share = good >= 0.9 * len(grids)
        bars.append(Bar(f"choice, {way}: grids with a regret of at most 5%", "at least 90%", text, share))
        bars.append(_most(f"choice, {way}: worst regret", regret(worst), 0.1, worst.name))
    return bars


def _errors(judge: Sequence[Compared], whole: Sequence[Compared], compared: Sequence[Compared]) -> list[Bar]:
    sets = (
        ("error: MAPE of judged kernels", judge, 0.07),
        ("error: MAPE of judged kernels bound by engines", [c for c in judge if not c.is_dma_bound], 0.05),
        ("error: MAPE of judged kernels bound by DMA", [c for c in judge if c.is_dma_bound], 0.1),
        (
            "error: MAPE of collectives whose chip is known",
            [c for c in compared if c.is_known_collective],
            0.25,
        ),
    )
    scored = [(name, score_of(own), most) for name, own, most in sets]
    bars = [_most(name, score.mape, most) for name, score, most in scored if score is not None]
    families = {name: score.mape for name, own in families_of(whole).items() if (score := score_of(own))}
    worst = max(families, key=lambda name: families[name])
    far = [c for c in whole if abs(c.error) > LARGEST_ERROR and not c.row.reason]
    name = "error: kernels off by more than 35% without a reason"
    return [
        *bars, _most("error: MAPE of the worst family", families[worst], 0.12, worst),
        Bar(name, "none", str(len(far)), not far),
    ]  # fmt: skip


def _left(left: Mapping[str, float]) -> list[Bar]:
    if not left:
        return []
    worst = max(left, key=lambda name: left[name])
    return [
        _most("structures left out: mean error", mean(left.values()), 0.12),
        _most("structures left out: the worst", left[worst], 0.2, worst),
    ]


def _intervals(whole: Sequence[Compared]) -> list[Bar]:
    """Coverage and widths, of kernels some shape of which is fitted and of others."""
    covered = {name: _coverage(own) for name, own in families_of(whole).items() if len(own) >= ENOUGH}
    share = _coverage(whole)
    bars = [Bar("intervals: coverage", "85% to 95%", f"{share:.0%}", 0.85 <= share <= 0.95)]
    if covered:
        least = min(covered, key=lambda name: covered[name])
        name = f"intervals: least coverage in a family of {ENOUGH}"
        bars.append(_least(name, covered[least], 0.75, "{:.0%}", least))
    shapes: dict[str, set[str]] = {}
    for one in whole:
        if one.row.split == "fit" and not one.row.contradicts:
            shapes.setdefault(one.row.structure, set()).add(one.row.shape)
    siblings = [c for c in whole if shapes.get(c.row.structure, set()) - {c.row.shape}]
    others = [c for c in whole if c not in siblings]
    for words, own, most in (("with fitted siblings", siblings, 0.15), ("of other kernels", others, 0.3)):
        if own:
            bars.append(
                _most(f"intervals: median half-width {words}", median(c.half_width for c in own), most)
            )
    return bars


def _counters(compared: Sequence[Compared]) -> list[Bar]:
    """Bytes, how busy engines are, and what is spilled."""
    groups: dict[str, tuple[float, list[bool]]] = {
        "counters: bytes exact": (1.0, [
            c.measured == c.predicted for c in compared
            if c.sort == "count" and c.metric.endswith("bytes") and "spill" not in c.metric
        ]),
        "counters: engines busy within 5 points": (
            0.8, [abs(c.predicted - c.measured) <= 5 for c in compared if c.metric in _BUSY]
        ),
        "counters: spilled bytes within 15%": (
            0.8, [abs(c.error) <= 0.15 for c in compared if c.metric.startswith("spill_")]
        ),
    }  # fmt: skip
    return [
        Bar(name, f"at least {least:.0%}", f"{sum(good)} of {len(good)}", sum(good) >= least * len(good))
        for name, (least, good) in groups.items()
        if good
    ]


def _coverage(compared: Sequence[Compared]) -> float:
    return mean(mean(c.is_inside for c in own) for own in settings_of(compared))


def _most(name: str, value: float, most: float, where: str = "") -> Bar:
    return Bar(name, f"at most {most:.0%}", f"{value:.1%}{where and f' ({where})'}", value <= most)


def _least(name: str, value: float, least: float, form: str, where: str = "") -> Bar:
    return Bar(
        name, f"at least {form.format(least)}", form.format(value) + (where and f" ({where})"), value >= least
    )
