"""Searching the parameters of a kernel on the timing model; docs/tune.md shows it.

A new kind of parameter is a constructor in `space.py`, a new way to search a class in `samplers.py`, a new
thing to search an `Objective` with a `Space` of its own.
"""

from .autotuned import Autotuned, autotune
from .executors import Inline, Pooled, Work, processes
from .journal import Journal
from .objective import Case, KernelObjective, Objective
from .outcome import Outcome
from .samplers import Sampler, sampler_named
from .space import Space, read_space, space_of
from .study import Found, search
from .verdict import Verdict, verdict_of

__all__ = [
    "Autotuned", "Case", "Found", "Inline", "Journal", "KernelObjective", "Objective", "Outcome", "Pooled",
    "Sampler", "Space", "Verdict", "Work", "autotune", "processes", "read_space", "sampler_named", "search",
    "space_of", "verdict_of",
]  # fmt: skip
