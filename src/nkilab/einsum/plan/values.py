"""Values of a tile and the instructions that compute them: fused where one instruction has both operators.

A value is a view, a number, or an operator over values that no instruction has computed yet. `into` writes a
value where it is wanted with the fewest instructions that the patterns know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from ..language.operators import OPERATORS, taken_apart
from ..tree import nodes
from ..tree.expr import ZERO, Expr
from ..tree.nodes import At, Buffer, Number, View, upto
from .context import Context, part_of

# operators in a row that wait for the instruction behind them: then what is there is computed
DEEPEST = 32


@dataclass(eq=False)
class Value:
    """A value of the present tile."""

    view: View | None = None  # where it lies; None if it is not computed yet
    number: Number | None = None  # a number or the name of a scalar, the same everywhere; None if it is none
    op: str = ""  # operator that computes it; ""
    of: tuple[Value, ...] = ()  # its operands
    uses: int = 0  # how many operators read it; more than one keeps it in a tile of its own
    is_column: bool = False  # whether it has one element per partition where the tile has more
    place: Callable[[], View] | None = field(default=None, repr=False)  # makes the tile that keeps it
    is_activation: bool = False  # whether ScalarE is given for it, where another engine is taken otherwise
    depth: int = 0  # operators in a row that instructions have yet to compute

    @property
    def is_pending(self) -> bool:
        """Whether it is an operator that may be fused into the one that reads it."""
        return self.view is None and bool(self.op) and self.uses <= 1

    @property
    def is_pending_op(self) -> bool:
        """Whether an instruction has yet to compute it."""
        return self.view is None and bool(self.op)

    def inside(self, is_pending: bool = False) -> Iterable[Value]:
        """All values that it is computed of; or those alone that are not yet read for it."""
        inner, left = dict[int, Value](), [self]
        while left:
            value = left.pop()
            own = () if is_pending and value.view is not None else value.of
            left += (new := {id(v): v for v in own if id(v) not in inner}).values()
            inner |= new
        return inner.values()

    @property
    def is_scalar(self) -> bool:
        """Whether it is a number, or a column of one element per partition."""
        return self.number is not None or self.is_column


class Tile:
    """Emits the instructions of one tile.

    Args:
        ctx: the plan.
        new: makes a tile of the present size, of float32 or of the type that stands behind its name.
        new_column: makes a column [P, 1].
        is_narrow: whether the tile has one column, so that every value is one.
    """

    def __init__(
        self, ctx: Context, new: Callable[..., View], new_column: Callable[..., View],
        is_narrow: bool = False,
    ) -> None:  # fmt: skip
        self.ctx, self.new, self.new_column, self.is_narrow = ctx, new, new_column, is_narrow
        self.engine = ""

    def add(self, statement: nodes.Statement) -> None:
        self.ctx.build.add(statement)

    def operator(self, name: str, operands: list[Value]) -> Value:
        """The value of an operator of the language; those of several steps are taken apart."""
        op = OPERATORS[name]
        if op.steps:
            return taken_apart(op, operands, self.operator, lambda number: Value(number=number))
        value = operands[0]
        if op.arity:
            return self.node(name, tuple(operands))
        for operand in operands[1:]:
            value = self.node(name, (value, operand))
        return value

    def node(self, op: str, of: tuple[Value, ...]) -> Value:
        """An operator over values, not computed yet."""
        for value in dict.fromkeys(of):
            value.uses += 1
        for value in (v for v in of if v.depth >= DEEPEST and v.is_pending_op):
            self.view(value)
        is_column = all(v.is_scalar for v in of) and any(v.is_column for v in of)
        depth = 1 + max((v.depth for v in of if v.is_pending_op), default=0)
        return Value(op=op, of=of, is_column=is_column, depth=depth)

    def view(self, value: Value) -> View:
        """Where a value lies; computed into a tile of its own if it lies nowhere yet."""
        if value.view is None:
            made = value.place() if value.place else (self.new_column if value.is_column else self.new)("t")
            self.into(value, made)
            value.view = made
        return value.view

    def scalar(self, value: Value) -> Number:
        """A value as the operand of an instruction with one number per partition."""
        return value.number if value.number is not None else self.view(value)

    def into(self, value: Value, dst: View) -> None:
        """Write a value to a view."""
        if value.view is not None:
            if value.view != dst:
                in_sbuf = nodes.PSUM not in (dst.buffer.memory, value.view.buffer.memory)
                self.add(nodes.Copy(dst, value.view, self.engine if in_sbuf else ""))
        elif value.number is not None:
            self.fill(dst, value.number)
        elif OPERATORS[value.op].arity == 1:
            self.unary(value, dst)
        elif OPERATORS[value.op].arity == 3:
            self.chosen(value, dst)
        else:
            self.binary(value, dst)

    def fill(self, dst: View, number: Number) -> None:
        """A number, or the value of a scalar parameter, everywhere."""
        if isinstance(number, str):
            self.add(nodes.Fill(dst, 1.0))
            self.add(nodes.Scale(dst, dst, "multiply", number))
        else:
            assert isinstance(number, float | int)
            self.add(nodes.Fill(dst, float(number)))

    def unary(self, value: Value, dst: View, total: View | None = None) -> None:
        """A function of one value: its argument's scale and bias go along."""
        (of,) = value.of
        if value.op == "reciprocal" and total is None and not value.is_activation:
            self.add(nodes.Invert(dst, self.view(of)))
            return
        argument, scale, bias = self.argument(of)
        src, function = self.view(argument), OPERATORS[value.op].activation
        is_alone = (function, scale, bias, total, value.is_activation) == ("square", 1.0, None, None, False)
        if is_alone and self.ctx.build.depth and nodes.PSUM not in (src.buffer.memory, dst.buffer.memory):
            # the engine that has time is found over the finished loop
            self.add(nodes.Combine(dst, src, "multiply", src))
        else:
            self.add(nodes.Activate(dst, function, src, scale, bias, total))

    def argument(self, value: Value) -> tuple[Value, Number, View | None]:
        """An argument of ScalarE's functions as (value, scale, bias): value * scale + bias."""
        as_it_is = (value, 1.0, None)
        if not value.is_pending or len(value.of) != 2:
            return as_it_is
        left, right = value.of
        if value.op == "multiply" and left.is_scalar != right.is_scalar:
            factor, other = (left, right) if left.is_scalar else (right, left)
            within = _with_scalar(other) if other.is_pending and other.op == "multiply" else None
            if within is not None and not any(isinstance(s.number, str) for s in (factor, within[1])):
                # the product of what both scale with is a number, or a column
                other, factor = within[0], self.scalars(factor, within[1])
            return as_it_is if not self.is_scale(factor) else (other, self.scalar(factor), None)
        # one element per partition, that lies somewhere or can
        is_bias = right.is_column or (self.is_narrow and right.number is None)
        if value.op == "add" and left.is_column and not right.is_scalar:
            left, right, is_bias = right, left, True
        if value.op not in ("add", "subtract") or not is_bias or left.is_scalar:
            return as_it_is
        is_product = left.is_pending and left.op == "multiply"
        data, factor, _ = (is_product and _with_scalar(left)) or (left, Value(number=1.0), False)
        data, factor = (data, factor) if self.is_scale(factor) else (left, Value(number=1.0))
        return data, self.scalar(factor), self.view(right) if value.op == "add" else self.negated(right)

    def scalars(self, first: Value, second: Value) -> Value:
        """The product of two scalars of a tile: a number, or a column that is computed now."""
        if isinstance(first.number, float | int) and isinstance(second.number, float | int):
            return Value(number=first.number * second.number)
        product = self.node("multiply", (first, second))
        self.view(product)
        return product

    def is_scale(self, value: Value) -> bool:
        """Whether ScalarE may multiply with a value: a number, or a float32 column in SBUF."""
        if value.view is None:
            return value.number is not None
        return value.view.buffer.memory == nodes.SBUF and value.view.buffer.dtype == "float32"

    def negated(self, column: Value) -> View:
        """Minus a column; computed once as long as the column stays."""
        source = self.view(column)
        if (known := self.of_all(source, "negated", "float32", self.negation)) is not None:
            return known
        key = ("negated", source, self.ctx.version_of(source))
        cache = self.ctx.build.scopes[-1].cache
        if key not in cache:
            cache[key] = self.new_column("negated")
            self.add(self.negation(cache[key], source))
        made: View = cache[key]
        return made

    def negation(self, dst: View, src: View) -> nodes.Statement:
        """Minus a few columns, on GpSimdE, which has time where VectorE and ScalarE have none.

        ScalarE does it for what lies in PSUM, which GpSimdE does not read, and where a kernel has no head for
        the zeros that GpSimdE subtracts from.
        """
        columns = src.cuts[-1].count.value
        has_no_head = self.ctx.build.depth and self.ctx.build.scopes[0].opened is None
        is_far = src.buffer.memory == nodes.PSUM or len(src.cuts) > 2
        if is_far or columns is None or columns > self.ctx.lanes or has_no_head:
            return nodes.Activate(dst, "copy", src, -1.0)
        zeros = part_of(self.ctx.constant(0.0), src.cuts[0].count, columns)
        return nodes.Combine(dst, zeros, "subtract", src, "gpsimd")

    def of_all(
        self, view: View, what: str, dtype: str, compute: Callable[[View, View], nodes.Statement]
    ) -> View | None:
        """A part of what is computed at once of all that loops around hold; None where they write it."""
        build, buffer = self.ctx.build, view.buffer
        depth, is_whole = build.depth_of(frozenset({buffer.name})), view.index[0] == upto(buffer.shape[0])
        is_held = depth < build.depth and is_whole and buffer.memory == nodes.SBUF
        if not is_held or self.is_written_since(view, depth):
            return None

        def made() -> Buffer:
            new = build.buffer(what, buffer.shape, dtype, nodes.SBUF)
            ones = [At(ZERO) if n > 1 and e == 1 else upto(e) for n, e in enumerate(buffer.shape)]
            self.add(compute(*(View(b, tuple(ones)) for b in (new, buffer))))
            return new

        held = build.once((what, buffer, self.ctx.version_of(view)), depth, made)
        return replace(view, buffer=held)

    def is_written_since(self, view: View, depth: int) -> bool:
        """Whether the loops that are open inside of a depth write what a view lies in."""
        inside = (s for scope in self.ctx.build.scopes[depth + 1 :] for s in nodes.statements(scope.body))
        return any(getattr(s, name, None) is not None and getattr(s, name).buffer is view.buffer
                   for s in inside for name in ("dst", "total"))  # fmt: skip

    def in_sbuf(self, view: View) -> View:
        """A view that GpSimdE reads, or that may stand beside another in PSUM."""
        if view.buffer.memory != nodes.PSUM:
            return view
        made = self.new("t")
        self.add(nodes.Copy(made, view))
        return made

    def binary(self, value: Value, dst: View) -> None:
        """An operator of two values, with the one before it where an instruction takes both."""
        left, right = value.of
        op, is_commutative = OPERATORS[value.op].alu, OPERATORS[value.op].is_commutative
        if value.op == "multiply" and self.is_silu(left, right, dst):
            return
        if left.number is not None and right.number is not None:
            self.fill(dst, left.number)
            self.add(nodes.Scale(dst, dst, op, right.number))
        elif right.number is not None or (right.is_column and not left.is_scalar):
            self.scaled(left, op, right, False, dst)
        elif left.number is not None or (left.is_column and not right.is_scalar):
            self.scaled(right, op, left, not is_commutative, dst)
        elif not any(self.is_scale_combine(*way) for way in self.ways(left, right, op, dst, is_commutative)):
            first, second = self.view(left), self.view(right)
            if first.buffer.memory == nodes.PSUM and (second.buffer.memory == nodes.PSUM or op == "power"):
                first = self.in_sbuf(first)
            second = second if op != "power" else self.in_sbuf(second)
            in_sbuf = nodes.PSUM not in (first.buffer.memory, second.buffer.memory, dst.buffer.memory)
            self.add(nodes.Combine(dst, first, op, second, self.engine if in_sbuf else ""))

    def ways(
        self, left: Value, right: Value, op: str, dst: View, is_commutative: bool
    ) -> list[tuple[Value, str, Value, bool, View, bool]]:
        """How one instruction may take an operator with the one before it: first what ScalarE cannot."""
        ways = [(left, op, right, False, dst, False), (right, op, left, True, dst, is_commutative)]
        before = [_with_scalar(v) if v.is_pending and len(v.of) == 2 else None for v in (left, right)]
        is_scale = [pair is not None and self.is_scale(pair[1]) for pair in before]
        return ways[::-1] if all(before) and is_scale == [True, False] else ways

    def chosen(self, value: Value, dst: View) -> None:
        """The second of three values where the first is not zero, and the third elsewhere."""
        new, (truth, right, left) = self.new_column if value.is_column else self.new, value.of

        def along(one: View, is_column: bool) -> View:
            """A column, seen along all columns."""
            if value.is_column or not is_column:
                return one
            points = (At(i.start) if isinstance(i, nodes.Cut) else i for i in one.index[1:])
            order: tuple[int | Expr, ...] = (0, *(cut.count for cut in dst.cuts[1:]))
            return replace(one, index=(one.index[0], *points), order=order)

        predicate = along(self.predicate(truth, value.is_column), truth.is_column)
        is_reversed = right.is_scalar and not left.is_scalar
        src, other = (left, right) if is_reversed else (right, left)
        if src.number is not None:
            src = Value(number=src.number, place=lambda: new("chosen"))
        over, is_one = along(self.view(src), src.is_column), is_reversed or other.is_scalar
        if over.buffer.dtype != "float32" and not (is_one and "int32" not in over.buffer.dtype):
            # two tiles have one type, and no whole number stands beside another
            self.add(nodes.Copy(source := new("chosen"), over))
            over = source
        if is_one:
            self.add(nodes.Choose(dst, over, predicate, self.scalar(other), is_reversed))
            return
        is_there = (dst.buffer.dtype, dst.buffer.memory) == ("float32", nodes.SBUF)
        chosen = dst if is_there and over.buffer is not dst.buffer else new("chosen")
        self.into(other, chosen)
        # what lies there may be another turn's
        before = other.view if other.view == chosen else chosen
        self.add(nodes.Choose(chosen, over, predicate, left=before))
        self.into(Value(view=chosen), dst)

    def predicate(self, truth: Value, is_column: bool) -> View:
        """Whole numbers that are not zero where a value is not."""
        known = truth.view and self.of_all(
            truth.view, "truth", "uint8", lambda new, old: nodes.Scale(new, old, "not_equal", 0.0)
        )
        if known is not None:
            return known
        new = self.new_column if is_column or truth.is_column else self.new
        if not truth.op or not OPERATORS[truth.op].is_truth:
            truth = self.node("not_equal", (truth, Value(number=0.0)))
        self.into(truth, place := new("truth", "uint8"))
        return place

    def widened(self, value: Value) -> Value:
        """A number or a column along all columns of the tile."""
        place = self.new("t")
        self.fill(place, value.number if value.number is not None else 0.0)
        if value.number is None:
            self.add(nodes.Scale(place, place, "add", self.scalar(value)))
        return Value(view=place)

    def is_silu(self, left: Value, right: Value, dst: View) -> bool:
        """x * sigmoid(x) is one function of ScalarE."""
        for x, s in ((left, right), (right, left)):
            if s.is_pending and s.op == "sigmoid" and s.of[0] is x and not x.is_scalar:
                self.add(nodes.Activate(dst, "silu", self.view(x)))
                return True
        return False

    def scaled(self, data: Value, op: str, operand: Value, is_reversed: bool, dst: View) -> None:
        """data op operand, together with the operator before it if that has a scalar too."""
        if data.is_pending and len(data.of) == 2:
            first = _with_scalar(data)
            if first is not None:
                inner, scalar, inner_reversed = first
                before = (self.view(inner), OPERATORS[data.op].alu, self.scalar(scalar), inner_reversed)
                self.add(nodes.Scale(dst, *before, op, self.scalar(operand), is_reversed))
                return
        self.add(nodes.Scale(dst, self.view(data), op, self.scalar(operand), is_reversed))

    def is_scale_combine(
        self, data: Value, op: str, other: Value, is_reversed: bool, dst: View, is_commutative: bool = False
    ) -> bool:
        """(x op0 scalar) op1 other in one instruction."""
        if not data.is_pending or len(data.of) != 2:
            return False
        first = _with_scalar(data) or (self.with_element(data) if self.is_narrow else None)
        if first is None:
            return False
        inner, scalar, inner_reversed = first
        right, left = self.view(other), self.view(inner)
        if left.buffer.memory == nodes.PSUM and right.buffer.memory == nodes.PSUM:
            right = self.in_sbuf(right)
        scale = (left, OPERATORS[data.op].alu, self.scalar(scalar))
        reverse = (inner_reversed, is_reversed and not is_commutative)
        self.add(nodes.ScaleCombine(dst, *scale, op, right, *reverse))
        return True

    def with_element(self, value: Value) -> tuple[Value, Value, bool] | None:
        """A pending operator of two columns: one of them, float32 in SBUF, is an operand per partition."""
        left, right = value.of
        for data, scalar in ((left, right), (right, left)):
            held = scalar.view
            if held is None or held.buffer.memory != nodes.SBUF or held.buffer.dtype != "float32":
                continue
            if data.view is not None or data.is_pending_op:
                return data, scalar, data is right and not OPERATORS[value.op].is_commutative
        return None

    def is_summed_along(self, value: Value) -> bool:
        """Whether the instruction that computes a value can sum its rows too."""
        return value.is_pending_op and OPERATORS[value.op].arity == 1 and value.op != "reciprocal"

    def total(self, value: Value, op: str, dst: View) -> None:
        """dst [P, 1] = op over the columns of a value."""
        is_square = value.op == "multiply" and value.of[0] is value.of[1]
        if op != "add" or not value.is_pending or not (is_square or self.is_summed_along(value)):
            self.add(nodes.Reduce(dst, OPERATORS[op].alu, self.view(value)))
            return
        held = value.place() if value.place else self.new("t")
        if is_square:
            self.add(nodes.Activate(held, "square", self.view(value.of[0]), total=dst))
        else:
            self.unary(value, held, dst)
        value.view = held


def _with_scalar(value: Value) -> tuple[Value, Value, bool] | None:
    """A pending operator of a tile and a scalar as (tile, scalar, whether the scalar stands first)."""
    left, right = value.of
    if right.is_scalar and not left.is_scalar:
        return left, right, False
    if left.is_scalar and not right.is_scalar:
        return right, left, not OPERATORS[value.op].is_commutative
    return None
