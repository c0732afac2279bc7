"""Transpositions that another instruction, another operand or another layout makes, and repeated rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from math import prod
from typing import NoReturn

import numpy as np

from ...isa.data_movement import DmaCopy
from ...isa.transposing_dma import DmaTranspose
from ...tiles.tile import HBM, compact_strides, layout
from ...trace.program import Program
from ..declare import POINTWISE, Candidate, Subject, of_rows, plural, transformation
from ..draft import PARTITIONS, Draft, Slot, Unfit, cut, retyped_layout, transposes
from ..equal_values import live_rows
from ..subject import by_line

# a transposition and the copy that takes its result out of PSUM
Pair = tuple[int, int]


def _transpositions(subject: Subject) -> list[Pair]:
    """Transpositions on TensorE whose only reader copies all of the result to SBUF."""
    rows = [row for row in subject.rows_of("nc_transpose", "nc_matmul").tolist()
            if transposes(subject.base.form_of(row))]  # fmt: skip
    readers = [(row, subject.sole_readers.get(row, -1)) for row in rows]
    return [
        (row, copy) for row, copy in readers if copy >= 0 and subject.base.form_of(copy).name == "tensor_copy"
    ]


def _data(subject: Subject, row: int) -> Slot:
    """What a transposition reads; the identity beside it is moving."""
    storage, own, offset = subject.slot(int(subject.base.operand_start[row]) + 1)
    return storage, offset, own


def _without(subject: Subject, pairs: list[Pair], write: Callable[[Draft, Slot, Slot, int], None]) -> Program:
    """A program in which something else writes what the copies behind transpositions wrote."""
    draft = Draft(subject.base)
    for transposition, copy in pairs:
        write(draft, _data(subject, transposition), draft.slots(copy)[0], copy)
        draft.drop([transposition, copy])
    edited = draft.program()
    return edited.without(np.flatnonzero(~live_rows(edited)), {})


def _rows(pairs: list[Pair]) -> np.ndarray:
    return np.array(pairs, np.int64).ravel()


@transformation(
    "transpose_engine", title="DMA engines transpose what keeps TensorE busy",
    what="TensorE transposes tiles, and another engine copies each result out of PSUM",
    why="neither has time for other work meanwhile; DMA engines transpose elements of two and four bytes",
    fix="transpose with nisa.dma_transpose, or while loading",
    source="nki.isa.dma_transpose; trn2 architecture guide, DMA transpose", relieves=("tensor", *POINTWISE),
)  # fmt: skip
def by_dma(subject: Subject) -> Iterator[Candidate]:
    """Transpositions on TensorE, as transfers."""
    pairs = _transpositions(subject)
    message = f"{plural(len(pairs), 'transposition')} on TensorE"
    edit = "transposed by DMA", partial(_without, subject, pairs, _transposing)
    yield from of_rows(subject, _rows(pairs), message, edit)


def _transposing(draft: Draft, source: Slot, target: Slot, row: int) -> None:
    form = draft.shared_form(
        DmaTranspose, draft.base.machine, (target[2], source[2]), (None, None, "unknown", "error")
    )
    draft.insert(row, form, (), [target, source])


@transformation(
    "avoid_transpose", by_formula=True, title="an argument comes in the layout in which it is used",
    what="a tile is loaded and only transposed",
    why="the caller can store the tensor the other way round, once",
    fix="have the caller pass the tensor transposed, and load it as it is used",
    source="NKI performance guide, layout of inputs; NKI programming guide, layout considerations",
)  # fmt: skip
def layouts(subject: Subject) -> Iterator[Candidate]:
    """Transpositions of tiles that are loaded from arguments for nothing else."""
    tiles = {pair: _data(subject, pair[0])[0] for pair in _transpositions(subject)}
    arguments = {tile for tile in set(tiles.values()) if _is_argument(subject, tile)}
    pairs = [pair for pair, tile in tiles.items() if tile in arguments]
    message = f"{plural(len(pairs), 'transposition')} of what was loaded for nothing else"
    edit = "loaded as it is used", partial(_without, subject, pairs, _loading)
    yield from of_rows(subject, _rows(pairs), message, edit)


def _is_argument(subject: Subject, tile: int) -> bool:
    """Whether loads of arguments alone write a tile, and transpositions alone read it."""
    base, loads = subject.base, subject.writers.get(tile, [])
    sources = {storage for row in loads for storage in subject.read_by(row)}
    read_by = [base.form_of(row) for row in subject.readers[tile]]
    return (
        bool(loads)
        and all(base.form_of(row).name == "dma_copy" for row in loads)
        and all(subject.lies_in_hbm(own) and not subject.writers.get(own) for own in sources)
        and all(map(transposes, read_by))
    )


def _loading(draft: Draft, source: Slot, target: Slot, row: int) -> None:
    shape, machine = target[2].shape, draft.base.machine
    tensor = draft.new_tile(source[0], shape, source[2].dtype)
    draft.storages[tensor] = draft.storages[tensor]._replace(memory=HBM, scope="input")
    own = layout(shape, compact_strides(shape), source[2].dtype, HBM, None, 0)
    form = draft.shared_form(
        DmaCopy, machine, (target[2], own), (None, "error", "unknown", "unknown", None, True)
    )
    draft.insert(row, form, (), [target, (tensor, 0, own)])


@transformation(
    "swap_operands", relieves=("tensor", *POINTWISE), title="a product comes out the way it is used",
    what="the result of a product is transposed before it is used",
    why="with stationary and moving exchanged the product is its own transpose",
    fix="exchange stationary and moving, and leave the transposition out",
    source="NKI programming guide, layout considerations; nki.isa.nc_matmul",
)  # fmt: skip
def exchanged(subject: Subject) -> Iterator[Candidate]:
    """Products whose result is copied, transposed, and used transposed alone."""
    by_copy: dict[int, list[Pair]] = {}
    for pair in _transpositions(subject):
        writers = subject.writers.get(_data(subject, pair[0])[0], [])
        if len(writers) == 1 and subject.base.form_of(writers[0]).name == "tensor_copy":
            by_copy.setdefault(writers[0], []).append(pair)
    exchangeable = {copy: own for copy, own in by_copy.items() if _sums(subject, copy, own)}
    pairs = [pair for own in exchangeable.values() for pair in own]
    message = f"{plural(len(pairs), 'transposition')} of what a product has just made"
    yield from of_rows(
        subject, _rows(pairs), message, ("operands exchanged", partial(_exchanged, subject, exchangeable))
    )


def _sums(subject: Subject, copy: int, pairs: list[Pair]) -> list[int]:
    """The products of what a row copies, where transpositions alone read the copy."""
    base = subject.base
    tile, source = (a.storage for a in base.accesses(copy))
    is_only = len(subject.readers[tile]) == len(pairs) and subject.readers.get(source) == [copy]
    rows = subject.writers.get(source, [])
    fine = all(f.name == "nc_matmul" and not transposes(f) for f in map(base.form_of, rows))
    return rows if is_only and fine and base.storages[source].memory == "psum" else []


def _unfit() -> NoReturn:
    raise Unfit


def _exchanged(subject: Subject, exchangeable: dict[int, list[Pair]]) -> Program:
    """A program whose products write the parts of their transposed result themselves."""
    base, draft = subject.base, Draft(subject.base)
    for copy, pairs in exchangeable.items():
        products = _sums(subject, copy, pairs)
        sums = draft.slots(products[0])[0][2].dtype
        parts = [(n, draft.slots(transposition)[0]) for n, (transposition, _) in enumerate(pairs)]
        for row, (number, target) in product(products, parts):
            _, stationary, moving = draft.slots(row)
            shift, part = cut(moving[2], number, len(pairs)) or _unfit()
            total = target[0], target[1], retyped_layout(target[2], sums)
            form = draft.form_with(row, [total[2], part, stationary[2]])
            operands = [total, (moving[0], moving[1] + shift, part), stationary]
            draft.insert(row, form, base.values_of(row), operands)
        draft.drop([*products, copy, *(row for row, _ in pairs)])
        # a sum is as wide as its product makes it; whoever reads it converts
        draft.retype({draft.slots(row)[0][0]: sums for row, _ in pairs})
    return draft.program()


@transformation(
    "broadcast", relieves=("dma",), title="one transfer repeats a row over partitions",
    what="the same row of HBM is loaded into one partition after another",
    why="each transfer has its fixed cost; one with a stride of zero reads the row for all partitions",
    fix="load from a view with a stride of 0 along the partitions, into all of them at once",
    source="DMA bandwidth guide; NKI programming guide, tensor indexing",
)  # fmt: skip
def repeated_rows(subject: Subject) -> Iterator[Candidate]:
    """Loads of equal elements into neighbouring partitions of one tile."""
    base, draft = subject.base, Draft(subject.base)
    for rows in by_line(base, subject.rows_of("dma_copy")).values():
        groups: list[list[int]] = []
        for row in [row for row in rows.tolist() if _fills_a_partition(draft, row)]:
            follows = bool(groups) and _continues(draft, groups[-1][-1], row)
            groups += [] if follows else [[]]
            groups[-1].append(row)
        several = [own for own in groups if len(own) > 1]
        loads = [row for own in several for row in own]
        message = f"{plural(len(loads), 'transfer', 'load')} equal rows into one partition each"
        edit = "one transfer for all partitions", partial(_joined, subject, several)
        yield from of_rows(subject, loads, message, edit)


def _fills_a_partition(draft: Draft, row: int) -> bool:
    target, source = draft.slots(row)[:2]
    return source[2].memory == HBM and target[2].memory != HBM and target[2].partitions == 1


def _continues(draft: Draft, before: int, row: int) -> bool:
    """Whether a load reads what another one reads, into the next partition of its tile."""
    (tile, offset, _), known = draft.slots(before)[:2]
    target, source = draft.slots(row)[:2]
    width = prod(draft.base.storages[tile].shape[1:])
    return source == known and target[:2] == (tile, offset + width)


def _joined(subject: Subject, groups: list[list[int]]) -> Program:
    draft = Draft(subject.base)
    if not all(draft.merge(own, PARTITIONS) for own in groups):
        raise Unfit
    return draft.program()
