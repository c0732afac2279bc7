"""Planning and timing find the same in random programs, plain and compiled, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest
from msgspec import Struct
from msgspec.structs import replace

from nkilab.errors import LimitError
from nkilab.machine import MACHINES, Machine
from nkilab.machine.model import assumed
from nkilab.place import plan
from nkilab.tiles.tile import View
from nkilab.timing import simulate
from nkilab.trace.program import Program

from .place.handmade import Kernel, columns, part
from .ways import WAYS, jobs_run

WIDTHS = (64, 128, 256)
CALLS = ("tile", "load", "store", "fill", "copy", "exp", "matmul", "drain")


def machine(random: Random) -> Machine:
    """A chip with a small SBUF."""
    return replace(
        MACHINES[random.choice(sorted(MACHINES))],
        sbuf_bytes_per_partition=assumed(random.choice([2000, 2100, 2600, 20000]), "a test"),
        dma_issuing_units=assumed(random.randint(1, 3), "a test"),
        hbm_bytes_per_ns=assumed(random.choice([50.0, 435.0]), "a test"),
    )


class Calls:
    """A program made of random calls over the last four tiles."""

    def __init__(self, machine: Machine) -> None:
        self.k = Kernel(machine)
        self.tensor = self.k.hbm(128, 1024)
        self.tiles = [self.k.tile(128, 256) for _ in range(4)]
        self.sums = self.k.psum(128, 512)

    def call(self, name: str, one: int, two: int, quarter: int, width: int) -> None:
        """One call; "tile" makes a tile that takes the place of the oldest one."""
        a, b = self.some(one, quarter, width), self.some(two, 3 - quarter, width)
        size = a.layout.shape[1]
        there = columns(self.tensor, quarter * 256, quarter * 256 + size)
        sums = part(self.sums, (0, 128), (0, size))
        match name:
            case "tile":
                self.tiles = [*self.tiles[1:], self.k.tile(128, width)]
            case "load":
                self.k.load(a, there)
            case "store":
                self.k.store(there, a)
            case "fill":
                self.k.fill(a)
            case "copy" if b.layout.shape == a.layout.shape:
                self.k.copy(a, b)
            case "exp" if b.layout.shape == a.layout.shape:
                self.k.call("activation", a, b, None, 1.0, None, op="exp")
            case "matmul" if b.layout.shape[1] >= 128:
                self.k.matmul(sums, columns(b, 0, 128), a, accumulate=bool(one % 2))
            case "drain":
                self.k.copy(a, sums, "scalar")

    def some(self, tile: int, quarter: int, width: int) -> View:
        """Some columns of a tile: all, or from a quarter on."""
        extent = self.tiles[tile].layout.shape[1]
        start = quarter * extent // 4
        return columns(self.tiles[tile], start, min(extent, start + width))


def program(random: Random) -> Program:
    """200 random calls, or as many as are no "tile"."""
    calls = Calls(machine(random))
    for _ in range(200):
        tiles, quarter = random.choices(range(4), k=2), random.randrange(4)
        calls.call(random.choice(CALLS), *tiles, quarter, random.choice(WIDTHS))
    return calls.k.program


def outcome(action: Callable[[], Any]) -> Any:
    """What an action returns, or its error's message."""
    try:
        return action()
    except LimitError as error:
        return str(error)


def same(one: Any, two: Any) -> bool:
    """Whether two plans, or what they are made of, are equal, types of arrays included."""
    if isinstance(one, np.ndarray):
        return one.dtype == two.dtype and np.array_equal(one, two)
    if isinstance(one, Struct):
        return all(same(getattr(one, name), getattr(two, name)) for name in one.__struct_fields__)
    return bool(one == two)


@pytest.mark.parametrize("seed", range(40))
def test_plans_and_timelines_do_not_depend_on_how_they_are_computed(seed: int) -> None:
    compiled_program = program(Random(seed))
    plans, timelines = [], []
    for way in WAYS:
        with jobs_run(way):
            plans.append(outcome(lambda: plan(compiled_program)))
            if not isinstance(plans[-1], str):
                timelines.append(simulate(compiled_program, plans[-1]))
    assert same(*plans)
    assert not timelines or timelines[0] == timelines[1]


def test_some_of_these_programs_spill_and_some_do_not_fit() -> None:
    plans = [outcome(partial(plan, program(Random(seed)))) for seed in range(40)]
    assert sum(isinstance(plan_or_message, str) for plan_or_message in plans) > 2
    assert (
        sum(
            not isinstance(plan_or_message, str) and len(plan_or_message.transfers) > 5
            for plan_or_message in plans
        )
        > 10
    )


def test_more_reuses_and_edges_than_expected_find_room() -> None:
    # Sixty tiles of 64 bytes, a tile of all of SBUF, sixty again, and so on: each large tile takes over the
    # bytes of sixty, and its load waits for the sixty stores into the tensor that it reads.
    k = Kernel(replace(MACHINES["trn2"], sbuf_bytes_per_partition=assumed(60 * 64, "a test")))
    tensor = k.hbm(128, 60 * 16)
    for _ in range(6):
        for i in range(60):
            tile = k.tile(128, 16)
            k.fill(tile)
            k.store(columns(tensor, i * 16, i * 16 + 16), tile)
        large = k.tile(128, 60 * 16)
        k.load(large, tensor)
        k.store(tensor, large)
    plans = []
    for way in WAYS:
        with jobs_run(way):
            plans.append(plan(k.program))
    assert same(*plans)
    for load in range(120, 6 * 122, 122):
        stores = list(range(load - 119, load, 2))
        assert [earlier for earlier, _ in plans[0].waits.of(load) if earlier >= load - 120] == stores
