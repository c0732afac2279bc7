"""Linear recurrences with the same decays, keys and queries as one, whose values stand side by side.

C[t] = a[t] C[t-1] + k[t] v[t] and n[t] = a[t] n[t-1] + k[t], each read as a sum of q[t] times it, are columns
of one state: what a chunk makes of a, k and q is made once, and n is one more column of each product.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import permutations

from ..language.additions import Additions
from ..language.ast import Cascade, Einsum, Recurrence, Step
from ..language.indices import Access, Operand, Scalar, affine
from .chunks import Form, forms_of, with_chunks
from .common import called
from .in_chunks import at


def with_joined_chunks(cascade: Cascade, partitions: int) -> Cascade:
    """The cascade, every Einsum of which is needed, with recurrences in chunks, joined where they can be."""
    joined = with_joined_states(cascade)
    chunked = with_chunks(joined, partitions)
    return cascade if chunked is joined else chunked


def with_joined_states(cascade: Cascade) -> Cascade:
    """The cascade, every Einsum of which is needed, with states of chunks joined where they can be."""
    forms = sorted(forms_of(cascade), key=lambda f: -len(f.scan.output.variables))
    pairs = permutations((f for f in forms if len(f.readers) == len(f.terms) == 1), 2)
    named = ((one, more, _names(one, more)) for one, more in pairs if one.is_matrix)
    for one, more, names in (pair for pair in named if pair[2]):
        if others := _others(cascade, one.gone + more.gone):
            join = _Join(cascade, one, more, names)
            return with_joined_states(join.added.applied((*others[0], *join.written(), *others[1])))
    return cascade


def _others(cascade: Cascade, gone: Sequence[Einsum]) -> tuple[list[Step], list[Step]] | None:
    """Steps before and behind Einsums that all stand in one place; None if there is no such place."""
    late, parts = {e.name for e in gone}, (list[Step](), list[Step]())
    for step in (s for s in cascade.steps if s not in gone):
        is_late = not late.isdisjoint(t for e in step.body for t in e.reads)
        parts[is_late].append(step)
        late |= {e.name for e in step.body} if is_late else set()
    first = next(n for n, step in enumerate(cascade.steps) if step in gone)
    writes = [e.name for step in cascade.steps for e in {e.name: e for e in step.body}.values()]
    again = {e.name for s in cascade.steps[first:] for e in s.body if writes.count(e.name) > 1}
    moved = {t for s in (*parts[True], *gone) for e in s.body for t in (e.name, *e.reads)}
    needed = {t for e in gone for t in e.reads} - {e.name for e in gone}
    return parts if needed.isdisjoint(late) and again.isdisjoint(moved) else None


def _shared(form: Form) -> list[list[Operand]]:
    """What states have in common: decays, keys, and what their reader multiplies them with."""
    queries = [o for o in form.readers[0].operands if o not in [e.output for e in form.gone]]
    return [[form.scan.operands[0]], *(sorted(own, key=str) for own in (form.terms[0].keys, queries))]


def _columns(form: Form) -> list[str]:
    """Variables that a state has of its values alone."""
    shared = {form.turn, *(v for own in _shared(form) for o in own for v in o.variables)}
    return [v for v in form.scan.output.variables if v not in shared]


def _reads_own(form: Form) -> bool:
    """Whether the state of a turn is read there, not the one before."""
    return form.scan.output in form.readers[0].operands


def _names(one: Form, more: Form) -> dict[str, str]:
    """What a form calls the variables of another that has the same but for values; none if none has."""
    mine, theirs = _shared(one), _shared(more)
    if [*map(len, mine)] != [*map(len, theirs)]:
        return {}
    pairs = (p for own, others in zip(mine, theirs, strict=True) for p in zip(others, own, strict=True))
    names = {more.turn: one.turn} | dict(n for pair in pairs for n in called(*pair))
    columns = [_columns(one), _columns(more)]
    lanes = [{names.get(v, v) for v in f.scan.output.variables} - {*_columns(f)} for f in (one, more)]
    is_same = mine == [[o.renamed(names) for o in own] for own in theirs] and lanes[0] == lanes[1]
    is_same &= _reads_own(one) == _reads_own(more) and {*columns[1]}.isdisjoint(names.values())
    is_narrow = max(map(len, columns)) < 2
    return names if is_same and is_narrow and len({*names.values()}) == len(names) else {}


class _Join:
    """Writes two states as one."""

    def __init__(self, cascade: Cascade, one: Form, more: Form, names: dict[str, str]) -> None:
        self.added, self.steps = Additions(cascade), list[Step]()
        self.forms, self.names = (one, more), names
        columns = [next(iter(_columns(f)), "") for f in self.forms]
        sizes = [cascade.extent(v, f.scan) if v else 1 for v, f in zip(columns, self.forms, strict=True)]
        rank = self.added.rank(f"{one.scan.name.upper()}_COLUMN", sum(sizes))
        self.column, firsts = rank.lower(), (0, sizes[0])
        self.places = [affine([(v, 1)] if v else [], n) for v, n in zip(columns, firsts, strict=True)]
        own = (v for v in one.scan.output.variables if v != columns[0])
        self.ranks = {v: self.added.rank_of(v, one.scan) for v in own} | {self.column: rank}

    def put(
        self, hint: str, variables: Collection[str], operands: Iterable[Operand], op: str = "",
        recurrence: Recurrence | None = None,
    ) -> Access:  # fmt: skip
        """Add an Einsum, whose result is a new tensor by variables and the column; returns that.

        Sums are over the variables that operands have besides.
        """
        output, own = self.new(hint, variables), tuple(operands)
        summed = {v for o in own for v in o.variables} - {*output.variables}
        total = "add" * bool(summed and recurrence is None)
        self.steps.append(Einsum(output, own, op, total, recurrence=recurrence))
        return output

    def new(self, hint: str, variables: Collection[str], origin: str = "") -> Access:
        """An access of a new tensor by variables and the column; of the type of another if it copies that."""
        ranks = {v: r for v, r in self.ranks.items() if v in variables or v == self.column}
        return self.added.by(f"{self.forms[0].scan.name}_{hint}", ranks, origin)

    def beside(self, hint: str, *every: Sequence[Operand]) -> Access:
        """What both states have as products of operands, 1 of none, side by side."""
        copied = every[0][0] if not every[1] and len(every[0]) == 1 else None
        own = {v for operands in every for o in operands for v in o.variables}
        whole = self.new(hint, own, getattr(copied, "tensor", ""))
        for operands, place in zip(every, self.places, strict=True):
            op = "multiply" if len(operands) > 1 else ""
            part = at(whole, self.column, place)
            self.steps.append(Einsum(part, tuple(operands) or (Scalar(value=1.0),), op))
        return whole

    def apart(self, whole: Access, one: Einsum | None, more: Einsum | None) -> None:
        """Add what columns of both states are, of those that are read."""
        outputs = [one and one.output, more and more.output.renamed(self.names)]
        for output, place in zip(outputs, self.places, strict=True):
            if isinstance(output, Access):
                self.steps.append(Einsum(output, (at(whole, self.column, place),)))

    def written(self) -> list[Step]:
        """What computes one state, and what is read of both."""
        one, more = self.forms
        (decay,), keys, queries = _shared(one)
        values = Counter(one.terms[0].values), Counter(v.renamed(self.names) for v in more.terms[0].values)
        both = values[0] & values[1]
        apart = self.beside("values", *([*(own - both).elements()] for own in values))
        added = self.put("added", self.ranks, (*keys, *both.elements(), apart), "multiply")
        first, own = (f.scan.operands[2] for f in self.forms)
        if first != own or not isinstance(first, Scalar):
            first = self.beside("first", [first], [own.renamed(self.names)])
        assert one.scan.recurrence is not None
        # of what is taken away, values have the sign
        scan = replace(one.scan.recurrence, op1="add")
        state = read = self.put("state", self.ranks, (decay, added, first), recurrence=scan)
        if not _reads_own(one):
            before = Recurrence(one.turn, "before")
            read = self.put("before", self.ranks, (state, first), recurrence=before)
        (reader,), (other,) = one.readers, more.readers
        whole = self.put("read", reader.output.variables, (*queries, read), "multiply")
        self.apart(whole, reader, other)
        if one.last or more.last:
            ended = Recurrence(one.turn, "last")
            last = self.put("last", {*self.ranks} - {one.turn}, (state,), recurrence=ended)
            self.apart(last, one.last, more.last)
        return self.steps
