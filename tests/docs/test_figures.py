"""Figures that pages type and the program knows: the page says what the program does."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from nkilab.dialects.history import RELEASES
from nkilab.isa import REGISTRY
from nkilab.ledger import own_rows
from nkilab.ledger.reading import OWN, ledger_rows
from nkilab.machine import MACHINES
from nkilab.timing import MODEL_VERSION
from nkilab.views.explorer.schema import SCHEMA_VERSION
from tests.docs.pages import DOCS, PAGES, ROOT, name_of
from tests.sources import SOURCES

VERSIONS = list(dict.fromkeys(release.version for release in RELEASES))
SDKS = {version: [r.sdk for r in RELEASES if r.version == version] for version in VERSIONS}
COUNTS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
PYTHONS = sorted(
    (
        line.rpartition(" ")[2]
        for line in tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["classifiers"]
        if re.search(r"Python :: 3\.\d", line)
    ),
    key=lambda version: int(version.partition(".")[2]),
)


# a page, a sentence of it with the figures in groups, what they are
FIGURES = [
    ("docs/timing-model.md", r"this page describes version (\w+)\.", (MODEL_VERSION,)),
    ("CHANGELOG.md", r"\(timing model (\w+)\)", (MODEL_VERSION,)),
    ("README.md", r"The (\d+) instructions of TensorE", (str(len(REGISTRY)),)),
    ("CHANGELOG.md", r"Instructions, (\d+), of", (str(len(REGISTRY)),)),
    ("README.md", r"interval for (\d+) measurements", (str(len(own_rows())),)),
    ("CHANGELOG.md", r"Chips: ([\w, ]+), and machine files", (", ".join(MACHINES),)),
    ("README.md", r"\(`(\S+)`, `(\S+)` to `(\S+)`, or an SDK", (*VERSIONS[:2], VERSIONS[-1])),
    ("docs/versions.md", r"two spellings and (\w+) versions", (COUNTS[len(VERSIONS)],)),
    ("docs/versions.md", r"\| beta1 \| (\S+) to (\S+) \|", (SDKS["beta1"][0], SDKS["beta1"][-1])),
    ("docs/versions.md", r"\| 0.1, 0.2 \| (\S+), (\S+) \|", (*SDKS["0.1"], *SDKS["0.2"])),
    ("docs/versions.md", r"\| 0.3 to 0.6 \| (\S+) to (\S+) \|", (*SDKS["0.3"], *SDKS["0.6"])),
    ("docs/versions.md", r"\| (\S+) \| (\S+) \| `nki`; only doc", (VERSIONS[-1], *SDKS[VERSIONS[-1]])),
    ("docs/profiles.md", r"public schema, version (\d+\.\d+\.\d+)", (SCHEMA_VERSION,)),
    ("README.md", r"with Python (\S+) to (\S+);", (PYTHONS[0], PYTHONS[-1])),
    ("docs/command-line.md", r"Python ([\d., ]+) and (\S+) is tried", (", ".join(PYTHONS[:-1]), PYTHONS[-1])),
]  # fmt: skip


@pytest.mark.parametrize(
    ("page", "sentence", "figures"), FIGURES, ids=lambda v: v if isinstance(v, str) else ""
)
def test_a_figure_of_a_page_is_what_the_program_has(
    page: str, sentence: str, figures: tuple[str, ...]
) -> None:
    text = " ".join((ROOT / page).read_text("utf-8").split())
    assert re.findall(sentence, text) == [figures if len(figures) > 1 else figures[0]]


def test_the_changelog_names_every_instruction_once() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    listed = text.partition("Instructions, ")[2].partition("\n- ")[0].partition("\n")[2]
    names = [
        name for line in re.split(r"\n  - ", listed) for name in re.findall(r"\w+", line.partition(":")[2])
    ]
    assert sorted(names) == sorted(REGISTRY)


def test_the_table_of_the_ledger_has_every_file_with_the_number_of_its_rows() -> None:
    table = re.findall(r"\| `(\w+)\.yaml` \| (\d+) \|", (DOCS / "ledger.md").read_text("utf-8"))
    files = [path for path in OWN.glob("*.yaml") if path.stem != "left_out"]
    assert dict(table) == {path.stem: str(len(ledger_rows(path))) for path in files}


def schemas(path: Path) -> set[str]:
    return set(re.findall(r"nkilab\.[a-z-]+/\d+", path.read_text("utf-8")))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_schema_that_a_page_names_is_one_that_the_program_writes_or_reads(page: Path) -> None:
    known = {name for module in SOURCES for name in schemas(module)}
    assert schemas(page) <= known
