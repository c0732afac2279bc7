"""NTFF: a timeline in a file, with the digest of its program. Not the vendor's format of that name."""

from __future__ import annotations

import os

import numpy as np
from msgspec import Struct

from ..disk import read_whole, write_whole
from ..errors import FileError
from ..timing.timeline import COLUMNS, OF_NODES, Timeline
from ..trace.program import Program
from .container import Header, pack, unpack
from .neff import digest_of
from .values import decoded, encoded

KIND = "NTFF"
_SCALARS = ("machine", "model", "latency_ns", "window", "issue_ns", "labels")


def write(path: str | os.PathLike[str], program: Program, timeline: Timeline) -> None:
    """Write the timeline of a program to a file, whole or not at all.

    Raises:
        FileError: if the file cannot be written.
    """
    write_whole(path, packed(program, timeline))


def packed(program: Program, timeline: Timeline) -> bytes:
    """The bytes of the file of a timeline."""
    header: Header = {name: encoded(getattr(timeline, name)) for name in _SCALARS}
    header["program"], header["kernel"] = digest_of(program), program.kernel_name
    return pack(KIND, header, {name: getattr(timeline, name) for name in COLUMNS})


class Trace(Struct, frozen=True):
    """What an NTFF file holds."""

    path: str  # of the file
    kernel: str  # name of the kernel
    program_digest: str  # of the program that was timed; see `neff.digest_of`
    timeline: Timeline  # when everything happened

    def check_belongs_to(self, program: Program) -> None:
        """Compare the digest with that of a program.

        Raises:
            FileError: if the timeline is of another program.
        """
        if digest_of(program) != self.program_digest:
            raise FileError(
                f"{self.path} is the timeline of another program: kernel {self.kernel}, sha256 "
                f"{self.program_digest[:12]}; the program given is kernel {program.kernel_name}, sha256 "
                f"{digest_of(program)[:12]}",
                hint="capture it again from this NEFF",
            )


def read(path: str | os.PathLike[str]) -> Trace:
    """Read a timeline, and which program it is of, from a file.

    Raises:
        FileError: if the file is missing, foreign, truncated, damaged or of another version.
    """
    header, arrays = unpack(read_whole(path), KIND, str(path))
    try:
        return Trace(str(path), str(header["kernel"]), str(header["program"]), _timeline(header, arrays))
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(
            f"{path} was written by another version of nkilab: {type(error).__name__} {error}",
            hint="capture it again with nkilab",
        ) from None


def _timeline(header: Header, arrays: dict[str, np.ndarray]) -> Timeline:
    scalars = {name: decoded(header[name]) for name in _SCALARS}
    of_events = {name: arrays[name] for name in COLUMNS if name not in OF_NODES}
    shared = {name: arrays[name] for name in OF_NODES}
    place = np.arange(len(arrays["node"]), dtype=np.int32)
    return Timeline(**scalars, **of_events, place=place, of_nodes=shared)  # type: ignore[arg-type]
