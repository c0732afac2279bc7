"""Linear recurrences that are read through sums of products, in chunks of turns: products instead of a scan.

With S[t] = a[t] S[t-1] + k[t] v[t] and y[t] = sum of q[t] S[t] over what q and k share, let D[l, j] be the
product of a over the turns of a chunk behind j up to l, 0 before j, and E[l] that of all up to l. Then

    y[l] = sum over j of (q[l] k[j]) D[l, j] v[j] + E[l] q[l] Z

where Z is the state before the chunk, and that behind it is E[last] Z + sum over j of D[last, j] k[j] v[j].
D and E are scans of their own, D[l] = a[l] D[l-1] + (l = j): nothing is divided, and a may be 0. Products are
distributed over sums, which is all that both forms differ by. What reads S[t-1] has those of the turn before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ..language.additions import Additions
from ..language.ast import Cascade, Einsum, Iterate, Recurrence, Step, Tensor
from ..language.indices import Access, Affine, Operand, Position, Scalar, plain

# turns of a chunk at least
FEWEST_TURNS = 16


@dataclass(frozen=True)
class _Form:
    """A recurrence in a form that chunks have."""

    scan: Einsum  # the recurrence
    factors: tuple[Operand, ...]  # whose product a turn adds to the state
    # Einsums that sum products with the state of their turn, or of the one before
    readers: tuple[Einsum, ...]
    last: Einsum | None  # the Einsum that is the last state; None if nothing reads it
    gone: tuple[Einsum, ...]  # Einsums that nothing needs any more


def with_chunks(cascade: Cascade, partitions: int) -> Cascade:
    """The cascade, every Einsum of which is needed, with recurrences in chunks where they can be."""
    for form in (f for e in cascade.einsums if (f := _form_of(e, cascade)) is not None):
        assert form.scan.recurrence is not None
        turns = cascade.extent(form.scan.recurrence.variable, form.scan)
        length = max(n for n in range(1, min(partitions, turns) + 1) if turns % n == 0)
        cascade = _Chunks(cascade, form, length).cascade() if FEWEST_TURNS <= length < turns else cascade
    return cascade


def is_chunked(scan: Einsum, cascade: Cascade) -> bool:
    """Whether products may compute a recurrence and what reads it, without every one of its states."""
    return _form_of(scan, cascade) is not None


def _form_of(scan: Einsum, cascade: Cascade) -> _Form | None:
    """A recurrence that is linear and read through sums of products alone; None for others."""
    known = scan.recurrence
    if known is None or (known.kind, known.op0, known.op1) != ("scan", "multiply", "add"):
        return None
    if known.is_descending or known.has_first or scan.name in cascade.outputs:
        return None
    decay, added, _ = scan.operands
    kinds = {e.recurrence.kind: e for e in cascade.einsums if e.recurrence and scan.output in e.operands}
    before = kinds.get("before")
    states = (scan.output, before.output) if before is not None else (scan.output,)
    others = [e for e in cascade.einsums if {a.tensor for a in states} & {*e.reads}]
    readers = tuple(e for e in others if e not in kinds.values())
    summed = {v for e in readers for v in e.reduced}
    is_read = all(_reads_sums(e, states, known.variable) for e in readers) and not summed & {*decay.variables}
    factors, makers = _factors(added, known.variable, summed, cascade)
    keys = [bool(summed & {*f.variables}) for f in factors]
    if not readers or not is_read or len({*keys}) < 2:
        return None
    gone = (scan, *makers, *readers, *kinds.values())
    return _Form(scan, factors, readers, kinds.get("last"), gone)


def _factors(
    operand: Operand, turn: str, summed: set[str], cascade: Cascade
) -> tuple[tuple[Operand, ...], tuple[Einsum, ...]]:
    """Factors of an operand, of which some have what is summed, and Einsums that multiplied them for it."""
    makers = [e for e in cascade.einsums if isinstance(operand, Access) and e.name == operand.tensor]
    readers = [e for e in cascade.einsums if isinstance(operand, Access) and operand.tensor in e.reads]
    is_mixed = bool(summed & {*operand.variables})
    is_inner = is_mixed and len(makers) == len(readers) == 1 and makers[0].name not in cascade.outputs
    if not is_inner or makers[0].output != operand or makers[0].reduce_op or not _multiplies(makers[0], turn):
        return (operand,), ()
    parts = [_factors(o, turn, summed, cascade) for o in makers[0].operands]
    own, inner = ([p for part in parts for p in part[n]] for n in (0, 1))
    return tuple(own), (makers[0], *inner)  # type: ignore[arg-type]


def _multiplies(einsum: Einsum, turn: str) -> bool:
    """Whether an Einsum multiplies, and the turn stands alone in its indices."""
    is_plain = all(i.plain == turn for i in einsum.indices if turn in i.variables)
    return einsum.map_op in ("multiply", "") and not einsum.is_placed and is_plain


def _reads_sums(einsum: Einsum, states: Sequence[Access], turn: str) -> bool:
    """Whether an Einsum sums products with the state of its turn, or of the one before."""
    read = [a for a in einsum.accesses if a.tensor in {s.tensor for s in states}]
    others = replace(einsum, operands=tuple(o for o in einsum.operands if o not in read))
    is_own = len(read) == 1 and read[0] in states and turn in einsum.output.variables
    return is_own and einsum.map_op == "multiply" and einsum.reduce_op == "add" and _multiplies(others, turn)


class _Chunks:
    """Writes one recurrence in chunks."""

    def __init__(self, cascade: Cascade, form: _Form, length: int) -> None:
        self.source, self.form, self.length = cascade, form, length
        self.added, self.scan = Additions(cascade), form.scan
        assert self.scan.recurrence is not None
        self.turn = self.scan.recurrence.variable
        self.count = cascade.extent(self.turn, self.scan) // length
        sizes = {"CHUNK": self.count, "ROW": length, "COLUMN": length, "CHUNKS": self.count + 1}
        ranks = {hint: self.added.rank(f"{self.turn.upper()}_{hint}", size) for hint, size in sizes.items()}
        self.chunk, self.row, self.column, _ = (rank.lower() for rank in ranks.values())
        self.ranks = {
            v: self.added.rank_of(v, e) for e in cascade.einsums if e in form.gone for v in e.variables
        } | {rank.lower(): rank for rank in ranks.values()}
        self.lanes = [v for v in self.scan.output.variables if v != self.turn]
        states = (ranks["CHUNKS"], *(self.ranks[v] for v in self.lanes))
        self.states = self.added.unused(f"{self.scan.name}_states")
        self.added.tensors[self.states] = Tensor(self.states, states)

    def state(self, later: int = 0) -> Access:
        """The state before a chunk, or one later."""
        return Access(self.states, (Affine(((self.chunk, 1),), later), *plain(self.lanes)))

    def einsum(
        self, hint: str, operands: Sequence[Operand], of: str, *, summed: Sequence[str] = (), kind: str = "",
        along: Sequence[str] = (),
    ) -> tuple[Einsum, Access]:  # fmt: skip
        """An Einsum of operands whose result is a new tensor: summed over variables, or along rows.

        It has the same values along variables that no operand has.
        """
        known = {v for o in operands for v in o.variables if v not in summed} | {*along}
        known |= {self.row} if kind else set()
        inner = [v for v in (self.row, self.column) if v in known]
        variables = [v for v in (self.chunk, *self.ranks) if v in known and v not in inner]
        variables = [*dict.fromkeys(variables), *inner]
        name = self.added.unused(f"{self.scan.name}_{hint}")
        self.added.tensors[name] = Tensor(name, tuple(self.ranks[v] for v in variables))
        recurrence = Recurrence(self.row, kind, op0="multiply", op1="add") if kind else None
        output = Access(name, plain(variables))
        einsum = Einsum(output, tuple(operands), of, "add" if summed else "", recurrence=recurrence)
        return replace(einsum, place=self.scan.place), output

    def one(self, hint: str, factors: Sequence[Operand]) -> Operand:
        """The product of factors, computed before all chunks."""
        if len(factors) == 1:
            return factors[0]
        step, product = self.einsum(hint, factors, "multiply")
        self.ahead.append(step)
        return product

    @cached_property
    def factors(self) -> tuple[Operand, Operand]:
        """What a turn adds to the state, as the product of what has what is summed, and of the rest."""
        summed = {v for e in self.form.readers for v in e.reduced}
        keys = [f for f in self.form.factors if summed & {*f.variables}]
        values = [f for f in self.form.factors if f not in keys]
        return self.one("keys", keys), self.one("values", values)

    def placed(self, operand: Operand, place: str) -> Operand:
        """An operand at a place of the chunk instead of at a turn."""
        turn = Affine(((self.chunk, self.length), (place, 1)))
        return operand.with_indices(lambda i: turn if i.plain == self.turn else i)

    def last(self, operand: Operand) -> Operand:
        """An operand at the last row of the chunk."""
        at_end = Affine(constant=self.length - 1)
        return operand.with_indices(lambda i: at_end if i.plain == self.row else i)

    def cascade(self) -> Cascade:
        """The cascade with the recurrence in chunks."""
        every, decays = self.decays()
        # of turns and turns there is much, which lies on chip for a chunk
        body = [e for e in every if {self.chunk, self.row, self.column} <= {*e.variables}]
        self.ahead = [e for e in every if e not in body]
        body += [e for reader in self.form.readers for e in self.read(reader, decays)]
        body += self.following(*decays[self.scan.name])
        begun = Einsum(
            replace(self.state(), indices=(Affine(), *plain(self.lanes))), (self.scan.operands[2],)
        )
        own: list[Step] = [*self.ahead, begun, Iterate(self.chunk, tuple(body), self.scan.place)]
        if self.form.last is not None:
            end = replace(self.state(), indices=(Affine(constant=self.count), *plain(self.lanes)))
            own.append(replace(self.form.last, operands=(end,), recurrence=None, text=""))
        steps: list[Step] = []
        for step in self.source.steps:
            steps += own if step is self.form.readers[-1] else [] if step in self.form.gone else [step]
        return self.added.applied(tuple(steps))

    def decays(self) -> tuple[list[Einsum], dict[str, tuple[Access, Access | None]]]:
        """How much of a turn is left at a later one, and of the state before, by the state that is read."""
        decay, steps = self.placed(self.scan.operands[0], self.row), list[Einsum]()
        if self.row in decay.variables:
            # for all chunks at once, with the rows of a chunk side by side, as scans take them
            rows, decay = self.einsum("rows", (decay,), "")
            steps.append(rows)
        row, column = (Position(*plain([v])) for v in (self.row, self.column))
        same, ones = self.einsum("same", (row, column), "equal")
        left = self.einsum("decay", (decay, ones, Scalar()), "", kind="scan")
        whole = self.einsum("whole", (decay, Scalar(), Scalar(value=1.0)), "", kind="scan")
        before = (
            self.einsum("decay_before", (left[1], Scalar()), "", kind="before"),
            self.einsum("whole_before", (whole[1], Scalar(value=1.0)), "", kind="before"),
        )
        by_state = {"": before, self.scan.name: (left, whole)}
        is_all = decay == Scalar(value=1.0)
        steps += [same, *(e for pair in ((left, whole), before) for e, _ in pair[: 1 if is_all else 2])]
        return steps, {name: (d[1], None if is_all else e[1]) for name, (d, e) in by_state.items()}

    def read(self, reader: Einsum, decays: dict[str, tuple[Access, Access | None]]) -> list[Einsum]:
        """What a reader sums of a chunk: of its own turns, and of the state before it."""
        states = {a.tensor for e in self.form.gone if e.recurrence for a in [e.output]}
        (state,) = (a.tensor for a in reader.accesses if a.tensor in states)
        left, whole = decays.get(state, decays[""])
        others = [o for o in reader.operands if getattr(o, "tensor", "") != state]
        query = self.placed(self.one("queries", others), self.row)
        key, value = (self.placed(f, self.column) for f in self.factors)
        scores, score = self.einsum("scores", (query, key), "multiply", summed=reader.reduced)
        weights, weight = self.einsum("weights", (score, left), "multiply")
        own, inner = self.einsum("inner", (weight, value), "multiply", summed=(self.column,))
        before, outer = self.einsum("outer", (query, self.state()), "multiply", summed=reader.reduced)
        steps = [scores, weights, own, before]
        if whole is not None:
            decayed, outer = self.einsum("decayed", (outer, whole), "multiply")
            steps.append(decayed)
        output = self.placed(reader.output, self.row)
        assert isinstance(output, Access)
        total = replace(reader, output=output, operands=(inner, outer), map_op="add", reduce_op="", text="")
        return [*steps, total]

    def following(self, left: Access, whole: Access | None) -> list[Einsum]:
        """The state behind a chunk."""
        factors = [self.placed(f, self.column) for f in self.factors]
        steps, now = list[Einsum](), self.state()
        if whole is not None:
            scaled, factors[0] = self.einsum("scaled", (factors[0], self.last(left)), "multiply")
            end: Operand = self.last(whole)
            if end.variables:
                # before all chunks, as there is no time for it between one and the next
                keys = [v for v in self.lanes if v in factors[0].variables]
                spread, end = self.einsum("end", (end,), "", along=keys)
                self.ahead.append(spread)
            kept, now = self.einsum("kept", (now, end), "multiply")
            steps += [scaled, kept]
        added, more = self.einsum("added", factors, "multiply", summed=(self.column,))
        return [*steps, added, Einsum(self.state(1), (now, more), "add", place=self.scan.place)]
