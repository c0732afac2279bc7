"""Which instance runs on which core, as the pages of nl.nc and nl.spmd_dim list it."""

from __future__ import annotations

from typing import Any

import pytest

from nkilab.cores import instances_of
from nkilab.errors import LimitError, RuleError, UseError
from nkilab.machine import MACHINES
from tests.dialects.spellings import nl1 as nl

TRN2 = MACHINES["trn2"]


def beta1(*grid: Any) -> list[list[tuple[int, ...]]]:
    return instances_of(grid, tuple(map(int, grid)), "neuronxcc", TRN2)


def test_without_a_mark_all_instances_run_on_one_core_in_row_major_order() -> None:
    assert beta1(2, 2) == [[(0, 0), (0, 1), (1, 0), (1, 1)]]
    assert beta1() == [[()]]


def test_nc_puts_each_instance_of_its_axis_on_a_core() -> None:
    # the page of nl.nc: kernel[nl.nc(2), 2]
    assert beta1(nl.nc(2), 2) == [[(0, 0), (0, 1)], [(1, 0), (1, 1)]]


@pytest.mark.parametrize("axis", [nl.spmd_dim(nl.nc(2), 2), nl.nc(2) * 2])
def test_cores_that_stand_first_take_neighbours_together(axis: Any) -> None:
    # the page of nl.spmd_dim, example 2
    assert beta1(axis, 2) == [[(0, 0), (0, 1), (1, 0), (1, 1)], [(2, 0), (2, 1), (3, 0), (3, 1)]]


@pytest.mark.parametrize("axis", [nl.spmd_dim(2, nl.nc(2)), 2 * nl.nc(2)])
def test_cores_that_stand_last_take_neighbours_apart(axis: Any) -> None:
    # the page of nl.spmd_dim, example 3
    assert beta1(axis, 2) == [[(0, 0), (0, 1), (2, 0), (2, 1)], [(1, 0), (1, 1), (3, 0), (3, 1)]]


def test_spmd_dim_takes_one_number_of_cores() -> None:
    for first, second in ((2, 2), (nl.nc(2), nl.nc(2))):
        with pytest.raises(UseError) as caught:
            nl.spmd_dim(first, second)
        assert "spmd_dim takes one extent and one number of cores, nl.nc(2)" in str(caught.value)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: nl.nc(2.5), "nc: the number of cores is 2.5; it must be a whole number"),
        (lambda: nl.nc(2) * 2.5, "spmd_dim: the extent is 2.5; it must be a whole number"),
        (lambda: nl.spmd_dim("4", nl.nc(2)), "spmd_dim: the extent is '4'; it must be a whole number"),
        (lambda: nl.nc(2) * nl.nc(2), "spmd_dim takes one extent and one number of cores, nl.nc(2)"),
    ],
)
def test_extents_are_whole_numbers(make: Any, text: str) -> None:
    with pytest.raises(UseError) as caught:
        make()
    assert text in str(caught.value)


def test_more_cores_than_a_logical_core_has_are_refused() -> None:
    with pytest.raises(RuleError) as caught:
        beta1(nl.nc(2), nl.nc(2))
    assert str(caught.value) == (
        "the grid lies over 4 cores; a logical core of trn2 has 2\n  source: Using Logical Neuron Cores (LNC)"
    )


def test_the_extent_of_an_nki_grid_is_its_cores() -> None:
    assert instances_of((2,), (2,), "nki", TRN2) == [[(0,)], [(1,)]]
    assert instances_of((1,), (1,), "nki", TRN2) == [[(0,)]]
    assert instances_of((), (), "nki", TRN2) == [[()]]


@pytest.mark.parametrize(
    ("sizes", "chip", "allowed"), [((8,), "trn2", "1 or 2"), ((2,), "trn1", "1"), ((1, 2), "trn3", "1 or 2")]
)
def test_other_nki_grids_are_refused(sizes: tuple[int, ...], chip: str, allowed: str) -> None:
    # LNC guide: lnc_test[8] is an error on current architectures, and the brackets hold one number
    with pytest.raises(RuleError) as caught:
        instances_of(sizes, sizes, "nki", MACHINES[chip])
    assert str(caught.value) == (
        f"the grid is {list(sizes)}; on {chip} it is one number, {allowed}: the cores of a logical core\n"
        "  hint: loop over the parts inside the kernel\n"
        "  source: Using Logical Neuron Cores (LNC)"
    )


def test_more_instances_than_can_be_run_are_refused() -> None:
    with pytest.raises(LimitError) as caught:
        instances_of((2**20, 2), (2**20, 2), "neuronxcc", TRN2)
    assert caught.value.problem == ("the grid [1048576, 2] has 2097152 instances; nkilab runs up to 1048576")
