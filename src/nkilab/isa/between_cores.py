"""Instructions between the two cores of a logical core.

What a declaration says here is one core's side. The other core enters where a program runs: `compute` of
`Sendrecv` gets what the partner sent as its src.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ..errors import RuleError, UnsupportedError
from ..tiles.convert import cast
from . import common_rules
from .costs import MIN_INTERVAL_CYCLES, transfer_step
from .declare import EVERY_DTYPE, Attr, Example, Immediate, In, Instruction, Out, Spelled, Step, rule

BARRIER = "nki.isa.core_barrier"
ENGINES = ("gpsimd", "tensor", "vector", "scalar")
# elements of a partition that GpSimdE's own DMA swaps at once: 1024 bytes of 32-bit types, 512 of 16-bit and
# 256 of 8-bit ones
GPSIMD_ELEMENTS = 256


def _engine(spelled: Any) -> str:
    word = str(getattr(spelled, "name", spelled))
    if word == "sync":
        raise UnsupportedError(
            "engine is sync, whose instruction stream is not modelled",
            hint="leave engine= out, or pass nisa.engine.gpsimd",
        )
    if word == "unknown":
        return "gpsimd"
    if word not in ENGINES:
        raise RuleError(f"engine is {spelled!r}; it must be one of {', '.join(ENGINES)}")
    return word


def _cores(spelled: Any) -> tuple[int, ...]:
    try:
        # published kernels write (0) for a launch on one core
        cores = (int(spelled),) if np.ndim(spelled) == 0 else tuple(int(core) for core in spelled)
    except (TypeError, ValueError):
        cores = ()
    if cores not in ((0,), (0, 1)):
        raise RuleError(f"cores is {spelled!r}; it must be (0, 1), or (0,) on one core", source=BARRIER)
    return cores


class Sendrecv(Instruction):
    """Send src to another core of the logical core and receive into dst what that core sends, bit for bit.

    All cores come to the call with the same `pipe_id` before any goes on. src and dst may be one tile.
    Through GpSimdE's own DMA (`dma_engine`) a partition holds at most 256 elements.
    """

    engines = ("dma",)
    src = In("P F*", ("sbuf",), EVERY_DTYPE)
    dst = Out("P F*", ("sbuf",), EVERY_DTYPE)
    send_to_rank = Immediate(allowed="0 or 1")
    recv_from_rank = Immediate(allowed="0 or 1")
    pipe_id = Immediate(allowed="an integer")
    dma_engine = Attr("dma", ("dma", "gpsimd_dma"))
    example = Example(
        # of a partner that sends the same
        {"src": [[1, 2], [3, 4]]},
        {"dst": [[1, 2], [3, 4]]},
        {"send_to_rank": 1, "recv_from_rank": 1, "pipe_id": 0},
    )

    chip_has_it = common_rules.chip_has_it(3, "sendrecv needs NeuronCore-v3 or newer, which trn1 is not")

    @rule(
        "dst and src have different types; they must have the same", source=", constraints",
        broken_by={"src.dtype": "bfloat16"}, hint="cast one of them with tensor_copy first",
    )  # fmt: skip
    def types_agree(self) -> bool:
        return self.dst.dtype is self.src.dtype

    @rule(
        "dst and src have different shapes; they must have the same", source=", constraints",
        broken_by={"src.shape": (16, 4, 4)}, hint="reshape one of them",
    )  # fmt: skip
    def shapes_agree(self) -> bool:
        return self.dst.shape == self.src.shape

    @rule(
        "a partition holds more than 256 elements; dma_engine gpsimd_dma moves 1024 bytes of 32-bit types, "
        "512 of 16-bit and 256 of 8-bit ones",
        source=", dma_engine",
        broken_by={"dma_engine": "gpsimd_dma", "F": 257},
        hint="use dma_engine.dma, or several calls",
    )
    def gpsimd_moves_little(self) -> bool:
        return self.dma_engine == "dma" or self.sizes["F*"] <= GPSIMD_ELEMENTS

    def compute(self, src: Any, dst: Any, send_to_rank: Any, recv_from_rank: Any, pipe_id: Any) -> None:
        cast(dst, self.dst.dtype, src, self.src.dtype)

    def cost(self) -> list[Step]:
        # not published. Both ways are timed as a transfer within the chip; the exchange of semaphores is not
        widening = 2.0 if self.dma_engine == "dma" else 4.0
        return [transfer_step(self.dst, self.src, label="DMA", widening=widening)]


class CoreBarrier(Instruction):
    """Wait until every core of the logical core came to this call.

    What a core wrote to `data` before is there for all cores afterwards. Only `engine` waits.
    """

    engines = ENGINES
    # Read and written, so that it stands between the accesses before and after. The page asks for shared HBM;
    # published kernels that the vendor compiles also pass a tile in SBUF
    data = Out("*", ("hbm", "sbuf"))
    cores = Spelled(_cores, "(0, 1), or (0,) on one core")
    engine = Spelled(_engine, ", ".join(ENGINES), "gpsimd")
    example = Example({"data": [[1, 2], [3, 4]]}, {"data": [[1, 2], [3, 4]]}, {"cores": (0, 1)})
    # no byte of data moves
    only_orders: ClassVar[bool] = True

    chip_has_it = common_rules.chip_has_it(3, "core_barrier needs NeuronCore-v3 or newer, which trn1 is not")

    @property
    def reads_dst(self) -> bool:
        return True

    @property
    def written_part(self) -> Any:
        return np.zeros((1,) * len(self.data.shape), np.bool_)

    def compute(self, data: Any) -> None:
        return

    def cost(self) -> list[Step]:
        # not published: a shortest instruction of the engine and the wait for a semaphore
        machine, engine = self.machine, self.engine
        busy = MIN_INTERVAL_CYCLES / machine[f"{engine}_clock_ghz"] + machine["semaphore_ns"]
        return [Step(engine, "CORE_BARRIER", busy_ns=busy, widening=4.0)]
