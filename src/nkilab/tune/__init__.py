"""Searching the parameters of a kernel on the timing model; docs/tune.md shows it.

A new kind of parameter is a constructor in `space.py`, a new way to search a class in `samplers.py`, a new
thing to search an `Objective` with a `Space` of its own.
"""

from .autotuned import Autotuned as Autotuned
from .autotuned import autotune as autotune
from .executors import Inline as Inline
from .executors import Pooled as Pooled
from .executors import Work as Work
from .executors import processes as processes
from .journal import Journal as Journal
from .objective import Case as Case
from .objective import KernelObjective as KernelObjective
from .objective import Objective as Objective
from .outcome import Outcome as Outcome
from .samplers import Sampler as Sampler
from .samplers import sampler_named as sampler_named
from .space import Space as Space
from .space import read_space as read_space
from .space import space_of as space_of
from .study import Found as Found
from .study import search as search
from .verdict import Verdict as Verdict
from .verdict import verdict_of as verdict_of

__all__ = [
    "Autotuned", "Case", "Found", "Inline", "Journal", "KernelObjective", "Objective", "Outcome", "Pooled",
    "Sampler", "Space", "Verdict", "Work", "autotune", "processes", "read_space", "sampler_named", "search",
    "space_of", "verdict_of",
]  # fmt: skip
