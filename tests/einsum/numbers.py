"""Kernels as they are printed without names for their sizes, to compare with sizes that a test works out."""

from __future__ import annotations

from nkilab.einsum.compiled import CompiledEinsum
from nkilab.einsum.compiler import PRINTERS


def numbers_of(kernel: CompiledEinsum) -> str:
    """The text of a kernel with numbers in the place of its constants."""
    assert kernel.tree is not None
    return PRINTERS[kernel.dialect](kernel.tree).text()
