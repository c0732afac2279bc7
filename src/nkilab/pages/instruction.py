"""The page of an instruction, made from its declaration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from inspect import cleandoc, signature
from typing import Any

from ..dialects.history import BETA1, VERSIONS, versions_with
from ..dialects.serve import tables
from ..isa.activations import ACTIVATIONS
from ..isa.attributes import Attribute, Value
from ..isa.declare import ANY_DTYPE, FLOATS, INTEGERS, REGISTERS, CallRule, Instruction, Operand, Rule
from ..isa.operators import OPERATORS
from ..isa.uses import chips_of
from ..machine import MACHINES, Machine
from ..tiles.dtypes import DTYPES
from ..tiles.tile import SEQUENCER
from .choices import choices_about
from .content import Block, Bullets, Code, Page, Section, Text, code, listed, table
from .costs import ExampleCost, StepCost, examples, facts_read
from .example import called, example_code, spelled

ENGINES = {"tensor": "TensorE", "vector": "VectorE", "scalar": "ScalarE", "gpsimd": "GpSimdE",
           "sync": "SyncE", "dma": "DMA"}  # fmt: skip
DIFFERENCES = "docs/differences.md"
EVERY_DTYPE = tuple(DTYPES)
_REGISTERS = {
    "vector": "the accumulator registers of VectorE, one float32 per partition",
    "scalar": "the accumulator registers of ScalarE, one float32 per partition",
    "random": "the state of the random generators",
}
NOT_THE_HARDWARES = (
    "Random bits here are not those of the hardware: the same seed or state gives the same numbers again, "
    "in nkilab, but not what the chip would give."
)
_LATENCIES = (
    "The columns are how long the engine accepts nothing else. What stands after `+` passes from then until "
    "the result is visible."
)
_WIDENED = (
    "No source gives the formula where a factor stands behind the certainty; an estimate widens its interval "
    "by it."
)
_DMA_TIMES = (
    "The columns are how long an idle machine moves bytes; `dma_start_ns` passes before the first of them. "
    "Transfers share queues, engines and the bandwidth of HBM."
)


def engine_name(engine: str) -> str:
    """An engine as AWS writes it; others by their own word."""
    return ENGINES.get(engine, engine)


def instruction_page(cls: type[Instruction]) -> Page:
    """Everything that the declaration of an instruction says."""
    sections = [
        Section("", tuple(_opening(cls))),
        Section("Signature", tuple(_signatures(cls))),
        Section("Operands", tuple(_operands(cls))),
        Section("Limits", tuple(_limits(cls))),
        Section("Refused", tuple(_refused(cls))),
        Section("Cost", tuple(_cost(cls))),
        Section("Example", (Code(example_code(cls)),)),
        Section("Where public text is silent", tuple(_choices(cls))),
    ]
    return Page(cls.name, "instruction", tuple(section for section in sections if section.blocks))


def summary(cls: type[Instruction]) -> str:
    """The first sentence of the docstring, the formula in it as code."""
    words, formula, rest = first_sentence(cls)
    return f"{words}: {code(formula)}{rest}" if formula else words


def first_sentence(cls: type[Instruction]) -> tuple[str, str, str]:
    """What stands in the first sentence of the docstring before, in and behind its formula.

    The formula begins behind a colon and ends at the next comma or semicolon outside of brackets.
    """
    sentence = cleandoc(cls.__doc__ or "").split("\n\n")[0].replace("\n", " ")
    words, colon, formula = sentence.rpartition(": ")
    is_formula = " = " in formula or "<op" in formula
    if not colon or not is_formula or "`" in formula or " the " in formula:
        return sentence, "", ""
    depth, end = 0, len(formula) - (not formula.endswith("..."))
    for place, letter in enumerate(formula):
        depth += (letter in "([") - (letter in ")]")
        if letter in ",;" and not depth:
            return words, formula[:place], formula[place:]
    return words, formula[:end], formula[end:]


def _opening(cls: type[Instruction]) -> Iterator[Block]:
    words, formula, rest = first_sentence(cls)
    if formula and rest in (".", ""):
        yield Text(f"{words}:")
        yield Code(formula, "text")
    else:
        yield Text(summary(cls))
    for paragraph in cleandoc(cls.__doc__ or "").split("\n\n")[1:]:
        yield Text(paragraph.replace("\n", " "))
    if cls.registers == "random":
        yield Text(NOT_THE_HARDWARES)
    facts = [
        f"engines: {', '.join(map(engine_name, cls.engines))}",
        f"chips: {', '.join(m.name for m in chips_of(cls))}" + _why_not_all(cls),
        f"NKI: {runs_of(versions_with(f'{cls.module}.{cls.name}'))}",
        f"source: {cls.source}",
    ]
    if cls.registers:
        facts.insert(1, f"registers: {_REGISTERS.get(cls.registers, cls.registers)}")
    if cls.accumulates:
        facts.insert(1, "accumulates: in PSUM, in float32")
    yield Bullets(tuple(facts))


def runs_of(versions: Iterable[str]) -> str:
    """The first and last of each run of versions of NKI: "Beta 1, 0.2 to 0.7"."""
    having = [VERSIONS.index(version) for version in versions]
    runs: list[list[int]] = []
    for number in having:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    names = ["Beta 1" if version == BETA1 else version for version in VERSIONS]
    return ", ".join(names[a] if a == b else f"{names[a]} to {names[b]}" for a, b in runs) or "no version"


def _why_not_all(cls: type[Instruction]) -> str:
    reasons = [f"{r.sentence}: {r.source}" for r in cls.rules if not r.broken_by and r.chips]
    return f" ({'; '.join(reasons)})" if reasons else ""


@cache
def _served(root: str, module: str) -> dict[str, Any]:
    """The names of a module of instructions in one spelling, whatever the version."""
    return tables(root, "").get(f"nki.{module}" if root == "nki" else f"{root}.nki.{module}", {})


def _functions(cls: type[Instruction]) -> list[Callable[..., Any]]:
    """The function of `nki`, and that of Beta 1 if it has one."""
    both = (_served(root, cls.module).get(cls.name) for root in ("nki", "neuronxcc"))
    return [function for function in both if function is not None]


def _signatures(cls: type[Instruction]) -> Iterator[Block]:
    yield Text("`nki`:")
    yield Code(_call(f"nki.{cls.module}.{cls.name}", _served("nki", cls.module)[cls.name]))
    if cls.module == "collectives":
        yield Text("A row has one pair of tensors, and of the group `ranks`, `span` and `members`.")
    beta1: Callable[..., Any] | None = _served("neuronxcc", cls.module).get(cls.name)
    if beta1 is None:
        yield Text("`neuronxcc.nki` (Beta 1) does not have it.")
        return
    returns = list(cls.operands)[cls.result_slot] not in signature(beta1).parameters
    yield Text(f"`neuronxcc.nki` (Beta 1){', which returns the result' if returns else ''}:")
    yield Code(_call(f"neuronxcc.nki.isa.{cls.name}", beta1))


def _call(name: str, function: Callable[..., Any]) -> str:
    """A function and its parameters, without what swallows unknown keywords."""
    parts: list[str] = []
    for p in signature(function).parameters.values():
        if p.kind is p.VAR_KEYWORD:
            continue
        if p.kind is p.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        required = repr(p.default) == "required" or p.default is p.empty
        parts.append(p.name if required else f"{p.name}={spelled(p.name, p.default)}")
    return called(name, parts)


def _operands(cls: type[Instruction]) -> Iterator[Block]:
    rows = [
        _operand_row(cls, name, spec) for name, spec in cls.operands.items() if spec.memories != (REGISTERS,)
    ]
    yield table(("operand", "access", "shape", "memory", "types", "or"), rows)
    spelled_somewhere = {name for f in _functions(cls) for name in signature(f).parameters}
    rows_of_operands = []
    for name in cls.parameters:
        # what only a version decides is no parameter of any spelling
        if name in spelled_somewhere and name not in cls.operands:
            member: Attribute | Value = cls.attributes.get(name) or cls.values[name]
            takes = _taken(member) if isinstance(member, Attribute) else member.allowed
            rows_of_operands.append((code(name), takes, _default(name, member.default)))
    if rows_of_operands:
        yield table(("parameter", "takes", "default"), rows_of_operands)


def _operand_row(cls: type[Instruction], name: str, spec: Operand) -> tuple[str, ...]:
    shape = "any" if spec.axes == ("*",) else code(f"[{', '.join(spec.axes)}]")
    if spec.most:
        shape = f"a list of up to {spec.most} tiles, each of {'any shape' if shape == 'any' else shape}"
    others = ["a number"] if spec.may_be_number else []
    if spec.is_optional or spec.default is None:
        others.append("left out")
    elif repr(spec.default) != "required":
        others.append(f"left out ({spec.default!r})")
    if spec.takes_rows:
        others.append("rows chosen at run time")
    access = "written" if spec.is_written else "read"
    return (code(name), access, shape, ", ".join(map(memory_name, spec.memories)), types(spec.dtypes),
            ", ".join(others))  # fmt: skip


def memory_name(memory: str) -> str:
    """A memory as AWS writes it."""
    return memory if memory == SEQUENCER else memory.upper()


def types(names: Sequence[str]) -> str:
    """Data types in the shortest words that are exact."""
    kinds = (
        ("any, packed ones too", EVERY_DTYPE),
        ("any", ANY_DTYPE),
        ("any float", FLOATS),
        ("any integer", INTEGERS),
    )
    for words, group in kinds:
        missing = [name for name in group if name not in names]
        if set(names) <= set(group) and len(missing) <= 2 and len(group) - len(missing) > 2:
            return f"{words} but {listed(missing)}" if missing else words
    return listed(names)


def _taken(attribute: Attribute) -> str:
    """What an attribute takes: long lists of operators and functions by what they leave out."""
    words = attribute.allowed.split(", ")
    names = [word for word in words if word != "None"]
    for known, taken in ((OPERATORS, "an `operator`"), (ACTIVATIONS, "an `activation function`")):
        listing = {name for name, row in known.items() if getattr(row, "is_documented", True)}
        if len(names) > 12 and set(names) <= listing:
            left = [name for name in known if name in listing - set(names)]
            but = f" but {listed(left)}" if left else ""
            return taken + but + (", or `None`" if "None" in words else "")
    is_list = all(word.isidentifier() for word in words)
    return listed(words) if is_list else attribute.allowed


def _default(name: str, default: Any) -> str:
    return "" if repr(default) == "required" else code(spelled(name, default))


def _limits(cls: type[Instruction]) -> Iterator[Block]:
    chips = chips_of(cls)
    rows = []
    for limit in cls.limits:
        values = [m.limit(limit.constant) for m in chips]
        sources = {m.name: m.facts()[limit.constant].source for m in chips}
        # where chips agree the page of the instruction says it; where they differ a chip may have its own
        others = [
            f"{chip}: {own_source}" for chip, own_source in sources.items() if own_source != limit.source
        ]
        source = "; ".join([limit.source, *(others if len(set(values)) > 1 else [])])
        rows.append((code(limit.axis.rstrip("*")), *map(str, values), source, limit.hint_for(*values)))
    names = [m.name for m in chips]
    if rows:
        yield table(("axis, at most", *names, "source", "way out"), rows, names)


def _refused(cls: type[Instruction]) -> Iterator[Block]:
    chips = [m.name for m in chips_of(cls)]
    rows = []
    refusals: tuple[Rule | CallRule, ...] = (*cls.rules, *cls.call_rules)
    for rule in refusals:
        if isinstance(rule, Rule) and not rule.broken_by and rule.chips:
            continue
        where = [] if not isinstance(rule, Rule) or set(chips) <= set(rule.chips) else rule.chips
        key = getattr(rule, "key", "")
        source = rule.source + (f"; {code(key)}" if key else "")
        rows.append((rule.sentence, ", ".join(where), rule.hint, source))
    if rows:
        yield table(("what is refused", "only on", "way out", "source"), rows)


def _cost(cls: type[Instruction]) -> Iterator[Block]:
    costs = examples(cls)
    chips = [m.name for m in chips_of(cls)]
    for example in costs:
        yield Text(f"{example.words}.")
        heads = ("step", "engine", *(f"{c}, ns" for c in chips), "time in ns", "certainty")
        yield table(heads, _step_rows(example, chips), [f"{c}, ns" for c in chips])
    if not costs:
        yield Text("No chip allows an example of it alone.")
        return
    steps = [step for e in costs for chip in e.steps for step in chip]
    if any(step.step.widening > 1 for step in steps):
        yield Text(_WIDENED)
    if any(step.latency for step in steps):
        yield Text(_DMA_TIMES if "dma" in cls.engines else _LATENCIES)
    rows = [(code(name), *(_fact(MACHINES[c], name) for c in chips)) for name in facts_read(costs)]
    if rows:
        yield table(("constant", *chips), rows, chips)
        yield Text("Sources of the constants: `nkilab explain CHIP`.")


def _step_rows(example: ExampleCost, chips: Sequence[str]) -> list[tuple[str, ...]]:
    """One row per step and formula: chips that share a formula share the row."""
    rows: dict[tuple[Any, ...], dict[str, StepCost]] = {}
    for costs in example.steps:
        for number, cost in enumerate(costs):
            key = (number, cost.step.label, cost.step.engine, cost.busy, cost.latency)
            rows.setdefault(key, {})[cost.chip] = cost
    rows_made = []
    for (_, label, engine, busy, latency), costs_by_chip in sorted(rows.items(), key=lambda item: item[0][0]):
        times = [
            f"{costs_by_chip[c].busy_ns or costs_by_chip[c].latency_ns:.1f}" if c in costs_by_chip else ""
            for c in chips
        ]
        first = busy if engine == "dma" else code(busy)
        formula = first + (f" + `{latency}`" if latency else "")
        if not next(iter(costs_by_chip.values())).busy_ns:
            formula = f"in the background: `{latency}`"
        rows_made.append((label, engine_name(engine), *times, formula, _certainty(costs_by_chip)))
    return rows_made


def _certainty(costs_by_chip: dict[str, StepCost]) -> str:
    """How sure the times are; by chip where that differs, and what an assumed formula widens."""
    words = {chip: cost.certainty for chip, cost in costs_by_chip.items()}
    if len(set(words.values())) == 1:
        certainty = next(iter(words.values()))
    else:
        certainty = ", ".join(f"{word} on {chip}" for chip, word in words.items())
    widening = max(cost.step.widening for cost in costs_by_chip.values())
    return certainty + (f", times {widening:g}" if widening > 1 else "")


def _fact(machine: Machine, name: str) -> str:
    fact = machine.facts()[name]
    return f"{fact.value:g} {fact.certainty}"


def _choices(cls: type[Instruction]) -> Iterator[Block]:
    rows = choices_about(cls)
    if rows:
        yield table(("question", "what nkilab does"), rows)
        yield Text(f"All choices: `{DIFFERENCES}`.")
