"""Faults of specifications: one table with grade, sentence and the smallest change that repairs it.

error   there is no meaning, or the result would be wrong: nothing is compiled
repair  redundant or contradictory, but the rest says what is meant: compiled; the report tells what was taken
advice  slow
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import SpecError
from .language.ast import Place

ERROR, REPAIR, ADVICE = "error", "repair", "advice"


@dataclass(frozen=True)
class Fault:
    """A row of the table.

    Args:
        id: its name.
        grade: error, repair or advice.
        text: the sentence, with places for what was found.
        taken: for repairs, what is taken instead.
        change: the smallest change of the specification that repairs it.
        number: in the list of faults of the published example; 0 for a rule of the machine or the language.
    """

    id: str
    grade: str
    text: str
    change: str
    taken: str = ""
    number: int = 0


FAULTS: dict[str, Fault] = {
    f.id: f
    for f in (
        Fault(
            "short-row",
            ADVICE,
            "{einsum} moves rows of {bytes} bytes; {rank} can join the transfer",
            "add {rank} to the ranks of the instruction",
            number=1,
        ),
        Fault(
            "fusion-members",
            REPAIR,
            "einsums of the fusion lacks {missing}, which its ranks name",
            "write einsums: [{members}]",
            "the Einsums that the ranks name",
            3,
        ),
        Fault(
            "rank-order",
            REPAIR,
            "rank-order of {tensor} in {einsum} is [{given}]; the binding places it as [{placed}]",
            "write [{placed}]",
            "the binding",
            4,
        ),
        Fault(
            "consumed-and-looped",
            REPAIR,
            "{rank} is among the ranks that the instruction of {einsum} consumes, and is the loop {loop}",
            "take {rank} out of ranks: [{left}]",
            "the loop",
            5,
        ),
        Fault(
            "single-group",
            REPAIR,
            "{count} groups hold one rank alone, {consumed} of them one that its instruction "
            "consumes: {names}",
            "leave them out",
            "no loop is shared there",
            6,
        ),
        Fault(
            "unit-rank",
            REPAIR,
            "{rank} of {tensor} in {einsum} has one value and is a rank of its layout",
            "take {rank} out of the layout",
            "the layout without it",
            7,
        ),
        Fault(
            "carried-loop",
            REPAIR,
            "the loop {loop} carries {tensor}, and nothing says that its turns run in order",
            "none: a loop that carries a sum runs in order",
            "turns in order",
            20,
        ),
        Fault(
            "artificial-rank",
            ADVICE,
            "{einsum} gains {rank}, on which nothing it reads depends: it is done again for every {rank}",
            "take {rank} out of its ranks",
            number=9,
        ),
        Fault(
            "element-rows",
            ADVICE,
            "{einsum} moves single elements of {bytes} bytes, one per partition",
            "load rows and transpose them on chip",
            number=10,
        ),
        Fault(
            "split-name",
            ERROR,
            "{rank} split in {einsum} makes the rank {name}, which is declared",
            "rename the declared rank {name}",
            number=25,
        ),
        Fault(
            "capacity",
            ERROR,
            "tiles take {bytes} bytes per partition of SBUF; {chip} has {limit}",
            "split the ranks of {largest}",
            number=26,
        ),
        Fault(
            "incomplete-sum",
            ERROR,
            "{reader} reads {tensor} inside the loop {loop}, over which {tensor} is still summed",
            "move {reader} out of the group of {loop}",
            number=27,
        ),
        Fault(
            "layouts-differ",
            ERROR,
            "{tensor} lies as [{made}] where it is made and as [{read}] in {einsum}",
            "give both the same layout, or add an Einsum that copies it",
            number=8,
        ),
        Fault(
            "unequal-extents",
            ERROR,
            "{one} has {first} values and {other} has {second}, and they share a loop",
            "give them the same extent, or groups of their own",
        ),
        Fault(
            "unknown-einsum",
            ERROR,
            "{name} is no Einsum of the cascade",
            "remove the entry, or name one of {known}",
        ),
        Fault(
            "unknown-tensor",
            ERROR,
            "{name} is no tensor of the declaration",
            "remove the entry, or name one of {known}",
        ),
        Fault("unknown-rank", ERROR, "{rank} is no rank of {einsum}; it has {known}", "name one of them"),
        Fault(
            "partition-limit",
            ERROR,
            "{tensor} has {extent} partitions; {chip} has {limit}",
            "split {rank} by uniform_shape({limit})",
        ),
        Fault(
            "stationary-limit",
            ERROR,
            "the stationary operand {tensor} of {einsum} has {extent} columns; {chip} takes {limit}",
            "split {rank} by uniform_shape({limit})",
        ),
        Fault(
            "moving-limit",
            ERROR,
            "the moving operand {tensor} of {einsum} has {extent} columns; {chip} takes {limit}",
            "split {rank} by uniform_shape({limit})",
        ),
        Fault(
            "product-memory",
            ERROR,
            "{einsum} is computed by TensorE and placed in {memory}; a product goes to PSUM",
            "write component: PSUM",
        ),
        Fault(
            "operand-memory",
            ERROR,
            "{tensor} is in {memory} where {einsum} reads it; {instruction} takes it from {allowed}",
            "place it in {allowed}",
        ),
        Fault(
            "contraction-partition",
            ERROR,
            "the rank summed over, {rank}, is not on the partitions of {tensor} in {einsum}",
            "write partition: [{rank}]",
        ),
        Fault(
            "transfer-psum",
            ERROR,
            "{tensor} is in PSUM and {einsum} is a transfer, which does not reach PSUM",
            "copy it to SBUF with an Einsum in between",
        ),
        Fault(
            "output-memory",
            ERROR,
            "the output {tensor} is placed in {memory}; outputs are in HBM",
            "store it to HBM with an Einsum",
        ),
        Fault(
            "unbound-order",
            ERROR,
            "unbound of {tensor} is [{unbound}]; it begins as the loops of {einsum}: [{loops}]",
            "write unbound: [{loops}]",
        ),
        Fault(
            "no-loop",
            ERROR,
            "the rank {rank} of {einsum} is neither in its loop order nor consumed by its instruction",
            "add it to one of them",
        ),
        Fault(
            "bank",
            ERROR,
            "{tensor} takes {bytes} bytes per partition of PSUM; {chip} has {limit}",
            "split {rank}",
        ),
        Fault(
            "reduced-partition",
            ERROR,
            "{einsum} reduces {rank}, which lies on the partitions of {tensor}; VectorE reduces columns",
            "use a product with ones on TensorE",
        ),
        Fault(
            "no-placement",
            ERROR,
            "the binding does not say where {tensor} lies in {einsum}",
            "add an entry with name: {tensor} and einsum: {einsum}",
        ),
        Fault(
            "shape-of-rank",
            ERROR,
            "{rank} is {extent}, no multiple of {inner}, by which {einsum} splits it",
            "choose a shape that divides {extent}",
            number=11,
        ),
    )
}


@dataclass(frozen=True)
class Finding:
    """A fault that a specification has.

    Args:
        fault: the row.
        values: what was found.
        place: of the key.
        key: path of it.
    """

    fault: Fault
    values: dict[str, str]
    place: Place
    key: str

    @property
    def text(self) -> str:
        """The sentence."""
        return self.fault.text.format(**self.values)

    @property
    def change(self) -> str:
        """The smallest change that repairs it."""
        return self.fault.change.format(**self.values)

    def __str__(self) -> str:
        head = ": ".join(str(part) for part in (self.place, self.key, self.text) if str(part))
        taken = f"; taken: {self.fault.taken}" if self.fault.taken else ""
        return f"{self.fault.grade}: {head}{taken}"

    def error(self) -> SpecError:
        """The finding as an error."""
        error = SpecError(self.text, hint=self.change)
        error.located(str(self.place), self.key)
        return error


def finding(fault: str, place: Place, key: str, **values: object) -> Finding:
    """A fault with what was found."""
    return Finding(FAULTS[fault], {name: str(v) for name, v in values.items()}, place, key)


def judged(findings: list[Finding], strict: bool) -> list[Finding]:
    """What is compiled in spite of its faults.

    Raises:
        SpecError: at the first error, or under `strict` at the first repair.
    """
    for grade in (ERROR, *((REPAIR,) if strict else ())):
        for found in findings:
            if found.fault.grade == grade:
                raise found.error()
    return findings
