"""The transformations that nkilab knows, in the order in which documents tell them."""

from . import blocking, contiguous_rows, dataflow, fusing, hoist, precision
from . import combine_products as combine_products
from . import psum_in_flight as psum_in_flight
from . import reduce_partitions as reduce_partitions
from . import single_buffer as single_buffer
from . import table_reload as table_reload

__all__ = ["blocking", "contiguous_rows", "dataflow", "fusing", "hoist", "precision"]
