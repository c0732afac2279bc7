"""Sums of products that are added up in SBUF, though PSUM adds as it is written."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...isa.declare import Instruction
from ...isa.elementwise import TensorTensor, memories
from ...tiles.tile import PSUM
from ...trace.program import Program
from ..declare import POINTWISE, Candidate, Edit, Subject, of_rows, plural, transformation
from ..draft import Draft, Slot, Unfit
from ..equal_values import live_rows
from ..jam import Block, jammed

# an addition: its row, the tile in PSUM that it adds, the products that made that
Part = tuple[int, Slot, list[int]]


def chains_of(program: Program) -> list[list[Part]]:
    """Per region of SBUF the additions of sums of products to it, in order, that nothing else comes between.

    The first may be a copy. Rows that see a storage otherwise than a chain does end its chains.
    """
    if not any(_may_add(form) for form in program.forms):
        return []
    draft, result = Draft(program), list[list[Part]]()
    products: dict[Slot, list[int]] = {}
    chains: dict[int, dict[Slot, list[Part]]] = {}
    for row in range(len(program)):
        form, slots = program.form_of(row), draft.slots(row)
        if form.accumulates:
            products.setdefault(slots[0], []).append(row)
            continue
        sums = [s for s in slots[1:] if program.storages[s[0]].memory == PSUM]
        is_addition = _may_add(form) and slots[0] in slots[1:]
        if len(sums) == 1 and (is_addition or form.name == "tensor_copy"):
            own = chains.setdefault(slots[0][0], {})
            fresh = not is_addition or slots[0] not in own
            own |= {slots[0]: []} if fresh else {}
            result += [own[slots[0]]] if fresh else []
            own[slots[0]].append((row, sums[0], products.pop(sums[0], [])))
            continue
        for slot in slots:
            _end(chains.get(slot[0], {}), slot)
    return [own for own in result if len(own) > 1 and all(part[2] for part in own)]


def _end(known: dict[Slot, list[Part]], slot: Slot) -> None:
    """End the chain of a region, and all those of its storage that see it otherwise."""
    if any(slot[2] is not other[2] for other in known):
        known.clear()
    known.pop(slot, None)


def _may_add(form: Instruction) -> bool:
    """Whether a form adds two tiles, one of them in PSUM."""
    return isinstance(form, TensorTensor) and form.op.name == "add" and PSUM in memories(*form.layouts)


def accumulated(program: Program, together: int | None = None) -> Program:
    """A program in which PSUM adds what so many additions in a row added in SBUF; None for all of them.

    Raises:
        Unfit: if a sum is read before the last of its additions, or PSUM holds something else meanwhile.
    """
    draft, touched = Draft(program), _rows_by_storage(program)
    changed = False
    for chain in chains_of(program):
        count = together or len(chain)
        for at in range(0, len(chain), count):
            changed |= _merged(draft, touched, chain[at : at + count])
    if not changed:
        raise Unfit
    edited = draft.program()
    return edited.without(np.flatnonzero(~live_rows(edited)), {})


def _merged(draft: Draft, touched: dict[int, list[int]], parts: list[Part]) -> bool:
    """Let products of several parts add up in the first one's tile, and add that once, at the last part."""
    if len(parts) < 2:
        return False
    base, tile, products = draft.base, parts[0][1], [row for part in parts for row in part[2]]
    first, last, mine = parts[0][0], parts[-1][0], {*products, *(part[0] for part in parts)}
    if any(products[0] < row < last and row not in mine for row in touched[tile[0]]):
        raise Unfit
    for row in products[len(parts[0][2]) :]:
        slots = [tile, *draft.slots(row)[1:]]
        draft.insert(row, base.form_of(row), (True, *base.values_of(row)[1:]), slots)
    draft.insert(last, base.form_of(first), base.values_of(first), draft.slots(first))
    draft.drop([*products[len(parts[0][2]) :], *(part[0] for part in parts)])
    return True


def _rows_by_storage(program: Program) -> dict[int, list[int]]:
    rows = np.repeat(np.arange(len(program)), np.diff(program.operand_start))
    result: dict[int, list[int]] = {}
    for storage, row in zip(program.storage_column.tolist(), rows.tolist(), strict=True):
        result.setdefault(storage, []).append(row)
    return result


@transformation(
    "psum_accumulate", relieves=POINTWISE, title="PSUM adds up products",
    what="results of products are added to a tile in SBUF, one after another",
    why="a product adds to its tile in PSUM for nothing; an addition in SBUF is a pass of VectorE",
    fix="multiply into one psum tile over the whole contraction, with accumulate=True from the second "
    "product on, and copy it out once",
    source="trn1 architecture guide, PSUM; NKI kernel optimization guide",
)  # fmt: skip
def in_psum(subject: Subject) -> Iterator[Candidate]:
    """Additions of products that may all happen in PSUM."""
    additions = [part[0] for chain in chains_of(subject.base) for part in chain]
    message = f"{plural(len(additions), 'addition')} of products in SBUF"
    edit = "added up in PSUM", lambda: accumulated(subject.base)
    yield from of_rows(subject, additions, message, edit, rounds=True)


def longer_sums(subject: Subject) -> Iterator[tuple[np.ndarray, int, tuple[tuple[str, Edit], ...]]]:
    """Blocks of a contraction whose sums PSUM may add up before SBUF does: additions, line, edits."""
    chains = chains_of(subject.base)
    if not chains:
        return
    rows = np.array([part[0] for chain in chains for part in chain], np.int64)
    one, other = (chains[0][n][0] for n in range(2))
    for loop in subject.loops:
        at = [np.argwhere(loop.rows() == row) for row in (one, other)]
        if not len(at[0]) or not len(at[1]) or at[1][0, 0] != at[0][0, 0] + 1:
            continue
        edits = [(f"sums of {n} blocks of the contraction", _longer(subject, Block(loop, n))) for n in (2, 4)]
        yield rows, loop.line, tuple(edits)


def _longer(subject: Subject, block: Block) -> Edit:
    return lambda: accumulated(jammed(subject.equals, block), block.size)
