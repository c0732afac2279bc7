"""Operands of instructions of `nki`: where they may lie and which types they may have."""

from __future__ import annotations

import numpy as np
import pytest
from tests.dialects.spellings import nisa2 as nisa
from tests.dialects.spellings import nki2 as nki
from tests.dialects.spellings import nl2 as nl
from tests.dialects.spellings import ramp, refusal
from tests.dialects.test_nki import copied_in, copied_out

from nkilab.errors import UseError


def pattern_used(x):
    tile = copied_in(x)
    unused = tile.ap([[2, 3], [1, 2]])
    nisa.tensor_copy(dst=tile, src=unused)  # refused


def test_an_operand_outside_its_storage_is_refused_where_it_is_used():
    text = refusal(nki.jit(pattern_used), ramp(2, 2), kind=UseError)
    assert text.splitlines()[0] == "HERE: tensor_copy: the pattern reaches elements 0 to 5; the storage has 4"


@pytest.mark.parametrize("dtype", ["float8_e4m3", "int32"])
def test_the_bias_of_an_activation_may_be_of_any_type_but_tfloat32(dtype):
    @nki.jit
    def kernel(x):
        tile = copied_in(x)
        bias = nl.ndarray((2, 1), dtype, buffer=nl.sbuf)
        nisa.memset(dst=bias, value=3)
        nisa.activation(dst=tile, op=nl.square, data=tile, bias=bias)
        return copied_out(tile)

    # by hand: (0 + 3)^2, (1 + 3)^2, (2 + 3)^2, (3 + 3)^2
    np.testing.assert_array_equal(kernel(ramp(2, 2)), [[9, 16], [25, 36]])
