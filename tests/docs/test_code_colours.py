"""Code on the site can be read, in light and in dark: WCAG 2.2, 1.4.3 asks for a contrast of 4.5."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from pygments.styles import get_style_by_name
from pygments.token import STANDARD_TYPES, Error, Whitespace

SITE = Path(__file__).parents[2] / "docs" / "site"
SHEET = (SITE / "_static" / "nkilab.css").read_text(encoding="utf-8")


def setting(name: str) -> str:
    """A setting of the site."""
    module = ast.parse((SITE / "conf.py").read_text(encoding="utf-8"))
    values = {n.targets[0].id: n.value for n in module.body if isinstance(n, ast.Assign)}
    return ast.literal_eval(values[name])


def rules(name: str) -> tuple[str, dict[str, str]]:
    """The ground of a style, and its colours by the class of what they colour."""
    style = get_style_by_name(name)
    unseen = (Whitespace, Error)
    tokens = {STANDARD_TYPES[token]: own["color"] for token, own in style if token in STANDARD_TYPES}
    for token in unseen:
        tokens.pop(STANDARD_TYPES[token], None)
    return style.background_color, {kind: f"#{colour}" for kind, colour in tokens.items() if colour}


def contrast(one: str, other: str) -> float:
    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("kind", ["pygments_style", "pygments_dark_style"])
def test_every_colour_of_code_stands_out_from_its_ground(kind: str) -> None:
    ground, colours = rules(setting(kind))
    ground = ground if len(ground) == 7 else "#" + "".join(2 * digit for digit in ground[1:])
    assert len(colours) > 5
    for name, colour in colours.items():
        assert contrast(colour, ground) >= 4.5, (name, colour, ground)


def test_no_colour_of_the_light_style_shows_on_dark_ground() -> None:
    # the theme writes rules of the dark style over those of the light one, which colour what it leaves out
    ground, dark = rules(setting("pygments_dark_style"))
    _, light = rules(setting("pygments_style"))
    leaks = {kind: colour for kind, colour in light.items() if kind not in dark}
    assert not [kind for kind, colour in leaks.items() if contrast(colour, ground) < 4.5]


def test_nothing_makes_code_fainter() -> None:
    faint = [rule for rule in re.findall(r"[^{}]*\{[^{}]*\}", SHEET) if "opacity" in rule]
    assert not faint
