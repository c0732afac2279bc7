"""Searching where rules leave a choice: other block sizes, and either layout of an output that may have both.

Candidates come in a fixed order, so that a search of the same length finds the same kernel; the timing model
judges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from time import monotonic

from ..errors import NkilabError
from ..machine import Machine
from .language.ast import Access, Cascade, Einsum, Iterate, Step
from .plan.context import Context
from .plan.knobs import Knobs
from .plan.lower import lower
from .tree.nodes import Kernel

GROUP_BLOCKS = (0, 1, 2, 4, 8)
COLUMNS = (16384, 4096, 2048, 1024)
TRANSFERS = (1 << 20, 1 << 22, 1 << 18)
SHARES = (0.85, 0.6)


@dataclass(frozen=True)
class Found:
    """The best of what was tried.

    Args:
        kernel: its tree.
        ctx: its plan.
        latency_us: predicted.
        knobs: its choices.
        tried: what others would have given, one line each, the best first.
    """

    kernel: Kernel
    ctx: Context
    latency_us: float
    knobs: Knobs
    tried: tuple[str, ...]


def candidates() -> Iterator[Knobs]:
    """Choices to try: one thing changed at a time first, then all combinations."""
    default = Knobs()
    seen = set()
    single = [
        *(replace(default, group_blocks=n) for n in GROUP_BLOCKS),
        *(replace(default, most_columns=n) for n in COLUMNS),
        *(replace(default, transfer_bytes=n) for n in TRANSFERS),
        *(replace(default, share=s) for s in SHARES),
    ]
    every = (Knobs(*values) for values in product(GROUP_BLOCKS, COLUMNS, TRANSFERS, SHARES))
    for knobs in (*single, *every):
        if knobs not in seen:
            seen.add(knobs)
            yield knobs


def searched(
    cascade: Cascade,
    dtypes: Mapping[str, str],
    machine: Machine,
    name: str,
    title: str,
    seconds: float,
    judge: Callable[[Kernel], float],
) -> Found:
    """The kernel that the timing model likes best within some seconds.

    Args:
        cascade: with extents.
        dtypes: of inputs and outputs.
        machine: the chip.
        name, title: of the kernel.
        seconds: after which no further candidate is begun; the first, by the rules, is always tried.
        judge: predicts the latency of a tree in microseconds.

    A candidate that compiles to the same tree as one before is not timed again.
    """
    began = monotonic()
    best: Found | None = None
    known: dict[str, float] = {}
    tried: list[tuple[float, str]] = []
    for knobs in candidates():
        if best is not None and monotonic() - began > seconds:
            break
        try:
            kernel, ctx = lower(cascade, dtypes, machine, name, title, knobs)
        except NkilabError:
            if best is None:
                raise
            continue
        text = str(kernel.body)
        if text in known:
            continue
        known[text] = latency = judge(kernel)
        tried.append((latency, f"{knobs}: {latency:.1f} us"))
        if best is None or latency < best.latency_us:
            best = Found(kernel, ctx, latency, knobs, ())
    assert best is not None
    return replace(best, tried=tuple(line for _, line in sorted(tried)))


def with_axes_swapped(cascade: Cascade, output: str) -> Cascade:
    """The cascade whose output of two axes is stored the other way round."""
    tensor = cascade.tensors[output]
    assert len(tensor.ranks) == 2

    def turned(access: Access) -> Access:
        return replace(access, indices=access.indices[::-1]) if access.tensor == output else access

    def changed(einsum: Einsum) -> Einsum:
        operands = tuple(turned(o) if isinstance(o, Access) else o for o in einsum.operands)
        return replace(einsum, output=turned(einsum.output), operands=operands)

    steps: list[Step] = [
        replace(s, body=tuple(map(changed, s.body))) if isinstance(s, Iterate) else changed(s)
        for s in cascade.steps
    ]
    tensors = {**cascade.tensors, output: replace(tensor, ranks=tensor.ranks[::-1])}
    return replace(cascade, tensors=tensors, steps=tuple(steps))
