"""What to do next: a catalogue of transformations, and the search for those that pay for a kernel."""

from ..place import Plan
from ..timing import Timeline
from ..trace.program import Program
from ..views.guidance import Guidance
from ..views.summary import Summary
from . import catalogue as catalogue
from .declare import CATALOGUE as CATALOGUE
from .distances import distances_of
from .subject import Subject as Subject
from .subject import subject_of as subject_of
from .trials import advice_of as advice_of


def guidance_of(
    written: Program, program: Program, placed: Plan, timeline: Timeline, summary: Summary
) -> Guidance:
    """What to do next with a kernel, and how far its limits are."""
    if not len(program):
        return Guidance()
    subject = subject_of(written, program, placed, timeline)
    return Guidance(advice_of(subject), distances_of(subject, summary))
