"""Bad input ends in one clear message, with the exit code of the design, and nothing half-written."""

from __future__ import annotations

import os

import numpy as np
import pytest

from nkilab.errors import FileError
from nkilab.files import neff
from tests.command_line import SOURCE, call, script
from tests.dialects.spellings import nki1 as nki
from tests.dialects.spellings import nl1 as nl
from tests.dialects.spellings import program_of

BETA1 = """\
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    return out

nki.baremetal(kernel, save_neff_name="k.neff", save_trace_name="k.ntff"){call}
"""
NKI = """\
import numpy as np
import nki
import nki.language as nl
import nki.isa as nisa

@nki.jit
def kernel(x):
    tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out

kernel{call}
"""
TYPES = (
    "float32, tfloat32, bfloat16, float16, float8_e4m3, float8_e5m2, float8_e4m3fn, int32, int16, int8, "
    "uint32, uint16, uint8, bool, float8_e8m0fnu, float8_e5m2_x4, float8_e4m3fn_x4, float4_e2m1fn_x4"
)
CASES = [
    (BETA1, "(np.ones((200, 4), np.float32))",
     "host.py:8: load: number of partition in src[200, 4] of 'load' exceed architecture limitation of 128.\n"
     "  src = x: float32[200, 4] in hbm\n  hint: load tiles of 128 rows\n  key: "
     "err_num_partition_exceed_arch_limit\n"),
    (BETA1, "(np.ones((4, 4)))",
     f"host.py:11: kernel: argument x: dtype is float64; it must be one of {TYPES}\n"
     "  hint: cast it on the host before the call\n"),
    (BETA1, "()", "host.py:11: kernel: the arguments do not fit the kernel: missing a required argument: "
     "'x'\n  hint: kernel takes x\n"),
    (NKI, "(np.ones((200, 4), np.float32))",
     "host.py:8: ndarray: number of partitions 200 exceed architecture limitation of 128\n"
     "  hint: split the partition axis into tiles of 128\n  source: trn1 architecture guide, SBUF\n"
     "  key: err_num_partition_exceed_arch_limit\n"),
    (NKI, "(np.ones((4, 4), np.int64))",
     f"host.py:14: kernel: argument x: dtype is int64; it must be one of {TYPES}\n"
     "  hint: cast it on the host before the call\n"),
    (NKI, "(np.ones((4, 0), np.float32))",
     "host.py:14: kernel: argument x has shape [4, 0]; a tensor has at least one element and axis\n"),
    (NKI, "[0](np.ones((4, 4), np.float32))",
     "host.py:14: kernel: the grid is [0]; extents are positive integers\n"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "ending", "message"), CASES, ids=[c[1] for c in CASES])
def test_a_script_with_bad_input_ends_in_one_message_and_leaves_no_file(tmp_path, text, ending, message):
    path = script(tmp_path, text.replace("{call}", ending))
    done = call("run", path, folder=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", message)
    assert [p.name for p in tmp_path.iterdir()] == ["host.py"]


def test_the_same_script_with_good_input_writes_its_files(tmp_path):
    path = script(tmp_path, BETA1.replace("{call}", "(np.ones((4, 4), np.float32))"))
    assert call("run", path, folder=tmp_path).returncode == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["host.py", "k.neff", "k.ntff"]


def test_an_error_that_a_script_catches_is_not_told(tmp_path):
    text = BETA1.replace("nki.baremetal", "try:\n    nki.baremetal").replace(
        "{call}", "(np.ones((200, 4), np.float32))"
    )
    path = script(tmp_path, text + "except ValueError as error:\n    print(str(error).splitlines()[0])\n")
    done = call("run", path, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "host.py:8: load: number of partition in src[200, 4] of 'load' exceed architecture limitation of "
        "128.\n"
    )


@pytest.mark.parametrize("content", [b"x = '\xff'\n", b"x = 1\0\n", b"if True:\nx = 1\n", b"x = (\n"])
def test_a_script_that_python_cannot_read_is_a_syntax_error_without_frames_of_ours(tmp_path, content):
    path = tmp_path / "host.py"
    path.write_bytes(content)
    for done in (call("run", path), call("estimate", f"{path}:kernel")):
        assert (done.returncode, done.stdout) == (1, "")
        assert "SyntaxError" in done.stderr or "IndentationError" in done.stderr
        assert SOURCE not in done.stderr
        assert "this is a bug of nkilab" not in done.stderr


@nki.jit
def plain(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    return out


def test_a_write_that_fails_leaves_the_file_that_was_there(tmp_path, monkeypatch):
    path = tmp_path / "k.neff"
    path.write_bytes(b"before")

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(FileError) as caught:
        neff.write(path, program_of(plain, np.ones((2, 2), np.float32)))
    assert str(caught.value) == f"{path} cannot be written: no space left on device"
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("k.neff", b"before")]
