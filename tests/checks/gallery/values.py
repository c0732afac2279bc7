"""What the front ends of NKI 0.1 to 0.3 make of lists, dictionaries, strings and floats of Python's."""

from __future__ import annotations

import nkilab
from tests.checks.gallery.case import case

with nkilab.activate():
    import nki
    import nki.isa as nisa
    import nki.language as nl

X = "f32[128,512]"


def scaled(x, by):
    tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(tile, x)
    nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=by)
    nisa.dma_copy(out, tile)
    return out


@case(X, version="0.3")
@nki.jit
def wrong_methods_that_values_have_not(x):
    parts = [2.0]
    known = {"a": 2.0}
    word = "max"
    sizes = (1, 2)
    parts.insert(0, 3.0)  # finds: unsupported-python
    known.update({"a": 1.0})  # finds: unsupported-python
    by = 2.0
    if word.startswith("m"):  # finds: unsupported-python
        by = 3.0
    return scaled(x, by + sizes.index(2))  # finds: unsupported-python


@case(X, version="0.3")
@nki.jit
def wrong_values_of_one_name_alone_are_followed(x):
    parts = [2.0]
    parts = parts + [3.0]  # noqa: RUF005
    by = parts.pop(0)  # finds: unsupported-python
    for letter in "ab":  # finds: unsupported-python
        by = by * (2.0 if letter == "a" else 1.0)
    known = {"a": 2.0}
    if "a" in known:  # finds: unsupported-python
        by = by + len("ab")  # a branch, which the kernel may not come to
    return scaled(x, by * (5.5 % 2.0))  # finds: unsupported-python


@case(X, version="0.4")
@nki.jit
def right_later_versions_are_not_known_to_refuse_them(x):
    parts = [2.0]
    parts.insert(0, 3.0)
    return scaled(x, parts[0])


@case(X, version="0.3")
@nki.jit
def right_what_is_not_reached_and_what_is_not_known(x, word="max", by=2.0):
    assert by > 1.0, "too small: " + word.upper()
    kind = word if by > 1.0 else 3
    if by > 100.0:
        by = float(len(word.split("a")))
    known = {"a": 2.0}
    for name in known.keys():  # noqa: SIM118
        by = by * known.get(name, 1.0)
    if str(kind) != word:
        by = 1.0
    return scaled(x, by)


@case(X, version="0.3")
@nki.jit
def right_lists_and_strings_as_front_ends_have_them(x):
    parts = [2.0]
    parts.append(3.0)
    parts.extend((1.0, 4.0))
    name = "a" + "b"
    by = parts[-1] * 7 + len(parts[0:2]) + 7 % 2
    if "a" in name and 2.0 in parts:
        by = by + parts.pop()
    return scaled(x, by)
