"""What profiles say of collectives: their time, their part of the critical path, the bound."""

from __future__ import annotations

import re
from functools import cache
from io import StringIO

import numpy as np
import pytest

import nkilab
from nkilab.views.explorer import tables_of
from nkilab.views.explorer.formats import summary_text
from nkilab.views.perfetto import trace_json
from nkilab.views.record import profile_dict
from nkilab.views.report import report_html
from nkilab.views.run import Run
from nkilab.views.text import print_profile
from nkilab.views.words import spent_on_path, verdict
from tests.dialects.spellings import nisa2 as nisa
from tests.dialects.spellings import nki2 as nki
from tests.dialects.spellings import nl2 as nl
from tests.views.test_schemas import check

WIDTH = 100

with nkilab.activate():
    import nki.collectives as ncc

GROUP = ncc.ReplicaGroup([[0, 1, 2, 3]])


@nki.jit
def summed(x, group, times):
    src = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name="src")
    nisa.dma_copy(src, x)
    for _ in range(times):
        dst = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name=f"dst{_}")
        ncc.all_reduce([src], [dst], group, nl.add)
        src = dst
    return src


@cache
def run_of(times: int) -> Run:
    return nkilab.profile(summed, nkilab.spec((1024, 4096), "bfloat16"), GROUP, times, ranks=4).run


def test_a_call_of_a_collective_is_one_operation_and_lasts_until_its_last_byte() -> None:
    run = run_of(2)
    timeline = run.timeline
    own = np.array(timeline.labels)[timeline.label] == "ALL_REDUCE"
    summary = {name: value[0] for name, value in tables_of(run, ("Summary",))["Summary"].items()}
    # one after the other, for one takes what the other gives
    lasts = float((timeline.end_ns - timeline.start_ns)[own].sum())
    assert summary["cc_op_count"] == 2
    assert summary["cc_op_time"] == pytest.approx(lasts * 1e-9)
    assert summary["cc_op_active_time"] == pytest.approx(lasts * 1e-9)
    assert summary["cc_op_active_time_percent"] == pytest.approx(lasts / (timeline.latency_ns + 5000))
    # programs of CC-cores are not predicted
    assert [value for name, value in summary.items() if name.startswith("cc_cores")] == [None] * 4
    assert re.search(r"^cc_op_count +2$", summary_text(run), re.M)
    assert "cc_cores" not in summary_text(run)


def test_collectives_bound_what_they_take_most_of() -> None:
    sentences = verdict(run_of(2))
    assert sentences[0] == (
        "It is bound by collectives: ranks exchange bytes at least 80 % of the time from first to last "
        "event or for most of the critical path."
    )
    assert "a collective moves bytes, most of it at test_collectives.py:" in sentences[1]
    assert sentences[-1].startswith("No change that nkilab knows would save more")


def test_the_path_tells_collectives_from_transfers() -> None:
    spent = {s.text: s for s in spent_on_path(run_of(1))}
    assert spent["a collective moves bytes"].is_collective
    assert not spent["a transfer moves bytes"].is_collective
    assert sum(s.share for s in spent_on_path(run_of(1))) == pytest.approx(1)


def test_every_form_holds_a_run_with_collectives() -> None:
    run = run_of(1)
    check(profile_dict(run))
    assert "qSyncCollective0" in report_html(run)
    assert b"ALL_REDUCE" in trace_json(run)
    out = StringIO()
    print_profile(run, out)
    # a long name of a lane moves the bars, it does not break the line
    assert max(map(len, out.getvalue().splitlines())) <= WIDTH
    lines = [line for line in out.getvalue().splitlines() if "qSync" in line and "|" in line]
    assert {len(line) for line in lines} == {WIDTH}
