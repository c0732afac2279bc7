"""NEFF: a program in a file, enough to plan and time it again. Not the vendor's format of that name."""

from __future__ import annotations

import os
from hashlib import sha256
from typing import cast

import numpy as np

from ..disk import read_whole, write_whole
from ..errors import FileError, NkilabError
from ..isa.declare import REGISTRY, Instruction
from ..machine.model import Certainty, Fact, Machine
from ..place import Finding
from ..tiles.dtypes import DTYPES
from ..trace.program import Program, StorageRecord
from ..trace.run_notes import Address, Positions
from .container import Header, pack, unpack
from .values import decoded, decoded_layout, encoded, encoded_layout

KIND = "NEFF"
_ROW_COLUMNS = ("form_column", "line_column", "position_column", "value_column")
_SLOT_COLUMNS = ("storage_column", "offset_column")
# rows of the header's tables
_Fact = tuple[object, Certainty, str]
_Storage = tuple[str, list[int], str, str, str, int]
_Address = tuple[int, int, int, int, bool, int]


def write(path: str | os.PathLike[str], program: Program) -> None:
    """Write a program to a file, whole or not at all.

    Raises:
        FileError: if the file cannot be written.
    """
    write_whole(path, packed(program))


def read(path: str | os.PathLike[str]) -> Program:
    """Read a program from a file.

    Raises:
        FileError: if the file is missing, foreign, truncated, damaged, or of another version.
    """
    return unpacked(read_whole(path), str(path))


def digest_of(program: Program) -> str:
    """sha256 of the content of a program, in hexadecimal; equal programs have equal digests."""
    return sha256(packed(program)).hexdigest()


def packed(program: Program) -> bytes:
    """The bytes of the file of a program."""
    values, value_column = _distinct_values(program)
    machine = program.machine
    facts = {name: [encoded(f.value), f.certainty, f.source] for name, f in machine.facts().items()}
    storages = [[s.name, list(s.shape), s.dtype.name, s.memory, s.scope, s.line] for s in program.storages]
    header: Header = {
        "kernel": program.kernel_name,
        "machine": {
            "name": machine.name, "generation": machine.generation, "calibration": machine.calibration,
            "facts": facts,
        },
        "forms": [_form(form) for form in program.forms],
        "lines": program.lines,
        "positions": [*program.positions],
        "unrolled": program.unrolled,
        "values": values,
        "storages": storages,
        "addresses": [[storage, *address] for storage, address in program.addresses.items()],
        "notes": program.notes,
        "findings": [finding.to_dict() for finding in program.findings],
        "compiler": program.compiler,
        "static_descriptors": program.has_static_descriptors,
    }  # fmt: skip
    columns = {n: getattr(program, n) for n in (*_ROW_COLUMNS, *_SLOT_COLUMNS)}
    columns["value_column"] = value_column
    return pack(KIND, header, columns)


def _form(form: Instruction) -> list[object]:
    attributes = [encoded(a) for a in form.attribute_values]
    return [form.name, [encoded_layout(layout) for layout in form.layouts], attributes]


def _distinct_values(program: Program) -> tuple[list[object], np.ndarray]:
    """The table of values without repetitions, and the column that points into it."""
    numbers: dict[str, int] = {}
    table: list[object] = []
    renumbered = np.zeros(len(program.values), np.int32)
    for number, values in enumerate(program.values):
        own = encoded(values)
        known = renumbered[number] = numbers.setdefault(repr(own), len(table))
        if known == len(table):
            table.append(own)
    return table, renumbered[np.array(program.value_column, np.int64)]


def unpacked(content: bytes, name: str) -> Program:
    """The program in the bytes of a file."""
    header, arrays = unpack(content, KIND, name)
    try:
        program = _program(header, arrays)
    except (NkilabError, KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise FileError(
            f"{name} was written by another version of nkilab: {type(error).__name__} {error}",
            hint="write it again with nkilab",
        ) from None
    return program


def _program(header: Header, arrays: dict[str, np.ndarray]) -> Program:
    program = Program(_machine(cast("dict[str, object]", header["machine"])), cast(str, header["kernel"]))
    program.forms = [_new_form(program.machine, form) for form in cast("list[list[object]]", header["forms"])]
    program.lines = [(str(file), int(line)) for file, line in cast("list[tuple[str, int]]", header["lines"])]
    places = cast("list[list[int]]", header["positions"])
    program.positions = Positions((outer, loop, at) for outer, loop, at in places)
    program.unrolled = [int(loop) for loop in cast("list[int]", header["unrolled"])]
    program.values = [cast("tuple[object, ...]", decoded(v)) for v in cast("list[object]", header["values"])]
    program.storages = [
        StorageRecord(name, tuple(shape), DTYPES[dtype], memory, scope, line)
        for name, shape, dtype, memory, scope, line in cast("list[_Storage]", header["storages"])
    ]
    for storage, space, partition, byte, is_fixed, chain in cast("list[_Address]", header["addresses"]):
        program.addresses[storage] = Address(space, partition, byte, is_fixed, chain)
    program.compiler = str(header["compiler"])
    program.has_static_descriptors = bool(header["static_descriptors"])
    program.notes = [str(note) for note in cast("list[str]", header["notes"])]
    program.findings = [Finding(**f) for f in cast("list[dict[str, str]]", header["findings"])]
    program.fill([arrays[n] for n in _ROW_COLUMNS], [arrays[n] for n in _SLOT_COLUMNS])
    return program


def _machine(entry: dict[str, object]) -> Machine:
    facts = {
        name: Fact(cast(float, decoded(value)), certainty, source)
        for name, (value, certainty, source) in cast("dict[str, _Fact]", entry["facts"]).items()
    }
    name, generation, calibration = entry["name"], entry["generation"], entry["calibration"]
    return Machine(
        name=cast(str, name), generation=cast(int, generation), calibration=cast(str, calibration), **facts
    )


def _new_form(machine: Machine, fields: list[object]) -> Instruction:
    name, layouts, attributes = fields
    cls = REGISTRY[cast(str, name)]
    return cls(
        machine,
        [decoded_layout(item) for item in cast("list[object]", layouts)],
        [decoded(item) for item in cast("list[object]", attributes)],
    )
