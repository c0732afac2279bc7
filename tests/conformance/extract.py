"""Cut the code blocks out of documents: notebook text, Markdown fences, reStructuredText directives."""

from __future__ import annotations

import re
from dataclasses import dataclass
from textwrap import dedent


@dataclass(frozen=True)
class Block:
    """A piece of code and the heading it stands under."""

    heading: str
    code: str


def notebook_cells(text: str) -> list[Block]:
    """Cells marked "In [None]:", each up to the next Markdown heading."""
    blocks = []
    heading = ""
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("## "):
            heading = line[3:].strip()
        if re.fullmatch(r"In \[\w*\]:", line):
            body = []
            at += 1
            while at < len(lines) and not lines[at].startswith("## "):
                body.append(lines[at])
                at += 1
            blocks.append(Block(heading, "\n".join(body).strip() + "\n"))
            continue
        at += 1
    return blocks


def fenced_blocks(text: str, languages: tuple[str, ...] = ("py", "python")) -> list[Block]:
    """Markdown fences in one of some languages."""
    blocks = []
    heading = ""
    pattern = re.compile(r"^(#+ [^\n]*)$|^```(\w*)\n(.*?)^```", re.M | re.S)
    for fence in pattern.finditer(text):
        if fence[1]:
            heading = fence[1].lstrip("# ")
        elif fence[2] in languages:
            blocks.append(Block(heading, fence[3]))
    return blocks


def directive_blocks(text: str, language: str = "python") -> list[Block]:
    """Bodies of `.. code-block::` directives of one language, without their indentation."""
    blocks = []
    heading = ""
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        line = lines[at]
        if at + 1 < len(lines) and re.fullmatch(r"[-=^~]{3,}", lines[at + 1]) and line.strip():
            heading = line.strip()
        matched = re.match(rf"^(\s*)\.\. code-block:: {language}\s*$", line)
        at += 1
        if not matched:
            continue
        margin = len(matched[1])
        body = []
        while at < len(lines) and (
            not lines[at].strip() or len(lines[at]) - len(lines[at].lstrip()) > margin
        ):
            body.append(lines[at])
            at += 1
        blocks.append(Block(heading, dedent("\n".join(body)).strip("\n") + "\n"))
    return blocks
