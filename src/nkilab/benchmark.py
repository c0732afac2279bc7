"""What nki.benchmark of Beta 1 reports, from a prediction instead of repeated runs."""

from __future__ import annotations

from msgspec import Struct

from .errors import UsageError

PERCENTILES = (0, 1, 10, 25, 50, 90, 99, 100)


class Latency(Struct, frozen=True):
    """Latency on the NeuronCore, predicted once: every percentile is the same figure.

    Args:
        predicted_us: microseconds.
        interval_us: between which it is believed to lie.
    """

    predicted_us: float
    interval_us: tuple[float, float]

    def get_latency_percentile(self, percentile: int) -> int:
        """Microseconds, whole; the prediction is deterministic, so that all percentiles agree.

        Raises:
            UsageError: if neuron-bench does not report this percentile.
        """
        if percentile not in PERCENTILES:
            raise UsageError(
                f"percentile is {percentile}; it must be one of {', '.join(map(str, PERCENTILES))}"
            )
        return max(1, round(self.predicted_us))


class BenchmarkResult(Struct, frozen=True):
    """What `.benchmark_result` holds after a call."""

    nc_latency: Latency
    target: str

    @classmethod
    def from_latency(
        cls, latency_us: float, interval_us: tuple[float, float], target: str
    ) -> BenchmarkResult:
        """The result of one prediction."""
        return cls(Latency(latency_us, interval_us), target)


def table(name: str, result: BenchmarkResult) -> str:
    """The table that neuron-bench prints; columns that the model cannot know say so."""
    latency = result.nc_latency
    core = latency.get_latency_percentile(50)
    low, high = latency.interval_us
    heads = ("B", "NC", "NC USED", "WEIGHTS", "MODE", "INF/S", "IRES/S", "L(1)", "L(50)", "L(99)", "NCL(1)",
             "NCL(50)", "NCL(99)", "%USER")  # fmt: skip
    rate = f"{1e6 / core:.2f}"
    cells = (
        "1",
        "1",
        "1",
        "dynamic",
        "MODEL",
        rate,
        rate,
        "n/a",
        "n/a",
        "n/a",
        str(core),
        str(core),
        str(core),
        "N/A",
    )
    widths = [max(len(h), len(c)) for h, c in zip(heads, cells, strict=True)]
    rule = "+" + "+".join("-" * (w + 2) for w in widths) + "+"
    lines = [
        name,
        rule,
        "  " + "   ".join(h.ljust(w) for h, w in zip(heads, widths, strict=True)),
        "  " + "   ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)),
        rule,
        f"modelled on {result.target}: NCL is one prediction, believed between {low:.0f} and {high:.0f} us; "
        "L, the latency seen by the host, is not modelled",
    ]
    return "\n".join(line.rstrip() for line in lines)
