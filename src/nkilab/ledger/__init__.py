"""Published measurements, kernels of the same structure, and how far the timing model is off.

`rows/` holds one row per measurement, `kernels/` our own kernels; docs/ledger.md describes both.
"""

from .fitting import fit as fit
from .fitting import leave_one_structure_out as leave_one_structure_out
from .predict import Judged as Judged
from .predict import Predictor as Predictor
from .predict import judged as judged
from .reading import ledger_rows as ledger_rows
from .reading import left_out as left_out
from .reading import own_rows as own_rows
from .row import Row as Row
from .score import Compared as Compared
from .score import Score as Score
from .score import score_of as score_of
