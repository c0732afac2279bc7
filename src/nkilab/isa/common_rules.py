"""Rules that several instructions keep, made for the operands and attributes that each of them names.

Each has its sentence and counterexample here and its source where it is used, as pages word it differently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from ..machine import MACHINES
from ..tiles.tile import PSUM, Layout
from .declare import Rule, rule

ALU = 'NKI API common fields, "Supported math operators"'
TO_SBUF = "copy one of them to sbuf with tensor_copy"


def one_input_in_sbuf(first: str, second: str, source: str = "") -> Rule:
    """Not both of two inputs lie in PSUM; a number lies nowhere."""

    @rule(
        f"{first} and {second} are both in psum; at least one must be in sbuf",
        source=source,
        broken_by={f"{first}.memory": "psum", f"{second}.memory": "psum"},
        hint=TO_SBUF,
        key="err_unsupported_memory",
    )
    def one_input_in_sbuf(form: Any) -> bool:
        pair = (getattr(form, first), getattr(form, second))
        return not all(isinstance(tile, Layout) and tile.memory == PSUM for tile in pair)

    return one_input_in_sbuf


def types_agree(
    first: str, second: str, sentence: str, *, source: str = "", broken_by: Mapping[str, Any], hint: str = ""
) -> Rule:
    """Two operands have one type; each page says in its own words why."""

    @rule(sentence, source=source, broken_by=broken_by, hint=hint)
    def types_agree(form: Any) -> bool:
        return getattr(form, first).dtype is getattr(form, second).dtype

    return types_agree


def chip_has_it(
    generation: int, sentence: str, *, source: str = "", broken_by: Mapping[str, object] | None = None,
    asks: Callable[..., bool] = lambda form: True, **words: str,
) -> Rule:  # fmt: skip
    """The chip is of a generation or later, 3 for trn2, where a form asks for it; `words` as in `rule`."""
    without = tuple(m.name for m in MACHINES.values() if m.generation < generation)

    @rule(sentence, source=source, broken_by=broken_by or {}, chips=without, **words)
    def chip_has_it(form: Any) -> bool:
        return form.machine.generation >= generation or not asks(form)

    return chip_has_it


def operator_exists(name: str) -> Rule:
    """The chip has the operator that an attribute names."""

    @rule(f"{name} exists from trn3 on", source=ALU, broken_by={name: "abs_max"}, chips=("trn1", "trn2"))
    def operator_exists(form: Any) -> bool:
        return getattr(form, name).since <= form.machine.generation

    return operator_exists


def operators_exist(first: str, second: str, *, broken: str, **changes: Any) -> Rule:
    """The chip has both operators, of which the second may be left out.

    `broken` names the one that the counterexample gives, and `changes` what else it needs.
    """

    @rule(
        "an operator exists from trn3 on",
        source=ALU,
        broken_by={broken: "abs_max", **changes},
        chips=("trn1", "trn2"),
    )
    def operators_exist(form: Any) -> bool:
        pair = (getattr(form, first), getattr(form, second))
        return all(op is None or op.since <= form.machine.generation for op in pair)

    return operators_exist


def registers_are_known(source: str = "", **changes: Any) -> Rule:
    """No call reads registers that it leaves unknown; `changes` are what else breaks the rule."""

    @rule(
        "reduce_res is given and reduce_cmd is idle, which leaves the registers unknown",
        source=source,
        broken_by={"reduce_res.dtype": "float32", **changes},
        hint="give reduce_cmd=nisa.reduce_cmd.reset_reduce",
    )
    def registers_are_known(form: Any) -> bool:
        return form.reduce_res is None or form.reduce_cmd != "idle"

    return registers_are_known


def registers_are_loaded_from(initial: str, source: str = "") -> Rule:
    """Whoever loads the registers says what from."""

    @rule(
        f"reduce_cmd is load_reduce and {initial} is missing",
        source=source,
        broken_by={"reduce_cmd": "load_reduce"},
        hint=f"give {initial}, from which the registers are loaded",
    )
    def registers_are_loaded_from_something(form: Any) -> bool:
        return form.reduce_cmd != "load_reduce" or getattr(form, initial) is not None

    return registers_are_loaded_from_something


def gpsimd_stays_in_sbuf(*operands: str, source: str = "", hint: str = "") -> Rule:
    """GpSimdE does not reach PSUM where the caller chooses it; the last operand is the counterexample."""

    @rule(
        "engine is gpsimd, which cannot reach psum",
        source=source,
        broken_by={"engine": "gpsimd", f"{operands[-1]}.memory": "psum"},
        hint=hint,
        key="err_unsupported_memory",
    )
    def gpsimd_stays_in_sbuf(form: Any) -> bool:
        return form.engine != "gpsimd" or all(getattr(form, name).memory != PSUM for name in operands)

    return gpsimd_stays_in_sbuf


def reduction_is_maximum(source: str = "") -> Rule:
    """The registers keep the maximum of a row."""

    @rule("reduce_op is not maximum", source=source, broken_by={"reduce_op": "add"})
    def reduction_is_maximum(form: Any) -> bool:
        return form.reduce_op.name == "maximum"

    return reduction_is_maximum


def pattern_has_up_to_four_axes(source: str = "") -> Rule:
    """An affine pattern has one to four pairs of step and count."""
    too_many = [*[[1, 1]] * 4, [1, 16]]

    @rule("pattern has no axis, or more than four", source=source, broken_by={"pattern": too_many})
    def pattern_has_up_to_four_axes(form: Any) -> bool:
        return 1 <= len(form.pattern) <= 4

    return pattern_has_up_to_four_axes


def pattern_fills_dst(source: str = "") -> Rule:
    """An affine pattern has a place for each element of a partition of dst."""

    @rule(
        "the counts of pattern do not multiply to the elements per partition of dst",
        source=source,
        broken_by={"pattern": [[1, 3]]},
    )
    def pattern_fills_dst(form: Any) -> bool:
        return prod(count for _, count in form.pattern) == form.sizes["F*"]

    return pattern_fills_dst
