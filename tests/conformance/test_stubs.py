"""The tables of names and parameters against the public stubs, in a git repository of the SDK's pages.

NKILAB_SDK_PAGES names the repository (or a bare copy of it) that holds the commits named in the tables.
"""

from __future__ import annotations

import ast
import re
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

from nkilab.dialects.history import RELEASES, Release, at
from tests.conformance.conftest import folder_or_skip

LAST_OF_VERSION = {r.version: r for r in RELEASES}
WITH_STUBS = [r for v, r in LAST_OF_VERSION.items() if v != RELEASES[-1].version]
PLACES = ("general/nki/api/nki", "nki/api/nki")
MODULES = {"": "", **{f"{m}.": f"{m}/" for m in ("isa", "language", "collectives", "compiler")}}


def stub(repository: Path, release: Release, module: str) -> ast.Module | None:
    """The syntax tree of a module of the stubs of a release."""
    text = files("nkilab.dialects.history").joinpath(f"{release.name}.txt").read_text()
    matched = re.search(r"Stubs at (\w+)\.", text)
    assert matched
    for place in PLACES:
        name = f"{matched[1]}:{place}/{MODULES[module]}__init__.py"
        done = subprocess.run(
            ["git", "-C", str(repository), "show", name], capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            return ast.parse(done.stdout)
    return None


def parameters(function: ast.FunctionDef) -> list[tuple[str, bool, bool]]:
    """Name, whether it has a default, whether it may be given by position."""
    signature = function.args
    required = len(signature.args) - len(signature.defaults)
    by_place = [(a.arg, i >= required, True) for i, a in enumerate(signature.args)]
    by_word = zip(signature.kwonlyargs, signature.kw_defaults, strict=True)
    return by_place + [(a.arg, d is not None, False) for a, d in by_word]


@pytest.mark.conformance
@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("release", WITH_STUBS, ids=lambda r: r.version)
def test_every_function_of_a_stub_is_in_the_tables_with_its_parameters(release: Release, module: str) -> None:
    tree = stub(folder_or_skip("NKILAB_SDK_PAGES"), release, module)
    if tree is None:
        assert module in ("collectives.", "compiler.")
        return
    for function in tree.body:
        if not isinstance(function, ast.FunctionDef) or function.name.startswith("_"):
            continue
        event = at(module + function.name, release.version)
        assert event is not None, function.name
        if event.kind == "function":
            listed = [p for p in event.signature.parameters if p.is_listed]
            assert [(p.name, bool(p.default), p.is_positional) for p in listed] == parameters(function)
        else:
            assert event.kind == "word"
