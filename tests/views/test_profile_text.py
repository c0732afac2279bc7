"""A profile as text and as plain data: golden files."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO

import pytest

from nkilab.timing import MODEL_VERSION
from nkilab.views.bound import BOUNDS
from nkilab.views.record import profile_dict
from nkilab.views.text import print_profile
from nkilab.views.words import HINTS, spent_on_path, verdict
from tests.place.handmade import Kernel
from tests.views.runs import kernel_run, loaded_copied_stored, pipeline, run_of
from tests.views.test_path import KERNELS

WIDTH = 100


def text_of(run) -> str:
    out = StringIO()
    print_profile(run, out)
    return out.getvalue()


def test_the_text_of_a_profile_is_as_recorded(golden: Callable[[str, str], None]) -> None:
    # made by hand, of instructions whose costs are round numbers: better constants do not change it
    golden("profile.txt", text_of(run_of(pipeline())).replace(f"model {MODEL_VERSION})", "model N)"))


@pytest.mark.parametrize("name", KERNELS)
def test_the_text_is_at_most_100_columns_wide(name: str) -> None:
    assert max(map(len, text_of(kernel_run(name)).splitlines())) <= WIDTH


def test_a_hand_made_program_without_source_shows_opcodes_instead() -> None:
    text = text_of(run_of(loaded_copied_stored()))
    row = next(line for line in text.splitlines() if line.startswith("│ kernel.py:2 "))
    assert [cell.strip() for cell in row.strip("│").split("│")] == [
        "kernel.py:2", "662 ns", "612 ns", "2.688 us", "1", "", "TENSOR_COPY"
    ]  # fmt: skip


def test_an_empty_program_has_a_text() -> None:
    text = text_of(run_of(Kernel("trn2")))
    assert "(no events)" in text
    assert "It is bound by nothing: the program has no instructions." in text


def test_every_bound_has_a_hint() -> None:
    assert set(HINTS) == set(BOUNDS)


def test_the_verdict_names_lines() -> None:
    run = kernel_run("tiled")
    assert verdict(run)[0].startswith("It is bound by ")
    assert any("matmul.py:" in sentence for sentence in verdict(run))
    assert verdict(run)[-1].startswith("First thing to try: ")


@pytest.mark.parametrize("name", KERNELS)
def test_shares_of_the_path_add_up_to_one(name: str) -> None:
    assert sum(s.share for s in spent_on_path(kernel_run(name))) == pytest.approx(1)


@pytest.mark.parametrize("name", KERNELS)
def test_the_dictionary_of_a_profile_is_json(name: str) -> None:
    text = profile_dict(kernel_run(name))
    assert json.loads(json.dumps(text, allow_nan=False)) == text
    assert text["schema"] == "nkilab.profile/1"
