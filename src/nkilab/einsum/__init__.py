"""Einsum in, kernel out: cascades of Einsums are compiled into readable NKI kernels."""

from __future__ import annotations
