"""Two runs side by side, and chips with other constants."""

from __future__ import annotations

import json
from io import StringIO

import numpy as np
import pytest
from msgspec.structs import replace

from nkilab import activate, profile, spec
from nkilab.errors import LimitError, UsageError
from nkilab.machine import MACHINES
from nkilab.profiles import ALIASES, changed, changes_in, told_apart, with_changes
from nkilab.trace.program import recosted
from nkilab.views.difference import Difference
from nkilab.views.report.page import comparison_html
from nkilab.views.text import print_difference
from tests.place.handmade import Kernel
from tests.timing.test_clock import ROUND, fact
from tests.views.report.test_page import hostile, read
from tests.views.runs import kernel_run, loaded_copied_stored, pipeline, run_of
from tests.views.test_cores import on_two

WIDTH = 100


def faster(**facts: float) -> Kernel:
    """The load, copy and store on a chip with other constants."""
    k = loaded_copied_stored()
    k.program = recosted(k.program, replace(ROUND, **{name: fact(value) for name, value in facts.items()}))
    return k


def difference(**facts: float) -> Difference:
    return Difference(run_of(loaded_copied_stored()), run_of(faster(**facts)), ("slow", "fast"))


def text_of(comparison: Difference) -> str:
    out = StringIO()
    print_difference(comparison, out)
    return out.getvalue()


def test_a_difference_names_the_faster_run_and_what_changed() -> None:
    # twice the bandwidth: 2 * 819.2 ns less of 5988.8
    comparison = difference(dma_bytes_per_ns=20.0)
    assert comparison.headline == "fast is 1.377 times as fast as slow: 4.35 us instead of 5.989 us"
    assert comparison.speedup == pytest.approx(5988.8 / (5988.8 - 1638.4))
    assert [(one.name, one.change) for one in comparison.path() if one.change] == [
        ("a transfer moves bytes", pytest.approx(-1638.4))
    ]
    changes = {one.lines: one.change for one in comparison.lines() if one.change}
    assert changes == {
        ("kernel.py:1", "kernel.py:1"): pytest.approx(-819.2),
        ("kernel.py:3", "kernel.py:3"): pytest.approx(-819.2),
    }


def test_a_slower_run_and_an_equal_one_are_told_as_such() -> None:
    assert difference(dma_start_ns=2000.0).headline == (
        "fast takes 1.334 times as long as slow: 7.989 us instead of 5.989 us"
    )
    assert difference().headline == "fast takes as long as slow: 5.989 us"
    assert [one.name for one in difference().metrics()] == ["total_time"]


def test_changes_of_the_chip_stand_in_the_headline() -> None:
    comparison = Difference(*_pair(), ("as it is", "what if"), "dma_bandwidth=2x")
    assert (
        comparison.headline == "with dma_bandwidth=2x it is 1.377 times as fast: 4.35 us instead of 5.989 us"
    )


def _pair():
    return run_of(loaded_copied_stored()), run_of(faster(dma_bytes_per_ns=20.0))


def test_lines_of_different_kernels_are_one_line_if_their_text_is() -> None:
    comparison = Difference(kernel_run("tiled"), kernel_run("blocked"), ("tiled", "blocked"))
    shared = {one.name: one.lines for one in comparison.lines()}
    assert shared["nisa.dma_copy(dst=tile, src=source[row : row + rows, column : column + columns])"] == (
        "matmul.py:17", ""
    )  # fmt: skip
    same = Difference(kernel_run("tiled"), kernel_run("hoisted"), ("tiled", "hoisted"))
    assert ("matmul.py:17", "matmul.py:17") in {one.lines for one in same.lines()}


def test_the_text_of_a_difference_is_as_recorded(golden) -> None:
    golden("difference.txt", text_of(Difference(run_of(pipeline()), run_of(pipeline(2)), ("A", "B"))))


def test_the_text_is_at_most_100_columns_wide() -> None:
    names = ("a" * 40, "b" * 40)
    text = text_of(Difference(kernel_run("tiled"), kernel_run("attention"), names))
    assert max(map(len, text.splitlines())) <= WIDTH


def test_the_dictionary_of_a_difference_is_json() -> None:
    comparison = difference(dma_bytes_per_ns=20.0).to_dict()
    assert json.loads(json.dumps(comparison, allow_nan=False)) == comparison
    assert comparison["schema"] == "nkilab.diff/1"
    assert [run["name"] for run in comparison["runs"]] == ["slow", "fast"]


def test_every_core_is_drawn_in_text_and_page() -> None:
    run = on_two().run
    two = Difference(run, run, ("one", "other"))
    text = text_of(two)
    assert [line for line in text.splitlines() if line.startswith("program ")] == [
        "program 0:",
        "program 1:",
    ] * 2
    tables = [read(comparison_html(two), core)[0] for core in range(4)]
    assert [own["core"] for own in tables] == [
        "one program 0", "one program 1", "other program 0", "other program 1",
    ]  # fmt: skip
    # the page first tells of the slowest core of the second run
    assert tables[0]["focus"] == 3


def test_the_page_has_both_runs_and_says_what_is_better() -> None:
    # twice the bandwidth of DMA: 819.2 ns for each transfer instead of 1638.4
    tables, _ = read(comparison_html(difference(dma_bytes_per_ns=20.0)))
    comparison = tables["comparison"]
    assert comparison["title"] == "slow and fast"
    assert comparison["headline"].startswith("fast is 1.377 times as fast as slow")
    (lines, path, metrics) = [rows for _, _, rows in comparison["tables"]]
    loads = next(row for row in lines if row["lines"] == ["kernel.py:1", "kernel.py:1"])
    assert (loads["cells"], loads["gain"]) == (["2.638 us", "1.819 us", "-819.2 ns"], 1)
    assert {row["name"]: row["gain"] for row in path} == {
        "a transfer moves bytes": 1, "a transfer is issued; its first byte has not moved yet": 0,
        "VectorE executes instructions": 0,
        "a semaphore travels from one engine, or from a transfer, to another engine": 0,
    }  # fmt: skip
    gains = {row["name"]: row["gain"] for row in metrics}
    assert gains["total_time"] == 1
    # an engine that is active for more of a shorter time is neither better nor worse
    assert gains["vector_engine_active_time_percent"] == 0


def test_hostile_names_stay_text_in_the_page() -> None:
    page = comparison_html(Difference(hostile(), hostile(), ("<script>alert(1)</script>", '"@tables@')))
    assert "<script>alert" not in page
    assert "<img" not in page
    assert read(page)[0]["comparison"]["title"] == '<script>alert(1)</script> and "@tables@'


# what if


def test_a_factor_and_a_value_change_constants() -> None:
    machine = MACHINES["trn2"]
    assert changed(machine, {"semaphore_ns": "2x"})["semaphore_ns"] == 2 * machine["semaphore_ns"]
    assert changed(machine, {"psum_banks": "16"}).limit("psum_banks") == 16
    assert changed(machine, {"psum_banks": 16}).limit("psum_banks") == 16
    # 640 GB/s over 16 engines
    both = changed(machine, {"dma_bandwidth": "640"})
    assert (both["dma_bytes_per_ns"], both["hbm_bytes_per_ns"]) == (40, 640)
    assert changed(machine, {"dma_bandwidth": "0.5x"})["hbm_bytes_per_ns"] == machine["hbm_bytes_per_ns"] / 2
    assert both.facts()["hbm_bytes_per_ns"].source == "what if dma_bandwidth=640"


def test_constants_that_count_stay_whole() -> None:
    machine = MACHINES["trn2"]
    # 208 KiB less 8 bytes, three tenths of it: what is left of a byte does not count
    assert changed(machine, {"sbuf_bytes_per_partition": "0.3x"})["sbuf_bytes_per_partition"] == 63895
    for change, effect in (("2.5", "2.5"), ("0.1x", "0"), ("0.5", "0.5")):
        with pytest.raises(
            UsageError, match=f"psum_banks={change} makes psum_banks {effect}; it must be a who"
        ):
            changed(machine, {"psum_banks": change})
    # switches may be off, and rates may not be nothing
    assert changed(machine, {"spare_block_buffers": "0"})["spare_block_buffers"] == 0
    with pytest.raises(
        UsageError, match="dma_bandwidth=0 makes dma_bytes_per_ns 0; it must be a number above"
    ):
        changed(machine, {"dma_bandwidth": "0"})
    # what measures need not
    assert changed(machine, {"matmul_overhead_cycles": "2.5"})["matmul_overhead_cycles"] == 2.5


@pytest.mark.parametrize("name", list(ALIASES))
def test_every_short_name_means_constants_of_every_chip(name: str) -> None:
    for machine in MACHINES.values():
        other = changed(machine, {name: "2x"})
        for constant in ALIASES[name]:
            assert other[constant] == 2 * machine[constant]


WRONG = [
    ("dma_bandwith=2x", "trn2 has no constant dma_bandwith\n  hint: did you mean dma_bandwidth?"),
    ("q=1", "trn2 has no constant q\n  hint: nkilab explain CHIP lists them all"),
    ("psum_banks=0", "psum_banks=0 makes psum_banks 0; it must be a whole number above 0"),
    ("psum_banks=many", "psum_banks is many; a change is a number from 0 on, or a factor such as 2x"),
    ("psum_banks=inf", "psum_banks is inf; a change is a number from 0 on, or a factor such as 2x"),
    ("psum_banks", "--what-if has 'psum_banks'; write NAME=VALUE, as in dma_bandwidth=2x"),
    ("a=1,,b=2", "--what-if has ''; write NAME=VALUE, as in dma_bandwidth=2x"),
    ("a=1,a=2", "--what-if names a twice"),
]


@pytest.mark.parametrize(("text", "message"), WRONG, ids=[text for text, _ in WRONG])
def test_wrong_changes_are_told(text: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        changed(MACHINES["trn2"], changes_in(text))
    assert str(raised.value) == message


def matmul_profile():
    with activate():
        from nkilab.ledger.kernels import matmul

        return profile(matmul.tiled, spec((512, 256), "float32"), spec((512, 512), "float32"))


def test_what_if_plans_and_times_again() -> None:
    profiled = matmul_profile()
    other = profiled.what_if(dma_latency="2x")
    assert other.latency_us > profiled.latency_us
    assert other.program.machine["dma_start_ns"] == 2 * profiled.program.machine["dma_start_ns"]
    same = profiled.what_if(dma_latency="1x")
    assert np.array_equal(same.timeline.start_ns, profiled.timeline.start_ns)
    assert (same.target, profiled.target) == ("trn2 (dma_latency=1x)", "trn2")
    assert profiled.diff(other).headline.startswith("B takes ")


def test_what_if_leaves_out_the_loads_that_the_changed_chip_would() -> None:
    profiled = matmul_profile()
    # with no window every repeated load is made
    other = profiled.what_if(redundant_load_window_bytes=1)
    assert other.summary["dma_transfer_count"] >= profiled.summary["dma_transfer_count"]
    assert len(other.traced[0]) == len(profiled.traced[0])


def test_a_chip_too_small_for_the_kernel_is_told() -> None:
    with pytest.raises(LimitError, match="sbuf"):
        matmul_profile().what_if(sbuf_bytes=256)


def test_a_command_line_can_change_keywords_of_the_second_kernel() -> None:
    assert with_changes(["a=1", "b=2"], ["b=3", "c=4"]) == ["a=1", "b=3", "c=4"]
    assert told_apart("k.py:f", "k.py:g", [], []) == ("f", "g")
    assert told_apart("a.py:f", "b.py:f", [], []) == ("a.py:f", "b.py:f")
    assert told_apart("k.py:f", "k.py:f", ["n=1", "m=2"], ["n=3"]) == ("f n=1", "f n=3")
    assert told_apart("x/a.neff", "y/b.neff", [], []) == ("a.neff", "b.neff")
