"""Collectives whose ranks send as many elements as a tensor of counts says when they run.

`metadata` is [rows, ranks]: what this rank sends, from where, what it received (written unless
`recv_counts_known`), and where that goes (only with `has_rdispls`). In SBUF it lies in one partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from ..errors import UseError
from ..machine import Span
from ..tiles.tile import HBM
from .collectives import HBM_ONLY, TYPES_AGREE, Brought, Collective, bytes_of, members_only
from .declare import EVERY_DTYPE, Example, Flag, In, Out, Rule, Step, rule
from .links import GATHER, exchanging, gathering

COUNTS = ("uint32",)
SENT, SENT_FROM, RECEIVED, RECEIVED_AT = range(4)
Piece = tuple[int, np.ndarray]


def _metadata_has_its_shape(rows: str, *, broken: tuple[int, ...]) -> Rule:
    """Metadata has a row per what it tells, three or, with has_rdispls, four; `broken` is a shape without."""

    @rule(
        f"metadata is not [rows, ranks] in hbm or [1, rows, ranks] in sbuf; {rows}",
        source=", metadata_tensor",
        broken_by={"metadata.shape": broken},
    )
    def metadata_has_its_shape(form: Any) -> bool:
        shape = (4 if form.has_rdispls else 3, form.ranks)
        return form.metadata.shape == (shape if form.metadata.memory == HBM else (1, *shape))

    return metadata_has_its_shape


def pieces(form: Any, brought: Brought, members: tuple[int, ...], *, is_uniform: bool) -> Iterator[Piece]:
    """What a rank receives from each rank of its group: the place in dst, flat, and the elements.

    Args:
        form: of the collective.
        brought: src and metadata of every rank.
        members: as a row has them.
        is_uniform: whether a rank sends the same to all, as the first column says.

    Raises:
        UseError: if a piece lies outside src, or does not fit where it goes.
    """
    place, *group = members
    own = _rows(form, brought[place][1])
    slot = form.dst.size // form.ranks
    for sender, (src, layout) in enumerate(brought):
        rows = _rows(form, layout)
        column = 0 if is_uniform else place
        count, start = int(rows[SENT, column]), int(rows[SENT_FROM, column])
        if start + count > src.size:
            raise UseError(
                f"rank {group[sender]} sends elements {start} to {start + count} of its src, which has "
                f"{src.size}",
                source=form.source,
            )
        at, most = slot * sender, slot
        if form.has_rdispls:
            at = int(own[RECEIVED_AT, sender])
            most = form.dst.size - at
        if count > most:
            raise UseError(
                f"rank {group[sender]} sends {count} elements to rank {group[place]}, whose dst has place "
                f"for {max(most, 0)} of them at {at}",
                source=form.source,
            )
        yield at, src.reshape(-1)[start : start + count]


def _rows(form: Any, metadata: np.ndarray) -> np.ndarray:
    return metadata.reshape(-1, form.ranks)


def receive(form: Any, dst: np.ndarray, metadata: np.ndarray, received: list[Piece]) -> np.ndarray:
    """Put pieces into dst and their sizes into metadata; returns where dst was written, [*shape]."""
    is_received = np.zeros(dst.size, np.bool_)
    flat = dst.reshape(-1).copy()
    for at, elements in received:
        flat[at : at + elements.size] = elements
        is_received[at : at + elements.size] = True
    dst[...] = flat.reshape(dst.shape)
    if not form.recv_counts_known:
        row = metadata[..., RECEIVED, :]
        row[...] = np.array([elements.size for _, elements in received], np.uint32).reshape(row.shape)
    return is_received.reshape(dst.shape)


class Varying(Collective, is_abstract=True):
    """What both declare."""

    src = In("*", HBM_ONLY, EVERY_DTYPE)
    dst = Out("*", HBM_ONLY, EVERY_DTYPE)
    metadata = Out("*", ("hbm", "sbuf"), COUNTS)
    recv_counts_known = Flag()
    has_rdispls = Flag()
    # whether a rank sends the same to all
    is_uniform: ClassVar[bool]

    @property
    def reads_dst(self) -> bool:
        return True

    def part(self, combined: Brought, members: tuple[int, ...]) -> list[Piece]:
        """The pieces that a rank gets."""
        return list(pieces(self, combined, members, is_uniform=self.is_uniform))

    @property
    def written_part(self) -> Any:
        # what really came is noted where the ranks meet
        return None

    def compute(self, src: Any, dst: Any, metadata: Any, members: Any) -> None:
        receive(self, dst, metadata, self.part(members_only(members, src, metadata), members))


class AllGatherV(Varying):
    """Send as many elements of src as `metadata` says to all ranks of a group.

    dst has equal slots, one per sender; its piece lies at the begin of its slot.
    """

    is_uniform = True
    smallest = {"metadata.shape": (3, 4)}
    example = Example(
        {"src": [[7, 8]], "dst": [[0, 0, 0, 0, 0, 0, 0, 0]],
         "metadata": [[1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]},
        {"dst": [[8, 0, 8, 0, 8, 0, 8, 0]], "metadata": [[1, 0, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]]},
        {"ranks": 4, "members": (0, 0, 1, 2, 3)},
        {"metadata": "uint32"},
    )  # fmt: skip

    types_agree = TYPES_AGREE

    @rule(
        "has_rdispls is True, which all_gather_v does not support",
        source=", current limitations",
        broken_by={"has_rdispls": True},
    )
    def slots_are_equal(self) -> bool:
        return not self.has_rdispls

    @rule(
        "the group has not exactly 4 ranks of one chip",
        source=", current limitations",
        broken_by={"ranks": 2, "metadata.shape": (3, 2)},
    )
    def group_is_a_chip(self) -> bool:
        return self.ranks == 4 and self.span[:2] == Span()[:2]

    metadata_has_its_shape = _metadata_has_its_shape("rows are 3", broken=(4, 4))

    def cost(self) -> list[Step]:
        # as if every slot were full: how much is sent is known only when it runs
        return [gathering(self, "ALL_GATHER_V", bytes_of(self.dst), GATHER)]


class AllToAllV(Varying):
    """Send each rank of a group as many elements of src as `metadata` says, from where it says.

    dst has equal slots, one per sender, unless `metadata` says where each piece goes.
    """

    is_uniform = False
    smallest = {"metadata.shape": (3, 2)}
    example = Example(
        {"src": [[7, 8, 9]], "dst": [[0, 0, 0, 0]], "metadata": [[2, 1], [1, 0], [0, 0]]},
        {"dst": [[8, 9, 8, 9]], "metadata": [[2, 1], [1, 0], [2, 2]]},
        {"ranks": 2, "members": (0, 0, 1)},
        {"metadata": "uint32"},
    )

    types_agree = TYPES_AGREE

    @rule(
        "has_rdispls is True, which chips with NeuronSwitch alone support", source=", has_rdispls",
        broken_by={"has_rdispls": True, "metadata.shape": (4, 2)}, chips=("trn1", "trn2"),
    )  # fmt: skip
    def displacements_are_served(self) -> bool:
        return not self.has_rdispls or self.machine.generation >= 4

    metadata_has_its_shape = _metadata_has_its_shape("rows are 3, or 4 with has_rdispls", broken=(4, 2))

    def cost(self) -> list[Step]:
        # as if every slot were full: how much is sent is known only when it runs
        return [exchanging(self, "ALL_TO_ALL_V", bytes_of(self.dst))]
