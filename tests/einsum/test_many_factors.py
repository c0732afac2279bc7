"""Products of many factors: strings of opt_einsum, in the order of its contraction paths."""

from __future__ import annotations

from math import prod

import numpy as np
import opt_einsum
import pytest

import nkilab.einsum
from nkilab.einsum.language.ast import Cascade
from nkilab.einsum.language.extents import sized
from nkilab.einsum.language.forms import spec_from
from nkilab.einsum.plan.normal import normal
from nkilab.machine import machine_named

pytestmark = pytest.mark.corpus

# a chain whose cheapest pair, D and E, is none of the best order
CHAIN = "ab,bc,cd,de,ef,fg->ag"
EXTENTS = {"a": 30, "b": 35, "c": 15, "d": 5, "e": 10, "f": 20, "g": 25}


def multiplications(cascade: Cascade) -> int:
    """Of all products of two, one after another."""
    return sum(prod(cascade.extent(v, e) for v in e.variables) for e in cascade.einsums)


def test_many_factors_are_multiplied_in_as_few_steps_as_the_contraction_path_says() -> None:
    cascade = sized(spec_from(CHAIN).cascade, {v.upper(): n for v, n in EXTENTS.items()})
    pairs = normal(cascade, 128)
    # Cormen et al., Introduction to Algorithms, matrix chain: 15,125 multiplications for these six matrices
    assert multiplications(pairs) == 15_125
    assert [len(e.accesses) for e in pairs.einsums] == [2] * 5
    assert normal(cascade, 128, machine=machine_named("trn2")).einsums[0].reads == pairs.einsums[0].reads


@pytest.mark.parametrize("text", [",ab,bc,cd,de,ef->", "ab,ab,ab,ab,ab,ab->ba", "a,b,c,d,e,f->abcdef"])
@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
def test_strings_of_opt_einsum_mean_what_it_takes_them_for(text: str, dialect: str) -> None:
    sizes = dict(zip("abcdef", (3, 4, 2, 3, 2, 5), strict=True))
    known = {v: n for v, n in sizes.items() if v in text}
    kernel = nkilab.einsum.compile(text, sizes=known, dialect=dialect)
    rng = np.random.default_rng(0)
    # whole numbers, which no product of few of them rounds
    inputs = [rng.integers(-2, 3, kernel.cascade.shape(n)).astype(np.float32) for n in kernel.inputs]
    assert np.array_equal(kernel(*inputs), opt_einsum.contract(text, *(i.astype(np.float64) for i in inputs)))


@pytest.mark.parametrize("result", ["zji", "zij"])
def test_rows_beside_each_other_lie_as_their_operand_has_them(result: str) -> None:
    rng = np.random.default_rng(5)
    shapes = {"A": (4, 6, 5), "B": (3, 6, 2), "C": (5, 2, 6)}
    arrays = {name: rng.integers(-2, 3, shape).astype(np.float32) for name, shape in shapes.items()}
    kernel = nkilab.einsum.compile(f"isa,jsb,abz->{result}", shapes=shapes, dtypes="bfloat16")
    # i lies before j on chip, whichever comes first in the result
    assert not [verdict for verdict in kernel.verify() if not verdict.is_fine]
    expected = np.einsum(f"isa,jsb,abz->{result}", *arrays.values())
    np.testing.assert_allclose(
        np.asarray(kernel(**arrays), np.float32), expected, atol=0.01 * abs(expected).max()
    )
