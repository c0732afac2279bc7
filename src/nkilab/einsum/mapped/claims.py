"""What a kernel with open extents asserts of them, as the compiler could not prove it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...machine import Machine
from ..language.spec import Spec
from ..tree.expr import ZERO, Expr


def asserts(
    spec: Spec, parameters: Collection[str], machine: Machine, tiles: Sequence[Expr], sums: Sequence[Expr]
) -> tuple[str, ...]:
    """Claims in Python: splits leave nothing over, tiles fit.

    Args:
        spec: the specification.
        parameters: ranks whose extents are open.
        machine: the chip.
        tiles, sums: bytes per partition of tiles in SBUF and in PSUM.
    """
    splits = ((base, shapes) for held in spec.partitioning.values() for base, shapes in held.items())
    found = [f"{base} % {shapes[0]} == 0" for base, shapes in splits if base in parameters and shapes[0] > 1]
    total = sum(tiles, ZERO)
    if total.names:
        found.append(f"{total} <= {machine['sbuf_bytes_per_partition']}")
    if any(size.names for size in sums):
        banks = " + ".join(f"-(-({size}) // {machine['psum_bank_bytes']})" for size in sums)
        found.append(f"{banks} <= {machine['psum_banks']}")
    return tuple(dict.fromkeys(found))
