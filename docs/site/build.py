"""Builds the site: `python docs/site/build.py OUT` (packages: extra `docs`). Any warning is a failure.

The pages are plain Markdown that also reads well where it lies. Here they are copied into a folder together,
their links into the rest of the repository are turned, and the table of contents is added; then Sphinx makes
HTML of them. What is too large for the repository, or changes too often, is made here (`written`). A page
leads to it between `<!-- in the site:` and `-->`: such text is shown in the site alone.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from functools import cache
from importlib import util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
HERE = DOCS / "site"
# pages outside docs/, and what they are called in the site
OUTSIDE = {
    "README.md": "readme.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
# The table of contents: what stands under each caption, and under a page.
CONTENTS = {
    "Start": ["start", "tutorials/index"],
    "Guides": [
        "how-to",
        "Questions people ask <faq>",
        "Versions, from Beta 1 on <versions>",
        "profiles",
        "checks",
        "constraints",
        "Tests and CI <pytest>",
        "Tune <tune>",
        "Einsums <einsum>",
        "Kernels of Einsums <einsum-kernels>",
        "Cores and ranks <cores>",
        "PyTorch and JAX <frameworks>",
        "Public suites <foreign-suites>",
    ],
    "Time": [
        "timing-model",
        "Predictions against measurements <validation>",
        "Advice <advice>",
        "How good the advice is <ladders>",
        "The ledger <ledger>",
        "What nkilab itself costs <speed>",
    ],
    "Reference": [
        "command-line",
        "Every verb <cli>",
        "What is public <interface>",
        "instructions/index",
        "Differences from hardware <differences>",
        "schemas",
        "Outward links <links>",
    ],
    "Inside": ["tiny", "architecture", "contributing", "changelog", "decisions/index", "Readme <readme>"],
}
TUTORIALS = [
    "first-kernel", "from-einsum-to-kernel", "from-paper-to-kernel", "../optimise-a-matmul",
    "climb-rmsnorm", "climb-softmax", "climb-product", "climb-convolution",
    "climb-attention", "climb-mlp", "climb-scan", "find-a-race", "two-cores", "calibrate",
    "pytorch-and-jax", "your-own-instruction",
]  # fmt: skip
# a block or a span of code, in which nothing is a link, or a link
STORY = DOCS / "optimise-a-matmul"
HISTORY = DOCS / "speed" / "history.svg"
_IN_THE_SITE = re.compile(r"<!-- in the site: (.*?) -->", re.S)
_PIECE = re.compile(
    r"(?P<code>^```.*?^```$|(?P<ticks>`+).*?(?P=ticks))"
    r"|(?P<picture>!?)\[(?P<words>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<address>[^()\s]+)\)",
    re.M | re.S,
)


def staged(source: Path) -> None:
    """Write the sources of the site into a folder."""
    for path in sorted(DOCS.rglob("*")):
        relative_path = path.relative_to(DOCS)
        if path.is_dir() or relative_path.parts[0] == "site" or "__pycache__" in relative_path.parts:
            continue
        target = source / _place(relative_path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            target.write_text(
                links_in_site(path.read_text("utf-8"), path) + _contents(relative_path), "utf-8"
            )
        else:
            shutil.copy(path, target)
    for name, place in OUTSIDE.items():
        (source / place).write_text(links_in_site((ROOT / name).read_text("utf-8"), ROOT / name), "utf-8")
    (source / "tiny.md").write_text(_as_page(DOCS / "tiny.py"), "utf-8")
    (source / "schemas.md").write_text(_schemas(), "utf-8")
    decisions = source / "decisions" / "index.md"
    decisions.write_text(
        f"# Decisions\n\nWhy things are as they are.\n\n{_toctree(['*'], glob=True)}", "utf-8"
    )
    picture = source / HISTORY.relative_to(DOCS)
    picture.parent.mkdir(parents=True, exist_ok=True)
    picture.write_text(script(HERE / "history.py").picture(), "utf-8")
    shutil.copytree(HERE / "_static", source / "_static")
    shutil.copy(HERE / "conf.py", source)


@cache
def script(path: Path) -> ModuleType:
    """A script beside the pages as a module."""
    spec = util.spec_from_file_location(f"site_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    # a dataclass looks its module up
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def written() -> set[Path]:
    """What the build writes, by where it would stand beside the pages."""
    return {HISTORY, *(STORY / f"{name}.html" for name in script(STORY / "make.py").REPORTS)}


def _place(source: Path) -> Path:
    return source.with_name("index.md") if source.name == "README.md" else source


def links_in_site(page: str, path: Path) -> str:
    """A page with its links as the site has them."""
    return _PIECE.sub(lambda m: m[0] if m["code"] else _link(m, path), _IN_THE_SITE.sub(r"\1", page))


def _link(match: re.Match[str], path: Path) -> str:
    picture, words, address = match["picture"], match["words"], match["address"]
    name, _, anchor = address.partition("#")
    if picture or "://" in address or not name:
        if not picture or path.parent != ROOT:
            return match[0]
        return f"![{words}]({name.removeprefix('docs/')})"
    target = (path.parent / name).resolve()
    if not target.exists() and target not in written():
        raise SystemExit(f"{path}: {address} does not exist")
    place = _in_site(target)
    if place is None:
        # a part of the repository that is no page
        relative_path = target.relative_to(ROOT).as_posix()
        return (
            f"`{relative_path}`"
            if words.strip("`") in (name, relative_path)
            else f"{words} (`{relative_path}`)"
        )
    shown = os.path.relpath(place, _in_site(path).parent)  # type: ignore[union-attr]
    if place.suffix == ".html":
        return f'<a href="{shown}">{words}</a>'
    return f"[{words}]({shown}{'#' + anchor if anchor else ''})"


def _in_site(target: Path) -> Path | None:
    """Where a file of the repository stands in the site."""
    relative = target.relative_to(ROOT).as_posix()
    if relative in OUTSIDE:
        return Path(OUTSIDE[relative])
    if relative == "docs/tiny.py":
        return Path("tiny.md")
    if relative == "docs/schemas":
        return Path("schemas.md")
    if DOCS not in target.parents or HERE in (target, *target.parents):
        return None
    relative_path = target.relative_to(DOCS)
    if target.is_dir():
        return relative_path / "index.md"
    return _place(relative_path)


def _contents(source: Path) -> str:
    if source == Path("README.md"):
        trees = [_toctree(pages, caption) for caption, pages in CONTENTS.items()]
        return "\n" + "\n".join(trees)
    if source == Path("tutorials/README.md"):
        return "\n" + _toctree([page for page in TUTORIALS if (DOCS / "tutorials" / f"{page}.md").exists()])
    if source == Path("instructions/README.md"):
        return "\n" + _toctree(["*"], glob=True)
    return ""


def _toctree(pages: list[str], caption: str = "", *, glob: bool = False) -> str:
    options = [":hidden:"] if caption or pages != ["*"] or glob else []
    options += [":glob:"] if glob else []
    options += [f":caption: {caption}"] if caption else []
    return "\n".join(["```{toctree}", *options, *pages, "```", ""])


def _as_page(path: Path) -> str:
    return (
        "# The idea in one file\n\n`docs/tiny.py` is nkilab in miniature: read it from top to bottom, run it "
        f"with `python docs/tiny.py`.\n\n```python\n{path.read_text('utf-8')}```\n"
    )


def _schemas() -> str:
    rows = [f"- [{path.stem}](schemas/{path.name})" for path in sorted((DOCS / "schemas").glob("*.json"))]
    return (
        "# Schemas\n\nOf what is printed with `--json`; the number is the version.\n\n"
        + "\n".join(rows)
        + "\n"
    )


def main(arguments: list[str]) -> int:
    """Build the site into the folder that is named; returns the exit code."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python docs/site/build.py OUT\n")
        return 2
    from sphinx.cmd.build import build_main

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        source.mkdir()
        staged(source)
        out = Path(arguments[0]).resolve()
        status = build_main(["-b", "html", "-W", "--keep-going", "-q", "-n", "-E", str(source), str(out)])
        script(STORY / "make.py").write_reports(out / STORY.relative_to(DOCS))
    sys.stdout.write(f"{out / 'index.html'}\n")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
