"""View methods of `nki` tensors, against NumPy views of the same elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nkilab.dialects.dst_first.creation import ndarray
from nkilab.dialects.dst_first.regions import REGIONS
from nkilab.dialects.dst_first.tensor import Tensor
from nkilab.errors import NkilabError
from nkilab.machine import machine_named
from nkilab.tiles.tile import array_of
from nkilab.trace.program import Program
from nkilab.trace.session import Session, tracing

COUNTED = np.arange(8 * 6 * 4, dtype=np.float32).reshape(8, 6, 4)


def counted(region: str = "sbuf") -> Tensor:
    """A tensor [8, 6, 4] that holds 0, 1, 2, ..."""
    program = Program(machine_named("trn2"))
    with tracing(Session(program.machine, program, None)):
        tensor = ndarray((8, 6, 4), "float32", REGIONS[region])
    tensor.storage.allocate(COUNTED.copy())
    return tensor


CASES: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
    "slice": (lambda t: t.slice(1, 1, 6, 2), COUNTED[:, 1:6:2]),
    "slice of partitions": (lambda t: t.slice(0, 2, 5), COUNTED[2:5]),
    "select": (lambda t: t.select(1, 3), COUNTED[:, 3]),
    "permute": (lambda t: t.permute((0, 2, 1)), COUNTED.transpose(0, 2, 1)),
    "broadcast": (
        lambda t: t.slice(1, 2, 3).broadcast(1, 5),
        np.broadcast_to(COUNTED[:, 2:3], (8, 5, 4)),
    ),
    "expand_dim": (lambda t: t.expand_dim(1), COUNTED[:, None]),
    "squeeze_dim": (lambda t: t.slice(1, 2, 3).squeeze_dim(1), COUNTED[:, 2]),
    "reshape_dim": (lambda t: t.reshape_dim(1, (2, -1)), COUNTED.reshape(8, 2, 3, 4)),
    "flatten_dims": (lambda t: t.flatten_dims(1, 2), COUNTED.reshape(8, 24)),
    "flatten_dims over an axis of one": (
        lambda t: t.expand_dim(2).flatten_dims(1, 3),
        COUNTED.reshape(8, 24),
    ),
    "flatten_dims up to an axis of one": (
        lambda t: t.slice(2, 1, 2).expand_dim(3).flatten_dims(1, 3),
        COUNTED[:, :, 1],
    ),
    "rearrange": (
        lambda t: t.rearrange(("p", ("a", "b"), "c"), ("p", "b", ("a", "c")), {"a": 2}).select(1, 1),
        COUNTED.reshape(8, 2, 3, 4).transpose(0, 2, 1, 3)[:, 1].reshape(8, 8),
    ),
    "ap": (lambda t: t.ap([[24, 4], [4, 3]], offset=24 + 1), COUNTED.reshape(8, 24)[1:5, 1:13:4]),
}


@pytest.mark.parametrize("name", [n for n in CASES if n != "rearrange"])
def test_a_view_method_sees_the_elements_that_numpy_sees(name: str) -> None:
    make, expected = CASES[name]
    np.testing.assert_array_equal(array_of(make(counted())), expected)


@pytest.mark.parametrize("view", ["whole", "partitions", "between", "reinterpreted"])
def test_columns_cut_a_second_time_are_those_that_numpy_cuts(view: str) -> None:
    """The second cut of a layout is looked up; tensors that share the layout differ in rows and place."""
    # per kind views [8 or 4, 6 or 4] of three tensors with other elements each, and the same of NumPy
    takes: dict[str, Callable[[Any], Any]] = {
        "whole": lambda t: t[:, 2, :] if t.shape == (8, 6, 4) else t,
        "partitions": lambda t: t[4:8, 1, :],
        "between": lambda t: t[:, :, 1],
        "reinterpreted": lambda t: t[:, 2, :].view("int32" if isinstance(t, Tensor) else np.int32),
    }
    for number in range(3):
        tensor = counted()
        elements = COUNTED + 1000 * number
        tensor.storage.allocate(elements.copy())
        ours, theirs = takes[view](tensor), takes[view](elements)
        for start, stop in ((0, 4), (1, 3), (1, 3), (3, 4)):
            cut = ours[:, start:stop]
            np.testing.assert_array_equal(array_of(cut), theirs[:, start:stop])
            assert cut.layout.start_partition == (4 if view == "partitions" else 0)


@pytest.mark.parametrize("columns", [slice(0.5, 2), slice(0, 9), slice("a", 2)])
def test_columns_that_are_none_are_refused_after_others_were_cut(columns: slice) -> None:
    """What is looked up are columns that were cut before, not columns of that kind."""
    tensor = counted()[:, 2, :]
    refusals = []
    for _ in range(2):
        with pytest.raises(NkilabError) as caught:
            tensor[:, columns]
        refusals.append(str(caught.value).partition(": ")[2])
        assert array_of(tensor[:, 0:2]).tolist() == COUNTED[:, 2, 0:2].tolist()
    assert refusals[0] == refusals[1]


def test_a_rearrangement_that_joins_axes_apart_is_refused() -> None:
    with pytest.raises(
        NkilabError, match="axes 2 and 3 are not contiguous; flatten_dims joins contiguous axes"
    ):
        CASES["rearrange"][0](counted())


def test_a_rearrangement_splits_and_reorders() -> None:
    view: Any = counted()
    rearranged = view.rearrange(("p", ("a", "b"), "c"), ("p", "b", "a", "c"), {"a": 2})
    np.testing.assert_array_equal(array_of(rearranged), COUNTED.reshape(8, 2, 3, 4).transpose(0, 2, 1, 3))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda t: t.permute((1, 0, 2)), "dims is [1, 0, 2]; on chip axis 0 stays first"),
        (lambda t: t.select(0, 1), "select on axis 0, which is the partition axis; it stays as it is"),
        (lambda t: t.slice(1, 4, 9), "slice 4:9:1 of axis 1, which has 6 elements"),
        (
            lambda t: t.rearrange(("p", ("a", "b"), "c"), ("p", "b", "a", "c"), {"a": 2, "d": 5}),
            "sizes names d; the axes are p, a, b, c",
        ),
        (
            lambda t: t.rearrange(("p", ("a", "b"), "c"), ("p", "b", "a", "c"), {"a": 2, "c": 5}),
            "sizes gives c 5 elements; it has 4",
        ),
        (lambda t: t.rearrange(("p", "a"), ("p", "a")), "src is ('p', 'a'), 2 axes; the tensor has 3"),
        (
            lambda t: t.rearrange(("p", (), "a", "c"), ("p", "a", "c")),
            "an axis of rearrange is (); it must be a name or a tuple of names",
        ),
        (lambda t: t.slice(1, strat=2, end=3), "there is no keyword strat; it takes dim, start, end, step"),
        (lambda t: t.slice(1, 2), "missing 1 required positional argument: 'end'"),
        (
            lambda t: t.reshape((8, 24), new_shape=(8, 24)),
            "shape and new_shape are both given; they mean the same",
        ),
        (lambda t: t.reshape_dim(1, (4, 2)), "axis 1 has 6 elements; [4, 2] does not split it"),
        (lambda t: t.reshape_dim(1, (-2, -3)), "axis 1 has 6 elements; [-2, -3] does not split it"),
        (lambda t: t.reshape_dim(1, (-1, -3)), "axis 1 has 6 elements; [-1, -3] does not split it"),
        (lambda t: t.slice(1, 0, 1).broadcast(1, 0), "size is 0; it must be at least 1"),
        (lambda t: t.expand_dim(7), "dim is 7; the result has 4 axes"),
        (
            lambda t: t.ap([[7, 4]]),
            "the first step of the pattern is 7; on chip it steps over partitions, which hold 24 elements",
        ),
    ],
)  # fmt: skip
def test_a_view_that_the_chip_does_not_have_is_refused(make: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(NkilabError) as caught:
        make(counted())
    assert caught.value.problem == message


def test_a_pattern_outside_its_storage_may_be_made_but_not_used() -> None:
    view: Any = counted().ap([[24, 9]])
    with pytest.raises(NkilabError) as caught:
        _ = view.layout
    assert caught.value.problem == "the pattern reaches elements 0 to 192; the storage has 192"
    with pytest.raises(NkilabError, match="reaches elements 0 to 192"):
        _ = view.shape


def test_a_pattern_over_hbm_may_repeat_and_overlap() -> None:
    view: Any = counted("hbm")
    windows = np.lib.stride_tricks.sliding_window_view(np.arange(192, dtype=np.float32), 4)[:6:2]
    np.testing.assert_array_equal(array_of(view.ap([[2, 3], [1, 4]])), windows)


def test_a_pattern_on_a_part_of_a_tile_counts_from_the_part() -> None:
    # as kernels of 0.3 write it: the step over partitions is the part's, which has 2 * 4 elements in each
    part: Any = counted()[2:6, 1:3]
    np.testing.assert_array_equal(array_of(part), COUNTED[2:6, 1:3])
    whole = COUNTED.reshape(8, 24)
    np.testing.assert_array_equal(array_of(part.ap([[8, 4], [1, 3]], offset=1)), whole[2:6, 5:8])


def test_a_pattern_with_the_step_of_the_storage_is_written_for_the_storage() -> None:
    inner: Any = counted().ap([[24, 8], [2, 12]], offset=0)
    np.testing.assert_array_equal(array_of(inner.ap([[24, 8], [1, 6]])), COUNTED.reshape(8, 24)[:, :6])
