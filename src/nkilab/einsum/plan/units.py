"""Nests in order: contractions alone, other Einsums in clusters that run tile by tile."""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import pairwise
from math import inf, prod

from ..hardware import Hardware
from ..language.ast import Einsum, Iterate
from ..lower.plane_tiles import planes_for
from ..tree.expr import name_of
from .build import Span, point, whole
from .choose import choices_for
from .context import Context
from .groups import Group, einsums_of, joins
from .product import Product, products_for

# how much longer products may take in the tiles of a loop that others share
MOST_SCATTERED = 12


class Units:
    """Divides Einsums into nests."""

    def __init__(self, ctx: Context, hardware: Hardware) -> None:
        self.ctx, self.hardware = ctx, hardware
        self.turned: dict[str, bool] = {}
        # sums to which every turn of the loops around the present group adds its part
        self.totals = set[int]()
        # whether TensorE is judged the cheaper, by what that depends on
        self.judged: dict[tuple[object, ...], bool] = {}
        # variables of which the loops around the present group choose one value at a time
        self.points: tuple[str, ...] = ()
        self.turns = {id(e): b.variable for b in ctx.cascade.blocks for e in b.body}

    def units(self, einsums: Sequence[Einsum]) -> list[list[Einsum]]:
        """Nests in order: contractions alone, others in clusters."""
        products = {id(e) for e in einsums if self.is_product(e)}
        found: list[list[Einsum]] = []
        for einsum in einsums:
            is_alone = id(einsum) in products and not self.is_sum_of(einsum, found)
            unit = None if is_alone else self.joined(einsum, found, products)
            if unit is None:
                found.append([*([] if is_alone else self.postponed(einsum, found, products)), einsum])
            else:
                unit.append(einsum)
        for unit in found[::-1]:
            for einsum in [e for e in unit[::-1] if id(e) not in products]:
                self.sink(einsum, unit, found)
        return [unit for unit in found if unit]

    def sink(self, einsum: Einsum, unit: list[Einsum], units: list[list[Einsum]]) -> None:
        """Move what a cluster computes element by element for another one alone to that.

        It reads one tensor of its size then, as it would have read the result.
        """
        own = [a for a in einsum.accesses if set(a.variables) == set(einsum.variables)]
        readers = {id(e) for e in self.ctx.cascade.einsums if einsum.name in e.reads}
        place = next(n for n, u in enumerate(units) if u is unit)
        reading = next((u for u in units[place + 1 :] if readers <= {id(e) for e in u}), [])
        behind = unit[next(n for n, e in enumerate(unit) if e is einsum) + 1 :]
        between = [*behind, *(e for u in units[place + 1 :] for e in u if u is not reading)]
        touched = {einsum.name, *einsum.reads}
        is_bound = einsum.name in self.ctx.cascade.outputs or any(e.name in touched for e in between)
        if len(own) > 1 or not (readers and reading) or is_bound or not self.is_elementwise(einsum):
            return
        cluster = [einsum]
        for other in reading:
            if self.is_product(other) or not self.joins(cluster, other):
                return
            cluster.append(other)
        unit.remove(einsum)
        reading.insert(0, einsum)

    def ending(self, unit: Sequence[Einsum], cluster: Sequence[Einsum]) -> list[Einsum]:
        """What of a cluster takes the tiles of a product before it out of PSUM.

        The rest reads what that makes: one tensor, in the place of the product, or others that must be kept
        behind the cluster anyway.
        """
        first: list[Einsum] = []
        for einsum in cluster:
            later = {e.name for e in cluster} - {e.name for e in first}
            if self.is_elementwise(einsum) and not later & {*einsum.reads}:
                first.append(einsum)
        rest, cascade = [e for e in cluster if e not in first], self.ctx.cascade
        kept = {*cascade.outputs, *(t for e in cascade.einsums if e not in cluster for t in e.reads)}
        handed = {t for e in rest for t in e.reads} & {e.name for e in first} - kept
        return first if len(handed) <= 1 and self.is_ended_by(unit, first) else []

    def nests(self, einsums: Sequence[Einsum]) -> list[list[Einsum]]:
        """Nests in order, what takes a product out of PSUM apart from the rest of its cluster behind it."""
        units = self.units(einsums)
        for n, (unit, cluster) in reversed([*enumerate(pairwise(units), 1)]):
            if first := self.ending(unit, cluster):
                units[n : n + 1] = filter(None, (first, [e for e in cluster if e not in first]))
        return units

    def postponed(self, einsum: Einsum, units: list[list[Einsum]], products: Container[int]) -> list[Einsum]:
        """A cluster that none behind it needs, which an Einsum may join: taken out of its place."""
        for place, unit in enumerate(units):
            later = [e for u in units[place + 1 :] for e in u]
            is_bound = any(self.depends(unit, e) for e in later) or id(unit[0]) in products
            is_bound |= bool({e.name for e in later} & {t for e in unit for t in e.reads})
            if not is_bound and self.joins(unit, einsum):
                return units.pop(place)
        return []

    def joined(
        self, einsum: Einsum, units: Sequence[list[Einsum]], products: Container[int]
    ) -> list[Einsum] | None:
        """The last cluster that an Einsum may run in, if none behind it must come first; else None."""
        for unit in reversed(units):
            if id(unit[0]) not in products and self.joins(unit, einsum):
                return unit
            if self.depends(unit, einsum):
                return None
        return None

    def joins(self, unit: Sequence[Einsum], einsum: Einsum) -> bool:
        """Whether an Einsum may run in the nest of others, turn by turn if they are those of a block."""
        if any(e.name in self.ctx.given.alone for e in (*unit, einsum)):
            return False
        if not self.has_lanes((*unit, einsum)):
            return False
        turns = {self.turns.get(id(e), "") for e in (*unit, einsum)}
        return joins(unit, einsum, turns.pop() if len(turns) == 1 else "")

    def has_lanes(self, einsums: Sequence[Einsum]) -> bool:
        """Whether sums and gathers leave a variable that scans beside them have on the partitions."""
        if any(e.is_choice for e in einsums) and any(e.reduced for e in einsums):
            return False
        along = {v for e in einsums for v in e.along}
        if along and any(a.gathers for e in einsums for a in e.accesses):
            spans = {v: span for e in einsums for v, span in self.ctx.spans(e, {}).items()}
            return bool(choices_for(self.ctx, [*einsums], spans))
        wide = {v for e in einsums for v in e.variables if self.ctx.cascade.extent(v, e) > 1} - along
        return not along or not wide or bool(wide - {v for e in einsums for v in e.reduced})

    def is_sum_of(self, einsum: Einsum, units: list[list[Einsum]]) -> bool:
        """Whether an Einsum sums what the last cluster computes, tile by tile."""
        last = units[-1] if units and len({*map(str, einsum.accesses)}) <= 1 else []
        if not last or (len(last) == 1 and self.is_product(last[0])):
            return False
        return self.joins(last, einsum) and any(e.name in einsum.reads for e in last)

    def is_ended_by(self, unit: Sequence[Einsum], cluster: Sequence[Einsum]) -> bool:
        """Whether a product is read by a cluster alone, element by element: tile by tile out of PSUM."""
        (product, *more), cascade = unit, self.ctx.cascade
        if more or self.ctx.given.is_watched or self.turns.get(id(product)) or not self.is_product(product):
            return False
        is_inner = product.name not in cascade.outputs and product.condition is None
        is_once = len(cascade.writers(product.name)) == 1
        readers = cascade.readers(product.name)
        read = [a for e in readers for a in e.accesses if a.tensor == product.name]
        is_read = {id(e) for e in readers} <= {id(e) for e in cluster}
        is_read &= all(i.plain for i in product.output.indices)
        is_read &= all(a.indices == product.output.indices for a in read)
        if not (is_inner and is_once and is_read) or any(self.is_product(e) for e in cluster[:1]):
            return False
        own = {*product.output.variables}
        return all(self.is_elementwise(e) and {*e.variables} == own for e in cluster)

    def is_elementwise(self, einsum: Einsum) -> bool:
        """Whether an Einsum only maps, with no more to it."""
        is_plain = not (einsum.reduced or einsum.condition or einsum.recurrence)
        return is_plain and not any(a.gathers for a in einsum.accesses)

    def depends(self, unit: Sequence[Einsum], einsum: Einsum) -> bool:
        """Whether an Einsum must stay behind a unit."""
        written, read = {e.name for e in unit}, {t for e in unit for t in e.reads}
        return bool(written & {einsum.name, *einsum.reads}) or einsum.name in read

    def is_product(self, einsum: Einsum) -> bool:
        """Whether TensorE is judged the cheaper for an Einsum, as things lie now."""
        if id(einsum) in self.totals:
            return False
        ctx = self.ctx
        places = [(ctx.homes.get(t), id(ctx.chip(t))) for t in (einsum.name, *einsum.reads)]
        key = (id(einsum), self.points, *places, *ctx.loops, ctx.build.live_bytes(), ctx.build.depth)
        if key not in self.judged:
            self.judged[key] = self._is_product(einsum)
        return self.judged[key]

    def _is_product(self, einsum: Einsum) -> bool:
        ctx = self.ctx
        outer = {v: point(name_of(v)) for v in self.points if v in einsum.variables}
        key, known = self.depends_on(einsum), self.hardware.judged
        if key not in known:
            known[key] = einsum, self.costs_ns(einsum, outer)
        product_ns, other_ns, is_chained = known[key][1]
        if inf in (product_ns, other_ns):
            return product_ns < inf
        if not ctx.knobs.has_products:
            return False
        if instruction := ctx.given.instruction(einsum.name):
            return instruction == "MatVec"
        if str(einsum) not in self.turned:
            told = ("the cheaper engine", "the other")
            costs = () if is_chained else sorted((product_ns, other_ns))
            taken = ctx.pick(f"the engine of {einsum}", told, costs=costs)
            self.turned[str(einsum)] = taken == told[1]
        return (product_ns <= other_ns and not is_chained) != self.turned[str(einsum)]

    def costs_ns(self, einsum: Einsum, outer: dict[str, Span]) -> tuple[float, float, bool]:
        """What TensorE and the others are judged to take, and whether a product is a step in a chain."""
        ctx, spans = self.ctx, self.ctx.spans(einsum, outer)
        products = products_for(ctx, einsum, outer)
        others = choices_for(ctx, [einsum], spans) if products else []
        if not products or not others:
            return (products[0].cost_ns if products else inf), inf, False
        planes = planes_for(ctx, [einsum], spans)
        other_ns = min(others[0].cost_ns, planes.cost_ns if planes is not None else inf)
        return products[0].cost_ns, other_ns, self.is_chained(einsum, products[0])

    def depends_on(self, einsum: Einsum) -> tuple[object, ...]:
        """What of a plan the costs of an Einsum depend on."""
        ctx, build = self.ctx, self.ctx.build
        known = (ctx.homes, ctx.dtypes, ctx.chip_dtypes, ctx.wanted, ctx.served)
        lies = []
        for tensor in (einsum.name, *einsum.reads):
            chip, axes = ctx.chip(tensor), (ctx.barred.get(tensor, ()), ctx.avoided.get(tensor, ()))
            tile = chip and (chip.dims, chip.bases, chip.copies, chip.depth, chip.buffer.memory)
            shape = chip.buffer.shape if chip else tensor in ctx.storages
            lies.append((tile, shape, *map(frozenset, axes), *(of.get(tensor) for of in known)))
        extents = (ctx.cascade.extent(v, einsum) for v in einsum.variables)
        room = build.live_bytes(), build.depth, ctx.knobs.most_columns
        return id(einsum), *extents, self.points, *lies, *ctx.loops, *room

    def is_chained(self, einsum: Einsum, product: Product) -> bool:
        """Whether a product of a matrix and a vector is a short step in a chain of turns.

        Then latency counts: TensorE has its operands turned and its result copied out of PSUM, where VectorE
        goes over a bank of columns twice.
        """
        if not self.turns.get(id(einsum)) or (product.part and product.free) or len(einsum.accesses) != 2:
            return False
        spans = self.ctx.spans(einsum, {self.turns[id(einsum)]: point(0)})
        extents = sorted(spans[v].most for v in einsum.variables)
        rows, columns = prod(extents[:-1]), extents[-1]
        return rows <= self.ctx.lanes and columns <= self.ctx.bank

    def cost_ns(self, einsum: Einsum, outer: dict[str, Span]) -> float:
        """What an Einsum is judged to take on the engine that is judged cheaper."""
        key, known = (*self.depends_on(einsum), *outer.items()), self.hardware.least
        if key not in known:
            products = products_for(self.ctx, einsum, outer)
            others = choices_for(self.ctx, [einsum], self.ctx.spans(einsum, outer))
            costs = [p.cost_ns for p in products[:1]] + [c.cost_ns for c in others[:1]]
            known[key] = einsum, min(costs, default=inf)
        return known[key][1]

    def is_scattering(self, variable: str, products: list[Einsum]) -> bool:
        """Whether tiles of a variable leave TensorE only ways that load single elements from HBM."""
        ctx = self.ctx
        for einsum in products:
            extent = ctx.cascade.extent(variable, einsum) if variable in einsum.variables else 0
            whole_cost = products_for(ctx, einsum, {})[0].cost_ns
            tile = {variable: whole(ctx.lanes, name_of(variable) * ctx.lanes)}
            tiled = products_for(ctx, einsum, tile) if extent > ctx.lanes else []
            if tiled and tiled[0].cost_ns * (extent / ctx.lanes) > MOST_SCATTERED * whole_cost:
                return True
        return False

    def products_of(self, group: Group) -> list[Einsum]:
        """Einsums of a group that TensorE computes."""
        found: list[Einsum] = []
        for step in group.steps:
            units = self.units(einsums_of([step])) if isinstance(step, Iterate) else []
            found.extend(u[0] for u in units if len(u) == 1 and self.is_product(u[0]))
        plain = [s for s in group.steps if isinstance(s, Einsum)]
        found.extend(u[0] for u in self.units(plain) if len(u) == 1 and self.is_product(u[0]))
        return found
