"""The vector additions of a page of notes, with its slips."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.conftest import Run
from tests.conformance.extract import fenced_blocks

pytestmark = pytest.mark.conformance

# the page shows no imports
HEAD = """import numpy as np
from typing import Any as Tensor
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

"""
HOST = """
rng = np.random.default_rng(0)
a, b = (rng.standard_normal({size}).astype(np.float32) for _ in range(2))
out = {call}(a, b)
print(out.shape == a.shape and np.array_equal(out, a + b))
"""


@pytest.fixture
def blocks(seed: Callable[[str], str]) -> list[str]:
    """The page's code: vector_add, its call, vector_add_tiled, vector_add_stream."""
    code = [b.code for b in fenced_blocks(seed("001"))]
    starts = ["vector_add(", "nki.baremetal(vector_add)", "vector_add_tiled(", "vector_add_stream("]
    assert [s in f for s, f in zip(starts, code, strict=True)] == [True] * 4
    return code


def test_vector_add_runs_with_jit_and_with_baremetal(blocks: list[str], tmp_path: Path, succeed: Run):
    hosts = HOST.format(size=128, call="vector_add") + HOST.format(size=128, call="nki.baremetal(vector_add)")
    (tmp_path / "page.py").write_text(HEAD + blocks[0] + hosts)
    assert succeed("page.py").split() == ["True", "True"]


def test_the_pages_own_call_fails_in_numpy_at_the_line_of_its_slip(
    blocks: list[str], tmp_path: Path, run: Run
):
    # np.random.rand takes no dtype: the page was never run as it stands
    text = HEAD + blocks[0] + blocks[1]
    (tmp_path / "page.py").write_text(text)
    done = run("page.py")
    line = next(i for i, code in enumerate(text.splitlines(), 1) if code.startswith("a = np.random.rand"))
    assert done.returncode == 1
    assert f'page.py", line {line}, in <module>' in done.stderr
    assert "TypeError" in done.stderr.splitlines()[-1]
    assert "nkilab/" not in done.stderr


def test_a_vector_of_12800_is_refused_with_the_sentence_of_the_page(
    blocks: list[str], tmp_path: Path, run: Run
):
    text = HEAD + blocks[0]
    line = next(i for i, code in enumerate(text.splitlines(), 1) if "a = nl.load(a_vec)" in code)
    call = "vector_add(*np.zeros((2, 12800), np.float32))\n"
    (tmp_path / "page.py").write_text(text + call)
    done = run("page.py")
    assert done.returncode == 1
    assert done.stderr == (
        f"page.py:{line}: load: number of partition in src[12800, 1] of 'load' "
        "exceed architecture limitation of 128.\n"
        "  src = a_vec: float32[12800, 1] in hbm\n  hint: load tiles of 128 rows\n"
        "  key: err_num_partition_exceed_arch_limit\n"
    )
    (tmp_path / "page.py").write_text(f"{text}try:\n    {call}except ValueError:\n    print('caught')\n")
    assert run("page.py").stdout == "caught\n"


def test_an_undefined_name_in_a_kernel_names_its_line(blocks: list[str], tmp_path: Path, run: Run):
    text = HEAD + blocks[2]
    (tmp_path / "page.py").write_text(text + HOST.format(size=256, call="vector_add_tiled"))
    done = run("page.py")
    line = next(i for i, code in enumerate(text.splitlines(), 1) if "ROW_CHUNK" in code)
    assert done.returncode == 1
    assert f'page.py", line {line}, in vector_add_tiled' in done.stderr
    assert done.stderr.splitlines()[-1] == "NameError: name 'ROW_CHUNK' is not defined"
    assert "nkilab/" not in done.stderr


def test_vector_add_tiled_runs_where_the_name_is_defined(blocks: list[str], tmp_path: Path, succeed: Run):
    host = "\nROW_CHUNK = 128\n" + HOST.format(size=1280, call="vector_add_tiled")
    (tmp_path / "page.py").write_text(HEAD + blocks[2] + host)
    assert succeed("page.py") == "True\n"


def test_vector_add_stream_runs(blocks: list[str], tmp_path: Path, succeed: Run):
    (tmp_path / "page.py").write_text(HEAD + blocks[3] + HOST.format(size=51200, call="vector_add_stream"))
    assert succeed("page.py") == "True\n"
