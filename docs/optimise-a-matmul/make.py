"""Writes what is computed in docs/optimise-a-matmul.md: pictures, tables, sentences, source.

    python docs/optimise-a-matmul/make.py [--reports FOLDER]

With --reports it writes the HTML reports that the site has beside the page, and nothing else.

A block between <!-- NAME --> and <!-- /NAME --> is replaced; the text around it stays.
"""

from __future__ import annotations

import inspect
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nkilab import Profile, activate, profile, spec
from nkilab.disk import write_whole
from nkilab.views.svg import timeline_svg
from nkilab.views.units import duration, quantity
from nkilab.views.words import verdict

PAGE = Path(__file__).resolve().parent.with_suffix(".md")
FOLDER = Path(__file__).resolve().parent
LARGE = ("f32[8192,4096]", "f32[8192,8192]")
# how much of the timeline the close picture shows, from the middle on
CLOSE_NS = 12_000.0


@dataclass(frozen=True)
class Stage:
    """A kernel of the story, and what was published about it.

    Args:
        kernel: its name in nkilab.ledger.kernels.matmul.
        args: shapes.
        keywords: of the call.
        published: milliseconds, and percent that DMA, TensorE and VectorE are active; None if not published.
    """

    kernel: str
    args: tuple[str, str] = LARGE
    keywords: dict[str, int] = field(default_factory=dict)
    published: tuple[float | None, ...] = (None, None, None, None)


STAGES = {
    "single": Stage("tiled", ("f32[128,128]", "f32[128,512]")),
    "tiled": Stage("tiled", published=(39.89, 99.93, 87.28, None)),
    "hoisted": Stage("hoisted", published=(28.20, 99.73, 99.85, None)),
    "blocked": Stage("block_free", published=(28.41, 95.70, 99.52, None)),
    "fully-blocked": Stage(
        "blocked_tiles", keywords={"tiles_m": 16, "tiles_n": 2, "tiles_k": 8},
        published=(28.30, 21.54, 99.50, 10.55),
    ),
}  # fmt: skip
# Stages whose reports the site has beside the page.
REPORTS = ("tiled", "fully-blocked")
_ACTIVE = (
    "dma_active_time_percent",
    "tensor_engine_active_time_percent",
    "vector_engine_active_time_percent",
)


def made(stage: Stage, kernels: Any) -> Profile:
    """The profile of a stage."""
    shapes = [re.fullmatch(r"f32\[(\d+),(\d+)\]", text) for text in stage.args]
    args = [spec((int(s[1]), int(s[2])), "float32") for s in shapes if s]
    return profile(getattr(kernels, stage.kernel), *args, **stage.keywords)


def blocks_of(name: str, stage: Stage, found: Profile, kernels: Any) -> dict[str, str]:
    """What the page says of a stage, and its pictures in the folder."""
    run = found.run
    middle = run.timeline.latency_ns / 2
    pictures = {"": (0.0, None)}
    if name != "single":
        pictures["-close"] = (middle, middle + CLOSE_NS)
    shown = []
    for ending, (start, end) in pictures.items():
        title = f"{name}, {'the whole run' if end is None else 'a close look in the middle'}"
        picture = timeline_svg(run, start_ns=start, end_ns=end, title=title)
        write_whole(FOLDER / f"{name}{ending}.svg", picture.encode())
        shown.append(f"![{title}](optimise-a-matmul/{name}{ending}.svg)")
    options = " ".join(f"--arg '{arg}'" for arg in stage.args)
    options += "".join(f" --kw {key}={value}" for key, value in stage.keywords.items())
    command = f"$ nkilab profile matmul.py:{stage.kernel} {options} --html {name}.html"
    source = inspect.getsource(getattr(kernels, stage.kernel).function)
    return {
        f"{name} source": f"From `matmul.py`:\n\n```python\n{source}```",
        f"{name} command": f"```console\n{command}\n```",
        f"{name} pictures": "\n\n".join(shown),
        f"{name} verdict": "\n".join(f"> {sentence}  " for sentence in verdict(run)),
    }


def table(profiles: dict[str, Profile]) -> str:
    """Predicted beside published."""
    lines = [
        "| Stage | Latency | DMA active | TensorE active | VectorE active | Moved | Bound by |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, found in profiles.items():
        stage, summary = STAGES[name], found.summary
        cells = [_beside(duration(found.timeline.latency_ns), stage.published[0], " ms")]
        for metric, published in zip(_ACTIVE, stage.published[1:], strict=True):
            cells.append(_beside(f"{summary[metric]:.2f} %", published, " %"))
        moved = quantity(summary["dma_transfer_total_bytes"], "bytes")
        lines.append(f"| {name} | {' | '.join(cells)} | {moved} | {summary.bound} |")
    return "\n".join(lines)


def _beside(predicted: str, published: float | None, unit: str) -> str:
    return predicted if published is None else f"{predicted} ({published:.2f}{unit})"


def filled(text: str, blocks: dict[str, str]) -> str:
    """A page with its blocks replaced; every block stands in it once."""
    for name, content in blocks.items():
        pattern = rf"(<!-- {re.escape(name)} -->\n).*?(<!-- /{re.escape(name)} -->)"
        text, count = re.subn(pattern, lambda m, c=content: f"{m[1]}{c}\n{m[2]}", text, flags=re.S)
        assert count == 1, f"{PAGE.name} has {count} blocks {name}"
    return text


def write_reports(folder: Path) -> None:
    """Write the reports of the stages that have one into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with activate():
        from nkilab.ledger.kernels import matmul

        for name in REPORTS:
            made(STAGES[name], matmul).save_html(folder / f"{name}.html")


def write_page() -> None:
    """Profile all stages and write page and pictures."""
    with activate():
        from nkilab.ledger.kernels import matmul

        profiles = {name: made(stage, matmul) for name, stage in STAGES.items()}
        blocks = {"table": table(profiles)}
        for name, found in profiles.items():
            blocks |= blocks_of(name, STAGES[name], found, matmul)
    del blocks["single source"]
    story = profiles["tiled"].diff(profiles["fully-blocked"], ("tiled", "fully blocked"))
    blocks["diff"] = f"> {story.headline}; {story.bounds}"
    wider = profiles["tiled"].what_if(dma_bandwidth="2x")
    issue = profiles["tiled"].what_if(dma_issue="0.5x")
    blocks["what-if"] = "\n".join(
        f"> {profiles['tiled'].diff(other, changes=text).headline}  "
        for text, other in (("dma_bandwidth=2x", wider), ("dma_issue=0.5x", issue))
    )
    write_whole(PAGE, filled(PAGE.read_text(encoding="utf-8"), blocks).encode())


def main(arguments: list[str]) -> int:
    """Write the page, or the reports alone; returns the exit code."""
    match arguments:
        case []:
            write_page()
        case ["--reports", folder]:
            write_reports(Path(folder))
        case _:
            sys.stderr.write("usage: python docs/optimise-a-matmul/make.py [--reports FOLDER]\n")
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
