"""Objects whose arrays another process on this computer reads where they lie: in one file that both map."""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .frameworks.kernel_calls import filled, slotted

# bytes from which an array lies in the file, and between the beginnings of arrays
LARGE, ALIGNMENT = 1 << 16, 64
# a file system in memory, where there is one
_MEMORY = Path("/dev/shm")


class _Place(NamedTuple):
    """Where an array begins in the file, its shape and its type."""

    start: int
    shape: tuple[int, ...]
    dtype: np.dtype


class Sent(NamedTuple):
    """An object on its way.

    Args:
        pickled: the object with slots in place of its arrays, and these: those in the file by their places.
        path: the file, "" for none; it is the sender's to take away.
    """

    pickled: bytes
    path: str = ""

    def read(self) -> object:
        """The object, whose arrays may be written: the file stays as it is."""
        value, arrays = pickle.loads(self.pickled)
        memory = np.memmap(self.path, np.uint8, mode="c").data if self.path else b""
        known = {
            place: np.ndarray(place.shape, place.dtype, memory, place.start)
            for place in arrays
            if isinstance(place, _Place)
        }
        read = [known[one] if isinstance(one, _Place) else one for one in arrays]
        return filled(value, lambda slot: read[slot.number])

    def take_away(self) -> None:
        """Remove the file; who reads it already reads on."""
        if self.path:
            Path(self.path).unlink(missing_ok=True)


def sent(value: object, *, is_near: bool) -> Sent:
    """An object for another process, which sees the files of this one if it is near."""
    arrays: list[object] = []
    slots, size = slotted(value, "", arrays), 0
    # by identity, as ranks have arguments in common
    placed: dict[int, tuple[_Place, np.ndarray]] = {}
    for one in arrays if is_near else ():
        if not isinstance(one, np.ndarray) or type(one) is not np.ndarray or one.dtype.hasobject:
            continue
        if one.nbytes >= LARGE and id(one) not in placed:
            placed[id(one)] = _Place(size, one.shape, one.dtype), one
            size += -(-one.nbytes // ALIGNMENT) * ALIGNMENT
    pickled = pickle.dumps((slots, [placed.get(id(one), (one,))[0] for one in arrays]))
    if not placed:
        return Sent(pickled)
    has_room = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 2 * size
    number, path = tempfile.mkstemp(prefix="nkilab-", dir=_MEMORY if has_room else None)
    on_its_way = Sent(pickled, path)
    try:
        _write(number, placed.values())
    except BaseException:
        on_its_way.take_away()
        raise
    return on_its_way


def _write(number: int, placed: Iterable[tuple[_Place, np.ndarray]]) -> None:
    """Write arrays to an open file, each at its place."""
    with os.fdopen(number, "wb") as file:
        for place, array in placed:
            file.seek(place.start)
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
