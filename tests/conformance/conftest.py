"""Folders that conformance tests read, and running host scripts as a user does.

NKILAB_SEEDS    folder with the five texts, 000_*.txt to 004_*.txt
NKILAB_SAMPLES  folder with the tutorial scripts of nki-samples, src/nki_samples/tutorials/tensor_addition
NKILAB_MXFP     folder with the scripts of the MXFP guide, nki/deep-dives/src/mxfp-matmul of the SDK's pages
NKILAB_SDK_PAGES git repository of the SDK's pages, with its history
NKILAB_EINSUM_CORPUS file with cascades of Einsums, einsum_corpus.yaml
NKILAB_MEASUREMENTS file with published measurements, measurements.yaml
NKILAB_BUILD_CASES file with verdicts of real toolchains, build_cases.yaml
NKILAB_COURSE   folder of solutions of the Stanford CS149 assignment, each with part1/ and part2/
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

TIME_LIMIT_S = 900
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def folder_in(variable: str) -> Path | None:
    """The folder that an environment variable names; None where it is unset."""
    named = os.environ.get(variable)
    return Path(named).resolve() if named else None


def file_or_skip(variable: str) -> Path:
    """The file that an environment variable names; skips the test where it is unset."""
    path = folder_in(variable)
    if path is None:
        pytest.skip(f"{variable} is not set; see tests/conformance/conftest.py")
    assert path.is_file(), f"{variable} is {path}, which is no file"
    return path


def folder_or_skip(variable: str) -> Path:
    """The folder that an environment variable names; skips the test where it is unset."""
    folder = folder_in(variable)
    if folder is None:
        pytest.skip(f"{variable} is not set; see tests/conformance/conftest.py")
    assert folder.is_dir(), f"{variable} is {folder}, which is no folder"
    return folder


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose framework is not installed."""
    for framework in ("torch", "jax"):
        if item.get_closest_marker(framework) and find_spec(framework) is None:
            pytest.skip(f"{framework} is not installed")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per solution of the course, or a single one that is skipped."""
    if "solution" not in metafunc.fixturenames:
        return
    folder = folder_in("NKILAB_COURSE")
    names = sorted(p.name for p in folder.iterdir() if (p / "part1").is_dir()) if folder else ["none"]
    metafunc.parametrize("solution", names, indirect=True)


@pytest.fixture
def solution(request: pytest.FixtureRequest) -> Path:
    """A folder with one published solution: part1/ and part2/."""
    return folder_or_skip("NKILAB_COURSE") / request.param


@pytest.fixture
def seed() -> Callable[[str], str]:
    """Reads one of the five texts by its number."""

    def read(number: str) -> str:
        (path,) = folder_or_skip("NKILAB_SEEDS").glob(f"{number}_*.txt")
        return path.read_text()

    return read


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs `nkilab run [options] script [arguments]` in `tmp_path` in a process of its own."""

    def call(
        script: str, *arguments: str, options: tuple[str, ...] = (), folder: Path = tmp_path
    ) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "nkilab", "run", *options, script, *arguments]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIME_LIMIT_S)

    return call


@pytest.fixture
def succeed(run: Run) -> Run:
    """As `run`; the script must exit with 0. Returns what it printed to standard output."""

    def call(script: str, *arguments: str, **keywords: object) -> str:
        done = run(script, *arguments, **keywords)
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return call
