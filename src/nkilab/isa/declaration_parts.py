"""What a declaration states besides its members: limits, steps of its cost, its example, a fresh result."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from msgspec import Struct, field

from ..errors import RuleError
from ..tiles.dtypes import DType
from ..tiles.tile import Layout


class Stage(Struct, frozen=True):
    """A part of a collective whose bytes take one kind of link; one stage begins when the other is over."""

    link: str  # see `machine.LINKS`
    moved_bytes: int  # what a rank receives, which is as much as it sends
    latency_ns: float  # of its hops
    bytes_per_ns: float  # the most that the rank's links carry each way; 0 for no limit
    engines: int  # how many of its DMA engines move them
    engine_bytes: int  # what these read, or write: of a reduction both of its terms
    hbm_bytes: int  # what crosses its HBM


class Step(Struct, frozen=True):
    """What one engine does for an instruction: one bar in the profiler."""

    engine: str  # "tensor", "vector", "scalar", "gpsimd" or "dma"
    label: str  # opcode as the vendor's profiler names it
    busy_ns: float = 0.0  # how long the engine accepts nothing else
    latency_ns: float = 0.0  # from then until the result is visible; DMA: hops on the way of a collective
    # of what runs beside the work of its engine, how long it keeps the next of its kind waiting
    hidden_ns: float = 0.0
    descriptors: int = 0  # DMA only: elements of the transfer list
    descriptor_bytes: int = 0  # DMA only: contiguous bytes each moves
    stages: tuple[Stage, ...] = ()  # of a collective, one after another
    table: str = ""  # scalar only: the function table that must be loaded
    is_wide: bool = False  # vector only: whether it runs in a performance mode, more than an element a cycle
    # tensor only: a bit for each [32, 32] of the systolic array that it occupies; 0 for all
    array_tile: int = 0
    widening: float = 1.0  # factor on the interval where the cost is assumed, 1 where it has a source

    @property
    def moved_bytes(self) -> int:
        """What its transfers move; the last descriptor of a collective may be shorter."""
        if self.stages:
            return sum(stage.moved_bytes for stage in self.stages)
        return self.descriptors * self.descriptor_bytes


class Example(Struct, frozen=True):
    """Numbers written by hand, not by `compute`: shown on the page and checked by the tests."""

    operands: Mapping[str, Any]  # what it reads, by name: nested lists or a number
    expected: Mapping[str, Any]  # operands written, by name
    # attributes and values, by name, as a user spells them
    attributes: Mapping[str, Any] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)  # types of operands that are not float32
    # what the first lanes of fields of its register file hold afterwards, by field
    registers: Mapping[str, Any] = field(default_factory=dict)


class Fresh(Struct, frozen=True):
    """A result that does not exist yet: what a value-returning call creates."""

    shape: tuple[int, ...]
    dtype: DType
    memory: str


def sizes_along(layout: Layout, axes: tuple[str, ...]) -> tuple[int, ...]:
    """Sizes of a layout under axis names; a star or a number at the end takes all axes that remain."""
    first = layout.shape[0] if layout.shape else 1
    if len(axes) == 1:
        return (first,)
    shape = layout.shape if len(layout.shape) > 1 else (*layout.shape, 1)
    if axes[-1].endswith("*") or axes[-1].isdigit():
        return (*shape[: len(axes) - 1], prod(shape[len(axes) - 1 :]))
    if len(shape) != len(axes):
        raise RuleError(
            f"an operand is {len(shape)}-dimensional {list(shape)}; it must be [{', '.join(axes)}]",
            key="err_exceed_max_supported_dimension",
        )
    return shape


def partition_step(count: int) -> int:
    """What the first of `count` partitions is a multiple of, for the compute engines.

    Source: trn1 architecture guide, start partition.
    """
    return 32 if count <= 32 else 64 if count <= 64 else 128


class Limit(Struct, frozen=True):
    """The size of `axis` is at most the machine's `constant`, in the hint {most}."""

    axis: str
    constant: str
    source: str
    key: str = "err_size_of_dimension_exceed_arch_limit"
    hint: str = ""

    def hint_for(self, *most: int) -> str:
        """The hint where that much is allowed, on one chip or on each of several."""
        return self.hint.format(most=" or ".join(map(str, dict.fromkeys(most))))


# What every instruction with an axis P keeps that declares no limit of it.
PARTITIONS = Limit("P", "partitions", "trn1 architecture guide, SBUF", "err_num_partition_exceed_arch_limit")
