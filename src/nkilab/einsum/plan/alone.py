"""Loops over single values: results whose tiles do not fit on chip may, one value of a rank at a time."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ..language.ast import Iterate
from ..tree.expr import name_of
from .build import point
from .groups import Group
from .homes import Homes
from .units import Units


def pointed(homes: Homes, units: Units, group: Group, shared: Sequence[str]) -> str:
    """A shared variable one value at a time of which results fit on chip that whole tiles do not; ""."""
    ctx = units.ctx
    between = [e for e in group.einsums if any(e.name in o.reads for o in group.einsums)]
    if any(isinstance(s, Iterate) for s in group.steps):
        return ""
    for variable in shared:
        tiled, alone = (
            max((homes.tile_bytes(e, {variable: b}) for e in between), default=0) for b in (ctx.lanes, 1)
        )
        work = [prod(ctx.cascade.extent(v, e) for v in e.variables if v != variable) for e in group.einsums]
        if not alone * 4 <= ctx.room() * 0.6 < tiled * 2 or min(work) < ctx.lanes**2:
            continue
        if _is_as_fast(units, group, variable):
            return variable
    return ""


def _is_as_fast(units: Units, group: Group, variable: str) -> bool:
    """Whether Einsums take about as long with one value of a variable after the other."""
    extent = units.ctx.cascade.extent(variable, group.einsums[-1])
    one = {variable: point(name_of(variable))}
    whole, alone = (
        sum(units.cost_ns(e, {v: s for v, s in outer.items() if v in e.variables}) for e in group.einsums)
        for outer in ({}, one)
    )
    return alone * extent <= 2 * whole
