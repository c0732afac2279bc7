"""What docs/einsum.md says beside its blocks, which tests/docs/ runs."""

from __future__ import annotations

import re
from pathlib import Path

from nkilab.einsum import compile as compile_einsum
from nkilab.einsum.checks.engines import INSTRUCTIONS

PAGE = (Path(__file__).parents[2] / "docs" / "einsum.md").read_text()


def test_the_specification_of_the_page_passes_its_tests() -> None:
    (spec,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.M | re.S)
    assert not [str(v) for v in compile_einsum(spec).verify() if not v.is_fine]


def test_the_page_names_every_instruction() -> None:
    assert all(name in PAGE for name in INSTRUCTIONS)
