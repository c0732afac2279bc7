"""Colours of opcodes: the same opcode has the same colour in every report and picture."""

from __future__ import annotations

from collections.abc import Sequence

# Positions in the palettes of pages and pictures; what is not listed takes what is left.
_KNOWN = {
    "DMA": 0,
    "LDWEIGHTS": 1,
    "MATMUL": 2,
    "MATMUL LOW": 2,
    "MATMUL HIGH": 8,
    "TENSOR_COPY": 4,
    "TENSOR_TENSOR": 5,
    "ACTIVATE": 3,
    "MEMSET": 9,
    "SPILL_SAVE": 7,
    "SPILL_RELOAD": 6,
    "LOAD_AGAIN": 6,
    "ACT_TABLE_LOAD": 11,
    "TENSOR_SCALAR": 10,
}
PALETTE = (
    "#3b6fb6", "#d9822b", "#3f9a5f", "#b0499c", "#8a6d3b", "#2790a0", "#c9463d", "#7a68c7", "#7f9427",
    "#b7791f", "#5b7083", "#d0557f",
)  # fmt: skip


def label_colours(labels: Sequence[str]) -> list[int]:
    """Per opcode its position in a palette."""
    taken = {_KNOWN[label] for label in labels if label in _KNOWN}
    free = [place for place in range(len(PALETTE)) if place not in taken] or list(range(len(PALETTE)))
    others = [label for label in labels if label not in _KNOWN]
    return [_KNOWN[label] if label in _KNOWN else free[others.index(label) % len(free)] for label in labels]
