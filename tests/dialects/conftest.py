"""What tests of several versions share."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import pytest

import nkilab
from nkilab.api import WORLD


@pytest.fixture
def served(monkeypatch, request):
    """The modules of `nki` under the version that the test asks for, inside an activation."""
    monkeypatch.setattr(WORLD, "_noticed", set())
    with nkilab.activate(nki=getattr(request, "param", "")):
        names = {n: importlib.import_module(f"nki{n}") for n in ("", ".isa", ".language")}
        yield SimpleNamespace(nki=names[""], nisa=names[".isa"], nl=names[".language"])
