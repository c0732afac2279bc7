"""The transformations that nkilab knows, in the order in which documents tell them."""

from . import accumulation, blocking, compound, contiguous_rows, dataflow, fusing, hoist
from . import combine_products as combine_products
from . import layouts as layouts
from . import ordering as ordering
from . import precision as precision
from . import psum_in_flight as psum_in_flight
from . import reduce_partitions as reduce_partitions
from . import single_buffer as single_buffer
from . import table_reload as table_reload

__all__ = ["accumulation", "blocking", "compound", "contiguous_rows", "dataflow", "fusing", "hoist"]
