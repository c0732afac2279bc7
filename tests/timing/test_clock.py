"""Times calculated by hand, on a chip with round numbers."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from nkilab.machine import Machine
from nkilab.timing import Timeline, clock
from tests.place.handmade import Kernel, part, rows

from .round_numbers import ROUND, fact, spans, start_of, timed, why


def test_two_dependent_vector_instructions_follow_each_other() -> None:
    # each 512 elements at 1 ns and 100 ns of overhead
    k = Kernel(ROUND)
    a, b = k.tile(128, 512), k.tile(128, 512)
    k.fill(a)
    k.copy(b, a)
    timeline = timed(k)
    assert spans(timeline, 0) == [("MEMSET", 0.0, 612.0)]
    assert spans(timeline, 1) == [("TENSOR_COPY", 612.0, 1224.0)]
    assert timeline.latency_ns == 1224.0


def test_a_result_of_another_engine_takes_a_semaphore() -> None:
    # 612 of VectorE, 50 of the semaphore, 512 + 200 of ScalarE
    k = Kernel(ROUND)
    a, b = k.tile(128, 512), k.tile(128, 512)
    k.fill(a)
    k.copy(b, a, "scalar")
    timeline = timed(k)
    assert spans(timeline, 1) == [("TENSOR_COPY", 662.0, 1374.0)]
    assert why(timeline, 1) == ("engine", 0)


def test_independent_instructions_of_two_engines_run_at_once() -> None:
    k = Kernel(ROUND)
    a, b, c = (k.tile(128, 512) for _ in range(3))
    k.fill(a)
    k.fill(b)
    k.copy(c, a, "scalar")
    timeline = timed(k)
    assert start_of(timeline, 1) == 612.0
    assert start_of(timeline, 2) == 662.0
    assert why(timeline, 1) == ("order", 0)


def test_an_engine_takes_what_is_ready_before_what_stands_before_it() -> None:
    # the second copy of ScalarE has its operand at 0; the first one waits until 662
    k = Kernel(ROUND)
    a, b, c, d = (k.tile(128, 512) for _ in range(4))
    k.fill(a)
    k.copy(b, a, "scalar")
    k.copy(d, c, "scalar")
    timeline = timed(k)
    assert start_of(timeline, 2) == 0.0
    # it runs for 512 + 200: the first one, ready at 612 + 50, is next
    assert start_of(timeline, 1) == 712.0
    assert why(timeline, 1) == ("order", 2)


def test_of_two_that_are_ready_the_first_in_the_program_runs_first() -> None:
    k = Kernel(ROUND)
    a, b, c, d = (k.tile(128, 512) for _ in range(4))
    for tile in (a, b):
        k.fill(tile)
    k.copy(c, b, "scalar")
    k.copy(d, a, "scalar")
    timeline = timed(k)
    # fills end at 612 and 1224, so that the second copy is ready first, at 662, and runs for 712
    assert start_of(timeline, 3) == 662.0
    assert start_of(timeline, 2) == 1374.0


def test_kernel_start_and_end_stand_around_everything() -> None:
    machine = replace(ROUND, kernel_start_ns=fact(7000.0), kernel_end_ns=fact(300.0))
    k = Kernel(machine)
    k.fill(k.tile(128, 512))
    timeline = timed(k)
    assert start_of(timeline, 0) == 7000.0
    assert timeline.latency_ns == 7000.0 + 612.0 + 300.0


def test_a_function_table_is_loaded_when_the_function_changes() -> None:
    k = Kernel(ROUND)
    a, b = k.tile(128, 300), k.tile(128, 300)
    for op in ("exp", "exp", "square", "exp", "tanh"):
        k.call("activation", b, a, None, 1.0, None, op=op)
    timeline = timed(k)
    # 300 elements and 200 ns each; loads of 1300 ns before rows 0 and 4
    assert [start_of(timeline, row, "ACTIVATE") for row in range(5)] == [
        1300.0,
        1800.0,
        2300.0,
        2800.0,
        4600.0,
    ]
    assert [label for label, _, _ in spans(timeline, 4)] == ["ACT_TABLE_LOAD", "ACTIVATE"]
    assert timeline.labels.count("ACT_TABLE_LOAD") == 1
    assert [label for label, _, _ in spans(timeline, 1)] == ["ACTIVATE"]


def test_the_same_program_gives_the_same_events() -> None:
    assert long_loop() == long_loop()


def test_a_simulation_in_pieces_gives_the_events_of_one_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, calls = long_loop(), list[int]()

    def counted(*asked: Any) -> float:
        calls.append(asked[1])
        return clock.run_on(*asked)

    # compiled code knows the number as it was
    monkeypatch.setattr(clock._JOB, "chosen", lambda steps: (counted, False))
    monkeypatch.setattr(clock, "AT_ONCE", 7)
    assert long_loop() == whole
    assert calls[0] == clock.BEGIN
    assert len(calls) > len(whole) / 7


def test_a_long_chain_lasts_as_many_times_as_long_as_its_link() -> None:
    # 612 ns on VectorE, a semaphore, 712 on ScalarE, a semaphore
    k = Kernel(ROUND)
    a, b = k.tile(128, 512), k.tile(128, 512)
    for _ in range(100):
        k.copy(b, a)
        k.copy(a, b, "scalar")
    timeline = timed(k)
    assert timeline.start_ns.tolist() == [
        start for turn in range(100) for start in (1424.0 * turn, 1424.0 * turn + 662.0)
    ]


def test_names_change_no_time() -> None:
    assert long_loop() == long_loop("another name")


def long_loop(name: str = "") -> Timeline:
    k = Kernel("trn2")
    source, target = k.hbm(4096, 512, name=name), k.hbm(4096, 512, name=name and f"{name} too")
    k.program.kernel_name = name or "kernel"
    for i in range(32):
        a, b = k.tile(128, 512, name=name), k.tile(128, 512)
        k.load(a, rows(source, i * 128, i * 128 + 128))
        for j in range(4):
            half = (j * 128, j * 128 + 128)
            k.call("activation", part(b, (0, 128), half), part(a, (0, 128), half), None, 1.0, None, op="exp")
            k.copy(part(b, (0, 128), half), part(a, (0, 128), half))
        k.store(rows(target, i * 128, i * 128 + 128), b)
    return timed(k)


def test_events_of_one_engine_do_not_overlap_but_for_their_latency() -> None:
    timeline = long_loop()
    for engine in ("vector", "scalar"):
        here = timeline.of_engine(engine)
        assert (timeline.start_ns[here][1:] >= (timeline.start_ns + timeline.busy_ns)[here][:-1] - 1e-9).all()


def test_no_event_starts_before_it_is_ready() -> None:
    timeline = long_loop()
    assert (timeline.start_ns >= timeline.ready_ns - 1e-9).all()


def test_an_empty_program_lasts_as_long_as_start_and_end() -> None:
    machine = replace(ROUND, kernel_start_ns=fact(7000.0), kernel_end_ns=fact(300.0))
    timeline = timed(Kernel(machine))
    assert (timeline.latency_ns, timeline.window_ns, len(timeline)) == (7300.0, 0.0, 0)


def test_busy_intervals_are_merged() -> None:
    k = Kernel(ROUND)
    a, b, c = (k.tile(128, 512) for _ in range(3))
    k.fill(a)
    k.fill(b)
    k.copy(c, a, "scalar")
    k.fill(c)
    timeline = timed(k)
    # VectorE 0 to 1224, then waits for ScalarE (662 to 1374) and a semaphore
    assert timeline.busy_intervals("vector").tolist() == [[0.0, 1224.0], [1424.0, 2036.0]]
    assert timeline.active_ns("vector") == 1836.0
    assert timeline.busy_intervals("tensor").shape == (0, 2)


def both(machine: Machine, first: tuple[str, str], second: tuple[str, str]) -> list[float]:
    """Starts of two copies of float32 tiles that wait for nothing: engine and memory that they read."""
    k = Kernel(machine)
    for engine, memory in (first, second):
        source = k.psum(128, 512) if memory == "psum" else k.tile(128, 512)
        k.copy(k.tile(128, 512), source, engine)
    timeline = timed(k)
    return [start_of(timeline, row) for row in range(2)]


TAKES_TURNS = replace(ROUND, shared_ports=fact(1))
WIDE = replace(ROUND, vector_fp32_lanes=fact(2))


@pytest.mark.parametrize(
    ("machine", "first", "second", "begins"),
    [
        # trn1 guide: VectorE and GpSimdE take turns at SBUF, VectorE and ScalarE at PSUM; 512 + 100 ns each
        (TAKES_TURNS, ("vector", "sbuf"), ("gpsimd", "sbuf"), 612.0),
        (TAKES_TURNS, ("vector", "psum"), ("scalar", "psum"), 612.0),
        (TAKES_TURNS, ("vector", "sbuf"), ("scalar", "sbuf"), 0.0),
        (TAKES_TURNS, ("vector", "psum"), ("scalar", "sbuf"), 0.0),
        # trn2 guide: a performance mode of VectorE, here 256 + 100 ns, uses the bus of GpSimdE
        (WIDE, ("vector", "sbuf"), ("gpsimd", "sbuf"), 356.0),
        (WIDE, ("vector", "psum"), ("gpsimd", "sbuf"), 0.0),
        (ROUND, ("vector", "sbuf"), ("gpsimd", "sbuf"), 0.0),
        (ROUND, ("vector", "psum"), ("scalar", "psum"), 0.0),
    ],
)
def test_engines_that_share_a_port_take_turns(
    machine: Machine, first: tuple[str, str], second: tuple[str, str], begins: float
) -> None:
    assert both(machine, first, second) == [0.0, begins]
