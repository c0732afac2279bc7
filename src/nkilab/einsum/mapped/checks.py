"""Checks of a mapped specification against itself, the language and the chip."""

from __future__ import annotations

from collections.abc import Iterator

from ...machine import Machine
from ..grades import Finding, finding
from ..language.ast import Einsum
from ..language.spec import Placement, Spec
from ..tree.expr import expr
from ..written.ranks import Ranks
from .layouts import digits, extent_of, merged, same_layout, shown

TRANSFERS = ("Load", "Store")
PRODUCTS = ("MatVec",)


def findings(spec: Spec, machine: Machine) -> list[Finding]:
    """Every fault of a mapped specification, errors of reference first."""
    ranks = Ranks(spec)
    found = list(_references(spec, ranks))
    if found:
        return found
    for check in (
        _names,
        _groups,
        _repairs,
        _loops,
        _placements,
        _outputs,
        _memories,
        _limits,
        _sums,
        _advice,
    ):
        found.extend(check(spec, ranks, machine))
    return found


def ranks_of(ranks: Ranks, einsum: Einsum) -> tuple[str, ...]:
    """Ranks of an Einsum after its splits."""
    return tuple(r for v in einsum.variables for r in ranks.names_after(einsum.name, v.upper()))


def _references(spec: Spec, ranks: Ranks) -> Iterator[Finding]:
    """Names of Einsums and ranks that there are not."""
    einsums = {e.name: e for e in spec.cascade.einsums}
    held = {"loop-order": spec.loop_order, "partitioning": spec.partitioning, "spacetime": spec.spacetime}
    named = [(n, spec.node(f"mapping.{key}.{n}")) for key, entries in held.items() for n in entries]
    named += [(e.einsum, e.node) for e in spec.engines.values()]
    named += [(p.einsum, p.node) for p in spec.placements.values()]
    named += [(e, f.node) for f in spec.fusion for g in f.groups for e, _ in g]
    for name, node in named:
        if name not in einsums:
            place = node.key_place if node.path.startswith("mapping") else node.place
            yield finding("unknown-einsum", place, node.path, name=name, known=", ".join(einsums))
    for placed in spec.placements.values():
        if placed.tensor not in spec.cascade.tensors:
            known = ", ".join(spec.cascade.tensors)
            yield finding(
                "unknown-tensor", placed.node.place, placed.node.path, name=placed.tensor, known=known
            )
    for name, order in spec.loop_order.items():
        known_ranks = ranks_of(ranks, einsums[name]) if name in einsums else order
        for rank in order:
            if rank not in known_ranks:
                node = spec.node(f"mapping.loop-order.{name}")
                told = ", ".join(known_ranks)
                yield finding("unknown-rank", node.place, node.path, rank=rank, einsum=name, known=told)


def _names(spec: Spec, ranks: Ranks, machine: Machine) -> Iterator[Finding]:
    for einsum, splits in spec.partitioning.items():
        for base, shapes in splits.items():
            node = spec.node(f"mapping.partitioning.{einsum}.{base}")
            for number in range(len(shapes) + 1):
                if f"{base}{number}" in ranks.declared:
                    yield finding(
                        "split-name",
                        node.key_place,
                        node.path,
                        rank=base,
                        einsum=einsum,
                        name=f"{base}{number}",
                    )
            extent = spec.cascade.sizes.get(base)
            for outer, inner in zip((extent, *shapes), shapes):
                if outer is not None and outer % inner:
                    yield finding(
                        "shape-of-rank",
                        node.place,
                        node.path,
                        rank=base,
                        extent=outer,
                        inner=inner,
                        einsum=einsum,
                    )


def _groups(spec: Spec, ranks: Ranks, machine: Machine) -> Iterator[Finding]:
    for fusion in spec.fusion:
        members = tuple(dict.fromkeys(e for g in fusion.groups for e, _ in g))
        if fusion.einsums is not None and set(fusion.einsums) != set(members):
            missing = [e for e in members if e not in fusion.einsums]
            order = [e.name for e in spec.cascade.einsums if e.name in members]
            yield finding(
                "fusion-members",
                fusion.node.place,
                f"{fusion.node.path}.einsums",
                missing=", ".join(missing),
                members=", ".join(order),
            )
        for group in fusion.groups:
            first = group[0]
            extent = extent_of(ranks, *first)
            for other in group[1:]:
                second = extent_of(ranks, *other)
                if second != extent:
                    yield finding(
                        "unequal-extents",
                        fusion.node.place,
                        f"{fusion.node.path}.ranks",
                        one=".".join(first),
                        first=extent,
                        other=".".join(other),
                        second=second,
                    )
        single = [g[0] for g in fusion.groups if len(g) == 1]
        consumed = [m for m in single if ranks.is_consumed(*m)]
        if consumed:
            yield finding(
                "single-group",
                fusion.node.place,
                f"{fusion.node.path}.ranks",
                count=len(single),
                consumed=len(consumed),
                names=", ".join(".".join(m) for m in consumed),
            )


def _repairs(spec: Spec, ranks: Ranks, machine: Machine) -> Iterator[Finding]:
    for tensor, orders in spec.rank_order.items():
        for einsum, order in orders.items():
            placed = spec.placements.get((tensor, einsum))
            if placed is not None and order != placed.unbound + placed.outer + placed.inner:
                node = spec.node(f"format.{tensor}.rank-order.{einsum}")
                yield finding(
                    "rank-order",
                    node.place,
                    node.path,
                    tensor=tensor,
                    einsum=einsum,
                    given=", ".join(order),
                    placed=", ".join(placed.unbound + placed.outer + placed.inner),
                )
    yield from _consumed(spec, ranks)
    yield from _units(spec, ranks)


def _consumed(spec: Spec, ranks: Ranks) -> Iterator[Finding]:
    """Ranks that an instruction consumes although they are loops."""
    for name, execution in spec.engines.items():
        for rank in execution.ranks:
            group = ranks.group(name, rank)
            if group is not None and group.is_loop:
                left = ", ".join(r for r in execution.ranks if r != rank)
                yield finding(
                    "consumed-and-looped",
                    execution.node.place,
                    f"{execution.node.path}.ranks",
                    rank=rank,
                    einsum=name,
                    loop=group.variable,
                    left=left,
                )


def _units(spec: Spec, ranks: Ranks) -> Iterator[Finding]:
    """Ranks of one value in layouts on chip."""
    for placed in spec.placements.values():
        names = placed.outer + placed.inner
        units = [r for r in names if expr(extent_of(ranks, placed.einsum, r)).value == 1]
        # a layout of unit ranks alone is that of one element
        if placed.component != "HBM" and len(names) > len(units):
            for rank in units:
                yield finding(
                    "unit-rank",
                    placed.node.place,
                    f"{placed.node.path}.ranks",
                    rank=rank,
                    tensor=placed.tensor,
                    einsum=placed.einsum,
                )


def _loops(spec: Spec, ranks: Ranks, machine: Machine) -> Iterator[Finding]:
    for einsum in spec.cascade.einsums:
        name = einsum.name
        if name not in spec.loop_order:
            continue
        order = spec.loop_order[name]
        for rank in ranks_of(ranks, einsum):
            if rank not in order and not ranks.is_consumed(name, rank):
                node = spec.node(f"mapping.loop-order.{name}")
                yield finding("no-loop", node.place, node.path, rank=rank, einsum=name)
        placed = ranks.producer(name)
        if placed is not None and placed.unbound:
            loops = tuple(r for r in order if (g := ranks.group(name, r)) is not None and g.is_loop)
            if placed.unbound != loops[: len(placed.unbound)]:
                yield finding(
                    "unbound-order",
                    placed.node.place,
                    f"{placed.node.path}.ranks.unbound",
                    tensor=name,
                    einsum=name,
                    unbound=", ".join(placed.unbound),
                    loops=", ".join(loops[: len(placed.unbound)]),
                )


def _placements(spec: Spec, ranks: Ranks, machine: Machine) -> Iterator[Finding]:
    for einsum in spec.cascade.einsums:
        if einsum.name not in spec.engines:
            continue
        for tensor in (einsum.name, *einsum.reads):
            if (tensor, einsum.name) not in spec.placements:
                node = spec.node("binding.tensor")
                yield finding("no-placement", node.place, "binding.tensor", tensor=tensor, einsum=einsum.name)
    for placed in spec.placements.values():
        made = ranks.producer(placed.tensor)
        if (
            made is not None
            and placed.component != "HBM"
            and made is not placed
            and not same_layout(ranks, made, placed)
        ):
            one, two = (
                shown(merged(digits(ranks, p.einsum, p.outer)) + merged(digits(ranks, p.einsum, p.inner)))
                for p in (made, placed)
            )
            yield finding(
                "layouts-differ",
                placed.node.place,
                f"{placed.node.path}.ranks",
                tensor=placed.tensor,
                einsum=placed.einsum,
                made=one,
                read=two,
            )


def _outputs(spec: Spec, ranks: Ranks, machine: Machine) -> Iterator[Finding]:
    for name in spec.cascade.outputs:
        placed = ranks.producer(name)
        if placed is not None and placed.component != "HBM":
            yield finding(
                "output-memory",
                placed.node.place,
                f"{placed.node.path}.component",
                tensor=name,
                memory=placed.component,
            )


def _memories(spec: Spec, ranks: Ranks, machine: Machine) -> Iterator[Finding]:
    for einsum in spec.cascade.einsums:
        execution, made = spec.engines.get(einsum.name), ranks.producer(einsum.name)
        if execution is None or made is None:
            continue
        if execution.instruction in PRODUCTS and made.component != "PSUM":
            yield finding(
                "product-memory",
                made.node.place,
                f"{made.node.path}.component",
                einsum=einsum.name,
                memory=made.component,
            )
        for tensor in einsum.reads:
            placed = spec.placements.get((tensor, einsum.name))
            if placed is None:
                continue
            if execution.instruction in TRANSFERS and placed.component == "PSUM":
                yield finding(
                    "transfer-psum",
                    placed.node.place,
                    f"{placed.node.path}.component",
                    tensor=tensor,
                    einsum=einsum.name,
                )
            elif execution.instruction in PRODUCTS and placed.component != "SBUF":
                yield _operand(placed, einsum, execution.instruction, "SBUF")
            elif execution.instruction == "Load" and placed.component != "HBM":
                yield _operand(placed, einsum, execution.instruction, "HBM")
            elif execution.instruction not in (*TRANSFERS, *PRODUCTS) and placed.component == "HBM":
                yield _operand(placed, einsum, execution.instruction, "SBUF or PSUM")


def _operand(placed: Placement, einsum: Einsum, instruction: str, allowed: str) -> Finding:
    return finding(
        "operand-memory",
        placed.node.place,
        f"{placed.node.path}.component",
        tensor=placed.tensor,
        memory=placed.component,
        einsum=einsum.name,
        instruction=instruction,
        allowed=allowed,
    )


def _limits(spec: Spec, ranks: Ranks, machine: Machine) -> Iterator[Finding]:
    partitions = machine["partitions"]
    for placed in spec.placements.values():
        if placed.component == "HBM":
            continue
        for rank in placed.outer:
            extent = expr(extent_of(ranks, placed.einsum, rank)).value
            if extent is not None and extent > partitions:
                yield finding(
                    "partition-limit",
                    placed.node.place,
                    f"{placed.node.path}.ranks.partition",
                    tensor=placed.tensor,
                    extent=extent,
                    chip=machine.name,
                    limit=partitions,
                    rank=rank,
                )
        if placed.component == "PSUM" and placed.constructor:
            size = 4
            for rank in placed.inner:
                size *= expr(extent_of(ranks, placed.einsum, rank)).value or 1
            if size > machine["psum_banks"] * machine["psum_bank_bytes"]:
                yield finding(
                    "bank",
                    placed.node.place,
                    f"{placed.node.path}.ranks.free",
                    tensor=placed.tensor,
                    bytes=size,
                    chip=machine.name,
                    limit=machine["psum_banks"] * machine["psum_bank_bytes"],
                    rank=placed.inner[0],
                )
    for einsum in spec.cascade.einsums:
        execution = spec.engines.get(einsum.name)
        if execution is not None and execution.instruction in PRODUCTS and len(einsum.accesses) == 2:
            yield from _product(spec, ranks, machine, einsum)


def _product(spec: Spec, ranks: Ranks, machine: Machine, einsum: Einsum) -> Iterator[Finding]:
    consumed = set(spec.engines[einsum.name].ranks)
    summed = {r for v in einsum.reduced for r in ranks.names_after(einsum.name, v.upper())} & consumed
    made = ranks.producer(einsum.name)
    for access in einsum.accesses:
        placed = spec.placements.get((access.tensor, einsum.name))
        if placed is None:
            continue
        on_partitions = {r for r in placed.outer if not digits_are_unit(ranks, einsum.name, r)}
        for rank in summed - on_partitions:
            if not digits_are_unit(ranks, einsum.name, rank):
                yield finding(
                    "contraction-partition",
                    placed.node.place,
                    f"{placed.node.path}.ranks.partition",
                    rank=rank,
                    tensor=access.tensor,
                    einsum=einsum.name,
                )
        is_stationary = made is not None and any(r in placed.inner for r in made.outer)
        limit = machine["stationary_free_max" if is_stationary else "moving_free_max"]
        for rank in placed.inner:
            extent = expr(extent_of(ranks, einsum.name, rank)).value
            if rank in consumed and extent is not None and extent > limit:
                kind = "stationary-limit" if is_stationary else "moving-limit"
                yield finding(
                    kind,
                    placed.node.place,
                    f"{placed.node.path}.ranks.free",
                    tensor=access.tensor,
                    einsum=einsum.name,
                    extent=extent,
                    chip=machine.name,
                    limit=limit,
                    rank=rank,
                )


def digits_are_unit(ranks: Ranks, einsum: str, rank: str) -> bool:
    """Whether a rank has one value."""
    return extent_of(ranks, einsum, rank).value == 1


def _sums(spec: Spec, ranks: Ranks, machine: Machine) -> Iterator[Finding]:
    """Readers of a sum that run inside a loop over which it is summed; loops that carry one."""
    for einsum in spec.cascade.einsums:
        execution, made = spec.engines.get(einsum.name), ranks.producer(einsum.name)
        if execution is None or made is None or einsum.name not in spec.loop_order:
            continue
        summed = {r for v in einsum.reduced for r in ranks.names_after(einsum.name, v.upper())}
        loops = [g for r in summed if (g := ranks.group(einsum.name, r)) is not None and g.is_loop]
        if execution.instruction == "LoopReduce":
            for group in loops:
                node = spec.node(f"mapping.loop-order.{einsum.name}")
                yield finding("carried-loop", node.place, node.path, loop=group.variable, tensor=einsum.name)
            for rank in summed:
                if rank in made.outer:
                    yield finding(
                        "reduced-partition",
                        made.node.place,
                        f"{made.node.path}.ranks.partition",
                        einsum=einsum.name,
                        rank=rank,
                        tensor=einsum.name,
                    )
        for reader in spec.cascade.einsums:
            if einsum.name in reader.reads and reader.name in spec.loop_order:
                for group in loops:
                    if group in ranks.loops(reader.name):
                        node = spec.node(f"mapping.loop-order.{reader.name}")
                        yield finding(
                            "incomplete-sum",
                            node.place,
                            node.path,
                            reader=reader.name,
                            tensor=einsum.name,
                            loop=group.variable,
                        )


def invariant(spec: Spec, einsum: Einsum) -> list[str]:
    """Ranks of an Einsum on which nothing it reads depends, directly or by Einsums that gain it too."""
    gained: dict[str, set[str]] = {}
    for one in spec.cascade.einsums:
        found = set()
        for variable in one.output.variables:
            holders = [a for a in one.accesses if variable in a.variables]
            if all(variable in gained.get(a.tensor, set()) for a in holders):
                found.add(variable)
        gained[one.name] = found
        if one is einsum:
            return [v.upper() for v in one.output.variables if v in found]
    return []


def _advice(spec: Spec, ranks: Ranks, machine: Machine) -> Iterator[Finding]:
    for einsum in spec.cascade.einsums:
        execution = spec.engines.get(einsum.name)
        if execution is None or einsum.name not in spec.loop_order:
            continue
        for rank in invariant(spec, einsum):
            group = ranks.group(einsum.name, rank)
            if group is not None and group.is_loop:
                node = spec.node(f"mapping.loop-order.{einsum.name}")
                yield finding("artificial-rank", node.place, node.path, einsum=einsum.name, rank=rank)
        if execution.instruction in TRANSFERS:
            yield from _rows(spec, ranks, einsum)


def _rows(spec: Spec, ranks: Ranks, einsum: Einsum) -> Iterator[Finding]:
    tensor = einsum.reads[0] if spec.engines[einsum.name].instruction == "Load" else einsum.name
    placed = spec.placements.get((tensor, einsum.name))
    chip = spec.placements.get((einsum.name if tensor != einsum.name else einsum.reads[0], einsum.name))
    if placed is None or chip is None:
        return
    node, consumed = spec.engines[einsum.name].node, set(spec.engines[einsum.name].ranks)
    row, beyond = 2 if spec.dtypes.get(tensor, "float32") != "float32" else 4, ""
    width = row
    for rank in reversed(placed.ranks):
        extent = extent_of(ranks, einsum.name, rank)
        if extent.value == 1:
            continue
        if rank in consumed and rank in chip.inner and extent.value is not None:
            row *= extent.value
            continue
        if rank in consumed and rank in chip.inner:
            return
        beyond = rank if rank in chip.inner else ""
        break
    if row == width:
        yield finding("element-rows", node.place, node.path, einsum=einsum.name, bytes=row)
    elif row < 2048 and beyond:
        yield finding("short-row", node.place, node.path, einsum=einsum.name, bytes=row, rank=beyond)
