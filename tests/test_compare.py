"""`nkilab compare`: a prediction against profiles that the vendor's tool writes."""

from __future__ import annotations

import json
import re
from math import log
from pathlib import Path

import pytest

from nkilab import profile, spec
from nkilab.compare import compare, print_comparison
from nkilab.errors import FileError
from nkilab.hook import activate
from nkilab.ledger import Predictor, judged
from nkilab.ledger.fitting import changed
from nkilab.ledger.reading import ledger_rows
from nkilab.machine import chip_named
from nkilab.profiles import Profile, profile_of
from nkilab.runner import kernel_from
from nkilab.trace.program import recosted
from nkilab.views.explorer.card import read_profile
from nkilab.views.explorer.formats import summary_json, summary_text
from tests.test_calibrate import KERNEL, LEDGER
from tests.views.test_schemas import check

SHAPE = (128, 8192)


@pytest.fixture(scope="module")
def predicted(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "doubling.py").write_text(KERNEL)
    with activate():
        return profile(kernel_from(f"{folder / 'doubling.py'}:double"), spec(SHAPE, "float32"))


def test_a_summary_is_read_in_the_units_of_the_metrics(tmp_path: Path) -> None:
    # by hand: 34.5 us, 12 %, and counts as they stand
    text = "total_time  3.45e-05\ndma_active_time_percent  0.12\ndma_transfer_count  8\nnd_idx  0\n"
    (tmp_path / "a.txt").write_text(text)
    table = "| metric | value |\n|---|---|\n| total_time | 3.45e-05 |\n| dma_transfer_count | 8 |\n"
    (tmp_path / "b.txt").write_text(table)
    (tmp_path / "c.json").write_text(json.dumps({"n_12": {"total_time": 3.45e-05, "dma_transfer_count": 8}}))
    (tmp_path / "d.json").write_text(
        json.dumps({"summary": [{"total_time": 3.45e-05, "dma_transfer_count": 8}]})
    )
    read = {path.stem: read_profile(path).metrics for path in tmp_path.iterdir()}
    assert read["a"]["dma_active_time_percent"] == pytest.approx(12.0)
    for metrics in read.values():
        assert metrics["total_time"] == pytest.approx(34.5)
        assert metrics["dma_transfer_count"] == 8


def test_parquet_tables_are_read_from_their_folder(tmp_path: Path, predicted: Profile) -> None:
    pytest.importorskip("pyarrow")
    from nkilab.views.explorer.parquet import parquet_files

    for name, content in parquet_files(predicted.run).items():
        (tmp_path / name).write_bytes(content)
    read = read_profile(tmp_path)
    assert read.format == "parquet"
    # one transfer in and one out, of 128 x 8192 elements of 4 bytes
    assert read.metrics["dma_transfer_total_bytes"] == 2 * 128 * 8192 * 4
    assert read_profile(tmp_path / "Summary.parquet").metrics == read.metrics
    assert read.metrics["total_time"] == pytest.approx(predicted.profile_us)


@pytest.mark.parametrize("value", [-1, "many"])
def test_a_wrong_value_in_a_table_is_refused_with_its_row(value: object, tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "bad.parquet"
    parquet.write_table(pyarrow.table({"total_time": [3e-5], "dma_transfer_count": [value]}), path)
    problem = f"{path}, row 1: dma_transfer_count is {value!r}; it must be a number from 0 on"
    with pytest.raises(FileError, match=re.escape(problem)):
        read_profile(path)


BAD = {
    "a.json": ('{"n": {"total_time": -1}}',
               "a.json:1: total_time is -1; it must be a number above 0"),
    "b.json": ('{"n": {\n"total_time": 1,\n"dma_transfer_count": NaN}}',
               "b.json:3: dma_transfer_count is nan; it must be a number from 0 on"),
    "c.json": ('{"n": {\n"total_time": 1', "c.json:2: it is no JSON: Expecting ',' delimiter"),
    "d.json": ('{"n": {"time": 1}}',
               "d.json:1: it has 0 summaries with a total_time; a profile of one program has one"),
    "e.json": ('{"n": {"total_time": 1}, "m": {"total_time": 2}}',
               "e.json:1: it has 2 summaries with a total_time; a profile of one program has one"),
    "f.txt": ("nothing here\n", "f.txt:1: no line has total_time and a number"),
    "g.txt": ("total_time 3\nhbm_read_bytes many\n",
              "g.txt:2: hbm_read_bytes is 'many'; it must be a number from 0 on"),
    "h.parquet": ("no table", "h.parquet is no Parquet table"),
    "i.json": ("[" * 50_000, "i.json:1: it nests too deep"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_profile_is_refused_with_its_line(name: str, tmp_path: Path) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    text, problem = BAD[name]
    (tmp_path / name).write_text(text)
    with pytest.raises(FileError) as caught:
        read_profile(tmp_path / name)
    assert str(caught.value).splitlines()[0].removeprefix(f"{tmp_path}/").startswith(problem)


def card_with(predicted: Profile, tmp_path: Path, **factors: float) -> Path:
    """The profile of a card whose constants are other ones."""
    machine = changed(chip_named("trn2"), {name: log(by) for name, by in factors.items()})
    slower = profile_of([recosted(program, machine) for program in predicted.traced])
    ((name, metrics),) = json.loads(summary_json(slower.run, "a" * 40)).items()
    (tmp_path / "card.json").write_text(json.dumps({name: metrics}, indent=1))
    return tmp_path / "card.json"


def test_what_differs_is_explained_by_the_constant_that_differs(predicted: Profile, tmp_path: Path) -> None:
    one = compare(predicted, str(card_with(predicted, tmp_path, kernel_start_ns=1.5)))
    check(one.to_dict())
    off = {pair.name: pair.off for pair in one.pairs}
    assert off["total_time"] < -0.05
    assert off["dma_active_time"] == off["dma_transfer_total_bytes"] == 0
    first = one.explanations[0]
    assert first.constant == "kernel_start_ns"
    # most of the way: the constant is kept near what is known of it
    assert 1.3 < first.after / first.before < 1.5
    assert first.left < one.error / 2


def test_a_prediction_agrees_with_itself(predicted: Profile, tmp_path: Path) -> None:
    (tmp_path / "card.txt").write_text(summary_text(predicted.run))
    one = compare(predicted, str(tmp_path / "card.txt"))
    by_name = {pair.name: pair for pair in one.pairs}
    for name in (
        "total_time",
        "dma_transfer_count",
        "vector_engine_active_time",
        "dma_active_time",
        "hbm_read_bytes",
    ):
        assert by_name[name].off == pytest.approx(0, abs=1e-3), name


def test_the_printed_table_says_what_a_profile_spans_beyond_the_latency(
    predicted: Profile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "card.txt").write_text(f"total_time {predicted.latency_us * 1e-6}\n")
    print_comparison(compare(predicted, str(tmp_path / "card.txt")))
    printed = capsys.readouterr().out
    extra = predicted.program.machine["profile_extra_ns"] / 1000
    assert extra > 0
    assert f"total_time is the predicted latency and {extra:.2f} us that the profiler adds" in printed


def test_a_constant_far_beyond_what_is_known_of_it_explains_nothing(
    predicted: Profile, tmp_path: Path
) -> None:
    # 41 s: a launch of 10^20 ns was said to explain them
    (tmp_path / "card.txt").write_text("total_time 41\n")
    assert compare(predicted, str(tmp_path / "card.txt")).explanations == ()


def test_another_count_is_told_before_times(predicted: Profile, tmp_path: Path) -> None:
    (tmp_path / "card.txt").write_text("total_time 6e-5\ndma_transfer_count 4\n")
    one = compare(predicted, str(tmp_path / "card.txt"))
    assert one.reasons[0] == "predicted are 50.0% fewer dma_transfer_count than on the card: 2 and 4"


def test_a_row_of_a_ledger_names_a_profile(tmp_path: Path) -> None:
    (tmp_path / "doubling.py").write_text(KERNEL)
    (tmp_path / "card.txt").write_text("total_time 4.7e-5\ndma_transfer_count 2\nspill_save_bytes 0\n")
    ledger = LEDGER.replace("measured: {nc_latency_us: 47}", "profile: card.txt")
    (tmp_path / "mine.yaml").write_text(ledger.replace("kernels.py", "doubling.py"))
    small, large = ledger_rows(tmp_path / "mine.yaml")
    assert small.measured == {"nc_latency_us": 25}
    assert large.measured == {"profile_us": pytest.approx(47.0), "dma_transfers": 2}
    with activate():
        predictor = Predictor(lambda named: kernel_from(str(tmp_path / named)))
        times = judged([large], predictor, secondary=True)
        assert times[1].predict(chip_named("trn2")) == 2


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("profile: none.txt", "none.txt cannot be read"),
        ("profile: 5", "mine.yaml:8: profile is 5; it must be the path of a profile"),
        ("measured: {nc_latency_us: .nan}", "mine.yaml:8: nc_latency_us is nan; it must be a number above 0"),
        ("measured: {nc_latency_us: .inf}", "mine.yaml:8: nc_latency_us is inf; it must be a number above 0"),
    ],
)
def test_a_row_that_names_no_profile_or_no_number_is_refused(
    written: str, problem: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.yaml").write_text(LEDGER.replace("measured: {nc_latency_us: 47}", written))
    with pytest.raises(FileError) as caught:
        ledger_rows(tmp_path / "mine.yaml")
    assert problem in str(caught.value).splitlines()[0]
