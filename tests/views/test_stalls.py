"""Why engines stand still, by hand, and that their time adds up."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from nkilab.timing import REASONS
from nkilab.views.stalls import STALLS
from tests.place.handmade import Kernel
from tests.timing.test_clock import ROUND, fact
from tests.views.runs import kernel_run, loaded_copied_stored, run_of
from tests.views.test_path import KERNELS


def test_an_engine_waits_for_the_transfer_that_brings_its_data() -> None:
    stalls = run_of(loaded_copied_stored()).stalls
    # the load ends at 1000 + 1638.4, a semaphore later the copy begins, and 612 later it ends
    assert stalls.of("vector") == pytest.approx({"dma": 2688.4, "end": 5988.8 - 2688.4 - 612})
    assert stalls.busy_ns["vector"] == pytest.approx(612)


def test_the_dma_engines_wait_for_first_bytes_and_for_the_engine_that_computes() -> None:
    stalls = run_of(loaded_copied_stored()).stalls
    # between the transfers: semaphore, copy, semaphore, then the first byte of the store
    assert stalls.of("dma") == pytest.approx({"first byte": 2000, "vector": 50 + 612 + 50})
    assert stalls.busy_ns["dma"] == pytest.approx(2 * 1638.4)


def test_an_engine_waits_for_another_engine() -> None:
    k = Kernel(ROUND)
    a, b = k.tile(128, 512), k.tile(128, 512)
    k.fill(a)
    k.copy(b, a, "scalar")
    stalls = run_of(k).stalls
    assert stalls.of("scalar") == pytest.approx({"vector": 662})
    assert stalls.of("vector") == pytest.approx({"end": 50 + 712})


def test_an_engine_waits_for_a_buffer() -> None:
    # room for two tiles: the third takes the place of the first, which the store reads until the end
    k = Kernel(replace(ROUND, sbuf_bytes_per_partition=fact(4096)))
    tiles = [k.tile(128, 512) for _ in range(3)]
    for tile in tiles:
        k.fill(tile)
        k.store(k.hbm(128, 512), tile)
    waits = run_of(k).stalls.of("vector")
    assert waits["buffer"] > 0
    assert set(waits) == {"buffer", "end"}


def at_one_port() -> Kernel:
    """VectorE and ScalarE read PSUM, which on trn1 they do in turns."""
    k = Kernel(replace(ROUND, shared_ports=fact(1)))
    k.copy(k.tile(128, 512), k.psum(128, 512))
    k.copy(k.tile(128, 512), k.psum(128, 512), "scalar")
    return k


def test_an_engine_waits_for_a_port_that_another_one_holds() -> None:
    run = run_of(at_one_port())
    first = run.timeline.busy_ns[0]
    assert run.stalls.of("scalar")["port"] == pytest.approx(float(first))
    assert REASONS[run.timeline.reason[1]] == "port"
    assert [int(row) for row in run.path.row] == [0, 1, 1][: len(run.path)]


def test_each_gap_is_noted_at_the_event_that_ends_it() -> None:
    run = run_of(loaded_copied_stored())
    vector = run.timeline.of_engine("vector")
    assert run.stalls.before_ns[vector].tolist() == pytest.approx([2688.4])


@pytest.mark.parametrize("name", KERNELS)
def test_busy_and_stalled_time_of_an_engine_add_up_to_the_span(name: str) -> None:
    run = kernel_run(name)
    for engine, busy in run.stalls.busy_ns.items():
        assert busy + sum(run.stalls.of(engine).values()) == pytest.approx(run.timeline.latency_ns)
        assert set(run.stalls.of(engine)) <= set(STALLS)


@pytest.mark.parametrize("name", KERNELS)
def test_busy_time_is_that_of_merged_occupancy(name: str) -> None:
    run = kernel_run(name)
    for engine in run.stalls.busy_ns:
        here = run.timeline.of_engine(engine)
        here = here[run.timeline.busy_ns[here] > 0]
        start, busy = run.timeline.start_ns[here], run.timeline.busy_ns[here]
        ready = run.timeline.ready_ns[here] if engine == "tensor" else start
        covered, reached = 0.0, -np.inf
        # a product that is ready while nothing multiplies has its weights to load: TensorE is busy with that
        for s, e, since in sorted(zip(start.tolist(), (start + busy).tolist(), ready.tolist(), strict=True)):
            covered += max(0.0, e - max(min(s, since), reached))
            reached = max(reached, e)
        assert run.stalls.busy_ns[engine] == pytest.approx(covered)
