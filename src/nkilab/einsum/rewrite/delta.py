"""The delta rule, whose turns add to a state what is linear in what they read of it.

With r[t] = k[t] S[t-1], u[t] = x[t] + b[t] r[t] and S[t] = a[t] S[t-1] + k[t] u[t], a chunk has
(I - M) u = x + b z: M are the weights of the turns before, times b, and z is what is read of the state before
the chunk. The inverse is made of those of blocks of 1, 2, 4, ... turns, X + X P X, where P is what of M joins
two blocks. That is as stable as turn after turn, which powers of M are not. What is beyond float32 stays with
its turn: products would hand it on to turns before, as 0 times infinity. Where a may be beyond -1 and 1,
errors of rounding grow with its products over a chunk. What turns add besides, free of r, is part of z.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..language.additions import Additions
from ..language.ast import Cascade, Einsum, Iterate
from ..language.indices import Access, Operand, Scalar
from .live import live
from .recurrences import with_scans

# operators that are linear in one operand, if no other one of a sum or difference has what that has
LINEAR = ("", "add", "subtract", "multiply", "negative")


@dataclass(frozen=True)
class Delta:
    """A block that is a scan once what its turns read of the state is an input."""

    cascade: Cascade  # so; what is read is an output too
    reader: Einsum  # what reads the state
    read: str  # the input
    chain: tuple[Einsum, ...]  # what is computed of the input, up to what is added
    slope: tuple[Operand, ...]  # factors that the last of them multiplies the input with


def delta_of(block: Iterate, cascade: Cascade) -> Delta | None:
    """A block as the delta rule; None if it is none."""
    body = _distributed(block)
    for reader in (e for e in body if e.is_product and e.name not in cascade.outputs):
        added = Additions(cascade)
        read = added.unused(f"{reader.name}_read")
        added.tensors[read] = replace(added.tensors[reader.name], name=read)

        def opened(access: Access, name: str = reader.name, read: str = read) -> Access:
            return replace(access, tensor=read) if access.tensor == name else access

        own = block.with_body(e.reading(opened) for e in body)
        outputs = (*cascade.outputs, reader.name)
        scans = live(with_scans(replace(added.instead(block, (own,)), outputs=outputs))[0])[0]
        linear = None if own in scans.steps else linear_chain(read, scans, cascade.outputs)
        if linear is not None:
            return Delta(scans, scans.einsum(reader.name), read, *linear)
    return None


def _distributed(block: Iterate) -> tuple[Einsum, ...]:
    """The Einsums of a block, sums of products with factors instead of the products that they read."""
    factors = {e.output: e.operands for e in block.body if e.map_op == "multiply" and not e.reduce_op}

    def changed(einsum: Einsum) -> Einsum:
        every = (factors.get(o, (o,)) if isinstance(o, Access) else (o,) for o in einsum.operands)
        operands = tuple(o for own in every for o in own) if einsum.is_product else einsum.operands
        return replace(einsum, operands=operands)

    return tuple(map(changed, block.body))


def linear_chain(
    read: str, cascade: Cascade, outputs: tuple[str, ...]
) -> tuple[tuple[Einsum, ...], tuple[Operand, ...]] | None:
    """Einsums up to what is added to a state, and its slope over an input; None if it is not linear in it."""
    slopes, chain = dict[str, tuple[Operand, ...]]({read: ()}), list[Einsum]()
    for einsum in (e for e in cascade.einsums if slopes.keys() & {*e.reads}):
        own = [o for o in einsum.accesses if o.tensor in slopes]
        is_plain = einsum.map_op in LINEAR and not einsum.reduce_op and not einsum.is_placed
        if own[0].tensor != [*slopes][-1] or len(own) > 1 or not is_plain:
            return None
        if own[0].indices != einsum.output.indices or {*own[0].variables} < {*einsum.variables}:
            break
        others = tuple(o for o in einsum.operands if o is not own[0])
        is_turned = einsum.map_op == "subtract" and einsum.operands[1] is own[0]
        sign = (Scalar(value=-1.0),) * (is_turned or einsum.map_op == "negative")
        slopes[einsum.name] = slopes[own[0].tensor] + sign + others * (einsum.map_op == "multiply")
        chain.append(einsum)
    read_else = {t for e in cascade.einsums if e not in chain for t in e.reads} | {*outputs}
    is_inner = not read_else & {*[*slopes][:-1]}
    return (tuple(chain), slopes[chain[-1].name]) if chain and is_inner else None
