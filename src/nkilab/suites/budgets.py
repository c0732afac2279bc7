"""What pytest's tests may cost by prediction: the marker `nki_budget`, and what a test predicted."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from .._lazy import part
from ..errors import did_you_mean

MARKER = (
    "nki_budget(latency_us=..., mfu=..., mbu=..., kernel='', target='', strict=False): fail the test where a "
    "kernel is predicted to be slower, or to use a smaller fraction of peak FLOPS or HBM bandwidth"
)
_BOUNDS = ("latency_us", "mfu", "mbu")
_WORDS = (*_BOUNDS, "kernel", "target", "strict")
# the metric behind each bound that is a fraction
_PERCENT = {"mfu": "mfu_estimated_percent", "mbu": "mbu_estimated_percent"}


@dataclass(frozen=True)
class Budget:
    """What one marker allows."""

    latency_us: float | None = None  # microseconds at most; None for any
    mfu: float | None = None  # least fraction of the peak FLOPS; None for any
    mbu: float | None = None  # least fraction of the peak HBM bandwidth; None for any
    kernel: str = ""  # whose budget it is; "" for every kernel's
    target: str = ""  # on which chip; "" for all
    strict: bool = False  # whether the slow end of the interval has to keep to it too

    def covers(self, predicted: Mapping[str, Any]) -> bool:
        """Whether it speaks of a prediction."""
        return self.kernel in ("", predicted["kernel"]) and self.target in ("", predicted["target"])

    def broken_by(self, predicted: Mapping[str, Any]) -> list[str]:
        """What a prediction does not keep to, in words with value, interval and bound."""
        low, high = predicted["low_us"], predicted["high_us"]
        worst = high if self.strict else predicted["latency_us"]
        broken = []
        if self.latency_us is not None and worst > self.latency_us:
            end = "the slow end of the interval is" if self.strict else "predicted are"
            unsure = low <= self.latency_us
            broken.append(
                f"{end} {worst:.2f} us; the budget is {self.latency_us:g} us"
                + ("; the interval reaches into the budget" if unsure else "")
            )
        for name in ("mfu", "mbu"):
            least, reached = getattr(self, name), predicted[name]
            # utilisation falls as the latency grows
            reached = reached * predicted["latency_us"] / high if self.strict else reached
            if least is not None and reached < least:
                broken.append(f"{name} is {reached:.3f}; the budget is at least {least:g}")
        return broken


def budget_of(mark: pytest.Mark) -> Budget:
    """The budget of a marker.

    Raises:
        pytest.UsageError: if it says something else than a budget.
    """
    if mark.args:
        raise pytest.UsageError(
            f"nki_budget has {mark.args[0]!r} without a name; write nki_budget(latency_us={mark.args[0]!r})"
        )
    for word in mark.kwargs:
        if word not in _WORDS:
            hint = did_you_mean(word, _WORDS)
            raise pytest.UsageError(
                f"nki_budget takes no {word}; it takes {', '.join(_WORDS)}; {hint}".rstrip("; ")
            )
    if not any(word in mark.kwargs for word in _BOUNDS):
        raise pytest.UsageError("nki_budget bounds nothing; give it latency_us, mfu or mbu")
    for word in _BOUNDS:
        value = mark.kwargs.get(word)
        is_number = isinstance(value, int | float) and value > 0
        if value is not None and not (is_number and (word == "latency_us" or value <= 1)):
            what = "microseconds above 0" if word == "latency_us" else "a fraction between 0 and 1"
            raise pytest.UsageError(f"nki_budget has {word}={value!r}; it must be {what}")
    target, chips = mark.kwargs.get("target"), part("machine").MACHINES
    if target and str(target).partition(" ")[0] not in chips:
        raise pytest.UsageError(f"nki_budget has target={target!r}; it must be one of {', '.join(chips)}")
    return Budget(**mark.kwargs)


def budgets_of(item: pytest.Item) -> list[Budget]:
    """The budgets of a test: of each kernel and chip the one that is declared nearest to the test."""
    budgets_by_test: dict[tuple[str, str], Budget] = {}
    for mark in item.iter_markers("nki_budget"):
        budget = budget_of(mark)
        budgets_by_test.setdefault((budget.kernel, budget.target), budget)
    return list(budgets_by_test.values())


class Predictions:
    """What a test's kernels are predicted to take; equal launches are predicted once."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._known: set[tuple[str, ...]] = set()

    def launched(self, programs: Sequence[Any]) -> None:
        """Note a launch, whose programs these are."""
        digest = part("files.neff").digest_of
        key = tuple(map(digest, programs))
        if key not in self._known:
            self._known.add(key)
            self.note(part("api").estimate_programs(programs))

    def note(self, estimate: Any) -> None:
        """Note an estimate."""
        low, high = estimate.interval_us
        prediction = {
            "kernel": estimate.kernel_name, "target": estimate.target,
            "latency_us": float(estimate.latency_us), "low_us": float(low), "high_us": float(high),
            "bound": str(estimate.summary.bound),
            **{name: float(estimate.summary[metric]) / 100 for name, metric in _PERCENT.items()},
        }  # fmt: skip
        if prediction not in self.rows:
            self.rows.append(prediction)


@contextmanager
def watched(predictions: Predictions) -> Generator[None, Any, Any]:
    """Note what is launched in a block."""
    api = part("api")
    before = api.settings().watch

    def tell(shown: Any) -> None:
        predictions.launched(shown.programs)
        if before is not None:
            before(shown)

    with api.chosen(watch=tell):
        yield


def fail_over(budgets: Sequence[Budget], predictions: Sequence[Mapping[str, Any]]) -> None:
    """Fail a test whose kernels do not keep to its budgets, or that has budgets of others alone."""
    lines: list[str] = []
    for budget in budgets:
        covered = [one for one in predictions if budget.covers(one)]
        if not covered and not (budget.target and _is_elsewhere(budget, predictions)):
            what = f"the kernel {budget.kernel}" if budget.kernel else "a kernel"
            names = ", ".join(dict.fromkeys(one["kernel"] for one in predictions))
            lines.append(
                f"the test neither launches nor estimates {what}; the budget holds nothing"
                + (f" (it runs {names})" if names else "")
            )
        for one in covered:
            broken = budget.broken_by(one)
            lines += [headline(one), *(f"  {broken_line}" for broken_line in broken)] if broken else []
    if lines:
        pytest.fail("nki_budget: " + "\n".join(lines), pytrace=False)


def _is_elsewhere(budget: Budget, predictions: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the kernel runs in this test, on another chip than that of the budget."""
    return any(budget.kernel in ("", one["kernel"]) for one in predictions)


def headline(predicted: Mapping[str, Any]) -> str:
    """A prediction in one line."""
    return (
        f"{predicted['kernel']} on {predicted['target']}: {predicted['latency_us']:.2f} us predicted, "
        f"{predicted['low_us']:.2f} to {predicted['high_us']:.2f} us, bound by {predicted['bound']}"
    )


def properties_of(predicted: Mapping[str, Any]) -> list[tuple[str, object]]:
    """What a JUnit file says of a prediction."""
    about = f"nki[{predicted['kernel']},{predicted['target']}]"
    return [
        (f"{about}.{name}", round(value, 6) if isinstance(value, float) else value)
        for name, value in predicted.items()
        if name not in ("kernel", "target")
    ]
