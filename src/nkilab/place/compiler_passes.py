"""What the vendor's compiler makes of a program before it is placed: named transformations with their reach.

Each looks at the program alone: names of kernels and tensors change nothing. Evidence: docs/timing-model.md.
"""

from __future__ import annotations

from ..trace.program import AS_WRITTEN as AS_WRITTEN
from ..trace.program import MIDDLE_END as MIDDLE_END
from ..trace.program import STANDALONE as STANDALONE
from ..trace.program import Program
from .balance import balanced
from .blocks import with_blocks_apart
from .broadcasts import without_broadcast_copies
from .fills import without_zero_fills
from .invariants import without_loop_invariants
from .redundant import Ring, Room, without_redundant_loads
from .reloads import with_reloads


def compiled(program: Program) -> Program:
    """The program that is placed and timed, with a note per transformation that left rows out."""
    if program.compiler == MIDDLE_END:
        program = with_blocks_apart(program)
        program = _noted(
            program, without_zero_fills(program), "fills with zeroes are left out: a product writes over them"
        )
        program = _noted(
            program,
            without_loop_invariants(program),
            "instructions are left out: their loop did the same before",
        )
        program = _noted(
            program,
            without_broadcast_copies(program),
            "copies are left out: who reads them reads PSUM, where TensorE repeats a partition",
        )
        program = balanced(program)
        program = program.with_forms(list(program.forms), program.form_column)
        program.has_static_descriptors = True
        program = _noted(
            program,
            without_redundant_loads(program, Room),
            "loads are left out: SBUF has room for what an earlier one loaded",
        )
        return with_reloads(program, in_pieces=True)
    if program.compiler == AS_WRITTEN:
        # the back end chooses engines, whether or not the middle end runs
        program = balanced(program)
    window = program.machine["redundant_load_window_bytes"]
    if not window:
        return program
    note = f"loads are left out: SBUF still held what they load, within {window / 1024:.0f} KiB"
    return with_reloads(_noted(program, without_redundant_loads(program, Ring), note), in_pieces=False)


def _noted(program: Program, shorter: Program, sentence: str) -> Program:
    """What a transformation made of a program, with a note of how many rows it left out."""
    left_out = len(program) - len(shorter)
    if left_out:
        shorter.notes = [*program.notes, f"{left_out} {sentence}"]
    return shorter
