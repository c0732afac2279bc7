"""Profiles: estimates that show themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from io import StringIO
from typing import Any

from .api import Estimate, as_kernel, estimate_programs, machine_for
from .launch import launch
from .trace.program import Program
from .views.record import profile_dict
from .views.text import print_profile


@dataclass(frozen=True)
class Profile(Estimate):
    """An estimate with views: what the time went to, as text, page, trace, tables and plain data.

    Args:
        traced: the programs of the launch as the kernel wrote them, one per core.
    """

    traced: tuple[Program, ...] = field(default=(), repr=False)

    def text(self) -> str:
        """The profile as text, 100 columns wide."""
        out = StringIO()
        print_profile(self.run, out)
        return out.getvalue()

    def to_profile(self) -> dict[str, Any]:
        """The profile as plain data, ready for JSON: schema nkilab.profile/1."""
        return profile_dict(self.run)


def profile(kernel: Any, *args: Any, target: str = "", **kwargs: Any) -> Profile:
    """Time a kernel from the shapes of its arguments and keep everything that can be seen of it.

    Args:
        kernel: decorated by nki.jit of either spelling, with or without a grid.
        args: arrays or specs, and whatever else the kernel takes.
        target: chip; see `api.machine_for` for the default.
        kwargs: likewise.
    """
    held = as_kernel(kernel)
    launched = launch(held, args, kwargs, machine_for(held, target), has_data=False)
    return profile_of(launched.programs)


def profile_of(programs: Sequence[Program]) -> Profile:
    """The profile of the programs of a launch: of the slowest, each timed alone."""
    made = estimate_programs(programs)
    own = {f.name: getattr(made, f.name) for f in fields(Estimate)}
    return Profile(**own, traced=tuple(programs))
