"""Odd values for parameters of public functions: each is refused with what it is and what is allowed."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

import nkilab
from nkilab.errors import FileError, UsageError

NAN = float("nan")
PRODUCT = "mk,kn->mn"
SIZES = {"M": 128, "K": 128, "N": 128}
CHIP = "it must be the name of a chip or the path of a machine file"


@pytest.fixture(scope="module")
def kernel():
    with nkilab.activate():
        import nki

        return nki.jit(lambda x: x)


def compiled(**options):
    return nkilab.einsum.compile(PRODUCT, **{"sizes": SIZES, **options})


# what is called with a kernel, and the first line of what it says
REFUSED = {
    "a target of numbers": (lambda k: nkilab.estimate(k, target=3), f"target is 3; {CHIP}"),
    "an array for a target": (
        lambda k: nkilab.activate(target=np.zeros(40)), f"target is of type ndarray; {CHIP}",
    ),
    "no ranks": (lambda k: nkilab.estimate(k, ranks=0), "ranks is 0; "
    "it must be a whole number from 1 to 65536"),
    "ranks that no cluster has": (
        lambda k: nkilab.launch(k, 2**40), "ranks is 1099511627776; "
        "it must be a whole number from 1 to 65536",
    ),
    "trips that name no line": (
        lambda k: nkilab.estimate(k, trips=8), 'trips is 8; it must be a dictionary, such as '
                                               '{"kernel.py:41": 8}',
    ),
    "numerics of a number": (
        lambda k: nkilab.check(k, numerics=2), "numerics is 2; it must be True or False",
    ),
    "an empty specification": (
        lambda k: nkilab.einsum.compile(""),
        "the specification is ''; it must be the path of a file, YAML, expressions or subscripts",
    ),
    "a path with a null byte": (
        lambda k: nkilab.einsum.compile("a\0b"),
        "the specification is 'a\\x00b'; it must be the path of a file, YAML, expressions or subscripts",
    ),
    "an open file": (
        lambda k: nkilab.einsum.compile(io.StringIO(PRODUCT)),
        "a specification is a text, a path, a dict or a Cascade, no StringIO",
    ),
    "sizes that are none": (
        lambda k: compiled(sizes=128), 'sizes is 128; it must be a dictionary, such as {"M": 128}',
    ),
    "a size that is no number": (
        lambda k: compiled(sizes={**SIZES, "M": NAN}),
        "the size of M is nan; it must be a whole number of at least 1",
    ),
    "a shape that is a number": (
        lambda k: compiled(shapes={"A": 128}), "the shape of A is 128; it must be a tuple of extents",
    ),
    "a search without end": (
        lambda k: compiled(search=float("inf")), "search is inf; it must be a number of seconds, at least 0",
    ),
    "a dialect in a list": (
        lambda k: compiled(dialect=["nki"]),
        "dialect is ['nki']; it must be one of nki, neuronxcc",
    ),
    "what no generator reads": (
        lambda k: compiled(as_written=True),
        "as_written is given; the published generator reads YAML with a mapping alone",
    ),
    "a kernel that is no function": (
        lambda k: nkilab.einsum.verify(None, PRODUCT), "kernel is None; it must be a function of "
                                                       "plain arrays",
    ),
    "a space that is none": (
        lambda k: nkilab.tune.autotune([1, 2]),
        "a point is 1; it must hold a value per name, as in {rows: 8}",
    ),
    "no trials": (
        lambda k: nkilab.tune.autotune({"n": [1, 2]}, trials=0),
        "trials is 0; it must be a whole number of at least 1",
    ),
    "a space file that is no path": (
        lambda k: nkilab.tune.read_space(3), "path is 3; it must be the path of a file or folder",
    ),
    "a search that found nothing": (
        lambda k: nkilab.tune.verdict_of(None), "found is None; it must be what nkilab.tune.search returns",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_an_odd_value_is_refused_by_name(kernel, case):
    action, problem = REFUSED[case]
    with pytest.raises(UsageError) as error:
        action(kernel)
    assert str(error.value).splitlines()[0] == problem


@pytest.fixture(scope="module")
def profile():
    spec = nkilab.spec((128, 128), "float32")
    return nkilab.profile(compiled().kernel, spec, spec)


def test_a_profile_is_written_to_paths_alone(profile, tmp_path):
    with pytest.raises(UsageError, match=r"^path is None; it must be the path of a file or folder"):
        profile.save_html(None)
    with pytest.raises(UsageError, match=r"^files names 'pdf'; there are html, trace, parquet"):
        profile.save({"pdf": str(tmp_path / "a.pdf")})
    with pytest.raises(FileError, match="cannot be written: is a directory"):
        profile.save_html(tmp_path)
    with pytest.raises(UsageError, match=r"^the other run is 3; it must be an Estimate or a Profile"):
        profile.diff(3)
    named = tmp_path / "ünïcode ñ.html"
    profile.save_html(named)
    assert named.read_bytes().startswith(b"<!doctype html>")
    assert list(tmp_path.iterdir()) == [Path(named)]
