"""What planning a program yields."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict

from .edges import Waits


class Finding(Struct, frozen=True):
    """Something about a program that its author should know.

    Args:
        rule: name of what was examined: "spill", ...
        message: what is the matter, values first.
        where: "file.py:41".
        other_where: the second line of a pair, or "".
        fix: one thing to do, imperative; "" if there is none.
    """

    rule: str
    message: str
    where: str
    other_where: str = ""
    fix: str = ""

    def to_dict(self) -> dict[str, str]:
        """A plain dictionary."""
        return asdict(self)


class Transfer(Struct, frozen=True):
    """A transfer that planning inserts."""

    kind: str  # "spill_save", "spill_reload", or "load_again" of what the kernel loaded
    storage: int  # the tile, by number
    before_row: int  # the row that it makes room or content for
    descriptors: int  # elements of the transfer list, one per partition
    descriptor_bytes: int  # bytes each moves

    @property
    def total_bytes(self) -> int:
        """Bytes moved."""
        return self.descriptors * self.descriptor_bytes


class Placements(Struct, frozen=True):
    """Where tiles lie, one entry per stay of a part of a tile, in order of their beginning."""

    storage: np.ndarray  # the tile
    offset: np.ndarray  # first byte of the part in each partition of the tile
    size: np.ndarray  # bytes per partition
    address: np.ndarray  # first byte per partition in the memory; of the first piece, if it lies in several
    pieces: np.ndarray  # how many pieces it lies in
    # first_row, last_row: of the stay
    first_row: np.ndarray
    last_row: np.ndarray


class Plan(Struct, frozen=True):
    """Addresses, waits and inserted transfers of a program.

    Nodes are what happens in time: node r below `rows` is row r, node rows + i is `transfers[i]`.
    """

    rows: int  # of the program
    waits: Waits  # per node, the nodes it waits for: dependences, reuse of space, spills
    transfers: tuple[Transfer, ...]  # inserted, in the order of the rows they stand before
    # sbuf, psum: where tiles lie
    sbuf: Placements
    psum: Placements
    peak_sbuf_bytes: int  # most bytes per partition in use at once
    peak_psum_banks: int  # most banks in use at once
    findings: tuple[Finding, ...]  # what the author should know

    @property
    def spill_save_bytes(self) -> int:
        """Bytes written to HBM because SBUF does not hold everything."""
        return sum(t.total_bytes for t in self.transfers if t.kind == "spill_save")

    @property
    def spill_reload_bytes(self) -> int:
        """Bytes read back."""
        return sum(t.total_bytes for t in self.transfers if t.kind == "spill_reload")

    @property
    def loaded_again_bytes(self) -> int:
        """Bytes of inputs that are read once more because SBUF does not hold everything."""
        return sum(t.total_bytes for t in self.transfers if t.kind == "load_again")

    def address_of(self, storage: int) -> int | None:
        """Bytes from the start of each partition to the first part of a tile; None for HBM and the unused."""
        for placements in (self.sbuf, self.psum):
            places = np.flatnonzero(placements.storage == storage)
            if len(places):
                return int(placements.address[places[0]])
        return None
