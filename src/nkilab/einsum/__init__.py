"""Einsum in, kernel out: cascades of Einsums are compiled into readable NKI kernels."""

from __future__ import annotations

from . import report as report
from .compiled import CompiledEinsum
from .compiler import compile, verify
from .probes import Verdict
from .search import Search

__all__ = ["CompiledEinsum", "Search", "Verdict", "compile", "verify"]
