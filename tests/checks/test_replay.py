"""Replays compute what the run computed, in orders that keep every edge; numerics by hand-made figures."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

from nkilab.checking import Options, filled, report_of
from nkilab.checks.evidence import Evidence, Track
from nkilab.checks.graph import Graph
from nkilab.checks.numerics import ulp_of
from nkilab.checks.replay import Ordering, _by_node, _computed, _outputs, orderings
from nkilab.checks.watch import Watcher
from nkilab.launches import launch
from nkilab.machine import machine_named
from nkilab.place import DEPENDENCES
from nkilab.tiles.dtypes import BFLOAT16, FLOAT32
from tests.checks.gallery import cores, loops, memory, python, races
from tests.checks.gallery.case import CASES, Case
from tests.dialects.spellings import nisa2, nki2, nl2

assert cores
assert loops
assert memory
assert python
assert races
BY_NAME = {c.name: c for c in CASES}
SOUND = [c for c in CASES if not c.is_wrong and not c.options.keys() & {"version", "ranks"}]


def recorded(case: Case) -> tuple[Evidence, Watcher, Any]:
    watcher = Watcher(records=True)
    machine = machine_named(case.options.get("target", "trn2"))
    args = tuple(filled(a) for a in case.args)
    launched = launch(case.kernel, args, {}, machine, has_data=True, watch=watcher.around)
    tracks = tuple(Track(program, rank) for rank, program in enumerate(launched.programs))
    return Evidence(case.kernel, tracks, launched.memories, launched.rendezvous), watcher, launched.results


@pytest.mark.corpus
@pytest.mark.parametrize("case", SOUND, ids=[c.name for c in SOUND])
def test_the_recorded_order_gives_what_the_run_gave(case: Case) -> None:
    evidence, watcher, results = recorded(case)
    graph = Graph(evidence)
    assert watcher.recording is not None
    actions, same = _by_node(graph, watcher.recording), Ordering("as recorded", graph.sequence)
    again = _computed(evidence, watcher.recording, actions, same, _outputs(evidence))
    # a kernel whose result is an argument returns nothing
    outputs = results if isinstance(results, tuple) else (() if results is None else (results,))
    for replayed, result in zip(again, outputs, strict=True):
        np.testing.assert_array_equal(replayed, np.asarray(result).reshape(-1))


KEEPS_EDGES = (
    "cores.right_halves_are_sent",
    "cores.right_a_barrier_on_the_halves",
    "races.right_tiles_of_one_line_take_turns",
    "loops.right_matmuls_accumulate",
    "races.right_an_order_is_asked_for",
)


@pytest.mark.parametrize("name", KEEPS_EDGES)
def test_every_order_has_all_rows_and_keeps_every_edge(name: str) -> None:
    evidence, _, _ = recorded(BY_NAME[name])
    graph = Graph(evidence)
    count = int(graph.base[-1])
    for ordering in islice(orderings(graph, []), 14):
        assert sorted(ordering.sequence.tolist()) == list(range(count))
        if ordering.permutes:
            continue
        place = np.empty(count, np.int64)
        place[ordering.sequence] = np.arange(count)
        assert all(place[earlier] < place[later] for later, earlier in graph.edges.tolist())


def test_each_order_is_new_and_where_there_is_none_that_is_said() -> None:
    case = BY_NAME["races.right_tiles_of_one_line_take_turns"]
    report = report_of(case.kernel, case.args, {}, Options(replays=6))
    assert len(report.replays) == 6
    assert all(one["swapped_pairs"] >= 1 for one in report.replays)
    lonely = BY_NAME["memory.right_everything_was_loaded"]
    report = report_of(lonely.kernel, lonely.args, {}, Options(replays=3))
    assert report.notes == ("the rows have only 0 other orders that were found",)


# rows of the table without which replays of a kernel differ; the kernels are those of test_races
EXPOSED = {
    "flow": "races.right_tiles_side_by_side",
    "anti": "races.right_one_tile_for_all_turns",
    "output": "memory.right_the_last_rows_are_zeros",
    "engine order": "races.right_one_engine_writes_both_tiles",
    "queue order": "races.right_two_loads_go_through_one_queue",
    "semaphore": "races.right_tiles_side_by_side",
    "direct overlap": "races.right_ping_pong_with_one_buffer",
    "pattern overlap": "races.right_shifted_patterns",
}


@pytest.mark.parametrize("row", EXPOSED)
def test_a_planted_missing_edge_changes_a_result(row: str) -> None:
    case = BY_NAME[EXPOSED[row]]
    whole = report_of(case.kernel, case.args, {}, Options(replays=6))
    assert not any(one["differing_elements"] for one in whole.replays)
    table = {name: kind for name, kind in DEPENDENCES.items() if name != row}
    planted = report_of(case.kernel, case.args, {}, Options(replays=6, table=table))
    assert all(one["swapped_pairs"] >= 1 for one in planted.replays)
    findings = [f for f in planted.findings if f.rule == "order-changes-result"]
    assert findings
    assert all(f.site.line > 0 and f.other_site.line > 0 for f in findings)


# kinds that the table leaves open: the kernel shows it as it is
OPEN = {
    "direct overlap, Beta 1": "races.wrong_two_tensors_of_beta_1_share_an_address",
    "dynamic hbm": "races.wrong_a_cache_row_is_read_back_unordered",
    "two cores": "cores.wrong_the_other_half_is_read_without_a_barrier",
}


@pytest.mark.parametrize("row", OPEN)
def test_what_the_table_leaves_open_changes_a_result(row: str) -> None:
    case = BY_NAME[OPEN[row]]
    findings = report_of(case.kernel, case.args, {}, Options(replays=6)).findings
    assert [f for f in findings if f.rule == "order-changes-result"]


def test_a_seed_that_the_scheduler_puts_behind_its_numbers_changes_them() -> None:
    case = BY_NAME["races.wrong_a_seed_may_come_too_late"]
    report = report_of(case.kernel, [np.full((1, 1), 77, np.uint32)], {}, Options(replays=3))
    # engines keep their order, so that no other order is left
    (one,) = report.replays
    assert one["order"] == "the second of two that share registers first"
    assert one["differing_elements"] > 0
    (finding,) = [f for f in report.findings if f.rule == "order-changes-result"]
    asked = next(f for f in report.findings if f.rule == "race-open-schedule")
    assert (finding.site, finding.other_site, finding.severity) == (asked.site, asked.other_site, "warning")


def test_iterations_of_affine_range_backwards_show_a_recurrence() -> None:
    case = BY_NAME["loops.wrong_a_recurrence_in_affine_range"]
    findings = report_of(case.kernel, case.args, {}, Options(replays=3)).findings
    (differs,) = [f for f in findings if f.rule == "order-changes-result"]
    assert differs.severity == "error"
    assert "iterations of affine_range backwards" in differs.message
    assert differs.site == next(f.site for f in findings if f.rule == "affine-carried")


def test_sums_do_not_depend_on_the_order_of_iterations() -> None:
    for name in ("loops.right_matmuls_accumulate", "loops.right_a_sum_is_a_documented_reduction"):
        case = BY_NAME[name]
        report = report_of(case.kernel, case.args, {}, Options(replays=4))
        assert [one["order"] for one in report.replays].count("iterations of affine_range backwards") == 1
        assert not any(one["differing_elements"] for one in report.replays)


@nki2.jit
def third(x):
    """1 / 3 in bfloat16, then times 3 in bfloat16."""
    tile = nl2.ndarray((128, 8), nl2.bfloat16, buffer=nl2.sbuf)
    out = nl2.ndarray((128, 8), nl2.bfloat16, buffer=nl2.shared_hbm)
    nisa2.memset(tile, 1.0)
    nisa2.tensor_scalar(tile, tile, op0=nl2.multiply, operand0=1 / 3)
    nisa2.dma_copy(out, tile)
    return out


def test_units_in_the_last_place_are_those_of_the_stored_type() -> None:
    report = report_of(third, [np.ones((1, 1), np.float32)], {}, Options(has_numerics=True))
    rows = {one["tensor"]: one for one in report.tensors}
    # by hand: 1/3 = 0.333333; bfloat16 has 0.333984 (0x3EAB), a unit there is 2**-9: off by 0.33 of it
    assert rows["out"]["max_ulp"] == pytest.approx((0.333984375 - 1 / 3) / 2**-9, rel=1e-4)
    assert rows["out"]["max_relative"] == pytest.approx(0.333984375 * 3 - 1, rel=1e-3)
    assert rows["out"]["parted_at"] == ""


def test_a_unit_in_the_last_place_is_a_power_of_two_of_the_exponent() -> None:
    # bfloat16: 7 stored bits; float32: 23
    assert ulp_of(np.array([1.0, 1.9, 2.0, 256.0]), BFLOAT16).tolist() == [2**-7, 2**-7, 2**-6, 2.0]
    assert ulp_of(np.array([1.0, -4.0]), FLOAT32).tolist() == [2**-23, 2**-21]


def test_the_line_where_two_part_is_the_first() -> None:
    case = BY_NAME["python.wrong_a_variance_cancels_in_bfloat16"]
    report = report_of(case.kernel, case.args, {}, Options(has_numerics=True))
    (finding,) = [f for f in report.findings if f.rule == "numerics-divergence"]
    assert finding.notes == (f"float32 and the stored types first differ at {finding.where}",)
