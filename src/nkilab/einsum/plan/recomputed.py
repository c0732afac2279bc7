"""Results that have no room on chip between the nests that read them: each of these computes them anew.

`A[m, n] = X[m, n] . U[m]` that a sum reads, and behind it a product with what the sum gave, goes to HBM in
between where it is too large: written and read as float32. To read X once more is less.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from math import prod

from ..language.additions import Additions
from ..language.ast import Access, Cascade, Einsum, Kind, Step
from .context import Context
from .defer import names_of, renamed


def recomputed(cascade: Cascade, far: Collection[str]) -> Cascade:
    """A cascade whose readers, but the first of each, compute some of its results anew."""
    steps, added = list(cascade.steps), Additions(cascade)
    for einsum in [e for e in cascade.einsums if e.name in far]:
        readers = [s for s in steps if isinstance(s, Einsum) and einsum.name in s.reads]
        taken = {id(r): _own(einsum, r, added) for r in readers[1:]}
        if all(taken.values()):
            steps = [e for s in steps for e in (taken.get(id(s)) or (s,))]
    return added.applied(tuple(steps))


def far_results(ctx: Context) -> set[str]:
    """What a plan keeps in HBM between its readers, and costs more so than to compute it again."""
    return {e.name for e in ctx.cascade.einsums if _is_worth(e, ctx)}


def _bytes(tensor: str, ctx: Context) -> int:
    return prod(ctx.cascade.shape(tensor)) * ctx.bytes_of(ctx.dtypes[tensor])


def _is_worth(einsum: Einsum, ctx: Context) -> bool:
    """Whether an Einsum is computed element by element, of less than it would write and read."""
    cascade, name = ctx.cascade, einsum.name
    is_inner = einsum.name not in cascade.outputs and ctx.hbm(einsum.name) is not None
    if not is_inner or einsum.reduced or einsum.condition or einsum.recurrence or cascade.blocks:
        return False
    if sum(e.name == name for e in cascade.einsums) > 1 or any(a.gathers for a in einsum.accesses):
        return False
    read = sum(_bytes(t, ctx) for t in einsum.reads if t in cascade.inputs or ctx.hbm(t) is not None)
    return sum(name in e.reads for e in cascade.einsums) > 1 and read < 2 * _bytes(name, ctx)


def _own(maker: Einsum, reader: Einsum, added: Additions) -> tuple[Step, ...] | None:
    """What a reader computes itself, and the reader; None if it does not read it as it is made."""
    accesses = {str(a): a for a in reader.accesses if a.tensor == maker.name}
    names = names_of(maker.output, next(iter(accesses.values())))
    if len(accesses) > 1 or names is None or reader.condition or reader.recurrence:
        return None
    ranks = added.tensors[maker.name].ranks
    name = added.tensor(f"{maker.name}_again", ranks, maker.name, Kind.AGAIN)
    output = replace(next(iter(accesses.values())), tensor=name)

    def changed(access: Access) -> Access:
        return output if access.tensor == maker.name else access

    operands = tuple(renamed(o, names) for o in maker.operands)
    return replace(maker, output=output, operands=operands, text=""), replace(
        reader.reading(changed), text=""
    )
