"""The specification of seed 000."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Callable

import pytest

from nkilab.einsum.language.sources import source_of_file
from nkilab.einsum.language.spec import Spec, read_spec
from nkilab.einsum.written.generator import as_written
from tests.conformance.conftest import folder_or_skip
from tests.conformance.extract import notebook_cells

pytestmark = pytest.mark.conformance

# The three places that are marked as edited by hand: as printed, and what stood there before the edit.
EDITS = [
    ("                    BS_for_TP = BS.reshape((128, M0 // 128, N1, 128))\n", ""),
    ("BS_for_TP[:, tp_m01, tp_n1, :]", "BS[:, tp_m01, tp_n1, :]"),
    ("*[M0 // 128, N1 * 128]", "*[M0 // 128, N1, 128]"),
    (
        "                BS[:, bs_m01, :] = nl.load(BH[as_m1, bs_m01, :, as_n2, :])\n",
        "                for bs_n1 in nl.affine_range(N1):\n"
        "                    BS[:, bs_m01, bs_n1, :] = nl.load(BH[as_m1, bs_m01, :, as_n2, bs_n1, :])\n",
    ),
]


@pytest.fixture
def spec() -> Spec:
    (path,) = folder_or_skip("NKILAB_SEEDS").glob("000_*.txt")
    return read_spec(source_of_file(path))


def tokens(text: str) -> list[str]:
    kept = (tokenize.NL, tokenize.COMMENT)
    return [t.string for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type not in kept]


def test_as_written_is_the_printed_kernel_before_its_three_edits(
    spec: Spec, seed: Callable[[str], str]
) -> None:
    blocks = {b.heading: b.code for b in notebook_cells(seed("000"))}
    printed = blocks["Generated NKI function"]
    for edited, before in EDITS:
        assert printed.count(edited) == 1, edited
        printed = printed.replace(edited, before)
    assert tokens(as_written(spec)) == tokens(printed)
