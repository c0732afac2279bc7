"""The one table of what may be wrong with a specification, with grades; and what the checks found.

An error has no meaning, or gives a wrong result: it stops. A repair is redundant or contradictory, but what
is meant follows from the rest: it is compiled, and the report says what was taken; `--strict` refuses it.
Advice is right but slow, or is done in another way than the words say. The checks are in `checks/`; each
names a row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ..errors import SpecError
from .language.nodes import Node
from .language.spec import Execution, Fusion, Placement


class Grade(Enum):
    """How grave a finding is."""

    ERROR = "error"
    REPAIR = "repair"
    ADVICE = "advice"


@dataclass(frozen=True)
class Row:
    """One thing that may be wrong.

    Args:
        id: its name.
        grade: of it.
        says: the sentence, with fields in braces.
        change: the smallest change that repairs it, with fields in braces.
        at: keys below what it is found in, and at the end a word of a list, with fields in braces.
        taken: for repairs, what is compiled instead.
        faults: numbers of the faults of the published example that it answers.
        source: the rule of the machine or language behind it.
    """

    id: str
    grade: Grade
    says: str
    change: str
    at: str = ""
    taken: str = ""
    faults: tuple[int, ...] = ()
    source: str = ""


ERROR, REPAIR, ADVICE = Grade.ERROR, Grade.REPAIR, Grade.ADVICE
_PARTITION = "architecture guides, SBUF: 128 partitions"
_MATMUL = "nki.isa.nc_matmul, Tile size"

ROWS = (
    # names
    Row("reserved-name", ERROR,
        "{name} is a word of Python or of the kernel's module",
        "call {what} something else"),
    Row("rank-name", ERROR,
        "the rank {rank} of {tensor} does not begin with a capital; small letters name variables",
        "write {capital}", at="{rank}"),
    Row("shape-rank", ERROR,
        "{rank} is the extent of nothing; the ranks are {ranks}",
        "{close}"),
    Row("size", ERROR,
        "{what} has {size} elements; at most {most} are compiled",
        "give smaller extents"),
    Row("number", ERROR,
        "{what} is {value}; kernels compute in float32, whose largest number is {most}",
        "write a number of float32, or inf"),
    Row("output-twice", ERROR,
        "the output {tensor} is named twice",
        "name it once"),
    Row("read-before-written", ERROR,
        "{tensor} is read here and first written later, by {text}",
        "move that expression before this one"),
    Row("reads-itself", ERROR,
        "{tensor} is read here, and this expression is the first that writes it",
        "write the start of {tensor} before, or name the result otherwise"),
    Row("no-einsum", ERROR,
        "{name} is no Einsum; the Einsums are {names}",
        "{close}"),
    Row("no-tensor", ERROR,
        "{name} is not declared; the tensors are {names}",
        "{close}"),
    Row("no-rank", ERROR,
        "{einsum} has no rank {rank}; its ranks are {ranks}",
        "{close}"),
    Row("ambiguous-einsum", ERROR,
        "{count} Einsums write {name}; a mapping cannot tell them apart",
        "give each a tensor of its own"),
    # splits
    Row("split-remainder", ERROR,
        "{rank} is {size} here; parts of {part} leave {rest} elements that no loop covers",
        "make {rank} a multiple of {part}, or split by a divisor of {size}", faults=(11,)),
    Row("split-name", ERROR,
        "splitting {rank} {count} makes a rank {part}, which is declared too",
        "rename one of the two ranks", faults=(25,)),
    # loops
    Row("loop-order-ranks", ERROR,
        "the loop order of {einsum} {told}; its ranks are {ranks}",
        "write [{ranks}] in the order you want"),
    Row("spacetime-ranks", ERROR,
        "space and time of {einsum} {told}; its loop order is [{order}]",
        "write each rank of the loop order once, or leave spacetime out"),
    Row("space-looped", ERROR,
        "{rank} is in space, and a loop runs over it: {instruction} does not consume it",
        "add {rank} to the ranks of {instruction}, or move it to time", at="space.{rank}"),
    Row("fused-twice", ERROR,
        "{member} is in two groups; the other is {other}",
        "leave it in one"),
    Row("fused-with-itself", ERROR,
        "{einsum} is twice in one group, as {first} and {second}",
        "put them into groups of their own"),
    Row("fused-extents", ERROR,
        "{first} has {size} elements and {second} {other}; ranks of one loop are equally long",
        "take {second} out of the group", source="one loop counts once"),
    Row("fusion-list", REPAIR,
        "einsums lacks {missing}, which ranks names",
        "write [{all}], or leave einsums out", at="einsums", taken="the list is derived from ranks",
        faults=(3,)),
    Row("fusion-extra", ERROR,
        "einsums has {extra} besides, which ranks does not name",
        "write [{all}], or leave einsums out", at="einsums"),
    Row("fusion-singletons", REPAIR,
        "{count} of {total} groups have one member, which shares a loop with nobody",
        "leave them out: {groups}", taken="a loop of its own for each that is not consumed",
        faults=(6,)),
    Row("consumed-and-looped", REPAIR,
        "{instruction} of {einsum} consumes {rank}, and the loop {loop} runs over it",
        "write ranks: [{kept}]", at="ranks.{rank}", taken="the loop is kept: ranks are [{kept}]",
        faults=(5,)),
    Row("carried-loop", REPAIR,
        "{einsum} adds up over the loop {loop}, so its turns depend on one another",
        "keep the partial sums in PSUM, or reduce after the loop", taken="the loop runs in order",
        faults=(20,)),
    Row("incomplete-reduction", ERROR,
        "{consumer} reads {tensor} inside the loop {loop}, over which {tensor} is still being reduced",
        "take {consumer}.{rank} out of the group of {tensor}.{own}", faults=(27,)),
    Row("runs-before", ERROR,
        "{consumer} shares the loop {loop} with {first} and so runs before {tensor}, which it reads",
        "take {consumer} out of the group, or put {tensor} into it", faults=(27,)),
    Row("unbound-prefix", ERROR,
        "unbound of {tensor} is [{unbound}]; the outermost loops of {einsum} are [{loops}]",
        "write [{first}]", at="ranks.unbound"),
    Row("unbound-differs", ERROR,
        "{tensor} lives inside the loops [{loops}] of {tensor}; {einsum} shares {shared} of them",
        "shorten unbound of {tensor}, or share the loops", at="ranks.unbound"),
    # layouts
    Row("placement-ranks", ERROR,
        "the layout of {tensor} in {einsum} {told}; its ranks are {ranks}",
        "write each of them once", at="ranks"),
    Row("constructor", ERROR,
        "{tensor} in {einsum} {told}",
        "{change}", at="constructor"),
    Row("hbm-unbound", ERROR,
        "{tensor} in {einsum} lies in HBM, where no rank is unbound; unbound is [{unbound}]",
        "put {unbound} under noncontiguous", at="ranks.unbound"),
    Row("memory-differs", ERROR,
        "{tensor} is made in {made} and read in {component}",
        "write component: {made}", at="component"),
    Row("view-partition", ERROR,
        "{tensor} has partitions [{made}] where it is made and [{read}] in {einsum}; a view keeps its "
        "partitions",
        "write partition: [{fix}]", at="ranks.partition", faults=(8,),
        source="on chip the first axis is the partition, and views may not change it"),
    Row("view-turned", ADVICE,
        "{tensor} has partitions [{made}] where it is made and [{read}] in {einsum}: it is transposed in "
        "between",
        "write partition: [{fix}]", at="ranks.partition", faults=(8,),
        source="on chip the first axis is the partition, and views may not change it"),
    Row("view-free", ADVICE,
        "{tensor} has free elements in the order [{made}] where it is made and [{read}] in {einsum}: it is "
        "copied in between",
        "write free: [{fix}]", at="ranks.free", faults=(8,),
        source="a view is another reading of the same elements in the same order"),
    Row("rank-order", REPAIR,
        "the rank order of {tensor} in {einsum} is [{order}]; its layout there is [{layout}]",
        "write [{layout}], or leave it out", taken="the layout of binding.tensor", faults=(4,)),
    Row("rank-order-ranks", ERROR,
        "the rank order of {tensor} in {einsum} {told}; its ranks are {ranks}",
        "write each of them once"),
    Row("unit-rank", REPAIR,
        "the result of {einsum} has the shape ({dst}) and {instruction} gives ({src}): {rank} has one "
        "element",
        "leave {rank} out of free", at="ranks.free.{rank}", taken="the axis of one element is dropped",
        faults=(7,)),
    Row("shape-differs", ERROR,
        "the result of {einsum} has the shape ({dst}) and {instruction} gives ({src})",
        "make the layouts agree", at="ranks", faults=(7,)),
    Row("partition-extent", ERROR,
        "the partitions of {tensor} in {einsum} are {count}; {chip} has {most}",
        "split {rank} by uniform_shape({most}) and put the outer part into free", at="ranks.partition.{rank}",
        source=_PARTITION),
    Row("no-partition", ERROR,
        "{tensor} in {einsum} has no partition rank; the first axis of a tile is the partition",
        "put a rank under partition", at="ranks.partition", source=_PARTITION),
    Row("start-partition", ERROR,
        "{einsum} has {tensor} at partitions {starts}; a tile of {count} begins at {allowed}",
        "put {rank} under free", at="ranks.partition.{rank}",
        source="start partition 0, 32, 64 or 96 by size"),
    Row("output-memory", ERROR,
        "the output {tensor} lies in {component}; outputs lie in HBM",
        "store it: add an Einsum that copies it to a tensor in HBM", at="component"),
    # engines
    Row("no-instruction", ERROR,
        "{instruction} is no instruction; the instructions are {names}",
        "{close}", at="instruction"),
    Row("no-component", ERROR,
        "{component} is no engine; the engines are {names}",
        "{close}", at="component"),
    Row("engine-instruction", ERROR,
        "{instruction} does not run on {component}; it runs on {allowed}",
        "write component: {first}", at="component"),
    Row("instruction-operator", ERROR,
        "{instruction} of {einsum} {told}: {text}",
        "{change}", at="instruction"),
    Row("instruction-memory", ERROR,
        "{instruction} of {einsum} has {tensor} in {component}; it must lie in {allowed}",
        "go through {what}: add an Einsum that copies {tensor}", at="component",
        source="data moves between HBM and PSUM only through SBUF"),
    Row("matmul-memory", ERROR,
        "{what} of {einsum} is in {component}; {instruction} takes {allowed}",
        "write component: {allowed}", at="component", source="matrix products read SBUF and write PSUM"),
    Row("matmul-contraction", ERROR,
        "{einsum} sums over {ranks}, and the partitions of {tensor} are [{outer}]",
        "put {ranks} under partition of both operands", at="ranks.partition",
        source="the contraction runs over the partitions of both operands"),
    Row("matmul-tile", ERROR,
        "the {side} tile of {einsum} has {count} columns; {chip} takes {most}",
        "split {ranks} and leave the outer part to a loop", at="ranks", source=_MATMUL),
    Row("matmul-dtypes", ERROR,
        "{einsum} multiplies {first} with {second}; float32 pairs with float32 alone",
        "give both the same dtype", at="instruction", source="nki.isa.nc_matmul, data types"),
    Row("psum-dtype", ERROR,
        "{tensor} accumulates in PSUM as {dtype}; {chip} accumulates float32",
        "write dtype: float32", source="nki.isa.nc_matmul: PSUM accumulates float32"),
    Row("both-psum", ERROR,
        "{first} and {second} are both in PSUM; of two operands one must be in SBUF",
        "copy one of them to SBUF", at="instruction", source="nki.isa.tensor_tensor"),
    Row("gpsimd-psum", ERROR,
        "{einsum} runs on GpSimdEngine, and {tensor} is in PSUM, which it cannot reach",
        "write component: VectorEngine", at="component",
        source="architecture guides: GpSimdE has no port to PSUM"),
    Row("scalar-operand", ERROR,
        "{tensor} gives {count} elements per partition to {instruction} of {einsum}; it takes one",
        "leave {ranks} to a loop, or use SimpleTensorTensor", at="instruction",
        source="nki.isa.tensor_scalar: operands [P, 1]"),
    Row("reduced-and-consumed", ERROR,
        "{instruction} of {einsum} adds over loops, and {rank} is consumed",
        "take {rank} out of its ranks", at="ranks.{rank}",
        source="tensor_reduce reduces trailing free axes only, loop_reduce loops"),
    # memory
    Row("sbuf-capacity", ERROR,
        "tiles in SBUF need {count} bytes of a partition at {einsum}; {chip} has {most}",
        "make the tiles smaller: the largest is {tensor} with {largest}", at="ranks.free", faults=(26,)),
    Row("psum-capacity", ERROR,
        "tiles in PSUM need {count} banks of a partition at {einsum}; {chip} has {most}",
        "make the tiles smaller: the largest is {tensor} with {largest} bytes", at="ranks.free",
        faults=(26,)),
    Row("double-buffer", ADVICE,
        "with two buffers each, {tensors} need {count} bytes of a partition; {chip} has {most}",
        "make the tiles smaller so that loads overlap with work", at="ranks.free", faults=(26,)),
    # slow, or done in another way
    Row("short-row", ADVICE,
        "{instruction} of {einsum} moves rows of {count} bytes; rows of {most} and more are wanted",
        "{change}", at="ranks.contiguous", faults=(1, 10),
        source="DMA guide: rows of 2 KiB and more, 4 KiB saturate"),
    Row("repeated-work", ADVICE,
        "{einsum} does the same once per {rank}: nothing it reads depends on {rank}",
        "leave {rank} out of {einsum}; unbound says where a tile lives", faults=(9,)),
    Row("narrow-sum", ADVICE,
        "{tensor} is {dtype} and takes up a sum over the loop {loop}",
        "write dtype: float32; the partial sums are kept in float32 and narrowed at the end",
        faults=(15,)),
    Row("bit-width", ADVICE,
        "bit-width, given {count}, cannot tell types of one width apart: {told}",
        "write dtype: with a name", faults=(16,)),
    Row("zeros-psum", ADVICE,
        "zeros of {tensor} in PSUM start no sum: the first matrix product overwrites",
        "write constructor: empty", at="constructor", faults=(18,),
        source="nki.isa.nc_matmul: accumulation onto other writes is undefined"),
    Row("zeros-sum", ADVICE,
        "zeros of {tensor} are the start of a sum that {instruction} takes up by itself",
        "none is needed: the sum is written out", at="constructor", faults=(19,)),
    Row("tensor-copy", ADVICE,
        "{instruction} of {einsum} runs on TensorEngine, which writes PSUM only; {tensor} is in SBUF",
        "write component: DMAEngine, or name the product with ones and its copy", at="component",
        faults=(21,)),
    Row("unused-tensor", ADVICE,
        "{tensor} is declared and no Einsum reads or writes it; the kernel takes it for nothing",
        "leave it out"),
    Row("dead-einsum", ADVICE,
        "{tensor} is written, never read and no output",
        "leave it out, or return it"),
)  # fmt: skip
TABLE = {row.id: row for row in ROWS}


@dataclass(frozen=True)
class Finding:
    """What a check found.

    Args:
        row: of the table.
        node: key and place.
        problem: the sentence, filled in.
        change: the smallest change, filled in; "" for none.
        taken: what is compiled instead, filled in.
    """

    row: Row
    node: Node
    problem: str
    change: str = ""
    taken: str = ""

    @property
    def grade(self) -> Grade:
        """Error, repair or advice."""
        return self.row.grade

    @property
    def place(self) -> str:
        """file:line:column."""
        return str(self.node.place)

    def __str__(self) -> str:
        parts = [part for part in (self.place, self.node.path, self.problem) if part]
        return ": ".join(parts)

    @property
    def text(self) -> str:
        """All of it, over a few lines."""
        lines = [str(self)]
        if self.taken:
            lines.append(f"  taken: {self.taken}")
        if self.change:
            lines.append(f"  hint: {self.change}")
        return "\n".join(lines)

    def data(self) -> dict[str, Any]:
        """For JSON."""
        place = self.node.place
        return {
            "id": self.row.id, "grade": self.grade.value, "faults": list(self.row.faults), "file": place.file,
            "line": place.line, "column": place.column, "key": self.node.path, "problem": self.problem,
            "change": self.change, "taken": self.taken,
        }  # fmt: skip


def found(row: str, subject: Node | Placement | Execution | Fusion, **values: Any) -> Finding:
    """A finding of a row, its sentences filled in by what it is found in, and by values."""
    fault, node = TABLE[row], subject if isinstance(subject, Node) else subject.node
    known = values if isinstance(subject, Node) else {**vars(subject), **values}
    words = {name: _shown(value) for name, value in known.items()}
    sentences = (text.format_map(words) for text in (fault.says, fault.change, fault.taken))
    keys = (key.format_map(words) for key in fault.at.split(".") if key)
    return Finding(fault, node.within(*keys), *sentences)


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def enforce(findings: Iterable[Finding], *, strict: bool = False) -> None:
    """Refuse a specification that has errors, under `strict` also one that needs repairs.

    Raises:
        SpecError: at the first of them; the others stand below it.
    """
    grades = (Grade.ERROR, Grade.REPAIR) if strict else (Grade.ERROR,)
    grave = [f for f in findings if f.grade in grades]
    if not grave:
        return
    first, rest = grave[0], grave[1:]
    facts = [f"also {f}{f' ({f.change})' if f.change else ''}" for f in rest]
    error = SpecError(first.problem, hint=first.change, source=first.row.source)
    raise error.located(first.place, first.node.path, facts)
