"""Blocks whose turns sum over what all turns before left: what is one, and its cascade in a form for blocks.

Such a block solves a triangular system, or the like: a turn sums products with the values of earlier turns,
combines the sum element by element with what it reads, and hands on one value. What a turn needs besides,
one number that depends on no other turn, is computed for all turns before the block.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..language.additions import Additions
from ..language.ast import Access, Affine, Cascade, Condition, Einsum, Iterate, Kind, Operand, Scalar
from ..language.operators import OPERATORS

# turns of a strip, within which sums are taken turn by turn
STRIP = 32


@dataclass(frozen=True)
class Substitution:
    """A block that is one.

    Args:
        turn: the variable that is iterated.
        summed: the Einsum that sums over the turns before.
        factor: what it multiplies their values with, indexed by the turn and the turn before.
        state: what it reads of them.
        numbers: Einsums of one number a turn, which need no other turn.
        combined: the others, element by element, the value that is handed on last.
        kept: the copy that keeps the value of every turn.
    """

    turn: str
    summed: Einsum
    factor: Access
    state: Access
    numbers: tuple[Einsum, ...]
    combined: tuple[Einsum, ...]
    kept: Einsum

    @property
    def over(self) -> str:
        """The variable of the turns before."""
        return self.state.variables[0]

    @property
    def column(self) -> str:
        """The variable whose values are independent of each other."""
        return self.summed.output.variables[0]


def substitution_in(block: Iterate, cascade: Cascade, lanes: int) -> Substitution | None:
    """A block, without the iterated rank where a turn needs one value alone, as a substitution; or None.

    Its turns are whole strips, and whole blocks of as many as lanes if they are more; so are its columns.
    """
    found = _form_of(block)
    if found is None:
        return None
    turns, columns = (cascade.extent(v, found.summed) for v in (found.turn, found.column))
    is_whole = turns % min(turns, lanes) == 0 and columns % min(columns, lanes) == 0
    return found if is_whole and turns % STRIP == 0 and turns > STRIP else None


def _form_of(block: Iterate) -> Substitution | None:
    """A block as a substitution, whatever its extents; None if it is none."""
    *body, kept = block.body
    if not body or not _keeps(kept, block.variable, body[-1]):
        return None
    readers = [e for e in body if kept.name in e.reads]
    sides = _sides(readers[0], kept, block.variable) if len(readers) == 1 else None
    if sides is None or len({e.name for e in block.body}) < len(block.body):
        return None
    summed = readers[0]
    numbers = _numbers(block)
    combined = tuple(e for e in body if e is not summed and e not in numbers)
    substitution = Substitution(block.variable, summed, *sides, numbers, combined, kept)
    return substitution if all(_is_combined(e, substitution) for e in combined) else None


def _keeps(kept: Einsum, turn: str, last: Einsum) -> bool:
    """Whether an Einsum keeps the value that another one leaves, turn by turn along its first axis."""
    is_copy = not (kept.map_op or kept.reduce_op or kept.condition) and kept.operands == (last.output,)
    return is_copy and [i.plain for i in kept.output.indices] == [turn, *last.output.variables]


def _sides(summed: Einsum, kept: Einsum, turn: str) -> tuple[Access, Access] | None:
    """The factor and the state of a sum over the turns before; None if an Einsum is none."""
    is_sum = summed.map_op == "multiply" and summed.reduce_op == "add" and len(summed.accesses) == 2
    if not is_sum or len(summed.operands) != 2 or len(summed.reduced) != 2 or summed.otherwise:
        return None
    over = next((v for v in summed.reduced if v != turn), "")
    column = summed.output.variables[0] if len(summed.output.variables) == 1 else ""
    asked = summed.condition.difference if summed.condition is not None else Affine()
    relation = summed.condition.relation if summed.condition is not None else ""
    before = {"<": ((over, 1), (turn, -1)), ">": ((over, -1), (turn, 1))}.get(relation, ())
    if set(asked.terms) != set(before) or asked.constant or not over or not column:
        return None
    factor, state = sorted(summed.accesses, key=lambda a: a.tensor == kept.name)
    is_state = state.tensor == kept.name and [i.plain for i in state.indices] == [over, column]
    return (factor, state) if is_state and [i.plain for i in factor.indices] == [turn, over] else None


def _numbers(block: Iterate) -> tuple[Einsum, ...]:
    """Einsums of one number a turn that need each other alone, or what no turn makes."""
    numbers: list[Einsum] = []
    barred = {e.name for e in block.body}
    for einsum in block.body:
        is_number = not einsum.output.indices and set(einsum.variables) <= {block.variable}
        is_plain = not (einsum.reduce_op or einsum.condition or any(a.gathers for a in einsum.accesses))
        if is_number and is_plain and not set(einsum.reads) & barred:
            numbers.append(einsum)
            barred.discard(einsum.name)
    return tuple(numbers)


def _is_combined(einsum: Einsum, substitution: Substitution) -> bool:
    """Whether an Einsum combines columns of a turn with each other, or with numbers, by one operator."""
    op = OPERATORS.get(einsum.map_op)
    if op is None or not op.alu or len(einsum.operands) != 2 or einsum.reduce_op or einsum.condition:
        return False
    columns = {substitution.summed.name, *(e.name for e in substitution.combined)}
    numbers = {e.name for e in substitution.numbers}
    is_column = [i.plain for i in einsum.output.indices] == [substitution.column]

    def is_known(access: Access) -> bool:
        indices = [i.plain for i in access.indices]
        if access.tensor in columns or access.tensor in numbers:
            return indices == ([substitution.column] if access.tensor in columns else [])
        return access.tensor != substitution.kept.name and indices in (
            [substitution.turn, substitution.column],
            [substitution.turn],
        )

    has_column = any(substitution.column in a.variables for a in einsum.accesses)
    return is_column and has_column and all(map(is_known, einsum.accesses))


def with_numbers_ahead(cascade: Cascade, lanes: int) -> Cascade:
    """A cascade whose substitutions have the numbers of all turns computed before them."""
    for block in cascade.blocks:
        substitution = substitution_in(block, cascade, lanes)
        if substitution is not None and substitution.numbers:
            cascade = _Ahead(cascade, block, substitution).cascade()
    return cascade


class _Ahead:
    def __init__(self, cascade: Cascade, block: Iterate, substitution: Substitution) -> None:
        self.held, self.block, self.substitution = cascade, block, substitution
        self.additions = Additions(cascade)
        self.names = {e.name: self.added(f"{e.name}_turns", e.name) for e in substitution.numbers}
        self.steps: list[Einsum] = []

    def added(self, hint: str, origin: str) -> str:
        """The name of a new tensor that has one number a turn."""
        return self.additions.tensor(hint, (self.substitution.turn.upper(),), origin, Kind.AHEAD)

    def cascade(self) -> Cascade:
        for einsum in self.substitution.numbers:
            made, operands = self.of_turn(self.names[einsum.name]), tuple(map(self.operand, einsum.operands))
            self.steps.append(replace(einsum, output=made, operands=operands))
        combined = (
            replace(e, operands=tuple(map(self.operand, e.operands))) for e in self.substitution.combined
        )
        inner = replace(self.block, body=(self.substitution.summed, *combined, self.substitution.kept))
        place = self.held.steps.index(self.block)
        steps = (*self.held.steps[:place], *self.steps, inner, *self.held.steps[place + 1 :])
        return self.additions.applied(steps)

    def of_turn(self, tensor: str) -> Access:
        return Access(tensor, (Affine(((self.substitution.turn, 1),)),))

    def operand(self, operand: Operand) -> Operand:
        """An operand with the numbers of all turns; those on a diagonal are picked out of its rows."""
        if isinstance(operand, Scalar):
            return operand
        if operand.tensor in self.names:
            return self.of_turn(self.names[operand.tensor])
        if [i.plain for i in operand.indices] != [self.substitution.turn] * 2:
            return operand
        row = Affine(((self.substitution.over, 1),))
        picked = self.of_turn(self.added(f"{operand.tensor}_diagonal", operand.tensor))
        source = replace(operand, indices=(operand.indices[0], row))
        is_own = Condition(row, "==", Affine(((self.substitution.turn, 1),)))
        self.steps.append(Einsum(picked, (source,), reduce_op="add", condition=is_own))
        return picked
