"""One run of one kernel, and everything that can be seen of it: tables that the views draw."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from msgspec import Struct

from ..place.plan import Plan
from ..timing.timeline import Timeline
from ..timing.work import Work, work_of
from ..trace.program import Program
from .cores import Together
from .guidance import Guidance
from .lanes import Lanes, lanes_of
from .lines import LineCost, lines_of
from .nodes import Nodes, nodes_of
from .occupancy import Occupancy, occupancy_of
from .path import Path, path_of
from .roofline import Roofline, roofline_of
from .source import SourceFile, sources_of, tile_names
from .stalls import Stalls, stalls_of
from .summary import Summary
from .traffic import Traffic, traffic_of


class Run(Struct, frozen=True, eq=False, dict=True):
    """What views read. Every table is made when it is first looked at."""

    program: Program  # as the compiler leaves it
    plan: Plan  # of the program
    timeline: Timeline  # when everything happens
    summary: Summary  # metrics
    interval_us: tuple[float, float]  # between which the latency is believed to lie
    notes: tuple[str, ...] = ()  # what the numbers leave out
    # all cores of the launch, of which this is the slowest; None if there is one
    together: Together | None = None
    guide: Callable[[], Guidance] = Guidance  # looks for what to do next

    @property
    def runs(self) -> tuple[tuple[str, Run], ...]:
        """Cores that do the same, by what they are called, with a run of one; this run if there is one."""
        if self.together is None:
            return (("", self),)
        return tuple((one.name, one.estimate.run) for one in self.together.cores)

    @cached_property
    def nodes(self) -> Nodes:
        """What the timeline says of each node."""
        return nodes_of(self.timeline)

    @cached_property
    def work(self) -> Work:
        """What was timed: costs, and who waits for whom."""
        return work_of(self.program, self.plan)

    @cached_property
    def lanes(self) -> Lanes:
        """Engines and DMA queues as the vendor's profiler draws them."""
        return lanes_of(self.timeline)

    @cached_property
    def path(self) -> Path:
        """The critical path."""
        return path_of(self.program.machine, self.timeline, self.nodes)

    @cached_property
    def stalls(self) -> Stalls:
        """Where the time of each engine went."""
        return stalls_of(self.timeline, self.nodes, self.program.machine["kernel_start_ns"])

    @cached_property
    def traffic(self) -> Traffic:
        """Transfers."""
        return traffic_of(self.timeline, self.work)

    @cached_property
    def lines(self) -> tuple[LineCost, ...]:
        """Source lines, the costliest first."""
        return lines_of(self.program, self.timeline, self.path, self.traffic, self.stalls.before_ns)

    @cached_property
    def occupancy(self) -> Occupancy:
        """What lies in SBUF and PSUM when."""
        return occupancy_of(self.plan, self.timeline)

    @cached_property
    def roofline(self) -> Roofline:
        """Roofs of the chip and the point of the kernel."""
        return roofline_of(self.program.machine, self.summary)

    @cached_property
    def guidance(self) -> Guidance:
        """What to do next, and how far the limits are."""
        return self.guide()

    @cached_property
    def sources(self) -> dict[str, SourceFile]:
        """Source files by path."""
        return sources_of(self.program)

    @cached_property
    def tile_names(self) -> list[str]:
        """Per storage its name."""
        return tile_names(self.program, self.sources)
