"""Turns that sum over all turns before them, in chunks: earlier chunks by products, the rest by an inverse.

With x[i] = b[i] + a[i] (sum over j < i of L[i, j] x[j]), as triangular systems have it, a chunk has
(I - M) x = b + a z: z is the sum over all chunks before, and M are the weights of its own turns, times a. The
inverses of all chunks are made of products before the first turn. Of L only what the sum reads is multiplied:
elsewhere it may hold anything.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..language.additions import Additions
from ..language.ast import Access, Cascade, Condition, Einsum, Iterate, Kind, Operand, plain
from .delta import linear_chain
from .in_chunks import InChunks, at
from .splits import with_split_ranks

# turns of a chunk at least
FEWEST_TURNS = 16
# what says that the first of two variables is less, by the sign that it has in a difference, with constants
BEFORE = {1: (("<", 0), ("<=", 1)), -1: ((">", 0), (">=", -1))}


@dataclass(frozen=True)
class _Form:
    """A block that solves such a system."""

    turn: str  # the variable that is iterated
    before: str  # and that of the turns before
    summed: Einsum  # what sums over these
    state: Access  # what it reads of them
    chain: tuple[Einsum, ...]  # what is computed of the sum, the state last
    slope: tuple[Operand, ...]  # factors that the last of them multiplies the sum with

    @property
    def weights(self) -> tuple[Operand, ...]:
        """What values of turns before are multiplied with."""
        return tuple(o for o in self.summed.operands if o is not self.state)


def with_substitutions(cascade: Cascade, partitions: int) -> Cascade:
    """The cascade, every Einsum of which is needed, with such blocks in chunks where they can be."""
    for block in cascade.blocks:
        known, own = _without_quotients(cascade, block)
        form = _form_of(own, known)
        other = _in_chunks(known, form, partitions) if form is not None else None
        if other is not None:
            return with_substitutions(other, partitions)
    return cascade


def is_substitution(block: Iterate, cascade: Cascade) -> bool:
    """Whether products may compute a block whose turns sum over all turns before."""
    known, own = _without_quotients(cascade, block)
    return _form_of(own, known) is not None


def _without_quotients(cascade: Cascade, block: Iterate) -> tuple[Cascade, Iterate]:
    """The cascade with products with reciprocals instead of quotients in a block, and that block."""
    added, ahead, body = Additions(cascade), list[Einsum](), list[Einsum]()
    written = {e.name for e in block.body}
    for einsum in block.body:
        by = einsum.operands[1] if einsum.map_op == "divide" else None
        if isinstance(by, Access) and by.tensor not in written:
            inverse = added.along(f"{einsum.name}_by", by.variables, einsum, Kind.FACTOR)
            ahead.append(Einsum(inverse, (by,), "reciprocal"))
            einsum = replace(einsum, operands=(einsum.operands[0], inverse), map_op="multiply", text="")
        body.append(einsum)
    own = block.with_body(body)
    return added.instead(block, (*ahead, own)), own


def _form_of(block: Iterate, cascade: Cascade) -> _Form | None:
    """A block as such a system; None if it is none."""
    summed, *others = block.body
    before, asked = summed.reduced[0] if len(summed.reduced) == 1 else "", summed.condition
    is_sum = replace(summed, condition=None).is_product and not summed.otherwise
    if asked is None or not is_sum or not others or not _is_before(asked, before, block.variable):
        return None
    last = others[-1].output
    state = next((a for a in summed.accesses if a.tensor == last.tensor), None)
    linear = linear_chain(summed.name, replace(cascade, steps=tuple(others)), cascade.outputs)
    if state is None or linear is None or linear[0] != tuple(others):
        return None
    form = _Form(block.variable, before, summed, state, *linear)
    return form if _is_alone(form, cascade) and _is_plain(form) else None


def _is_before(asked: Condition, before: str, turn: str) -> bool:
    """Whether a comparison says that a turn is before another."""
    sign = asked.difference.coefficient(before)
    is_pair = {*asked.difference.terms} == {(before, sign), (turn, -sign)}
    return is_pair and (asked.relation, asked.difference.constant) in BEFORE.get(sign, ())


def _is_plain(form: _Form) -> bool:
    """Whether turns read the state as they write it, and factors differ only as weights do."""
    last, free = form.chain[-1].output, {form.turn, *(v for w in form.weights for v in w.variables)}
    is_same = at(form.state, form.before, *plain([form.turn])) == last
    is_alike = all(free.issuperset(f.variables) for f in form.slope)
    return is_same and is_alike and all(i.plain for i in last.indices)


def _is_alone(form: _Form, cascade: Cascade) -> bool:
    """Whether only turns read what they compute on the way, and the state is written once."""
    own, tensor = (form.summed, *form.chain), form.state.tensor
    inner = {e.name for e in own} - {tensor}
    read = {t for e in cascade.einsums if e not in own for t in e.reads} | {*cascade.outputs}
    read |= {t for e in form.chain for t in e.reads if t == tensor}
    is_read = any(isinstance(w, Access) and w.tensor in {tensor, *inner} for w in form.weights)
    names = [e.name for e in cascade.einsums]
    return not is_read and not read & inner and all(names.count(e.name) == 1 for e in own)


def _in_chunks(cascade: Cascade, form: _Form, partitions: int) -> Cascade | None:
    """The cascade with a system in chunks; None where none divide it, or others need its state whole."""
    turns, tensor = cascade.extent(form.turn, form.summed), form.state.tensor
    lengths = [n for n in range(FEWEST_TURNS, min(partitions, turns // 2) + 1) if turns % n == 0]
    if not lengths:
        return None
    other = with_split_ranks(_Solved(cascade, form, lengths[-1]).cascade())
    return other if len(other.tensors[tensor].ranks) > len(cascade.tensors[tensor].ranks) else None


class _Solved(InChunks):
    """Writes one system in chunks."""

    def __init__(self, cascade: Cascade, form: _Form, length: int) -> None:
        super().__init__(cascade, form.summed, form.turn, length, (form.summed, *form.chain))
        self.form, self.earlier = form, self.variable("EARLIER", self.count)

    def placed(self, operand: Operand) -> Operand:
        """An operand at the row instead of at a turn."""
        return at(operand, self.turn, self.turn_at(self.row))

    def weights(self, hint: str, chunk: str, where: Condition) -> Access:
        """The weights of turns of a chunk for those of the present one, where they count; else 0."""
        place = self.turn_at(self.column, chunk)
        own = [at(self.placed(o), self.form.before, place) for o in self.form.weights]
        output = self.new(hint, {v for o in own for v in o.variables})
        self.put(Einsum(output, tuple(own), "multiply" if len(own) > 1 else "", condition=where))
        return output

    def cascade(self) -> Cascade:
        """The cascade with the system in chunks."""
        row, column, chunk, earlier = plain((self.row, self.column, self.chunk, self.earlier))
        inner = self.weights("weights", self.chunk, Condition(column, "<", row))
        slope = [self.placed(f) for f in self.form.slope]
        inverse = self.inverse(self.add("joined", (inner, *slope), "multiply") if slope else inner)
        self.ahead, self.body = [*self.ahead, *self.body], []
        outer = self.weights("outer", self.earlier, Condition(earlier, "<", chunk))
        state = at(self.form.state, self.form.before, self.turn_at(self.column, self.earlier))
        over = (self.earlier, self.column)
        results = {self.form.summed.name: self.add("before", (outer, state), "multiply", summed=over)}
        for einsum in self.form.chain:
            operands = [results.get(getattr(o, "tensor", "")) or self.placed(o) for o in einsum.operands]
            results[einsum.name] = self.add(einsum.name, operands, einsum.map_op)
        last = self.form.chain[-1]
        value = self.in_columns(results[last.name])
        self.put(Einsum(self.placed(last.output), (inverse, value), "multiply", "add"))  # type: ignore[arg-type]
        for gone in (self.form.summed, *self.form.chain[:-1]):
            del self.added.tensors[gone.name]
        block = next(step for step in self.source.blocks if self.form.summed in step.body)
        return self.added.instead(block, (*self.ahead, self.block(self.chunk, self.body)))
