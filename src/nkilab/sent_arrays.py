"""Objects whose arrays another process on this computer reads where they lie: in one file that both map."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

# bytes: of an array that is not pickled, between the beginnings of arrays, and of what is written at once
LARGE, ALIGNMENT, BLOCK = 1 << 16, 64, 1 << 20
# a file system in memory, where there is one
_MEMORY = Path("/dev/shm")


class Sent(NamedTuple):
    """An object on its way.

    Args:
        pickled: without its large arrays.
        path: the file that holds them, "" for none; it is the sender's to take away.
    """

    pickled: bytes
    path: str = ""

    def read(self) -> Any:
        """The object, whose arrays may be written: the file stays as it is."""
        if not self.path:
            return pickle.loads(self.pickled)
        return _Reader(io.BytesIO(self.pickled), np.memmap(self.path, np.uint8, mode="c")).load()

    def take_away(self) -> None:
        """Remove the file; who reads it already reads on."""
        if self.path:
            Path(self.path).unlink(missing_ok=True)


def sent(value: object, *, is_near: bool) -> Sent:
    """An object for another process, which sees the files of this one if it is near."""
    if not is_near:
        return Sent(pickle.dumps(value))
    stream = io.BytesIO()
    writer = _Writer(stream)
    writer.dump(value)
    if not writer.arrays:
        return Sent(stream.getvalue())
    has_room = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 2 * writer.size
    number, path = tempfile.mkstemp(prefix="nkilab-", dir=_MEMORY if has_room else None)
    on_its_way = Sent(stream.getvalue(), path)
    try:
        with os.fdopen(number, "wb") as file:
            for start, array in writer.arrays:
                file.seek(start)
                # in blocks, so that what lies apart is put together in the processor's caches
                for rows in np.array_split(array, 1 + array.nbytes // BLOCK):
                    file.write(np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data)
    except BaseException:
        on_its_way.take_away()
        raise
    return on_its_way


class _Writer(pickle.Pickler):
    """Leaves large arrays out, each once, and notes where they are to lie."""

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream)
        self.arrays: list[tuple[int, np.ndarray]] = []
        self.size = 0
        self._starts: dict[int, int] = {}

    def persistent_id(self, value: Any) -> tuple[int, tuple[int, ...], np.dtype] | None:
        """Where an array lies, with its shape and type; None for what is pickled."""
        if type(value) is not np.ndarray or value.nbytes < LARGE or value.dtype.hasobject:
            return None
        if id(value) not in self._starts:
            self._starts[id(value)] = self.size
            self.arrays.append((self.size, value))
            self.size += -(-value.nbytes // ALIGNMENT) * ALIGNMENT
        return self._starts[id(value)], value.shape, value.dtype


class _Reader(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, memory: np.ndarray) -> None:
        super().__init__(stream)
        self._memory = memory
        self._known: dict[int, np.ndarray] = {}

    def persistent_load(self, place: tuple[int, tuple[int, ...], np.dtype]) -> np.ndarray:
        """The array at a place."""
        start, shape, dtype = place
        if start not in self._known:
            self._known[start] = np.ndarray(shape, dtype, self._memory.data, start)
        return self._known[start]
