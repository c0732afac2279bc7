"""Pages as text of a terminal, 100 columns wide."""

from __future__ import annotations

from io import StringIO
from typing import Any, TextIO

from .._lazy import rich
from .content import Block, Bullets, Code, Page, Table, Text

WIDTH = 100


def print_page(page: Page, file: TextIO | None = None) -> None:
    """Print a page: in colour where `file` (standard output if None) is a terminal, plain text elsewhere."""
    console = rich("console").Console(file=file, width=WIDTH, highlight=False)
    if console.is_terminal:
        _draw(page, console)
    else:
        console.file.write(text(page) + "\n")


def text(page: Page) -> str:
    """The page as plain text, without spaces at the ends of lines."""
    file = StringIO()
    _draw(page, rich("console").Console(file=file, width=WIDTH, highlight=False))
    return "\n".join(line.rstrip() for line in file.getvalue().split("\n")).strip("\n")


def _draw(page: Page, console: Any) -> None:
    console.print(rich("text").Text.assemble((page.name, "bold"), (f"  {page.kind}", "dim")))
    console.print()
    for section in page.sections:
        if section.title:
            console.print()
            console.print(rich("text").Text(section.title, style="bold cyan"))
        for block, following in zip(section.blocks, (*section.blocks[1:], None), strict=True):
            console.print(rich("padding").Padding(_shown(block), (0, 0, 0, 2)))
            if following is not None and not (isinstance(block, Text) and isinstance(following, Code)):
                console.print()


def _shown(block: Block) -> Any:
    match block:
        case Text(words):
            return styled(words)
        case Code(lines):
            return rich("text").Text(lines, style="green", overflow="fold")
        case Bullets(items):
            grid = rich("table").Table.grid(padding=(0, 1))
            for item in items:
                grid.add_row("-", styled(item))
            return grid
        case Table():
            return _table(block)


def _table(block: Table) -> Any:
    box = rich("box").SIMPLE_HEAD
    table = rich("table").Table(box=box, pad_edge=False, padding=(0, 1), header_style="dim", show_edge=False)
    for k, head in enumerate(block.heads):
        is_name = all(len(row[k]) <= 24 for row in block.rows)
        table.add_column(
            head, justify="right" if head in block.right else "left", no_wrap=is_name, overflow="fold"
        )
    for row in block.rows:
        table.add_row(*(styled(cell) for cell in row))
    return table


def styled(words: str) -> Any:
    """Words with `code` in a style of its own instead of backticks."""
    made = rich("text").Text()
    for k, part in enumerate(words.split("`")):
        made.append(part, style="green" if k % 2 else "")
    return made
