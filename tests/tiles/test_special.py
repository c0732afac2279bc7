"""Special functions against the mathematics library, element by element."""

from __future__ import annotations

import math

import numpy as np

from nkilab.isa.activations import erf, erfc

POINTS = [-7.0, -1.5, -0.3, -0.0, 0.0, 1e-9, 0.3, 1.0, 2.5, 6.0, 27.0]


def test_the_error_function_is_that_of_the_mathematics_library() -> None:
    assert erf(POINTS).tolist() == [math.erf(x) for x in POINTS]
    assert erf(np.float32([[0.5, -0.5]])).dtype == np.float64
    assert math.isnan(erf(math.nan))


def test_the_complement_keeps_its_digits_where_the_error_function_is_one() -> None:
    assert erfc(POINTS).tolist() == [math.erfc(x) for x in POINTS]
    # NIST Digital Library of Mathematical Functions, 7.12: about exp(-36) / (6 sqrt(pi))
    assert 0 < float(erfc(6.0)) < 3e-17
