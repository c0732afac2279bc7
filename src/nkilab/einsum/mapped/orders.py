"""Splits, consumed ranks and loop orders of the pieces of a partial mapping: given ones, else by rules."""

from __future__ import annotations

from dataclasses import replace

from ...machine import Machine
from ..language.spec import Placement, Spec
from ..written.ranks import Ranks
from .expand import PRODUCT, SUM, Piece, Pieces
from .layouts import Digit, digit, extent_of


class Orders:
    """What each piece splits, covers at once and loops over.

    Args:
        given: the specification.
        machine: the chip.
        pieces: of it.
    """

    def __init__(self, given: Spec, machine: Machine, pieces: Pieces) -> None:
        self.given, self.machine, self.pieces = given, machine, pieces
        self.splits: dict[str, dict[str, tuple[int, ...]]] = {}
        self.orders: dict[str, tuple[str, ...]] = {}
        self.consumed: dict[str, tuple[str, ...]] = {}
        self.placed: dict[tuple[str, str], Placement] = {}
        self.split()
        self.held = replace(
            given, cascade=pieces.cascade(), partitioning=self.splits, loop_order={}, engines={}, fusion=()
        )
        self.ranks = Ranks(self.held)
        self.rekey_placements()
        for piece in pieces.pieces:
            self.consumed[piece.name] = self.consumes(piece)
        for piece in pieces.pieces:
            self.orders[piece.name] = self.order(piece)

    def split(self) -> None:
        """Ranks on partitions in parts of 128, columns of products in parts of 512, others whole."""
        sizes = self.given.cascade.sizes
        parts = {v for p in self.pieces.pieces for v in (p.part, p.source_part) if v}
        columns: set[str] = set()
        for piece in self.pieces.pieces:
            if piece.instruction == PRODUCT:
                columns |= set(piece.einsum.output.variables) - {piece.part}
                parts.add(piece.part)
        rule: dict[str, tuple[int, ...]] = {}
        most, wide = int(self.machine["partitions"]), int(self.machine["moving_free_max"])
        limits = {v.upper(): most if v in parts else wide for v in parts | columns}

        def finer(rank: str, shapes: tuple[int, ...], home: str) -> tuple[int, ...]:
            # parts that nothing names may be cut again, so that an instruction covers one
            names = {f"{rank}{n}" for n in range(len(shapes) + 1)}
            limit = limits.get(rank, shapes[-1])
            return shapes if shapes[-1] <= limit or names & self.named(home) else (*shapes, limit)

        for home, splits in self.given.partitioning.items():
            for rank, shapes in splits.items():
                rule.setdefault(rank, finer(rank, shapes, home))
        for variable in sorted(parts | columns):
            rank = variable.upper()
            limit = most if variable in parts else wide
            if sizes.get(rank, 1 << 40) > limit and rank not in rule and (rank in sizes or variable in parts):
                rule[rank] = (limit,)
        for piece in self.pieces.pieces:
            held = self.given.partitioning.get(piece.home, {})
            own = {rank: finer(rank, shapes, piece.home) for rank, shapes in held.items()}
            named = self.named(piece.home)
            ranks = [v.upper() for v in piece.einsum.variables]
            own |= {r: rule[r] for r in ranks if r in rule and r not in own and r not in named}
            self.splits[piece.name] = {r: s for r, s in own.items() if r.lower() in piece.einsum.variables}

    def named(self, home: str) -> set[str]:
        """Ranks that the specification names for an Einsum."""
        held = set(self.given.loop_order.get(home, ()))
        if home in self.given.engines:
            held |= set(self.given.engines[home].ranks)
        for (_, einsum), placed in self.given.placements.items():
            if einsum == home:
                held |= {*placed.unbound, *placed.ranks}
        return held | {r for f in self.given.fusion for g in f.groups for e, r in g if e == home}

    def rekey_placements(self) -> None:
        for (tensor, einsum), placed in self.given.placements.items():
            key = self.key(tensor, einsum, placed.component)
            self.placed[key] = replace(placed, tensor=key[0], einsum=key[1])

    def key(self, tensor: str, einsum: str, memory: str) -> tuple[str, str]:
        """The tensor, and the piece that sees it, whose place is given as that of a tensor in an Einsum."""
        main = self.pieces.main.get(einsum, einsum)
        if tensor != einsum and memory == "HBM":
            tile = self.pieces.seen.get((tensor, einsum), "")
            return tensor, tile if tile and tile != tensor else einsum
        if tensor != einsum:
            return self.pieces.seen.get((tensor, einsum), tensor), main
        piece = self.pieces.piece(main)
        is_copied = memory == "SBUF" and piece is not None and piece.instruction == PRODUCT
        return (einsum, einsum) if memory == "HBM" or is_copied else (main, main)

    def digit(self, einsum: str, rank: str) -> Digit:
        return digit(self.ranks, einsum, rank)

    def parts(self, piece: Piece, variable: str) -> tuple[str, ...]:
        return self.ranks.names_after(piece.name, variable.upper())

    def all_ranks(self, piece: Piece, variables: tuple[str, ...]) -> list[str]:
        return [r for v in variables for r in self.parts(piece, v)]

    def count(self, einsum: str, rank: str) -> int | None:
        return extent_of(self.ranks, einsum, rank).value

    def innermost(self, piece: Piece, variable: str, most: int) -> list[str]:
        """The innermost parts of a rank that together have at most some elements."""
        found: list[str] = []
        total = 1
        for rank in reversed(self.parts(piece, variable)):
            count = self.count(piece.name, rank)
            if count is None or total * count > most or rank == self.outer_of_edge(piece.name, variable):
                break
            total *= count
            found.insert(0, rank)
            if self.is_cut(piece, variable):
                break
        return found

    def is_cut(self, piece: Piece, variable: str) -> bool:
        """Whether parts of a rank are given and not named: then an instruction stays within one."""
        base = variable.upper()
        names = set(self.ranks.names_after(piece.name, base))
        return base in self.given.partitioning.get(piece.home, {}) and not names & self.named(piece.home)

    def outer_of_edge(self, einsum: str, variable: str) -> str:
        """The part of a rank that a loop must run over, because the last turn is shorter; "" if none."""
        base = variable.upper()
        return self.ranks.names_after(einsum, base)[0] if self.ranks.has_edge(einsum, base) else ""

    def consumes(self, piece: Piece) -> tuple[str, ...]:
        given = self.given.engines.get(piece.home)
        if given is not None and piece.is_given and given.ranks:
            return given.ranks
        shared = {
            r for f in self.given.fusion for g in f.groups if len(g) > 1 for e, r in g if e == piece.home
        }
        unbound = {r for (t, e), p in self.placed.items() if e == piece.name for r in p.unbound}
        chosen: list[str] = []
        for variable, most in self.covers(piece):
            if variable:
                chosen += self.innermost(piece, variable, most)
        ranks = self.all_ranks(piece, piece.einsum.variables)
        return tuple(r for r in ranks if r in chosen and r not in shared and r not in unbound)

    def covers(self, piece: Piece) -> list[tuple[str, int]]:
        """Variables that an instruction covers at once, with how many values at most."""
        most, out = int(self.machine["partitions"]), piece.einsum.output.variables
        if piece.instruction == PRODUCT:
            summed = next((self.summed(piece)), "")
            moving = [v for v in out if v != piece.part and v in self.moving(piece)]
            columns = max(moving, key=lambda v: self.given.cascade.sizes.get(v.upper(), 0), default="")
            return [(piece.part, most), (summed, most), (columns, int(self.machine["moving_free_max"]))]
        if piece.instruction == "Transpose":
            return [(piece.part, most), (piece.source_part, most)]
        part = piece.source_part if piece.instruction == "Store" else piece.part
        order = self.given.loop_order.get(piece.home)
        if order is not None and piece.is_given:
            column = self.innermost_column(piece, order, part)
            if piece.instruction == SUM and column not in piece.einsum.reduced:
                piece.instruction = "LoopReduce"
                column = ""
            return [(part, most), (column, 1 << 40)]
        if piece.instruction == SUM:
            return [(part, most), (piece.einsum.reduced[-1], 1 << 40)]
        free = [v for v in out if v != part]
        return [(part, most), (free[-1] if free else "", 1 << 40)]

    def innermost_column(self, piece: Piece, order: tuple[str, ...], part: str) -> str:
        """The variable of the innermost rank of a loop order that is not on the partitions."""
        parts = self.innermost(piece, part, int(self.machine["partitions"])) if part else []
        for rank in reversed(order):
            if rank in parts or self.count(piece.name, rank) == 1:
                continue
            variable = next((v for v in piece.einsum.variables if rank in self.parts(piece, v)), "")
            return variable if variable != part or not parts else ""
        return ""

    def summed(self, piece: Piece):  # type: ignore[no-untyped-def]
        for access in piece.einsum.accesses:
            maker = self.pieces.piece(access.tensor)
            if maker is not None and maker.part in piece.einsum.reduced:
                yield maker.part
        yield from piece.einsum.reduced

    def moving(self, piece: Piece) -> set[str]:
        """Variables of the operand that has no part of the result's partitions."""
        found: set[str] = set()
        both: set[str] = set()
        for access in piece.einsum.accesses:
            if piece.part not in access.variables:
                found |= set(access.variables)
            else:
                both = set(access.variables)
        return found - both

    def order(self, piece: Piece) -> tuple[str, ...]:
        """The loop order: as given, else what all share, the rest of the result, then sums."""
        consumed = self.consumed[piece.name]
        given = self.given.loop_order.get(piece.home)
        ranks = self.all_ranks(piece, piece.einsum.variables)
        if given is not None and piece.is_given:
            return (*given, *(r for r in ranks if r not in given and r not in consumed))
        loops = [r for r in ranks if r not in consumed]
        prefix: list[str] = []
        for (_, einsum), placed in self.placed.items():
            if (
                einsum == piece.name
                and len(placed.unbound) > len(prefix)
                and set(placed.unbound) <= set(loops)
            ):
                prefix = list(placed.unbound)
        reduced = {r for v in piece.einsum.reduced for r in self.parts(piece, v)}
        rest = [r for r in loops if r not in prefix]
        shared = self.common_digits()
        if given is not None:
            # the order of the main piece, as far as this one has its ranks
            main = self.pieces.main.get(piece.home, "")
            wish = [self.digit(main, r) for r in given] if main in self.splits else []
            rest.sort(
                key=lambda r: (
                    wish.index(self.digit(piece.name, r)) if self.digit(piece.name, r) in wish else 99
                )
            )
        else:
            first = list(shared)
            rest.sort(
                key=lambda r: (
                    r in reduced,
                    first.index(self.digit(piece.name, r)) if self.digit(piece.name, r) in first else 99,
                )
            )
        return (*prefix, *rest, *consumed)

    def computing(self) -> list[Piece]:
        return [p for p in self.pieces.pieces if p.instruction not in ("Load", "BroadcastTo", "Store")]

    def common_digits(self) -> list[Digit]:
        """Loops over what every result has, in the order of a loop order that is given, else of the last."""
        pieces = self.computing() or self.pieces.pieces
        found: list[Digit] | None = None
        for piece in pieces:
            own = [self.digit(piece.name, r) for r in self.all_ranks(piece, piece.einsum.output.variables)
                   if r not in self.consumed[piece.name]]  # fmt: skip
            found = own if found is None else [d for d in found if d in own]
        order: list[Digit] = []
        for piece in pieces:
            given = self.given.loop_order.get(piece.home)
            if given is not None and piece.is_given:
                order = [self.digit(piece.name, r) for r in given]
                break
        held = found or []
        return sorted(held, key=lambda d: order.index(d) if d in order else len(order) + held.index(d))

    def innermost_of(self, einsum: str, piece: Piece, variable: str, most: int) -> list[str]:
        found: list[str] = []
        total = 1
        for rank in reversed(self.ranks.names_after(einsum, variable.upper())):
            count = self.count(einsum, rank)
            if count is None or total * count > most or rank == self.outer_of_edge(einsum, variable):
                break
            total *= count
            found.insert(0, rank)
            if self.is_cut(piece, variable):
                break
        return [r for r in found if self.count(einsum, r) != 1] or found

    def partition_of(self, einsum: str, piece: Piece, variable: str = "") -> tuple[str, ...]:
        """The parts of a rank on the partitions."""
        most = int(self.machine["partitions"])
        return tuple(self.innermost_of(einsum, piece, variable or piece.part, most))
