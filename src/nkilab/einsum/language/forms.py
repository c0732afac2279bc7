"""What may be given for a specification: a file, YAML, expressions, a call as of numpy.einsum, a cascade."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import SpecError, UsageError, shown
from .ast import Affine, Cascade, Einsum, Scalar, Tensor
from .expressions import read_einsum
from .sources import Source, source_of_file, without_prose
from .spec import Spec, read_spec, spec_of_cascade

_NUMPY = re.compile(r"\s*[A-Za-z]*(\s*,\s*[A-Za-z]*)*\s*->\s*[A-Za-z]*\s*")
_NAMES = "ABCDEFGHIJKLMNOPQRSTUVWXY"


def spec_from(given: Any, scalars: Mapping[str, float] | None = None, outputs: tuple[str, ...] = ()) -> Spec:
    """The specification that something means.

    Args:
        given: a Spec, a Cascade, the path of a file, a YAML text, expressions divided by newlines or
            semicolons that stand alone, or subscripts as of numpy.einsum ("mk,kn->mn", for operands A, B
            and the result Z).
        scalars: values of the parameters of expressions.
        outputs: tensors that expressions return; the last one written if not given.

    Raises:
        SpecError: if it has no meaning.
        FileError: if the file cannot be read.
    """
    if isinstance(given, Spec):
        return given
    if isinstance(given, Cascade):
        return spec_of_cascade(given)
    if isinstance(given, Path):
        return read_spec(source_of_file(given))
    if not isinstance(given, str):
        raise UsageError(f"a specification is a text, a path or a Cascade, no {type(given).__name__}")
    if not given.strip() or "\0" in given:
        raise UsageError(
            f"the specification is {shown(given)}; it is the path of a file, YAML, expressions or subscripts",
            hint='pass "mk,kn->mn", or the path of a specification',
        )
    if _NUMPY.fullmatch(given):
        return spec_of_cascade(_from_subscripts(given))
    if re.search(r"^\s*einsum\s*:", given, re.M):
        return read_spec(without_prose(Source(given)))
    if "=" in given and "[" in given:
        return spec_of_cascade(_from_expressions(given, scalars or {}, outputs))
    return read_spec(source_of_file(Path(given)))


def _from_subscripts(text: str) -> Cascade:
    left, _, right = text.replace(" ", "").partition("->")
    terms = left.split(",")
    operands = [f"{_NAMES[n]}[{', '.join(t.lower())}]" for n, t in enumerate(terms)]
    actions = (" M mul" if len(terms) > 1 else "") + (" V add" if set(left) - {","} - set(right) else "")
    expression = f"Z[{', '.join(right.lower())}] = {' . '.join(operands)}{' ;;' + actions if actions else ''}"
    return _from_expressions(expression, {}, ())


def _from_expressions(text: str, scalars: Mapping[str, float], outputs: tuple[str, ...]) -> Cascade:
    lines = [line.strip() for line in re.split(r"\n|(?<!;);(?!;)", text) if line.strip()]
    einsums = [read_einsum(line) for line in lines]
    tensors: dict[str, Tensor] = {}
    for einsum in einsums:
        for access in (
            *einsum.accesses,
            einsum.output,
            *(g.access for a in einsum.accesses for g in a.gathers),
        ):
            ranks = tuple(_rank(i, access.tensor, n) for n, i in enumerate(access.indices))
            tensors.setdefault(access.tensor, Tensor(access.tensor, ranks))
    for name in _scalars(einsums):
        if name not in scalars:
            raise SpecError(f"the scalar {name} has no value", hint=f"give scalars={{{name!r}: VALUE}}")
    return Cascade(tensors, tuple(einsums), outputs or (einsums[-1].name,), dict(scalars))


def _scalars(einsums: list[Einsum]) -> list[str]:
    return [o.name for e in einsums for o in e.operands if isinstance(o, Scalar) and o.name]


def _rank(index: Any, tensor: str, axis: int) -> str:
    """The rank of an axis: that of the variable that indexes it alone, else one of its own."""
    if isinstance(index, Affine) and index.plain:
        return index.plain.upper()
    return f"{tensor}_{axis}"
