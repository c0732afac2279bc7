"""What checks work out once for cores that run one kernel on parts of their own, against each alone."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import fields

from nkilab.api import as_kernel, machine_for
from nkilab.checking import filled
from nkilab.checks.evidence import Evidence, Track
from nkilab.launches import launch
from nkilab.place import plan
from nkilab.place.compiler_passes import compiled
from nkilab.place.walk import FLOW
from nkilab.timing import latency_ns, simulate
from nkilab.timing.work import work_of
from tests.checks.gallery import cores, memory, races
from tests.checks.gallery.case import CASES, Case
from tests.dialects.spellings import nisa2, nki2, nl2

assert cores
assert memory
assert races
X = np.ones((128, 256), np.float32)


@nki2.jit
def part_of_each(x):
    """Every core doubles its half of the rows; the second half is stored before the first."""
    rank = nl2.program_id(0)
    out = nl2.ndarray(x.shape, x.dtype, buffer=nl2.shared_hbm)
    for i in nl2.affine_range(2):
        rows = nl2.ds(rank * 64 + (1 - i) * 32, 32)
        tile = nl2.ndarray((32, 256), x.dtype, buffer=nl2.sbuf)
        nisa2.dma_copy(tile, x[rows])
        nisa2.tensor_tensor(tile, tile, tile, op=nl2.add)
        nisa2.dma_copy(out[rows], tile)
    return out


@nki2.jit
def one_reads_again(x):
    """Rows 0 to 31 are stored by core 0, and 64 to 95 by core 1; both load rows 0 to 31 of the result."""
    rank = nl2.program_id(0)
    out = nl2.ndarray(x.shape, x.dtype, buffer=nl2.shared_hbm)
    tile = nl2.ndarray((32, 256), x.dtype, buffer=nl2.sbuf)
    nisa2.dma_copy(tile, x[0:32])
    nisa2.dma_copy(out[nl2.ds(rank * 64, 32)], tile)
    nisa2.dma_copy(tile, out[0:32])
    nisa2.dma_copy(out[nl2.ds(rank * 64 + 32, 32)], tile)
    return out


def tracks_of(kernel, *args):
    """The tracks of a launch."""
    nki_kernel = as_kernel(kernel)
    launched = launch(nki_kernel, args, {}, machine_for(nki_kernel, ""), has_data=True)
    tracks = tuple(Track(program, rank) for rank, program in enumerate(launched.programs))
    return Evidence(nki_kernel, tracks, launched.memories, launched.rendezvous).tracks


def assert_alike(track: Track) -> None:
    """Plan and timeline of a track are those of its program alone."""
    own_plan = plan(compiled(track.program))
    for name in ("start", "node", "kind"):
        np.testing.assert_array_equal(getattr(track.plan.waits, name), getattr(own_plan.waits, name))
    for name in ("sbuf", "psum"):
        for column in fields(own_plan.sbuf):
            got, known = (getattr(getattr(plan_of, name), column.name) for plan_of in (track.plan, own_plan))
            np.testing.assert_array_equal(got, known)
    assert track.plan.transfers == own_plan.transfers
    assert track.timeline.latency_ns == simulate(compiled(track.program), own_plan).latency_ns


def test_cores_on_parts_of_their_own_are_planned_and_timed_once() -> None:
    first, second = tracks_of(part_of_each[2], X)
    assert second.plan is first.plan
    assert second.timeline is first.timeline
    assert_alike(first)
    assert_alike(second)


def test_a_core_that_reads_what_the_other_one_stores_is_planned_alone() -> None:
    first, second = tracks_of(one_reads_again[2], X)
    assert second.plan is not first.plan
    # by hand: the second load waits for the store before it, whose rows it reads on core 0 alone
    each = (first.plan.waits, second.plan.waits)
    kinds = [waits.kind[waits.start[2] : waits.start[3]].tolist() for waits in each]
    assert [FLOW in own for own in kinds] == [True, False]
    assert_alike(first)
    assert_alike(second)


SOUND = [c for c in CASES if not c.is_wrong and not c.options.keys() & {"version", "ranks", "target"}]


@pytest.mark.corpus
@pytest.mark.parametrize("case", SOUND, ids=[c.name for c in SOUND])
def test_what_is_shared_is_what_each_program_gives_alone(case: Case) -> None:
    for track in tracks_of(case.kernel, *(filled(a) for a in case.args)):
        assert_alike(track)
        program, placed = track.compiled, track.plan
        assert latency_ns(program, placed) == track.timeline.latency_ns
        assert latency_ns(program, placed, work_of(program, placed)) == track.timeline.latency_ns
