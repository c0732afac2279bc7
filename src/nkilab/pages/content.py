"""What a page is made of, before anything decides how it looks.

Words may hold `code` between backticks and nothing else that a renderer interprets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    words: str


@dataclass(frozen=True)
class Code:
    """Lines that stand as they are."""

    lines: str
    language: str = "python"


@dataclass(frozen=True)
class Bullets:
    """A list of short statements."""

    items: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """Rows of cells under heads; columns named in `right` hold numbers."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[str, ...] = ()


Block = Text | Code | Bullets | Table


@dataclass(frozen=True)
class Section:
    """Blocks under a title; no title for what opens a page."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Page:
    """One page."""

    name: str  # what it is about, as a user spells it
    # "instruction", "rule", "error key", "metric", "chip", "data type", "operator", "activation function",
    # "bound", "finding" or "index"
    kind: str
    sections: tuple[Section, ...]  # in reading order


def code(word: object) -> str:
    """A word as code."""
    return f"`{word}`"


def listed(words: Sequence[object]) -> str:
    """Words as code, with commas."""
    return ", ".join(map(code, words))


def sentence(words: str) -> str:
    """Words that begin small as a sentence; code stays as it is."""
    return f"{words[0].upper()}{words[1:]}."


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> Table:
    """A table from any sequences, without the columns that are empty in every row."""
    kept = [k for k in range(len(heads)) if any(row[k] for row in rows)]
    return Table(
        tuple(heads[k] for k in kept), tuple(tuple(row[k] for k in kept) for row in rows), tuple(right)
    )


def as_data(page: Page) -> dict[str, Any]:
    """The page as plain data: sections of blocks, each with its type."""
    return {
        "name": page.name,
        "kind": page.kind,
        "sections": [
            {"title": section.title, "blocks": [_block_data(block) for block in section.blocks]}
            for section in page.sections
        ],
    }


def _block_data(block: Block) -> dict[str, Any]:
    match block:
        case Text(words):
            return {"type": "text", "words": words}
        case Code(lines, language):
            return {"type": "code", "language": language, "lines": lines.split("\n")}
        case Bullets(items):
            return {"type": "list", "items": list(items)}
        case Table(heads, rows):
            return {"type": "table", "heads": list(heads), "rows": [list(row) for row in rows]}
