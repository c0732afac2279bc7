"""A partial mapping made whole by rules: what is given stays as it is, the rest is chosen to go with it."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ...machine import Machine
from ...tiles.dtypes import as_dtype
from ..language.ast import Einsum
from ..language.nodes import Node
from ..language.spec import Execution, Fusion, Placement, Spec
from ..tree.expr import expr
from ..written.ranks import Ranks
from .expand import PRODUCT, Piece, Pieces, expanded, types_of_pieces
from .fuse import Member, Nest, fused
from .layouts import Digit
from .orders import Orders

ENGINE_OF = {
    "Load": "DMAEngine", "Store": "DMAEngine", "BroadcastTo": "DMAEngine", "MatVec": "TensorEngine",
    "Transpose": "TensorEngine", "Activation": "ScalarEngine",
}  # fmt: skip
# of SBUF, what tiles that live at once may fill: loads overlap with work by a second buffer
SHARE = 0.4


def is_whole(spec: Spec) -> bool:
    """Whether a mapping says everything: loops, instructions and layouts of every Einsum."""
    held = spec.cascade.einsums
    return all(
        e.name in spec.loop_order
        and e.name in spec.engines
        and all((t, e.name) in spec.placements for t in (e.name, *e.reads))
        for e in held
    ) and bool(spec.fusion or len(held) == 1 or not any(p.unbound for p in spec.placements.values()))


def completed(spec: Spec, machine: Machine) -> tuple[Spec, tuple[str, ...]]:
    """A specification with a whole mapping, and notes on what was added.

    Raises:
        UnsupportedError: if an Einsum has a form that no instruction of a mapping computes.
    """
    if is_whole(spec):
        return spec, ()
    return _Completion(spec, machine).spec()


def node_for(einsum: Einsum, path: str) -> Node:
    """A node of what was added, at the Einsum that it was added for."""
    return Node(None, f"{path} (completed)", einsum.place)


class _Completion:
    def __init__(self, spec: Spec, machine: Machine) -> None:
        self.given, self.machine = spec, machine
        self.pieces: Pieces = expanded(spec)
        self.types = types_of_pieces(self.pieces, spec.dtypes)
        self.by_rule = Orders(spec, machine, self.pieces)
        self.digit, self.all_ranks, self.parts = (
            self.by_rule.digit,
            self.by_rule.all_ranks,
            self.by_rule.parts,
        )
        self.count, self.partition_of = self.by_rule.count, self.by_rule.partition_of
        self.splits, self.placed = self.by_rule.splits, self.by_rule.placed
        self.orders, self.consumed = self.by_rule.orders, self.by_rule.consumed
        self.groups: list[list[Member]] = []

    @property
    def ranks(self) -> Ranks:
        """Extents and parts of ranks."""
        return self.by_rule.ranks

    def spec(self) -> tuple[Spec, tuple[str, ...]]:
        self.share()
        self.depths = {p.name: self.chain(p) for p in self.pieces.pieces if self.is_free_load(p)}
        self.fit()
        for piece in self.pieces.pieces:
            if piece.name in self.depths and (spread := self.spread_of(piece)) is not None:
                known = len(self.nests[spread.name].loops) if spread.name in self.nests else 0
                self.depths[piece.name] = self.depths.get(spread.name, known)
        return self.whole(self.by_rule.held), self.notes()

    def is_free_load(self, piece: Piece) -> bool:
        """Whether the loops of a load are free to choose: nothing is given for it."""
        if piece.instruction not in ("Load", "BroadcastTo"):
            return False
        given = piece.home in self.given.loop_order and piece.is_given
        return not given and not any(e == piece.name or t == piece.name for t, e in self.placed)

    def share(self) -> None:
        """Groups: those given, and where none is given as many as nothing forbids."""
        written = {
            (self.pieces.main.get(e, e), r): number
            for number, g in enumerate(g for f in self.given.fusion for g in f.groups)
            for e, r in g
        }
        nests = []
        for piece in self.pieces.pieces:
            if self.is_free_load(piece):
                continue
            reduced = {r for v in piece.einsum.reduced for r in self.parts(piece, v)}
            loops = [
                (r, self.digit(piece.name, r)) for r in self.orders[piece.name]
                if r not in self.consumed[piece.name]
                or ((piece.name, r) in written and self.is_shared(piece, r))
            ]  # fmt: skip
            nests.append(Nest(piece.name, self.read_through(piece), loops, reduced))
        homes = {p.name: p for p in self.pieces.pieces}

        def may_share(first: Member, second: Member) -> bool:
            held = written.get(first), written.get(second)
            if not self.given.fusion or not all(homes[m[0]].is_given for m in (first, second)):
                return self.is_bound_alike(first, second)
            return held[0] is not None and held[0] == held[1]

        self.groups = fused(nests, may_share)
        self.nests = {n.name: n for n in nests}
        for group in (g for f in self.given.fusion for g in f.groups):
            members = [(self.pieces.main.get(e, e), r) for e, r in group]
            if not any(m in g for g in self.groups for m in members):
                self.groups.append(members)

    def read_through(self, piece: Piece) -> tuple[str, ...]:
        """What a piece reads, and what is loaded for it."""
        found = list(piece.einsum.reads)
        for tensor in found:
            maker = self.pieces.piece(tensor)
            if maker is not None and self.is_free_load(maker):
                found += maker.einsum.reads
        return tuple(dict.fromkeys(found))

    def is_shared(self, piece: Piece, rank: str) -> bool:
        return any((piece.home, rank) in g and len(g) > 1 for f in self.given.fusion for g in f.groups)

    def is_bound_alike(self, first: Member, second: Member) -> bool:
        """Whether tiles that both see are given as living inside this loop, where tiles are given."""
        made, read = self.placed.get((first[0], first[0])), self.placed.get((first[0], second[0]))
        if made is None or read is None or read.component == "HBM":
            return True
        return second[1] in read.unbound and first[1] in made.unbound

    def group_of(self, einsum: str, rank: str) -> list[Member] | None:
        return next((g for g in self.groups if (einsum, rank) in g), None)

    def path(self, name: str) -> list[list[Member]]:
        """The groups around an Einsum, the outermost first; a loop of its own is a group of one."""
        found = []
        for rank, _ in self.nests[name].loops:
            found.append(self.group_of(name, rank) or [(name, rank)])
        return found

    def spread_of(self, load: Piece) -> Piece | None:
        """The broadcast that a row is loaded for."""
        readers = self.pieces.readers(load.name)
        return readers[0] if len(readers) == 1 and readers[0].instruction == "BroadcastTo" else None

    def full_chain(self, load: Piece) -> list[list[Member]]:
        """Loops of what reads a load, which it could run in."""
        readers = self.pieces.readers(load.name)
        while len(readers) == 1 and self.is_free_load(readers[0]):
            readers = self.pieces.readers(readers[0].name)
        common = []
        for level in zip(*[self.path(r.name) for r in readers]):
            if any(g != level[0] for g in level):
                break
            common.append(level[0])
        return common

    def chain(self, load: Piece) -> int:
        """How many of them run over ranks that it has."""
        own = [self.digit(load.name, r) for r in self.all_ranks(load, load.einsum.output.variables)]
        for depth, group in enumerate(self.full_chain(load)):
            if self.digit(*group[0]) not in own:
                return depth
        return len(self.full_chain(load))

    def fit(self) -> None:
        """Let loads follow more loops of their readers until their tiles fit."""
        budget = int(self.machine["sbuf_bytes_per_partition"] * SHARE)
        loads = [p for p in self.pieces.pieces if p.name in self.depths and self.spread_of(p) is None]
        while True:
            sizes = {p.name: self.load_bytes(p) for p in loads}
            rest = sum(self.tile_bytes(p) for p in self.pieces.pieces if p.name not in self.depths)
            if any(s is None for s in sizes.values()) or rest + sum(s or 0 for s in sizes.values()) <= budget:
                return
            deeper = [p for p in loads if self.depths[p.name] < len(self.full_chain(p))]
            if not deeper:
                return
            worst = max(deeper, key=lambda p: sizes[p.name] or 0)
            self.depths[worst.name] += 1

    def load_bytes(self, load: Piece) -> int | None:
        outer = self.outer_digits(load)
        part = self.partition_of(load.name, load)
        free = [r for r in self.all_ranks(load, load.einsum.output.variables)
                if self.digit(load.name, r) not in outer and r not in part]  # fmt: skip
        counts = [self.count(load.name, r) for r in free]
        if any(c is None for c in counts):
            return None
        return prod(c or 1 for c in counts) * as_dtype(self.types[load.name]).storage.itemsize

    def outer_digits(self, load: Piece) -> list[Digit]:
        chain = self.full_chain(load)[: self.depths[load.name]]
        return [self.digit(*group[0]) for group in chain]

    def tile_bytes(self, piece: Piece) -> int:
        """Bytes of a computed tile, 0 where they are not known."""
        if piece.instruction in ("Store", PRODUCT):
            return 0
        depth = self.shared_depth(piece)
        outer = [self.digit(piece.name, r) for r, _ in self.nests[piece.name].loops[:depth]]
        part = self.partition_of(piece.name, piece)
        free = [r for r in self.all_ranks(piece, piece.einsum.output.variables)
                if self.digit(piece.name, r) not in outer and r not in part]  # fmt: skip
        counts = [self.count(piece.name, r) or 0 for r in free]
        return prod(counts) * as_dtype(self.types[piece.name]).storage.itemsize

    def shared_depth(self, piece: Piece) -> int:
        """How many of its outermost loops a piece shares with all that read its result."""
        own = self.path(piece.name)
        depth = len(own)
        for reader in self.pieces.readers(piece.name):
            theirs = self.path(reader.name)
            same = 0
            while same < min(len(own), len(theirs)) and own[same] == theirs[same] and len(own[same]) > 1:
                same += 1
            depth = min(depth, same)
        reduced = self.nests[piece.name].reduced
        first = next((n for n, (r, _) in enumerate(self.nests[piece.name].loops) if r in reduced), depth)
        return min(depth, first)

    def in_terms_of(self, einsum: str, variables: tuple[str, ...], digits: list[Digit]) -> list[str]:
        """Ranks of an Einsum that cover digits, in their order."""
        found = []
        ranks = [r for v in variables for r in self.ranks.names_after(einsum, v.upper())]
        for wanted in digits:
            held = [(r, self.digit(einsum, r)) for r in ranks]
            inside = [
                (r, d) for r, d in held
                if d.base == wanted.base and d.stride >= wanted.stride
                and (d == wanted or (expr(wanted.extent).value is not None and wanted.spans(d.stride)))
            ]  # fmt: skip
            found += [r for r, d in sorted(inside, key=lambda p: -p[1].stride) if r not in found]
        return found

    def place(self, tensor: str, einsum: str) -> Placement:
        """Where a tensor lies as an Einsum sees it: as given, as others see it, or by rule."""
        if (tensor, einsum) in self.placed:
            return self.placed[tensor, einsum]
        piece = self.pieces.piece(einsum)
        assert piece is not None
        node = node_for(piece.einsum, "binding.tensor")
        access = next(a for a in (piece.einsum.output, *piece.einsum.accesses) if a.tensor == tensor)
        maker = self.pieces.piece(tensor)
        is_made = tensor == einsum
        constructor = ("zeros" if piece.instruction == "LoopReduce" else "empty") if is_made else ""
        if maker is None or maker.instruction == "Store":
            ranks = [r for v in access.variables for r in self.parts(piece, v)]
            order = self.given.rank_order.get(tensor, {}).get(piece.home)
            is_plain = order is None and not self.is_cut_alike(tensor)
            if order is not None:
                ranks = list(order)
            return Placement(
                tensor, einsum, "HBM", constructor, (), tuple(ranks[:-1]), tuple(ranks[-1:]), node, is_plain
            )
        if not is_made:
            made = self.place(tensor, tensor)
            return self.seen_by(made, piece, access.variables, node)
        reader = next(
            (
                self.placed[tensor, r.name]
                for r in self.pieces.readers(tensor)
                if (tensor, r.name) in self.placed
            ),
            None,
        )
        if reader is not None:
            seen = self.seen_by(reader, piece, access.variables, node)
            return replace(seen, constructor=constructor)
        component = "PSUM" if piece.instruction == PRODUCT else "SBUF"
        unbound = self.lives_in(piece)
        part = tuple(r for r in self.partition_of(einsum, piece) if r not in unbound)
        free = [r for r in self.all_ranks(piece, access.variables) if r not in unbound and r not in part]
        return Placement(tensor, einsum, component, constructor, tuple(unbound), part, tuple(free), node)

    def is_cut_alike(self, tensor: str) -> bool:
        """Whether all that move a tensor split its ranks in one way, without a rest."""
        if tensor in self.given.plain:
            return False
        movers = [p for p in self.pieces.pieces if tensor in (p.name, *p.einsum.reads)]
        ranks = self.pieces.tensors[tensor].ranks
        accesses = [a for p in movers for a in (p.einsum.output, *p.einsum.accesses) if a.tensor == tensor]
        if any(tuple(v.upper() for v in a.variables) != ranks for a in accesses):
            return False
        if all(self.given.cascade.sizes.get(r) == 1 for r in ranks):
            return False
        # several parts of a rank on the partitions are one axis of what is moved
        if any(len(self.partition_of(p.name, p, p.part or p.source_part)) > 1 for p in movers):
            return False
        first, *others = [{r: self.splits[p.name].get(r) for r in ranks} for p in movers]
        return all(o == first for o in others)

    def lives_in(self, piece: Piece) -> list[str]:
        """Loops inside which the result of a piece lives."""
        if piece.name in self.depths:
            chain = self.full_chain(piece)[: self.depths[piece.name]]
            assert all(chain)
            return [self.rank_in(piece, group) for group in chain]
        return [r for r, _ in self.nests[piece.name].loops[: self.shared_depth(piece)]]

    def rank_in(self, piece: Piece, group: list[Member]) -> str:
        """The rank under which a load runs in a loop: its own, or the reader's if it has none."""
        name, rank = group[0]
        wanted = self.digit(name, rank)
        own = [
            r
            for r in self.all_ranks(piece, piece.einsum.output.variables)
            if self.digit(piece.name, r) == wanted
        ]
        # parts of one element are alike: the one of the same name
        return rank if rank in own or not own else own[0]

    def seen_by(self, made: Placement, piece: Piece, variables: tuple[str, ...], node: Node) -> Placement:
        """The same layout in the ranks of another Einsum."""

        def turned(ranks: tuple[str, ...]) -> tuple[str, ...]:
            digits = [self.digit(made.einsum, r) for r in ranks]
            return tuple(self.in_terms_of(piece.name, variables, digits))

        unbound = []
        for rank in made.unbound:
            group = self.group_of(made.einsum, rank)
            member = next((r for e, r in group or [] if e == piece.name), "")
            unbound.append(member or next(iter(turned((rank,))), rank))
        return Placement(
            made.tensor, piece.name, made.component, "", tuple(unbound), turned(made.outer),
            turned(made.inner), node,
        )  # fmt: skip

    def whole(self, held: Spec) -> Spec:
        splits = {e: dict(s) for e, s in self.splits.items()}
        for piece in self.pieces.pieces:
            if piece.name in self.depths:
                self.follow(piece, splits)
        self.pieces.pieces = self.in_order()
        added = frozenset(
            p.name for p in self.pieces.pieces if p.name not in self.given.cascade.tensors or not p.is_given
        )
        held = replace(held, partitioning=splits, cascade=self.pieces.cascade(), added=added)
        self.by_rule.ranks = Ranks(held)
        engines = {p.name: self.execution(p) for p in self.pieces.pieces}
        for piece in self.pieces.pieces:
            for tensor in (piece.name, *piece.einsum.reads):
                self.placed[tensor, piece.name] = self.place(tensor, piece.name)
        root = (
            self.given.fusion[0].node
            if self.given.fusion
            else node_for(self.pieces.pieces[0].einsum, "binding.fusion")
        )
        groups = tuple(tuple(g) for g in self.groups)
        return replace(
            held, loop_order=self.orders, engines=engines, placements=self.placed, dtypes=self.types,
            fusion=(Fusion(None, groups, Node(None, root.path, root.place)),) if groups else (),
            spacetime={}, rank_order={},
        )  # fmt: skip

    def in_order(self) -> list[Piece]:
        """The pieces, each load before the loop that it stays out of."""
        loads = [p for p in self.pieces.pieces if p.name in self.depths]
        found = [p for p in self.pieces.pieces if p.name not in self.depths]
        loads.sort(key=lambda p: (-self.depths[p.name], self.spread_of(p) is not None))
        while loads:
            # what reads a load has its place before
            load = next(p for p in loads if not any(r in loads for r in self.pieces.readers(p.name)))
            loads.remove(load)
            chain, depth = self.full_chain(load), self.depths[load.name]
            inside = {e for e, _ in chain[depth]} if depth < len(chain) else set()
            inside |= {p.name for p in self.pieces.readers(load.name)}
            at = next((n for n, p in enumerate(found) if p.name in inside), len(found))
            found.insert(at, load)
        return found

    def follow(self, piece: Piece, splits: dict[str, dict[str, tuple[int, ...]]]) -> None:
        """Put a load into the loops of what reads it."""
        chain = self.full_chain(piece)[: self.depths[piece.name]]
        outer = []
        for group in chain:
            name, rank = group[0]
            own = self.rank_in(piece, group)
            base = self.ranks.split(name, rank)
            if base is not None and base[0] not in splits[piece.name]:
                splits[piece.name][base[0]] = splits[name][base[0]]
            outer.append(own)
        for group, own in zip(chain, outer):
            held = self.group_of(*group[0])
            if held is None:
                self.groups.append([*group, (piece.name, own)])
            elif (piece.name, own) not in held:
                held.append((piece.name, own))
        rest = [r for r in self.orders[piece.name] if r not in outer]
        self.orders[piece.name] = (*outer, *rest)
        self.consumed[piece.name] = tuple(r for r in self.consumed[piece.name] if r not in outer)

    def execution(self, piece: Piece) -> Execution:
        given = self.given.engines.get(piece.home)
        ranks = self.consumed[piece.name]
        if given is not None and piece.is_given:
            return replace(given, einsum=piece.name, ranks=ranks)
        instruction = piece.instruction
        if instruction == "SimpleTensorTensor" and self.has_scalar(piece):
            instruction = "SimpleTensorScalar"
        component = ENGINE_OF.get(instruction, "VectorEngine")
        return Execution(piece.name, component, instruction, ranks, node_for(piece.einsum, "binding.engine"))

    def has_scalar(self, piece: Piece) -> bool:
        """Whether one operand has one element per partition in each turn."""
        part = self.partition_of(piece.name, piece)
        free = [r for r in self.consumed[piece.name] if r not in part and self.count(piece.name, r) != 1]
        widths = [[r for r in self.all_ranks(piece, a.variables) if r in free] for a in piece.einsum.accesses]
        return any(not w for w in widths) and any(widths)

    def notes(self) -> tuple[str, ...]:
        """What was added, for the report."""
        new = [t for t in self.pieces.tensors if t not in self.given.cascade.tensors]
        told = (
            [f"completed: {', '.join(new)} added, where tensors move between HBM, SBUF and PSUM"]
            if new
            else []
        )
        split = {r: s for splits in self.splits.values() for r, s in splits.items()
                 if not any(r in g for g in self.given.partitioning.values())}  # fmt: skip
        told += [f"completed: {r} in parts of {', '.join(map(str, s))}" for r, s in split.items()]
        told += [f"completed: {' and '.join('.'.join(m) for m in g)} share a loop" for g in self.groups
                 if not any(tuple(g) == w for f in self.given.fusion for w in f.groups)]  # fmt: skip
        return tuple(told)
