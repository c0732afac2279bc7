"""What both spellings share: lines, subscripts, numbers, the head of the kernel."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from math import prod
from textwrap import wrap

from ...isa.declare import Instruction
from ..tree import nodes
from ..tree.expr import ZERO, Whole, expr
from ..tree.instructions import instruction_of

LONGEST = 100


def number(value: float) -> str:
    """A Python literal of a number."""
    if value in (float("inf"), float("-inf")):
        return f'float("{value}")'
    return repr(float(value))


class Printer(ABC):
    """Prints one kernel; a spelling says how its statements are written."""

    imports: tuple[str, ...] = ()

    def __init__(self, kernel: nodes.Kernel) -> None:
        self.kernel, self.depth = kernel, 0
        self.lines, self.outputs = list[str](), set[str]()

    def text(self) -> str:
        """The module that holds the kernel."""
        kernel = self.kernel
        self.lines = [f'"""{kernel.title}"""', "", *self.imports, *self.constants(), "", "", "@nki.jit"]
        scalars = [f"{a.name}={number(a.value)}" for a in kernel.arguments if a.value is not None]
        tensors = [a.name for a in kernel.arguments if a.value is None]
        self.call(f"def {kernel.name}", [*tensors, *kernel.parameters, *scalars], ":")
        self.depth = 1
        self.head()
        self.body(kernel.body)
        self.put(f"return {', '.join((b.base or b).name for b in kernel.outputs)}")
        return "\n".join(self.lines) + "\n"

    def constants(self) -> list[str]:
        """The names of numbers, at the top, where people and `nkilab tune` turn them."""
        return [
            line
            for what, values in self.kernel.constants
            for line in ("", f"# {what}", *(f"{name} = {value}" for name, value in values.items()))
        ]

    def head(self) -> None:
        """What holds of the arguments."""
        for claim in self.kernel.asserts:
            self.put(f"assert {claim}")
        for argument in (a for a in self.kernel.arguments if a.value is None):
            shape, declared = argument.shape or (1,), argument.declared or argument.shape or (1,)
            if not argument.is_packed:
                self.put(f"assert {argument.name}.shape == {self.shape(declared)}")
            if shape != declared or argument.is_packed:
                self.put(f"{argument.name} = {argument.name}.reshape({self.shape(shape)})")

    def put(self, text: str) -> None:
        """A line at the present depth, broken inside its last call where it is long."""
        self.lines += broken(text, "    " * self.depth)

    def call(self, head: str, arguments: list[str], tail: str = "") -> None:
        """A call."""
        self.put(f"{head}({', '.join(arguments)}){tail}")

    def shape(self, shape: tuple[Whole, ...]) -> str:
        """A tuple of extents."""
        return f"({', '.join(str(expr(s)) for s in shape)}{',' if len(shape) == 1 else ''})"

    def body(self, body: list[nodes.Statement]) -> None:
        """Statements in order; what is told of them stands above the tiles that they make."""
        for statement in comments_first(body):
            if isinstance(statement, nodes.Loop):
                self.loop(statement)
            elif isinstance(statement, nodes.Comment):
                self.comment(statement.text)
            elif isinstance(statement, nodes.Tally):
                continue
            elif isinstance(statement, nodes.Alloc):
                self.made_or_viewed(statement.buffer)
            else:
                self.statement(statement)

    def made_or_viewed(self, buffer: nodes.Buffer) -> None:
        """A new buffer, and the view that it is."""
        base = buffer.root
        if base is buffer or (base.role == "output" and base.name not in self.outputs):
            self.put(f"{base.name} = {self.made(base)}")
            self.outputs.add(base.name)
        if base is not buffer and not buffer.window:
            self.put(f"{buffer.name} = {base.name}.reshape({self.shape(buffer.shape)})")

    def comment(self, text: str) -> None:
        """A comment; an Einsum per line where it has several, as many names as fit."""
        parts = re.split(r"(?<!;); ", text)
        room = LONGEST - 4 * self.depth - 2
        lines = [text] if len(text) <= room else parts if "=" in text else wrap(text, room)
        for line in lines:
            self.put(f"# {line}")

    def loop(self, loop: nodes.Loop) -> None:
        """A loop with its comment and the count of its ragged tiles."""
        if loop.comment:
            self.comment(loop.comment)
        self.put(f"for {loop.variable} in {self.range(loop)}:")
        self.depth += 1
        if loop.count_name:
            self.put(f"{loop.count_name} = {loop.count}")
        self.body(loop.body)
        self.depth -= 1

    @abstractmethod
    def range(self, loop: nodes.Loop) -> str:
        """What a loop runs over."""

    @abstractmethod
    def made(self, buffer: nodes.Buffer) -> str:
        """The call that makes a buffer."""

    @abstractmethod
    def statement(self, statement: nodes.Statement) -> None:
        """One tile statement."""

    def subscript(self, view: nodes.View) -> list[str]:
        """Slices and positions of a view."""
        shape = view.buffer.shape or (1,)
        shape = (1,) * (len(view.index) - len(shape)) + shape
        return [self.one(i, extent) for i, extent in zip(view.index, shape, strict=True)]

    def one(self, index: nodes.At | nodes.Cut, extent: Whole) -> str:
        """A position, all of an axis, or a part of it by its start and count, or by start:stop:step."""
        if isinstance(index, nodes.At):
            return str(index.at)
        stop = index.start + (index.count - 1) * index.step + 1
        if index.step != 1:
            return f"{index.start}:{stop}:{index.step}"
        if index.start == ZERO:
            return ":" if index.count == expr(extent) else f"0:{stop}"
        if index.start.value is not None and stop.value is not None:
            return f"{index.start}:{stop}"
        return f"nl.ds({index.start}, {index.count})"

    def view(self, view: nodes.View) -> str:
        """A part of a buffer that needs no turning; all of it by its name."""
        index = self.subscript(view)
        return self.base(view) if set(index) == {":"} else f"{self.base(view)}[{', '.join(index)}]"

    def base(self, view: nodes.View) -> str:
        """The buffer of a view, with an axis of one in front where the index has one more."""
        name, shape = view.buffer.name, view.buffer.shape or (1,)
        return name if len(view.index) == len(shape) else f"{name}.reshape({self.shape((1, *shape))})"

    def operand(self, value: nodes.Number) -> str:
        """A number, the name of a scalar or a column."""
        if isinstance(value, nodes.View):
            return self.view(value)
        return value if isinstance(value, str) else number(value)

    def arguments(self, statement: nodes.Statement) -> tuple[str, dict[str, str]]:
        """The instruction of a statement, and what it is given by name."""
        call = instruction_of(statement)
        assert call is not None, f"{type(statement).__name__} has no spelling"
        instruction, values = call
        return instruction.name, {name: self.argument(instruction, name, v) for name, v in values.items()}

    def argument(self, instruction: type[Instruction], name: str, value: object) -> str:
        """What an instruction is given by a name."""
        match value:
            case nodes.View():
                return self.any(value)
            case float():
                return number(value)
            case tuple() if name == "accumulate":
                return " or ".join(f"{variable} > 0" for variable in value) or "False"
            case (int(), int()):
                return str(value)
            case tuple():
                return "[" + ", ".join(f"[{step}, {count}]" for step, count in value) + "]"
            case str() if name in instruction.attributes:
                return f"nisa.{name}.{value}" if name in ("engine", "reduce_cmd") else f"nl.{value}"
        return str(value)

    def rows_of(self, gather: nodes.Gather) -> str:
        """The table of a gather, with all axes up to the one that is chosen from as one."""
        shape, name = gather.table.buffer.shape, gather.table.buffer.name
        joined = (prod(shape[: gather.axis + 1], start=expr(1)), *shape[gather.axis + 1 :])
        return f"{name}.reshape({self.shape(joined)})" if gather.axis else name

    @abstractmethod
    def hbm(self, view: nodes.View) -> str:
        """A part of an HBM tensor."""

    def any(self, view: nodes.View) -> str:
        """A part of a tensor."""
        is_plain = view.buffer.memory != nodes.HBM and not (view.order or view.has_parts)
        return self.view(view) if is_plain else self.hbm(view)

    def keywords(self, **given: str) -> list[str]:
        """Keyword arguments."""
        return [f"{name}={value}" for name, value in given.items()]


def comments_first(body: list[nodes.Statement]) -> list[nodes.Statement]:
    """Statements with comments moved before the making of tiles just above them."""
    ordered: list[nodes.Statement] = []
    for statement in body:
        place = len(ordered)
        while isinstance(statement, nodes.Comment) and place and isinstance(ordered[place - 1], nodes.Alloc):
            place -= 1
        ordered.insert(place, statement)
    return ordered


def broken(text: str, indent: str) -> list[str]:
    """A line, or several: what is between the parentheses that end it, together or one by one."""
    if len(indent) + len(text) <= LONGEST or text.startswith("#"):
        return [indent + text]
    parts = inside(text)
    if parts is None:
        return [indent + text]
    head, arguments, tail = parts
    inner = indent + "    "
    line = inner + ", ".join(arguments)
    # a comma behind the one expression that stands in parentheses would make a tuple of it
    comma = "," if len(arguments) > 1 or head[-2:-1].isidentifier() else ""
    lines = [line] if len(line) <= LONGEST else [n for a in arguments for n in broken(a + comma, inner)]
    return [indent + head, *lines, indent + tail]


def inside(text: str) -> tuple[str, list[str], str] | None:
    """A call or an assert of a tuple: what stands before its arguments, these, and what stands behind."""
    end = len(text.rstrip(":,"))
    depth, places, opened = 0, [end - 1], None
    for place in range(end - 1, -1, -1):
        depth += (text[place] in ")]") - (text[place] in "([")
        if depth == 1 and text[place] == ",":
            places.append(place)
        if depth == 0:
            opened = place
            break
    if opened is None or text[end - 1] != ")":
        return None
    ends = places[::-1]
    begins = [opened + 1, *(p + 1 for p in ends[:-1])]
    arguments = [text[a:b].strip() for a, b in zip(begins, ends, strict=True)]
    return text[: opened + 1], arguments, text[end - 1 :]
