"""docs/optimise-a-matmul.md and what it is made of."""

from __future__ import annotations

import re
import sys
from importlib import util
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "optimise-a-matmul.md"


@pytest.fixture(scope="module")
def story() -> ModuleType:
    spec = util.spec_from_file_location("story", DOCS / "optimise-a-matmul" / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    # a dataclass looks its module up
    sys.modules["story"] = module
    spec.loader.exec_module(module)
    return module


def test_every_block_of_the_page_is_filled() -> None:
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"<!-- ([^/].*?) -->\n(.*?)<!-- /\1 -->", text, re.S)
    assert len(blocks) == text.count("<!-- /")
    assert [name for name, content in blocks if not content.strip()] == []


@pytest.mark.parametrize("page", [PAGE, DOCS / "profiles.md"], ids=lambda path: path.name)
def test_pictures_and_pages_that_are_named_exist(page: Path) -> None:
    # what stands in the site alone is held by tests/docs/test_reference.py
    text = re.sub(r"<!-- in the site: .*? -->", "", page.read_text(encoding="utf-8"))
    named = re.findall(r"\]\((?!https?://|#)([^)#]+)", text)
    assert [name for name in named if not (page.parent / name).exists()] == []


def test_pictures_are_xml() -> None:
    pictures = sorted((DOCS / "optimise-a-matmul").glob("*.svg"))
    assert len(pictures) == 9
    for picture in pictures:
        assert ElementTree.parse(picture).getroot().tag.endswith("svg")


def test_published_figures_are_those_of_the_guide(story: ModuleType) -> None:
    # kernel optimization guide: percent that DMA, TensorE and, of the last, VectorE are active
    found = {name: stage.published[1:] for name, stage in story.STAGES.items()}
    assert found["tiled"] == (99.93, 87.28, None)
    assert found["hoisted"] == (99.73, 99.85, None)
    assert found["blocked"] == (95.70, 99.52, None)
    assert found["fully-blocked"] == (21.54, 99.50, 10.55)


def test_a_block_is_replaced_and_the_text_around_it_stays(story: ModuleType) -> None:
    page = "a\n<!-- x -->\nold\n<!-- /x -->\nb\n"
    assert story.filled(page, {"x": r"new \1"}) == "a\n<!-- x -->\nnew \\1\n<!-- /x -->\nb\n"
    with pytest.raises(AssertionError, match="has 0 blocks y"):
        story.filled(page, {"y": ""})


@pytest.mark.slow
def test_the_table_is_what_the_tool_predicts(story: ModuleType) -> None:
    with story.activate():
        from nkilab.ledger.kernels import matmul

        profiles = {name: story.made(stage, matmul) for name, stage in story.STAGES.items()}
    assert story.table(profiles) in PAGE.read_text(encoding="utf-8")
