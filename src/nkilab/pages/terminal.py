"""Pages as text of a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from typing import Any, TextIO

from .._lazy import rich
from ..progress import columns, console_for
from .content import Block, Bullets, Code, Page, Table, Text

# Of a table: columns before it, columns between two of its own, and what is so short that it never wraps.
_INDENT, _GAP, _NAME = 2, 3, 24


def print_page(page: Page, file: TextIO | None = None) -> None:
    """Print a page: in colour where `file` (standard output if None) is a terminal, plain text elsewhere."""
    console = console_for(file)
    if console.is_terminal:
        _draw(page, console)
    else:
        console.file.write(text(page) + "\n")


def text(page: Page) -> str:
    """The page as plain text, without spaces at the ends of lines."""
    file = StringIO()
    _draw(page, console_for(file))
    return "\n".join(line.rstrip() for line in file.getvalue().split("\n")).strip("\n")


def _draw(page: Page, console: Any) -> None:
    console.print(rich("text").Text.assemble((page.name, "bold"), (f"  {page.kind}", "dim")))
    console.print()
    for section in page.sections:
        if section.title:
            console.print()
            console.print(rich("text").Text(section.title, style="bold cyan"))
        _draw_blocks(section.blocks, console)


def _draw_blocks(blocks: Sequence[Block], console: Any) -> None:
    """Print the blocks of a section, a line between two; code follows the text before it at once."""
    for block, following in zip(blocks, (*blocks[1:], None), strict=True):
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
    for head, width in zip(block.heads, _widths(block), strict=True):
        table.add_column(
            head, justify="right" if head in block.right else "left", no_wrap=width is None,
            overflow="fold", width=width,
        )  # fmt: skip
    for row in block.rows:
        table.add_row(*(styled(cell) for cell in row))
    return table


def _widths(block: Table) -> list[int | None]:
    """The width of each column, None for those that do not wrap; where they can, words stay whole."""
    cells = [[head, *(row[k] for row in block.rows)] for k, head in enumerate(block.heads)]
    natural = [max(map(len, column)) for column in cells]
    wraps = [max(map(len, column[1:]), default=0) > _NAME for column in cells]
    least = [max(len(word) for cell in column for word in (cell or "-").split()) for column in cells]
    room = columns() - _INDENT - _GAP * (len(cells) - 1)
    room -= sum(width for width, wrapping in zip(natural, wraps) if not wrapping)
    spare = room - sum(width for width, wrapping in zip(least, wraps) if wrapping)
    wanted = [n - m if wrapping else 0 for n, m, wrapping in zip(natural, least, wraps)]
    share = min(1.0, max(0, spare) / max(1, sum(wanted)))
    return [m + int(more * share) if wrapping else None for m, more, wrapping in zip(least, wanted, wraps)]


def styled(words: str) -> Any:
    """Words with `code` in a style of its own instead of backticks."""
    text_made = rich("text").Text()
    for k, part in enumerate(words.split("`")):
        text_made.append(part, style="green" if k % 2 else "")
    return text_made
