"""What Python shows of an error that leaves nkilab: the user's lines, no frame of nkilab."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from pathlib import Path

import numpy as np
import pytest

import nkilab
from nkilab.errors import NkilabError
from nkilab.tracebacks import is_bug, is_users_file, leave_out_ours, public

HERE = Path(__file__).name
KERNELS = """
import neuronxcc.nki as nki1
import neuronxcc.nki.language as nl1
import nki
import nki.isa as nisa
import nki.language as nl


@nki1.jit
def loads(x):
    return nl1.load(x)


@nki.jit
def makes(x):
    nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)


@nki.jit
def breaks(x):
    return {}["nothing here"]


def told_otherwise(x):
    try:
        makes(x)
    except ValueError as error:
        raise RuntimeError("mine") from error
"""
WIDE = np.zeros((256, 4), np.float32)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """A module with kernels of both spellings that fail on 256 rows."""
    path = tmp_path_factory.mktemp("user") / "user_kernels.py"
    path.write_text(KERNELS)
    namespace = {"__name__": "user_kernels"}
    with nkilab.activate():
        exec(compile(KERNELS, str(path), "exec"), namespace)
    return namespace


def shown(error):
    """File and function of each line that Python prints of an error, those of what it came from first."""
    chained = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    before = shown(chained) if chained is not None else []
    return before + [(Path(e.filename).name, e.name) for e in traceback.extract_tb(error.__traceback__)]


def raised(action):
    with pytest.raises(Exception) as raised:
        action()
    lines = shown(raised.value)
    return raised.value, [line for line in lines if line[0] != HERE]


WAYS = {
    "launch": lambda k: k(WIDE),
    "simulate": lambda k: nkilab.simulate(k)(WIDE),
    "estimate": lambda k: nkilab.estimate(k, WIDE),
    "profile": lambda k: nkilab.profile(k, WIDE),
    "ranks": lambda k: nkilab.launch(k, 2)(WIDE),
}


@pytest.mark.parametrize("name", ["loads", "makes"])
@pytest.mark.parametrize("way", WAYS)
def test_an_error_of_a_kernel_shows_its_line_and_the_callers(kernels, name, way):
    error, lines = raised(lambda: WAYS[way](kernels[name]))
    assert isinstance(error, NkilabError)
    assert lines == [("user_kernels.py", name)]


@pytest.mark.parametrize("way", WAYS)
def test_an_error_of_the_users_own_shows_his_lines_too(kernels, way):
    error, lines = raised(lambda: WAYS[way](kernels["breaks"]))
    assert type(error) is KeyError
    assert lines == [("user_kernels.py", "breaks")]


def test_what_the_users_error_came_from_is_shown_without_our_frames(kernels):
    _, lines = raised(lambda: kernels["told_otherwise"](WIDE))
    assert lines == [
        ("user_kernels.py", "told_otherwise"),
        ("user_kernels.py", "makes"),
        ("user_kernels.py", "told_otherwise"),
    ]


USES = {
    "check": lambda k: nkilab.check(k["loads"], WIDE, replay=-1),
    "not a kernel": lambda k: nkilab.estimate(3),
    "spec": lambda k: nkilab.spec((0,), "float32"),
    "topology": lambda k: nkilab.Topology(3, 2),
    "per rank": lambda k: nkilab.per_rank(3),
    "activate": lambda k: nkilab.activate("0.0"),
    "compile": lambda k: nkilab.einsum.compile("mk,kn->q"),
    "verify": lambda k: nkilab.einsum.verify(abs, 3),
    "autotune": lambda k: nkilab.tune.autotune({}),
    "read_space": lambda k: nkilab.tune.read_space(Path("nothing.yaml")),
    "jit": lambda k: k["nki"].jit(3),
    "jit of Beta 1": lambda k: k["nki1"].jit(mode="jax")(3),
    "benchmark": lambda k: k["nki1"].benchmark(iters=1)(3),
    "an instruction outside of a kernel": lambda k: k["nisa"].dma_copy(WIDE, WIDE),
    "a function outside of a kernel": lambda k: k["nl1"].load(WIDE),
    "an operator outside of a kernel": lambda k: k["nl"].exp(WIDE),
    "a word that is no function": lambda k: k["nl"].bypass(),
    "a loop outside of a kernel": lambda k: list(k["nl1"].affine_range(2)),
    "a misspelt name": lambda k: k["nl"].laod,
    "an unknown keyword": lambda k: k["nl1"].load(WIDE, eviction=1),
}


@pytest.mark.parametrize("use", USES)
def test_a_wrong_use_shows_the_users_line_alone(kernels, use):
    error, lines = raised(lambda: USES[use](kernels))
    assert isinstance(error, NkilabError)
    assert lines == []


def test_arguments_that_do_not_bind_are_the_callers_fault():
    error, lines = raised(lambda: nkilab.estimate())
    assert str(error) == "estimate() missing 1 required positional argument: 'kernel'"
    assert lines == []


def test_a_bug_of_nkilab_keeps_its_frames():
    namespace = {}
    # as if it stood in the package
    exec(compile("def broken():\n    assert False", "<nkilab broken>", "exec"), namespace)
    error, lines = raised(public(namespace["broken"]))
    assert is_bug(error)
    assert lines == [("tracebacks.py", "call"), ("<nkilab broken>", "broken")]


def test_how_nkilab_found_out_is_not_shown():
    namespace = {"NkilabError": NkilabError}
    text = "def asked():\n    try:\n        {}['k']\n    except KeyError:\n        raise NkilabError('no k')"
    exec(compile(text, "<nkilab asked>", "exec"), namespace)
    error, lines = raised(public(namespace["asked"]))
    assert error.__suppress_context__
    assert lines == []


def test_all_frames_are_shown_where_the_user_asks(kernels, monkeypatch):
    monkeypatch.setenv("NKILAB_FULL_TRACE", "1")
    with pytest.raises(NkilabError) as raised:
        kernels["makes"](WIDE)
    files = [e.filename for e in traceback.extract_tb(raised.value.__traceback__)]
    assert any(not is_users_file(name) for name in files)
    leave_out_ours(raised.value)
    assert len(traceback.extract_tb(raised.value.__traceback__)) == len(files)


def test_a_plain_script_prints_its_own_lines_and_the_message(tmp_path):
    (tmp_path / "wide.py").write_text(
        KERNELS + "\nimport numpy\nmakes(numpy.zeros((256, 4), numpy.float32))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(nkilab.__file__).parents[1])}
    code = "import nkilab.autostart, runpy; runpy.run_path('wide.py')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    places = [line.strip() for line in lines if line.startswith("  File ") and "<frozen" not in line]
    assert places == [
        'File "<string>", line 1, in <module>',
        'File "wide.py", line 31, in <module>',
        'File "wide.py", line 16, in makes',
    ]
    assert lines[-4] == (
        "nkilab.errors.LimitError: wide.py:16: ndarray: number of partitions 256 exceed "
        "architecture limitation of 128"
    )
