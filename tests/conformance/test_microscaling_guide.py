"""The kernels and the host script of the MXFP matrix multiplication guide, as published."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.conftest import folder_or_skip

pytestmark = [pytest.mark.conformance, pytest.mark.torch]


def test_every_product_of_the_guide_is_near_its_reference(
    succeed: Callable[..., str], tmp_path: Path
) -> None:
    for source in folder_or_skip("NKILAB_MXFP").glob("mx_*.py"):
        shutil.copy(source, tmp_path)
    output = succeed("mx_toplevel.py", options=("--target", "trn3"))
    # the guide compares with rtol = atol = 0.05, results in bfloat16
    assert output.count("np.allclose pass? True") == 8
    assert "np.allclose pass? False" not in output
