"""Pages that are made from the program say what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from nkilab.ledger import own_rows
from nkilab.timing import MODEL_VERSION
from tests.command_line import SOURCE
from tests.docs.pages import DOCS, PAGES, name_of, script

reference = script(DOCS / "site" / "reference.py")
COMMAND = "python docs/site/reference.py {}; read the difference"


def test_the_page_of_the_command_line_is_that_of_the_program() -> None:
    assert (DOCS / "cli.md").read_text("utf-8") == reference.cli(), COMMAND.format("cli")


def test_the_page_of_advice_says_what_is_declared() -> None:
    assert (DOCS / "advice.md").read_text("utf-8") == reference.advice(), COMMAND.format("advice")


def test_the_page_has_every_verb_with_its_options() -> None:
    text = (DOCS / "cli.md").read_text("utf-8")
    verbs = [name for name, verb in reference.program.commands.items() if not verb.hidden]
    # the public interface: run, estimate, profile, check, einsum, tune, validate and others
    assert len(verbs) >= 15
    assert [verb for verb in verbs if f"\n## nkilab {verb}\n" not in text] == []
    assert "--html" in text.partition("## nkilab profile\n")[2].partition("\n## ")[0]


def test_the_page_of_the_ledger_is_of_this_model_and_has_every_whole_kernel() -> None:
    text = (DOCS / "validation.md").read_text("utf-8")
    assert f"says of timing model {MODEL_VERSION}: {len(own_rows())} published" in text.replace("\n", " ")
    assert [row.id for row in own_rows() if row.kind == "kernel" and f"| {row.id} |" not in text] == []
    assert (DOCS / reference.PICTURE).read_text("utf-8").startswith("<svg")


@pytest.mark.slow
def test_the_page_of_the_ledger_is_what_validate_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "DOCS", tmp_path)
    assert reference.validation(reference.measured()) == (DOCS / "validation.md").read_text("utf-8"), (
        COMMAND.format("validation")
    )
    assert (tmp_path / reference.PICTURE).read_text() == (DOCS / reference.PICTURE).read_text()


def test_a_wrong_name_is_told() -> None:
    done = subprocess.run(
        [sys.executable, DOCS / "site" / "reference.py", "clo"], capture_output=True, text=True, check=False,
        env={"PYTHONPATH": SOURCE},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (
        2, "usage: python docs/site/reference.py cli|advice|validation ...\n"
    )  # fmt: skip


# the site


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    for package in ("sphinx", "myst_parser", "furo", "sphinx_copybutton"):
        pytest.importorskip(package)
    done = subprocess.run(
        [sys.executable, DOCS / "site" / "build.py", tmp_path], capture_output=True, text=True, check=False
    )
    # without compiled code in the cache it says what it compiles
    said = [line for line in done.stderr.splitlines() if not line.startswith("nkilab: compiling ")]
    assert (done.returncode, said) == (0, [])
    for page in ("index", "start", "tiny", "cli", "tutorials/first-kernel", "instructions/nc_matmul"):
        assert "</article>" in (tmp_path / f"{page}.html").read_text("utf-8")
    for name in ("tiled", "fully-blocked"):
        assert "<title>" in (tmp_path / "optimise-a-matmul" / f"{name}.html").read_text("utf-8")
        link = f'<a href="optimise-a-matmul/{name}.html">'
        assert link in (tmp_path / "optimise-a-matmul.html").read_text("utf-8")
    assert '_images/history.svg"' in (tmp_path / "speed.html").read_text("utf-8")


build = script(DOCS / "site" / "build.py")
START = DOCS / "start.md"


@pytest.mark.parametrize(
    ("words", "in_site"),
    [
        ("[a](faq.md)", "[a](faq.md)"),
        ("[a](../README.md#time)", "[a](readme.md#time)"),
        ("[a](tutorials/README.md)", "[a](tutorials/index.md)"),
        ("[a](tiny.py)", "[a](tiny.md)"),
        ("[a](schemas/)", "[a](schemas.md)"),
        ("[a](../src/nkilab/isa)", "a (`src/nkilab/isa`)"),
        ("[a](optimise-a-matmul/tiled.html)", '<a href="optimise-a-matmul/tiled.html">a</a>'),
        ("[a](https://example.org/b)", "[a](https://example.org/b)"),
        ("<!-- in the site: [a](faq.md) -->", "[a](faq.md)"),
        ("<!-- a block -->", "<!-- a block -->"),
        ("`kernel[2](x)`", "`kernel[2](x)`"),
        ("```python\nkernel[2](x)\n```", "```python\nkernel[2](x)\n```"),
    ],
)
def test_a_link_leads_to_the_same_place_in_the_site(words: str, in_site: str) -> None:
    assert build.links_in_site(words, START) == in_site


def test_a_link_that_leads_nowhere_ends_the_build() -> None:
    with pytest.raises(SystemExit, match=r"nowhere\.md does not exist"):
        build.links_in_site("[a](nowhere.md)", START)


def test_what_the_build_writes_is_in_no_commit_and_shown_in_the_site_alone() -> None:
    for path in build.written():
        assert not path.exists(), path
        page, address = path.parent.with_suffix(".md"), f"]({path.relative_to(DOCS).as_posix()})"
        text = page.read_text("utf-8")
        assert address in text
        assert address not in re.sub(r"<!-- in the site: .*? -->", "", text, flags=re.S)


def test_every_page_is_in_the_table_of_contents() -> None:
    named = {entry.rpartition("<")[2].strip(" >") for pages in build.CONTENTS.values() for entry in pages}
    named |= {f"tutorials/{name}" if not name.startswith("..") else name[3:] for name in build.TUTORIALS}
    by_glob = ("docs/instructions/", "docs/decisions/")
    pages = [name_of(path) for path in PAGES if DOCS in path.parents]
    page_names = [name.removeprefix("docs/").removesuffix(".md").replace("README", "index") for name in pages
            if not name.startswith(by_glob)]  # fmt: skip
    assert set(page_names) - named == {"index"}
