"""Documented constraints of functions, each with a call that breaks it and one at its edge that keeps it.

`python -m tests.checks.constraints > docs/constraints.md` writes the page.

`constraints.yaml` has them by function: a sentence, what to change of the smallest legal call so that it is
broken, what to change so that it is just kept, and where this is tried: `chip` and `right_chip` (trn2), `nki`
("0.3-0.5", the newest parsed version if left out). A change is written as in the declarations, `data.dtype`,
`data.shape`, an axis or an attribute. Strings are lines of a kernel that has a tile of x. A row with `open`
says why nothing here looks for it.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

import nkilab
from nkilab.arguments import argument, extents
from nkilab.checking import Options, report_of
from nkilab.checks.declare import COPIED, Example
from nkilab.checks.finding import Finding
from nkilab.dialects.grammar import LAST_PARSED
from nkilab.dialects.history import VERSIONS
from nkilab.dialects.kernel import Kernel
from nkilab.isa.declare import REGISTRY
from nkilab.isa.uses import Tile, operands_of, smallest_use

FILE = Path(__file__).with_name("constraints.yaml")
_ENUMS = {
    "engine": "nisa.engine", "dge_mode": "nisa.dge_mode", "oob_mode": "nisa.oob_mode",
    "reduce_cmd": "nisa.reduce_cmd", "perf_mode": "nisa.matmul_perf_mode", "dma_engine": "nisa.dma_engine",
}  # fmt: skip
# of the two programs that exchange tiles
_OTHER_RANK = {"send_to_rank": "1 - nl.program_id(0)", "recv_from_rank": "1 - nl.program_id(0)"}
_TWO_CORES = ("sendrecv", "core_barrier")
_TUPLES = ("tile_position", "tile_size", "axes", "cores", "axis")


@dataclass(frozen=True)
class Constraint:
    """One documented constraint.

    Args:
        function: of `nki.isa`, or of another module with its name: "language.load".
        says: what is asked, as a claim.
        wrong: changes, or lines, that break it.
        right: changes, or lines, that just keep it.
        chip: of the wrong call.
        right_chip: of the right one.
        versions: of NKI, the first and the last that have it.
        why_open: why nothing looks for it, or "".
    """

    function: str
    says: str
    wrong: Mapping[str, Any] | str
    right: Mapping[str, Any] | str
    chip: str = "trn2"
    right_chip: str = "trn2"
    versions: tuple[str, str] = (LAST_PARSED, LAST_PARSED)
    why_open: str = ""

    @property
    def name(self) -> str:
        return f"{self.function}: {self.says}"


def constraints() -> Iterator[Constraint]:
    """All rows of the file."""
    for function, rows in YAML(typ="safe").load(FILE.read_text()).items():
        for says, *rest in rows:
            options = rest.pop() if rest and set(rest[-1]) & {"chip", "nki", "right_chip", "open"} else {}
            wrong, right = [*rest, {}, {}][:2]
            first, _, last = str(options.get("nki", LAST_PARSED)).partition("-")
            chip = options.get("chip", "trn2")
            span = (first, last or (LAST_PARSED if "nki" in options else first))
            yield Constraint(
                function,
                says,
                wrong,
                right,
                chip,
                options.get("right_chip", chip),
                span,
                options.get("open", ""),
            )


def example(constraint: Constraint, version: str, *, is_right: bool) -> Example:
    """The kernel that keeps a constraint, or breaks it."""
    changes = constraint.right if is_right else constraint.wrong
    chip = constraint.right_chip if is_right else constraint.chip
    kernel = _of_lines(changes) if isinstance(changes, str) else _of_changes(constraint.function, changes)
    return Example(kernel.body, kernel.args, grid=kernel.grid, options=("--nki", version, "--target", chip))


def _of_lines(lines: str) -> Example:
    return COPIED.around(lines)


def _of_changes(name: str, changes: Mapping[str, Any]) -> Example:
    """The smallest call of an instruction with changes: tiles are filled from arguments, and written back."""
    declared = REGISTRY[name]
    use = smallest_use(declared, {k: _as_tuple(k, v) for k, v in changes.items()})
    args: dict[str, str] = {}
    lines: list[str] = []
    operands = operands_of(declared, use)
    for operand, spec in operands.items():
        if isinstance(use[operand], Tile):
            lines += _tile(
                operand.replace("[", "_").rstrip("]"), use[operand], args, is_written=spec.is_written
            )
    lines.append(f"nisa.{name}({', '.join(_arguments(name, use, changes))})")
    lines.append(_COPY_OUT)
    grid = "2" if name in _TWO_CORES else ""
    return Example("\n".join(lines), args or {"x": "f32[16,16]"}, grid=grid)


_COPY_OUT = """out = nl.ndarray((1, 1), nl.float32, buffer=nl.shared_hbm)
spare = nl.ndarray((1, 1), nl.float32, buffer=nl.sbuf)
nisa.memset(spare, 0.0)
nisa.dma_copy(out, spare)
return out"""


def _tile(name: str, tile: Tile, args: dict[str, str], *, is_written: bool) -> Iterator[str]:
    """Lines that make a tile; one that is read holds what an argument of the kernel has."""
    shape, dtype = (tile.shape[0] + tile.start, *tile.shape[1:]), tile.dtype
    memory = {"hbm": "shared_hbm", "sequencer": "sbuf"}.get(tile.memory, tile.memory)
    words = f"{dtype}[{','.join(map(str, shape))}]"
    if tile.memory == "sequencer":
        yield f"{name} = nisa.register_alloc(0)"
        return
    if tile.memory == "hbm" and not is_written:
        args[name] = words
        return
    yield f"{name}_whole = nl.ndarray({shape}, nl.{dtype}, buffer=nl.{memory})"
    if not is_written:
        args[f"{name}_in"] = words
        if memory == "psum":
            yield f"{name}_first = nl.ndarray({shape}, nl.{dtype}, buffer=nl.sbuf)"
            yield f"nisa.dma_copy({name}_first, {name}_in)"
            yield f"nisa.tensor_copy({name}_whole, {name}_first)"
        else:
            yield f"nisa.dma_copy({name}_whole, {name}_in)"
    yield f"{name} = {name}_whole[{tile.start}:{shape[0]}]" if tile.start else f"{name} = {name}_whole"


def _arguments(name: str, use: Mapping[str, Any], changes: Mapping[str, Any]) -> Iterator[str]:
    declared = REGISTRY[name]
    named = {path.partition(".")[0] for path in changes} | set(declared.smallest)
    for parameter in declared.parameters:
        if parameter == declared.list_name:
            tiles = [p for p in operands_of(declared, use) if p.startswith(f"{parameter}[")]
            yield f"{parameter}=[{', '.join(t.replace('[', '_').rstrip(']') for t in tiles)}]"
            continue
        member = {**declared.operands, **declared.attributes, **declared.values}[parameter]
        value = use[parameter]
        if isinstance(value, Tile):
            yield f"{parameter}={parameter}"
        elif parameter in _OTHER_RANK and parameter not in changes:
            yield f"{parameter}={_OTHER_RANK[parameter]}"
        elif parameter in named or repr(member.default) == "required":
            yield f"{parameter}={_spelled(parameter, value)}"


def _spelled(parameter: str, value: Any) -> str:
    """An attribute or a value as a kernel writes it."""
    if parameter in _ENUMS and isinstance(value, str):
        return f"{_ENUMS[parameter]}.{value}"
    is_word = isinstance(value, str) and "op" in parameter
    return f"nl.{value}" if is_word else repr(value)


def _as_tuple(path: str, value: Any) -> Any:
    is_shape = path.endswith(".shape") or path in _TUPLES
    return tuple(value) if is_shape and isinstance(value, list) else value


def findings_of(example: Example, path: Path) -> list[Finding]:
    """The findings of a kernel that fail it, and what stopped it."""
    path.write_text(example.text)
    options = dict(zip(example.options[::2], example.options[1::2], strict=True))
    with nkilab.activate(options["--nki"]):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        k: Any = module.kernel
        kernel = Kernel(k.function, k.spelling, options["--nki"], k.options, k.grid)
        if example.grid:
            kernel = kernel[extents(example.grid)]
        asked = Options(options["--target"], is_advised=False)
        report = report_of(kernel, [argument(a) for a in example.args.values()], {}, asked)
    return [f for f in report.findings.verdict if f.fails]


def spans(constraint: Constraint) -> list[str]:
    """The versions of NKI that a constraint is tried for: the first and the last."""
    first, last = constraint.versions
    assert {first, last} <= set(VERSIONS)
    return list(dict.fromkeys((first, last)))


_ABOUT = """# Constraints of functions

What public pages require of each function of NKI: types, memories, shapes, partitions, engines, chips, and
which arguments go together. A function without a module before its name is one of `nki.isa`. Every row is
tested: a call that breaks the constraint gets the finding in the last column, and the nearest call that
keeps it gets none. "NKI" is the first and the last version that the row is tested for; the chip is trn2
unless one is named.
"""
_MARK = "<!-- written by `python -m tests.checks.constraints`; changes by hand are lost -->"


def page() -> str:
    """The page: a table for each function."""
    parts, functions = [_ABOUT], dict[str, list[Constraint]]()
    for constraint in constraints():
        functions.setdefault(constraint.function, []).append(constraint)
    covered = sum(not c.why_open for of in functions.values() for c in of)
    parts.append(f"nkilab checks {covered} of {sum(map(len, functions.values()))} constraints.\n")
    with tempfile.TemporaryDirectory() as folder:
        for function, of in sorted(functions.items(), key=lambda pair: pair[0].rpartition(".")[::2]):
            parts.append(f"## {function}\n\n| asks that | NKI | chip | finding |\n| --- | --- | --- | --- |")
            parts += [_row(c, Path(folder) / "kernel_file.py") for c in of]
            parts.append("")
    return "\n".join((*parts, _MARK, ""))


def _row(constraint: Constraint, path: Path) -> str:
    first, last = constraint.versions
    span = first if first == last else f"{first} to {last}"
    chip = "" if constraint.chip == constraint.right_chip == "trn2" else constraint.chip
    covering = f"not looked for: {constraint.why_open}" if constraint.why_open else rule_of(constraint, path)
    return f"| {constraint.says} | {span} | {chip} | {covering} |"


def rule_of(constraint: Constraint, path: Path) -> str:
    """The rule that tells of a constraint's wrong call, in the last version that has it, and what it says."""
    first = findings_of(example(constraint, constraint.versions[1], is_right=False), path)[0]
    words = first.message.replace("|", "/")
    return f"`{first.rule}`: {words}"


if __name__ == "__main__":
    print(page(), end="")
