"""Races follow from the table of dependences: without a row, pairs of its kind are exposed or forgotten."""

from __future__ import annotations

import numpy as np
import pytest

from nkilab.arrays import ArraySpec
from nkilab.checks.order import Order
from nkilab.place import DEPENDENCES
from tests.checks.gallery import cores, memory, races
from tests.checks.gallery.case import CASES
from tests.checks.test_gallery import reported as as_marked

assert cores
assert races
assert memory
BY_NAME = {c.name: c for c in CASES}
# kernels that between them need every row
NEEDED = {
    "flow": "races.right_tiles_side_by_side",
    "anti": "races.right_one_tile_for_all_turns",
    "output": "memory.right_the_last_rows_are_zeros",
    "reuse": "races.right_tiles_of_one_line_take_turns",
    "spill": "memory.wrong_eight_squares_of_32_kib_are_live",
    "engine order": "races.right_one_engine_writes_both_tiles",
    "queue order": "races.right_two_loads_go_through_one_queue",
    "semaphore": "races.right_tiles_side_by_side",
    "direct overlap": "races.right_ping_pong_with_one_buffer",
    "direct overlap, Beta 1": "races.wrong_two_tensors_of_beta_1_share_an_address",
    "pattern overlap": "races.right_shifted_patterns",
    "dynamic hbm": "races.wrong_a_cache_row_is_read_back_unordered",
    "open schedule": "races.wrong_a_seed_may_come_too_late",
    "two cores": "cores.wrong_the_other_half_is_read_without_a_barrier",
    "two ranks": "cores.wrong_ranks_exchange_in_place",
}


def findings(name: str, table: dict) -> set[tuple[str, int, int]]:
    all_findings = as_marked(BY_NAME[name], table).findings
    return {(f.rule, f.site.line, f.other_site.line) for f in all_findings if f.severity != "advice"}


def test_every_row_of_the_table_is_needed_by_a_kernel() -> None:
    assert set(NEEDED) == set(DEPENDENCES)


@pytest.mark.parametrize("row", NEEDED)
def test_deleting_a_row_of_the_table_changes_a_finding(row: str) -> None:
    without = {name: kind for name, kind in DEPENDENCES.items() if name != row}
    assert findings(NEEDED[row], without) != findings(NEEDED[row], dict(DEPENDENCES))


@pytest.mark.parametrize("row", [name for name, kind in DEPENDENCES.items() if kind.is_ordered])
def test_a_planted_missing_edge_is_exposed_with_both_lines(row: str) -> None:
    without = {name: kind for name, kind in DEPENDENCES.items() if name != row}
    fresh = findings(NEEDED[row], without) - findings(NEEDED[row], dict(DEPENDENCES))
    assert fresh
    assert all(line > 0 and other > 0 for _, line, other in fresh)


def test_a_documented_pair_is_an_error_and_an_assumed_one_a_warning() -> None:
    severities = {
        f.rule: f.severity
        for name in NEEDED.values()
        for f in as_marked(BY_NAME[name]).findings
        if f.rule.startswith("race-")
    }
    assert severities["race-two-cores"] == "error"
    assert severities["race-direct-overlap"] == "warning"


def test_clocks_agree_with_walking_back_along_the_edges() -> None:
    rng = np.random.default_rng(7)
    for _ in range(60):
        count = int(rng.integers(2, 30))
        edges = [(b, a) for b in range(count) for a in range(b) if rng.random() < 0.1]
        later, earlier = (np.array([e[side] for e in edges], np.int64) for side in (0, 1))
        order = Order(count, later, earlier, rng.integers(0, 3, count))
        for first in range(count):
            for second in range(count):
                assert order.is_before(first, second) == (first in order.before(second))


def test_two_programs_that_meet_are_ordered_through_the_meeting() -> None:
    # rows 0, 1, 2 of one core and 3, 4, 5 of the other; 1 and 4 meet; each core is a stream
    order = Order(
        6, np.zeros(0, np.int64), np.zeros(0, np.int64), np.array([0, 0, 0, 1, 1, 1]),
        np.array([0, 1, 3, 4, 2, 5]), [(1, 4)],
    )  # fmt: skip
    assert order.is_before(0, 5)
    assert order.is_before(3, 2)
    assert not order.is_before(2, 5)
    assert not order.is_before(5, 2)


def test_compiled_clocks_are_those_of_plain_python(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    count = 40
    edges = [(b, a) for b in range(count) for a in range(b) if rng.random() < 0.05]
    later, earlier = (np.array([e[side] for e in edges], np.int64) for side in (0, 1))
    stream = rng.integers(0, 4, count)
    with monkeypatch.context() as in_pieces:
        in_pieces.setattr("nkilab.checks.order.AT_ONCE", 7)
        plain = Order(count, later, earlier, stream)._ticked()
    monkeypatch.setattr("nkilab.records.LONG", 0)
    np.testing.assert_array_equal(Order(count, later, earlier, stream)._ticked(), plain)


def test_cores_that_store_different_values_by_one_line_are_at_fault() -> None:
    kind = BY_NAME["cores.wrong_both_cores_write_one_result"]
    (finding,) = [f for f in as_marked(kind).findings if f.severity != "advice"]
    assert (finding.rule, finding.severity) == ("race-two-cores", "error")


def test_a_race_names_both_accesses_in_one_message() -> None:
    kind = BY_NAME["races.wrong_two_tensors_of_beta_1_share_an_address"]
    finding = next(f for f in as_marked(kind).findings if "reads" in f.other_message)
    assert finding.message == (
        "memset writes a tile: float32[128, 512] in sbuf; dma_copy reads a tile: float32[128, 512] in "
        "sbuf, and nothing orders the two"
    )
    assert finding.other_message == "dma_copy reads here"
    assert finding.notes == (
        "kind of pair: direct overlap, Beta 1; source: direct allocation guide, known limitations",
    )
    assert finding.where != finding.other_where


def test_of_a_place_that_only_the_run_knows_no_race_claims_the_same_elements() -> None:
    (finding,) = [
        f
        for f in as_marked(BY_NAME["races.wrong_a_cache_row_is_read_back_unordered"]).findings.verdict
        if f.fails
    ]
    assert finding.message == (
        "dma_copy reads cache: float32[64, 512] in hbm; dma_copy writes the same tensor at an offset that "
        "only the run knows, and nothing orders the two; whether they share elements, only the run knows"
    )
    (finding,) = [
        f
        for f in as_marked(BY_NAME["races.wrong_scattered_rows_are_read_back_unordered"]).findings
        if f.fails
    ]
    assert finding.message == (
        "dma_copy reads table: float32[64, 512] in hbm; dma_copy writes the same tensor at rows that indices "
        "choose, and nothing orders the two; whether they share elements, only the run knows"
    )
    assert finding.severity == "warning"


def test_a_spec_is_filled_with_the_same_numbers_in_every_run() -> None:
    from nkilab.checking import filled

    first, second = (filled(ArraySpec((2, 3), "float32")) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert filled(ArraySpec((2, 3), "int32")).tolist() == [[0, 0, 0], [0, 0, 0]]
