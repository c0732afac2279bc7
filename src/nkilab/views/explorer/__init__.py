"""Tables shaped as the vendor's profiler writes them, so that one script reads both."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..run import Run
from .events import active_times, flows, instructions, opcode_summary, transfers
from .schema import DESCRIPTIONS, SCHEMA_FIELDS, TABLES
from .series import dma_usage, hbm_usage, pending, psum_usage, sbuf_allocation, sbuf_usage
from .summary import cores_of, metadata, summary_row, tensors, warnings_of

Columns = dict[str, Any]

_MADE_BY = {
    "Instruction": instructions,
    "DmaPacketAggregated": transfers,
    "ActiveTime": active_times,
    "OpcodeSummary": opcode_summary,
    "Flow": flows,
    "DmaUsage": dma_usage,
    "HbmUsage": hbm_usage,
    "PendingDma": pending,
    "PsumUsage": psum_usage,
    "SbufUsage": sbuf_usage,
    "SbufAllocation": sbuf_allocation,
    "TensorInfo": tensors,
    "Metadata": metadata,
    "Warning": warnings_of,
}


# Tables that have rows of every core of a logical core.
_OF_CORES = ("Flow", *(name for name, own in TABLES.items() if any(f.name == "pcore_idx" for f in own)))
# Columns that number the events of a core.
_NUMBERS = ("id", "in_id", "out_id")


def tables_of(run: Run, names: tuple[str, ...] = tuple(TABLES)) -> dict[str, Columns]:
    """Tables by name, each its columns by name: arrays or lists of one length, None for null.

    Every column that the schema of a table names is there. Of several ranks they are of the slowest.
    """
    made = {
        name: _of_cores(name, run) if name in _OF_CORES else _MADE_BY[name](run)
        for name in names
        if name != "Summary"
    }
    if "Summary" in names:
        made["Summary"] = {name: [value] for name, value in summary_row(run).items()}
    return {name: _whole(name, made[name]) for name in names}


def _of_cores(name: str, run: Run) -> Columns:
    """A table with the rows of each core, one core after the other."""
    cores = cores_of(run)
    if len(cores) == 1:
        return _MADE_BY[name](run)
    joined: dict[str, list[Any]] = {}
    before = 0
    for number, one in enumerate(cores):
        made = _MADE_BY[name](one)
        for column, values in made.items():
            own = np.asarray(values) + before if column in _NUMBERS else values
            own = np.full(len(own), number) if column == "pcore_idx" else own
            joined.setdefault(column, []).extend(own.tolist() if isinstance(own, np.ndarray) else own)
        before += len(one.timeline)
    return dict(joined)


def _whole(table: str, columns: Columns) -> Columns:
    """Columns in the order of the schema; those that are not filled are null."""
    rows = len(next(iter(columns.values())))
    unknown = set(columns) - {field.name for field in TABLES[table]}
    assert not unknown, f"{table} has no {sorted(unknown)}"
    return {field.name: columns.get(field.name, [None] * rows) for field in TABLES[table]}


def schema_fields() -> Columns:
    """The table that describes all tables, itself included."""
    fields = [(t, f) for t, own in (*TABLES.items(), ("SchemaFields", SCHEMA_FIELDS)) for f in own]
    return {
        "table_name": [table for table, _ in fields],
        "table_description": [DESCRIPTIONS[table] for table, _ in fields],
        "field_name": [field.name for _, field in fields],
        "field_description": [field.meaning for _, field in fields],
        "field_type": [field.type for _, field in fields],
        "field_required": [field.is_required for _, field in fields],
        "field_unit": [field.unit or None for _, field in fields],
    }
