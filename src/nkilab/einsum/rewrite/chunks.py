"""Linear recurrences that are read through sums of products, in chunks of turns: products instead of a scan.

With S[t] = a[t] S[t-1] + k[t] v[t] and y[t] = sum of q[t] S[t] over what q and k share, let D[l, j] be the
product of a over the turns of a chunk behind j up to l, 0 before j, and E[l] that of all up to l. Then

    y[l] = sum over j of (q[l] k[j]) D[l, j] v[j] + E[l] q[l] Z

where Z is the state before the chunk, and that behind it is E[last] Z + sum over j of D[last, j] k[j] v[j].
D and E are scans of their own, D[l] = a[l] D[l-1] + (l = j): nothing is divided, and a may be 0. Products are
distributed over sums, which is all that both forms differ by. What reads S[t-1] has those of the turn before.
A turn may add several such products: each has weights and keys of its own.
Where a has what q and k share too, `levels.py` has products of both with what is left. A last chunk may have
fewer turns: beyond them are keys of 0, and decays of 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ..language.ast import Cascade, Einsum, Iterate, Recurrence, Step
from ..language.indices import Access, Affine, Operand, Scalar, plain
from .decays import is_decay
from .delta import Delta, delta_of
from .in_chunks import InChunks, at
from .levels import Levels

# turns of a chunk at least
FEWEST_TURNS = 16
# what else multiplies operands behind the first of a sum or a difference
SIGNS: dict[str, tuple[Scalar, ...]] = {"add": (), "subtract": (Scalar(value=-1.0),)}


@dataclass(frozen=True)
class Term:
    """A product that a turn adds to a state."""

    keys: tuple[Operand, ...]  # factors that have what readers sum over
    values: tuple[Operand, ...]  # and the others


@dataclass(frozen=True)
class Form:
    """A recurrence in a form that chunks have."""

    scan: Einsum  # the recurrence
    terms: tuple[Term, ...]  # whose sum a turn adds to the state, the one that it solves for first
    # Einsums that sum products with the state of their turn, or of the one before
    readers: tuple[Einsum, ...]
    last: Einsum | None  # the Einsum that is the last state; None if nothing reads it
    gone: tuple[Einsum, ...]  # Einsums that nothing needs any more

    @property
    def turn(self) -> str:
        """The variable of its turns."""
        assert self.scan.recurrence is not None
        return self.scan.recurrence.variable

    @property
    def is_matrix(self) -> bool:
        """Whether what a turn adds is a product of keys with values, which products of chunks sum."""
        left = {*self.scan.operands[0].variables, self.turn}
        own = [{v for f in t.values for v in f.variables} - left for t in self.terms]
        return all(t.values and (o or not self.is_levelled) for t, o in zip(self.terms, own, strict=True))

    @property
    def is_levelled(self) -> bool:
        """Whether what is summed decays by itself."""
        return any({*e.reduced} & {*self.scan.operands[0].variables} for e in self.readers)


def with_chunks(cascade: Cascade, partitions: int) -> Cascade:
    """The cascade, every Einsum of which is needed, with recurrences in chunks where they can be."""
    for delta, form in (d for block in cascade.blocks if (d := _delta_form(block, cascade)) is not None):
        other = _in_chunks(delta.cascade, form, partitions, delta)
        tensors = {name: t for name, t in other.tensors.items() if name != delta.read}
        is_made = other is not delta.cascade
        cascade = replace(other, tensors=tensors, outputs=cascade.outputs) if is_made else cascade
    for form in (f for e in cascade.einsums if (f := _form_of(e, cascade)) is not None):
        cascade = _in_chunks(cascade, form, partitions)
    return cascade


def _in_chunks(cascade: Cascade, form: Form, partitions: int, delta: Delta | None = None) -> Cascade:
    """The cascade with a recurrence in chunks, if it has enough turns and these add products."""
    if not form.is_matrix:
        return cascade
    turns = cascade.extent(form.turn, form.scan)
    most = min(partitions, turns if delta is None else max(turns // 2, 1))
    lengths = [n for n in range(1, most + 1) if not form.is_levelled or n & (n - 1) == 0]
    length = max(n for n in lengths if turns % n == 0)
    # the last chunk has fewer turns where none divide them into long ones
    length = lengths[-1] if length * 2 <= lengths[-1] else length
    return Chunks(cascade, form, length, delta).cascade() if FEWEST_TURNS <= length < turns else cascade


def _delta_form(block: Iterate, cascade: Cascade) -> tuple[Delta, Form] | None:
    """A block as the delta rule, in a form that chunks have; None for others."""
    if (delta := delta_of(block, cascade)) is None:
        return None
    last, reader = delta.chain[-1].output, delta.reader
    form = next((f for f in forms_of(delta.cascade) if reader in f.readers), None)
    solved = [t for t in form.terms if last in t.values] if form is not None else []
    if form is None or len(solved) != 1:
        return None
    readers = tuple(e for e in form.readers if e is not reader)
    terms = (*solved, *(t for t in form.terms if t not in solved))
    return delta, replace(form, terms=terms, readers=readers, gone=(*form.gone, *delta.chain))


def is_delta(block: Iterate, cascade: Cascade) -> bool:
    """Whether products may compute a block, turns of which add what they read of their state."""
    return _delta_form(block, cascade) is not None


def solved_scans(cascade: Cascade) -> Iterator[tuple[Einsum, Cascade]]:
    """The recurrences of such blocks, each with the cascade that has it."""
    forms = (_delta_form(block, cascade) for block in cascade.blocks)
    return ((form[1].scan, form[0].cascade) for form in forms if form is not None)


def is_chunked(scan: Einsum, cascade: Cascade) -> bool:
    """Whether products may compute a recurrence and what reads it, without every one of its states."""
    form = _form_of(scan, cascade)
    return form is not None and form.is_matrix


def forms_of(cascade: Cascade) -> Iterator[Form]:
    """The recurrences that are linear, and read through sums of products alone."""
    return (f for e in cascade.einsums if (f := _form_of(e, cascade)) is not None)


def _form_of(scan: Einsum, cascade: Cascade) -> Form | None:
    known = scan.recurrence
    if known is None or (known.kind, known.op0) != ("scan", "multiply") or known.op1 not in SIGNS:
        return None
    if known.is_descending or known.has_first or known.reverse1 or scan.name in cascade.outputs:
        return None
    kinds = {e.recurrence.kind: e for e in cascade.einsums if e.recurrence and scan.output in e.operands}
    before = kinds.get("before")
    states = (scan.output, before.output) if before is not None else (scan.output,)
    others = [e for e in cascade.einsums if {a.tensor for a in states} & {*e.reads}]
    readers = tuple(e for e in others if e not in kinds.values())
    summed = {v for e in readers for v in e.reduced}
    is_read = all(_reads_sums(e, states, known.variable) for e in readers)
    products, makers = _products(scan.operands[1], known.variable, summed, cascade)
    terms = list[Term]()
    for factors in products:
        keys = tuple(f for f in factors if summed & {*f.variables})
        terms.append(Term(keys, (*(f for f in factors if f not in keys), *SIGNS[known.op1])))
    if not readers or not is_read or not all(t.keys for t in terms):
        return None
    gone = (scan, *makers, *readers, *kinds.values())
    return Form(scan, tuple(terms), readers, kinds.get("last"), gone)


def _products(
    operand: Operand, turn: str, summed: set[str], cascade: Cascade
) -> tuple[list[tuple[Operand, ...]], tuple[Einsum, ...]]:
    """Factors of products whose sum an operand is, some of which have what is summed; and what made it so."""
    maker = _maker(operand, turn, summed, cascade)
    if maker is None or maker.map_op not in ("multiply", "", *SIGNS):
        return [(operand,)], ()
    parts, makers = list[list[tuple[Operand, ...]]](), [maker]
    for number, own in enumerate(maker.operands):
        products, inner = _products(own, turn, summed, cascade)
        signs = SIGNS[maker.map_op] if number and maker.map_op in SIGNS else ()
        parts.append([(*factors, *signs) for factors in products])
        makers += inner
    if maker.map_op in SIGNS:
        return [factors for part in parts for factors in part], tuple(makers)
    if any(len(part) > 1 for part in parts):
        return [(operand,)], ()
    return [tuple(f for (factors,) in parts for f in factors)], tuple(makers)


def _maker(operand: Operand, turn: str, summed: set[str], cascade: Cascade) -> Einsum | None:
    """The Einsum that computes an operand with what is summed, and some of the rest, for its reader alone."""
    makers = [e for e in cascade.einsums if isinstance(operand, Access) and e.name == operand.tensor]
    readers = [e for e in cascade.einsums if isinstance(operand, Access) and operand.tensor in e.reads]
    is_inner = bool(summed & {*operand.variables}) and len(makers) == len(readers) == 1
    if not is_inner or makers[0].name in cascade.outputs or makers[0].output != operand:
        return None
    return makers[0] if not makers[0].reduce_op and _is_plain(makers[0], turn) else None


def _is_plain(einsum: Einsum, turn: str) -> bool:
    """Whether an Einsum is free of conditions, and the turn stands alone in its indices."""
    is_alone = all(i.plain == turn for i in einsum.indices if turn in i.variables)
    return not einsum.is_placed and is_alone


def _reads_sums(einsum: Einsum, states: Sequence[Access], turn: str) -> bool:
    """Whether an Einsum sums products with the state of its turn, or of the one before."""
    read = [a for a in einsum.accesses if a.tensor in {s.tensor for s in states}]
    others = replace(einsum, operands=tuple(o for o in einsum.operands if o not in read))
    is_own = len(read) == 1 and read[0] in states and turn in einsum.output.variables
    return is_own and einsum.map_op == "multiply" and einsum.reduce_op == "add" and _is_plain(others, turn)


class Chunks(InChunks):
    """Writes one recurrence in chunks."""

    def __init__(self, cascade: Cascade, form: Form, length: int, delta: Delta | None) -> None:
        self.form, self.delta, self.scan = form, delta, form.scan
        super().__init__(cascade, self.scan, form.turn, length, form.gone)
        self.lanes = [v for v in self.scan.output.variables if v != self.turn]
        states = self.variable("CHUNKS", self.count + 1)
        self.states = at(self.new("states", {states, *self.lanes}), states, *plain([self.chunk]))
        if self.is_ragged:
            self.first = self.variable("WHOLE", self.count - 1)
            self.left = self.variable("LEFT", self.turns - (self.count - 1) * length)
        self.halves, self.whole, self.behind = Levels(self), dict[Operand, Access](), list[Einsum]()
        self.values = dict[Term, Operand]()

    def early(self, last: Operand) -> Operand:
        """What was added last, computed before all chunks."""
        own = [e for s in self.body[-1:] for e in s.body if e.output == last]
        self.ahead += own
        self.body = self.body[: len(self.body) - len(own)]
        return last

    def along_rows(self, kind: str) -> Recurrence:
        """A scan over the rows of a chunk, or what stands a row before."""
        return Recurrence(self.row, kind, op0="multiply", op1="add")

    @cached_property
    def keys(self) -> list[Operand]:
        """What a turn adds of what is summed, term by term, at the row."""
        return [self.placed(self.one("keys", t.keys), self.row) for t in self.form.terms]

    def value(self, term: Term) -> Operand:
        """What a turn adds of the rest of a term, at the column."""
        if term not in self.values:
            last = self.delta.chain[-1].output if self.delta is not None else None
            own = [self.solution if f == last else self.placed(f, self.row) for f in term.values]
            self.values[term] = self.in_columns(self.one("values", own))
        return self.values[term]

    def placed(self, operand: Operand, place: str) -> Operand:
        """An operand at a place of the chunk instead of at a turn."""
        if self.is_ragged and self.turn in operand.variables:
            return at(self.padded(operand, 0.0), self.row, *plain([place]))
        return at(operand, self.turn, self.turn_at(place))

    def padded(self, operand: Operand, beyond: float) -> Access:
        """An operand in chunks of equal length, with a value beyond the last turn."""
        if operand not in self.whole:
            origin = getattr(operand, "tensor", self.scan.name)
            own = {v for v in operand.variables if v != self.turn}
            whole = self.whole[operand] = self.new(f"{origin}_all", {*own, self.chunk, self.row}, origin)
            # all of the last chunk, as instructions begin with the first partition
            last = at(whole, self.chunk, Affine(constant=self.count - 1))
            self.ahead.append(Einsum(last, (Scalar(value=beyond),)))
            self.ahead += [Einsum(part, (at(operand, self.turn, turn),)) for part, turn in self.parts(whole)]
        return self.whole[operand]

    def parts(self, whole: Access) -> Iterator[tuple[Access, Affine]]:
        """What chunks have of all turns: whole ones, and the rows of the last; with the turns there."""
        done = (self.count - 1) * self.length
        first = Affine(((self.first, self.length), (self.row, 1)))
        yield at(whole, self.chunk, *plain([self.first])), first
        last = at(whole, self.chunk, Affine(constant=self.count - 1))
        yield at(last, self.row, *plain([self.left])), Affine(((self.left, 1),), done)

    def written(self, output: Access) -> Access:
        """Where chunks write a result; it is a part of that where the last has fewer turns."""
        if not self.is_ragged:
            return at(output, self.turn, self.turn_at(self.row))
        own = {self.chunk, self.row, *output.variables} - {self.turn}
        whole = self.new(f"{output.tensor}_all", own, output.tensor)
        self.behind += [Einsum(at(output, self.turn, turn), (part,)) for part, turn in self.parts(whole)]
        return whole

    @property
    def is_ragged(self) -> bool:
        """Whether the last chunk has fewer turns than the others."""
        return self.count * self.length > self.turns

    @cached_property
    def is_bounded(self) -> bool:
        """Whether what is left of a state grows at no turn."""
        return is_decay(self.scan.operands[0], self.source)

    @cached_property
    def decay(self) -> Operand:
        """What turns multiply the state with, 1 beyond the last one; the rows of a chunk side by side."""
        decay = self.scan.operands[0]
        if self.is_ragged and (self.form.last is not None or self.turn in decay.variables):
            decay = self.padded(decay, 1.0)
        decay = self.placed(decay, self.row)
        if self.row in decay.variables:
            decay = self.add("rows", (decay,))
        # for all chunks at once, as scans take them
        return decay if self.form.is_levelled else self.early(decay)

    def cascade(self) -> Cascade:
        """The cascade with the recurrence in chunks."""
        if self.delta is not None:
            self.solve(self.delta)
        for reader in self.form.readers:
            self.read(reader)
        self.follow()
        begun = Einsum(at(self.states, self.chunk, Affine()), (self.scan.operands[2],))
        chunks = self.block(self.chunk, self.body)
        own: list[Step] = [*self.ahead, begun, chunks, *self.behind]
        if self.form.last is not None:
            end = at(self.states, self.chunk, Affine(constant=self.count))
            own.append(replace(self.form.last, operands=(end,), recurrence=None, text=""))
        place = (self.scan, *self.form.readers)[-1]
        steps: list[Step] = []
        for step in self.source.steps:
            steps += own if step is place else [] if step in self.form.gone else [step]
        return self.added.applied(tuple(steps))

    @cached_property
    def decays(self) -> tuple[Access, Operand | None]:
        """How much of a turn is left at a later one, and of the state before, if not all."""
        over = self.along_rows("scan")
        # of turns and turns there is much, which lies on chip for a chunk
        left = self.add("decay", (self.decay, self.same, Scalar()), recurrence=over)
        if self.decay == Scalar(value=1.0):
            return left, None
        whole = (self.decay, Scalar(), Scalar(value=1.0))
        return left, self.early(self.add("whole", whole, recurrence=over))

    @cached_property
    def decays_before(self) -> tuple[Access, Operand | None]:
        """The same for what reads the state of the turn before."""
        (left, whole), over = self.decays, self.along_rows("before")
        before = self.add("decay_before", (left, Scalar()), recurrence=over)
        if whole is None:
            return before, None
        one = Scalar(value=1.0)
        return before, self.early(self.add("whole_before", (whole, one), recurrence=over))

    def weighed(self, reader: Einsum) -> tuple[list[Access], Access]:
        """What a reader has of each turn of a chunk, term by term, and of the state before it."""
        states = {a.tensor for e in self.form.gone if e.recurrence for a in [e.output]}
        (state,) = (a.tensor for a in reader.accesses if a.tensor in states)
        others = [o for o in reader.operands if getattr(o, "tensor", "") != state]
        query, is_own = self.placed(self.one("queries", others), self.row), state == self.scan.name
        if self.form.is_levelled:
            return self.halves.weighed(reader, query, is_own)
        left, whole = self.decays if is_own else self.decays_before
        weights = list[Access]()
        for key in self.keys:
            score = self.add("scores", (query, self.in_columns(key)), "multiply", summed=reader.reduced)
            weights.append(self.add("weights", (score, left), "multiply"))
        outer = self.add("outer", (query, self.states), "multiply", summed=reader.reduced)
        return weights, outer if whole is None else self.add("decayed", (outer, whole), "multiply")

    def inner(self, weight: Access, term: Term) -> Access:
        """What a reader sums of a term over turns of a chunk."""
        over = [v for v in (self.level, self.column) if v in weight.variables]
        return self.add("inner", (weight, self.value(term)), "multiply", summed=over)

    def read(self, reader: Einsum) -> None:
        """What a reader sums of a chunk: of its own turns, and of the state before it."""
        weights, outer = self.weighed(reader)
        operands = (*map(self.inner, weights, self.form.terms), outer)
        output = self.written(reader.output)
        total = replace(reader, output=output, operands=operands, map_op="add", reduce_op="", text="")
        self.body.append(total)

    @property
    def end(self) -> tuple[list[Operand], Operand | None]:
        """What is left of keys, and of the state before, at the end of a chunk."""
        (left, whole), end, keys = self.decays, Affine(constant=self.length - 1), list[Operand]()
        if whole is None:
            return [*map(self.in_columns, self.keys)], None
        for key in map(self.in_columns, self.keys):
            keys.append(self.add("scaled", (key, at(left, self.row, end)), "multiply"))
        last = at(whole, self.row, end)
        along = [v for v in self.lanes if any(v in key.variables for key in keys)]
        # before all chunks, as there is no time for it between one and the next
        return keys, self.early(self.add("end", (last,), along=along)) if last.variables else last

    def follow(self) -> None:
        """The state behind a chunk."""
        keys, last = self.halves.end if self.form.is_levelled else self.end
        now = self.states if last is None else self.add("kept", (self.states, last), "multiply")
        every = zip(keys, map(self.value, self.form.terms), strict=True)
        more = [self.add("added", factors, "multiply", summed=(self.column,)) for factors in every]
        behind = at(self.states, self.chunk, Affine(((self.chunk, 1),), 1))
        self.body.append(Einsum(behind, (now, *more), "add", place=self.scan.place))

    def solve(self, delta: Delta) -> None:
        """What turns add that is linear in what those before them add."""
        weights, outer = self.weighed(delta.reader)
        known = [*map(self.inner, weights[1:], self.form.terms[1:])]
        outer = self.add("known", (outer, *known), "add") if known else outer
        results: dict[str, Operand] = {delta.read: outer}
        for einsum in delta.chain:
            operands = [
                results.get(getattr(o, "tensor", "")) or self.placed(o, self.row) for o in einsum.operands
            ]
            results[einsum.name] = self.add(einsum.name, operands, einsum.map_op)
        others = [f for f in self.form.terms[0].values if f != delta.chain[-1].output]
        slope = [self.placed(f, self.row) for f in delta.slope] + [
            self.placed(f, self.column) for f in others
        ]
        joined = self.add("joined", (weights[0], *slope), "multiply")
        value = results[delta.chain[-1].name]
        if not self.is_bounded:
            # what is left may be infinite at late turns, which products would hand on to those before
            joined, value = self.finite(joined), self.finite(value)
        inverse = self.inverse(joined)
        # of all chunks before the first state, of which inverses need nothing
        late = {self.states.tensor}
        for step in self.body:
            late |= {e.name for e in step.body} if late & {t for e in step.body for t in e.reads} else set()
        self.ahead += [s for s in self.body if s.body[0].name not in late]
        self.body = [s for s in self.body if s.body[0].name in late]
        factors = (inverse, self.in_columns(value))
        solution = self.add("solution", factors, "multiply", summed=(self.column,))
        self.solution = self.finite(solution)
        self.body.append(Einsum(self.written(delta.chain[-1].output), (solution,), place=self.scan.place))
