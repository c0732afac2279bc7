"""Draws `benchmarks/history.jsonl`, what a quick set of the benchmarks costs from run to run.

python docs/site/history.py FILE.svg
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

HISTORY = Path(__file__).resolve().parents[2] / "benchmarks" / "history.jsonl"
LEFT, RIGHT, WIDTH = 250, 680, 800
HEAD, ROW, LINE = 44, 52, 36
# a row shows at least so much more and less than its middle: small changes look small
LEAST_SPREAD = 1.5


@dataclass(frozen=True)
class Row:
    """One benchmark over the runs that have it.

    Args:
        name: of the benchmark.
        points: number of the run, and the ratio to the calibration loop in it.
    """

    name: str
    points: tuple[tuple[int, float], ...]

    def places(self, runs: int) -> list[tuple[float, float]]:
        """Where the points lie: from left to right by run; downwards, within a row, by logarithm."""
        values = [log(ratio) for _, ratio in self.points]
        middle = (min(values) + max(values)) / 2
        half = max((max(values) - min(values)) / 2, log(LEAST_SPREAD))
        step = (RIGHT - LEFT) / max(runs - 1, 1)
        return [
            (LEFT + number * step, LINE * (1 - (value - middle) / half) / 2)
            for (number, _), value in zip(self.points, values, strict=True)
        ]


def runs_of(text: str) -> list[dict[str, Any]]:
    """The runs of a history, a line of JSON each."""
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def rows_of(runs: list[dict[str, Any]]) -> list[Row]:
    """Benchmarks in the order in which they first occur."""
    names = dict.fromkeys(name for run in runs for name in run["ratios"])
    return [
        Row(name, tuple((n, run["ratios"][name]) for n, run in enumerate(runs) if name in run["ratios"]))
        for name in names
    ]


def svg(runs: list[dict[str, Any]]) -> str:
    """The runs as a picture: a row per benchmark, on an axis of its own."""
    rows = rows_of(runs)
    height = HEAD + ROW * len(rows) + 30
    ends = f"{runs[0]['date']}, {runs[0]['commit']}", f"{runs[-1]['date']}, {runs[-1]['commit']}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        'style="font-family: sans-serif; font-size: 12px">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        '<text x="12" y="22">processor time in calibration loops, last value on the right; '
        "less is better</text>",
        *(part for number, row in enumerate(rows) for part in _drawn(row, len(runs), HEAD + ROW * number)),
        f'<text x="{LEFT}" y="{height - 12}" fill="#555">{escape(ends[0])}</text>',
    ]
    if len(runs) > 1:
        parts.append(
            f'<text x="{RIGHT}" y="{height - 12}" text-anchor="end" fill="#555">{escape(ends[1])}</text>'
        )
    return "\n".join([*parts, "</svg>\n"])


def _drawn(row: Row, runs: int, top: int) -> list[str]:
    places = [(x, top + y) for x, y in row.places(runs)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return [
        f'<text x="12" y="{top + 23}">{escape(row.name)}</text>',
        f'<line x1="{LEFT}" x2="{RIGHT}" y1="{top + LINE / 2}" y2="{top + LINE / 2}" stroke="#ddd"/>',
        f'<polyline points="{line}" fill="none" stroke="#0072b2" stroke-width="2"/>',
        *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="#0072b2"/>' for x, y in places),
        f'<text x="{RIGHT + 16}" y="{top + 23}">{row.points[-1][1]:.3g}</text>',
    ]


def picture() -> str:
    """The recorded history as a picture."""
    return svg(runs_of(HISTORY.read_text("utf-8")))


def main(arguments: list[str]) -> int:
    """Write the picture into the file that is named; returns the exit code."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python docs/site/history.py FILE.svg\n")
        return 2
    Path(arguments[0]).write_text(picture(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
