"""The critical path, by hand on a chip with round numbers, and the laws that every path obeys."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from nkilab.views.path import KINDS, Path, path_of
from nkilab.views.run import Run
from tests.place.handmade import Kernel, rows
from tests.timing.test_clock import ROUND, fact
from tests.views.runs import kernel_run, loaded_copied_stored, run_of

KERNELS = ("tiled", "hoisted", "blocked", "block_free", "attention")


def pieces(path: Path) -> list[tuple[str, float, int]]:
    """Kind, duration and row of each piece."""
    return [
        (list(KINDS)[k], round(float(d), 6), int(r))
        for k, d, r in zip(path.kind, path.duration_ns, path.row, strict=True)
    ]


def test_a_chain_of_load_copy_and_store_is_explained_piece_by_piece() -> None:
    # 128 descriptors of 2048 bytes on 16 engines of 10 bytes a nanosecond: 8 * 204.8 ns;
    # 512 elements at 1 ns and 100 ns of overhead; a semaphore takes 50 ns, the first byte 1000
    assert pieces(run_of(loaded_copied_stored()).path) == [
        ("first byte", 1000, 0),
        ("moving", 1638.4, 0),
        ("signal", 50, 1),
        ("execute", 612, 1),
        ("signal", 50, 2),
        ("first byte", 1000, 2),
        ("moving", 1638.4, 2),
    ]


def test_launch_and_end_of_the_kernel_are_pieces() -> None:
    k = Kernel(replace(ROUND, kernel_start_ns=fact(9000.0), kernel_end_ns=fact(2000.0)))
    k.fill(k.tile(128, 512))
    assert pieces(run_of(k).path) == [("launch", 9000, -1), ("execute", 612, 0), ("end", 2000, -1)]


def test_a_transfer_that_waits_for_an_issuing_unit_is_charged_to_the_transfer_that_holds_it() -> None:
    # two units take 500 ns each: the third transfer is issued at 500, the fifth at 1000
    k = Kernel(ROUND)
    source = k.hbm(5 * 128, 8)
    for i in range(5):
        k.load(k.tile(128, 8), rows(source, i * 128, i * 128 + 128))
    path_pieces = pieces(run_of(k).path)
    # 8 descriptors of 32 bytes an engine
    assert path_pieces == [("issue", 500, 0), ("issue", 500, 2), ("first byte", 1000, 4), ("moving", 25.6, 4)]


def test_transfers_that_stand_in_one_queue_follow_each_other_on_the_path() -> None:
    # one issuing unit; the first transfer moves until 1000 + 16384, long after the second is issued
    k = Kernel(replace(ROUND, dma_issuing_units=fact(1)))
    source = k.hbm(256, 5120)
    for i in range(2):
        k.load(k.tile(128, 5120), rows(source, i * 128, i * 128 + 128))
    assert pieces(run_of(k).path) == [("first byte", 1000, 0), ("moving", 16384, 0), ("moving", 16384, 1)]


def test_the_wait_for_a_result_on_the_same_engine_is_the_result_under_way() -> None:
    # results are visible 200 ns after the engine accepts the next instruction
    k = Kernel(replace(ROUND, vector_duration_ns=fact(300.0)))
    a, b = k.tile(128, 512), k.tile(128, 512)
    k.fill(a)
    k.copy(b, a)
    assert pieces(run_of(k).path) == [
        ("execute", 612, 0), ("result", 200, 0), ("execute", 612, 1), ("result", 200, 1)
    ]  # fmt: skip


def test_the_load_of_a_function_table_is_a_piece_of_its_own() -> None:
    k = Kernel(ROUND)
    a, b = k.tile(128, 512), k.tile(128, 512)
    k.call("activation", b, a, None, 1.0, None, op="exp")
    kinds = [kind for kind, _, _ in pieces(run_of(k).path)]
    assert kinds[:2] == ["table", "execute"]


@pytest.mark.parametrize("name", KERNELS)
def test_pieces_follow_each_other_and_add_up_to_the_latency(name: str) -> None:
    run = kernel_run(name)
    path = run.path
    assert path.start_ns[0] == 0
    assert np.array_equal(path.start_ns[1:], path.end_ns[:-1])
    assert path.end_ns[-1] == run.timeline.latency_ns
    assert sum(path.spent_ns().values()) == pytest.approx(run.timeline.latency_ns)


@pytest.mark.parametrize("name", KERNELS)
def test_a_piece_of_an_event_lies_within_it_or_before_it(name: str) -> None:
    run = kernel_run(name)
    path, timeline = run.path, run.timeline
    own = path.event >= 0
    assert np.all(path.end_ns[own] <= timeline.end_ns[path.event[own]] + 1e-6)
    executing = path.kind == list(KINDS).index("moving")
    assert np.all(path.start_ns[executing] >= timeline.start_ns[path.event[executing]] - 1e-6)


def test_a_shorter_piece_on_the_path_shortens_the_kernel_by_as_much() -> None:
    k = loaded_copied_stored()
    run = run_of(k)
    faster = replace(ROUND, dma_start_ns=fact(900.0))
    other = Kernel(faster)
    a, b = other.tile(128, 512), other.tile(128, 512)
    other.load(a, other.hbm(128, 512))
    other.copy(b, a)
    other.store(other.hbm(128, 512), b)
    # two first bytes stand on the path
    assert run.timeline.latency_ns - run_of(other).timeline.latency_ns == pytest.approx(200)


def test_an_empty_program_has_a_path_of_launch_and_end() -> None:
    run = run_of(Kernel("trn2"))
    assert [kind for kind, _, _ in pieces(run.path)] == ["launch", "end"]
    assert isinstance(run, Run)
    assert path_of(run.program.machine, run.timeline).spent_ns() == {"launch": 9200.0, "end": 2300.0}
