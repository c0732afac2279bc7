"""What every part of the planner shares: the cascade, the tree under construction, and where tensors lie."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from math import prod

from ...errors import NkilabError, SpecError, UnsupportedError
from ...machine import Machine
from ...tiles.dtypes import SMALL_INTEGERS, as_dtype
from ..language.ast import Access, Cascade, Einsum, Kind, Scalar
from ..tree import nodes
from ..tree.along import strides
from ..tree.expr import ZERO, Expr
from ..tree.nodes import HBM, PSUM, SBUF, Buffer, Cut, Kernel, View, all_of
from .build import Builder, Span, UnreachableError, whole
from .given import NOTHING, Given, Made
from .knobs import RULES, Decision, Knobs, Option, Picker
from .storage import Storage, in_hbm, tile_shape


def tensor_type(dtype: str) -> str:
    """The type in which TensorE moves values exactly: indices in float32, integers of 8 bits in bfloat16."""
    return "bfloat16" if dtype in SMALL_INTEGERS else "float32" if dtype in ("int32", "uint32") else dtype


class PlanError(AssertionError):
    """A plan met what it was not written for: a fault of ours.

    Args:
        error: what was asserted, or any other error that is none of the cascade's.
    """

    def __init__(self, error: Exception, decisions: Sequence[Decision]) -> None:
        super().__init__(reason(error))
        self.decisions = tuple(decisions)


@contextmanager
def as_plan_errors(ctx: Context) -> Iterator[None]:
    """Raise a PlanError where a choice leads to where no nest goes on, or to what the chip lacks."""
    try:
        yield
    except Exception as error:
        is_users = isinstance(error, SpecError | UnsupportedError | MemoryError)
        if is_users and not isinstance(error, UnreachableError):
            raise
        raise PlanError(error, ctx.decisions) from error


def is_fault(error: Exception) -> bool:
    """Whether an error of a choice, or of what a mapping asks for, is more than that no nest covers it."""
    return not isinstance(error.__cause__ or error, SpecError | UnsupportedError | MemoryError)


def reason(error: Exception) -> str:
    """The first line of an error that is a fault of ours, with its type where that says more."""
    line = (str(error) or type(error).__name__).splitlines()[0]
    is_plain = isinstance(error, AssertionError | NkilabError) or not str(error)
    return line if is_plain else f"{type(error).__name__}: {line}"


@dataclass
class Context:
    """The state of a compilation."""

    cascade: Cascade  # with extents
    machine: Machine  # the chip that is compiled for
    dtypes: dict[str, str]  # of every tensor
    build: Builder  # the tree so far
    knobs: Knobs = RULES  # choices that a search may make
    # per tensor, the places that hold it, the best first
    storages: dict[str, list[Storage]] = field(default_factory=dict)
    choices: list[str] = field(default_factory=list)  # notes for the report
    tried: list[str] = field(default_factory=list)  # what other choices would have given, one line each
    # variables of the loops around the present nest and how often they run, the outermost first
    loops: list[tuple[str, int]] = field(default_factory=list)
    blocks: dict[str, int] = field(default_factory=dict)  # elements that a turn of such a loop covers
    homes: dict[str, str] = field(default_factory=dict)  # where results go: chip, hbm or both
    widest: int = 0  # columns of the widest tile
    is_larger: bool = False  # whether a loop that Einsums share has room for tiles of more blocks
    # variable that readers of a tensor want on the partitions
    wanted: dict[str, str] = field(default_factory=dict)
    # variables with which on the partitions TensorE can read a tensor, and nanoseconds lost else
    served: dict[str, tuple[frozenset[str], float]] = field(default_factory=dict)
    memories: dict[str, str] = field(default_factory=dict)  # tensors that stay in PSUM
    copied: set[str] = field(default_factory=set)  # tensors that are copied from HBM
    # per tensor, axes that readers index in a way that partitions cannot serve
    barred: dict[str, set[int]] = field(default_factory=dict)
    # axes that had better not lie there, for the sake of scans that read them
    avoided: dict[str, set[int]] = field(default_factory=dict)
    # per tensor that lies where another one did, that one
    overwritten: dict[str, str] = field(default_factory=dict)
    chip_dtypes: dict[str, str] = field(default_factory=dict)  # types of tensors on chip, where they differ
    # shapes that callers see of outputs
    declared: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    viewed: Set[str] = frozenset()  # tensors that others are views of, in HBM
    decisions: list[Decision] = field(default_factory=list)  # in order
    given: Given = NOTHING  # what a mapping fixes
    made: list[Made] = field(default_factory=list)  # tiles of tensors, in order
    # results of turns that stay on chip whole, outside of the loops around the present group
    resident: set[str] = field(default_factory=set)
    # what is left to do for sums over turns, behind the loops around the present group
    ended: list[Callable[[], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        # partitions, each with a lane of an engine; a bank of PSUM: bytes per partition, columns in float32
        self.lanes, self.bank_bytes = (int(self.machine[n]) for n in ("partitions", "psum_bank_bytes"))
        self.bank = min(self.bank_bytes // 4, int(self.machine["moving_free_max"]))
        self.indexing = {tensor for tensor, _ in self.cascade.index_ranks}

    def beside(self, knobs: Knobs) -> Context:
        """The same plan as far as it is, to go on with by itself."""
        own = replace(self, build=copy(self.build), knobs=knobs, tried=[])
        own.build.taken, own.decisions, own.choices = {*self.build.taken}, [*self.decisions], [*self.choices]
        return own

    def may_turn(self, buffer: Buffer) -> bool:
        """Whether TensorE moves what a tensor holds exactly: of integers of 32 bits, indices alone."""
        return buffer.tensor in self.indexing or buffer.dtype not in ("int32", "uint32")

    def pick(
        self, what: str, options: Sequence[Option], told: Callable[[Option], str] = str,
        costs: Sequence[float] = (),
    ) -> Option:  # fmt: skip
        """One of some options, the best first: see `Picker`."""
        return Picker(self.knobs, self.decisions).pick(what, options, told, costs)

    def cheapest(self, what: str, costs_ns: dict[str, float]) -> str:
        """What costs least of some options, unless a search wants another."""
        options = sorted(costs_ns, key=costs_ns.__getitem__)
        return self.pick(what, options, costs=[costs_ns[name] for name in options])

    def chip_dtype(self, tensor: str) -> str:
        """The type that a tensor has on chip."""
        return self.chip_dtypes.get(tensor, self.dtypes[tensor])

    def place_of(self, view: View) -> Storage | None:
        """The tile of a tensor that a view lies in; None for a temporary."""
        held = (s for found in self.storages.values() for s in found if s.buffer is view.buffer)
        return next(held, None)

    def version_of(self, view: View) -> int:
        """The version of the tile that a view lies in; 0 for a temporary."""
        held = self.place_of(view)
        return held.version if held is not None else 0

    def room(self) -> int:
        """Bytes per partition of SBUF that open scopes leave."""
        return self.budget - self.build.live_bytes()

    @contextmanager
    def outside(self, tensor: str, outer: Mapping[str, Span]) -> Iterator[dict[str, Span]]:
        """Statements go before the loops whose turns each make a part of a result that stays on chip whole.

        Yields what other loops have chosen.
        """
        over = [v for v, span in outer.items() if tensor in self.resident and span.start.names]
        names = frozenset(name for v in over for name in outer[v].start.names)
        with self.build.hoisted(self.build.depth_of(names) - 1 if over else self.build.depth):
            yield {v: span for v, span in outer.items() if v not in over}

    @contextmanager
    def handed_on(self, unit: Sequence[Einsum]) -> Iterator[None]:
        """What turns hand on has that of the turn before, until a unit has written it."""
        behind = ({t for later in unit[n + 1 :] for t in later.reads} for n, _ in enumerate(unit))
        places = [(s, e.name in r) for e, r in zip(unit, behind) for s in self.storages.get(e.name, ())]
        for storage, is_read in places:
            # others of the unit read it before and after
            storage.turns = (None if is_read else storage.turns[0], storage.turns[1])
        yield
        for storage, _ in places:
            storage.turns = (storage.turns[1], storage.turns[1])

    def forget(self, first: int, behind: Container[str]) -> None:
        """Count the tiles no more that the last statements of a scope made and nothing behind them reads."""
        scopes = self.build.scopes
        cache = scopes[-1].cache
        for key in [k for k in cache if k[0] == "stage" and k[1] not in behind]:
            del cache[key]
        kept = [s for found in self.storages.values() for s in found]
        kept += [held for scope in scopes for held in scope.cache.values()]
        known = {id(getattr(held, "buffer", held)) for held in kept}
        for made in (s.buffer for s in scopes[-1].body[first:] if isinstance(s, nodes.Alloc)):
            if id(made) not in known:
                scopes[-1].bytes -= self.build.bytes_of(made)

    @property
    def budget(self) -> int:
        """Bytes per partition of SBUF that a plan may use."""
        return int(self.machine["sbuf_bytes_per_partition"] * self.knobs.share)

    def bytes_of(self, dtype: str) -> int:
        """Bytes of an element."""
        return as_dtype(dtype).storage.itemsize

    def number(self, scalar: Scalar) -> nodes.Number:
        """A scalar as an operand: its name as a parameter, or its value."""
        return scalar.name or scalar.value

    def spans(self, einsum: Einsum, outer: dict[str, Span]) -> dict[str, Span]:
        """The span of every variable of an Einsum: the outer one, or all values."""
        names = dict.fromkeys((*einsum.variables, *einsum.along))
        return {v: outer[v] if v in outer else whole(self.cascade.extent(v, einsum)) for v in names}

    def carried(self, einsum: Einsum, outer: Mapping[str, Span]) -> list[str]:
        """Variables of a sum that the loops which a mapping gives around its statement run over."""
        held = outer if einsum.name in self.given.nests else {}
        return [v for v in einsum.reduced if v in held and held[v].start.names]

    def hbm(self, tensor: str) -> Storage | None:
        """The place of a tensor in HBM, if it has one."""
        return next((s for s in self.storages.get(tensor, ()) if s.is_hbm), None)

    def chip(self, tensor: str) -> Storage | None:
        """The place of a tensor on chip, if it has one."""
        return next((s for s in self.storages.get(tensor, ()) if not s.is_hbm), None)

    def add_hbm(self, tensor: str, role: str) -> Storage:
        """Make a tensor in HBM, at the head of the kernel."""
        shape = self.cascade.shape(tensor) or (1,)
        declared = self.declared.get(tensor, shape)
        name = self.build.fresh(tensor if role == "output" else f"{tensor.lower()}_scratch")
        buffer = Buffer(name, declared, self.dtypes[tensor], HBM, role, tensor)
        if declared != shape:
            view = self.build.fresh(f"{tensor.lower()}_view")
            buffer = replace(buffer, name=view, shape=shape, base=buffer)
        with self.build.hoisted(0):
            self.build.allocated(buffer)
        held = in_hbm(buffer, len(self.cascade.tensors[tensor].ranks))
        self.storages.setdefault(tensor, []).append(held)
        return held

    def view(self, einsum: Einsum) -> None:
        """Have a tensor lie where the one does that it is a view of."""
        shape, source = self.cascade.shape(einsum.name), self.hbm(einsum.reads[0])
        assert source is not None, f"{einsum.reads[0]} has no place in HBM"
        assert not source.buffer.window, f"the rows of {einsum.reads[0]} overlap"
        base, read = source.buffer.root, einsum.accesses[0]
        name = self.build.fresh(f"{einsum.name.lower()}_view")
        view = own = replace(base, name=name, shape=shape, base=base)
        if self.cascade.derived[einsum.name].kind is Kind.OVERLAP:
            steps = (tuple(i.coefficient(v) for i in read.affine) for v in einsum.output.variables)
            first = tuple(i.constant for i in read.affine)
            view = replace(own, base=source.buffer, window=(*steps,), first=first)
            # elements in the same order need no window
            is_whole = not any(first) and prod(shape) == prod(self.cascade.shape(read.tensor))
            view = own if is_whole and strides(view) == strides(own) else view
        with self.build.hoisted(0):
            self.build.allocated(view)
        self.storages[einsum.name] = [replace(in_hbm(view, len(shape)), depth=source.depth)]
        self.homes[einsum.name], self.dtypes[einsum.name] = "hbm", base.dtype

    def add_tile(
        self, tensor: str, axes: tuple[Sequence[int], Sequence[str], Sequence[Expr]], dtype: str = "",
        hint: str = "", memory: str = SBUF, copies: int = 1,
    ) -> Storage:  # fmt: skip
        """Make a tile on chip that holds a tensor, or a part of it: extents, kinds and bases of axes."""
        extents, dims, bases = (tuple(axes[0]), tuple(axes[1]), tuple(axes[2]))
        shape, has_blocks = tile_shape(extents, dims, self.lanes, copies)
        self.made.append(Made(tensor, memory, dims, self.build.turns))
        name, dtype = hint or f"{tensor.lower()}_tile", dtype or self.dtypes[tensor]
        buffer = self.build.buffer(name, shape, dtype, memory, "sum" if memory == PSUM else "tile", tensor)
        return Storage(buffer, dims, bases, has_blocks, self.build.depth, copies=copies)

    def temporary(
        self, hint: str, rows: int, columns: int, dtype: str = "float32", memory: str = SBUF,
        role: str = "tile",
    ) -> Buffer:  # fmt: skip
        """A new tile [rows, columns]."""
        return self.build.buffer(hint, (rows, columns), dtype, memory, role)

    def tile(
        self, hint: str, rows: Span, columns: Span, dtype: str = "float32", memory: str = SBUF,
        role: str = "tile",
    ) -> View:  # fmt: skip
        """A new tile for what rows and columns cover, as far as they do."""
        made = self.temporary(hint, rows.most, columns.most, dtype, memory, role)
        return part_of(made, rows.count, columns.count)

    def constant(self, value: float, dtype: str = "float32") -> Buffer:
        """A tile as large as the array of TensorE of a constant, made once at the head of the kernel."""

        def made() -> Buffer:
            hint = "ones" if value == 1 else "zeros" if value == 0 else "constant"
            tile = self.temporary(hint, self.lanes, self.lanes, dtype)
            self.build.add(nodes.Fill(all_of(tile), value))
            return tile

        return self.build.once(("constant", dtype, value), 0, made)

    def positions(self, where: tuple[Expr, int, int], shape: tuple[int, int]) -> Buffer:
        """A tile of numbers: the first, what each partition and column adds; kept as long as they stay."""

        def numbers() -> Buffer:
            tile = self.temporary("positions", *shape)
            self.build.add(nodes.Count(all_of(tile), *where))
            return tile

        return self.build.once(("positions", where, shape), self.build.depth_of(where[0].names), numbers)

    def turn_columns(self, dst: View, src: View) -> None:
        """Write columns of a tile in SBUF to others, the last first."""
        count, rows = src.cuts[-1].count, int(str(src.buffer.shape[0]))

        def numbers() -> Buffer:
            tile = self.temporary("backwards", rows, int(str(src.buffer.shape[-1])), "uint32")
            self.build.add(nodes.Count(part_of(tile, rows, count), count - 1, 0, -1))
            return tile

        places = self.build.once(("backwards", rows, count), self.build.depth_of(count.names), numbers)
        self.build.add(nodes.Pick(dst, src, part_of(places, src.cuts[0].count, count)))

    def storage_of(self, access: Access) -> list[Storage]:
        """Where the tensor of an access lies."""
        found = self.storages.get(access.tensor)
        assert found, f"{access.tensor} is read before it is written"
        return found


def tally(
    ctx: Context, einsum: Einsum, into: View, spans: Mapping[str, Span], whole: Mapping[str, Span],
    is_across: bool = False,
) -> nodes.Tally:  # fmt: skip
    """What an addition to the sum of an Einsum takes.

    Args:
        spans: values that are added, by variable.
        whole: values that the place takes up in all.
        is_across: whether partitions are added up later.
    """
    extents = {v: ctx.cascade.extent(v, einsum) for v in einsum.reduced}
    # the turn of a block, in which a tensor without that rank is made anew, is no value of a sum
    summed = [v for v in einsum.reduced if not whole[v].start.names or not whole[v].is_point]
    added = tuple(
        nodes.Summed(v, spans[v].start, spans[v].count, whole[v].start, whole[v].count, extents[v])
        for v in summed
    )
    return nodes.Tally(into, added, is_across)


def part_of(buffer: Buffer, rows: int | Expr, columns: int | Expr, column: int | Expr = 0) -> View:
    """The first rows, and some columns, of a tile [rows, columns]."""
    from_column = ZERO + column
    return View(buffer, (Cut(ZERO, ZERO + rows), Cut(from_column, ZERO + columns)))


# a tree and the plan that it was made by; what makes both of choices
Plan = tuple[Kernel, Context]
Planner = Callable[[Knobs], Plan]
