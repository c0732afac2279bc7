"""Transfers that move short runs."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from ...isa.declare import Step
from ..declare import Candidate, Subject, plural, transformation
from ..draft import with_steps
from ..subject import by_line, rows_where

# hw: below this a DMA engine spends more on descriptors than on bytes (DMA guide, "Descriptor size")
EFFICIENT_BYTES = 2048


@transformation(
    "contiguous_rows",
    moves_rows=False,
    relieves=("dma",),
    title="transfers move runs of 2 KiB and more",
    what="a transfer moves contiguous runs of less than 2 KiB, so that descriptors cost more than bytes",
    why="each run takes a descriptor, whose cost does not depend on its length",
    fix="load wider rows, or lay the tensor out so that a tile's rows are contiguous",
    source="DMA bandwidth guide, descriptor size",
)
def find(subject: Subject) -> Iterator[Candidate]:
    """Transfers in many runs, as if each run were of 2 KiB, or of all its bytes where these are fewer."""
    program = subject.program
    rows = rows_where(program, lambda form: any(map(_is_short, form.steps)))
    for line, own in by_line(program, rows).items():
        steps = [s for s in program.form_of(int(own[0])).steps if s.engine == "dma"]
        size = min(s.descriptor_bytes for s in steps)
        yield Candidate(
            line,
            f"{plural(len(own), 'transfer')} in runs of {size} bytes; DMA is efficient from "
            f"{EFFICIENT_BYTES} on",
            float(subject.spent[own].sum()),
            (("runs of 2 KiB", lambda own=own: subject.with_costs(with_steps(program, own, _widened))),),  # type: ignore[misc]
        )


def _is_short(step: Step) -> bool:
    return step.engine == "dma" and step.descriptors > 1 and step.descriptor_bytes < EFFICIENT_BYTES


def _widened(step: Step) -> Step:
    if not _is_short(step):
        return step
    size = min(EFFICIENT_BYTES, step.moved_bytes)
    return replace(step, descriptors=max(1, -(-step.moved_bytes // size)), descriptor_bytes=size)
