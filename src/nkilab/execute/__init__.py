"""What a program computes, one row at a time."""

from .batch import Call as Call
from .joined_products import Factor as Factor
from .shared_memory import shared_memory as shared_memory
from .step import compute_row as compute_row
from .step import elements_of as elements_of
from .step import execute as execute
from .step import lend as lend
from .step import put as put
from .threads import Log as Log
from .threads import Threads as Threads
from .threads import is_at_once as is_at_once
from .threads import one_blas_thread as one_blas_thread
from .threads import open_threads as open_threads
