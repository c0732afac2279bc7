"""Names carry no meaning: a cascade under other names, hostile ones too, becomes the same kernel."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

import pytest

import nkilab.einsum
from nkilab.einsum.compiled import CompiledEinsum
from nkilab.einsum.language.ast import Cascade
from tests.einsum.cascades import CASES, Case
from tests.einsum.realistic import REALISTIC
from tests.einsum.renaming import renamed_cascade, shape_of

pytestmark = pytest.mark.corpus

# what rewrites append, and what people append as well
ENDINGS = (
    "_turned",
    "_next",
    "_now",
    "_part",
    "_sum",
    "_edged",
    "_back",
    "_turns",
    "_diagonal",
    "_part_",
    "_",
)


def hostile_names(names: list[str]) -> dict[str, str]:
    """The names of a cascade with endings that a rewrite might give them, the last first in the alphabet."""
    return {
        name: f"{chr(ord('a') + len(names) - n)}{ENDINGS[n % len(ENDINGS)]}" for n, name in enumerate(names)
    }


def hostile_ranks(ranks: list[str]) -> dict[str, str]:
    """Ranks in the opposite order of the alphabet, with endings that a rewrite might give them."""
    endings = ("_ROWS", "_COLUMNS", "_EDGED_0", "_ROW", "")
    return {
        rank: f"{chr(ord('A') + len(ranks) - n)}{endings[n % len(endings)]}" for n, rank in enumerate(ranks)
    }


def names_of_each_other(names: list[str]) -> dict[str, str]:
    """Names that a rewrite would give: X and X_turned, X_next, ..."""
    endings = ("", *ENDINGS)
    return {name: f"X{n // len(endings) or ''}{endings[n % len(endings)]}" for n, name in enumerate(names)}


def same_names(names: list[str]) -> dict[str, str]:
    """Every name as it is."""
    return {name: name for name in names}


def other_order(cascade: Cascade) -> Cascade:
    """A cascade whose results and ranks are declared in another order; inputs are arguments, in theirs."""
    computed = {name: cascade.tensors[name] for name in reversed(cascade.written)}
    inputs = {name: cascade.tensors[name] for name in cascade.inputs}
    sizes = dict(reversed(cascade.sizes.items()))
    return replace(cascade, tensors={**computed, **inputs}, sizes=sizes)


Names = Callable[[list[str]], Mapping[str, str]]
WAYS: dict[str, tuple[Names, Names]] = {
    "hostile tensors": (hostile_names, same_names),
    "tensors named after each other": (names_of_each_other, same_names),
    "hostile ranks": (same_names, hostile_ranks),
    "all": (names_of_each_other, hostile_ranks),
}


def types_of(cascade: Cascade, dtype: str) -> dict[str, str]:
    """The type of inputs and outputs, whole numbers for those that hold indices."""
    gathered = {g.access.tensor for e in cascade.einsums for a in e.accesses for g in a.gathers}
    tensors = (*cascade.inputs, *cascade.outputs)
    return {t: "int32" if t in gathered else dtype for t in tensors}


@cache
def compiled(name: str) -> CompiledEinsum:
    """The kernel of a case under the names as they are, once for all ways to change them."""
    case = KNOWN[name]
    types = types_of(case.cascade, "bfloat16")
    return nkilab.einsum.compile(case.cascade, sizes=case.extents(), dtypes=types)


def differs_by_names(plain: CompiledEinsum, cascade: Cascade, sizes: Mapping[str, int], way: str) -> bool:
    """Whether the kernel of a cascade in bfloat16 is another one under other names and in another order."""
    names, rank_names = WAYS[way]
    tensors, ranks = names(list(cascade.tensors)), rank_names(list(sizes))
    renamed, _ = renamed_cascade(other_order(replace(cascade, sizes=dict(sizes))), tensors, ranks)
    types = {tensors[t]: d for t, d in types_of(cascade, "bfloat16").items()}
    other = nkilab.einsum.compile(renamed, dtypes=types)
    is_same = shape_of(other.source) == shape_of(plain.source)
    return not is_same or other.estimate.latency_us != plain.estimate.latency_us


KNOWN = {case.name: case for case in (*CASES, *REALISTIC)}


# a kernel that changes under one of the other ways changes under "all"; the slow test tells which it was
@pytest.mark.parametrize("way", ["hostile tensors", "all"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_names_change_neither_kernel_nor_time(case: Case, way: str) -> None:
    assert not differs_by_names(compiled(case.name), case.cascade, case.extents(), way)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", KNOWN.values(), ids=lambda c: c.name)
def test_no_way_to_name_changes_kernel_or_time(case: Case, way: str) -> None:
    assert not differs_by_names(compiled(case.name), case.cascade, case.extents(), way)


HASHED = """
import nkilab.einsum
text = "Z[c, p, q] = X[c, 2*p + r, 2*q + s] ;; V max"
sizes = {"P": 8, "Q": 8, "R": 2, "S": 2}
print(nkilab.einsum.compile(text, sizes=sizes, shapes={"X": (64, 16, 16)}).source)
"""


@pytest.mark.corpus(drawn=False)
def test_no_order_of_a_set_is_in_a_kernel() -> None:
    # the loops over both windows once stood in the order in which Python hashed their names
    command = [sys.executable, "-c", HASHED]
    texts = {
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True,
                       check=True).stdout
        for seed in "0123"
    }  # fmt: skip
    assert len(texts) == 1
