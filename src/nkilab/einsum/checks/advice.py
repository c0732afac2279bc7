"""What is right and slow, or is done in another way than the words of the specification say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from ..grades import Finding, found
from ..language.ast import Einsum
from ..language.spec import BIT_WIDTHS, Placement, Spec
from .loops import times
from .model import Model

WANTED_ROW_BYTES = 2048
# differences from which on a product is worth being written
MANY = 1 << 22


def check_rows(model: Model) -> Iterator[Finding]:
    """Transfers move rows of at least 2 KiB."""
    for einsum, held in model.spec.engines.items():
        if held.instruction not in ("Load", "Store"):
            continue
        accesses = model.einsums[einsum].accesses
        tensor = accesses[0].tensor if held.instruction == "Load" and accesses else einsum
        placed = model.spec.placements.get((tensor, einsum))
        if placed is None or placed.component != "HBM":
            continue
        row = _row(model, placed)
        count = model.count(einsum, row)
        if count is not None and count * model.bytes_of(tensor) < WANTED_ROW_BYTES:
            before = placed.ranks[: len(placed.ranks) - len(row)]
            more = f"let {held.instruction} consume {before[-1]} too" if before else ""
            change = more or "take more ranks into the row"
            facts = {"count": count * model.bytes_of(tensor), "most": WANTED_ROW_BYTES, "change": change}
            yield found("short-row", placed, instruction=held.instruction, **facts)


def _row(model: Model, placed: Placement) -> list[str]:
    """The innermost ranks of the HBM side that no loop and no partition takes apart."""
    row: list[str] = []
    for rank in reversed(placed.ranks):
        is_looped = model.is_looped(placed.einsum, rank)
        if is_looped or _is_partition(model, placed.einsum, placed.tensor, rank):
            break
        row.insert(0, rank)
    return row


def _is_partition(model: Model, einsum: str, tensor: str, rank: str) -> bool:
    """Whether a rank of the HBM side lies on the partitions of the other side."""
    other: Placement | None
    if tensor == einsum:
        accesses = model.einsums[einsum].accesses
        other = model.spec.placements.get((accesses[0].tensor, einsum)) if accesses else None
    else:
        other = model.ranks.producer(einsum)
    return other is not None and rank in other.outer


def check_repeats(model: Model) -> Iterator[Finding]:
    """No Einsum runs in a loop that changes nothing for it."""
    for name, groups in model.ordered.items():
        einsum = model.einsums[name]
        made = model.ranks.producer(name)
        if made is None or made.component == "HBM" or len(einsum.accesses) != 1:
            continue
        read = set(model.ranks.parts(name, einsum.accesses[0].variables))
        ranks = (group.rank_of(name) for group in groups)
        for rank in (r for r in ranks if r not in read and r in made.unbound):
            node = model.spec.node("mapping", "loop-order", name)
            yield found("repeated-work", node, einsum=name, rank=rank)


def check_zeros(model: Model) -> Iterator[Finding]:
    """Zeros that a matrix product overwrites."""
    for einsum, held in model.spec.engines.items():
        made = model.ranks.producer(einsum)
        if held.instruction == "MatVec" and made and (made.component, made.constructor) == ("PSUM", "zeros"):
            yield found("zeros-psum", made)


def check_format(spec: Spec) -> Iterator[Finding]:
    """Types by width."""
    if spec.root is None or "format" not in spec.root.entries():
        return
    node = spec.node("format")
    widths = [e.value["bit-width"].value for e in node.entries().values() if isinstance(e.value, dict) and
              "bit-width" in e.value and "dtype" not in e.value]  # fmt: skip
    if widths:
        told = ", ".join(f"{w} is taken as {BIT_WIDTHS[w]}" for w in dict.fromkeys(widths))
        yield found("bit-width", node.at_key, count=times(len(widths)), told=told)


def check_differences(spec: Spec) -> Iterator[Finding]:
    """Sums of squared differences of all rows of two tensors, which a product gives."""
    cascade = spec.cascade
    made = {e.name: e for e in cascade.einsums if e.map_op == "subtract" and len(e.accesses) == 2}
    for einsum in (e for e in cascade.einsums if (e.map_op, e.reduce_op) == ("square", "add")):
        maker = made.get(einsum.reads[0]) if einsum.reads else None
        if maker is None:
            continue
        left, right = maker.accesses
        is_of_all = {*left.variables} - {*right.variables} and {*right.variables} - {*left.variables}
        count = prod(_extent(v, maker, spec) for v in maker.variables)
        if is_of_all and count >= MANY:
            node = replace(spec.node("einsum", "expressions"), place=einsum.place)
            yield found("squared-differences", node, left=left, right=right, count=f"{count:,}")


def _extent(variable: str, einsum: Einsum, spec: Spec) -> int:
    """Values of a variable; 0 where its extent is open."""
    try:
        return spec.cascade.extent(variable, einsum)
    except KeyError:
        return 0


def check_use(spec: Spec) -> Iterator[Finding]:
    """What is declared or computed for nothing."""
    cascade = spec.cascade
    read = {t for e in cascade.einsums for t in e.reads}
    read |= {g.access.tensor for e in cascade.einsums for g in e.output.gathers}
    for tensor in cascade.tensors:
        node = spec.node("einsum", "declaration", tensor).at_key
        if tensor in read or tensor in cascade.outputs:
            continue
        if tensor in cascade.written:
            yield found("dead-einsum", node, tensor=tensor)
        else:
            yield found("unused-tensor", node, tensor=tensor)
