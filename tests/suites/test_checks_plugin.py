"""The pytest plugin of the checks: a fixture, a marker and an option gate kernels."""

from __future__ import annotations

from tests.command_line import call, script

TESTS = """\
import numpy as np
import pytest
from kernels import holes, lost, whole

X = np.ones((128, 512), np.float32)

def test_the_fixture_passes_a_sound_kernel(nki_check):
    assert nki_check(whole, X) == []

def test_the_fixture_fails_a_wrong_one(nki_check):
    nki_check(holes, X)

@pytest.mark.filterwarnings("ignore")
def test_nothing_is_checked_without_a_marker():
    holes(X)

@pytest.mark.nki_check
def test_a_marked_test_is_checked():
    holes(X)

@pytest.mark.nki_check
def test_warnings_fail():
    lost(X)
"""
KERNELS = """\
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def whole(x):
    tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(tile, x)
    nisa.dma_copy(out, tile)
    return out

@nki.jit
def holes(x):
    tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(tile[0:64], x[0:64])
    nisa.dma_copy(out, tile)
    return out

@nki.jit
def lost(x):
    tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    total = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(tile, x)
    nisa.nc_matmul(total, tile[:, 0:128], tile, accumulate=False)
    nisa.nc_matmul(total, tile[:, 0:128], tile, accumulate=False)
    nisa.tensor_copy(tile, total)
    nisa.dma_copy(out, tile)
    return out
"""
# pytest finds the plugin of an installed nkilab by itself, under the name nkilab
PLUGIN = ("-q", "-p", "no:nkilab", "-p", "nkilab.suites.plugin", "-p", "no:cacheprovider", "test_kernels.py")


def run(folder, *options):
    script(folder, KERNELS, "kernels.py")
    script(folder, TESTS, "test_kernels.py")
    return call("run", "-m", "pytest", *PLUGIN, *options, folder=folder, python=("-m", "nkilab"))


def outcomes(done, word):
    return {line.split("::")[1].split()[0] for line in done.stdout.splitlines() if line.startswith(word)}


def test_fixture_and_marker_fail_tests_with_the_findings(tmp_path):
    done = run(tmp_path)
    assert outcomes(done, "FAILED") == {
        "test_the_fixture_fails_a_wrong_one",
        "test_a_marked_test_is_checked",
        "test_warnings_fail",
    }, done.stdout
    assert "3 failed, 2 passed" in done.stdout
    assert "nkilab check: 1 error, 0 warnings" in done.stdout
    assert "kernels.py:18: error: dma_copy reads [128, 512] of tile" in done.stdout
    assert done.returncode == 1


def test_the_option_checks_every_test(tmp_path):
    done = run(tmp_path, "--nki-check", "-k", "without_a_marker or sound")
    assert outcomes(done, "FAILED") == {"test_nothing_is_checked_without_a_marker"}
