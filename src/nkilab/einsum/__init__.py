"""Einsum in, kernel out: cascades of Einsums are compiled into readable NKI kernels."""

from __future__ import annotations

from .compiler import CompiledEinsum, compile, verify

__all__ = ["CompiledEinsum", "compile", "verify"]
