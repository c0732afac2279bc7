"""The Einsums of a partial mapping as pieces of one instruction each: copies that were left out put in.

A tensor of HBM that an instruction reads gets a tile and an Einsum that loads it; a result that is returned
gets a tile and an Einsum that stores it; a matrix product gets a place in PSUM and a copy out of it; a sum
of other terms than products is taken apart. What is given for an Einsum is given for its main piece.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ...errors import UnsupportedError
from ..language.ast import Access, Affine, Cascade, Einsum, Tensor
from ..language.operators import OPERATORS
from ..language.places import located
from ..language.spec import Spec
from ..roofline import is_contraction

PRODUCT, SUM, FUNCTION = "MatVec", "TensorReduce", "Activation"
# elements that TensorE sums up, at least, where it has a product for each value of a rank
LEAST_SUMMED = 16
TRANSFERS = ("Load", "Store", "BroadcastTo")


@dataclass
class Piece:
    """One Einsum for one instruction.

    Args:
        einsum: what it computes.
        home: Einsum of the specification that it comes from.
        instruction: of it.
        part: variable on the partitions of its result; "" where it lies in HBM.
        is_given: whether what is given for the home holds for it.
        source_part: of a transpose and of a store, the variable on the partitions of what it reads.
    """

    einsum: Einsum
    home: str
    instruction: str
    part: str = ""
    is_given: bool = False
    source_part: str = ""

    @property
    def name(self) -> str:
        """Of its result."""
        return self.einsum.name


@dataclass
class Pieces:
    """All pieces, and the tensors that they brought.

    Args:
        spec: as given.
        pieces: in order.
        tensors: declared and new ones.
        likes: per new tensor, the one whose type it has; "" for float32.
        main: per Einsum of the specification, the piece that what is given is for.
        seen: how a piece sees a tensor: its tile.
    """

    spec: Spec
    pieces: list[Piece] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    likes: dict[str, str] = field(default_factory=dict)
    main: dict[str, str] = field(default_factory=dict)
    seen: dict[tuple[str, str], str] = field(default_factory=dict)

    def cascade(self) -> Cascade:
        """The cascade of the pieces."""
        held = self.spec.cascade
        return replace(held, tensors=self.tensors, steps=tuple(p.einsum for p in self.pieces))

    def piece(self, name: str) -> Piece | None:
        """The piece that writes a tensor."""
        return next((p for p in self.pieces if p.name == name), None)

    def readers(self, name: str) -> list[Piece]:
        """Pieces that read a tensor."""
        return [p for p in self.pieces if name in p.einsum.reads]


def refuse(einsum: Einsum, problem: str) -> UnsupportedError:
    """What a mapping cannot be completed for."""
    hint = "give its mapping whole, or leave mapping and binding out"
    return located(UnsupportedError(problem, hint=hint), einsum)


def expanded(spec: Spec) -> Pieces:
    """The pieces of a specification.

    Raises:
        UnsupportedError: if an Einsum has a form that no instruction of a mapping computes.
    """
    return _Expansion(spec).pieces()


class _Expansion:
    def __init__(self, spec: Spec) -> None:
        self.spec, self.cascade = spec, spec.cascade
        self.found = Pieces(spec, tensors=dict(spec.cascade.tensors))
        self.parts: dict[str, str] = {}
        self.tiles: dict[tuple[str, str, tuple[str, ...]], str] = {}
        self.now: dict[str, str] = {}
        self.kept: dict[str, str] = {}

    def pieces(self) -> Pieces:
        for einsum in self.cascade.einsums:
            self.check(einsum)
        for einsum in self.cascade.einsums:
            self.expand(einsum)
        return self.found

    def check(self, einsum: Einsum) -> None:
        assert einsum.accesses, "what reads no tensor is planned"
        out, declared = einsum.output, self.cascade.tensors[einsum.name].ranks
        if tuple(v.upper() for v in out.variables) != declared:
            raise refuse(
                einsum, f"{einsum.name} is declared [{', '.join(declared)}] and written by other variables"
            )

    # what is given

    def given_part(self, tensor: str, einsum: str = "") -> str:
        """The variable on the partitions of a tensor that a placement gives; "" if none does."""
        for (name, seen_in), placed in self.spec.placements.items():
            if name != tensor or placed.component == "HBM" or (einsum and seen_in != einsum):
                continue
            bases = [base for base in (self.base(seen_in, rank) for rank in placed.outer) if base]
            if bases:
                return bases[0].lower()
        return ""

    def bound_part(self, einsum: Einsum) -> str:
        """The variable on the partitions that space and time or the ranks of an instruction name."""
        name = einsum.name
        given = self.spec.engines.get(name)
        space = self.spec.spacetime.get(name, ((), ()))[0]
        ranks = space or (given.ranks if given is not None else ())
        if given is not None and given.instruction == "BroadcastTo" and not space:
            ranks = ranks[1:]
        held = [self.base(name, r).lower() for r in ranks]
        return next((v for v in held if v in einsum.output.variables), "")

    def base(self, einsum: str, rank: str) -> str:
        for base, shapes in self.spec.partitioning.get(einsum, {}).items():
            if rank in {f"{base}{n}" for n in range(len(shapes) + 1)}:
                return base
        return rank

    def is_on_chip(self, tensor: str) -> bool:
        """Whether a placement puts a result on chip."""
        placed = self.spec.placements.get((tensor, tensor))
        return placed is not None and placed.component != "HBM"

    # pieces

    def add(self, einsum: Einsum, home: str, instruction: str, part: str = "", **more: object) -> Piece:
        piece = Piece(einsum, home, instruction, part, **more)  # type: ignore[arg-type]
        self.found.pieces.append(piece)
        self.parts[piece.name] = part
        return piece

    def fresh(self, hint: str, variables: tuple[str, ...], like: str) -> Access:
        """A new tensor, indexed by variables."""
        name, number = hint, 2
        while name in self.found.tensors or name in self.cascade.scalars:
            name, number = f"{hint}{number}", number + 1
        self.found.tensors[name] = Tensor(name, tuple(v.upper() for v in variables))
        self.found.likes[name] = like
        return Access(name, tuple(Affine(((v, 1),)) for v in variables))

    def expand(self, einsum: Einsum) -> None:
        name = einsum.name
        given = self.spec.engines.get(name)
        if (
            given is not None
            and given.instruction in TRANSFERS
            and not self.is_fused_copy(einsum, given.instruction)
        ):
            self.given_transfer(einsum, given.instruction)
            return
        instruction = given.instruction if given is not None else self.instruction_of(einsum)
        if instruction in ("Load", "BroadcastTo"):
            self.given_transfer(einsum, instruction)
        elif instruction == "Store":
            self.store(einsum)
        else:
            self.compute(einsum, instruction)

    def is_fused_copy(self, einsum: Einsum, instruction: str) -> bool:
        """Whether a store reads an input, which no tile holds yet."""
        return instruction == "Store" and einsum.accesses[0].tensor in self.cascade.inputs

    def instruction_of(self, einsum: Einsum) -> str:
        """The instruction that computes an Einsum."""
        source = einsum.accesses[0].tensor
        if einsum.condition is not None:
            return FUNCTION if len(einsum.operands) == 1 else "SimpleTensorTensor"
        if not einsum.map_op and not einsum.reduce_op:
            gained = set(einsum.output.variables) - set(einsum.accesses[0].variables)
            if einsum.name in self.cascade.outputs and not gained and not self.is_on_chip(einsum.name):
                return "Store"
            if source in self.cascade.inputs and self.copied_part(einsum) in einsum.accesses[0].variables:
                return "Load"
            return "BroadcastTo" if gained else "TensorCopy"
        if self.is_product(einsum):
            return PRODUCT
        if einsum.reduce_op:
            return SUM
        if len(einsum.operands) == 1:
            return FUNCTION
        return "SimpleTensorTensor" if len(einsum.accesses) == 2 else "SimpleTensorScalar"

    def given_transfer(self, einsum: Einsum, instruction: str) -> None:
        """A copy that the cascade names itself."""
        name = einsum.name
        self.found.main[name] = name
        if instruction == "Store":
            self.store(einsum)
            return
        part = self.copied_part(einsum)
        source = einsum.accesses[0]
        if instruction == "BroadcastTo" and source.tensor in self.cascade.inputs:
            tile = self.fresh(f"{source.tensor}_row", source.variables, source.tensor)
            self.add(Einsum(tile, (source,), place=einsum.place), name, "Load", source.variables[0])
            einsum = replace(einsum, operands=(tile,))
        self.add(einsum, name, instruction, part, is_given=True)
        self.now[name] = name

    def copied_part(self, einsum: Einsum) -> str:
        """The variable on the partitions of a copy in the cascade: given, or one that readers keep."""
        name, out = einsum.name, einsum.output.variables
        readers = [e for e in self.cascade.einsums if name in e.reads]
        kept = [v for v in out if not any(v in e.reduced for e in readers)]
        gained = [v for v in kept if v not in einsum.accesses[0].variables]
        made = einsum.accesses[0].tensor not in self.cascade.inputs
        by_rule = self.wanted(name) or ((gained if made else []) + kept + list(out))[0]
        return self.given_part(name) or self.bound_part(einsum) or by_rule

    def store(self, einsum: Einsum) -> None:
        """What is returned, from the tile that holds it."""
        name, source = einsum.name, einsum.accesses[0]
        self.found.main[name] = name
        part = self.given_part(source.tensor, name) or self.bound_part(einsum)
        part = part or self.parts.get(self.now.get(source.tensor, ""), "")
        tile = self.tile(source, part or source.variables[0], einsum)
        self.found.seen[source.tensor, name] = tile.tensor
        self.add(
            replace(einsum, operands=(tile,)), name, "Store", "", is_given=True,
            source_part=self.parts[tile.tensor],
        )  # fmt: skip
        self.now[name] = tile.tensor

    def wanted(self, tensor: str) -> str:
        """The variable that readers of a tensor want on its partitions: what a product sums over."""
        for einsum in self.cascade.einsums:
            if tensor in einsum.reads and self.is_product(einsum):
                return self.summed(einsum)
        return ""

    def is_product(self, einsum: Einsum) -> bool:
        given = self.spec.engines.get(einsum.name)
        if given is not None:
            return given.instruction == PRODUCT
        if not is_contraction(einsum):
            return self.is_dot(einsum)
        sizes = [self.cascade.sizes.get(v.upper(), LEAST_SUMMED) for v in einsum.reduced]
        batch = [v for v in einsum.output.variables if all(v in a.variables for a in einsum.accesses)]
        # a product for each value of a rank that sums up a few elements is left to VectorE
        return not batch or max(sizes) >= LEAST_SUMMED

    def is_dot(self, einsum: Einsum) -> bool:
        """Whether an Einsum is a sum of products of two vectors, one element."""
        is_one = all(self.cascade.sizes.get(v.upper()) == 1 for v in einsum.output.variables)
        ops = (einsum.map_op, einsum.reduce_op) == ("multiply", "add")
        vectors = [set(a.variables) - set(einsum.output.variables) for a in einsum.accesses]
        return is_one and ops and len(vectors) == 2 and vectors[0] == vectors[1] and len(vectors[0]) == 1

    def summed(self, einsum: Einsum) -> str:
        """The variable of a product that runs over the partitions of its operands."""
        for access in einsum.accesses:
            part = self.given_part(access.tensor, einsum.name)
            if part in einsum.reduced:
                return part
        known = [v for v in einsum.reduced if all(v in a.variables for a in einsum.accesses)]
        given = self.spec.engines.get(einsum.name)
        held = {self.base(einsum.name, r).lower() for r in given.ranks} if given else set()
        named = [v for v in known if v in held]
        return max(named or known, key=lambda v: self.cascade.sizes.get(v.upper(), 1 << 30))

    def compute(self, einsum: Einsum, instruction: str) -> None:
        """An instruction between tiles, with what brings its operands and takes its result away."""
        name = einsum.name
        if einsum.map_op and einsum.reduce_op and instruction == SUM:
            terms = self.fresh(f"{name}_terms", einsum.variables, "")
            mapped = replace(einsum, output=terms, reduce_op="", text=einsum.text)
            kind = FUNCTION if len(einsum.operands) == 1 else "SimpleTensorTensor"
            part = self.part_of(einsum, instruction)
            self.add(self.on_tiles(mapped, part, kind), name, kind, part)
            einsum = replace(einsum, operands=(terms,), map_op="")
            self.now[terms.tensor] = terms.tensor
        if instruction == PRODUCT:
            self.product(einsum)
            return
        part = self.part_of(einsum, instruction)
        source = self.now.get(einsum.accesses[0].tensor, "")
        if instruction == "TensorCopy" and self.parts.get(source, part) != part:
            self.found.main[name] = self.now[name] = name
            copy = replace(einsum, operands=(replace(einsum.accesses[0], tensor=source),))
            self.add(copy, name, "Transpose", part, source_part=self.parts[source])
            return
        result = self.result(einsum, name)
        self.found.main[name] = result.tensor
        held = self.on_tiles(replace(einsum, output=result), part, instruction)
        self.add(held, name, instruction, part, is_given=True)
        self.leave(einsum, result, part)

    def result(self, einsum: Einsum, name: str) -> Access:
        """The tensor that an instruction writes: a tile of what is returned, else the tensor itself."""
        if name in self.cascade.outputs and not self.is_on_chip(name):
            return self.fresh(f"{name}_tile", einsum.output.variables, name)
        return einsum.output

    def leave(self, einsum: Einsum, result: Access, part: str) -> None:
        """Store what is returned."""
        name = einsum.name
        self.now[name] = result.tensor
        if result.tensor != name:
            self.found.seen[name, name] = result.tensor
            copy = Einsum(einsum.output, (result,), place=einsum.place, text=f"{einsum.output} = {result}")
            self.add(copy, name, "Store", "", source_part=part)

    def part_of(self, einsum: Einsum, instruction: str) -> str:
        """The variable on the partitions of an element-wise or reducing result."""
        out = einsum.output.variables
        is_copy = not einsum.map_op and not einsum.reduce_op
        given = self.given_part(einsum.name, "" if is_copy else einsum.name) or self.bound_part(einsum)
        if given:
            return given
        for access in einsum.accesses:
            held = self.parts.get(self.now.get(access.tensor, ""), "") or self.given_part(
                access.tensor, einsum.name
            )
            if held in out:
                return held
        wanted = self.wanted(einsum.name)
        if wanted in out:
            return wanted
        readers = [e for e in self.cascade.einsums if einsum.name in e.reads]
        shared = [v for v in out if all(v in a.variables for a in einsum.accesses)]
        kept = [v for v in out if not any(v in e.reduced for e in readers)]
        both = [v for v in shared if v in kept]
        return (both or (shared if not readers else kept) or shared or list(out))[0]

    def product(self, einsum: Einsum) -> None:
        """A matrix product into PSUM, and the copy out of it."""
        name = einsum.name
        summed = self.summed(einsum)
        first, second = einsum.accesses
        own = [[v for v in einsum.output.variables if v in a.variables and v not in b.variables]
               for a, b in ((first, second), (second, first))]  # fmt: skip
        wished = self.given_part(name) or self.bound_part(einsum) or self.wanted(name)
        choices = [v for v in einsum.output.variables if v in own[0] or v in own[1]]
        choices = choices or list(einsum.output.variables[:1])
        part = wished if wished in choices else choices[0]
        operands = tuple(self.tile(a, summed, einsum) for a in einsum.accesses)
        for access, tile in zip(einsum.accesses, operands):
            self.found.seen[access.tensor, name] = tile.tensor
        placed = self.spec.placements.get((name, name))
        if placed is not None and placed.component == "PSUM":
            self.found.main[name] = name
            self.add(replace(einsum, operands=operands), name, PRODUCT, part, is_given=True)
            self.now[name] = name
            return
        total = self.fresh(f"{name}_sum", einsum.output.variables, "")
        self.found.main[name] = total.tensor
        self.add(replace(einsum, output=total, operands=operands), name, PRODUCT, part, is_given=True)
        result = self.result(einsum, name)
        copy = Einsum(result, (total,), place=einsum.place, text=f"{result} = {total}")
        self.add(copy, name, "TensorCopy", part)
        self.leave(einsum, result, part)

    def on_tiles(self, einsum: Einsum, part: str, instruction: str) -> Einsum:
        """An Einsum that reads tiles in the layout that its result has."""
        operands = []
        for operand in einsum.operands:
            held = operand
            if isinstance(operand, Access):
                held = self.tile(operand, part, einsum)
                self.found.seen[operand.tensor, einsum.name] = held.tensor
            operands.append(held)
        return replace(einsum, operands=tuple(operands))

    def tile(self, access: Access, part: str, einsum: Einsum) -> Access:
        """The tile of a tensor with a variable on its partitions: there already, loaded, spread or turned."""
        tensor = access.tensor
        held = self.now.get(tensor, "")
        if held and self.parts.get(held) == part and self.is_as_declared(access):
            return replace(access, tensor=held)
        missing = part not in access.variables
        key = (tensor, part, (*access.variables, *einsum.output.variables) if missing else access.variables)
        if key not in self.tiles:
            self.tiles[key] = self.made(access, part, einsum, held, missing).tensor
        return self.access_of(self.tiles[key])

    def is_as_declared(self, access: Access) -> bool:
        """Whether a tensor is indexed by the variables of its ranks."""
        return tuple(v.upper() for v in access.variables) == self.found.tensors[access.tensor].ranks

    def stored(self, access: Access, einsum: Einsum, held: str) -> Access:
        """A tensor that lies on chip, stored in HBM."""
        tensor = access.tensor
        if tensor not in self.kept:
            variables = tuple(r.lower() for r in self.found.tensors[tensor].ranks)
            copy = self.fresh(f"{tensor}_stored", variables, tensor)
            source = self.access_of(held)
            self.add(Einsum(copy, (source,), place=einsum.place, text=f"{copy} = {source}"), einsum.name,
                     "Store", "", source_part=self.parts[held])  # fmt: skip
            self.kept[tensor] = copy.tensor
        return replace(access, tensor=self.kept[tensor])

    def access_of(self, name: str) -> Access:
        ranks = self.found.tensors[name].ranks
        return Access(name, tuple(Affine(((r.lower(), 1),)) for r in ranks))

    def made(self, access: Access, part: str, einsum: Einsum, held: str, missing: bool) -> Access:
        tensor = access.tensor
        if held and (missing or not self.is_as_declared(access)):
            # from its partitions a tile reaches others, and other ranks, by way of HBM
            access, held = self.stored(access, einsum, held), ""
        if missing:
            row = self.fresh(f"{tensor}_row", access.variables, tensor)
            self.add(Einsum(row, (access,), place=einsum.place), einsum.name, "Load", access.variables[0])
            spread = self.fresh(f"{tensor}_rows", (part, *access.variables), tensor)
            self.add(Einsum(spread, (row,), place=einsum.place), einsum.name, "BroadcastTo", part)
            return spread
        if held:
            turned = self.fresh(f"{tensor}_turned", access.variables, self.found.likes.get(held, held) or "")
            source = replace(access, tensor=held)
            self.add(
                Einsum(turned, (source,), place=einsum.place, text=f"{turned} = {source}"), einsum.name,
                "Transpose", part, source_part=self.parts[held],
            )  # fmt: skip
            return turned
        loaded = self.fresh(f"{tensor}_tile", access.variables, tensor)
        self.add(
            Einsum(loaded, (access,), place=einsum.place, text=f"{loaded} = {access}"),
            einsum.name,
            "Load",
            part,
        )
        return loaded


def types_of_pieces(pieces: Pieces, given: Mapping[str, str]) -> dict[str, str]:
    """Types of all tensors: given, of what a tile holds, float32; a product's operands have one type."""
    found = dict(given)
    for name in pieces.tensors:
        like = pieces.likes.get(name, name)
        found.setdefault(name, given.get(like, "float32") if like else "float32")
    for piece in (p for p in pieces.pieces if p.instruction == PRODUCT):
        found[piece.name] = given.get(piece.name, "float32")
        types = {a.tensor: found[a.tensor] for a in piece.einsum.accesses}
        narrow = [d for d in types.values() if d != "float32"]
        wide = [t for t, d in types.items() if d == "float32" and t not in given]
        found |= dict.fromkeys(wide, narrow[0] if narrow else "float32")
    return found


def is_elementwise(piece: Piece) -> bool:
    """Whether a piece computes element by element."""
    op = OPERATORS.get(piece.einsum.map_op)
    return op is not None and not piece.einsum.reduce_op
