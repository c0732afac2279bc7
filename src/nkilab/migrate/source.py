"""A user's file as a syntax tree: which of its names are NKI's. Nothing is executed."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from difflib import unified_diff
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar
from warnings import catch_warnings, simplefilter

from ..dialects.history import history
from ..errors import UsageError, reason_of

# A line of Python: what str.splitlines takes for an end besides is none.
_LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
# Characters of an expression that a message shows.
_LONG = 60
ROOTS = {"neuronxcc": "neuronxcc.nki", "nki": "nki"}
Function = ast.FunctionDef | ast.AsyncFunctionDef
N = TypeVar("N", bound=ast.AST)
# Decorators and host functions that make a function a kernel.
MAKES_KERNEL = ("jit", "trace", "baremetal", "benchmark", "profile")
# Names under which real files import NKI where an import cannot tell: inside functions of other modules.
JIT_MODULES = ("torch_neuronx", "torch_neuronx.xla_impl.ops")
_OUTSIDE = {f"{module}.nki_jit": "jit" for module in JIT_MODULES}


@dataclass(frozen=True)
class Edit:
    """Bytes of the file to replace."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Use:
    """One place where a name of NKI stands."""

    node: ast.expr
    spelling: str  # "neuronxcc" or "nki"
    name: str  # in the tables of `history`; "" for a module
    call: ast.Call | None = None  # the call that it is the function of, if it is
    function: Function | None = None  # the innermost function around it


@dataclass
class Source:
    """A file that was read."""

    path: str
    text: str
    encoding: str
    tree: ast.Module
    parents: dict[ast.AST, ast.AST] = field(init=False, repr=False)
    bindings: dict[str, str] = field(init=False, repr=False)
    # what was found out about the variables of each function
    kept: dict[Any, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.parents = {c: p for p in ast.walk(self.tree) for c in ast.iter_child_nodes(p)}
        self.bindings = dict(self._imported_names())

    @cached_property
    def lines(self) -> list[bytes]:
        """The lines in UTF-8, in which columns of the syntax tree count, with their ends."""
        return [line.encode() for line in _LINES.findall(self.text)]

    @cached_property
    def whole(self) -> bytes:
        """All lines together."""
        return b"".join(self.lines)

    @cached_property
    def starts(self) -> list[int]:
        """The byte where each line starts, and the end of the text."""
        offsets = [0]
        for line in self.lines:
            offsets.append(offsets[-1] + len(line))
        return offsets

    def span(self, node: ast.expr | ast.stmt | ast.keyword | ast.alias) -> tuple[int, int]:
        """First byte of a node, and the byte after its last."""
        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
        return (self.starts[node.lineno - 1] + node.col_offset, self.starts[end_line - 1] + end_column)

    def text_of(self, node: ast.expr | ast.stmt | ast.keyword | ast.alias) -> str:
        """The characters of a node."""
        first, last = self.span(node)
        return self.whole[first:last].decode()

    def words_of(self, node: ast.expr) -> str:
        """The same on one line, for messages; its beginning where it is long."""
        words = " ".join(self.text_of(node).split())
        return words if len(words) <= _LONG else f"{words[: _LONG - 3]}..."

    def line(self, number: int) -> str:
        """The characters of a line, without spaces around it."""
        return self.lines[number - 1].decode().strip() if number <= len(self.lines) else ""

    def dotted(self, node: ast.expr) -> str:
        """The full name that an expression of names and dots stands for, or ""."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.bindings:
            return ""
        return ".".join([self.bindings[node.id], *reversed(parts)])

    def resolve(self, node: ast.expr) -> tuple[str, str] | None:
        """Spelling and name, below `nki`, that an expression stands for."""
        return split(self.dotted(node))

    def _imported_names(self) -> Iterator[tuple[str, str]]:
        """What imports bind, the name in the file and the full one: what an except imports before its try."""
        imports = [node for node in ast.walk(self.tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        imports.sort(
            key=lambda n: sum(isinstance(a, ast.ExceptHandler) for a in self.around(n)), reverse=True
        )
        for node in imports:
            if isinstance(node, ast.Import):
                yield from map(_imported, node.names)
            elif node.module and not node.level:
                yield from _imported_from(node.module, node.names)

    def nodes(self, kind: type[N]) -> Iterator[N]:
        """The nodes of a kind, outer ones first."""
        return (node for node in ast.walk(self.tree) if isinstance(node, kind))

    @cached_property
    def functions(self) -> list[Function]:
        """The functions of the file, outer ones first."""
        return [node for node in ast.walk(self.tree) if isinstance(node, Function)]

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """What a node stands in, the innermost first."""
        parent = self.parents.get(node)
        while parent is not None:
            yield parent
            parent = self.parents.get(parent)

    def function_of(self, node: ast.AST) -> Function | None:
        """The innermost function that a node stands in."""
        return next((a for a in self.around(node) if isinstance(a, Function)), None)

    @cached_property
    def uses(self) -> list[Use]:
        """Every place where a name of NKI stands, in the order of the file."""
        uses_found = []
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.Attribute | ast.Name) or isinstance(node.ctx, ast.Store):
                continue
            parent = self.parents.get(node)
            if isinstance(parent, ast.Attribute) and self._goes_on(parent):
                continue
            resolved = self.resolve(node)
            if resolved is None or self._is_beyond(node, resolved[1]):
                continue
            call = parent if isinstance(parent, ast.Call) and parent.func is node else None
            uses_found.append(Use(node, *resolved, call, self.function_of(node)))
        return sorted(uses_found, key=lambda u: (u.node.lineno, u.node.col_offset))

    def _is_beyond(self, node: ast.expr, name: str) -> bool:
        """Whether a name is an attribute of what NKI gives, as min of nl.fp32.min."""
        holder = self.resolve(node.value) if isinstance(node, ast.Attribute) else None
        return holder is not None and holder[1] in history() and name not in history()

    def _goes_on(self, parent: ast.Attribute) -> bool:
        """Whether an attribute of a name of NKI is one too: nl.tile_size.pmax, not nl.tile_size.pmax.real."""
        resolved = self.resolve(parent)
        if resolved is None:
            return False
        _, name = resolved
        holder = name.rpartition(".")[0]
        return name in history() or holder in ("", *MODULES) or name in MODULES

    def assignments(self, function: Function | None) -> list[ast.Assign | ast.AnnAssign]:
        """The assignments of a function, without those of functions inside it; None for the module."""
        return self._assignments.get(function, [])

    @cached_property
    def _assignments(self) -> dict[Function | None, list[ast.Assign | ast.AnnAssign]]:
        assignments: dict[Function | None, list[ast.Assign | ast.AnnAssign]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign | ast.AnnAssign):
                assignments.setdefault(self.function_of(node), []).append(node)
        return assignments

    @cached_property
    def kernels(self) -> set[Function]:
        """The functions that a decorator of NKI, or a call of one, makes kernels."""
        by_name = {function.name: function for function in self.functions}
        marked = {f for f in self.functions if any(map(self._makes_kernel, f.decorator_list))}
        calls = [use.call for use in self.uses if use.call is not None and use.name in MAKES_KERNEL]
        functions_passed = [call.args[0] for call in calls if call.args]
        names = {node.id for node in functions_passed if isinstance(node, ast.Name)}
        return marked | {by_name[name] for name in names & by_name.keys()}

    def reached_from(self, kernels: Iterable[Function]) -> list[Function]:
        """Kernels and the functions of the file that they call, directly or not."""
        by_name: dict[tuple[str, Function | None], Function] = {}
        for function in self.functions:
            by_name.setdefault((function.name, self.function_of(function)), function)
        functions = list(kernels)
        for function in functions:
            # a name is that of a function within, else of one within what stands around, else of the file
            places = [function, *(a for a in self.around(function) if isinstance(a, Function)), None]
            own = [n for n in compiled(function) if isinstance(n, ast.Name)]
            variables = {n.id for n in own if isinstance(n.ctx, ast.Store)}
            names = dict.fromkeys(n.id for n in own if n.id not in variables)
            seen = ([by_name[name, p] for p in places if (name, p) in by_name] for name in names)
            functions += [named[0] for named in seen if named and named[0] not in functions]
        return functions

    def _makes_kernel(self, decorator: ast.expr) -> bool:
        resolved = self.resolve(decorator.func if isinstance(decorator, ast.Call) else decorator)
        return resolved is not None and resolved[1] in MAKES_KERNEL


def compiled(function: Function) -> Iterator[ast.AST]:
    """Every node of a function, without its decorators, which run on the host."""
    return (node for part in (function.args, *function.body) for node in ast.walk(part))


def names_in(node: ast.AST, *, stored: bool = False) -> set[str]:
    """The plain names that stand in a node; those that it binds alone, if `stored`."""
    names = (n for n in ast.walk(node) if isinstance(n, ast.Name))
    return {n.id for n in names if not stored or isinstance(n.ctx, ast.Store)}


MODULES = (
    "language", "isa", "isa.constants", "language.constants", "typing", "compiler", "collectives",
    "compiler.sbuf", "compiler.psum", "kernels", "nccl", "_private", "_private.private_api",
)  # fmt: skip


def split(dotted: str) -> tuple[str, str] | None:
    """Spelling and name below `nki` of a full name, or None if it is not NKI's."""
    if dotted in _OUTSIDE:
        return "neuronxcc", _OUTSIDE[dotted]
    for spelling, root in ROOTS.items():
        if dotted == root:
            return spelling, ""
        if dotted.startswith(f"{root}."):
            name = dotted[len(root) + 1 :]
            return spelling, name.replace("isa.constants.", "isa.", 1)
    return None


def _imported(alias: ast.alias) -> tuple[str, str]:
    root = alias.name.partition(".")[0]
    return (alias.asname, alias.name) if alias.asname else (root, root)


def _imported_from(module: str, aliases: Iterable[ast.alias]) -> Iterator[tuple[str, str]]:
    for alias in aliases:
        names = _star(module) if alias.name == "*" else [alias.name]
        yield from ((alias.asname or name, f"{module}.{name}") for name in names)


def _star(module: str) -> Iterator[str]:
    resolved = split(module)
    if resolved is None:
        return
    prefix = f"{resolved[1]}." if resolved[1] else ""
    for name in history():
        if name.startswith(prefix) and "." not in name[len(prefix) :]:
            yield name[len(prefix) :]


def read(path: str) -> Source:
    """Read and parse a file.

    Raises:
        UsageError: if there is no such file, or it is no Python.
    """
    file = Path(path)
    if not file.is_file():
        raise UsageError(f"there is no file {path}", hint="pass the path of a Python file")
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {reason_of(error)}") from None
    return parse(path, raw)


def parse(path: str, raw: bytes) -> Source:
    """The source that the bytes of a file hold.

    Raises:
        UsageError: if they are no Python.
    """
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        text = raw.decode(encoding)
        with catch_warnings():
            simplefilter("ignore")  # the user's escapes are not our business
            tree = ast.parse(text, filename=path)
        source = Source(path, text, encoding, tree)
        # what is nested too deeply for the walk is refused here, and not where a rule first asks
        _ = source.uses
    except SyntaxError as error:
        where = f" line {error.lineno}:" if error.lineno else ""
        raise UsageError(
            f"{path} is no Python:{where} {error.msg}", hint="pass a file that Python compiles"
        ) from None
    except (ValueError, LookupError) as error:
        raise UsageError(f"{path} is no Python: {error}", hint="pass a file that Python compiles") from None
    except (RecursionError, MemoryError):
        raise UsageError(f"{path} is nested too deeply", hint="split its longest expression") from None
    return source


def applied(whole: bytes, edits: Iterable[Edit]) -> str:
    """The characters of a file with edits that do not meet; those at one place in the order given."""
    for _, edit in sorted(enumerate(edits), key=lambda own: (own[1].start, own[1].end, own[0]), reverse=True):
        whole = whole[: edit.start] + edit.text.encode() + whole[edit.end :]
    return whole.decode()


def unified(path: str, before: str, after: str) -> str:
    """Two texts of a file as a unified diff; "" if they are the same."""
    name = path.lstrip("/")
    old, new = (text.splitlines(keepends=True) for text in (before, after))
    lines = unified_diff(old, new, f"a/{name}", f"b/{name}")
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )
