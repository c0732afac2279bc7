"""The transformations that nkilab knows, in the order in which documents tell them."""

from . import added_products, blocking, buffer_waits, compound, costs, dataflow, fusing, hoist
from . import ordering as ordering
from . import precision as precision
from . import sharing as sharing
from . import transpositions as transpositions

__all__ = ["added_products", "blocking", "buffer_waits", "compound", "costs", "dataflow", "fusing", "hoist"]
