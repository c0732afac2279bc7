"""What a program does wrong: checks over programs, plans, timelines and text. A family is a module."""

from __future__ import annotations

from collections.abc import Iterator

from ..dialects.kernel import Kernel
from . import capacity, initialisation, loops, lost_work, memory_kinds, psum, races, unread
from . import carried_sums as carried_sums
from . import comments as comments
from . import device_loops as device_loops
from . import faults as faults
from . import form_limits as form_limits
from . import front_end as front_end
from . import numerics as numerics
from . import operand_forms as operand_forms
from . import replay as replay
from . import restricted_language as language
from .evidence import Evidence
from .finding import Finding
from .graph import Graph
from .sources import Sources
from .watch import Watcher


def examine(evidence: Evidence, watcher: Watcher, graph: Graph) -> Iterator[Finding]:
    """What all families find in one launch, family by family."""
    raced = list(races.find(graph))
    # what one core reads too early has not been written in this run, or has: timing decides
    cores = {finding.site for finding in raced} | {finding.other_site for finding in raced}
    early = {
        (track.rank, read.row)
        for track in evidence.tracks
        for read in track.marks.unwritten
        if len(evidence.tracks) > 1 and track.site(read.row) in cores
    }
    yield from initialisation.find(evidence, early | {(a.rank, a.row) for a in watcher.accumulated})
    yield from raced
    yield from psum.find(evidence, watcher.accumulated)
    yield from loops.find(evidence)
    yield from lost_work.find(evidence)
    yield from unread.find(evidence)
    yield from operand_forms.find(evidence)
    yield from form_limits.find(evidence)
    yield from device_loops.find(evidence)
    yield from memory_kinds.find(evidence)
    yield from examine_text(evidence.kernel, evidence.sources, evidence.generation)
    yield from capacity.find(evidence)


def examine_shapes(evidence: Evidence) -> Iterator[Finding]:
    """Errors that a launch shows where only shapes are known and nothing was computed; quick."""
    if races.may_fail(evidence):
        yield from races.find(Graph(evidence))
    yield from initialisation.holes(evidence)
    yield from psum.crossings(evidence)
    yield from loops.find(evidence)


def examine_text(kernel: Kernel, sources: Sources, generation: int) -> Iterator[Finding]:
    """What is found in the text of a kernel alone, which is compiled for a generation of chips."""
    yield from language.find(kernel, sources, generation)
