"""The page of the best and the worst kernels of Einsums shows those of the table that is kept."""

from __future__ import annotations

import hashlib
import re

import pytest

from tests.docs.pages import DOCS, script
from tests.einsum.baseline import read
from tests.einsum.renaming import shape_of

kernels = script(DOCS / "site" / "kernels.py")
COMMAND = (
    "run `python docs/site/kernels.py` after `python -m tests.einsum.baseline --update`, and read the page"
)


def sections() -> dict[str, str]:
    """The text of each kernel's section, by its name, in the order of the page."""
    _, *parts = re.split(r"^### ", kernels.PAGE.read_text("utf-8"), flags=re.MULTILINE)
    return {part.partition("\n")[0]: " ".join(part.split()) for part in parts}


def test_the_page_has_the_best_and_the_worst_kernels_of_the_table() -> None:
    rows = {key.split()[0]: row for key, row in read()[1].items() if key.endswith(kernels.CHOSEN)}
    order = sorted(rows, key=lambda name: rows[name].latency / rows[name].roofline)
    shown = sections()
    assert list(shown) == [*order[:3], *order[:-4:-1]], COMMAND
    for name, text in shown.items():
        assert f"{rows[name].latency / rows[name].roofline:.2f} times it." in text, COMMAND


def test_the_texts_of_the_page_are_those_that_the_table_weighs() -> None:
    page = kernels.PAGE.read_text("utf-8")
    texts = dict(re.findall(r"^### (\w+)\n.*?^```python\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL))
    rows = read()[1]
    assert len(texts) == 6
    for name, text in texts.items():
        digest = hashlib.sha256(" ".join(shape_of(text)).encode()).hexdigest()[:10]
        assert digest == rows[f"{name} {kernels.CHOSEN}"].text, COMMAND


@pytest.mark.slow
def test_the_page_is_what_the_compiler_makes() -> None:
    assert kernels.page() == kernels.PAGE.read_text("utf-8"), COMMAND
