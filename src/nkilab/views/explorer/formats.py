"""What `neuron-profile view` prints: summary-text, summary-json, json.

Shapes: neuron-profile user guide, "Alternative output formats"; nki-library reads the summary as one entry
under the hash of the program, and of "instruction" and "dma" timestamp, duration, opcode and semaphore_id.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ..run import Run
from . import tables_of
from .summary import summary_row


def _known(run: Run) -> dict[str, Any]:
    """Metrics that have a value, in the order of the alphabet."""
    return {name: value for name, value in sorted(summary_row(run).items()) if value is not None}


def summary_text(run: Run) -> str:
    """A metric per line: name and value; times in seconds, shares from 0 to 1."""
    known = _known(run)
    width = max(map(len, known)) + 2
    return "".join(f"{name:<{width}}{_number(value)}\n" for name, value in known.items())


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.9g}"


def summary_json(run: Run, digest: str) -> str:
    """The metrics under a hash of the program."""
    return json.dumps({f"n_{digest[:32]}": _known(run)}, indent=4, allow_nan=False)


def whole_json(run: Run) -> str:
    """The metrics and all events; a transfer is one event."""
    tables = tables_of(run, ("Instruction", "DmaPacketAggregated"))
    content = {
        "summary": [_known(run)],
        "instruction": _events(tables["Instruction"], {"timeline_track": "label"}),
        "dma": _events(tables["DmaPacketAggregated"], {"queue_name": "label"}),
    }
    return json.dumps(content, indent=4, allow_nan=False)


def _events(columns: dict[str, Any], renamed: dict[str, str]) -> list[dict[str, Any]]:
    """Rows of a table with the names of this format; null fields left out."""
    names = {
        "start_ts": "timestamp",
        "duration_ns": "duration",
        "nki_source_location": "source_location",
    } | renamed
    left_out = {"end_ts"}
    filled = {
        names.get(name, name): column.tolist() if isinstance(column, np.ndarray) else column
        for name, column in columns.items()
        if name not in left_out and any(value is not None for value in column)
    }
    return [dict(zip(filled, row, strict=True)) for row in zip(*filled.values(), strict=True)]
