"""What verbs print fits a terminal of 80 columns, but for what cannot be broken."""

from __future__ import annotations

import re

import pytest

from nkilab.checks.finding import Finding
from nkilab.checks.sources import Sources
from nkilab.checks.terminal import lines_of
from tests.command_line import inside
from tests.test_json import CASES, folder  # noqa: F401

# Lines of source and of a diff, command lines to copy, paths, and Python or JSON text are not broken.
WHOLE = re.compile(r"^[-+ ] {4}|^\s*\d* *\||^  try: |^nkilab: wrote|/|^ *[\"'{}\[\]]")
# What prints text that is no message: a kernel, a completion script, the vendor's formats.
TEXTS = ("einsum", "completion", "neuron-profile")


@pytest.mark.corpus
@pytest.mark.parametrize("case", [name for name, (words, _) in CASES.items() if words[0] not in TEXTS])
def test_text_fits_eighty_columns(folder, capfd, monkeypatch, case):  # noqa: F811
    words, status = CASES[case]
    if "WHAT" in words:
        return
    monkeypatch.setenv("COLUMNS", "80")
    assert inside(*words, folder=folder) == status
    lines = capfd.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 80 and not WHOLE.search(line)] == []
    assert lines


@pytest.mark.parametrize("letters", range(1, 12))
def test_a_finding_fits_eighty_columns_wherever_its_words_end(monkeypatch, letters):
    monkeypatch.setenv("COLUMNS", "80")
    words = " ".join(["w" * letters] * 60)
    finding = Finding("a-rule", words, "kernel.py:1", fix=words, notes=(words,))
    lines = ["".join(part for part, _ in line) for line in lines_of(finding, Sources())]
    assert max(map(len, lines)) <= 80
    # one word more would not fit
    assert max(map(len, lines)) > 80 - letters - 1
