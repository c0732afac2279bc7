"""Colours have one meaning each, and differ for every kind of eye."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from colorspacious import cspace_convert

from nkilab.place.slots import ENGINES
from nkilab.timing.timeline import REASONS
from nkilab.views.colours import COLOUR_OF, MEANINGS, meaning_of
from nkilab.views.path import KINDS
from nkilab.views.stalls import STALLS

VISIONS = ("", "deuteranomaly", "protanomaly", "tritanomaly")
# A difference in CAM02-UCS; 1 is what can just be seen of two patches side by side.
LEAST = 11.0


def seen(colours: list[str], vision: str) -> np.ndarray:
    """Colours in CAM02-UCS, as eyes see them that lack one kind of cone (Machado 2009, severity 100)."""
    rgb = np.array([[int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)] for colour in colours])
    if vision:
        space = {"name": "sRGB1+CVD", "cvd_type": vision, "severity": 100}
        rgb = np.clip(cspace_convert(rgb, space, "sRGB1"), 0.0, 1.0)
    return cspace_convert(rgb, "sRGB1", "CAM02-UCS")


@pytest.mark.parametrize("ground", [1, 2], ids=["light", "dark"])
@pytest.mark.parametrize("vision", VISIONS)
def test_any_two_colours_can_be_told_apart(vision: str, ground: int) -> None:
    places = seen([meaning[ground] for meaning in MEANINGS.values()], vision)
    for (one, first), (other, second) in combinations(zip(MEANINGS, places, strict=True), 2):
        assert np.linalg.norm(first - second) >= LEAST, (one, other, vision)


def test_red_and_green_of_one_lightness_are_not_told_apart() -> None:
    # that the measure can fail: a pair which eyes without green cones confuse
    first, second = seen(["#a07800", "#789600"], "deuteranomaly")
    assert (
        np.linalg.norm(first - second)
        < LEAST
        < np.linalg.norm(np.diff(seen(["#a07800", "#789600"], ""), axis=0))
    )


@pytest.mark.parametrize(("ground", "paper"), [(1, ("#ffffff", "#f3f5f8")), (2, ("#161c24", "#1b222c"))])
def test_colours_stand_out_from_their_ground(ground: int, paper: tuple[str, str]) -> None:
    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for meaning in MEANINGS.values():
        for own in paper:
            light, dark = sorted((luminance(meaning[ground]), luminance(own)), reverse=True)
            # WCAG 2.2, 1.4.11: 3 for graphics on white; lanes are a little darker
            assert (light + 0.05) / (dark + 0.05) >= 2.7, (meaning, own)


def test_everything_that_is_drawn_has_a_colour() -> None:
    # what works, pieces of the path but those of an engine, reasons to wait but the result of one
    of_engines = {"execute", "result", "weights", "table"}
    assert {meaning_of(engine, "") for engine in ENGINES} <= set(MEANINGS)
    assert {*ENGINES, *STALLS, *set(KINDS) - of_engines, *set(REASONS) - {"engine"}} <= set(COLOUR_OF)
    assert not of_engines & set(COLOUR_OF)
    assert meaning_of("dma", "SPILL_SAVE") == "spill"
