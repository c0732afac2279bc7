"""Where data come from: what rows write to a storage, and the arguments that its content is computed from."""

from __future__ import annotations

import numpy as np

from ..tiles.tile import Layout
from .program import Program


def arguments_behind(program: Program, storage: int) -> tuple[str, ...]:
    """The names of the arguments from which a storage's content stems, as far as rows tell, sorted."""
    wanted, names_found = {storage}, set()
    for row in range(len(program) - 1, -1, -1):
        accesses = list(program.accesses(row))
        if any(a.is_written and a.storage in wanted for a in accesses):
            wanted.update(a.storage for a in accesses if a.is_read)
    for number in wanted:
        record = program.storages[number]
        if record.scope == "input" and record.name:
            names_found.add(record.name)
    return tuple(sorted(names_found))


def written_views(program: Program, storage: int) -> set[tuple[int, Layout]]:
    """The views of a storage that rows of a program write: offset and layout."""
    places = np.flatnonzero(program.storage_column == storage)
    rows = np.searchsorted(program.operand_start, places, side="right") - 1
    slots = places - program.operand_start[rows]
    known = np.stack([program.form_column[rows], slots, program.offset_column[places]], axis=1)
    views_written = set()
    # with counts NumPy does not ask for masks, whose module is large
    for number, slot, offset in np.unique(known, axis=0, return_counts=True)[0].tolist():
        form = program.forms[number]
        if slot < len(form.view_slots) and form.view_slots[slot] in form.written_slots:
            views_written.add((offset, form.layouts[form.view_slots[slot]]))
    return views_written
