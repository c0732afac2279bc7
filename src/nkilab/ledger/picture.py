"""Predicted against measured on logarithmic axes, as SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from math import ceil, floor, log10

from .score import Compared

_SIDE, _MARGIN, _LEGEND = 560, 70, 250
# colours that people with common colour blindness tell apart (Okabe and Ito)
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#8a8a00")
_STYLE = "font-family: sans-serif; font-size: 12px"


def svg(compared: Sequence[Compared], title: str) -> str:
    """A picture of times in microseconds: one mark per row, filled if it was judged, bars for intervals.

    Args:
        compared: times of whole kernels; at least one.
        title: stands above.
    """
    values = [v for c in compared for v in (c.measured, c.predicted)]
    low, high = floor(log10(min(values))), ceil(log10(max(values)))
    high = max(high, low + 1)

    def place(value: float) -> float:
        return (log10(max(value, 10**low)) - low) / (high - low) * _SIDE

    families = list(dict.fromkeys(c.row.family for c in compared))
    body = [*_axes(low, high, place), *_legend(families)]
    for one in sorted(compared, key=lambda c: c.row.split == "judge"):
        body += _mark(one, place(one.measured), place, families.index(one.row.family))
    return document(title, (_SIDE, _SIDE), (_MARGIN, _LEGEND), body)


def document(title: str, size: tuple[int, int], around: tuple[int, int], body: Sequence[str]) -> str:
    """An SVG whose body has its origin at the lower left and goes up.

    Args:
        title: stands above.
        size: width and height of what the axes enclose.
        around: the margin, and how much more there is on the right for a legend.
        body: elements.
    """
    (wide, high), (margin, legend) = size, around
    width, height = wide + 2 * margin + legend, high + 2 * margin
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" style="{_STYLE}">',
            f'<rect width="{width}" height="{height}" fill="white"/>',
            f'<text x="{margin}" y="{margin / 2}" font-size="15">{escape(title)}</text>',
            f'<g transform="translate({margin} {margin + high}) scale(1 -1)">',
            *body,
            "</g>",
            "</svg>",
            "",
        ]
    )


def words_at(x: float, y: float, words: str, anchor: str = "start") -> str:
    """Words whose base line is at a place."""
    place = f'x="{x:.1f}" y="{-y:.1f}" transform="scale(1 -1)" text-anchor="{anchor}"'
    return f"<text {place}>{escape(words)}</text>"


def line_of(x1: float, y1: float, x2: float, y2: float, colour: str, dash: str = "") -> str:
    """A line between two places."""
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{dashed}/>'


def _axes(low: int, high: int, place: Callable[[float], float]) -> list[str]:
    """Frame, decades, the line of equality, and lines 10 % off."""
    parts = [f'<rect width="{_SIDE}" height="{_SIDE}" fill="none" stroke="black"/>']
    for power in range(low, high + 1):
        at = place(10.0**power)
        parts += [line_of(at, 0, at, _SIDE, "#dddddd"), line_of(0, at, _SIDE, at, "#dddddd")]
        parts += [words_at(at, -18, _decade(power), "middle"), words_at(-8, at - 4, _decade(power), "end")]
    parts.append(line_of(0, 0, _SIDE, _SIDE, "#555555"))
    for factor in (0.9, 1.1):
        shift = log10(factor) / (high - low) * _SIDE
        start, stop = max(0.0, -shift), min(_SIDE, _SIDE - shift)
        parts.append(line_of(start, start + shift, stop, stop + shift, "#999999", "4 3"))
    parts.append(words_at(_SIDE / 2, -45, "measured, us (dashed: 10 % off)", "middle"))
    predicted = words_at(0, 0, "predicted, us", "middle")
    return [*parts, f'<g transform="translate(-50 {_SIDE / 2}) rotate(90)">{predicted}</g>']


def _decade(power: int) -> str:
    return f"{10**power:,}" if power >= 0 else f"{10.0**power:g}"


def _colour(family: int) -> str:
    return _COLOURS[family % len(_COLOURS)]


def _shape(x: float, y: float, family: int, *, is_filled: bool, tooltip: str = "") -> str:
    """A circle for each of the first eight families, a square for each of the next."""
    if family // len(_COLOURS) % 2:
        shape, place = "rect", f'x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"'
    else:
        shape, place = "circle", f'cx="{x:.1f}" cy="{y:.1f}" r="4"'
    fill = _colour(family) if is_filled else "white"
    title = f"<title>{escape(tooltip)}</title>" if tooltip else ""
    return f'<{shape} {place} fill="{fill}" stroke="{_colour(family)}">{title}</{shape}>'


def _legend(families: Sequence[str]) -> list[str]:
    parts = []
    for i, family in enumerate(families):
        y = _SIDE - 10 - 18 * i
        parts += [_shape(_SIDE + 20, y + 4, i, is_filled=True), words_at(_SIDE + 32, y, family)]
    y = _SIDE - 10 - 18 * (len(families) + 1)
    return [*parts, words_at(_SIDE + 14, y, "filled: judged; open: may be fitted")]


def _mark(one: Compared, x: float, place: Callable[[float], float], family: int) -> list[str]:
    parts = []
    if one.interval is not None:
        low, high = one.interval
        parts.append(line_of(x, place(low), x, min(place(high), _SIDE), _colour(family)))
    title = f"{one.row.id}: measured {one.measured:.4g}, predicted {one.predicted:.4g} us"
    judged = one.row.split == "judge"
    return [*parts, _shape(x, place(one.predicted), family, is_filled=judged, tooltip=title)]
