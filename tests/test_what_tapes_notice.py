"""What a kernel reads by way of values, patched names of NKI and interrupts make a new tape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nkilab import tapes

from .test_tapes import module, x_of
from .test_tapes import no_tapes as no_tapes
from .test_tapes import played as played

# what a kernel uses that reads a variable of its module, and what stands in its place
READERS = {
    "a function in a tuple": ("OWN = (reads,)", "OWN[0]()"),
    "a function in a set": ("OWN = frozenset([reads])", "[*OWN][0]()"),
    "a function as default": ("def OWN(one=reads):\n    return one()", "OWN()"),
    "a kernel as default": ("def OWN(one=nki.jit(reads)):\n    return one.function()", "OWN()"),
    "a member of an enumeration": (
        "class Own(enum.Enum):\n    A = 1\n    def value_of(self):\n        return reads()\nOWN = Own.A",
        "OWN.value_of()",
    ),
    "a property of an enumeration": (
        "class OWN(enum.Enum):\n    A = 1\n    @property\n    def own(self):\n        return reads()",
        "OWN.A.own",
    ),
    "a static method of an enumeration": (
        "class OWN(enum.Enum):\n    A = 1\n    @staticmethod\n    def own():\n        return reads()",
        "OWN.own()",
    ),
    "a value of an enumeration": ("class OWN(enum.Enum):\n    A = (reads, 1)", "OWN.A.value[0]()"),
    "a property of a named tuple": (
        "class Own(NamedTuple):\n    a: int = 1\n    @property\n    def own(self):\n        return reads()\n"
        "OWN = Own()",
        "OWN.own",
    ),
    "a function that NumPy calls": ("OWN = np.frompyfunc(lambda x: reads(), 1, 1)", "float(OWN(1))"),
}


@pytest.mark.parametrize("name", READERS)
def test_what_functions_read_that_a_value_holds_is_noticed(name: str) -> None:
    value, used = READERS[name]
    text_module = module(f"return scaled(x, float({used}))")
    text = f"import enum\nfrom typing import NamedTuple\ndef reads():\n    return SCALE\n{value}\n"
    exec(compile(text, "<values of a test>", "exec"), vars(text_module))
    for scale in (2.0, 2.0, 2.0, 5.0, 2.0):
        text_module.SCALE = scale
        np.testing.assert_array_equal(text_module.kernel(x_of(0)), x_of(0) * np.float32(scale))


def test_a_name_of_nki_that_is_patched_is_noticed(monkeypatch: pytest.MonkeyPatch, played: list[int]) -> None:
    own = module("return scaled(x, 2.0)")
    for _ in range(2):
        own.kernel(x_of(0))
    calls = []
    copy = own.nisa.dma_copy
    with monkeypatch.context() as patches:
        patches.setattr(own.nisa, "dma_copy", lambda *args, **more: calls.append(args) or copy(*args, **more))
        own.kernel(x_of(0))
    assert len(calls) == 2
    own.kernel(x_of(0))
    assert (len(calls), len(played)) == (2, 1)


@pytest.mark.parametrize("method", ["_read", "_record"])
def test_no_launch_goes_on_with_a_tape_that_was_broken_off(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = module("return scaled(scaled(x, 2.0), 3.0)").kernel
    whole = getattr(tapes.Tape, method)

    def interrupted(tape: tapes.Tape, *args: Any) -> None:
        whole(tape, *args)
        # half of what it has to do
        del tape._rows[1:]
        raise KeyboardInterrupt

    kernel(x_of(0))
    with monkeypatch.context() as patches, pytest.raises(KeyboardInterrupt):
        patches.setattr(tapes.Tape, method, interrupted)
        for _ in range(3):
            kernel(x_of(0))
    for n in range(4):
        np.testing.assert_array_equal(kernel(x_of(n)), x_of(n) * 6)
