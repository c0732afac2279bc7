"""Links of the documentation lead somewhere; outward ones are listed with the day they were read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from functools import cache
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.docs.pages import DOCS, PAGES, name_of

LIST = DOCS / "links.md"
READER = MarkdownIt("commonmark").enable("table")


def _inline(path: Path) -> Iterator[Token]:
    for token in READER.parse(path.read_text("utf-8")):
        yield from token.children or []


def links(path: Path) -> list[str]:
    """Addresses of the links and pictures of a page."""
    addresses = [str(t.attrs.get("href") or t.attrs.get("src") or "") for t in _inline(path)]
    return [address for address in addresses if address]


def anchors(path: Path) -> set[str]:
    """What headings are called in an address."""
    tokens = READER.parse(path.read_text("utf-8"))
    heads = [tokens[n + 1].content for n, t in enumerate(tokens) if t.type == "heading_open"]
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@cache
def led_to() -> dict[Path, set[Path]]:
    """The files that each page leads to."""
    return {page: {(page.parent / a.split("#")[0]).resolve() for a in links(page)} for page in PAGES}


def is_outward(address: str) -> bool:
    return "://" in address


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_links_into_the_repository_lead_to_files_and_headings(path: Path) -> None:
    for address in links(path):
        if is_outward(address):
            continue
        name, _, anchor = address.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), address
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), address


def test_every_outward_link_is_listed_and_every_listed_one_is_used() -> None:
    used = {a for path in PAGES if path != LIST for a in links(path) if is_outward(a)}
    assert used == {address for address in links(LIST) if is_outward(address)}


def test_the_list_says_when_each_was_read() -> None:
    rows = [line.split(" | ") for line in LIST.read_text("utf-8").splitlines() if line.startswith("| <")]
    assert len(rows) == len([a for a in links(LIST) if is_outward(a)])
    days = [row[-1].removesuffix(" |") for row in rows]
    read = [date.fromisoformat(day) for day in days if day != "named only"]
    assert len(read) > 20
    assert max(read) >= min(read) >= date(2026, 1, 1)


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=name_of)
def test_a_page_is_led_to_from_another(path: Path) -> None:
    if path == DOCS / "README.md" or path.parent.name == "decisions":
        pytest.skip("the index, or a record that the site lists")
    assert any(path.resolve() in targets for other, targets in led_to().items() if other != path)
