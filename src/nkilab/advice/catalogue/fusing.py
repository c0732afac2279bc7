"""Instructions that become part of another one: chains, sums, copies, scales, and rows without use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
from msgspec.structs import replace

from ...isa.declare import Instruction, Step
from ...tiles.tile import PSUM, Layout
from ...trace.program import Program
from ..declare import POINTWISE, Candidate, Subject, of_rows, plural, transformation
from ..draft import Draft, Slot, Unfit, transposes, with_steps
from ..equal_values import live_rows

# hw: 64 cycles of an engine of 1.4 GHz, the least that an instruction takes (trn1 architecture guide)
READ_OUT_NS = 46.0
_ONE_SOURCE = ("tensor_scalar", "tensor_copy", "activation", "reciprocal")
_ELEMENTWISE = (*_ONE_SOURCE, "tensor_tensor", "scalar_tensor_tensor", "tensor_reduce")
_READ_PSUM = (*_ELEMENTWISE, "activation_reduce")
_READ_SBUF = (*_ELEMENTWISE, "nc_matmul", "dma_copy")


def _source(subject: Subject, row: int) -> Slot | None:
    """The wide operand that a row reads, if it is one."""
    wide = [a for a in subject.base.accesses(row) if not a.is_written and a.layout.free_size > 1]
    return (wide[0].storage, wide[0].offset, wide[0].layout) if len(wide) == 1 else None


def _is_constant(subject: Subject, storage: int, since: int, until: int) -> bool:
    """Whether nothing writes a tile between two rows."""
    return not any(since < row < until for row in subject.writers.get(storage, []))


def without_steps(subject: Subject, rows: Sequence[int], sources: Mapping[int, Slot] = {}) -> Program:
    """A program without rows of one wide source, whose readers take that source, or another one, instead.

    Raises:
        Unfit: if a reader cannot.
    """
    draft = Draft(subject.base)
    at: dict[int, Slot] = {}
    for row in rows:
        source = sources.get(row) or _source(subject, row)
        (result,) = [a.storage for a in subject.base.accesses(row) if a.is_written]
        last = max(subject.readers.get(result, [-1]))
        if source is None or last < 0 or not _is_constant(subject, source[0], row, last):
            continue
        at[result] = at.get(source[0], source)
        draft.drop([row])
    if not at:
        raise Unfit
    for row in sorted({r for tile in at for r in subject.readers[tile]}):
        if draft.is_kept(row):
            draft.set_slots(row, [_taken(subject.base, slot, at) for slot in draft.slots(row)])
    edited = draft.program()
    return edited.without(np.flatnonzero(~live_rows(edited)), {})


def _taken(base: Program, slot: Slot, at: Mapping[int, Slot]) -> Slot:
    """An operand where a source stands for what a row made: the same part of it, where the two are alike."""
    storage, offset, own = slot
    if storage not in at or own.free_size == 1:
        return slot
    source = at[storage]
    if base.storages[source[0]][1:4] == base.storages[storage][1:4]:
        return source[0], offset, own
    return source[0], source[1], _like(source[2], own)


def _like(own: Layout, old: Layout) -> Layout:
    """A layout of the shape that the operand had before, where elements lie alike."""
    if own is old or own.shape == old.shape:
        return own
    raise Unfit


def _pairs(subject: Subject, first: Sequence[str], then: Sequence[str]) -> list[tuple[int, int]]:
    """Rows of some instructions with the only reader of their result, of others."""
    names = [form.name for form in subject.base.forms]
    column = subject.base.form_column
    result = []
    for row in subject.rows_of(*first).tolist():
        reader = subject.sole_readers.get(row)
        if reader is not None and names[column[reader]] in then:
            result.append((row, reader))
    return result


def _fusing(
    subject: Subject, pairs: Sequence[tuple[int, int]], message: str, edit: str
) -> Iterator[Candidate]:
    """One candidate of all pairs, at the line of the first."""
    rows = [row for row, _ in pairs]
    message = message.format(plural(len(rows), "instruction"))
    yield from of_rows(subject, rows, message, (edit, lambda: without_steps(subject, rows)))


def _named(form: Instruction, attribute: str) -> str:
    """The operator or function that a form has as an attribute, by name; "" if it has none."""
    operator = getattr(form, attribute, None)
    return operator.name if operator is not None else ""


def _operators(form: Instruction) -> int:
    return sum(_named(form, name) != "" for name in ("op0", "op1"))


@transformation(
    "fuse_alu", by_formula=True, relieves=POINTWISE, title="an instruction does two operations",
    what="neighbouring element-wise instructions over one tile each do a single operation",
    why="an instruction passes over the whole tile, whether it does one operation or two",
    fix="use both operators of tensor_scalar, or scalar_tensor_tensor",
    source="NKI performance guide, combine instructions; nki.isa.tensor_scalar",
)  # fmt: skip
def chains(subject: Subject) -> Iterator[Candidate]:
    """Single operations with a constant per row, whose result one other operation uses."""
    forms = subject.base.forms
    column = subject.base.form_column
    pairs, taken = [], set[int]()
    for row, reader in _pairs(subject, ("tensor_scalar",), ("tensor_scalar", "tensor_tensor")):
        one, other = forms[column[row]], forms[column[reader]]
        single = _operators(one) == 1 and (other.name == "tensor_tensor" or _operators(other) == 1)
        if (
            single
            and row not in taken
            and reader not in taken
            and one.steps[0].engine == other.steps[0].engine
        ):
            pairs.append((row, reader))
            taken |= {row, reader}
    yield from _fusing(
        subject, pairs, "{} of one operation each, whose results one other instruction uses",
        "two operations in one instruction",
    )  # fmt: skip


@transformation(
    "fuse_activation", by_formula=True, relieves=POINTWISE,
    title="an activation scales, shifts and reads PSUM itself",
    what="a scale, bias or copy stands before an activation, or several instructions make up one function",
    why="ScalarE computes op(data * scale + bias) in one pass, with scale and bias per row",
    fix="give scale and bias to nisa.activation, or use the function that does all of it",
    source="nki.isa.activation; NKI performance guide, combine instructions",
)  # fmt: skip
def activations(subject: Subject) -> Iterator[Candidate]:
    """Scales, shifts and copies before an activation; sigmoid and silu spelled out."""
    forms, column = subject.base.forms, subject.base.form_column
    pairs = []
    for row, reader in _pairs(subject, ("tensor_scalar", "tensor_copy"), ("activation", "activation_reduce")):
        operators = {_named(forms[column[row]], name) for name in ("op0", "op1")}
        if operators <= {"multiply", "add", "subtract", ""}:
            pairs.append((row, reader))
    yield from _fusing(
        subject, pairs, "{} scale, shift or copy what an activation reads", "part of the activation"
    )
    weighted = dict(_weighted_sigmoids(subject))
    yield from of_rows(
        subject, list(weighted),
        f"{plural(len(weighted), 'instruction', 'multiply')} a sigmoid by its own data",
        ("silu in one activation", lambda: without_steps(subject, list(weighted), weighted)),
    )  # fmt: skip
    spelled = list(_spelled_sigmoids(subject))
    rows = [row for own in spelled for row in own[1:]]
    message = f"{plural(len(rows) + len(spelled), 'instruction', 'compute')} a sigmoid step by step"
    yield from of_rows(
        subject, rows, message, ("one activation for each", lambda: without_steps(subject, rows))
    )


def _weighted_sigmoids(subject: Subject) -> Iterator[tuple[int, Slot]]:
    """Products of a sigmoid and what it was taken of, with the sigmoid's operand."""
    for row, reader in _pairs(subject, ("activation",), ("tensor_tensor",)):
        form, product = subject.base.form_of(row), subject.base.form_of(reader)
        data, result = _source(subject, row), next(a for a in subject.base.accesses(row) if a.is_written)
        operands = [
            (a.storage, a.offset, a.layout) for a in subject.base.accesses(reader) if not a.is_written
        ]
        if _named(form, "op") == "sigmoid" and _named(product, "op") == "multiply" and data in operands:
            yield reader, (result.storage, result.offset, result.layout)


def _spelled_sigmoids(subject: Subject) -> Iterator[list[int]]:
    """Exponential, sum with one, reciprocal, and the product with the data where it follows."""
    forms, column = subject.base.forms, subject.base.form_column
    for row in subject.rows_of("activation").tolist():
        if _named(forms[column[row]], "op") != "exp":
            continue
        chain: list[int | None] = [row]
        for names in (("tensor_scalar", "activation"), ("reciprocal", "activation"), ("tensor_tensor",)):
            follower = None if chain[-1] is None else subject.sole_readers.get(chain[-1])
            chain.append(follower if follower is not None and forms[column[follower]].name in names else None)
        steps = [step for step in chain if step is not None]
        if len(steps) >= 3:
            yield steps


@transformation(
    "fuse_reduction", by_formula=True, relieves=POINTWISE,
    title="a sum is taken by the instruction that makes its data",
    what="a reduction passes over what an activation or operation has just written",
    why="activation and tensor_tensor can sum each row as they write it; a negation is free in a reduction",
    fix="use activation_reduce, tensor_scalar_reduce, or negate=True of tensor_reduce",
    source="nki.isa.activation_reduce; NKI performance guide, combine instructions",
)  # fmt: skip
def reductions(subject: Subject) -> Iterator[Candidate]:
    """Sums of what an activation wrote, and negations of reduced columns."""
    forms, column = subject.base.forms, subject.base.form_column
    makers = ("activation", "tensor_tensor", "tensor_scalar")
    rows = []
    for row in subject.rows_of("tensor_reduce").tolist():
        writers = [forms[column[w]] for s in set(subject.read_by(row)) for w in subject.writers.get(s, [])]
        adds = _named(forms[column[row]], "op") == "add"
        if (
            adds
            and writers
            and all((f.name in makers and not f.registers) or f.name == "activation" for f in writers)
        ):
            rows.append(row)
    negations = [
        reader for _, reader in _pairs(subject, ("tensor_reduce",), ("tensor_scalar", "activation"))
        if _negates(forms[column[reader]], subject.base.values_of(reader))
    ]  # fmt: skip
    for own, message, edit in (
        (rows, "{} sum what was just written", "summed as it is written"),
        (negations, "{} negate a reduced column", "negated by the reduction"),
    ):
        free = partial(with_steps, subject.base, np.array(own, np.int64), read_out)
        yield from of_rows(subject, own, message.format(plural(len(own), "instruction")), (edit, free))


def read_out(step: Step) -> Step:
    """What is left of a reduction that another instruction does: reading a register of each partition."""
    return replace(step, busy_ns=min(step.busy_ns, READ_OUT_NS), latency_ns=0.0)


def _negates(form: Instruction, values: tuple[object, ...]) -> bool:
    operator = _named(form, "op0") or _named(form, "op")
    narrow = form.layouts[form.written_slots[0]].free_size == 1
    return narrow and operator in ("multiply", "copy") and -1.0 in values


@transformation(
    "defer_scaling", by_formula=True, relieves=POINTWISE,
    title="a row is scaled after the product, not before",
    what="a whole row is scaled or divided, and a product contracts it afterwards",
    why="the product is linear: the same factor scales its result, which is narrower",
    fix="multiply the rows of the product's result by the factor while they leave PSUM",
    source="fused attention tutorial, step 5; NKIBench write-ups",
)  # fmt: skip
def scalings(subject: Subject) -> Iterator[Candidate]:
    """Row scales whose result is only transposed and then stationary in products."""
    forms, column = subject.base.forms, subject.base.form_column
    rows = [
        row for row in subject.rows_of("tensor_scalar", "activation").tolist()
        if _scales_rows(subject, row) and _is_contracted(subject, row, 4)
        and forms[column[row]].layouts[0].free_size >= 256
    ]  # fmt: skip
    message = f"{plural(len(rows), 'instruction', 'scale')} what a product contracts"
    yield from of_rows(
        subject, rows, message, ("scaled after the product", lambda: without_steps(subject, rows))
    )


@transformation(
    "fold_algebra", by_formula=True, relieves=POINTWISE,
    title="a constant factor is part of an operand already",
    what="a tile is multiplied by a number, and a product contracts it afterwards",
    why="the product is linear: the other operand, or an argument, may have the number in it already",
    fix="multiply the weights by the number before the launch, or give it to the scale of what follows",
    source="fused attention tutorial, scale of queries; NKIBench write-ups",
)  # fmt: skip
def factors(subject: Subject) -> Iterator[Candidate]:
    """Multiplications by a number of what products contract."""
    rows = [
        row for row in subject.rows_of("tensor_scalar", "activation").tolist()
        if _scales_rows(subject, row) and len(list(subject.base.accesses(row))) == 2
        and _is_contracted(subject, row, 4, ("stationary", "moving"))
    ]  # fmt: skip
    message = f"{plural(len(rows), 'instruction', 'multiply')} by a number what a product contracts"
    yield from of_rows(
        subject,
        rows,
        message,
        ("the factor in another operand", lambda: without_steps(subject, rows)),
        rounds=True,
    )


def _scales_rows(subject: Subject, row: int) -> bool:
    form = subject.base.form_of(row)
    if form.name == "tensor_scalar":
        return _named(form, "op0") in ("multiply", "divide") and not _named(form, "op1")
    return _named(form, "op") == "copy"


def _is_contracted(subject: Subject, row: int, depth: int, operands: Sequence[str] = ("stationary",)) -> bool:
    """Whether a result is only transposed and copied until it is such an operand of products."""
    (result,) = [a.storage for a in subject.base.accesses(row) if a.is_written]
    readers = subject.readers.get(result, [])
    if not depth or not readers:
        return False
    return all(_passes_on(subject, reader, result, depth, operands) for reader in readers)


def _passes_on(subject: Subject, reader: int, tile: int, depth: int, operands: Sequence[str]) -> bool:
    """Whether a reader of a tile multiplies by it, or only transposes or copies it for one that does."""
    form = subject.base.form_of(reader)
    if form.name == "tensor_copy" or transposes(form):
        return _is_contracted(subject, reader, depth - 1, operands)
    return form.name == "nc_matmul" and tile in [subject.slots_of_operand(reader, name) for name in operands]


@transformation(
    "read_psum_directly", relieves=POINTWISE, title="instructions read PSUM themselves",
    what="a tile is copied from PSUM to SBUF, and its only reader could have read PSUM",
    why="the copy is one more pass over the tile",
    fix="leave the copy out, and give the PSUM tile to the instruction that reads the copy",
    source="NKI performance guide, PSUM; trn1 architecture guide",
)  # fmt: skip
def copies(subject: Subject) -> Iterator[Candidate]:
    """Copies out of PSUM with one reader that takes PSUM."""
    pairs = [
        (row, reader) for row, reader in _pairs(subject, ("tensor_copy",), _READ_PSUM)
        if (source := _source(subject, row)) is not None and subject.base.storages[source[0]].memory == PSUM
    ]  # fmt: skip
    yield from _fusing(subject, pairs, "{} copy what their reader could read in PSUM", "read in PSUM")


@transformation(
    "cast_once", relieves=POINTWISE, title="a tile is not copied on its way",
    what="a copy within SBUF only moves or converts a tile for one reader",
    why="the copy is one more pass over the tile",
    fix="let the instruction that makes the tile write the type that its reader takes",
    source="NKI performance guide, data types",
)  # fmt: skip
def casts(subject: Subject) -> Iterator[Candidate]:
    """Copies within SBUF with one reader that takes the source as it is."""
    pairs = [
        (row, reader) for row, reader in _pairs(subject, ("tensor_copy",), _READ_SBUF)
        if (source := _source(subject, row)) is not None and subject.base.storages[source[0]].memory != PSUM
    ]  # fmt: skip
    yield from _fusing(subject, pairs, "{} only copy a tile", "the reader takes the source")


@transformation(
    "dead_work", title="every instruction serves a result", what="instructions write what nobody reads",
    why="they occupy engines and memory for nothing", fix="leave out what writes a tile that nobody reads",
    source="NKI performance guide",
)  # fmt: skip
def unused(subject: Subject) -> Iterator[Candidate]:
    """Rows whose results nothing that leaves the kernel depends on."""
    rows = np.flatnonzero(~live_rows(subject.base))
    message = f"{plural(len(rows), 'instruction', 'write')} what nobody reads"
    yield from of_rows(subject, rows, message, ("left out", lambda: subject.base.without(rows, {})))
