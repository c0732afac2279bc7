"""What a program computes, one row at a time."""

from .step import compute_row as compute_row
from .step import elements_of as elements_of
from .step import execute as execute
from .step import put as put
from .step import written_arrays as written_arrays
from .threads import LARGE as LARGE
from .threads import is_at_once as is_at_once
from .threads import one_blas_thread as one_blas_thread
from .threads import open_threads as open_threads
