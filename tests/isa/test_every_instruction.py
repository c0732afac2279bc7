"""Every instruction is held to its own declaration. No instruction is named in this file."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest

from nkilab.errors import LimitError, RuleError
from nkilab.isa import REGISTRY, Instruction
from nkilab.isa.declare import REGISTERS, Example, In, Out, Step
from nkilab.machine import MACHINES, Machine
from nkilab.tiles.tile import View, array_of
from tests.chips import ODD
from tests.uses import (
    Tile,
    call,
    chips_of,
    form_of,
    new_tile,
    open_session,
    operands_of,
    run_use,
    smallest_use,
)


def chips_with_odd(cls: type[Instruction]) -> list[Machine]:
    """The chips that have an instruction, among them the odd one, which has what trn2 has."""
    chips = chips_of(cls)
    return [*chips, ODD] if MACHINES["trn2"] in chips else chips


INSTRUCTIONS = list(REGISTRY.values())
every = pytest.mark.parametrize("cls", INSTRUCTIONS, ids=list(REGISTRY))
LIMITS = [
    pytest.param(cls, limit, machine, id=f"{cls.name}-{limit.axis}-{machine.label}")
    for cls in INSTRUCTIONS
    for limit in cls.limits
    for machine in chips_with_odd(cls)
]
RULES = [
    pytest.param(cls, broken, machine, id=f"{cls.name}-{broken.holds.__name__}-{machine.label}")
    for cls in INSTRUCTIONS
    for broken in cls.rules
    for machine in chips_with_odd(cls)
    if machine.name in (broken.chips or MACHINES)
]
CALL_RULES = [
    pytest.param(cls, broken, id=f"{cls.name}-{broken.holds.__name__}")
    for cls in INSTRUCTIONS
    for broken in cls.call_rules
]
PARTS = {
    "docstring": ("__doc__", "Copy a tile: dst = src."),
    "source": ("source", "a page"),
    "example": ("example", Example({"src": [[1]]}, {"dst": [[1]]})),
    "compute": ("compute", lambda self, dst, src: None),
    "cost": ("cost", lambda self: [Step("vector", "COPY", 1.0)]),
    "engines": ("engines", ("vector",)),
}


def text_of(problem: str, fact: Any) -> str:
    """What the message of a broken rule or limit reads before the user's line is known."""
    lines = [problem]
    for word in ("hint", "source", "key"):
        if getattr(fact, word, ""):
            lines.append(f"  {word}: {getattr(fact, word)}")
    return "\n".join(lines)


def arrays_of(cls: type[Instruction], use: dict[str, Any], draw: np.random.Generator) -> dict[str, Any]:
    """Small positive numbers for every tile that is read."""
    return {
        name: draw.integers(1, 5, use[name].shape)
        for name, spec in operands_of(cls).items()
        if isinstance(use[name], Tile) and not spec.is_written
    }


@pytest.mark.parametrize("part", PARTS)
def test_a_declaration_without_one_of_its_parts_is_refused(part: str) -> None:
    members = {key: value for word, (key, value) in PARTS.items() if word != part}
    members |= {"dst": Out("P F*"), "src": In("P F*")}
    known = dict(REGISTRY)
    with pytest.raises(TypeError, match=f"^Incomplete declares no {part}$"):
        type("Incomplete", (Instruction,), members)
    assert known == REGISTRY


@every
def test_the_name_called_is_the_class_in_snake_case(cls: type[Instruction]) -> None:
    words = re.findall(r"[A-Z][a-z0-9]*", cls.__name__)
    assert cls.name == "_".join(word.lower() for word in words)
    assert REGISTRY[cls.name] is cls


@every
def test_parameters_stand_in_the_order_of_the_declaration(cls: type[Instruction]) -> None:
    declared = [name for name in vars(cls) if name in cls.parameters]
    assert list(cls.parameters) == declared
    given = {name for name, spec in cls.operands.items() if spec.memories != (REGISTERS,)}
    assert set(cls.parameters) == given | set(cls.attributes) | set(cls.values)
    assert len(cls.parameters) == len(given) + len(cls.attributes) + len(cls.values)


@every
def test_the_docstring_opens_with_one_sentence(cls: type[Instruction]) -> None:
    first, *rest = (cls.__doc__ or "").split("\n")
    assert first[0].isupper()
    assert first.endswith(".")
    assert len(first) <= 110
    assert not rest or rest[0] == ""


@every
def test_every_operand_names_axes_memories_and_dtypes(cls: type[Instruction]) -> None:
    for spec in cls.operands.values():
        assert spec.axes
        assert set(spec.memories) <= {"hbm", "sbuf", "psum", "sequencer"} or spec.memories == (REGISTERS,)
        assert spec.memories
        assert spec.dtypes
    assert any(spec.is_written for spec in cls.operands.values())


@every
def test_every_limit_names_an_axis_and_a_constant(cls: type[Instruction]) -> None:
    form = form_of(cls, chips_of(cls)[-1], smallest_use(cls))
    for limit in cls.limits:
        assert limit.axis in form.sizes
        assert limit.source
        assert all(machine.limit(limit.constant) > 0 for machine in MACHINES.values())


@every
def test_the_smallest_use_keeps_every_rule(cls: type[Instruction]) -> None:
    for machine in chips_with_odd(cls):
        form_of(cls, machine, smallest_use(cls))


@pytest.mark.parametrize(("cls", "limit", "machine"), LIMITS)
def test_the_most_is_allowed_and_one_more_is_refused(cls: Any, limit: Any, machine: Machine) -> None:
    axis, most = limit.axis.rstrip("*"), int(machine[limit.constant])
    # where the smallest use already takes more of another axis than it must, it takes all that there is
    others = {o.axis: machine.limit(o.constant) for o in cls.limits if o.axis in cls.smallest}
    form_of(cls, machine, smallest_use(cls, {**others, axis: most}))
    with pytest.raises(LimitError) as caught:
        form_of(cls, machine, smallest_use(cls, {**others, axis: most + 1}))
    words = limit.constant.replace("_", " ")
    problem = f"{axis} is {most + 1}; {machine.name} allows {most} ({words})"
    assert str(caught.value) == text_of(problem, limit).replace("{most}", str(most))


@pytest.mark.parametrize(("cls", "broken", "machine"), RULES)
def test_a_rule_is_broken_by_its_counterexample(cls: Any, broken: Any, machine: Machine) -> None:
    with pytest.raises(RuleError) as caught:
        form_of(cls, machine, smallest_use(cls, broken.broken_by))
    assert str(caught.value) == text_of(broken.sentence, broken)
    assert broken.source


@pytest.mark.parametrize(("cls", "broken"), CALL_RULES)
def test_a_call_rule_broken_on_the_second_call_of_a_form_is_found(cls: Any, broken: Any) -> None:
    session = open_session(chips_of(cls)[-1])
    use, other = smallest_use(cls), smallest_use(cls, broken.broken_by)
    views = {
        n: new_tile(session, Tile(t.shape, t.dtype, t.memory)) for n, t in use.items() if isinstance(t, Tile)
    }
    for view in views.values():
        view.storage.allocate(np.ones(view.storage.shape, view.storage.dtype.storage))
    call(session, cls, **{**use, **views})
    with pytest.raises(RuleError) as caught:
        call(session, cls, **{**other, **views})
    assert caught.value.problem == broken.sentence
    assert (caught.value.hint, caught.value.source) == (broken.hint, broken.source)
    assert len(session.program.forms) == 1
    assert len(session.program) == 1


@every
def test_the_worked_example_holds(cls: type[Instruction]) -> None:
    given = cls.example.given
    shapes = {name: np.shape(value) for name, value in {**given, **cls.example.expected}.items()}
    use = smallest_use(cls, cls.example.attributes)
    for name, spec in operands_of(cls).items():
        if shapes.get(name):
            dtype = cls.example.dtypes.get(name, "float32")
            use[name] = Tile(
                shapes[name], dtype, use[name].memory if isinstance(use[name], Tile) else spec.memories[0]
            )
        else:
            use[name] = given.get(name, spec.default)
    arrays = {name: value for name, value in given.items() if shapes[name]}
    assert cls.example.expected or cls.example.registers
    for machine in chips_with_odd(cls):
        session = open_session(machine)
        written = run_use(session, cls, use, arrays)
        for name, expected in cls.example.expected.items():
            np.testing.assert_array_equal(written[name].astype(np.float64), np.array(expected, np.float64))
        for field, expected in cls.example.registers.items():
            held = session.registers[cls.registers][field][: len(expected)]
            np.testing.assert_array_equal(held, np.array(expected))


@every
def test_it_writes_finite_numbers(cls: type[Instruction]) -> None:
    for machine in chips_with_odd(cls):
        use = smallest_use(cls)
        arrays = arrays_of(cls, use, np.random.default_rng(1))
        if form_of(cls, machine, use).reads_dst:
            # what is read is given, also where it is written
            arrays |= {n: np.ones(t.shape) for n, t in use.items() if isinstance(t, Tile) and n not in arrays}
        written = run_use(open_session(machine), cls, use, arrays)
        assert written or cls.example.registers
        assert all(np.isfinite(array.astype(np.float64)).all() for array in written.values())


@every
def test_it_takes_time_on_an_engine_it_names(cls: type[Instruction]) -> None:
    for machine in chips_with_odd(cls):
        steps = form_of(cls, machine, smallest_use(cls)).steps
        assert {step.engine for step in steps} <= {*cls.engines, "dma"}
        assert any(step.engine in cls.engines for step in steps)
        assert all(step.label and step.busy_ns >= 0 and step.latency_ns >= 0 for step in steps)
        assert (
            sum(step.busy_ns + step.latency_ns + step.descriptors * step.descriptor_bytes for step in steps)
            > 0
        )


@every
def test_a_second_equal_call_adds_a_row_and_no_form(cls: type[Instruction]) -> None:
    session = open_session(chips_of(cls)[-1], has_data=False)
    use = smallest_use(cls)
    for _ in range(2):
        call(session, cls, **{n: new_tile(session, v) if isinstance(v, Tile) else v for n, v in use.items()})
    assert len(session.program.forms) == 1
    assert len(session.program) == 2


@every
def test_values_never_enter_the_form(cls: type[Instruction]) -> None:
    session = open_session(chips_of(cls)[-1], has_data=False)
    numbers = [n for n, spec in cls.operands.items() if spec.may_be_number]
    for number in (2, 3):
        use = smallest_use(cls)
        # numbers that differ, as some may not be equal
        names = [n for n in [*cls.values, *numbers] if isinstance(use[n], int | float)]
        changed = {n: number + k for k, n in enumerate(names)}
        views = {n: new_tile(session, v) for n, v in use.items() if isinstance(v, Tile)}
        call(session, cls, **{**use, **changed, **views})
        stored = session.program.values_of(len(session.program) - 1)
        assert all(given in stored for given in changed.values())
    form = session.program.forms[0]
    assert len(session.program.forms) == 1
    assert not set(cls.values) & set(vars(form))


def random_program(seed: int, *, is_shared: bool) -> tuple[list[np.ndarray], int]:
    """Elements of all storages after 60 random calls; forms are forgotten before each call if not shared."""
    pick, draw = random.Random(seed), np.random.default_rng(seed)
    session = open_session(MACHINES["trn3"])
    usable = [cls for cls in INSTRUCTIONS if MACHINES["trn3"] in chips_of(cls)]
    pool: dict[Tile, list[View]] = {}
    for _ in range(60):
        cls = pick.choice(usable)
        use = smallest_use(cls)
        for name, tile in use.items():
            if isinstance(tile, Tile):
                known = pool.setdefault(tile, [])
                if len(known) < 3:
                    known.append(new_tile(session, draw.integers(1, 5, tile.shape), tile.dtype, tile.memory))
                use[name] = pick.choice(known)
        use |= {n: pick.choice([1, 2, 5]) for n in cls.values if type(use[n]) is int}
        if not is_shared:
            session.forms.clear()
        call(session, cls, **use)
    return [array_of(view).copy() for views in pool.values() for view in views], len(session.program.forms)


@pytest.mark.parametrize("seed", range(5))
def test_shared_forms_and_one_form_per_call_agree_bit_for_bit(seed: int) -> None:
    shared, few = random_program(seed, is_shared=True)
    apart, many = random_program(seed, is_shared=False)
    assert few < many == 60
    assert len(shared) == len(apart)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(shared, apart, strict=True))
