"""The tensor additions over a grid from nki-samples; each script asserts its own result."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.conformance.conftest import Run, folder_or_skip

pytestmark = pytest.mark.conformance

SCRIPTS = {
    "spmd_tensor_addition_nki_kernels.py": "NKI and NumPy match",
    "spmd_tensor_addition_torch.py": "NKI and Torch match",
    "spmd_tensor_addition_jax.py": "NKI and JAX match",
    "spmd_multiple_nc_tensor_addition_nki_kernels.py": "NKI and NumPy match",
    "spmd_multiple_nc_tensor_addition_torch.py": "NKI and Torch match",
    "spmd_multiple_nc_tensor_addition_jax.py": "NKI and JAX match",
}
MARKS = {"torch.py": [pytest.mark.torch], "jax.py": [pytest.mark.jax]}


@pytest.mark.parametrize(
    "script", [pytest.param(s, marks=MARKS.get(s.rpartition("_")[2], []), id=s) for s in SCRIPTS]
)
def test_a_script_of_nki_samples_agrees_with_its_framework(script: str, tmp_path: Path, succeed: Run):
    shutil.copytree(folder_or_skip("NKILAB_SAMPLES"), tmp_path, dirs_exist_ok=True)
    assert succeed(script).splitlines()[-1] == SCRIPTS[script]
