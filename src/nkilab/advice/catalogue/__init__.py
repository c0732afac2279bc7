"""The transformations that nkilab knows, in the order in which documents tell them."""

from . import (
    accumulation,
    blocking,
    compound,
    costs,
    dataflow,
    fusing,
    hoist,
    layouts,
    ordering,
    precision,
    waits,
)

__all__ = [
    "accumulation", "blocking", "compound", "costs", "dataflow", "fusing", "hoist", "layouts", "ordering",
    "precision", "waits",
]  # fmt: skip
