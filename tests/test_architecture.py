"""ARCHITECTURE.md shows the levels that are held, and names what is there."""

from __future__ import annotations

import re
from pathlib import Path

from .test_layers import LEVELS

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


def test_the_table_of_levels_is_the_one_that_is_held() -> None:
    rows = re.findall(r"^\| \d+ \| (.*) \|$", TEXT, re.M)
    shown = [{name.strip("`/").removesuffix(".py") for name in row.split(", ")} for row in rows]
    assert shown == [set(level.split()) for level in LEVELS]


def test_every_file_that_it_names_is_there() -> None:
    files = {
        "/" + path.relative_to(ROOT).as_posix()
        for folder in ("src", "tests", "docs", "benchmarks", "examples")
        for path in (ROOT / folder).rglob("*.*")
    }
    named = re.findall(r"`([\w/-]+\.(?:py|pth|js|html|md))`", TEXT) + re.findall(r"\b(docs/[\w-]+\.md)", TEXT)
    missing = [name for name in named if not any(path.endswith(f"/{name}") for path in files)]
    assert len(named) > 150
    assert not missing


def test_every_folder_of_the_package_has_a_sentence() -> None:
    after = TEXT[TEXT.index("## From a call") :]
    folders = [path.name for path in (ROOT / "src/nkilab").iterdir() if (path / "__init__.py").exists()]
    assert [name for name in folders if f"`{name}/" not in after] == []


def test_every_section_fits_on_one_screen() -> None:
    sections = re.split(r"^(?=## )", TEXT, flags=re.M)[1:]
    assert len(sections) > 10
    assert [s.splitlines()[0] for s in sections if s.count("\n") > 50] == []
