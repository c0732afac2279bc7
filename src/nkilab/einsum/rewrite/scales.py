"""Numbers that scale what is chosen, behind the choice and behind its maximum.

`S[m, n] = where(T[m, n], 0.5 * X[m, n], -inf)` is `0.5 * where(T[m, n], X[m, n], -inf)`: who takes the
exponential of S scales it on the way, and of its maximum there are few.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from ..language.additions import Additions
from ..language.ast import Cascade, Einsum, Kind, Scalar

# what a positive number leaves as it is
UNSCALED = (0.0, inf, -inf)


def with_scales_last(cascade: Cascade) -> Cascade:
    """The cascade with positive numbers behind the choices, and the maxima of these, that they scale."""
    for step in cascade.steps:
        if isinstance(step, Einsum) and (product := _scaled(step, cascade)):
            return with_scales_last(_behind(step, product, cascade))
    return cascade


def _scaled(einsum: Einsum, cascade: Cascade) -> Einsum | None:
    """The product with a positive number of which an Einsum alone chooses, or has the maximum of a choice."""
    numbers = [o.value for o in einsum.operands[1:] if isinstance(o, Scalar) and not o.name]
    is_choice = (einsum.map_op, einsum.reduce_op) == ("where", "") and len(numbers) == 1
    is_largest = (einsum.map_op, einsum.reduce_op) == ("", "maximum")
    if einsum.is_placed or not (is_largest or (is_choice and numbers[0] in UNSCALED)):
        return None
    read = einsum.accesses[-1]
    makers = [e for e in cascade.steps if isinstance(e, Einsum) and e.name == read.tensor]
    readers = cascade.readers(read.tensor)
    product = makers[0] if len(makers) == 1 and _is_scaling(makers[0]) else None
    if product is None or product.output.indices != read.indices or read.tensor in cascade.outputs:
        return None
    origin = cascade.derived.get(product.accesses[0].tensor)
    is_of_choice = origin is not None and origin.kind is Kind.FACTOR
    return product if (len(readers) == 1 if is_choice else is_of_choice) else None


def _is_scaling(einsum: Einsum) -> bool:
    """Whether an Einsum multiplies each element of a tensor with one positive number."""
    factors = [o for o in einsum.operands if isinstance(o, Scalar)]
    is_plain = (einsum.map_op, einsum.reduce_op) == ("multiply", "") and not einsum.is_placed
    is_pair = len(einsum.operands) == 2 and len(factors) == 1 and not factors[0].name
    return is_plain and is_pair and factors[0].value > 0


def _behind(einsum: Einsum, product: Einsum, cascade: Cascade) -> Cascade:
    """The cascade with what an Einsum has of a product of what that scales, scaled then."""
    added, ranks = Additions(cascade), cascade.tensors[einsum.name].ranks
    own = added.tensor(f"{einsum.name}_unscaled", ranks, einsum.name, Kind.FACTOR)
    source, factor = product.accesses[0], next(o for o in product.operands if isinstance(o, Scalar))
    inner = einsum.reading(lambda a: source if a.tensor == product.name else a)
    output = replace(einsum.output, tensor=own)
    scaled = Einsum(einsum.output, (factor, output), "multiply", place=einsum.place, before=einsum.title)
    other = added.instead(einsum, (replace(inner, output=output, text=""), scaled))
    return other if other.readers(product.name) else Additions(other).instead(product, ())
