"""Tables shaped as the vendor's profiler writes them, so that one script reads both."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..run import Run
from .events import active_times, flows, instructions, opcode_summary, transfers
from .schema import DESCRIPTIONS, SCHEMA_FIELDS, TABLES
from .series import dma_usage, hbm_usage, pending, psum_usage, sbuf_allocation, sbuf_usage
from .summary import metadata, ranks_of, slowest_of, summary_row, tensors, warnings_of

Columns = dict[str, Any]

_TABLE_OF = {
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
    ranks = ranks_of(run)
    return _tables(run, (run,) if len(ranks) > 1 else next(iter(ranks.values())), names)


def tables_of_ranks(run: Run) -> dict[str, dict[str, Columns]]:
    """`tables_of` each rank by its name, "" where there is one; ranks that do the same share them."""
    tables_of_cores: dict[tuple[int, ...], dict[str, Columns]] = {}
    tables = {}
    for rank, cores in ranks_of(run).items():
        key = tuple(map(id, cores))
        if key not in tables_of_cores:
            tables_of_cores[key] = _tables(slowest_of(cores) if rank else run, cores, tuple(TABLES))
        tables[rank] = tables_of_cores[key]
    return tables


def _tables(run: Run, cores: tuple[Run, ...], names: tuple[str, ...]) -> dict[str, Columns]:
    """The tables of a logical core, of which `run` ends last."""
    tables = {}
    for name in names:
        if name == "Summary":
            tables[name] = {column: [value] for column, value in summary_row(run).items()}
        elif name == "Metadata":
            tables[name] = metadata(run, len(cores))
        elif name in _OF_CORES and len(cores) > 1:
            tables[name] = _of_cores(name, cores)
        else:
            tables[name] = _TABLE_OF[name](run)
    return {name: _whole(name, tables[name]) for name in names}


def _of_cores(name: str, cores: tuple[Run, ...]) -> Columns:
    """A table with the rows of each core, one core after the other."""
    joined: dict[str, list[Any]] = {}
    before = 0
    for number, one in enumerate(cores):
        columns = _TABLE_OF[name](one)
        for column, values in columns.items():
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
