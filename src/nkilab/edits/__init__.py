"""Advice as changes of a kernel's text: for each transformation what may be written, to be run and compared.

A change is a guess by the text alone: whoever asks for it runs the kernel before and after, keeps what gives
equal results in less time, and tells why nothing did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..migrate.source import Source
from ..views.guidance import Advice
from . import calls, moves
from .statements import Place as Place
from .statements import Refusal as Refusal

# Texts of the file, the likeliest first, from a place and what the advice says was changed.
Rewrite = Callable[[Place, str], Iterator[str]]

REWRITES: dict[str, Rewrite] = {
    **dict.fromkeys(("hoist_loads", "hoist_transposes", "hoist_compute", "block_mn"), moves.hoisted),
    **dict.fromkeys(("buffers", "psum_in_flight"), moves.made_inside),
    **dict.fromkeys(("read_psum_directly", "cast_once"), calls.without_copy),
    **dict.fromkeys(
        ("widen_moving", "bigger_transfers", "fill_partitions", "finer_tiles", "block_k"), calls.resized
    ),
    "interchange_loops": moves.interchanged,
    "dead_work": moves.without_use,
    "fuse_alu": calls.chained,
    "fuse_activation": calls.scaled,
    "fuse_reduction": calls.reduced,
    "shift_engine": calls.on_engine,
    "lower_precision": calls.narrowed,
}


def rewritten(source: Source, advice: Advice) -> Iterator[str]:
    """Texts of a file that may do what is advised.

    Raises:
        Refusal: if its text does not show how.
    """
    if advice.id not in REWRITES:
        raise Refusal("it asks for loops, layouts or an order of work of its own")
    yield from REWRITES[advice.id](Place(source, advice.line), advice.edit)
