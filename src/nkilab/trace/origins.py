"""Where data come from: the arguments of a kernel that a storage's content is computed from."""

from __future__ import annotations

from .program import Program


def arguments_behind(program: Program, storage: int) -> tuple[str, ...]:
    """The names of the arguments from which a storage's content stems, as far as rows tell, sorted."""
    wanted, found = {storage}, set()
    for row in range(len(program) - 1, -1, -1):
        accesses = list(program.accesses(row))
        if any(a.is_written and a.storage in wanted for a in accesses):
            wanted.update(a.storage for a in accesses if a.is_read)
    for number in wanted:
        record = program.storages[number]
        if record.scope == "input" and record.name:
            found.add(record.name)
    return tuple(sorted(found))
