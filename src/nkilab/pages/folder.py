"""The folder of generated documents: a page per instruction, tables of what they are given, an index."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import fill

from ..disk import write_whole_folder
from ..error_keys import ERROR_KEYS
from ..errors import FileError, reason_of
from ..isa import REGISTRY
from ..isa.activations import ACTIVATIONS
from ..isa.declare import Instruction
from ..isa.operators import OPERATORS
from ..isa.uses import chips_of
from ..machine import MACHINES
from ..tiles.dtypes import DTYPES
from ..views.bound import BOUNDS
from ..views.metrics import METRICS
from .check_rules import rules_page
from .content import Block, Bullets, Code, Page, Section, Table, Text, code, listed, table
from .instruction import DIFFERENCES, ENGINES, engine_name, instruction_page, summary
from .meanings import ACTIVATION_MEANINGS, OPERATOR_MEANINGS
from .subjects import chip_page, error_page
from .tokens import TOKENS_SOURCE, dtype_facts, valid_range

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


COMMAND = "python -m nkilab.pages"
MARK = f"<!-- written by `{COMMAND}`; changes by hand are lost -->\n"
_TABLES = ("operators", "activations", "dtypes", "chips", "rules", "errors", "metrics")


def documents() -> dict[str, str]:
    """The text of every file by its name."""
    pages = {
        "README": _index(),
        **{name: instruction_page(cls) for name, cls in REGISTRY.items()},
        "operators": _operators(),
        "activations": _activations(),
        "dtypes": _dtypes(),
        "chips": _chips(),
        "rules": rules_page(),
        "errors": _errors(),
        "metrics": _metrics(),
    }
    links = _links()
    return {f"{name}.md": f"{markdown(page, links)}\n{MARK}" for name, page in pages.items()}


def write(folder: Path) -> list[str]:
    """Write every file to a folder, and remove what an earlier run wrote there and is no page any more.

    Returns:
        Names of the files that changed, came or went.

    Raises:
        FileError: if the folder cannot be written.
    """
    wanted = documents()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        pages_now = {path.name: path.read_text("utf-8") for path in folder.glob("*.md")}
        gone = [name for name, text in pages_now.items() if name not in wanted and text.endswith(MARK)]
        changed = [name for name, text in wanted.items() if pages_now.get(name) != text]
        write_whole_folder(folder, {name: wanted[name].encode() for name in changed})
        for name in gone:
            (folder / name).unlink()
    except OSError as error:
        raise FileError(f"{folder} cannot be written: {reason_of(error)}") from None
    return sorted([*gone, *changed])


def _links() -> dict[str, str]:
    facts = dict.fromkeys(next(iter(MACHINES.values())).facts(), "chips.md")
    return {
        **facts,
        **{name: f"{name}.md" for name in REGISTRY},
        "operator": "operators.md",
        "activation function": "activations.md",
        **{name: f"{name}.md" for name in _TABLES},
        "nkilab explain CHIP": "chips.md",
        DIFFERENCES: "../differences.md",
    }


def _index() -> Page:
    families: dict[str, list[type[Instruction]]] = {}
    for cls in REGISTRY.values():
        families.setdefault(cls.__module__, []).append(cls)
    sections = [Section("", tuple(_index_opening())), Section("By engine", (_engines(),))]
    for module, members in families.items():
        title = (sys.modules[module].__doc__ or "").split("\n")[0].rstrip(".")
        rows = [(code(cls.name), summary(cls).removesuffix("."), _only_on(cls)) for cls in members]
        sections.append(Section(title, (table(("instruction", "what it does", "only on"), rows),)))
    return Page("Instructions", "index", tuple(sections))


def _index_opening() -> Iterator[Text | Bullets]:
    yield Text(
        f"The {len(REGISTRY)} instructions of nkilab, each with its signatures, limits, refusals, cost and a "
        "worked example. All of it is made from the declarations that are checked, computed and timed."
    )
    yield Bullets((
        "what instructions are given by name: `operators`, `activations`, `dtypes`",
        "every number about a chip, with certainty and source: `chips`",
        "what `nkilab check` asks of kernels: `rules`",
        "the errors that AWS documents, with their keys: `errors`",
        "what estimates and profiles count: `metrics`",
        f"what nkilab chose where public text is silent: {code(DIFFERENCES)}",
        "the same pages in a terminal: `nkilab explain NAME`",
    ))  # fmt: skip


def _only_on(cls: type[Instruction]) -> str:
    chips = [m.name for m in chips_of(cls)]
    return "" if len(chips) == len(MACHINES) else ", ".join(chips)


def _engines() -> Table:
    used = list(dict.fromkeys([*ENGINES, *(e for cls in REGISTRY.values() for e in cls.engines)]))
    rows = [
        (engine_name(engine), listed([name for name, cls in REGISTRY.items() if engine in cls.engines]))
        for engine in used
    ]
    return table(("engine", "instructions"), [row for row in rows if row[1]])


def _operators() -> Page:
    rows = [
        (
            code(name),
            OPERATOR_MEANINGS[name],
            "bits of integers" if op.is_bitvec else "float32",
            "one" if op.is_unary else "two",
            "yes" if op.reduces else "",
            ", ".join(map(engine_name, op.engines)),
            ", ".join(m.name for m in MACHINES.values() if m.generation >= op.since) if op.since > 2 else "",
        )
        for name, op in OPERATORS.items()
    ]
    heads = ("operator", "result", "computes on", "inputs", "reduces", "engines listed", "only on")
    opening = Text(f"What instructions take as `op`: names of nki.language. Source: {TOKENS_SOURCE}.")
    return Page("Operators", "index", (Section("", (opening, table(heads, rows))),))


def _activations() -> Page:
    rows = [
        (
            code(name),
            ACTIVATION_MEANINGS[name],
            valid_range(f),
            "" if f.is_documented else "nki.language only",
        )
        for name, f in ACTIVATIONS.items()
    ]
    opening = (
        Text(f"What `activation` and its kin take as `op`. Source: {TOKENS_SOURCE}."),
        Text(
            "Each is the mathematical function, evaluated in float64 and rounded to float32; the hardware's "
            "piecewise polynomials are not published. Outside of the valid input the result is undefined: "
            "nkilab computes it and warns, once per line of the kernel."
        ),
    )
    heads = ("function", "result", "valid input", "taken by")
    return Page("Activation functions", "index", (Section("", (*opening, table(heads, rows))),))


def _dtypes() -> Page:
    sections = [Section(name, dtype_facts(dtype)) for name, dtype in DTYPES.items()]
    return Page("Data types", "index", tuple(sections))


def _chips() -> Page:
    sections = []
    for machine in MACHINES.values():
        opening, *others = chip_page(machine).sections
        blocks = [*opening.blocks, *(block for s in others for block in (Text(f"{s.title}:"), *s.blocks))]
        sections.append(Section(machine.name, tuple(blocks)))
    return Page("Chips", "index", tuple(sections))


def _errors() -> Page:
    opening = Text(
        "The errors that AWS documents for Beta 1, under their keys. nkilab's messages end with the key "
        "where they tell of one of these; `nkilab explain KEY` shows one."
    )
    sections = [Section("", (opening,))]
    for key in sorted(ERROR_KEYS):
        first, *others = error_page(key).sections
        blocks = [*first.blocks, *(block for s in others for block in (Text(f"{s.title}:"), *s.blocks))]
        sections.append(Section(key, tuple(blocks)))
    return Page("Errors", "index", tuple(sections))


def _metrics() -> Page:
    opening = Text(
        "What estimates and profiles count, named as in Neuron Explorer where it has a name for it. Below "
        "stands when a kernel is said to be bound by something."
    )
    rows = [(code(name), metric.unit, metric.definition) for name, metric in METRICS.items()]
    bounds = table(("bound by", "where"), [(code(name), meaning) for name, meaning in BOUNDS.items()])
    metrics = table(("metric", "unit", "definition"), rows)
    return Page("Metrics", "index", (Section("", (opening, metrics)), Section("Bounds", (bounds,))))
