"""Rules that several instructions keep, made for the operands and attributes that each of them names.

Each has its sentence and counterexample here and its source where it is used, as pages word it differently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from ..machine import MACHINES
from ..tiles.tile import PSUM, Layout
from .declare import Rule

ALU = 'NKI API common fields, "Supported math operators"'
TO_SBUF = "copy one of them to sbuf with tensor_copy"


def _memory_of(layout: Any) -> str:
    """Where an operand lies; "" for a number."""
    return layout.memory if isinstance(layout, Layout) else ""


def one_input_in_sbuf(first: str, second: str, source: str = "") -> Rule:
    """Not both of two inputs lie in PSUM; a number lies nowhere."""
    return Rule(
        f"{first} and {second} are both in psum; at least one must be in sbuf", source,
        {f"{first}.memory": "psum", f"{second}.memory": "psum"},
        lambda form: any(_memory_of(getattr(form, name)) != PSUM for name in (first, second)),
        TO_SBUF, "err_unsupported_memory",
    )  # fmt: skip


def types_agree(
    first: str, second: str, sentence: str, *, source: str = "", broken_by: Mapping[str, Any], hint: str = ""
) -> Rule:
    """Two operands have one type; each page says in its own words why."""
    return Rule(
        sentence, source, broken_by,
        lambda form: getattr(form, first).dtype is getattr(form, second).dtype, hint,
    )  # fmt: skip


def chip_has_it(
    generation: int, sentence: str, *, source: str = "", broken_by: Mapping[str, object] | None = None,
    asks: Callable[..., bool] = lambda form: True, **words: str,
) -> Rule:  # fmt: skip
    """The chip is of a generation or later, 3 for trn2, where a form asks for it; `words` as in `Rule`."""
    without = tuple(m.name for m in MACHINES.values() if m.generation < generation)
    return Rule(
        sentence, source, broken_by or {},
        lambda form: form.machine.generation >= generation or not asks(form), chips=without, **words,
    )  # fmt: skip


def operators_exist(*names: str, broken: str = "", **changes: Any) -> Rule:
    """The chip has the operators that attributes name, which may be left out.

    `broken` names the one that the counterexample gives, the first if "", and `changes` what else it needs.
    """

    def operators_exist(form: Any) -> bool:
        operators = (getattr(form, name) for name in names)
        return all(op is None or op.since <= form.machine.generation for op in operators)

    what, counterexample = names[0] if len(names) == 1 else "an operator", {broken or names[0]: "abs_max"}
    return Rule(f"{what} exists from trn3 on", ALU, counterexample | changes, operators_exist,
                chips=("trn1", "trn2"))  # fmt: skip


def registers_are_known(source: str = "", **changes: Any) -> Rule:
    """No call reads registers that it leaves unknown; `changes` are what else breaks the rule."""
    return Rule(
        "reduce_res is given and reduce_cmd is idle, which leaves the registers unknown", source,
        {"reduce_res.dtype": "float32", **changes},
        lambda form: form.reduce_res is None or form.reduce_cmd != "idle",
        "give reduce_cmd=nisa.reduce_cmd.reset_reduce",
    )  # fmt: skip


def registers_are_loaded_from(initial: str, source: str = "") -> Rule:
    """Whoever loads the registers says what from."""
    return Rule(
        f"reduce_cmd is load_reduce and {initial} is missing", source, {"reduce_cmd": "load_reduce"},
        lambda form: form.reduce_cmd != "load_reduce" or getattr(form, initial) is not None,
        f"give {initial}, from which the registers are loaded",
    )  # fmt: skip


def gpsimd_stays_in_sbuf(*operands: str, source: str = "", hint: str = "") -> Rule:
    """GpSimdE does not reach PSUM where the caller chooses it; the last operand is the counterexample."""
    return Rule(
        "engine is gpsimd, which cannot reach psum", source,
        {"engine": "gpsimd", f"{operands[-1]}.memory": "psum"},
        lambda form: form.engine != "gpsimd" or all(getattr(form, n).memory != PSUM for n in operands),
        hint, "err_unsupported_memory",
    )  # fmt: skip


# the registers keep the maximum of a row
REDUCTION_IS_MAXIMUM = Rule(
    "reduce_op is not maximum", "", {"reduce_op": "add"}, lambda form: form.reduce_op.name == "maximum"
)
# an affine pattern has one to four pairs of step and count
PATTERN_HAS_UP_TO_FOUR_AXES = Rule(
    "pattern has no axis, or more than four", "", {"pattern": [*[[1, 1]] * 4, [1, 16]]},
    lambda form: 1 <= len(form.pattern) <= 4,
)  # fmt: skip


def pattern_fills_dst(source: str = "") -> Rule:
    """An affine pattern has a place for each element of a partition of dst."""
    return Rule(
        "the counts of pattern do not multiply to the elements per partition of dst", source,
        {"pattern": [[1, 3]]}, lambda form: prod(count for _, count in form.pattern) == form.sizes["F*"],
    )  # fmt: skip
