"""Numbers with their units."""

from __future__ import annotations

import re

_SCALES = {
    "bytes": ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")),
    "flops": ((1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP")),
    "us": ((1e6, "s"), (1e3, "ms")),
}
_PLAIN = {"bytes": "B", "flops": "FLOP", "us": "us", "percent": "%", "count": "", "ratio": ""}


def quantity(value: float, unit: str) -> str:
    """A value with its unit, four significant digits."""
    for scale, name in _SCALES.get(unit, ()):
        if abs(value) >= scale:
            return f"{value / scale:.4g} {name}"
    if unit == "count":
        return f"{value:,.0f}"
    return f"{value:.4g} {_PLAIN[unit]}".rstrip()


def micro(text: str) -> str:
    """A text of the program, which writes "us", with the sign of the unit, for pages and pictures."""
    return re.sub(r"(\d) us\b", r"\1 µs", text)


def duration(nanoseconds: float) -> str:
    """A duration, four significant digits."""
    return quantity(nanoseconds / 1000, "us") if abs(nanoseconds) >= 1000 else f"{nanoseconds:.4g} ns"
