"""Plans and timelines on disk: a program that another process planned and timed is looked up.

A file is a message of msgspec, which is decoded by types: nothing in it is run. Its name is a digest of
everything that decides a plan and its timeline, with the modules that make them.
"""

from __future__ import annotations

import os
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from .argument_checks import megabytes
from .disk import cache_folder
from .machine import Machine
from .place import Plan
from .private_files import PrivateFolder, content_of, tell_once
from .tiles.tile import Layout
from .timing import Timeline
from .trace.program import Program

FOLDER = PrivateFolder("programs", "estimates are", lambda: cache_folder() / "estimates")
# rows from which on looking up takes less time than planning and timing again
FEWEST_ROWS = 3_000
# of all that may be kept the part that one program may take
_SHARE = 4
# folders of this package, and modules beside them, that plans and timelines follow from
_FOLDERS = ("place", "timing", "isa", "machine", "tiles", "trace")
_MODULES = ("heap.py", "records.py", "kept_estimates.py")


class Kept(msgspec.Struct, frozen=True):
    """What was found about a program: where its tiles lie and who waits for whom, and when it all happens."""

    plan: Plan
    timeline: Timeline


def limit() -> int:
    """Bytes of estimates that may be kept."""
    return megabytes("NKILAB_ESTIMATES", "256", "estimates")


def path_of(program: Program) -> Path | None:
    """Where the plan and the timeline of a program are kept; None if they are not."""
    if len(program) < FEWEST_ROWS or not limit():
        return None
    digest = _digest(program)
    place = FOLDER.place() if digest else None
    return place and place / digest


def recalled(path: Path | None) -> Kept | None:
    """What is kept at a place, if it is whole and this user's own."""
    if path is None or not path.is_file():
        return None
    try:
        kept = msgspec.msgpack.decode(content_of(path), type=Kept, dec_hook=_array)
        os.utime(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        tell_once(f"the estimate in {path} is not used: {error}")
        return None
    return kept


def keep(path: Path | None, plan: Plan, timeline: Timeline) -> None:
    """Keep what was found about a program, in place of what was used longest ago."""
    most = limit()
    columns = sum(_bytes(part) for part in (plan, plan.waits, plan.sbuf, plan.psum, timeline))
    if path is not None and columns <= most // _SHARE:
        FOLDER.write(path, msgspec.msgpack.encode(Kept(plan, timeline), enc_hook=_plain))
        FOLDER.shrink(most)


def _bytes(part: msgspec.Struct) -> int:
    return sum(getattr(getattr(part, name), "nbytes", 0) for name in part.__struct_fields__)


def _plain(value: object) -> tuple[str, bytes] | int | float:
    """A column as its type and its bytes, a number of NumPy as one of Python's."""
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "bif":
        return value.dtype.str, value.tobytes()
    if isinstance(value, np.generic):
        number: int | float = value.item()
        return number
    raise NotImplementedError(f"{type(value).__name__} is kept nowhere")


def _array(kind: type, value: Any) -> np.ndarray:
    """A column of its type and its bytes."""
    if kind is not np.ndarray or type(value) is not list or [*map(type, value)] != [str, bytes]:
        raise ValueError("a column is a type and bytes")
    return np.frombuffer(value[1], np.dtype(value[0])).copy()


def _digest(program: Program) -> str:
    """The digest of all that decides plan and timeline; "" where it could not tell two programs apart."""
    columns = (
        program.form_column, program.line_column, program.position_column, program.value_column,
        program.storage_column, program.offset_column, program.positions.table,
    )  # fmt: skip
    forms = [(type(f).__name__, *map(_layout, f.layouts), f.attribute_values) for f in program.forms]
    tables = (
        program.kernel_name, program.compiler, program.has_static_descriptors, program.lines,
        program.unrolled, program.values, program.findings, program.met, sorted(program.addresses.items()),
    )  # fmt: skip
    text = repr((forms, tables, _storages(program), _facts(program.machine), _makers()))
    if " at 0x" in text:
        return ""
    digest = sha256(text.encode())
    for column in columns:
        digest.update(column.tobytes())
    return digest.hexdigest()


def _layout(own: object) -> object:
    """What tells a layout from others; what else stands for an operand shows itself."""
    if not isinstance(own, Layout):
        return own
    place = own.memory, own.partition_axis, own.start_partition, own.indices
    return own.shape, own.strides, own.dtype.name, *place


def _storages(program: Program) -> tuple[list[Any], bytes]:
    """The table of storages: those that differ, and which is which."""
    numbers = {record: number for number, record in enumerate(dict.fromkeys(program.storages))}
    return list(numbers), np.array([numbers[record] for record in program.storages], np.int64).tobytes()


def _facts(machine: Machine) -> list[Any]:
    return [
        machine.label,
        machine.generation,
        sorted((name, fact.value) for name, fact in machine.facts().items()),
    ]


@cache
def _makers() -> list[tuple[str, int, int]]:
    """Name, size and time of each module that plans and timelines follow from."""
    home = Path(__file__).parent
    files = [home / name for name in _MODULES] + [
        file for name in _FOLDERS for file in (home / name).rglob("*.py")
    ]
    return [(str(f.relative_to(home)), f.stat().st_size, f.stat().st_mtime_ns) for f in sorted(files)]
