"""How an instruction is written down, and what one use of it is checked against.

A declaration is a class: docstring, operands, attributes, values, limits, rules, example, `compute`,
`cost`, source. Its members stand in the order of the `nki` signature, from which every spelling follows.

A `Form` of an instruction (an instance of its class) is what several calls share: layouts of operands,
attributes, the machine. It is checked once. What may differ from call to call (immediates, addresses, the
resolved accumulate flag) are *values*; limits, rules and cost get the form and cannot reach them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ..errors import LimitError, RuleError
from ..machine import Machine
from ..tiles.dtypes import DTYPES, DType, promoted
from ..tiles.tile import PSUM, SEQUENCER, Layout
from .access import slowed
from .attributes import NUMBER as NUMBER
from .attributes import REQUIRED as REQUIRED
from .attributes import Attr as Attr
from .attributes import Attribute as Attribute
from .attributes import Flag as Flag
from .attributes import Immediate as Immediate
from .attributes import Spelled as Spelled
from .attributes import Value as Value
from .declaration_parts import PARTITIONS as PARTITIONS
from .declaration_parts import Example as Example
from .declaration_parts import Fresh as Fresh
from .declaration_parts import Limit as Limit
from .declaration_parts import Step as Step
from .declaration_parts import partition_step as partition_step
from .declaration_parts import sizes_along

# what `compute` takes: an array, a number or None; and booleans, as many as elements, by name of an operand
Argument = Any
UsedElements = Mapping[str, Any]
REGISTRY: dict[str, type[Instruction]] = {}

ON_CHIP = ("sbuf", "psum")
REGISTERS = "registers"
# what engines compute on, and what transfers and copies move: packed types too
ANY_DTYPE = tuple(d.name for d in DTYPES.values() if not d.is_packed)
EVERY_DTYPE = tuple(DTYPES)
FLOATS = tuple(d.name for d in DTYPES.values() if d.is_float)
INTEGERS = tuple(d.name for d in DTYPES.values() if d.is_integer)


class Operand(Struct, frozen=True):
    """A tile that an instruction reads or writes."""

    # names of its axes; the first is the partition. A last name with a star stands for all remaining axes
    # taken together; a last number is how many elements these hold; "*" alone is any shape
    axes: tuple[str, ...]
    memories: tuple[str, ...]  # where it may lie
    dtypes: tuple[str, ...]  # names of the types it may have
    is_written: bool = False  # whether the instruction writes it
    is_optional: bool = False  # whether None may stand for it
    may_be_number: bool = False  # whether a Python number may stand for it (it then becomes a value)
    default: Any = REQUIRED
    most: int = 0  # how many tiles a list of them may hold; 0 where it is a tile and no list
    takes_rows: bool = False  # whether its rows may be chosen at run time, by a vector of indices


def Out(
    axes: str, memories: Sequence[str] = ON_CHIP, dtypes: Sequence[str] = ANY_DTYPE, *, rows: bool = False
) -> Any:
    """Declare an operand that is written; with `rows`, at rows that indices choose at run time."""
    return Operand(
        tuple(axes.split()), tuple(memories), _allowed(memories, dtypes), is_written=True, takes_rows=rows
    )


def In(
    axes: str, memories: Sequence[str] = ON_CHIP, dtypes: Sequence[str] = ANY_DTYPE, *,
    optional: bool = False, number: bool = False, rows: bool = False,
) -> Any:  # fmt: skip
    """Declare an operand that is read.

    With `number`, a Python number may stand for it; with `rows`, indices may choose its rows at run time.
    """
    return Operand(
        tuple(axes.split()), tuple(memories), _allowed(memories, dtypes), is_optional=optional,
        may_be_number=number, default=None if optional else REQUIRED, takes_rows=rows,
    )  # fmt: skip


def _allowed(memories: Sequence[str], dtypes: Sequence[str]) -> tuple[str, ...]:
    """The types of an operand: where none were chosen, only the DMA engines, which reach HBM, move any."""
    return EVERY_DTYPE if dtypes is ANY_DTYPE and "hbm" in memories else tuple(dtypes)


def Registers() -> Any:
    """Declare that the register file is what the instruction writes: an operand that no caller gives."""
    return Operand(("*",), (REGISTERS,), ANY_DTYPE, is_written=True, is_optional=True, default=None)


def Several(axes: str, memories: Sequence[str], most: int, *, rows: bool = False) -> Any:
    """Declare the last operand as a list of tiles that are read; each gets a slot of its own in the form."""
    return Operand(tuple(axes.split()), tuple(memories), ANY_DTYPE, most=most, takes_rows=rows)


def OptionalOut(axes: str, dtypes: Sequence[str] = ANY_DTYPE) -> Any:
    """Declare a second result, on chip, which the caller may leave out."""
    return Operand(
        tuple(axes.split()), ON_CHIP, tuple(dtypes), is_written=True, is_optional=True, default=None
    )


def ScalarOrVector(
    dtypes: Sequence[str] = ANY_DTYPE, *, default: Any = REQUIRED, optional: bool = False
) -> Any:
    """Declare an operand that is a number or a tile [P, 1], broadcast along the free axes."""
    return Operand(
        ("P", "1"), ON_CHIP, tuple(dtypes), is_optional=optional, may_be_number=True, default=default
    )


class Rule(Struct, frozen=True):
    """A predicate over forms, the sentence that says it is broken, and a use that breaks it."""

    sentence: str  # present tense, what is wrong and what is allowed
    # page and heading; written "" for the page of the instruction, ", heading" for a heading of it
    source: str
    # changes to the smallest legal use: "operand.memory", "operand.dtype", "operand.shape", "operand.start"
    # (a partition), "operand" (a number or None), an attribute, or an axis (its size), each with a value.
    # Empty where the chips named do not have the instruction
    broken_by: Mapping[str, Any]
    holds: Callable[[Any], bool]  # True if a form keeps the rule
    hint: str = ""  # one thing to do, or ""
    key: str = ""  # under which AWS documents the error, or ""
    chips: tuple[str, ...] = ()  # on which the counterexample breaks it; all if empty
    name: str = ""  # that the declaration of the instruction gives it


def rule(
    sentence: str, *, source: str = "", broken_by: Mapping[str, Any], hint: str = "", key: str = "",
    chips: Sequence[str] = (),
) -> Callable[[Callable[[Any], bool]], Rule]:  # fmt: skip
    """Make a predicate over forms a rule; `chips` are those on which the counterexample breaks it."""
    return lambda holds: Rule(sentence, source, broken_by, holds, hint, key, tuple(chips))


class CallRule(Struct, frozen=True):
    """A predicate over the values of a call, and the numbers that stand for the operands in `numbers`."""

    sentence: str
    source: str
    broken_by: Mapping[str, Any]
    holds: Callable[..., bool]
    hint: str = ""
    numbers: tuple[str, ...] = ()
    name: str = ""  # as of `Rule`


def call_rule(
    sentence: str, *, source: str = "", broken_by: Mapping[str, Any], hint: str = "",
    numbers: Sequence[str] = (),
) -> Callable[[Callable[..., bool]], CallRule]:  # fmt: skip
    """Make the decorated predicate `(form, values by name)` a rule that every call is held to."""
    return lambda holds: CallRule(sentence, source, broken_by, holds, hint, tuple(numbers))


R = TypeVar("R", Rule, CallRule)


def _declared(name: str, rule: R, page: str) -> R:
    """A rule with its name, whose source names the page of its instruction where it leaves that out."""
    source = page + rule.source if rule.source[:2] in ("", ", ") else rule.source
    return replace(rule, name=name, source=source)


class Instruction:
    """Base of every declaration. A subclass declares; an instance is a form.

    Subclasses define `compute(self, <operands>, <values>)`, in declared order, arrays or None or numbers,
    which writes the written operands in place and rounds once; and `cost(self) -> list[Step]`.
    """

    name: ClassVar[str]
    # the module of `nki` that has it
    module: ClassVar[str] = "isa"
    source: ClassVar[str]  # its page; that of its name where a declaration says nothing
    example: ClassVar[Example]
    engines: ClassVar[tuple[str, ...]]
    limits: ClassVar[tuple[Limit, ...]] = ()
    # what the smallest legal use needs beyond 16 along each axis and the defaults, written as in `broken_by`
    smallest: ClassVar[Mapping[str, Any]] = {}
    operands: ClassVar[dict[str, Operand]]
    attributes: ClassVar[dict[str, Attribute]]
    values: ClassVar[dict[str, Value]]
    parameters: ClassVar[tuple[str, ...]]
    rules: ClassVar[tuple[Rule, ...]]
    call_rules: ClassVar[tuple[CallRule, ...]]
    # position of the first written operand
    result_slot: ClassVar[int]
    # name of the last operand if it is a list of tiles
    list_name: ClassVar[str]
    # whether `resolve` is overridden
    resolves: ClassVar[bool]
    # a register file that `compute` gets after its values: "scalar" or "vector". Such a `compute` may return
    # a sentence, of which the user is warned
    registers: ClassVar[str] = ""
    # whether `written_part` or `written_where` is overridden
    keeps: ClassVar[bool]
    # whether writes to PSUM belong to an accumulation group instead of ending one
    accumulates: ClassVar[bool] = False
    # along which axis a result depends on other elements of an operand with the same axes: "P", "F" or none
    mixes: Literal["", "F", "P"] = ""
    # the operand whose elements decide where the result is written, as `written_where` has it
    decided_by: ClassVar[str] = ""

    def __init_subclass__(cls, *, is_abstract: bool = False) -> None:
        if is_abstract:
            return
        own, bases = vars(cls), cls.__mro__[1:-2]
        shared = {k: v for base in bases for k, v in vars(base).items() if k not in own}
        # what abstract bases say stands behind a declaration's own operands and attributes, before its values
        body = {k: v for k, v in own.items() if not (shared and isinstance(v, Value))} | shared | own
        # python -OO leaves docstrings out
        parts = {"docstring": "__doc__"} if sys.flags.optimize < 2 else {}
        parts |= {p: p for p in ("example", "compute", "cost", "engines")}
        missing = [part for part, key in parts.items() if not body.get(key)]
        if missing:
            raise TypeError(f"{cls.__name__} declares no {', '.join(missing)}")
        cls.name = "".join("_" + c.lower() if c.isupper() else c for c in cls.__name__).lstrip("_")
        cls.source = body.get("source", f"nki.{cls.module}.{cls.name}")
        cls.operands = {k: v for k, v in body.items() if isinstance(v, Operand)}
        cls.attributes = {k: v for k, v in body.items() if isinstance(v, Attribute)}
        cls.values = {k: v for k, v in body.items() if isinstance(v, Value)}
        cls.rules = tuple(_declared(k, v, cls.source) for k, v in body.items() if isinstance(v, Rule))
        cls.call_rules = tuple(
            _declared(k, v, cls.source) for k, v in body.items() if isinstance(v, CallRule)
        )
        has_partitions = any("P" in spec.axes for spec in cls.operands.values())
        if has_partitions and all(limit.axis != "P" for limit in cls.limits):
            cls.limits = (PARTITIONS, *cls.limits)
        cls.resolves = "resolve" in body
        cls.keeps = "written_part" in body or "written_where" in body
        cls.result_slot = next(i for i, spec in enumerate(cls.operands.values()) if spec.is_written)
        cls.list_name = next((k for k, spec in cls.operands.items() if spec.most), "")
        hidden = {k for k, v in cls.operands.items() if v.memories == (REGISTERS,)}
        members = [k for k, v in body.items() if isinstance(v, Operand | Attribute | Value)]
        cls.parameters = tuple(k for k in members if k not in hidden)
        REGISTRY[cls.name] = cls

    def __init__(self, machine: Machine, layouts: Sequence[Any], attributes: Sequence[Any]) -> None:
        """Check one use of the instruction.

        Args:
            machine: the chip.
            layouts: per operand its Layout, NUMBER or None.
            attributes: per attribute its canonical value.

        Raises:
            LimitError: if a size is over what the machine holds.
            RuleError: if operands and attributes may not go together.
        """
        self.machine = machine
        self.sizes: dict[str, int] = {}
        self.layouts = tuple(layouts)
        self.attribute_values = tuple(attributes)
        if self.list_name:
            self._name_list(len(layouts))
        vars(self).update(zip(self.operands, layouts, strict=True))
        vars(self).update(zip(self.attributes, attributes, strict=True))
        for (name, spec), layout in zip(self.operands.items(), layouts, strict=True):
            self._check_operand(name, spec, layout)
        self._check_limits()
        for r in self.rules:
            if not r.holds(self):
                raise RuleError(r.sentence, hint=r.hint, source=r.source, key=r.key)
        self.steps = slowed(machine, dict(zip(self.operands, layouts, strict=True)), self.cost())
        specs = list(self.operands.values())
        self.view_slots = tuple(i for i, layout in enumerate(layouts) if isinstance(layout, Layout))
        self.number_slots = tuple(i for i, layout in enumerate(layouts) if layout is NUMBER)
        self.has_views_only = len(self.view_slots) == len(specs)
        self.written_slots = tuple(i for i in self.view_slots if specs[i].is_written)
        self.read_slots = tuple(i for i in self.view_slots if not specs[i].is_written)
        self.psum_slots = tuple(i for i in self.written_slots if layouts[i].memory == PSUM)
        self.is_indirect = any(layouts[i].indices for i in self.view_slots)
        # whether a call on shapes alone looks at nothing but the form: no values, no rule or state of a call,
        # and whether what it writes may be written
        self.is_plain = (
            self.has_views_only
            and len(self.written_slots) == 1
            and not (self.is_indirect or self.values or self.call_rules or self.resolves or self.psum_slots)
        )
        self.largest = max((layouts[i].size for i in self.view_slots), default=0)
        self._mix_sums()
        # whether unwritten elements come out as unwritten ones of the results: nothing else depends on them
        self.hands_on = (
            self.mixes != "P"
            and bool(self.written_slots)
            and all(layouts[i].memory in ON_CHIP for i in self.view_slots)
        )

    def _mix_sums(self) -> None:
        """Count a sum in registers as one more result along F; what it is added to, nobody knows."""
        if self.registers in ("scalar", "vector"):
            command = getattr(self, "reduce_cmd", "reset_reduce")
            self.mixes = {"idle": self.mixes, "reset": self.mixes, "reduce": "P"}.get(command, "F")

    def tile_slots(self) -> Iterator[tuple[str, Operand, Layout]]:
        """Every tile that a row of this form names: its operands, then the indices of their addresses."""
        operands = zip(self.operands.items(), self.layouts, strict=True)
        named = [(name, spec, layout) for (name, spec), layout in operands if isinstance(layout, Layout)]
        yield from named
        for name, _, layout in named:
            yield from ((f"{name}.index", _INDEX, index.layout) for index in layout.indices)

    def _name_list(self, count: int) -> None:
        """Give this form one operand per tile of the list, and the layouts of all under its name."""
        vars(self)["operands"] = self.slots(count)
        tiles, most = self.layouts[len(type(self).operands) - 1 :], type(self).operands[self.list_name].most
        if not 1 <= len(tiles) <= most:
            problem = f"{self.list_name} holds {len(tiles)} tiles; it must hold 1 to {most}"
            raise RuleError(problem, source=self.source)
        vars(self)[self.list_name] = tiles

    @classmethod
    def slots(cls, count: int) -> dict[str, Operand]:
        """The operands of a call with `count` of them by name: those of a list are called name[k]."""
        if not cls.list_name:
            return cls.operands
        *fixed, last = cls.operands.values()
        names = [*list(cls.operands)[:-1], *(f"{cls.list_name}[{k}]" for k in range(count - len(fixed)))]
        return dict(zip(names, [*fixed, *[last] * (count - len(fixed))], strict=True))

    def _check_operand(self, name: str, spec: Operand, layout: Any) -> None:
        def need(ok: bool, got: object, allowed: str, key: str = "", hint: str = "") -> None:
            if not ok:
                problem = f"{name} is {got}; it must be {allowed}"
                raise RuleError(problem, source=self.source, key=key, hint=hint)

        if layout is None:
            need(spec.is_optional, "missing", f"[{', '.join(spec.axes)}]")
            return
        if layout is NUMBER:
            need(spec.may_be_number, "a number", f"a tile [{', '.join(spec.axes)}]")
            return
        allowed = " or ".join(spec.memories)
        need(layout.memory in spec.memories, f"in {layout.memory}", f"in {allowed}", "err_unsupported_memory",
             _MOVES.get((layout.memory, spec.memories[0]), ""))  # fmt: skip
        need(layout.dtype.name in spec.dtypes, layout.dtype, " or ".join(spec.dtypes))
        need(spec.takes_rows or not layout.is_gathered, f"{layout}, which indices choose", "at fixed rows",
             hint="gather the rows to a tile with dma_copy first")  # fmt: skip
        if spec.axes == ("*",):
            return
        axis = layout.partition_axis
        need(axis in (0, None), f"{list(layout.shape)} with its partitions along axis {axis}",
             "a tile whose first axis is the partition", "err_failed_to_infer_tile_from_local_tensor",
             "index the block dimensions before the partition axis")  # fmt: skip
        for name_of_axis, size in zip(spec.axes, sizes_along(layout, spec.axes), strict=True):
            known = int(name_of_axis) if name_of_axis.isdigit() else self.sizes.setdefault(name_of_axis, size)
            if size == known:
                continue
            if name_of_axis == "P":
                raise RuleError(
                    f"{name} has {size} partitions; the operands before it have {known}",
                    source=self.source, key="err_num_partition_mismatch",
                    hint="repeat the row on all partitions first, by nl.broadcast_to" if size == 1 else "",
                )  # fmt: skip
            is_named = known != 1 and not name_of_axis.isdigit()
            word = name_of_axis.rstrip("*") if is_named else "the free axes"
            if name_of_axis.isdigit() and spec.axes[-1] != name_of_axis:
                word = f"axis {spec.axes.index(name_of_axis)}"
            as_before = "" if name_of_axis.isdigit() else ", as in the operands before it"
            need(False, f"{size} along {word}", f"{known}{as_before}")

    def _check_limits(self) -> None:
        machine = self.machine
        for limit in self.limits:
            size, most = self.sizes.get(limit.axis, 0), machine.limit(limit.constant)
            if size > most:
                words = limit.constant.replace("_", " ")
                raise LimitError(
                    f"{limit.axis.rstrip('*')} is {size}; {machine.name} allows {most} ({words})",
                    hint=limit.hint_for(most), source=limit.source, key=limit.key,
                )  # fmt: skip
        for (name, _), layout in zip(self.operands.items(), self.layouts, strict=True):
            if isinstance(layout, Layout) and layout.is_on_chip and self.engines[0] != "dma":
                self._check_partitions(name, layout)

    def _check_partitions(self, name: str, layout: Layout) -> None:
        start, count = layout.start_partition, layout.partitions
        step = partition_step(count)
        if start % step:
            *places, last = map(str, range(0, self.machine.limit("partitions"), step))
            allowed = f"{', '.join(places)} or {last}" if places else last
            raise RuleError(
                f"{name} starts at partition {start} with {count} partitions; it must start at {allowed}",
                hint="copy the rows to a tile of their own with dma_copy, or choose another split",
                source="trn1 architecture guide, start partition", key="NCC_INLA001",
            )  # fmt: skip

    # writes the results of one call into the written operands
    compute: ClassVar[Callable[..., Any]]

    def cost(self) -> list[Step]:
        """The steps of one call on idle engines."""
        raise NotImplementedError

    @classmethod
    def resolve(cls, form: Any, views: Sequence[Any], values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Values as the row holds them; overridden where they depend on the state of the operands."""
        return values

    @classmethod
    def reads_result(cls, values: tuple[Any, ...]) -> bool:
        """Whether a call with these values also reads what it writes."""
        return False

    @property
    def is_plain_copy(self) -> bool:
        """Whether a call does nothing but copy its second operand to its first, bit for bit."""
        return False

    @cached_property
    def is_direct(self) -> bool:
        """Whether a call on data does nothing but compute: no state of the launch bears on it."""
        return not (self.is_indirect or self.is_plain_copy or self.keeps or self.registers)

    @property
    def factors(self) -> tuple[DType, DType] | None:
        """Types of left, [K, M], and right, [K, N], if a call makes left.T @ right and no more.

        It writes the product to its float32[M, N], or adds it.
        """
        return None

    @property
    def reads_dst(self) -> bool:
        """Whether every call of this form also reads what it writes, or leaves part of it as it was."""
        return False

    def where_read(self, is_written: Any) -> Any:
        """Where the first result gets elements of a source; those in `is_written`, [*shape], exist."""
        layouts: Any = self.layouts
        return is_written.reshape(layouts[self.written_slots[0]].shape)

    @property
    def written_part(self) -> Any:
        """Booleans, broadcastable over the first result, of what a call writes of it; None for all."""
        return None

    def written_where(self, *operands: Any) -> Any:
        """The same where it depends on the elements of the operands, before they are computed on."""
        return self.written_part

    def used_elements(self, *arguments: Argument) -> UsedElements:
        """Per operand of which a call, by its arguments of `compute`, leaves elements out: those it uses."""
        return {}

    @classmethod
    def fresh(cls, layouts: Mapping[str, Any], attributes: Mapping[str, Any]) -> Fresh:
        """The result that a value-returning call creates where nothing else is said.

        Same shape as the first operand with the same axes; the promoted type of all tile inputs of that
        shape; the first memory that the declaration allows.
        """
        out = next(spec for spec in cls.operands.values() if spec.is_written)
        same = [v for k, v in layouts.items() if isinstance(v, Layout) and cls.operands[k].axes == out.axes]
        dtype = same[0].dtype
        for other in same[1:]:
            dtype = promoted(dtype, other.dtype)
        return Fresh(same[0].shape, dtype, out.memories[0])


_INDEX = Operand(("*",), ("sbuf", SEQUENCER), INTEGERS)

_MOVES = {
    ("hbm", "sbuf"): "load it to sbuf first",
    ("psum", "sbuf"): "copy it to sbuf first, with tensor_copy",
    ("sbuf", "psum"): "allocate it with buffer=nl.psum",
}
