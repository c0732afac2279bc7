"""The roofline of a cascade, below which no kernel comes, and that of a kernel.

Of a cascade: a kernel is launched, and its first transfer started; inputs and outputs cross HBM once, and
again what turns read that the chip cannot hold; sums of products run on TensorE at its peak, functions of
one value on ScalarE; all element-wise work together is shared by VectorE in its fastest mode, ScalarE and
GpSimdE. An instruction takes two operators; sums ride along with what computes their terms, other reductions
are a pass of their own. Products of three tensors or more count in their cheapest order.

What TensorE computes lies in PSUM, which VectorE and ScalarE alone read: functions of it are passes of
ScalarE, reductions other than sums passes of VectorE at one element per cycle, all else goes to either. An
operand of TensorE that depends on a maximum or the like over its own rank lies with that rank along the
columns: it is transposed on TensorE and leaves PSUM once more. Of a product with a vector, every element of
the matrix is used once: it goes through an engine by itself, through TensorE a column at a time. What a
comparison of indices rules out counts nowhere. The turns
of an iterate block, one after the other, need scans, or the longest chain of a turn each (`chain.py`). Of a
kernel: its instructions at full rate, without overhead or waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from ..api import Estimate
from ..isa.array_tiles import ARRAY, part_of_array, smallest_columns
from ..machine import Machine
from ..tiles.dtypes import as_dtype
from .chain import blocks_ns
from .language.ast import Access, Affine, Cascade, Condition, Einsum, Iterate, block_extent
from .language.operators import OPERATORS
from .plan.normal import normal
from .rewrite.diagonals import with_diagonals
from .rewrite.filters import with_sums_over_filters
from .rewrite.splits import with_split_ranks
from .rewrite.window_elements import with_elements_once

# What may bind a cascade, as reports name it. psum is shared out best; vectors are multiplied with matrices
# by all engines together; scans are VectorE's, or products of chunks; turns of a chain wait for each other.
RESOURCES = {
    "hbm": "HBM", "tensor": "TensorE", "scalar": "ScalarE", "elementwise": "element-wise engines",
    "turned": "TensorE with transposes", "psum": "VectorE and ScalarE on PSUM",
    "vectors": "all engines on products with vectors", "scan": "scans", "chain": "chain of turns",
}  # fmt: skip

# functions that operators of VectorE compute
ARITHMETIC = ("reciprocal", "square", "abs", "relu", "sqrt", "rsqrt", "sign")


@dataclass(frozen=True)
class Roofline:
    """Nanoseconds per resource.

    Args:
        times_ns: by name of `RESOURCES`.
        bytes: that inputs and outputs have.
        launch_ns: before the first transfer moves anything, and behind the last.
    """

    times_ns: Mapping[str, float]
    bytes: int
    launch_ns: float = 0.0

    @property
    def bound(self) -> str:
        """The resource that needs longest."""
        return max(self.times_ns, key=lambda name: self.times_ns[name])

    @property
    def least_us(self) -> float:
        """Microseconds below which no kernel comes."""
        return (self.launch_ns + self.times_ns[self.bound]) / 1000


def roofline(cascade: Cascade, dtypes: Mapping[str, str], machine: Machine) -> Roofline:
    """The roofline of a cascade whose ranks have extents."""
    times = dict.fromkeys(RESOURCES, 0.0)
    cascade = with_elements_once(cascade)
    cascade = with_sums_over_filters(with_split_ranks(with_diagonals(cascade), are_shared=True))
    read = {tensor for einsum in cascade.einsums for tensor in einsum.reads}
    moved = (*(name for name in cascade.inputs if name in read), *cascade.outputs)
    total = sum(_bytes_moved(cascade, name, dtypes) for name in moved)
    again = sum(_read_again(cascade, block, dtypes, machine) for block in cascade.blocks)
    times["hbm"] = (total + again) / machine["hbm_bytes_per_ns"]
    narrow = any(as_dtype(dtypes.get(t, "float32")).storage.itemsize <= 2 for t in cascade.inputs)
    cascade = normal(cascade, int(machine["partitions"]))
    floats = 1 if narrow else machine["fp32_passes"]
    times["scan"], times["chain"], chunked = blocks_ns(cascade, machine, floats)
    passes: dict[tuple[Iterate | None, frozenset[str]], list[Einsum]] = {}
    for einsum, block in cascade.walk():
        if einsum.is_contraction:
            rate = machine["peak_tflops_bf16"] * 1000 / floats
            times["tensor"] += 2 * _points(cascade, einsum, block) / rate
        elif block is None or block.variable not in chunked:
            passes.setdefault((block, frozenset(einsum.variables)), []).append(einsum)
    for (block, _), einsums in passes.items():
        points = _points(cascade, einsums[0], block) / machine["partitions"]
        times["scalar"] += points * sum(map(_is_function, einsums)) / machine["scalar_clock_ghz"]
        times["elementwise"] += points * _other_passes(einsums)
    functions = times["scalar"] * machine["scalar_clock_ghz"]
    times["elementwise"] = (times["elementwise"] + functions) / elementwise_rate(machine, narrow)
    # a transpose takes as long whatever the type (2.26 costs, nc_transpose)
    turned = sum(_points(cascade, e, b) for e, b in _turned(cascade)) / machine["partitions"]
    times["turned"] = times["tensor"] + turned / machine["tensor_clock_ghz"] if turned else 0.0
    times["psum"] = _shared_out(machine, *_psum_passes(cascade, machine))
    times["vectors"] = _with_vectors(cascade, machine) / _vector_rate(machine, narrow)
    launch = sum(machine[name] for name in ("kernel_start_ns", "dma_start_ns", "kernel_end_ns"))
    return Roofline(times, total, launch)


def _turned(cascade: Cascade) -> list[tuple[Einsum, Iterate | None]]:
    """Einsums whose results TensorE sums over a variable that a reduction they depend on runs along."""
    made = {e.name: (e, b) for e, b in cascade.walk() if not e.is_contraction}
    readers = (e for e in cascade.einsums if e.is_contraction)
    found = {}
    for reader, tensor in ((r, t) for r in readers for t in r.reads if t in made):
        einsum, block = made[tensor]
        needed = dependences(cascade, einsum)
        if any(
            other.name in needed
            and other.reduce_op not in ("", "add")
            and set(other.reduced) & set(reader.reduced)
            and set(other.variables) == set(einsum.variables)
            for other in cascade.einsums
        ):
            found[tensor] = (einsum, block)
    return list(found.values())


def _with_vectors(cascade: Cascade, machine: Machine) -> float:
    """Elements per lane of the matrices that are multiplied with vectors, as often as they are."""
    held = ((e, b) for e, b in cascade.walk() if e.is_contraction)
    total = sum(_points(cascade, e, b) for e, b in held if _has_vector(cascade, e, b))
    return total / int(machine["partitions"])


def _has_vector(cascade: Cascade, einsum: Einsum, block: Iterate | None) -> bool:
    """Whether a contraction multiplies a matrix with a vector not known before its turn of a block.

    A matrix that is made of products or by a recurrence does not count: what it is made of may be multiplied
    with the vector instead. Nor do windows: their elements come again, in as many places of a band.
    """
    turn = {block.variable} if block else set[str]()
    made = {e.name for e in block.body} if block else set[str]()
    if len(einsum.accesses) > 2:
        # no two of them have a sum of their own
        return False
    for vector, matrix in (einsum.accesses, einsum.accesses[::-1]):
        theirs, own = (set(a.variables) & set(einsum.output.variables) - turn for a in (vector, matrix))
        is_late = block is None or (vector.tensor in made and not turn & set(matrix.variables))
        is_late &= not any(isinstance(i, Affine) and len(i.variables) > 1 for i in matrix.indices)
        if theirs <= own and is_late and matrix.tensor not in made and _is_whole(cascade, matrix.tensor):
            return True
    return False


def _is_whole(cascade: Cascade, tensor: str) -> bool:
    """Whether a tensor is an input, a copy of one, or what a function gives."""
    writers = cascade.writers(tensor)
    is_plain = all(not (e.map_op or e.reduce_op or e.recurrence) and len(e.reads) == 1 for e in writers)
    are_functions = bool(writers) and all(_is_function(e) for e in writers)
    return are_functions or (is_plain and all(_is_whole(cascade, e.reads[0]) for e in writers))


def _read_again(cascade: Cascade, block: Iterate, dtypes: Mapping[str, str], machine: Machine) -> int:
    """Bytes of matrices that all turns of a block multiply with their vectors, and the chip cannot hold.

    A turn uses no element before all are used two turns earlier: it waits for an element of its vector,
    this for all of the vector before, and those for all products before them. So what the chip cannot hold at
    the end of a turn is read anew within the next two.
    """
    turn, matrices = block.variable, set[str]()
    accesses = [a for e in block.body for a in e.every_access]
    if not all(i.plain or turn in i.variables for a in accesses for i in a.indices):
        return 0
    for einsum in (
        e for e in block.body if e.is_contraction and not e.condition and _has_vector(cascade, e, block)
    ):
        reads = {a.tensor: a for a in einsum.accesses}
        matrices |= {
            matrix
            for matrix, vector in (tuple(reads), tuple(reads)[::-1])
            if matrix in cascade.inputs and turn not in reads[matrix].variables
            and len({*reads[matrix].variables}) == len(reads[matrix].indices)
            and any(einsum.name in dependences(cascade, e) for e in block.body if e.name == vector)
        }  # fmt: skip
    room = machine["sbuf_physical_bytes_per_partition"] + machine.psum_bytes_per_partition
    left = sum(_bytes_moved(cascade, m, dtypes) for m in matrices) - int(room * machine["partitions"])
    return max(0, left) * ((block_extent(block, cascade) - 1) // 2)


def _vector_rate(machine: Machine, narrow: bool) -> float:
    """Elements per lane and nanosecond that all engines together multiply with a vector, and add up.

    TensorE takes a matrix as moving columns, several beside each other on tiles of the array, or as weights.
    float32 takes a tile twice in a row, and the second time is issued before what comes behind: two tiles
    are busy. Whatever else multiplies, VectorE or GpSimdE adds with an instruction of two inputs, or DMA.
    """
    columns = machine["weight_columns"] if narrow else machine["fp32_weight_columns"]
    tiles = ARRAY / smallest_columns(machine)
    moving = tiles if narrow else min(tiles, 2) / machine["fp32_passes"]
    two_inputs = min(2.0, machine["vector_mode_speedup"]) if narrow else 1.0
    added = machine["hbm_bytes_per_ns"] / machine["partitions"] / (2 if narrow else 4)
    on_lanes = two_inputs * machine["vector_clock_ghz"] + machine["gpsimd_clock_ghz"] + added
    return float(max(columns, moving) * machine["tensor_clock_ghz"] + on_lanes)


def dependences(cascade: Cascade, einsum: Einsum) -> set[str]:
    """Tensors that an Einsum reads, directly or not."""
    found, open_ = set(einsum.reads), set(einsum.reads)
    while open_:
        open_ = {t for e in cascade.einsums if e.name in open_ for t in e.reads} - found
        found |= open_
    return found


def _psum_passes(cascade: Cascade, machine: Machine) -> tuple[float, float, float]:
    """Elements per lane that VectorE alone, ScalarE alone, and either of them reads of PSUM."""
    vector = scalar = either = 0.0
    for product, block in cascade.walk():
        if not product.is_contraction:
            continue
        readers = [(e, b) for e, b in cascade.walk() if product.name in e.reads and not e.is_contraction]
        reduced = [_points(cascade, e, b) for e, b in readers if e.reduce_op not in ("", "add")]
        functions = [_points(cascade, e, b) for e, b in readers if _is_function(e)]
        vector, scalar = vector + sum(reduced), scalar + sum(functions)
        if not reduced and not functions:
            own = [v for v in product.output.variables if not block or v != block.variable]
            extents = prod(cascade.extent(v, product) for v in own) * _share(
                cascade, readers[0][0] if readers else product
            )
            either += extents * (block_extent(block, cascade) if block else 1)
    either += sum(_points(cascade, e, b) for e, b in _turned(cascade))
    lanes = machine["partitions"]
    return vector / lanes, scalar / lanes, either / lanes


def _shared_out(machine: Machine, vector: float, scalar: float, either: float) -> float:
    """Nanoseconds until both engines are done, what either can do given to who is done sooner."""
    own = vector / machine["vector_clock_ghz"], scalar / machine["scalar_clock_ghz"]
    rates = machine["vector_clock_ghz"] * machine["vector_fp32_lanes"], machine["scalar_clock_ghz"]
    together: float = (either + own[0] * rates[0] + own[1] * rates[1]) / sum(rates)
    return max(*own, together)


def elementwise_rate(machine: Machine, narrow: bool) -> float:
    """Elements per lane and nanosecond of VectorE in its fastest mode, ScalarE and GpSimdE together."""
    fastest = machine["vector_mode_speedup" if narrow else "vector_fp32_lanes"] * machine["vector_clock_ghz"]
    shared: float = fastest + machine["scalar_clock_ghz"] + machine["gpsimd_clock_ghz"]
    return shared


def _points(cascade: Cascade, einsum: Einsum, block: Iterate | None) -> float:
    extents = [cascade.extent(v, einsum) for v in einsum.variables if not block or v != block.variable]
    return prod(extents) * (block_extent(block, cascade) if block else 1) * _share(cascade, einsum)


def _share(cascade: Cascade, einsum: Einsum) -> float:
    """The part of an Einsum's points, at least, that comparisons of indices keep on some way to an output."""
    known = {e.condition: e for e in cascade.einsums if e.condition is not None}
    known = {c: e for c, e in known.items() if {*c.variables} <= _named(cascade, einsum, e)}
    if not known:
        return 1.0
    before = {einsum.name, *dependences(cascade, einsum)}
    own = frozenset(c for c in known if any(e.condition == c and e.name in before for e in cascade.einsums))
    ways = open_ = {(einsum.name, own)}
    while open_:
        steps = ((e, asked) for e in cascade.einsums for name, asked in open_ if name in e.reads)
        open_ = {(e.name, asked | {c for c in (e.condition,) if c in known}) for e, asked in steps} - ways
        ways = ways | open_
    gone = [
        sum(1.0 - _kept(cascade, known[c], c) for c in asked) for n, asked in ways if n in cascade.outputs
    ]
    return max(0.0, 1.0 - min(gone, default=0.0))


def _named(cascade: Cascade, einsum: Einsum, reader: Einsum) -> set[str]:
    """The variables of an Einsum, and those that a reader has for parts of what these index."""
    ranks = {rank for a in einsum.every_access for rank, i in cascade.axes(a) if i.plain}
    parts = (i.variables for rank, i in cascade.axes(reader.output) if rank in ranks)
    return {*einsum.variables}.union(*parts)


def _kept(cascade: Cascade, einsum: Einsum, condition: Condition) -> float:
    """The part of the values of its variables for which a condition holds."""
    difference = condition.difference.at(cascade.sizes)
    *others, (last, c) = difference.terms or (("", 1),)
    sums = np.array([difference.constant])
    for name, factor in others:
        sums = np.add.outer(sums, factor * np.arange(cascade.extent(name, einsum))).ravel()
    values = np.sort(c * np.arange(cascade.extent(last, einsum) if last else 1))
    below, upto = (np.searchsorted(values, -sums, side) for side in ("left", "right"))
    counts = {"<": below, "<=": upto, ">": len(values) - upto, ">=": len(values) - below, "==": upto - below,
              "!=": len(values) - (upto - below)}  # fmt: skip
    return float(np.mean(counts[condition.relation]) / len(values))


def _is_function(einsum: Einsum) -> bool:
    """Whether ScalarE alone computes the map of an Einsum."""
    op = OPERATORS.get(einsum.map_op)
    steps = [op.name, *(s for s, _ in op.steps)] if op is not None else []
    return any(OPERATORS[s].activation and s not in ARITHMETIC for s in steps)


def _other_passes(einsums: list[Einsum]) -> int:
    """Passes besides those of functions over what Einsums with the same variables compute."""
    functions = sum(map(_is_function, einsums))
    maps = sum(bool(e.map_op) for e in einsums) - functions
    sums = sum(e.reduce_op == "add" for e in einsums)
    others = sum(bool(e.reduce_op) or e.is_choice for e in einsums) - sums
    # a function takes a scale and a bias along, an instruction of VectorE two operators and a sum
    least = max(0, maps - functions)
    return -(-least // 2) + others + (1 if sums and not functions and not maps else 0)


def work_of(estimate: Estimate) -> dict[str, float]:
    """Nanoseconds that each engine needs for a kernel's instructions at full rate, without waits."""
    machine, forms = estimate.program.machine, estimate.program.forms
    overhead = {"vector": machine["vector_overhead_ns"], "scalar": machine["scalar_overhead_ns"]}
    counts = np.bincount(np.asarray(estimate.program.form_column, np.int64), minlength=len(forms)).tolist()
    found: dict[str, float] = {}
    for form, count in zip(forms, counts, strict=True):
        for step in form.steps:
            busy = max(0.0, step.busy_ns - overhead.get(step.engine, 0.0)) * part_of_array(step)
            found[step.engine] = found.get(step.engine, 0.0) + count * busy
    return found


def _bytes_moved(cascade: Cascade, name: str, dtypes: Mapping[str, str]) -> int:
    """Bytes of an output, or of what is read of an input."""
    whole, each = prod(cascade.shape(name)), as_dtype(dtypes.get(name, "float32")).storage.itemsize
    if name not in cascade.inputs:
        return whole * each
    chosen = ((e, b, g.access) for e, b in cascade.walk() for a in e.every_access for g in a.gathers)
    every = (*((e, b, a) for e, b in cascade.walk() for a in e.accesses), *chosen)
    reads = [(e, b, a) for e, b, a in every if a.tensor == name]
    parts = {a: _read_of(cascade, e, b, a) for e, b, a in reads}
    gathered = [elements for access, elements in parts.items() if access.gathers]
    return min(whole, max(gathered) if gathered else sum(parts.values())) * each


def _read_of(cascade: Cascade, einsum: Einsum, block: Iterate | None, access: Access) -> int:
    """How many elements of a tensor an access has: a diagonal, or one column, is not all of it."""
    turns = {block.variable: block_extent(block, cascade)} if block else {}
    extents = {v: turns[v] if v in turns else cascade.extent(v, einsum) for v in access.variables}
    elements, seen = 1, set[str]()
    for index, size in zip(access.indices, cascade.shape(access.tensor), strict=True):
        own = prod(extents[v] for v in index.variables if v not in seen)
        if isinstance(index, Affine) and len(index.variables) > 1:
            low, high = index.at(cascade.sizes).ends(extents)
            own = min(own, max(1, min(size - 1, high) - max(0, low) + 1))
        elements *= min(own, size) if isinstance(index, Affine) else own
        seen |= {*index.variables}
    return elements
