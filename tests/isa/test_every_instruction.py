"""Every instruction is held to its own declaration. No instruction is named in this file."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pytest
from msgspec.structs import replace

from nkilab.errors import KernelError, LimitError, NkilabWarning, RuleError
from nkilab.isa import REGISTRY, Instruction
from nkilab.isa.declare import ON_CHIP, REGISTERS, Example, In, Out, Step
from nkilab.machine import MACHINES, Machine
from nkilab.tiles.tile import HBM, SBUF, Storage, View, array_of, whole_layout
from nkilab.trace.session import Session
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
    pytest.param(cls, broken, machine, id=f"{cls.name}-{broken.name}-{machine.label}")
    for cls in INSTRUCTIONS
    for broken in cls.rules
    for machine in chips_with_odd(cls)
    if machine.name in (broken.chips or MACHINES)
]
CALL_RULES = [
    pytest.param(cls, broken, id=f"{cls.name}-{broken.name}")
    for cls in INSTRUCTIONS
    for broken in cls.call_rules
]
PARTS = {
    "docstring": ("__doc__", "Copy a tile: dst = src."),
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
    # what several collectives share stands in an abstract base
    assert [name for name in cls.parameters if name in vars(cls)] == declared
    in_order = {name for name, spec in cls.operands.items() if spec.memories != (REGISTERS,)}
    assert set(cls.parameters) == in_order | set(cls.attributes) | set(cls.values)
    assert len(cls.parameters) == len(in_order) + len(cls.attributes) + len(cls.values)


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
    assert (len(session.program.forms), len(session.program)) == (1, 1)


@every
def test_the_worked_example_holds(cls: type[Instruction]) -> None:
    operands = cls.example.operands
    shapes = {name: np.shape(value) for name, value in {**operands, **cls.example.expected}.items()}
    use = smallest_use(cls, cls.example.attributes)
    for name, spec in operands_of(cls).items():
        if shapes.get(name):
            dtype = cls.example.dtypes.get(name, "float32")
            use[name] = Tile(
                shapes[name], dtype, use[name].memory if isinstance(use[name], Tile) else spec.memories[0]
            )
        else:
            use[name] = operands.get(name, spec.default)
    arrays = {name: value for name, value in operands.items() if shapes[name]}
    assert cls.example.expected or cls.example.registers
    for machine in chips_with_odd(cls):
        session = open_session(machine)
        written = run_use(session, cls, use, arrays)
        for name, expected in cls.example.expected.items():
            np.testing.assert_array_equal(written[name].astype(np.float64), np.array(expected, np.float64))
        for field, expected in cls.example.registers.items():
            values = session.registers[cls.registers][field][: len(expected)]
            np.testing.assert_array_equal(values, np.array(expected))


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
        assert all(value in stored for value in changed.values())
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


def on_chip(cls: type[Instruction]) -> dict[str, Any]:
    """The smallest use with every tile in SBUF that may lie there."""
    use, specs = smallest_use(cls), operands_of(cls)
    moved = {n: replace(t, memory=SBUF) for n, t in use.items()
             if isinstance(t, Tile) and t.memory == HBM and SBUF in specs[n].memories}  # fmt: skip
    return use | moved


def varied(cls: type[Instruction], seed: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """A use on chip, and data of a seed for every tile of it, also those that are written."""
    use = on_chip(cls)
    draw = np.random.default_rng(seed)
    tiles = {name: tile for name, tile in use.items() if isinstance(tile, Tile)}
    return use, {name: draw.integers(0, 5, tile.shape) for name, tile in tiles.items()}


def written_by(
    cls: type[Instruction], use: dict[str, Any], arrays: dict[str, np.ndarray], hole: Hole | None = None
) -> tuple[dict[str, View], Session]:
    """The results of a use on data, and its launch; nothing wrote the elements of `hole`."""
    session = open_session(chips_of(cls)[-1])
    views = {n: new_tile(session, a, use[n].dtype, use[n].memory) for n, a in arrays.items()}
    if hole is not None:
        view = views[hole.operand]
        view.storage.written.remove_where(view, hole.over(view.layout.shape))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NkilabWarning)
        call(session, cls, **{**use, **views})
    return {n: views[n] for n in views if operands_of(cls)[n].is_written}, session


class Hole(NamedTuple):
    """One element of an operand, or all of its partition."""

    operand: str
    place: int
    is_partition: bool

    def over(self, shape: tuple[int, ...]) -> np.ndarray:
        """Booleans: which elements of the operand it is."""
        mask = np.zeros(shape, np.bool_)
        if self.is_partition:
            mask[self.place // prod(shape[1:])] = True
        else:
            mask.reshape(-1)[self.place] = True
        return mask


def reached(cls: type[Instruction], hole: Hole, seeds: Sequence[int] = (0,)) -> dict[str, np.ndarray]:
    """Per result, and for sums in registers, booleans: what changes with what stands in a hole."""
    reaches: dict[str, np.ndarray] = {}
    for seed in seeds:
        use, arrays = varied(cls, seed)
        before = elements_of(cls, *written_by(cls, use, arrays))
        for number in (0, 1, 3, 7, 200):
            changed = {**arrays, hole.operand: arrays[hole.operand].copy()}
            changed[hole.operand][hole.over(arrays[hole.operand].shape)] = number
            for result, elements in elements_of(cls, *written_by(cls, use, changed)).items():
                apart = before[result].view(f"V{elements.itemsize}") != elements.view(f"V{elements.itemsize}")
                reaches[result] = reaches.get(result, False) | apart
    return reaches


def elements_of(cls: type[Instruction], results: dict[str, View], session: Session) -> dict[str, np.ndarray]:
    sums = {"registers": session.registers[cls.registers]} if cls.registers in ("scalar", "vector") else {}
    return {name: array_of(view) for name, view in results.items()} | sums


def holes_of(cls: type[Instruction], name: str) -> list[Hole]:
    size = varied(cls, 0)[1][name].size
    places = sorted({0, 5, size - 1} & set(range(size)))
    return [Hole(name, place, is_partition) for place in places for is_partition in (False, True)]


def is_within(hole: Hole, mask: np.ndarray, changes: np.ndarray) -> bool:
    """Whether what changes with a hole is the same element of a result, or the same partition of it."""
    if hole.is_partition:
        rows = mask.reshape(len(mask), -1)[:, 0]
        return len(changes) >= len(mask) and not changes[: len(mask)][~rows].any()
    return changes.shape == mask.shape and not (changes & ~mask).any()


def is_told_of(cls: type[Instruction], hole: Hole) -> bool:
    return bool(written_by(cls, *varied(cls, 0), hole)[1].program.marks.unwritten)


# what ranks bring to a collective is looked at where they meet
ON_CHIP_READS = {
    cls: names
    for cls in INSTRUCTIONS
    if cls.module != "collectives"
    and all(t.memory in ON_CHIP for t in on_chip(cls).values() if isinstance(t, Tile))
    and (names := [n for n in varied(cls, 0)[1] if not operands_of(cls)[n].is_written])
}
reading = pytest.mark.parametrize("cls", ON_CHIP_READS, ids=[cls.name for cls in ON_CHIP_READS])


@reading
def test_what_depends_on_an_unwritten_element_is_unwritten_or_the_read_is_told_of(cls: Any) -> None:
    for hole in (h for name in ON_CHIP_READS[cls] for h in holes_of(cls, name) if not is_told_of(cls, h)):
        results, _ = written_by(cls, *varied(cls, 0), hole)
        reaches = reached(cls, hole)
        assert results
        for result, view in results.items():
            assert not (reaches[result] & ~view.storage.written.missing(view)).any(), hole


@reading
def test_an_unwritten_read_is_told_of_where_elements_at_other_places_depend_on_it(cls: Any) -> None:
    readers = [h for name in ON_CHIP_READS[cls] for h in holes_of(cls, name) if is_told_of(cls, h)]
    masks = {hole: hole.over(varied(cls, 0)[1][hole.operand].shape) for hole in readers}
    spread = [
        not is_within(hole, mask, changes)
        for hole, mask in masks.items()
        if not mask.all()
        for changes in reached(cls, hole, range(3)).values()
    ]
    assert any(spread) or not spread


CHOOSING = [cls for cls in ON_CHIP_READS if "used_elements" in vars(cls)]


class Part(NamedTuple):
    """Some elements of an operand."""

    operand: str
    mask: np.ndarray

    def over(self, shape: tuple[int, ...]) -> np.ndarray:
        return self.mask.reshape(shape)


def used_by(cls: type[Instruction], seed: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """What a use says of the elements that it uses, by operand."""
    declared, own = {}, cls.used_elements
    with monkeypatch.context() as patch:
        patch.setattr(cls, "used_elements", lambda *args: declared.update(used := own(*args)) or used)
        written_by(cls, *varied(cls, seed), Hole(ON_CHIP_READS[cls][0], 0, False))
    return declared


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cls", CHOOSING, ids=[cls.name for cls in CHOOSING])
def test_elements_that_a_use_leaves_out_change_nothing_and_may_be_unwritten(
    cls: Any, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, mask in used_by(cls, seed, monkeypatch).items():
        left_out = Part(name, ~mask)
        assert not any(changes.any() for changes in reached(cls, left_out, [seed]).values()), name
        results, session = written_by(cls, *varied(cls, seed), left_out)
        assert not session.program.marks.unwritten, name
        assert all(view.storage.written.of(view) == "all" for view in results.values()), name


@pytest.mark.parametrize("cls", CHOOSING, ids=[cls.name for cls in CHOOSING])
def test_every_element_that_a_use_does_not_leave_out_changes_something(
    cls: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = used_by(cls, 0, monkeypatch)
    assert any(mask.any() and not mask.all() for mask in used.values())
    for name, mask in used.items():
        for place in np.flatnonzero(mask)[:20].tolist():
            assert any(changes.any() for changes in reached(cls, Hole(name, place, False)).values()), name


def as_swapped(cls: type[Instruction], use: dict[str, Any]) -> tuple[str, str]:
    """A result of a use that may lie in HBM, and a tile that may lie in SBUF and is read; "" for none."""
    tiles = {n: spec for n, spec in operands_of(cls).items() if isinstance(use[n], Tile)}
    results = [n for n, spec in tiles.items() if spec.is_written and use[n].memory == HBM]
    sources = [n for n, spec in tiles.items() if not spec.is_written and SBUF in spec.memories]
    return (results or [""])[0], (sources or [""])[0]


SWAPPED = [cls for cls in INSTRUCTIONS if all(as_swapped(cls, smallest_use(cls)))]


@pytest.mark.parametrize("has_data", [True, False])
@pytest.mark.parametrize("cls", SWAPPED, ids=[cls.name for cls in SWAPPED])
def test_an_input_does_not_take_what_nothing_wrote(cls: Any, has_data: bool) -> None:
    use = smallest_use(cls)
    result, source = as_swapped(cls, use)
    session = open_session(chips_of(cls)[-1], has_data=has_data)
    views = {n: new_tile(session, t) for n, t in use.items() if isinstance(t, Tile)}
    tile = new_tile(session, replace(use[source], memory=SBUF), name="t")
    array = np.ones(use[result].shape, np.float32)
    storage = Storage(-1, "a", array.shape, views[result].layout.dtype, HBM, "input", 0)
    session.register(storage)
    storage.allocate(array)
    storage.host_array = array
    views |= {source: tile, result: View(storage, 0, whole_layout(storage))}
    with pytest.raises(KernelError) as caught:
        call(session, cls, **{**use, **views})
    if isinstance(caught.value, RuleError):
        # a rule keeps this one's tensors in HBM
        return
    assert caught.value.problem == (
        f"{result} is an input of the kernel, and nothing has written {source}, which would take its place"
    )
    assert caught.value.hint == f"exchange {result} and {source}: {cls.name} writes to {result}"
    assert (array == 1).all()
    assert len(session.program) == 0
