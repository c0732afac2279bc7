"""Kernels as they are printed, one per level of cascades; NKILAB_UPDATE_GOLDEN=1 writes them anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import nkilab.einsum
from tests.einsum.cascades import CASES, Case

FOLDER = Path(__file__).parent / "golden"
CHOSEN = {case.level: case for case in reversed(CASES)}


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
@pytest.mark.parametrize("case", [CHOSEN[n] for n in sorted(CHOSEN)], ids=lambda c: f"level {c.level}")
def test_the_text_of_a_kernel_per_level(case: Case, dialect: str) -> None:
    source = nkilab.einsum.compile(case.cascade, sizes=case.extents(), dialect=dialect, name=case.name).source
    path = FOLDER / f"{case.level}_{case.name}_{dialect}.txt"
    if os.environ.get("NKILAB_UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(source)
    assert source == path.read_text()


@pytest.mark.corpus
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_every_einsum_is_named_in_a_comment_and_lines_are_short(case: Case) -> None:
    for dialect in ("nki", "neuronxcc"):
        kernel = nkilab.einsum.compile(case.cascade, sizes=case.extents(), dialect=dialect)
        source = kernel.source
        comments = "\n".join(line.strip() for line in source.splitlines() if line.strip().startswith("#"))
        left_out = {change.split()[0] for change in kernel.changes if " is left out: " in change}
        if case.level != 7:
            for einsum in case.cascade.einsums:
                if len(einsum.accesses) < 3 and einsum.name not in left_out:
                    assert f"{einsum.output} = " in comments, einsum
        assert max(map(len, source.splitlines())) <= 120
        compile(source, "kernel.py", "exec")
