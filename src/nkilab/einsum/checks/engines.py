"""Instructions: on engines that have them, with operators, memories, types and tiles that they take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..grades import Finding, found
from ..language.spec import Execution, Placement
from .model import Model, close_to

ENGINES = ("DMAEngine", "TensorEngine", "VectorEngine", "ScalarEngine", "GpSimdEngine")
HBM, CHIP, SBUF, PSUM = ("HBM",), ("SBUF", "PSUM"), ("SBUF",), ("PSUM",)


@dataclass(frozen=True)
class Instruction:
    """What an instruction of the binding takes."""

    engines: tuple[str, ...]  # that have it, the usual one first
    operands: int  # how many
    is_map: bool  # whether it combines or changes elements
    is_sum: bool  # whether it reduces
    reads: tuple[str, ...] = CHIP  # memories that its operands lie in
    writes: tuple[str, ...] = CHIP  # memories that its result lies in


_ELEMENTWISE = ("VectorEngine", "GpSimdEngine")
INSTRUCTIONS = {
    "Load": Instruction(("DMAEngine",), 1, False, False, HBM, SBUF),
    "Store": Instruction(("DMAEngine",), 1, False, False, SBUF, HBM),
    "MatVec": Instruction(("TensorEngine",), 2, True, True, SBUF, PSUM),
    "LoopReduce": Instruction(_ELEMENTWISE, 1, False, True),
    "BroadcastTo": Instruction(("DMAEngine", "TensorEngine"), 1, False, False, SBUF, CHIP),
    "SimpleTensorScalar": Instruction((*_ELEMENTWISE, "ScalarEngine"), 2, True, False),
    "SimpleTensorTensor": Instruction(_ELEMENTWISE, 2, True, False),
    "Activation": Instruction(("ScalarEngine",), 1, True, False),
    "TensorReduce": Instruction(_ELEMENTWISE, 1, False, True),
    "TensorCopy": Instruction((*_ELEMENTWISE, "ScalarEngine"), 1, False, False),
    "Transpose": Instruction(("TensorEngine",), 1, False, False, SBUF, SBUF),
}


def check_engines(model: Model) -> Iterator[Finding]:
    """Names of instructions and engines, and whether they fit each other."""
    for held in model.spec.engines.values():
        row = INSTRUCTIONS.get(held.instruction)
        if row is None:
            known = list(INSTRUCTIONS)
            yield found("no-instruction", held, names=known, close=close_to(held.instruction, known))
        elif held.component and held.component not in ENGINES:
            yield found("no-component", held, names=ENGINES, close=close_to(held.component, ENGINES))
        elif held.component and held.component not in row.engines:
            allowed = " or ".join(row.engines)
            yield found("engine-instruction", held, allowed=allowed, first=row.engines[0])


def check_instructions(model: Model) -> Iterator[Finding]:
    """Names of instructions and engines, and whether they fit each other and the Einsum."""
    yield from check_engines(model)
    for held in (h for h in model.spec.engines.values() if h.instruction in INSTRUCTIONS):
        row = INSTRUCTIONS[held.instruction]
        yield from _operators(model, held, row)
        if held.instruction == "MatVec":
            yield from _product(model, held)
        else:
            yield from _memories(model, held, row)
            yield from _operands(model, held)


def _operators(model: Model, held: Execution, row: Instruction) -> Iterator[Finding]:
    einsum = model.einsums[held.einsum]
    told = change = ""
    if len(einsum.operands) != row.operands:
        told = f"takes {row.operands} operand{'s' * (row.operands > 1)}, and {len(einsum.operands)} are given"
        change = "choose another instruction"
    elif (bool(einsum.map_op) or einsum.condition is not None) != row.is_map:
        other = f"changes no element, and M is {einsum.map_op}"
        told = "combines elements, and there is no M" if row.is_map else other
        change = "add ';; M' with an operator" if row.is_map else "choose an instruction that computes"
    elif bool(einsum.reduce_op) != row.is_sum:
        told = "reduces, and there is no V" if row.is_sum else f"reduces nothing, and V is {einsum.reduce_op}"
        change = "choose another instruction"
    elif held.instruction == "MatVec" and (einsum.map_op, einsum.reduce_op) != ("multiply", "add"):
        told = f"multiplies and adds, and M is {einsum.map_op}, V {einsum.reduce_op}"
        change = "choose another instruction"
    if told:
        text = einsum.text or str(einsum)
        yield found("instruction-operator", held, told=told, text=text, change=change)


def _views(model: Model, einsum: str) -> list[Placement]:
    """Where the operands lie that the binding places, in order."""
    held = (model.spec.placements.get((a.tensor, einsum)) for a in model.einsums[einsum].accesses)
    return [placed for placed in held if placed is not None]


def _memories(model: Model, held: Execution, row: Instruction) -> Iterator[Finding]:
    made = model.ranks.producer(held.einsum)
    for placed, allowed in [
        *((v, row.reads) for v in _views(model, held.einsum)),
        *([(made, row.writes)] if made else []),
    ]:
        if placed.component not in allowed:
            what, listed = "SBUF" if "SBUF" in allowed else allowed[0], " or ".join(allowed)
            yield found("instruction-memory", placed, instruction=held.instruction, allowed=listed, what=what)
        elif held.component == "GpSimdEngine" and placed.component == "PSUM":
            yield found("gpsimd-psum", held, tensor=placed.tensor)


def _operands(model: Model, held: Execution) -> Iterator[Finding]:
    views = _views(model, held.einsum)
    is_pair = held.instruction == "SimpleTensorTensor" and len(views) == 2
    if is_pair and all(v.component == "PSUM" for v in views):
        yield found("both-psum", held, first=views[0].tensor, second=views[1].tensor)
    if held.instruction == "SimpleTensorScalar" and len(views) == 2:
        # the operand with fewer elements is the scalar one, whatever the order of the text
        counts = [model.count(held.einsum, model.tile(v, v.inner)) for v in views]
        known = [(c, n) for n, c in enumerate(counts) if c is not None]
        if len(known) == 2 and min(known)[0] > 1:
            count, number = min(known, key=lambda k: (k[0], -k[1]))
            scalar = views[number]
            ranks = model.tile(scalar, scalar.inner)
            yield found("scalar-operand", held, tensor=scalar.tensor, count=count, ranks=ranks)
    yield from _moves(model, held)


def _moves(model: Model, held: Execution) -> Iterator[Finding]:
    """Sums over loops, and copies to all partitions."""
    if held.instruction == "LoopReduce":
        reduced = model.ranks.parts(held.einsum, model.einsums[held.einsum].reduced)
        for rank in (r for r in held.ranks if r in reduced and not model.is_looped(held.einsum, r)):
            yield found("reduced-and-consumed", held, rank=rank)
    made = model.ranks.producer(held.einsum)
    is_broadcast = (held.instruction, held.component) == ("BroadcastTo", "TensorEngine")
    if is_broadcast and made and made.component != "PSUM":
        yield found("tensor-copy", held, tensor=held.einsum)


def _product(model: Model, held: Execution) -> Iterator[Finding]:
    """Rules of matrix products."""
    name, views, made = held.einsum, _views(model, held.einsum), model.ranks.producer(held.einsum)
    for placed, what, allowed in [
        *((v, f"the operand {v.tensor}", "SBUF") for v in views),
        *([(made, "the result", "PSUM")] if made else []),
    ]:
        if placed.component != allowed:
            facts = {"what": what, "instruction": held.instruction, "allowed": allowed}
            yield found("matmul-memory", placed, einsum=name, **facts)
    summed = [r for r in model.ranks.parts(name, model.einsums[name].reduced) if not model.is_looped(name, r)]
    for placed in views:
        if summed and model.order_of(name, model.tile(placed, placed.outer)) != model.order_of(name, summed):
            yield found("matmul-contraction", placed, ranks=summed)
    kinds = {v.tensor: model.spec.dtypes.get(v.tensor, "float32") for v in views}
    if len(set(kinds.values())) == 2 and "float32" in kinds.values():
        first, second = (f"{t} in {d}" for t, d in kinds.items())
        yield found("matmul-dtypes", held, first=first, second=second)
    if made:
        yield from _result(model, held, made)


def _result(model: Model, held: Execution, made: Placement) -> Iterator[Finding]:
    name, chip = held.einsum, model.machine
    dtype = model.spec.dtypes.get(name, "float32")
    if made.component == "PSUM" and dtype != "float32":
        yield found("psum-dtype", model.spec.node("format", name), tensor=name, dtype=dtype, chip=chip.name)
    free = model.tile(made, made.inner)
    for side, ranks, most in (
        ("stationary", model.tile(made, made.outer), chip["stationary_free_max"]),
        ("moving", free, chip["moving_free_max"]),
    ):  # fmt: skip
        count = model.count(name, ranks)
        if count is not None and count > most:
            facts = {"side": side, "count": count, "chip": chip.name, "most": most}
            yield found("matmul-tile", held, ranks=ranks, **facts)
