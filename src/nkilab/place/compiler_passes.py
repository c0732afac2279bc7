"""What the vendor's compiler makes of a program before it is placed: named transformations with their reach.

Each looks at the program alone: names of kernels and tensors change nothing. Evidence: docs/timing-model.md.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

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


def _with_static_descriptors(program: Program) -> Program:
    """The same program, whose descriptors are written beforehand."""
    program = program.with_forms(list(program.forms), program.form_column)
    program.has_static_descriptors = True
    return program


# Transformations in order: the constant that is 0 where one is not made; what makes it; what rows it leaves
# out and why, to stand behind their number, "" if it leaves out none.
Pass = tuple[str, Callable[[Program], Program], str]
_MIDDLE_END: tuple[Pass, ...] = (
    ("block_tiles", with_blocks_apart, ""),
    ("spare_fills", without_zero_fills, "fills with zeroes are left out: a product writes over them"),
    ("loop_invariants", without_loop_invariants, "instructions are left out: their loop did the same before"),
    (
        "repeats_in_psum",
        without_broadcast_copies,
        "copies are left out: who reads them reads PSUM, where TensorE repeats a partition",
    ),
    ("engine_choice", balanced, ""),
    ("static_descriptors", _with_static_descriptors, ""),
    (
        "resident_loads",
        partial(without_redundant_loads, hold=Room),
        "loads are left out: SBUF has room for what an earlier one loaded",
    ),
    ("late_loads", partial(with_reloads, in_pieces=True), ""),
)
_BACK_END: tuple[Pass, ...] = (
    (
        "redundant_load_window_bytes",
        partial(without_redundant_loads, hold=Ring),
        "loads are left out: SBUF still held what they load, within {:.0f} KiB",
    ),
    ("late_loads", partial(with_reloads, in_pieces=False), ""),
)
# the back end chooses engines, whether or not the middle end runs
PASSES: dict[str, tuple[Pass, ...]] = {
    MIDDLE_END: _MIDDLE_END,
    AS_WRITTEN: (("engine_choice_as_written", balanced, ""), *_BACK_END),
    STANDALONE: _BACK_END,
}


def compiled(program: Program) -> Program:
    """The program that is placed and timed, with a note per transformation that left rows out."""
    for switch, make, left_out in PASSES.get(program.compiler, _BACK_END):
        value = program.machine[switch]
        if not value:
            continue
        before, program = program, make(program)
        count = len(before) - len(program)
        if left_out and count:
            program.notes = [*before.notes, f"{count} {left_out.format(value / 1024)}"]
    return program
