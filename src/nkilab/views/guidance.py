"""What to do next, as data that every view shows: advice with its gains, and distances to limits."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

# how it is known that a change leaves the results as they are
Equality = Literal["computed", "proved", "by formula", "assumed"]
_EQUAL: dict[Equality, str] = {
    "computed": "computed on random numbers: equal results",
    "proved": "values proved equal",
    "by formula": "equal by the formulas of the instructions",
    "assumed": "timed by its costs alone, results not compared",
}


class Advice(Struct, frozen=True):
    """One change of a kernel that pays, by simulation."""

    id: str  # of the transformation; `nkilab explain ID` tells more
    where: str  # "file.py:41", the line that the change begins with
    message: str  # what is the matter, values first
    gain_us: float  # microseconds that it saves: the difference of two simulations
    interval_us: tuple[float, float]  # between which the gain is believed to lie, eight times of ten
    edit: str  # what was changed for the second simulation
    fix: str  # one thing to do, imperative
    source: str  # document and heading
    rounds: bool = False  # whether results change, by rounding alone
    # path, line: the same place in full
    path: str = ""
    line: int = 0
    # transformations that it makes besides, one after the other: alone each saves less
    combined_with: tuple[str, ...] = ()
    also_called: tuple[str, ...] = ()  # other transformations that make the same program of it
    equal: Equality = "assumed"  # how it is known that results stay as they are, but for rounding
    places: tuple[str, ...] = ()  # other lines where the same change gains about as much, as `where` has them
    adds_cores: bool = False  # whether it takes another core; limits are those of one

    def to_dict(self) -> dict[str, object]:
        """Ready for JSON."""
        return {
            "id": self.id, "where": self.where, "message": self.message, "gain_us": self.gain_us,
            "interval_us": list(self.interval_us), "edit": self.edit, "fix": self.fix, "source": self.source,
            "rounds": self.rounds, "combined_with": list(self.combined_with),
            "also_called": list(self.also_called), "equal": self.equal, "places": list(self.places),
        }  # fmt: skip

    @property
    def name(self) -> str:
        """Its transformation, or transformations."""
        return " + ".join((" or ".join((self.id, *self.also_called)), *self.combined_with))

    def lines(self) -> tuple[str, str, str]:
        """What is the matter, what it gains and what to do, as text."""
        low, high = self.interval_us
        return (
            f"{self.where}: {self.message} [{self.name}]",
            f"  gain: {self.gain_us:.2f} us by simulation, {low:.2f} to {high:.2f}: {self.edit} "
            f"({_EQUAL[self.equal]}{', but for rounding' if self.rounds else ''})",
            f"  hint: {self.fix}",
        )


class Distance(Struct, frozen=True):
    """How far a kernel is from a limit."""

    limit: str  # its name, as the documents call it
    time_us: float  # the latency at the limit
    share: float  # the latency of the kernel over that, at least 1
    separates: str  # what lies between the two

    def to_dict(self) -> dict[str, object]:
        """Ready for JSON."""
        return {
            "limit": self.limit, "time_us": self.time_us, "times": self.share, "separates": self.separates,
        }  # fmt: skip


class Guidance(Struct, frozen=True):
    """What to do next."""

    advice: tuple[Advice, ...] = ()  # the list, most gain first
    distances: tuple[Distance, ...] = ()  # from the kernel to each limit
    why_none: str = ""  # why none was looked for; "" where it was

    @property
    def sentence(self) -> str:
        """The first thing to do, or that there is none."""
        if self.advice and not self.advice[0].adds_cores:
            first = self.advice[0]
            low, high = first.interval_us
            return (
                f"First thing to try: {first.fix} ({first.name}, {first.where}); it saves "
                f"{first.gain_us:.2f} us, {low:.2f} to {high:.2f} us."
            )
        if self.why_none:
            return self.why_none
        besides = ", but for a second core" if self.advice else ""
        roofline = next((d for d in self.distances if d.limit == "roofline"), None)
        if roofline is not None and roofline.share <= 1.04:
            return f"It is within 4 % of its roofline: nothing here pays{besides}."
        return (
            f"No change that nkilab knows would save more time here than its model can tell apart{besides}."
        )
