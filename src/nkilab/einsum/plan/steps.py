"""From a cascade in one form to a loop tree: groups, their loops, where tensors live, nest after nest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from math import prod

from ..hardware import Hardware
from ..language.ast import Cascade, Einsum, Iterate, Kind, Scalar, Step
from ..lower.plane_tiles import planes_for
from ..lower.planes import PlaneNest
from ..lower.stencil import StencilNest, stencils_in
from ..rewrite.live import why_left_out
from ..tree.nodes import Argument, Buffer, Kernel, unchanged
from .build import Builder, Span, whole
from .choose import Cluster, choices_for
from .context import Context, as_plan_errors
from .contraction import Contraction
from .deliver import targets_of
from .edges import EdgedCopy, Edges
from .finishing import in_order, with_less
from .given import Given
from .groups import Group, batches, einsums_of, groups_of, shared_by, state_of, turning_of
from .homes import Homes
from .knobs import Knobs, Picker
from .nest import Nest
from .product import is_batch, product_of, products_for, together
from .reach import beyond_edges
from .scheduled import Scheduled
from .storage import APART, in_hbm
from .units import Units

# times as many elements that products read as such as are few
FEW_ELEMENTS = 16


class Lowering:
    def __init__(
        self, given: Cascade, cascade: Cascade, dtypes: Mapping[str, str], hardware: Hardware, name: str,
        title: str, knobs: Knobs, fixed: Given, edges: Mapping[str, Edges],
    ) -> None:  # fmt: skip
        taken = {*given.inputs, *given.outputs, *given.scalars, name}
        self.given, self.name, self.title, self.edges = given, name, title, edges
        known = replace(fixed, derived=cascade.derived)
        machine, types = hardware.machine, cascade.types(dtypes)
        self.ctx = Context(cascade, machine, types, Builder(taken), knobs, given=known)
        self.group: Group | None = None
        self.units = Units(self.ctx, hardware)
        self.homes = Homes(self.ctx, self.units)
        self.hardware = hardware
        self.stencils = [] if fixed.is_watched else stencils_in(cascade, machine)
        self.later: set[str] = set()

    def lays_alike(self, knobs: Knobs) -> bool:
        """Whether choices want the same of all nests."""
        is_same = replace(self.ctx.knobs, picks=()) == replace(knobs, picks=())
        return is_same and Picker(self.ctx.knobs, self.ctx.decisions).decides_alike(knobs)

    def planned(self, knobs: Knobs) -> tuple[Kernel, Context]:
        """The whole tree and its plan, of choices that want these nests, which stay as they are."""
        own = self.ctx.beside(replace(self.ctx.knobs, picks=knobs.picks))
        with as_plan_errors(own):
            kernel = replace(self.kernel, body=unchanged(self.kernel.body))
            return in_order(kernel, own, self.hardware), own

    def laid_out(self) -> Lowering:
        """It, with all nests in the tree."""
        ctx, cascade = self.ctx, self.ctx.cascade
        with as_plan_errors(ctx):
            arguments = self.arguments()
            ctx.declared = {t: self.given.shape(t) or (1,) for t in cascade.outputs}
            inside = set[str]().union(*(s.tensors for s in self.stencils))
            copied = (e for b in cascade.blocks for e in b.body if e.name in self.edges)
            ctx.viewed = {e.reads[0] for e in (*cascade.views.values(), *copied)} | inside
            for tensor in cascade.outputs:
                ctx.build.taken.discard(tensor)
                ctx.add_hbm(tensor, "output")
            other = {d.origin for d in cascade.derived.values() if d.kind in (Kind.NOW, Kind.PIECE)}
            idle = [e for e in self.given.written if e not in cascade.written and e not in other]
            ctx.choices.extend(
                f"{name} is left out: {why_left_out(name, self.given, cascade)}" for name in idle
            )
            self.homes.bar_turns()
            ctx.copied = {e.tensor for e in self.edges.values()}
            for name in (n for n in self.edges if n in cascade.inputs):
                self.copy_edged(name)
            scanned = {e.name for b in cascade.blocks for e in b.body if e.has_first}
            alone = {*cascade.views, *self.edges, *inside, *scanned}
            groups = groups_of(cascade, ctx.knobs.is_fused, alone, is_parted=ctx.knobs.is_ordered)
            if ctx.given.nests:
                groups = Scheduled(ctx, self.homes, self.lower_run).lower()
            for number, group in enumerate(groups):
                self.lower_group(group, {t for g in groups[number + 1 :] for e in g.einsums for t in e.reads})
            outputs = tuple(s.buffer for t in cascade.outputs if (s := ctx.hbm(t)) is not None)
            kernel = Kernel(self.name, tuple(arguments), ctx.build.body, outputs, self.title)
            self.kernel = with_less(kernel, ctx, self.hardware)
        return self

    def arguments(self) -> list[Argument]:
        """What a kernel takes: inputs, which lie in HBM, and scalars that are parameters."""
        ctx, cascade = self.ctx, self.ctx.cascade
        arguments = []
        for tensor in self.given.inputs:
            shape = cascade.shape(tensor) or (1,)
            buffer = Buffer(tensor, shape, ctx.dtypes[tensor], "hbm", "input", tensor)
            ctx.storages[tensor] = [in_hbm(buffer, len(cascade.tensors[tensor].ranks))]
            arguments.append(Argument(tensor, shape, ctx.dtypes[tensor], declared=self.given.shape(tensor)))
        operands = (o for e in cascade.einsums for o in e.operands if isinstance(o, Scalar))
        scalars = {name for operand in operands for name in operand.parameters}
        return [*arguments, *(Argument(n, value=v) for n, v in cascade.scalars.items() if n in scalars)]

    def copy_edged(self, name: str) -> None:
        """Copy a tensor with zeros around it."""
        EdgedCopy(self.ctx, name, self.edges[name]).lower()
        self.ctx.choices.append(self.edges[name].told)

    # groups

    def lower_group(self, group: Group, later: set[str]) -> None:
        """Open the loops of a group and lower its steps in them."""
        ctx = self.ctx
        if self.is_placed(group):
            return
        self.group, self.later, self.homes.later, self.units.points = group, later, later, ()
        self.units.totals = {id(e) for e in group.totals(group.shared)}
        loops = self.loops_of(group)
        totals = group.totals(turning_of(loops))
        if totals and not self.are_along(totals, loops):
            self.lower_apart(group, totals, later)
            return
        self.units.totals = {id(e) for e in totals}
        ctx.resident |= {e.name for e in totals}
        self.units.points = tuple(v for v, _, block in loops if block == 1)
        is_trivial = not turning_of(loops)
        self.homes.settle_homes(group, is_trivial, {v: b for v, _, b in loops})
        self.homes.bar(group)
        ctx.loops = [(v, -(-e // b)) for v, e, b in loops]
        ctx.blocks = {v: b for v, _, b in loops}
        outside = [
            s for e in group.einsums for s in ctx.storages.get(e.name, ()) if "chip" in ctx.homes[e.name]
        ]
        with self.opened(group, loops, is_sequential=bool(totals)) as outer:
            for block in (s for s in group.steps if isinstance(s, Iterate)):
                self.prepare(block, outer)
            resident = self.homes.keep_resident(group, outer)
            self.lower_steps(group.steps, outer, later)
            for tensor, storage in resident.items():
                ctx.storages[tensor].remove(storage)
        while ctx.ended:
            ctx.ended.pop(0)()
        self.tell(group, loops)
        self.homes.release(group, later)
        # tiles that lay in the loops are gone; what lies in HBM, or lay there before, lies outside of them
        for tensor in set() if is_trivial else {e.name for e in group.einsums} - ctx.resident:
            every = ctx.storages.get(tensor, ())
            ctx.storages[tensor] = [s for s in every if s.is_hbm or any(s is o for o in outside)]
            for hbm in ctx.storages[tensor]:
                hbm.depth = 0

    def is_placed(self, group: Group) -> bool:
        """Whether a group is a stencil, a copy or a view in HBM: it is lowered without loops around it."""
        name = group.einsums[-1].name
        for stencil in (s for s in self.stencils if any(t is s.block for t in group.steps)):
            StencilNest(self.ctx, stencil).lower()
            return True
        if any(step in s.copies for s in self.stencils for step in group.steps):
            return True
        if name in self.edges:
            self.copy_edged(name)
        elif name in self.ctx.cascade.views:
            self.ctx.view(group.einsums[-1])
        return name in self.edges or name in self.ctx.cascade.views

    def are_along(self, totals: Sequence[Einsum], loops: Sequence[tuple[str, int, int]]) -> bool:
        """Whether turns of the loops around a group each add their part to sums over all of them."""
        turning = {v for v, extent, block in loops if extent > block > 1}
        is_possible = {*turning_of(loops)} == turning and all(turning <= {*e.reduced} for e in totals)
        what = f"sums of {', '.join(dict.fromkeys(e.name for e in totals))} in the loop before"
        return is_possible and self.ctx.pick(what, ("along", "apart"), costs=(1.0, 1.0)) == "along"

    def lower_apart(self, group: Group, totals: Sequence[Einsum], later: set[str]) -> None:
        """Lower sums over the loops that the others of a group share behind those, each for itself."""
        rest, cascade = tuple(s for s in group.steps if s not in totals), self.ctx.cascade
        behind = {t for e in totals for t in e.reads}
        for steps in ([rest] if rest else []) + [(e,) for e in totals]:
            self.lower_group(Group(steps, shared_by(steps, cascade)), later | behind)

    @contextmanager
    def opened(
        self, group: Group, loops: list[tuple[str, int, int]], is_sequential: bool
    ) -> Iterator[dict[str, Span]]:
        """The loops around a group; yields what a turn covers of each that turns more than once."""
        turning = turning_of(loops)
        told = "; ".join(dict.fromkeys(e.name for e in group.einsums)) + " share this loop"
        comments = dict.fromkeys(turning[:1], told)  # the outermost says it
        with ExitStack() as stack:
            spans = dict[str, Span]()
            for v, e, b in loops:
                told = comments.get(v, "")
                loop = self.ctx.build.tiles(v, e, b, over=v, comment=told, is_sequential=is_sequential)
                spans[v] = stack.enter_context(loop)
            yield {v: spans[v] for v in turning}

    def tell(self, group: Group, loops: list[tuple[str, int, int]]) -> None:
        """Note for the report how a group runs and where its results lie."""
        ctx = self.ctx
        names = list(dict.fromkeys(e.name for e in group.einsums))
        turning = [f"{v} in tiles of {b}" if b > 1 else f"{v}" for v, e, b in loops if -(-e // b) > 1]
        if turning:
            ctx.choices.append(f"{', '.join(names)} share loops over {', '.join(turning)}")
        products = {e.name for e in self.homes.products}
        for name in names:
            told = [f"computed by {'TensorE' if name in products else 'VectorE and ScalarE'}"]
            if name in ctx.memories:
                told.append("stays in PSUM")
            elif ctx.hbm(name) is not None and name not in ctx.cascade.outputs:
                told.append("kept in HBM between its nests, because SBUF has no room or others need it later")
            if name in ctx.chip_dtypes:
                told.append(f"{ctx.chip_dtypes[name]} on chip, as TensorE alone reads it")
            ctx.choices.append(f"{name}: {'; '.join(told)}")

    def loops_of(self, group: Group) -> list[tuple[str, int, int]]:
        """Variable, extent and block of each loop around a group; none where one nest does it all."""
        cascade, given, last = self.ctx.cascade, self.ctx.given, group.einsums[-1]
        shared = [v for v in group.shared if cascade.extent(v, last) > 1]
        # what is read beyond its edge along a variable is brought on chip whole
        edges = {v for index in beyond_edges(self.ctx, group.einsums) for v in index.variables}
        shared = [v for v in shared if v not in edges]
        names = [e.name for e in group.einsums]
        forced = {v: b for v, b in given.around(names).items() if v in shared and b < cascade.extent(v, last)}
        products: list[Einsum] = []
        if not self.is_one_nest(group):
            products = self.units.products_of(group)
        elif not forced:
            return []
        loops = self.given_loops(group, forced, products)
        if self.is_one_nest(group):
            return loops
        shared = [
            v for v in shared if not self.takes_elements(group, products, v)
            if v not in forced and all(given.may_turn(v, e.name, e.output.variables) for e in group.einsums)
        ]  # fmt: skip
        batch = batches(products, shared)
        single = [v for v in batch if not all(self.is_together(e, v) for e in products)]
        single += self.homes.apart(group, [v for v in batch if v not in single], single)
        few = [v for v in batch if v in single or cascade.extent(v, last) <= self.ctx.lanes]
        rest = [v for v in shared if v not in few and not self.units.is_scattering(v, products)]
        loops = [*((v, cascade.extent(v, last), 1) for v in single), *loops]
        tiled = self.homes.tiled_by(group, rest, products, dict.fromkeys(single, 1)) if rest else ""
        is_tiled = bool(single) or given.is_watched
        by_value = "" if is_tiled else self.homes.by_value(group, shared)
        if by_value:
            loops.append((by_value, cascade.extent(by_value, last), 1))
        elif tiled:
            extent = cascade.extent(tiled, group.einsums[-1])
            loops.append((tiled, extent, self.homes.group_block(group, tiled, extent, products)))
            has_turns = any(isinstance(s, Iterate) for s in group.steps)
            if self.ctx.lanes // 2 <= extent <= self.ctx.lanes and not (products or has_turns):
                loops += self.homes.rows_apart(group, [v for v in shared if v != tiled])
        order = given.sorted(names, [v for v, _, _ in loops])
        return sorted(loops, key=lambda held: order.index(held[0]))

    def takes_elements(self, group: Group, products: Sequence[Einsum], variable: str) -> bool:
        """Whether a loop over a batch moves single elements, and not few, of HBM beside its products."""
        cascade, others = self.ctx.cascade, [e for e in group.einsums if e not in products]
        far = {t: prod(cascade.shape(t)) for t in (*cascade.inputs, *cascade.outputs)}
        beside = {
            a for e in others for a in e.every_access if a.indices[1:] and a.indices[-1].plain == variable
        }
        largest = max((prod(cascade.shape(t)) for e in products for t in e.reads), default=0)
        are_many = any(far.get(a.tensor, 0) * FEW_ELEMENTS >= largest for a in beside)
        return are_many and bool(batches(products, [variable]))

    def is_together(self, einsum: Einsum, variable: str) -> bool:
        """Whether products with one value of a variable each have their transfers together."""
        spans = self.ctx.spans(einsum, {})
        best = products_for(self.ctx, einsum, {})[:1]
        return any(
            together(self.ctx, einsum, spans, p.part, p.free, p.outer).get(variable, 1) > 1 for p in best
        )

    def is_one_nest(self, group: Group) -> bool:
        """Whether one nest does all that a group does."""
        if len(group.steps) == 1 and isinstance(group.steps[0], Einsum):
            return True
        has_turns = any(isinstance(s, Iterate) for s in group.steps)
        return not has_turns and len(self.units.units(group.einsums)) == 1

    def given_loops(
        self, group: Group, forced: Mapping[str, int], products: list[Einsum]
    ) -> list[tuple[str, int, int]]:
        """The loops that a mapping puts around a group, in its order."""
        found = []
        for variable in self.ctx.given.sorted((e.name for e in group.einsums), forced):
            extent = self.ctx.cascade.extent(variable, group.einsums[-1])
            is_long = extent > self.ctx.lanes and not forced[variable]
            tile = self.homes.group_block(group, variable, extent, products) if is_long else 1
            found.append((variable, extent, forced[variable] or tile))
        return found

    # steps

    def lower_steps(self, steps: Sequence[Step], outer: dict[str, Span], later: set[str]) -> None:
        """Lower steps in order, Einsums that may run together in one nest."""
        run: list[Einsum] = []
        for number, step in enumerate(steps):
            if isinstance(step, Einsum):
                run.append(step)
                continue
            after = later | {t for e in einsums_of(steps[number + 1 :]) for t in e.reads}
            self.lower_run(run, outer, after | {t for e in step.body for t in e.reads})
            run = []
            self.lower_block(step, outer, after)
        self.lower_run(run, outer, later)

    def lower_block(self, block: Iterate, outer: dict[str, Span], later: set[str]) -> None:
        """The turns of an iterate block, one after the other."""
        ctx = self.ctx
        written = {e.name for e in block.body}
        before = {id(s): s.depth for t in written for s in ctx.storages.get(t, ())}
        extent = ctx.cascade.sizes[block.variable.upper()]
        turn, told = block.variable, f"turns of {block.variable}"
        with ctx.build.tiles(turn, extent, 1, is_sequential=True, comment=told, over=turn) as span:
            ctx.loops.append((turn, extent))
            known = {t: list(ctx.storages.get(t, ())) for t in written}
            anew = state_of(block) - {e.name for e in block.body if turn in e.output.variables}
            for tensor, storage in ((t, s) for t, storages in known.items() for s in storages):
                storage.enter(ctx.build.depth, (span.start, span.start + 1) if tensor in anew else APART)
            self.lower_run(list(block.body), {**outer, block.variable: span}, later | state_of(block))
        ctx.loops.pop()
        for tensor in written:
            kept = known[tensor] if extent > 1 else ctx.storages.get(tensor, [])
            ctx.storages[tensor] = kept
            for storage in kept:
                left = (whole(extent).count, None) if storage.turns[1] else APART
                storage.enter(before.get(id(storage), ctx.build.depth), left)

    def prepare(self, block: Iterate, outer: dict[str, Span]) -> None:
        """Make the places of what is read after a block, before its loop opens."""
        ctx = self.ctx
        steps = self.group.steps if self.group else ()
        everything = {t for e in einsums_of(steps) if e not in block.body for t in e.reads}
        everything |= self.later | state_of(block)
        for einsum in block.body:
            name = einsum.name
            if ctx.homes[name] == "hbm" and ctx.hbm(name) is None and name in everything:
                ctx.add_hbm(name, "scratch")
            if ctx.chip(name) is None and "chip" in ctx.homes[name] and name in everything:
                point = {block.variable: Span(whole(1).start, whole(1).count, 1)}
                part = self.first_part(einsum, {**outer, **point})
                targets_of(ctx, einsum, {**outer, **point}, part)

    def first_part(self, einsum: Einsum, outer: dict[str, Span]) -> str:
        wanted = self.ctx.wanted.get(einsum.name, "")
        wide = [v for v in einsum.output.variables if v not in outer or not outer[v].is_point]
        barred = self.ctx.barred.get(einsum.name, ())
        wide = [v for v in wide if einsum.output.axis_of(v) not in barred] or wide
        widest = max(wide, key=lambda v: self.ctx.cascade.extent(v, einsum), default="")
        return wanted if wanted in wide else widest

    # runs of Einsums

    def lower_run(self, einsums: Sequence[Einsum], outer: dict[str, Span], later: set[str]) -> None:
        """Lower consecutive Einsums, unit by unit."""
        copy = next((n for n, e in enumerate(einsums) if e.name in self.edges), None)
        if copy is not None:
            rest = einsums[copy + 1 :]
            self.lower_run(einsums[:copy], outer, later | {t for e in rest for t in e.reads})
            self.copy_edged(einsums[copy].name)
            self.lower_run(rest, outer, later)
            return
        units = self.units.units(einsums)
        while units:
            unit = units.pop(0)
            ending = self.ending(unit, units)
            behind = {t for u in (units[1:] if ending else units) for e in u for t in e.reads} | later
            before = len(self.ctx.build.scopes[-1].body)
            with self.ctx.handed_on([*unit, *ending]):
                del units[: self.lower_unit(unit, outer, behind, ending)]
            self.ctx.forget(before, behind)

    def ending(self, unit: list[Einsum], units: list[list[Einsum]]) -> list[Einsum]:
        """What takes the tiles of a product out of PSUM; what else its cluster has comes behind it."""
        ending, ways = self.units.ending(unit, units[0]) if units else [], ("out of PSUM", "out of SBUF")
        if not ending or unit[0].name in self.ctx.memories:
            return []
        if self.ctx.pick(f"how {unit[0].name} is read", ways, costs=(1.0, 1.0)) != ways[0]:
            return []
        units[:1] = filter(None, (ending, [e for e in units[0] if e not in ending]))
        return ending

    def lower_unit(
        self, unit: list[Einsum], outer: dict[str, Span], behind: set[str], ending: list[Einsum]
    ) -> bool:
        """Lower a unit, with the cluster that takes its tiles out of PSUM; whether it did so."""
        if len(unit) == 1 and self.units.is_product(unit[0]):
            mine = {v: s for v, s in outer.items() if v in unit[0].variables}
            product = product_of(self.ctx, unit[0], mine)
            if product is not None:
                return self.lower_product(Contraction(self.ctx, unit[0], product, mine), behind, ending)
        # what was to take its tiles out of PSUM reads it from where it lies
        self.lower_cluster(unit, behind | {t for e in ending for t in e.reads}, outer)
        return False

    def lower_product(self, nest: Contraction, behind: set[str], ending: list[Einsum]) -> bool:
        """Lower a product, with the cluster that takes its tiles out of PSUM; whether it did so."""
        ctx, product = self.ctx, nest.product
        batch = [v for v in product.outer if is_batch(ctx, nest.einsum, product.part, product.free, v)]
        if ending and not batch:
            # places of all that the tiles of the product lead to
            kept = [e for e in ending if e.name in behind or e.name in ctx.cascade.outputs]
            nest.results = [(e.output, targets_of(ctx, e, nest.outer, product.part)) for e in kept]
            nest.ending = partial(self.lower_cluster, ending, behind)
        nest.lower()
        for hbm in (target.hbm for _, target in nest.results if target.hbm is not None):
            hbm.depth = ctx.build.depth
        return bool(ending) and not batch

    def lower_cluster(self, unit: list[Einsum], behind: set[str], outer: dict[str, Span]) -> None:
        """Lower Einsums that run tile by tile."""
        ctx = self.ctx
        variables = {v for e in unit for v in e.variables}
        spans = {v: s for e in unit for v, s in ctx.spans(e, outer).items()}
        kept = {e.name for e in unit if e.name in behind or e.name in ctx.cascade.outputs}
        kept |= {e.name for e in unit if e.name in ctx.given.kept}
        cluster, mine = Cluster(unit, kept), {v: s for v, s in outer.items() if v in variables}
        is_total = any(id(e) in self.units.totals for e in unit)
        planes = None if is_total else planes_for(ctx, unit, spans)
        if planes is not None and self.has_planes(cluster, planes.cost_ns, spans):
            PlaneNest(ctx, cluster, mine, planes).lower()
        else:
            Nest(ctx, cluster, mine).lower()

    def has_planes(self, cluster: Cluster, planes_ns: float, spans: dict[str, Span]) -> bool:
        """Whether Einsums run over tiles of several axes, or of two: what is judged the cheaper first."""
        choices = choices_for(self.ctx, cluster.einsums, spans)
        if not choices:
            return True
        costs_ns = {"several axes": planes_ns, "two axes": choices[0].cost_ns}
        return self.ctx.cheapest(f"the tiles of {cluster.title}", costs_ns) == "several axes"
