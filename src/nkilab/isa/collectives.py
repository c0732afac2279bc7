"""Collectives: what the ranks of a launch do together, each with one row.

What a declaration says here is one rank's side: `compute` is what a rank gets whose partners bring the same
as it does. What they really bring enters where programs run: `combined` is what a group makes of it, once,
and `part` what a rank gets of that. A call over several tensors is a row per pair of them.

`members` of a row is the place of this rank in its group, then the ranks of the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ..errors import RuleError
from ..machine import Span
from ..tiles.convert import cast, store, widen
from ..tiles.tile import HBM
from . import common_rules
from .attributes import Flag, Immediate, Spelled
from .declaration_parts import Example, Step
from .declare import ANY_DTYPE, EVERY_DTYPE, In, Instruction, Out, Rule, rule
from .links import GATHER, REDUCE, exchanging, gathering, passing
from .operators import operator_named

PAGE = "nki.collectives"
BOTH, HBM_ONLY = ("hbm", "sbuf"), ("hbm",)
REDUCING = ("add", "minimum", "maximum")
NUMBERS = tuple(dtype for dtype in ANY_DTYPE if dtype)
CAST = "cast one of them with tensor_copy first"
Brought = Sequence[tuple[np.ndarray, ...]]
_PAIR = {"ranks": 2, "members": (0, 0, 1)}


def _count(spelled: Any) -> int:
    if not isinstance(spelled, int) or spelled < 1:
        raise RuleError(f"ranks is {spelled!r}; it must be a number of ranks")
    return spelled


def _axis(spelled: Any) -> int:
    if spelled not in (0, 1):
        raise RuleError(
            f"collective_dim is {spelled!r}; it must be 0, or 1 for an all_gather in sbuf", source=PAGE
        )
    return int(spelled)


class Collective(Instruction, is_abstract=True):
    """What all collectives declare: how many ranks take part, how far apart they are, and who they are."""

    module: ClassVar[str] = "collectives"
    engines = ("dma",)
    ranks = Spelled(_count, "a number of ranks")
    span = Spelled(
        lambda spelled: Span(*spelled), "chips of a node, nodes, ranks that share a chip's links", Span()
    )
    members = Immediate(allowed="the place of this rank in its group, then the ranks of the group")

    def combined(self, brought: Brought) -> Any:
        """What a group makes of what its ranks bring: nothing, of what a rank sends to another."""
        return brought


TYPES_AGREE = common_rules.types_agree(
    "src", "dst", "src and dst have different types; they must have the same",
    broken_by={"src.dtype": "bfloat16"}, hint=CAST,
)  # fmt: skip
# the operator is one that collectives reduce with
OP_REDUCES = Rule(
    "op is not add, minimum or maximum", ", op", {"op": "multiply"}, lambda form: form.op.name in REDUCING
)


def _memories_agree(**changes: Any) -> Rule:
    """src and dst lie in one memory; `changes` are what else the counterexample needs."""
    return Rule(
        "src and dst lie in two memories; a collective stays in hbm or in sbuf", "",
        {"src.memory": "sbuf", **changes}, lambda form: form.src.memory == form.dst.memory,
    )  # fmt: skip


def _axis_is_the_first(what: str) -> Rule:
    """Parts follow each other along the first axis."""
    return Rule(
        f"collective_dim is 1; of {what} it is 0", ", collective_dim", {"collective_dim": 1},
        lambda form: form.collective_dim == 0,
    )  # fmt: skip


def members_only(members: tuple[int, ...], *arrays: Any) -> Brought:
    """What all ranks bring if each brings the same."""
    return [arrays] * (len(members) - 1)


def reduced(op: Any, arrays: Sequence[np.ndarray], dtype: Any) -> np.ndarray:
    """Arrays of one type reduced in the order of the ranks, in float32."""
    total = widen(arrays[0], dtype)
    for array in arrays[1:]:
        total = op.function(total, widen(array, dtype))
    return total


def bytes_of(layout: Any) -> int:
    return int(layout.size * layout.itemsize)


class AllReduce(Collective):
    """Reduce src over the ranks of a group, element by element; every rank gets the result in dst.

    In float32, in the order of the group, rounded once.
    """

    src = In("*", BOTH, NUMBERS)
    dst = Out("*", BOTH, NUMBERS)
    op = Spelled(operator_named, "add, minimum, maximum")
    example = Example({"src": [[1, 2], [3, 4]]}, {"dst": [[2, 4], [6, 8]]}, {"op": "add", **_PAIR})

    op_reduces = OP_REDUCES
    memories_agree = _memories_agree()
    types_agree = TYPES_AGREE

    @rule("src and dst have different shapes; they must have the same", broken_by={"src.shape": (16, 8)})
    def shapes_agree(self) -> bool:
        return self.src.shape == self.dst.shape

    def combined(self, brought: Brought) -> np.ndarray:
        """The result, in float32."""
        return reduced(self.op, [src for (src,) in brought], self.src.dtype)

    def part(self, combined: np.ndarray, members: tuple[int, ...]) -> np.ndarray:
        """Every rank gets all of it."""
        return combined

    def compute(self, src: Any, dst: Any, members: Any) -> None:
        store(dst, self.combined(members_only(members, src)), self.dst.dtype)

    def cost(self) -> list[Step]:
        # a reduce-scatter, then an all-gather
        return [gathering(self, "ALL_REDUCE", bytes_of(self.src), REDUCE, GATHER)]


class AllGather(Collective):
    """Put src of all ranks of a group side by side along an axis, in the order of the group, in every dst."""

    src = In("*", BOTH, EVERY_DTYPE)
    dst = Out("*", BOTH, EVERY_DTYPE)
    collective_dim = Spelled(_axis, "0, or 1 in sbuf")
    smallest = {"dst.shape": (32, 16)}
    example = Example(
        {"src": [[1, 2], [3, 4]]}, {"dst": [[1, 2], [3, 4], [1, 2], [3, 4]]}, {"collective_dim": 0, **_PAIR}
    )

    memories_agree = _memories_agree()
    types_agree = TYPES_AGREE

    @rule(
        "collective_dim is 1; of tensors in hbm it is 0",
        source=", collective_dim",
        broken_by={"collective_dim": 1},
    )
    def axis_is_served(self) -> bool:
        return self.collective_dim == 0 or self.src.memory != HBM

    @rule(
        "tiles in sbuf are not 2-dimensional; those of an all_gather are",
        source=", collective_dim",
        broken_by={
            "src.memory": "sbuf",
            "dst.memory": "sbuf",
            "src.shape": (16, 4, 4),
            "dst.shape": (32, 4, 4),
        },
        hint="reshape them to [partitions, elements]",
    )
    def tiles_are_flat(self) -> bool:
        return self.src.memory == HBM or len(self.src.shape) == 2 == len(self.dst.shape)

    @rule(
        "dst does not hold the src of every rank of the group",
        broken_by={"dst.shape": (16, 16)},
        hint="make dst as many times longer along collective_dim as the group has ranks",
    )
    def dst_holds_all(self) -> bool:
        if self.src.memory == HBM:
            # along the first axis parts follow each other whatever the shapes
            return bool(self.dst.size == self.ranks * self.src.size)
        wanted = list(self.src.shape)
        wanted[self.collective_dim] *= self.ranks
        return self.dst.shape == tuple(wanted)

    def combined(self, brought: Brought) -> np.ndarray:
        """All that ranks bring, side by side."""
        together = np.concatenate([src for (src,) in brought], self.collective_dim)
        return together.reshape(self.dst.shape)

    part = AllReduce.part

    def compute(self, src: Any, dst: Any, members: Any) -> None:
        cast(dst, self.dst.dtype, self.combined(members_only(members, src)), self.src.dtype)

    def cost(self) -> list[Step]:
        return [gathering(self, "ALL_GATHER", bytes_of(self.dst), GATHER)]


class ReduceScatter(Collective):
    """Reduce src over the ranks of a group; each rank gets its part of the result along the first axis.

    In float32, in the order of the group, rounded once.
    """

    src = In("*", BOTH, NUMBERS)
    dst = Out("*", BOTH, NUMBERS)
    collective_dim = Spelled(_axis, "0")
    op = Spelled(operator_named, "add, minimum, maximum")
    smallest = {"src.shape": (32, 16)}
    example = Example(
        {"src": [[1, 2], [3, 4]]}, {"dst": [[2, 4]]}, {"collective_dim": 0, "op": "add", **_PAIR}
    )

    op_reduces = OP_REDUCES
    memories_agree = _memories_agree()
    types_agree = TYPES_AGREE
    axis_is_served = _axis_is_the_first("a reduce_scatter")

    @rule(
        "src does not hold one dst for every rank of the group",
        broken_by={"src.shape": (48, 16)},
        hint="make src as many times longer along its first axis as the group has ranks",
    )
    def src_holds_all(self) -> bool:
        return self.src.size == self.ranks * self.dst.size and self.src.shape[0] % self.ranks == 0

    def combined(self, brought: Brought) -> np.ndarray:
        """The result of the whole group, in float32, by place in the group."""
        total = reduced(self.op, [src for (src,) in brought], self.src.dtype)
        return total.reshape(self.ranks, *self.dst.shape)

    def part(self, combined: np.ndarray, members: tuple[int, ...]) -> np.ndarray:
        """A rank gets the part at its place."""
        return combined[members[0]]

    def compute(self, src: Any, dst: Any, members: Any) -> None:
        store(dst, self.part(self.combined(members_only(members, src)), members), self.dst.dtype)

    def cost(self) -> list[Step]:
        return [gathering(self, "REDUCE_SCATTER", bytes_of(self.src), REDUCE)]


class AllToAll(Collective):
    """Send each rank of a group its part of src along the first axis; dst has the parts in their order."""

    src = In("*", HBM_ONLY, EVERY_DTYPE)
    dst = Out("*", HBM_ONLY, EVERY_DTYPE)
    collective_dim = Spelled(_axis, "0")
    example = Example({"src": [[1, 2], [3, 4]]}, {"dst": [[1, 2], [1, 2]]}, {"collective_dim": 0, **_PAIR})

    types_agree = TYPES_AGREE
    axis_is_served = _axis_is_the_first("an all_to_all")

    @rule(
        "src and dst have different sizes, or their first axis no equal part for every rank of the group",
        broken_by={"src.shape": (17, 16), "dst.shape": (17, 16)},
    )
    def parts_are_equal(self) -> bool:
        return self.src.size == self.dst.size and self.src.shape[0] % self.ranks == 0

    def combined(self, brought: Brought) -> np.ndarray:
        """What ranks bring, by place of the rank that sends, then of the one that gets it."""
        return np.stack([src.reshape(self.ranks, -1) for (src,) in brought])

    def part(self, combined: np.ndarray, members: tuple[int, ...]) -> np.ndarray:
        """A rank gets what all send to its place."""
        return combined[:, members[0]].reshape(self.dst.shape)

    def compute(self, src: Any, dst: Any, members: Any) -> None:
        cast(
            dst, self.dst.dtype, self.part(self.combined(members_only(members, src)), members), self.src.dtype
        )

    def cost(self) -> list[Step]:
        return [exchanging(self, "ALL_TO_ALL", bytes_of(self.src))]


class CollectivePermute(Collective):
    """Receive into dst the src of the rank that is paired with this one.

    `sender` is the place of that rank in the group; `is_implicit` is a ring that the group makes.
    """

    # in sbuf the implicit form alone, which stands in a ring
    src = In("*", BOTH, EVERY_DTYPE)
    dst = Out("*", BOTH, EVERY_DTYPE)
    is_implicit = Flag()
    sender = Immediate(0, "the place in the group of the rank that sends")
    example = Example({"src": [[1, 2], [3, 4]]}, {"dst": [[1, 2], [3, 4]]}, _PAIR)

    @rule(
        "src or dst is in sbuf; tensors of a collective_permute are in hbm",
        broken_by={"src.memory": "sbuf", "dst.memory": "sbuf"},
        hint="use collective_permute_implicit, or copy it to hbm first",
    )
    def memory_is_served(self) -> bool:
        return self.is_implicit or self.src.memory == HBM == self.dst.memory

    memories_agree = _memories_agree(is_implicit=True)
    types_agree = TYPES_AGREE

    @rule("src and dst hold different numbers of elements", broken_by={"src.shape": (16, 8)})
    def sizes_agree(self) -> bool:
        return self.src.size == self.dst.size

    def part(self, combined: Brought, members: tuple[int, ...], sender: int) -> np.ndarray:
        """A rank gets what its sender brings."""
        return combined[sender][0].reshape(self.dst.shape)

    def compute(self, src: Any, dst: Any, members: Any, sender: Any) -> None:
        cast(dst, self.dst.dtype, src.reshape(dst.shape), self.src.dtype)

    def cost(self) -> list[Step]:
        return [passing(self, "PERMUTE", bytes_of(self.src))]


class CollectivePermuteImplicitReduce(Collective):
    """Send op(src0, src1) to the next rank of a ring and receive into dst what the rank before sends.

    In float32, rounded once. `sender` is the place in the group of the rank before.
    """

    src0 = In("*", BOTH, NUMBERS)
    src1 = In("*", BOTH, NUMBERS)
    dst = Out("*", BOTH, NUMBERS)
    op = Spelled(operator_named, "add, minimum, maximum")
    sender = Immediate(0, "the place in the group of the rank that sends")
    example = Example({"src0": [[1, 2]], "src1": [[10, 20]]}, {"dst": [[11, 22]]}, {"op": "add", **_PAIR})

    op_reduces = OP_REDUCES

    @rule(
        "src0, src1 and dst lie in two memories; a collective stays in hbm or in sbuf",
        broken_by={"src1.memory": "sbuf"},
    )
    def memories_agree(self) -> bool:
        return self.src0.memory == self.dst.memory == self.src1.memory

    @rule(
        "src0, src1 and dst have different types; they must have the same",
        broken_by={"src1.dtype": "bfloat16"},
        hint=CAST,
    )
    def types_agree(self) -> bool:
        return self.src0.dtype is self.dst.dtype is self.src1.dtype

    @rule("src0, src1 and dst hold different numbers of elements", broken_by={"src1.shape": (16, 8)})
    def sizes_agree(self) -> bool:
        return self.src0.size == self.dst.size == self.src1.size

    def part(self, combined: Brought, members: tuple[int, ...], sender: int) -> np.ndarray:
        """A rank gets what its sender makes of its two tensors, in float32."""
        first, second = combined[sender]
        total = reduced(self.op, [first.reshape(-1), second.reshape(-1)], self.src0.dtype)
        return total.reshape(self.dst.shape)

    def compute(self, src0: Any, src1: Any, dst: Any, members: Any, sender: Any) -> None:
        store(dst, self.part([(src0, src1)], members, 0), self.dst.dtype)

    def cost(self) -> list[Step]:
        return [passing(self, "PERMUTE_REDUCE", bytes_of(self.dst), REDUCE)]
