"""Pages as Markdown: the common dialect with pipe tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from textwrap import fill

from .content import Block, Bullets, Code, Page, Section, Table, Text

_MEANT = re.compile(r"[\\*<]|\](?=\()|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")

_LIKE_AN_ITEM = re.compile(r" (?=[-+*#>=|]|\d+[.)])")


def markdown(page: Page, links: Mapping[str, str] | None = None) -> str:
    """The whole file of a page, with a newline at its end.

    Args:
        page: what to write.
        links: addresses of words that stand as code; each becomes a link.
    """
    parts = [f"# {page.name}"]
    for section in page.sections:
        parts += _section(section, {k: v for k, v in (links or {}).items() if k != page.name})
    return "\n\n".join(parts) + "\n"


def _section(section: Section, links: Mapping[str, str]) -> list[str]:
    title = [f"## {section.title}"] if section.title else []
    return title + [_block(block, links) for block in section.blocks]


def _block(block: Block, links: Mapping[str, str]) -> str:
    match block:
        case Text(words):
            return _paragraph(inline(words, links))
        case Code(lines, language):
            return f"```{language}\n{lines}\n```"
        case Bullets(items):
            return "\n".join(f"- {inline(item, links)}" for item in items)
        case Table():
            return _table(block, links)


def _paragraph(words: str) -> str:
    """Words in lines of at most 110 characters, none of which begins like the item of a list or a heading."""
    glued = _LIKE_AN_ITEM.sub("\0", words)
    return fill(glued, 110, break_long_words=False, break_on_hyphens=False).replace("\0", " ")


def _table(block: Table, links: Mapping[str, str]) -> str:
    rules = ["---:" if head in block.right else "---" for head in block.heads]
    rows = [[inline(cell, links).replace("|", "\\|") for cell in row] for row in block.rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in (block.heads, rules, *rows))


def inline(words: str, links: Mapping[str, str]) -> str:
    """Words with what Markdown would interpret outside of code escaped, and known code linked."""
    parts = words.split("`")
    for k, part in enumerate(parts):
        if k % 2:
            shown = f"`{part}`"
            parts[k] = f"[{shown}]({links[part]})" if part in links else shown
        else:
            parts[k] = _MEANT.sub(lambda match: "\\" + match.group(), part)
    return "".join(parts)
