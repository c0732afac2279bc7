"""The roofline of a cascade: the least time that its bytes need, and its operations on their engine.

Every Einsum counts once: sums of products on TensorE at its peak, functions of one value on ScalarE, all
other maps and reductions on VectorE, at one element per lane and cycle. Inputs and outputs cross HBM once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from ..machine import Machine
from ..tiles.dtypes import as_dtype
from .language.ast import Cascade, Einsum, Iterate
from .language.extents import block_extent
from .language.operators import OPERATORS


@dataclass(frozen=True)
class Roofline:
    """Nanoseconds per resource.

    Args:
        times_ns: by resource: hbm, tensor, vector, scalar.
        bytes: that inputs and outputs have.
    """

    times_ns: Mapping[str, float]
    bytes: int

    @property
    def bound(self) -> str:
        """The resource that needs longest."""
        return max(self.times_ns, key=lambda name: self.times_ns[name])

    @property
    def least_us(self) -> float:
        """Microseconds below which no kernel comes."""
        return self.times_ns[self.bound] / 1000


def roofline(cascade: Cascade, dtypes: Mapping[str, str], machine: Machine) -> Roofline:
    """The roofline of a cascade whose ranks have extents."""
    times = {"hbm": 0.0, "tensor": 0.0, "vector": 0.0, "scalar": 0.0}
    total = 0
    for name in (*cascade.inputs, *cascade.outputs):
        total += _bytes_moved(cascade, name, dtypes)
    times["hbm"] = total / machine["hbm_bytes_per_ns"]
    narrow = any(as_dtype(dtypes.get(t, "float32")).storage.itemsize == 2 for t in cascade.inputs)
    for einsum, block in cascade.walk():
        _add(times, cascade, einsum, block, machine, narrow)
    return Roofline(times, total)


def _bytes_moved(cascade: Cascade, name: str, dtypes: Mapping[str, str]) -> int:
    size = as_dtype(dtypes.get(name, "float32")).storage.itemsize
    whole = prod(cascade.shape(name)) * size
    gathered = [
        prod(cascade.extent(v, e) for v in a.variables) * size
        for e in cascade.einsums
        for a in e.accesses
        if a.tensor == name and a.gathers
    ]
    return min(whole, max(gathered)) if gathered else whole


def _add(
    times: dict[str, float],
    cascade: Cascade,
    einsum: Einsum,
    block: Iterate | None,
    machine: Machine,
    narrow: bool,
) -> None:
    extents = {v: cascade.extent(v, einsum) for v in einsum.variables if not block or v != block.variable}
    points = prod(extents.values()) * (block_extent(block, cascade) if block else 1)
    lanes = machine["partitions"]
    if is_contraction(einsum):
        rate = machine["peak_tflops_bf16"] * 1000 / (1 if narrow else machine["fp32_passes"])
        times["tensor"] += 2 * points / rate
        return
    op = OPERATORS.get(einsum.map_op)
    if op is not None and (op.arity == 1 or any(OPERATORS[s].arity == 1 for s, _ in op.steps)):
        times["scalar"] += points / lanes / machine["scalar_clock_ghz"]
    elif einsum.map_op:
        times["vector"] += points / lanes / machine["vector_clock_ghz"]
    if einsum.reduce_op and not (einsum.reduce_op == "add" and op is not None and op.arity == 1):
        times["vector"] += points / lanes / machine["vector_clock_ghz"] if not einsum.map_op or op else 0.0


def is_contraction(einsum: Einsum) -> bool:
    """Whether an Einsum sums products of two different tensors over a variable that both have."""
    if einsum.map_op != "multiply" or einsum.reduce_op != "add" or len(set(map(str, einsum.accesses))) < 2:
        return False
    shared = [v for v in einsum.reduced if all(v in a.variables for a in einsum.accesses)]
    own = [v for v in einsum.output.variables if not all(v in a.variables for a in einsum.accesses)]
    return bool(shared) and bool(own)
