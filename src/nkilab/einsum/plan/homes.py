"""Where results lie while a group runs: on chip as far as there is room, in PSUM, or in HBM."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import pairwise
from math import prod

from ..language.ast import Access, Einsum, Iterate, Kind, Scalar, plain
from ..rewrite.ranks import LEAST_FILLED
from ..tree.expr import name_of
from ..tree.nodes import PSUM
from .build import Span, point
from .choose import ROW_NS, SMALL_ROW_BYTES
from .context import Context
from .groups import Group, einsums_of, lane_of, state_of
from .knobs import MORE_BLOCKS, SMALLER_SHARES
from .product import is_batch, matmul_dtype, products_for
from .stage import stage, staged_bytes
from .storage import Storage
from .units import Units

# times as long as without it that a shared loop may move its operands
MUCH_MORE = 1.5
# part of the room on chip that results of a group may take
NEAR = 0.6
# bytes of a partition that a turn over rows moves of one tensor
ROW_BYTES = 8192
# a tensor that outlives its group stays on chip below this many bytes per partition
SMALL_BYTES = 40 * 1024
# part of SBUF that results may take which stay on chip whole, between loops over their tiles
RESIDENT = 0.42


class Homes:
    """Decides for one group after the other."""

    def __init__(self, ctx: Context, units: Units) -> None:
        self.ctx, self.units = ctx, units
        self.products: list[Einsum] = []
        self.later: set[str] = set()
        self.written: set[str] = set()

    def keep_resident(self, group: Group, outer: dict[str, Span]) -> dict[str, Storage]:
        """Inputs that several nests of a group read with the same indices: loaded once per turn."""
        ctx, found = self.ctx, {}
        # the partitions hold what a loop goes through in tiles, also where one tile of many rows has it all
        last, least = group.einsums[-1], 1 if outer else ctx.lanes // 2
        tiled = (v for v, b in ctx.blocks.items() if b > 1 and ctx.cascade.extent(v, last) >= least)
        tile = next(tiled, "")
        units = self.units.units(group.einsums)
        for tensor in {t: None for e in group.einsums for t in e.reads}:
            accesses = [
                (n, e, a)
                for n, u in enumerate(units) for e in u for a in e.accesses
                if a.tensor == tensor and not a.gathers
            ]  # fmt: skip
            forms = {str(a) for _, _, a in accesses}
            if ctx.chip(tensor) or tensor in {e.name for e in group.einsums} or len(forms) != 1 or not tile:
                continue
            _, einsum, access = accesses[0]
            is_plain = all(getattr(i, "plain", "") for i in access.indices)
            if len({n for n, _, _ in accesses}) < 2 or not is_plain:
                continue
            spans = ctx.spans(einsum, {v: s for v, s in outer.items() if v in einsum.variables})
            is_turned = not outer and access.axis_of(tile) == len(access.indices) - 1
            turns = {s.variable for s in group.steps if isinstance(s, Iterate)}
            if tile not in access.variables or is_turned or turns & {*access.variables}:
                continue
            summed = {v for _, e, _ in accesses for v in e.reduced if v in access.variables}
            is_summed = len(summed) == 1 and all(e in self.products for _, e, _ in accesses)
            part = summed.pop() if is_summed else tile
            size = staged_bytes(ctx, access, spans, part, ctx.dtypes[tensor])
            # a tile of fewer rows keeps partitions idle
            share = 0.4 if ctx.blocks[tile] >= ctx.lanes else 0.3
            if size * 2 <= ctx.room() * share:
                found[tensor] = stage(ctx, access, spans, part, ctx.dtypes[tensor])
                ctx.storages[tensor].insert(0, found[tensor])
        return found

    def release(self, group: Group, later: Container[str]) -> None:
        """Count what stays on chip between loops no more once none reads it."""
        ctx = self.ctx
        for name in {t for e in group.einsums for t in e.reads if t not in later} & ctx.resident:
            for tile in [s for s in ctx.storages.get(name, ()) if not s.is_hbm]:
                ctx.storages[name].remove(tile)
                ctx.build.scopes[0].bytes -= ctx.build.bytes_of(tile.buffer)
            ctx.resident.remove(name)

    def settle_homes(self, group: Group, is_trivial: bool, blocks: dict[str, int]) -> None:
        """Decide where results of a group lie: on chip as far as there is room, else in HBM."""
        ctx, reads = self.ctx, {t for e in group.einsums for t in e.reads}
        self.products, later = self.units.products_of(group), self.later
        sizes, wants = dict[str, int](), dict[int, str]()
        tiles = (v for v, b in blocks.items() if b > 1 and not (is_trivial and self.is_long(v, group)))
        tile = next(tiles, "")
        for einsum in reversed(group.einsums):
            wants[id(einsum)] = self.wanted(einsum, group, tile, wants)
        ended = self.ended(group)
        for einsum in group.einsums:
            name = einsum.name
            if self.narrow(einsum, group):
                ctx.chip_dtypes[name] = self.narrow(einsum, group)
            size = 0 if name in ended else self.tile_bytes(einsum, blocks)
            is_output = name in ctx.cascade.outputs
            is_small = size <= SMALL_BYTES and is_trivial
            is_outside = is_small or (name in later and self.is_resident(einsum, blocks, is_trivial))
            crosses = name in later and not (is_outside and name not in ctx.copied)
            if self.takes_place(einsum, group):
                ctx.overwritten[name] = einsum.reads[0]
                size = 0
            is_far = self.is_indexed_twice(name) or self.is_batched(einsum, group, blocks)
            kept_before = ctx.hbm(name) is not None and ctx.chip(name) is None
            home = "hbm" if is_output or crosses or kept_before or is_far else ""
            kept_before = kept_before and (name in self.written or not is_output)
            if not (kept_before or is_far) and (name in reads or (name in later and not crosses) or not home):
                home = "both" if home else "chip"
                # where a block finds its state it leaves it
                sizes[name] = size if ctx.chip(name) is None else 0
            ctx.homes[name] = "chip hbm" if home == "both" else home
            ctx.wanted[name] = wants[id(einsum)]
            ctx.served[name] = self.served(einsum, group)
            if name not in later and self.stays_in_psum(einsum, group, blocks):
                ctx.memories[name] = PSUM
        self.written |= {e.name for e in group.einsums}
        self.settle_room(group, sizes, is_trivial)
        inner = ctx.chip_dtypes.keys() - {*ctx.cascade.outputs}
        ctx.dtypes |= {n: ctx.chip_dtypes[n] for n in inner if ctx.homes[n] == "hbm" and not ctx.hbm(n)}

    def settle_room(self, group: Group, sizes: dict[str, int], is_trivial: bool) -> None:
        """Have what does not fit on chip, of results of so many bytes per partition, in HBM."""
        ctx, later = self.ctx, self.later
        lives, buffers = self.lives(group), 1 if is_trivial else 2
        # what one nest makes and reads in turns has no tile that outlives it; without turns rows may be few
        inner = {n for n in sizes if len(lives[n]) == 1 and n not in later and not is_trivial}
        sizes = {n: 0 if n in inner else size for n, size in sizes.items()}
        far = self.without_room(sizes, buffers, lives)
        ctx.homes |= dict.fromkeys(far, "hbm")
        near = {n: size for n, size in sizes.items() if n not in far}
        if sum(near[n] for n in _fullest(near, lives)) * buffers > ctx.room() * NEAR:
            ctx.build.single |= sizes.keys() - far

    def is_resident(self, einsum: Einsum, blocks: Mapping[str, int], is_trivial: bool) -> bool:
        """Whether a result of turns stays on chip whole, for what comes behind their loop."""
        ctx, name = self.ctx, einsum.name
        if name in ctx.resident:
            return True
        tiled = [v for v, block in blocks.items() if block % ctx.lanes == 0]
        readers = ctx.cascade.readers(name)
        accesses = [a for e in readers for a in e.accesses if a.tensor == name]
        is_plain = is_trivial or len(tiled) == len(blocks) == 1
        is_plain &= all(a.indices == einsum.output.indices for a in accesses)
        if not is_plain or any(e.is_contraction for e in readers) or name in {*ctx.copied, *ctx.viewed}:
            return False
        size = self.tile_bytes(einsum, {})
        taken = sum(self.tile_bytes(ctx.cascade.einsum(n), {}) for n in ctx.resident)
        if size + taken > ctx.budget * RESIDENT or einsum.recurrence is not None:
            return False
        what, ways = f"where {name} lies between loops", ("on chip", "in HBM")
        ctx.resident |= {name} if ctx.pick(what, ways, costs=(1.0, 1.0)) == ways[0] else set()
        return name in ctx.resident

    def is_indexed_twice(self, name: str) -> bool:
        """Whether two variables index an axis together and one reads it: it goes by way of HBM."""
        origin = self.ctx.cascade.derived.get(name)
        is_made_for_one = origin is not None and origin.kind in (Kind.REPEATED, Kind.PARTS)
        einsum, every = self.ctx.cascade.einsum(name), self.ctx.cascade.einsums
        is_written = all(len(i.variables) > 1 for i in einsum.output.indices) and not einsum.reduced
        read = (i for e in every for a in e.accesses if a.tensor == name for i in a.indices)
        is_read = is_written and any(i.plain for i in read)
        return is_made_for_one or is_read or name in self.ctx.viewed

    def is_batched(self, einsum: Einsum, group: Group, blocks: Mapping[str, int]) -> bool:
        """Whether products, one for each row of a tile, read a result out of HBM, where rows lie apart."""
        if einsum in self.products or not einsum.output.variables:
            return False
        tiles = {v for v, block in blocks.items() if block > 1}
        readers = (e for e in group.einsums if e in self.products and einsum.name in e.reads)
        if not any(tiles.intersection(*(a.variables for a in e.every_access)) for e in readers):
            return False
        return self.ctx.pick(f"where {einsum.name} lies", ("chip", "hbm"), costs=(1.0, 1.0)) == "hbm"

    def ended(self, group: Group) -> set[str]:
        """Products that the cluster behind them reads out of PSUM."""
        units = self.units.units([s for s in group.steps if isinstance(s, Einsum)])
        ended = [u[0] for u, v in pairwise(units) if self.units.ending(u, v)]
        ways = ((e, p) for e in ended for p in products_for(self.ctx, e, {})[:1])
        batched = {e.name for e, p in ways if any(is_batch(self.ctx, e, p.part, p.free, v) for v in p.outer)}
        return {e.name for e in ended} - batched

    def takes_place(self, einsum: Einsum, group: Group) -> bool:
        """Whether an Einsum only compares indices, and may leave its values where its operand lies."""
        if einsum.condition is None or einsum.map_op or einsum.reduce_op or len(einsum.accesses) != 1:
            return False
        (first,) = einsum.accesses
        made = [e for e in group.einsums if e.name == first.tensor]
        is_inner = first.tensor not in {*self.ctx.cascade.outputs, *self.later}
        is_alone = self.ctx.cascade.readers(first.tensor) == [einsum]
        is_same = [e.output.indices for e in made] == [first.indices] == [einsum.output.indices]
        is_plain = all(isinstance(s, Einsum) for s in group.steps)
        # products come out of PSUM; where other sums lie nothing else writes
        is_plain = is_plain and all(not e.reduce_op or e in self.products for e in made)
        return is_inner and is_alone and is_same and is_plain and not self.narrow(einsum, group)

    def lives(self, group: Group) -> dict[str, range]:
        """The nests, by number, in which results are there; what turns find, in all of theirs."""
        units, nests = self.units.nests(group.einsums), dict[str, list[int]]()
        for n, unit in enumerate(units):
            for name in {t for e in unit for t in (e.name, *e.reads)}:
                nests.setdefault(name, []).append(n)
        for block in (s for s in group.steps if isinstance(s, Iterate)):
            turning = [n for n, u in enumerate(units) if self.units.turns.get(id(u[0])) == block.variable]
            for name in state_of(block):
                nests[name] = sorted((*nests[name], *turning))
        for name in {*self.later, *self.ctx.cascade.outputs} & nests.keys():
            nests[name].append(len(units) - 1)
        return {e.name: range(nests[e.name][0], nests[e.name][-1] + 1) for e in group.einsums}

    def without_room(self, sizes: dict[str, int], buffers: int, lives: Mapping[str, range]) -> list[str]:
        """Tensors, the largest first, that go to HBM so that those that are there at once fit."""
        near, far, most = dict(sizes), list[str](), self.ctx.room() * NEAR
        crowd = _fullest(near, lives)
        buffers = buffers if sum(near[n] for n in crowd) * buffers <= most else 1
        while crowd and sum(near[n] for n in crowd) * buffers > most:
            largest = max(crowd, key=lambda n: near[n])
            if near.pop(largest) <= 2048:
                break
            far.append(largest)
            crowd = _fullest(near, lives)
        return far

    def tiled_by(
        self, group: Group, shared: Sequence[str], products: Sequence[Einsum], single: Mapping[str, int]
    ) -> str:
        """The variable over whose tiles a group shares a loop; "" for none, where that moves far less."""
        ctx, last = self.ctx, group.einsums[-1]
        if not products:  # what fills the partitions comes first
            least = ctx.lanes * LEAST_FILLED
            full = {v for v in last.output.variables if ctx.cascade.extent(v, last) >= least}
            shared = sorted(shared, key=lambda v: v not in full or bool(group.totals([v])))
        blocks = {v: self.group_block(group, v, ctx.cascade.extent(v, last), products) for v in shared}
        # what is gathered waits for those that issue transfers, whatever else is computed
        is_gathered = any(a.gathers for e in group.einsums for a in e.accesses)
        computed = 0.0 if is_gathered else sum(self.units.cost_ns(e, {}) for e in products)
        options = [*shared, ""]
        moved = (self.moved_ns(group, products, v, {**single, v: blocks.get(v, 1)}) for v in options)
        costs = [max(computed, ns) for ns in moved] if products else []
        # a tile of columns cuts instructions of sums short, which is to save something
        ends = {a.indices[-1].plain for e in products for a in e.accesses if a.indices[1:]}
        is_cut = options[0] in ends and not any(e.is_contraction for e in products)
        if costs and costs[-1] * (1.0 if is_cut else MUCH_MORE) <= costs[0]:
            options, costs = [*options[-1:], *options[:-1]], [*costs[-1:], *costs[:-1]]
        if not products and self.are_short_turns(group, options[0], blocks):
            options = [*options[-1:], *options[:-1]]
        names = ", ".join(dict.fromkeys(e.name for e in group.einsums))
        return ctx.pick(f"the loop over tiles that {names} share", options, costs=costs)

    def are_short_turns(self, group: Group, variable: str, blocks: Mapping[str, int]) -> bool:
        """Whether turns of few columns would run again for each tile of a variable."""
        blocked, extent = [s for s in group.steps if isinstance(s, Iterate)], self.ctx.cascade.extent
        turns, body = {s.variable for s in blocked}, {e.name: e for s in blocked for e in s.body}
        own = [e for e in body.values() if not turns & {*e.output.variables}]
        is_cut = any(variable in e.variables and extent(variable, e) > blocks[variable] for e in own)
        columns = max((self.tile_bytes(e, blocks) // 4 for e in own), default=0)
        size = sum(self.tile_bytes(e, {}) for e in body.values())
        return is_cut and columns < self.ctx.bank and size <= self.ctx.room() * NEAR

    def group_block(self, group: Group, variable: str, extent: int, products: Sequence[Einsum]) -> int:
        """Elements of a group's tile: more than one block of partitions where TensorE has something to gain.

        Several blocks overlap in time, and operands that do not stay on chip are read less often.
        """
        ctx, most = self.ctx, 2 if products else 1
        again = {a.tensor for e in products for a in e.accesses if variable not in a.variables}
        read = again.intersection(ctx.cascade.inputs)
        sizes = (prod(ctx.cascade.shape(t)) // ctx.lanes * ctx.bytes_of(ctx.dtypes[t]) for t in read)
        inputs = {a for e in products for a in e.accesses if a.tensor in ctx.cascade.inputs}
        ends = {ctx.bytes_of(ctx.dtypes[a.tensor]) for a in inputs if a.indices[-1:] == plain((variable,))}
        # of elements of one byte, transfers have rows as long as of two
        if any(size > ctx.room() * 0.4 for size in sizes) or 1 in ends:
            most = 4
        most = ctx.knobs.group_blocks or most
        possible = [ctx.lanes]
        for block in (ctx.lanes * factor for factor in (2, 4, 8) if extent % (ctx.lanes * factor) == 0):
            size = sum({e.name: self.tile_bytes(e, {variable: block}) for e in group.einsums}.values())
            possible += [block] * (extent > block and size * 2 <= ctx.room() * NEAR)
        ctx.is_larger |= any(most * ctx.lanes < block <= MORE_BLOCKS * ctx.lanes for block in possible)
        return max(block for block in possible if block <= most * ctx.lanes)

    def moved_ns(
        self, group: Group, products: Sequence[Einsum], variable: str, blocks: Mapping[str, int]
    ) -> float:
        """Time of the transfers of a group in tiles of a variable, "" for none, of that many elements."""
        ctx, last, moved = self.ctx, group.einsums[-1], 0.0
        turns = -(-ctx.cascade.extent(variable, last) // blocks[variable]) if variable else 1
        operands = {a.tensor: a for e in products for a in e.accesses if a.tensor in ctx.cascade.inputs}
        for tensor, access in operands.items():
            size = prod(ctx.cascade.shape(tensor)) * ctx.bytes_of(ctx.dtypes[tensor])
            is_near = variable in access.variables or size <= ctx.lanes * ctx.room() * 0.4
            moved += size * (1 if is_near else turns)
        units = self.units.units(group.einsums)
        read = {t for u in units for e in u for t in e.reads if t not in {o.name for o in u}}
        sizes = {e.name: self.tile_bytes(e, blocks) for e in group.einsums if e.name in read}
        far = self.without_room(sizes, 2 if variable else 1, self.lives(group))
        moved += sum(prod(ctx.cascade.shape(n)) * 4 * 2 for n in far)
        gathered_ns = sum(self.gathered_ns(e, variable, blocks[variable]) for e in group.einsums)
        return moved / float(ctx.machine["hbm_bytes_per_ns"]) + gathered_ns

    def gathered_ns(self, einsum: Einsum, variable: str, block: int) -> float:
        """What tiles of a variable, which cut rows short, have gathers cost besides moving bytes."""
        ctx, cost = self.ctx, 0.0
        for access in (a for a in einsum.accesses if a.gathers):
            extents = {v: ctx.cascade.extent(v, einsum) for v in access.variables}
            row = {**extents, "": 1, variable: block}[access.indices[-1].plain]
            rows, size = prod(extents.values()) / row, row * ctx.bytes_of(ctx.dtypes[access.tensor])
            cost += rows / ctx.lanes * ctx.machine["dma_issue_ns"] + rows * ROW_NS * (size < SMALL_ROW_BYTES)
        return cost

    def readers(self, tensor: str) -> Iterator[Einsum]:
        """The Einsums that read a tensor, a view of it, or a copy in another order."""
        derived, same = self.ctx.cascade.derived, (Kind.VIEW, Kind.OVERLAP, Kind.TRANSPOSED)
        for e in (e for e in self.ctx.cascade.einsums if tensor in e.reads):
            yield from self.readers(e.name) if (d := derived.get(e.name)) and d.kind in same else (e,)

    def narrow(self, einsum: Einsum, group: Group) -> str:
        """The type in which TensorE alone reads a result, sums apart; "" if others read it too."""
        readers = list(self.readers(einsum.name))
        is_product = {id(e): e in self.products if e in group.einsums else e.is_contraction for e in readers}
        products = [e for e in readers if is_product[id(e)] and len(set(map(str, e.accesses))) > 1]
        if any(e.map_op or e.reduce_op != "add" for e in readers if e not in products):
            return ""
        types = {matmul_dtype(self.ctx, *e.accesses) for e in products}
        return types.pop() if len(types) == 1 and "float32" not in types else ""

    def stays_in_psum(self, einsum: Einsum, group: Group, blocks: dict[str, int]) -> bool:
        """Whether vector and scalar instructions alone read a product, tile by tile of at most one bank."""
        ctx = self.ctx
        if ctx.homes[einsum.name] != "chip" or einsum not in self.products:
            return False
        if any(isinstance(o, Scalar) for o in einsum.operands) or einsum.name in self.later:
            return False
        extents = []
        for extent, index in zip(ctx.cascade.shape(einsum.name), einsum.output.indices, strict=True):
            block = min(extent, blocks.get(index.plain, extent))
            extents.append(min(block, ctx.lanes) if block < extent and block % ctx.lanes == 0 else block)
        wide = sorted(e for e in extents if e > 1)
        if len(wide) > 2 or (wide and (wide[0] > ctx.lanes or wide[-1] > self.ctx.bank)):
            return False
        homes = next(s for s in group.steps if einsum in einsums_of([s]))
        inside = homes.body if isinstance(homes, Iterate) else tuple(group.einsums)
        readers = [e for e in group.einsums if einsum.name in e.reads]
        if any(r not in inside or r in self.products or r.condition for r in readers):
            return False
        is_state = isinstance(homes, Iterate) and einsum.name in state_of(homes)
        return not is_state and sum(e.name == einsum.name for e in group.einsums) == 1

    def bar(self, group: Group) -> None:
        """Note axes of results that cannot lie on partitions: no variable alone indexes them."""
        for einsum in group.einsums:
            for access in einsum.accesses:
                axes = {a for a, i in enumerate(access.indices) if not i.plain and i.variables}
                self.ctx.barred.setdefault(access.tensor, set()).update(axes)
        for unit in self.units.units(group.einsums):
            self.bar_beside_scans(unit)

    def bar_beside_scans(self, unit: Sequence[Einsum]) -> None:
        """Note axes of what scans read that do not run along their columns, nor along their widest lanes."""
        along = {v for e in unit for v in e.along}
        lanes = {v: self.ctx.cascade.extent(v, e) for e in unit for v in e.output.variables if v not in along}
        most = self.ctx.lanes  # of variables that fill all of them, the first has the longest rows
        lanes = {v: min(n, most) for v, n in lanes.items() if not any(v in e.reduced for e in unit)}
        fitting = {*along, max(lanes, key=lambda v: lanes[v], default="")}
        # what a scan begins with is a number of a lane, and comes from anywhere
        read = (o for e in unit if along for o in (e.operands[:2] if e.recurrence else e.operands))
        for access in (o for o in read if isinstance(o, Access)):
            axes = {n for n, i in enumerate(access.indices) if not fitting.issuperset(i.variables)}
            self.ctx.avoided.setdefault(access.tensor, set()).update(axes)

    def bar_turns(self) -> None:
        """Note axes of which turns of a block write, or read of many rows, one: none begins with each row.

        Nor does one along which a state of turns is read at other places, or goes on in order.
        """
        cascade = self.ctx.cascade
        written = {e.name for block in cascade.blocks for e in block.body}
        for access, einsum, block in ((a, e, b) for e, b in cascade.walk() for a in e.every_access):
            barred, axes = set[int](), [*enumerate(access.indices)]
            if access.tensor in written:
                along = {*einsum.along}
                barred = {a for a, i in axes if i.variables and (not i.plain or along & {*i.variables})}
            if block is not None:
                least = 0 if any(e.name == access.tensor for e in block.body) else self.ctx.lanes
                shape, turn = cascade.shape(access.tensor), block.variable
                own = ((a, i) for a, i in axes if turn in i.variables)
                barred |= {a for a, i in own if shape[a] > least or len(i.variables) > 1}
            self.ctx.barred.setdefault(access.tensor, set()).update(barred)

    def tile_bytes(self, einsum: Einsum, blocks: Mapping[str, int]) -> int:
        """Bytes per partition of what a group holds of a tensor."""
        shape = self.ctx.cascade.shape(einsum.name)
        size = self.ctx.bytes_of(self.ctx.chip_dtypes.get(einsum.name, "float32"))
        extents = [min(e, blocks.get(i.plain, e)) for e, i in zip(shape, einsum.output.indices, strict=True)]
        # where nothing that supposes the largest axis on the partitions fits, any may be there
        side = (max if self.ctx.knobs.share > SMALLER_SHARES[-1] else min)(extents, default=1)
        return prod(extents) // side * -(-side // self.ctx.lanes) * size

    def is_long(self, variable: str, group: Group) -> bool:
        """Whether a result with all of a variable on the partitions has no room on chip."""
        cascade, own = self.ctx.cascade, [e for e in group.einsums if variable in e.output.variables]
        rows = (prod(cascade.shape(e.name)) // min(cascade.extent(variable, e), self.ctx.lanes) for e in own)
        return max(rows, default=0) * self.ctx.bytes_of("float32") > self.ctx.room() * NEAR

    def wanted(self, einsum: Einsum, group: Group, tile: str, wants: Mapping[int, str]) -> str:
        """The variable that the first reader of a tensor wants on the partitions; "" if none cares.

        Who reads it element by element wants what its own readers do, which `wants` has.
        """
        if (lane := lane_of(einsum, self.ctx.cascade)) is not None:
            return lane
        reads = [(r, a) for r in group.einsums for a in r.accesses if a.tensor == einsum.name]
        far = [e for e in self.ctx.cascade.einsums if not reads and e.is_contraction]
        reads += [(r, a) for r in far for a in r.accesses if a.tensor == einsum.name]
        for n, (reader, access) in enumerate(reads):
            if reader in self.products or reader in far:
                sums = [p.over for p in products_for(self.ctx, reader, {})[:1]]
                axes = (access.axis_of(v) for v in (*sums, *reader.reduced) if v in access.variables)
                return next((einsum.output.indices[n].plain for n in axes if n is not None), "")
            if tile in access.variables and not n:
                return tile
            if id(reader) in wants and reader.output.indices == access.indices:
                return wants[id(reader)]
        return ""

    def served(self, einsum: Einsum, group: Group) -> tuple[frozenset[str], float]:
        """Variables with which on the partitions TensorE can read a result, and what VectorE takes else."""
        held, lost_ns = frozenset[str](einsum.output.variables), 0.0
        for reader in (r for r in group.einsums if r in self.products):
            for access in (a for a in reader.accesses if a.tensor == einsum.name):
                pairs = zip(access.indices, einsum.output.indices, strict=True)
                names = {mine.plain: made.plain for mine, made in pairs}
                ways = products_for(self.ctx, reader, {})[:1]
                held &= {names[v] for p in ways for v in (p.over, p.part, p.free) if v in names}
                points = prod(self.ctx.cascade.extent(v, reader) for v in reader.variables)
                lost_ns += points / self.ctx.lanes / self.ctx.machine["vector_clock_ghz"]
        return held, lost_ns

    def apart(self, group: Group, batch: Sequence[str], single: Sequence[str]) -> list[str]:
        """Variables of a batch to take one value at a time, so that what turns of a block use is on chip."""
        taken, has_turns = list[str](), any(isinstance(s, Iterate) for s in group.steps)
        inner = [e for e in group.einsums if e.name not in self.ctx.cascade.outputs]
        for variable in sorted(batch, key=lambda v: self.ctx.cascade.extent(v, group.einsums[-1])):
            sizes = {e.name: self.tile_bytes(e, dict.fromkeys((*single, *taken), 1)) for e in inner}
            if has_turns and self.without_room(sizes, 1, self.lives(group)):
                taken.append(variable)
        return taken

    def rows_apart(self, group: Group, shared: Sequence[str]) -> list[tuple[str, int, int]]:
        """A loop over rows of the same partition, so that some are moved while others are computed."""
        ctx, last = self.ctx, group.einsums[-1]
        for variable in shared[:1]:
            extent = ctx.cascade.extent(variable, last)
            tensors = {a.tensor: a for e in group.einsums for a in e.every_access}
            own = [t for t, a in tensors.items() if variable in a.variables]
            sizes = (prod(ctx.cascade.shape(t)) * ctx.bytes_of(ctx.dtypes[t]) // ctx.lanes for t in own)
            most = max(sizes, default=0)
            fits = [d for d in range(1, extent) if extent % d == 0 and most * d <= ROW_BYTES * extent]
            if extent > 1 and most > ROW_BYTES:
                return [(variable, extent, [1, *fits][-1])]
        return []

    def by_value(self, group: Group, shared: Sequence[str]) -> str:
        """A shared variable one value at a time of which results fit on chip that whole tiles do not; ""."""
        ctx = self.ctx
        between = [e for e in group.einsums if any(e.name in o.reads for o in group.einsums)]
        if any(isinstance(s, Iterate) for s in group.steps):
            return ""
        for variable in shared:
            tiled, single = (
                max((self.tile_bytes(e, {variable: b}) for e in between), default=0) for b in (ctx.lanes, 1)
            )
            is_needed = single * 4 <= ctx.room() * 0.6 < tiled * 2
            if is_needed and self.is_as_fast(group, variable):
                names = ", ".join(dict.fromkeys(e.name for e in group.einsums))
                return ctx.pick(f"single values around {names}", (variable, ""), costs=(1.0, 1.0))
        return ""

    def is_as_fast(self, group: Group, variable: str) -> bool:
        """Whether Einsums take about as long with one value of a variable after the other."""
        extent = self.ctx.cascade.extent(variable, group.einsums[-1])
        one = {variable: point(name_of(variable))}
        whole = sum(self.units.cost_ns(e, {}) for e in group.einsums)
        single = sum(self.units.cost_ns(e, one if variable in e.variables else {}) for e in group.einsums)
        return single * extent <= 2 * whole


def _fullest(sizes: Mapping[str, int], lives: Mapping[str, range]) -> list[str]:
    """The results that are there while most bytes are."""
    nests = range(max((lives[n].stop for n in sizes), default=0))
    crowds = ([n for n in sizes if nest in lives[n]] for nest in nests)
    return max(crowds, key=lambda crowd: sum(sizes[n] for n in crowd), default=[])
