"""From a cascade with extents to a kernel: groups, their loops, where their tensors live, nest after nest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from math import prod

from ...errors import UnsupportedError
from ...machine import Machine
from ..language.ast import Access, Cascade, Einsum, Iterate, Step
from ..language.extents import block_extent
from ..tree.nodes import Argument, Buffer, Kernel
from .build import Builder, Span, whole
from .choose import choose
from .context import Context
from .contraction import Contraction, product_of
from .deliver import targets_of
from .groups import Group, batches, einsums_of, groups_of, joins
from .nest import Cluster, Nest
from .recurrence import without_turns
from .stage import stage, staged_bytes
from .storage import PARTITIONS, Storage, in_hbm

# a tensor that outlives its group stays on chip below this many bytes per partition
SMALL_BYTES = 24 * 1024


def lower(
    cascade: Cascade, dtypes: Mapping[str, str], machine: Machine, name: str, title: str = ""
) -> tuple[Kernel, Context]:
    """The loop tree of a cascade.

    Args:
        cascade: every rank has an extent.
        dtypes: of inputs and outputs; others are computed in float32.
        machine: the chip.
        name: of the kernel.
        title: its docstring.

    Raises:
        UnsupportedError: if an Einsum has a form that no nest covers.
    """
    rewritten = without_turns(cascade)
    return _Lowering(cascade, rewritten, dtypes, machine, name, title).kernel()


class _Lowering:
    def __init__(
        self,
        given: Cascade,
        cascade: Cascade,
        dtypes: Mapping[str, str],
        machine: Machine,
        name: str,
        title: str,
    ) -> None:
        held = {t: dtypes.get(t, "float32") for t in cascade.tensors}
        taken = {*given.inputs, *given.outputs, *given.scalars, name}
        self.given, self.name, self.title = given, name, title
        self.ctx = Context(cascade, machine, held, Builder(taken))
        self.group: Group | None = None

    def kernel(self) -> tuple[Kernel, Context]:
        ctx, cascade = self.ctx, self.ctx.cascade
        arguments = []
        for tensor in self.given.inputs:
            shape = cascade.shape(tensor) or (1,)
            buffer = Buffer(tensor, shape, ctx.dtypes[tensor], "hbm", "input", tensor)
            ctx.storages[tensor] = [in_hbm(buffer, len(cascade.tensors[tensor].ranks))]
            arguments.append(Argument(tensor, shape, ctx.dtypes[tensor]))
        scalars = {
            o.name
            for e in cascade.einsums
            for o in e.operands
            if isinstance(getattr(o, "name", None), str) and not isinstance(o, Access) and o.name
        }
        arguments.extend(Argument(n, value=v) for n, v in cascade.scalars.items() if n in scalars)
        for tensor in cascade.outputs:
            ctx.build.taken.discard(tensor)
            ctx.add_hbm(tensor, "output")
        self.bar_turns()
        groups = groups_of(cascade)
        for number, group in enumerate(groups):
            later = {t for g in groups[number + 1 :] for e in g.einsums for t in e.reads}
            self.lower_group(group, later)
        outputs = tuple(s.buffer for t in cascade.outputs if (s := ctx.hbm(t)) is not None)
        return Kernel(self.name, tuple(arguments), ctx.build.body, outputs, self.title), ctx

    # groups

    def lower_group(self, group: Group, later: set[str]) -> None:
        """Open the loops of a group and lower its steps in them."""
        ctx = self.ctx
        self.group, self.later = group, later
        loops = self.loops_of(group)
        is_trivial = all(-(-e // b) == 1 for _, e, b in loops)
        self.settle_homes(group, later, is_trivial, {v: b for v, _, b in loops})
        self.bar(group)
        with ExitStack() as stack:
            outer: dict[str, Span] = {}
            comment = "; ".join(dict.fromkeys(e.name for e in group.einsums)) + " share this loop"
            for variable, extent, block in loops:
                span = stack.enter_context(
                    ctx.build.tiles(
                        variable, extent, block, comment=comment if -(-extent // block) > 1 else ""
                    )
                )
                if -(-extent // block) > 1:
                    comment = ""
                    outer[variable] = span
            for step in group.steps:
                if isinstance(step, Iterate):
                    self.prepare(step, outer)
            resident = self.keep_resident(group, outer)
            self.lower_steps(group.steps, outer, later)
            for tensor, storage in resident.items():
                ctx.storages[tensor].remove(storage)
        if not is_trivial:
            # tiles that lay in the loops are gone
            for tensor in {e.name for e in group.einsums}:
                ctx.storages[tensor] = [s for s in ctx.storages.get(tensor, ()) if s.is_hbm]

    def keep_resident(self, group: Group, outer: dict[str, Span]) -> dict[str, Storage]:
        """Inputs that several nests of a group read with the same indices: loaded once per turn of its loops."""
        ctx, found = self.ctx, {}
        tile = next((v for v, s in outer.items() if not s.is_point), "")
        units = self.units(group.einsums)
        for tensor in {t: None for e in group.einsums for t in e.reads}:
            accesses = [
                (n, e, a) for n, u in enumerate(units) for e in u for a in e.accesses if a.tensor == tensor
            ]
            forms = {str(a) for _, _, a in accesses}
            if ctx.chip(tensor) or tensor in {e.name for e in group.einsums} or len(forms) != 1 or not tile:
                continue
            _, einsum, access = accesses[0]
            if len({n for n, _, _ in accesses}) < 2 or not all(
                getattr(i, "plain", "") for i in access.indices
            ):
                continue
            spans = ctx.spans(einsum, {v: s for v, s in outer.items() if v in einsum.variables})
            if tile not in access.variables or any(
                s.variable in access.variables for s in group.steps if isinstance(s, Iterate)
            ):
                continue
            size = staged_bytes(ctx, access, spans, tile, ctx.dtypes[tensor])
            if size * 2 <= ctx.room() * 0.3:
                found[tensor] = stage(ctx, access, spans, tile, ctx.dtypes[tensor])
                ctx.storages[tensor].insert(0, found[tensor])
        return found

    def loops_of(self, group: Group) -> list[tuple[str, int, int]]:
        """Variable, extent and block of each loop around a group; none where one nest does it all."""
        if len(group.steps) == 1 and isinstance(group.steps[0], Einsum):
            return []
        if not any(isinstance(s, Iterate) for s in group.steps) and len(self.units(group.einsums)) == 1:
            return []
        cascade = self.ctx.cascade
        shared = [v for v in group.shared if cascade.extent(v, group.einsums[-1]) > 1]
        products = [u[0] for u in self.units(group.einsums) if len(u) == 1 and self.is_product(u[0])]
        single = batches(products, shared)
        rest = [v for v in shared if v not in single]
        loops = [(v, cascade.extent(v, group.einsums[-1]), 1) for v in single]
        if rest:
            loops.append((rest[0], cascade.extent(rest[0], group.einsums[-1]), PARTITIONS))
        return loops

    def settle_homes(self, group: Group, later: set[str], is_trivial: bool, blocks: dict[str, int]) -> None:
        """Decide where results of a group lie: on chip as far as there is room, else in HBM."""
        ctx = self.ctx
        reads = {t for e in group.einsums for t in e.reads}
        sizes: dict[str, int] = {}
        for einsum in group.einsums:
            name = einsum.name
            size = self.tile_bytes(einsum, blocks)
            is_output = name in ctx.cascade.outputs
            crosses = name in later and not (is_trivial and size <= SMALL_BYTES)
            home = "hbm" if is_output or crosses else ""
            if name in reads or (name in later and not crosses) or not home:
                home = "both" if home else "chip"
                sizes[name] = size
            ctx.homes[name] = "chip hbm" if home == "both" else home
            ctx.wanted[name] = self.wanted(einsum, group, blocks)
        room = ctx.room() * 0.6
        for name in sorted(sizes, key=lambda n: -sizes[n]):
            if sum(sizes.values()) * (1 if is_trivial else 2) <= room:
                break
            if sizes[name] > 2048:
                ctx.homes[name] = "hbm"
                del sizes[name]

    def bar(self, group: Group) -> None:
        """Note axes of results that cannot lie on partitions: readers index them by more than one variable."""
        for einsum in group.einsums:
            for access in einsum.accesses:
                axes = {a for a, i in enumerate(access.indices) if not i.plain and i.variables}
                self.ctx.barred.setdefault(access.tensor, set()).update(axes)

    def bar_turns(self) -> None:
        """Note axes along which turns of a block write one element each: instructions reach no single partition."""
        for block in self.ctx.cascade.steps:
            if isinstance(block, Iterate):
                for einsum in block.body:
                    axes = {a for a, i in enumerate(einsum.output.indices) if block.variable in i.variables}
                    self.ctx.barred.setdefault(einsum.name, set()).update(axes)

    def tile_bytes(self, einsum: Einsum, blocks: dict[str, int]) -> int:
        """Bytes per partition of what a group holds of a tensor."""
        shape = self.ctx.cascade.shape(einsum.name)
        extents = [min(e, blocks.get(i.plain, e)) for e, i in zip(shape, einsum.output.indices, strict=True)]
        largest = max([e for e in extents if e <= PARTITIONS] or [1])
        return prod(extents) // max(largest, 1) * 4 if extents else 4

    def wanted(self, einsum: Einsum, group: Group, blocks: dict[str, int]) -> str:
        """The variable that the first reader of a tensor wants on the partitions; "" if it does not care."""
        tile = next((v for v, b in blocks.items() if b > 1), "")
        for reader in group.einsums:
            for access in reader.accesses:
                if access.tensor == einsum.name:
                    if self.is_product(reader):
                        over = [v for v in reader.reduced if v in access.variables]
                        return over[0] if over else ""
                    return tile if tile in access.variables else ""
        return ""

    # steps

    def lower_steps(self, steps: Sequence[Step], outer: dict[str, Span], later: set[str]) -> None:
        """Lower steps in order, Einsums that may run together in one nest."""
        run: list[Einsum] = []
        for number, step in enumerate(steps):
            if isinstance(step, Einsum):
                run.append(step)
                continue
            after = (
                later
                | {t for e in einsums_of(steps[number + 1 :]) for t in e.reads}
                | {t for e in step.body for t in e.reads}
            )
            self.lower_run(run, outer, after)
            run = []
            self.lower_block(
                step, outer, later | {t for e in einsums_of(steps[number + 1 :]) for t in e.reads}
            )
        self.lower_run(run, outer, later)

    def lower_block(self, block: Iterate, outer: dict[str, Span], later: set[str]) -> None:
        """The turns of an iterate block, one after the other."""
        ctx = self.ctx
        written = {e.name for e in block.body}
        before = {id(s): s.depth for t in written for s in ctx.storages.get(t, ())}
        extent = block_extent(block, self.given)
        with ctx.build.tiles(
            block.variable, extent, 1, is_sequential=True, comment=f"turns of {block.variable}"
        ) as span:
            known = {t: list(ctx.storages.get(t, ())) for t in written}
            for tensor in written:
                for storage in ctx.storages.get(tensor, ()):
                    storage.depth = ctx.build.depth
                    storage.changed()
            self.lower_run(list(block.body), {**outer, block.variable: span}, later | self.state_of(block))
        for tensor in written:
            kept = known[tensor] if extent > 1 else ctx.storages.get(tensor, [])
            ctx.storages[tensor] = kept
            for storage in kept:
                storage.depth = before.get(id(storage), ctx.build.depth)
                storage.changed()

    def state_of(self, block: Iterate) -> set[str]:
        """Tensors that a later turn reads before it writes them."""
        found, seen = set(), set()
        for einsum in block.body:
            found |= {t for t in einsum.reads if t not in seen}
            seen.add(einsum.name)
        return found

    def prepare(self, block: Iterate, outer: dict[str, Span]) -> None:
        """Make the places of what is read after a block, before its loop opens."""
        ctx = self.ctx
        everything = {
            t
            for e in einsums_of(self.group.steps if self.group else ())
            if e not in block.body
            for t in e.reads
        }
        everything |= self.later | self.state_of(block)
        for einsum in block.body:
            name = einsum.name
            if ctx.chip(name) is None and "chip" in ctx.homes[name] and name in everything:
                point = {block.variable: Span(whole(1).start, whole(1).count, 1)}
                part = self.first_part(einsum, {**outer, **point})
                targets_of(ctx, einsum, {**outer, **point}, part)

    def first_part(self, einsum: Einsum, outer: dict[str, Span]) -> str:
        wanted = self.ctx.wanted.get(einsum.name, "")
        if wanted in einsum.output.variables:
            return wanted
        wide = [v for v in einsum.output.variables if v not in outer or not outer[v].is_point]
        return max(wide, key=lambda v: self.ctx.cascade.extent(v, einsum), default="")

    # runs of Einsums

    def units(self, einsums: Sequence[Einsum]) -> list[list[Einsum]]:
        """Nests in order: contractions alone, others in clusters."""
        found: list[list[Einsum]] = []
        for einsum in einsums:
            if self.is_product(einsum) and not self.is_sum_of(einsum, found):
                found.append([einsum])
                continue
            for unit in reversed(found):
                if not self.is_product(unit[0]) and joins(unit, einsum):
                    unit.append(einsum)
                    break
                if self.depends(unit, einsum):
                    found.append([einsum])
                    break
            else:
                found.append([einsum])
        return found

    def is_sum_of(self, einsum: Einsum, units: list[list[Einsum]]) -> bool:
        """Whether an Einsum sums what the last cluster computes, tile by tile."""
        if (
            len({str(a) for a in einsum.accesses}) > 1
            or not units
            or len(units[-1]) == 1
            and self.is_product(units[-1][0])
        ):
            return False
        return joins(units[-1], einsum) and any(e.name in einsum.reads for e in units[-1])

    def depends(self, unit: Sequence[Einsum], einsum: Einsum) -> bool:
        """Whether an Einsum must stay behind a unit."""
        written, read = {e.name for e in unit}, {t for e in unit for t in e.reads}
        return bool(written & {einsum.name, *einsum.reads}) or einsum.name in read

    def is_product(self, einsum: Einsum) -> bool:
        """Whether TensorE is judged the cheaper for an Einsum."""
        ctx = self.ctx
        product = product_of(ctx, einsum, {})
        if product is None:
            return False
        try:
            other = choose(ctx, [einsum], ctx.spans(einsum, {}))
        except UnsupportedError:
            return True
        return product.cost_ns <= other.cost_ns

    def lower_run(self, einsums: Sequence[Einsum], outer: dict[str, Span], later: set[str]) -> None:
        """Lower consecutive Einsums, unit by unit."""
        units = self.units(einsums)
        for number, unit in enumerate(units):
            behind = {t for u in units[number + 1 :] for e in u for t in e.reads} | later
            self.lower_unit(unit, outer, behind)

    def lower_unit(self, unit: list[Einsum], outer: dict[str, Span], behind: set[str]) -> None:
        ctx = self.ctx
        if len(unit) == 1 and self.is_product(unit[0]):
            mine = {v: s for v, s in outer.items() if v in unit[0].variables}
            product = product_of(ctx, unit[0], mine)
            if product is not None:
                Contraction(ctx, unit[0], product, mine).lower()
                return
        variables = {v for e in unit for v in e.variables}
        kept = {e.name for e in unit if e.name in behind or e.name in ctx.cascade.outputs}
        Nest(ctx, Cluster(unit, kept), {v: s for v, s in outer.items() if v in variables}).lower()


__all__ = ["lower", "replace"]
