"""One form for what can be said in several: long products in pairs, long vectors as rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import prod

from ..._lazy import opt_einsum
from ...machine import Machine
from ..language.additions import Additions
from ..language.ast import Access, Affine, Cascade, Einsum, Iterate, Kind, Step, Tensor
from ..rewrite.live import live
from ..rewrite.ranks import LONG, lanes_of
from ..rewrite.splits import split
from .knobs import Knobs, Picker

# factors of which every order is judged
MOST_FACTORS = 5
# cycles of TensorE that a product of fewer columns takes
LEAST_COLUMNS = 64
# rows that each may lie on all partitions, and elements of the shortest of them
FEW_ROWS, LONG_ROW = 32, 1 << 11
# blocks of partitions that as many short rows fill, and elements of a row that is no longer short
FEWEST_ROWS, SHORT_ROW = 4, 400


def normal(
    cascade: Cascade, partitions: int, plain: Collection[str] = (), *, machine: Machine | None = None,
    picker: Picker | None = None,
) -> Cascade:  # fmt: skip
    """A cascade that means the same, in the form that nests expect.

    Args:
        plain: variables that stay whole.
        machine: whose time decides which two of three tensors are multiplied first; None for the fewest
            multiplications.
        picker: takes the order of factors, and knows whether each of a few long rows lies on all partitions.
    """
    picker = picker or Picker()
    paired = pairs(live(cascade)[0], machine, picker)
    return _rows(paired, partitions, plain, picker)


def has_few_rows(cascade: Cascade, partitions: int) -> bool:
    """Whether there are long rows that may be spread over the partitions."""
    return _rows(cascade, partitions, (), Picker(Knobs(is_spread=True))) is not cascade


def pairs(cascade: Cascade, machine: Machine | None, picker: Picker) -> Cascade:
    """Sums of products of three tensors or more as sums of products of two."""
    added = Additions(cascade)
    steps: list[Step] = []
    for step in cascade.steps:
        parts = [part for einsum in step.body for part in paired(einsum, added, picker, machine)]
        steps += [step.with_body(parts)] if isinstance(step, Iterate) else parts
    return added.applied(tuple(steps))


def paired(einsum: Einsum, added: Additions, picker: Picker, machine: Machine | None = None) -> list[Einsum]:
    """A sum of products of many tensors as Einsums of two; new tensors are declared. The last is the sum."""
    found: list[Einsum] = []
    # with what is declared below, of which the next pair may be
    cascade = replace(added.cascade, tensors=added.tensors)
    while einsum.is_product and len(einsum.operands) == len(einsum.accesses) > 2:
        options = _options(einsum, cascade, machine if len(einsum.accesses) <= MOST_FACTORS else None)
        if not options:
            break
        left, right, kept = picker.pick(
            f"which factors of {einsum.name} go first", [pair for _, pair in options],
            lambda pair: f"{pair[0]} and {pair[1]}", [work for work, _ in options],
        )  # fmt: skip
        output = added.along(f"{einsum.name}_part", kept, einsum, Kind.PART)
        is_summed = set(left.variables + right.variables) - set(kept)
        found.append(Einsum(output, (left, right), "multiply", "add" if is_summed else ""))
        rest = tuple(a for a in einsum.accesses if a is not left and a is not right)
        einsum = replace(einsum, operands=(output, *rest), text="")
    return [*found, einsum]


def _options(
    einsum: Einsum, cascade: Cascade, machine: Machine | None
) -> list[tuple[float, tuple[Access, Access, tuple[str, ...]]]]:
    """Pairs with the variables that their own result keeps, those of fewest products or least time first."""
    found = []
    for left, right in combinations(einsum.accesses, 2):
        both = tuple(dict.fromkeys((*left.variables, *right.variables)))
        others = {v for a in einsum.accesses if a is not left and a is not right for v in a.variables}
        kept = tuple(v for v in both if v in others or v in einsum.output.variables)
        plain = {i.plain for a in (left, right) for i in a.indices if isinstance(i, Affine)}
        if any(v not in plain for v in kept):
            continue
        rest = [a.variables for a in einsum.accesses if a is not left and a is not right]
        if machine is not None:
            sizes = {v: cascade.extent(v, einsum) for v in einsum.variables}
            work = _time_ns(machine, sizes, left.variables, right.variables, kept)
            work += _least_ns(machine, sizes, [kept, *rest], einsum.output.variables)
        else:
            work = float(sum(prod(cascade.extent(v, einsum) for v in held) for held in (both, kept)))
        if machine is not None and len(rest) == 1 and set(kept) == set(both):
            # as its reader has them
            kept = tuple(sorted(kept, key=(*rest[0], *both).index))
        found.append((work, (left, right, kept)))
    first = _first_of_path(einsum, cascade) if machine is None else ()
    return sorted(found, key=lambda option: (tuple(option[1][:2]) != first, option[0]))


def _first_of_path(einsum: Einsum, cascade: Cascade) -> tuple[Access, ...]:
    """The pair that a contraction path begins with, which counts multiplications."""
    sizes = {v: cascade.extent(v, einsum) for v in einsum.variables}
    inputs = [frozenset(a.variables) for a in einsum.accesses]
    path = opt_einsum().paths.auto(inputs, frozenset(einsum.output.variables), sizes)
    return tuple(einsum.accesses[n] for n in sorted(path[0]))


def _least_ns(
    machine: Machine, sizes: Mapping[str, int], factors: Sequence[Sequence[str]], output: Sequence[str]
) -> float:
    """Nanoseconds of a product of some factors, given by their variables, in the order that takes least."""
    if len(factors) == 1:
        return 0.0
    found = []
    for left, right in combinations(range(len(factors)), 2):
        rest = [f for n, f in enumerate(factors) if n not in (left, right)]
        later = {*output, *(v for f in rest for v in f)}
        kept = tuple(dict.fromkeys(v for v in (*factors[left], *factors[right]) if v in later))
        first = _time_ns(machine, sizes, factors[left], factors[right], kept)
        found.append(first + _least_ns(machine, sizes, [kept, *rest], output))
    return min(found)


def _time_ns(
    machine: Machine, sizes: Mapping[str, int], left: Sequence[str], right: Sequence[str], kept: Sequence[str]
) -> float:
    """Nanoseconds of a product of two tensors on the engine that computes it, and of what it hands on."""
    lanes, every = machine["partitions"], {*left, *right}
    result = prod(sizes[v] for v in kept)
    sums = prod(sizes[v] for v in every.difference(kept).intersection(left, right))
    own = [prod(sizes[v] for v in every.intersection(kept).difference(o)) for o in (right, left)]
    held_ns = result / lanes / machine["vector_clock_ghz"]
    if result * 4 > machine["sbuf_bytes_per_partition"] * lanes / 2:
        held_ns += result * 8 / machine["hbm_bytes_per_ns"]
    points = prod(sizes[v] for v in every)
    if sums == 1 or min(own) == 1:
        return float(points / lanes / machine["vector_clock_ghz"] + held_ns)
    again = points // (sums * own[0] * own[1]) * -(-sums // lanes)
    columns = min(-(-a // lanes) * max(b, LEAST_COLUMNS) for a, b in (own, own[::-1]))
    return float(again * columns / machine["tensor_clock_ghz"] + held_ns)


def _rows(cascade: Cascade, partitions: int, plain: Collection[str], picker: Picker) -> Cascade:
    """Long vectors, and short rows, as rows of equal length on all partitions; a few long rows if asked."""
    for rank, size in cascade.sizes.items():
        holders = [t for t in cascade.tensors.values() if rank in t.ranks]
        variable = rank.lower()
        lanes = lanes_of(size, partitions)
        if variable in plain or not holders or not lanes or cascade.blocks:
            continue
        uses = [e for e in cascade.einsums if any(variable in a.variables for a in e.every_access)]
        indices = [i for e in uses for a in e.every_access for i in a.indices if variable in i.variables]
        whole = [a for e in cascade.einsums for a in e.every_access if a.tensor in {t.name for t in holders}]
        is_sought = any(e.is_choice and variable in e.along for e in uses)
        is_bound = is_sought or any(i.plain != variable for i in indices)
        if is_bound or any(variable not in a.variables for a in whole):
            continue
        is_vector = all(t.ranks == (rank,) for t in holders) and size >= LONG
        is_few = picker.knobs.is_spread and _are_few(cascade, rank, holders)
        is_lanes = _are_lanes(cascade, rank, uses, partitions)
        is_one = is_vector or is_few or (is_lanes and not any(e.recurrence for e in uses))
        may_be = is_lanes or _are_summed(cascade, rank, uses, partitions)
        if is_one or (may_be and _are_runs(variable, picker)):
            axes = {(t.name, n) for t in holders for n, r in enumerate(t.ranks) if r == rank}
            cascade = split(cascade, axes, (1, size // lanes), ("_COLUMNS", "_ROWS"))
    return cascade


def _are_few(cascade: Cascade, rank: str, holders: Sequence[Tensor]) -> bool:
    """Whether a rank is the length of a few long rows."""
    rows = (prod(cascade.sizes[r] for r in t.ranks[:-1]) for t in holders)
    is_last = all(t.ranks[-1] == rank and t.ranks.count(rank) == 1 for t in holders)
    return is_last and cascade.sizes[rank] >= LONG_ROW and max(rows) <= FEW_ROWS


def _are_lanes(cascade: Cascade, rank: str, uses: Sequence[Einsum], partitions: int) -> bool:
    """Whether a rank counts short rows, which every Einsum goes through one by one."""
    variable = rank.lower()
    shapes = [t.ranks for t in cascade.tensors.values() if rank in t.ranks]
    is_first = all(ranks[0] == rank and ranks.count(rank) == 1 for ranks in shapes)
    if not is_first or not _are_short(cascade, rank, uses, partitions):
        return False
    sums = [e for e in cascade.einsums if e.reduce_op]
    is_apart = all(variable in a.variables for e in sums for a in e.every_access)
    return is_apart and all(variable in e.output.variables for e in uses)


def _are_summed(cascade: Cascade, rank: str, uses: Sequence[Einsum], partitions: int) -> bool:
    """Whether a rank counts short rows over which there are sums, of which any order is right."""
    variable = rank.lower()
    is_held = all(variable in a.variables for e in uses for a in e.accesses)
    is_held &= any(variable in e.reduced for e in uses)
    return is_held and _are_short(cascade, rank, uses, partitions)


def _are_short(cascade: Cascade, rank: str, uses: Sequence[Einsum], partitions: int) -> bool:
    """Whether a rank counts several blocks of short rows, and nothing asks which of them one is."""
    shapes = [t.ranks for t in cascade.tensors.values() if rank in t.ranks]
    rows = [prod(cascade.sizes[r] for r in ranks[ranks.index(rank) + 1 :]) for ranks in shapes]
    is_many = cascade.sizes[rank] >= FEWEST_ROWS * partitions
    return is_many and 1 < max(rows) < SHORT_ROW and not any(_asks(e, rank.lower()) for e in uses)


def _asks(einsum: Einsum, variable: str) -> bool:
    """Whether an Einsum asks which value a variable has, or what stands beside it."""
    return einsum.is_placed and (einsum.recurrence is None or variable in einsum.along)


def _are_runs(variable: str, picker: Picker) -> bool:
    """Whether rows of sums and of scans come in runs, one for each partition, instead of one by one."""
    return picker.pick(f"rows of {variable} in runs", ("no", "yes"), costs=(1.0, 1.0)) == "yes"
