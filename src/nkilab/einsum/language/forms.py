"""What may be given for a specification: a file, YAML, expressions, a call as of numpy.einsum, a cascade."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from os.path import exists
from pathlib import Path
from typing import Any

from ...errors import FileError, SpecError, UsageError, shown
from .ast import Access, Affine, Cascade, Einsum, Index, Place, Scalar, Tensor
from .expressions import read_einsum
from .formulas import NAME, read_expression
from .sources import Source, source_of_file, without_prose
from .spec import Spec, declare_parts, read_spec, spec_of_cascade

_IMPLICIT = re.compile(r"\s*[A-Za-z]+(\s*,\s*[A-Za-z]+)+\s*")
_YAML = re.compile(r"^\s*[A-Za-z][\w-]*\s*:(\s|$)", re.M)
# one expression of a text; ";;" stands before its operators, ";" and the end of a line behind it
_EXPRESSION = re.compile(r"(?:[^\n;]|;;)+")
_COMMENT = re.compile("#.*")
_NAMES = "ABCDEFGHIJKLMNOPQRSTUVWXY"


def spec_from(given: Any, scalars: Mapping[str, float] | None = None, outputs: Sequence[str] = ()) -> Spec:
    """The specification that something means.

    Args:
        given: a Spec, a Cascade, the path of a file, a YAML text or the dict that it is read as, expressions
            divided by newlines or semicolons that stand alone, or subscripts as of numpy.einsum ("mk,kn->mn",
            for operands A, B and the result Z).
        scalars: values of the parameters of expressions.
        outputs: tensors that expressions return; the last one written if not given.

    Raises:
        SpecError: if it has no meaning.
        FileError: if the file cannot be read.
        UsageError: if scalars or outputs are given beside anything but expressions.
    """
    if isinstance(given, str) and "=" in given and not (_YAML.search(given) or _is_file(given)):
        return spec_of_cascade(_from_expressions(given, scalars or {}, tuple(outputs)))
    option = "scalars" if scalars else "outputs" if outputs else ""
    if option:
        raise UsageError(
            f"{option} is given; it belongs to expressions, and the specification is none",
            hint="write scalars under einsum.scalars, and outputs under options.cascade-outputs",
        )
    if isinstance(given, str):
        return _from_text(given)
    if isinstance(given, Spec):
        return given
    if isinstance(given, Cascade):
        return spec_of_cascade(given)
    if isinstance(given, Path):
        return read_spec(source_of_file(given))
    if isinstance(given, Mapping):
        # JSON is YAML; of what it has no form for, a number of NumPy is one, and the rest is a text
        return read_spec(
            Source(json.dumps(given, default=lambda value: getattr(value, "item", value.__str__)()))
        )
    raise UsageError(f"a specification is a text, a path, a dict or a Cascade, no {type(given).__name__}")


def _is_file(text: str) -> bool:
    """Whether a text is the path of a file."""
    return "\0" not in text and "[" not in text and exists(text)


def _from_text(text: str) -> Spec:
    """What a text means that holds no expressions."""
    if _YAML.search(text):
        return read_spec(without_prose(Source(text)))
    if "->" in text or _IMPLICIT.fullmatch(text):
        return spec_of_cascade(_from_subscripts(text))
    if not text.strip() or "\0" in text or "\n" in text:
        raise UsageError(
            f"the specification is {shown(text)}; it must be the path of a file, YAML, expressions or "
            f"subscripts",
            hint='pass "mk,kn->mn", or the path of a specification',
        )
    if not exists(text):
        raise FileError(
            f"{text[:200]} cannot be read: no such file or directory",
            hint="give the path of a file, formulas ('Z[m, n] = A[m, k] * B[k, n]') or subscripts ('mk->m')",
        )
    return read_spec(source_of_file(Path(text)))


def _from_subscripts(text: str) -> Cascade:
    left, arrow, right = text.strip().replace(" ", "").partition("->")
    terms = left.split(",")
    problem, hint = _misread(terms, arrow, right)
    if problem:
        raise SpecError(problem, hint=hint).located("", "spec", (f"subscripts: {text.strip()[:200]}",))
    operands = [f"{_NAMES[n]}[{', '.join(t.lower())}]" for n, t in enumerate(terms)]
    actions = (" M mul" if len(terms) > 1 else "") + (" V add" if set(left) - {","} - set(right) else "")
    expression = f"Z[{', '.join(right.lower())}] = {' . '.join(operands)}{' ;;' + actions if actions else ''}"
    return _cascade_of([read_einsum(expression)], {}, ())


def _misread(terms: Sequence[str], arrow: str, right: str) -> tuple[str, str]:
    """What is wrong with subscripts, and a hint; "" if nothing is."""
    letters = Counter("".join(terms))
    strange = next((c for c in (*letters, *right) if not (c.isascii() and c.isalpha())), "")
    if strange == "." and "..." in "".join([*terms, right]):
        return "'...' stands for axes without a name; every axis needs a letter", "write the letters out"
    if strange:
        parts = "write an expression, whose indices have parts: Z[b, h, s, d] = A[b, s, 64*h + d]"
        alone = "pass the subscripts alone: 'mk,kn->mn'" if {"'", '"'} & letters.keys() else ""
        hint = parts if strange in "()" else alone
        return f"{strange!r} means nothing in subscripts; they are letters, commas and one '->'", hint
    if not arrow:
        # as numpy.einsum fills it in
        result = "".join(sorted(c for c, times in letters.items() if times == 1))
        return "'->' and the axes of the result are missing", f"write '{','.join(terms)}->{result}'"
    if len(terms) > len(_NAMES):
        return f"there are {len(terms)} operands; at most {len(_NAMES)} are read", "write expressions"
    both = next((c for c in letters if c.islower() and c.upper() in letters), "")
    if both:
        return f"{both} and {both.upper()} are one rank here, whatever their case", "take another letter"
    unknown = next((c for c in right if c not in letters), "")
    if unknown:
        return f"the result has the axis {unknown}, which no operand has", f"leave {unknown} out of it"
    double = next((c for c, times in Counter(right).items() if times > 1), "")
    return (f"the result has the axis {double} twice", "write it once") if double else ("", "")


def _from_expressions(text: str, scalars: Mapping[str, float], outputs: tuple[str, ...]) -> Cascade:
    text = _COMMENT.sub(lambda comment: " " * len(comment[0]), text)
    matches = [match for match in _EXPRESSION.finditer(text) if match[0].strip()]
    taken = {*NAME.findall(text)}
    read = [read_expression(e[0], _place(text, e.start()), "einsum.expressions", taken) for e in matches]
    parts = taken - {*NAME.findall(text)}
    return _cascade_of([einsum for einsums in read for einsum in einsums], scalars, outputs, parts)


def _cascade_of(
    einsums: list[Einsum], scalars: Mapping[str, float], outputs: tuple[str, ...], parts: Collection[str] = ()
) -> Cascade:
    every: dict[str, list[Access]] = {}
    for einsum in einsums:
        gathers = (g.access for a in einsum.every_access for g in a.gathers)
        for access in (*einsum.accesses, einsum.output, *gathers):
            every.setdefault(access.tensor, []).append(access)
    written: dict[str, list[Access]] = {t: [e.output for e in einsums if e.name == t] for t in every}
    ranks = {t: _ranks(own, every[t]) for t, own in written.items()}
    tensors = {name: Tensor(name, tuple(own)) for name, own in ranks.items() if name not in parts}
    declare_parts(einsums, tensors, parts)
    names = _scalars(einsums)
    for name in scalars:
        if name not in names:
            known = ", ".join(names) or "none"
            raise UsageError(f"the scalar {name} is given; the scalars of the expressions are {known}")
    return Cascade(tensors, tuple(einsums), outputs or (einsums[-1].name,), dict(scalars))


def _place(text: str, at: int) -> Place:
    """The line and column of a character."""
    return Place("", text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at))


def _scalars(einsums: list[Einsum]) -> list[str]:
    return [o.name for e in einsums for o in e.operands if isinstance(o, Scalar) and o.name]


def _names_rank(index: Index, is_written: bool) -> bool:
    """Whether an index tells how long its axis is."""
    if isinstance(index, Affine):
        return bool(index.variables) or (bool(index.terms) and index.constant >= 0)
    return not is_written


def _ranks(written: Sequence[Access], every: Sequence[Access]) -> Iterator[str]:
    """The rank of every axis of a tensor: that of the variable that indexes it alone, else one of its own.

    What is written has the ranks of what writes it: of the first index, or of one that reaches farther.
    Numbers name no rank, nor do places before an extent, N - 1, or gathered indices of what is written.
    """
    for axis in range(len((*written, *every)[0].indices)):
        own, others = (
            [a.indices[axis] for a in several if axis < len(a.indices)] for several in (written, every)
        )
        own.sort(key=lambda index: bool(index.plain))
        naming = (i.plain for i in (*own, *others) if _names_rank(i, bool(written)))
        plain = next(naming, "")
        yield plain.upper() or f"{every[0].tensor}_{axis}"
