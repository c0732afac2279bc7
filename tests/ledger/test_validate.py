"""`nkilab validate` as a user calls it, and predictions under other constants."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from msgspec import structs

from nkilab.api import estimate, spec
from nkilab.errors import NkilabError, UsageError
from nkilab.ledger import Predictor, judged, own_rows
from nkilab.ledger.picture import svg
from nkilab.ledger.predict import recosted
from nkilab.machine import machine_named
from nkilab.machine.model import assumed
from nkilab.validate import compare
from tests.command_line import call

from .rows import compared, row
from .serving import kernel
from .serving import served as served

LEDGER = """\
schema: nkilab.ledger/1
sources:
  own: {ref: our lab}
groups:
  - {family: sums, kernel: adding.add_columns, chip: trn2, dialect: nki, trust: B, split: SPLIT, noise: 0.02,
     source: own, rows: [
       {id: small, args: ['f32[25600]', 'f32[25600]', 200],
        measured: {nc_latency_us: VALUE, dma_transfers: 3}}]}
"""
TRN2 = machine_named("trn2")


@pytest.fixture
def ledger(tmp_path):
    def write(value: float, split: str = "judge", text: str = LEDGER):
        path = tmp_path / "lab.yaml"
        path.write_text(text.replace("VALUE", str(value)).replace("SPLIT", split))
        return path

    return write


@pytest.fixture
def predicted(served) -> float:
    vector = spec(25600, "float32")
    return estimate(kernel("adding.add_columns"), vector, vector, 200).latency_us


def test_json_holds_every_row_with_its_base_and_error(ledger, predicted):
    done = call("validate", ledger(2 * predicted), "--json")
    document = json.loads(done.stdout)
    assert document["schema"] == "nkilab.validate/1"
    first, second = document["rows"]
    assert (first["metric"], first["measured"], first["is_primary"]) == ("nc_latency_us", 2 * predicted, True)
    assert first["base"] == "from the launch on the NeuronCore to its end; nki.benchmark, NCL"
    assert first["error"] == pytest.approx(-0.5)
    assert (second["metric"], second["predicted"], second["interval"]) == ("dma_transfers", 3, None)
    assert document["counts"] == {"compared": 1, "equal": 1}
    assert document["scores"]["judged kernels"]["mape"] == pytest.approx(0.5)
    assert document["left_out"] == {}


def test_a_missed_bar_is_exit_code_1(ledger, predicted):
    done = call("validate", ledger(2 * predicted))
    assert done.returncode == 1
    assert "MISSED  error: MAPE of judged kernels: 50.0%; at most 7%" in done.stdout
    assert "MISSED  error: kernels off by more than 35% without a reason: 1; none" in done.stdout


def test_nothing_judged_is_no_bar_missed(ledger, predicted):
    done = call("validate", ledger(2 * predicted, "fit"))
    assert done.returncode == 0
    assert "MISSED" not in done.stdout
    assert "kernels that may be fitted: 1 setting, MAPE 50.0%" in done.stdout


def test_a_row_stands_with_its_numbers(ledger, served, predicted):
    done = call("validate", ledger(round(predicted, 3), "fit"))
    line = next(line for line in done.stdout.splitlines() if line.startswith("  small"))
    assert line.split()[1:3] == ["nc_latency_us", f"{round(predicted, 3):,.6g}"]
    assert "+0.0%" in line or "-0.0%" in line


def test_a_picture_has_a_mark_per_whole_kernel(ledger, predicted, tmp_path):
    path = tmp_path / "p.svg"
    call("validate", ledger(predicted), "--picture", path)
    circles = ET.parse(path).getroot().iter("{http://www.w3.org/2000/svg}circle")
    titles = [t.text for c in circles for t in c]
    assert len(titles) == 1
    assert titles[0].startswith("small: measured ")


def test_a_kernel_beside_the_ledger_is_found(ledger, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import nki\nimport nki.isa as nisa\nimport nki.language as nl\n\n@nki.jit\ndef twice(x):\n"
        "    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)\n"
        "    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)\n"
        "    nisa.dma_copy(dst=tile, src=x)\n    nisa.dma_copy(dst=out, src=tile)\n    return out\n"
    )
    text = LEDGER.replace("adding.add_columns", "'mine.py:twice'").replace("'f32[25600]', 200", "")
    text = text.replace("['f32[25600]', ]", "['f32[128,4]']").replace("dma_transfers: 3", "dma_transfers: 2")
    done = call("validate", ledger(20, "fit", text), "--json")
    assert json.loads(done.stdout)["counts"] == {"compared": 1, "equal": 1}


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--family", "none"], 2, "--family is none; the ledger has sums"),
        (
            ["--picture", "p.png"],
            2,
            "--picture is p.png; pictures are SVG\n  hint: name a file that ends in .svg",
        ),
    ],
)
def test_wrong_options_are_told(ledger, arguments, status, message):
    done = call("validate", ledger(20), *arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert message in done.stderr


def test_a_kernel_that_the_ledger_lacks_is_told(ledger):
    done = call("validate", ledger(20, text=LEDGER.replace("adding.add_columns", "adding.nothing")))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "nkilab: row small of line 7 names kernel adding.nothing; the ledger has none\n"
        "  hint: write MODULE.FUNCTION of nkilab.ledger.kernels, or FILE.py:KERNEL\n"
    )


def test_an_argument_that_is_no_array_is_told(ledger):
    done = call("validate", ledger(20, text=LEDGER.replace("'f32[25600]', 200", "'f33[25600]', 200")))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "nkilab: row small of line 7 has the argument 'f33[25600]', which is no array\n"
        "  hint: write an array as DTYPE[N,...], as in f32[128,512]\n"
    )


@pytest.mark.parametrize("name", ["add_columns", "adding.", "a..b", "mine.py:twice", "adding.np"])
def test_a_name_that_is_no_kernel_is_told(name):
    with pytest.raises(NkilabError):
        Predictor().kernel(row("small"), name)


def slower(machine, factor: float):
    """The same chip with everything that a matmul takes stretched."""
    clock = assumed(machine["tensor_clock_ghz"] / factor, "test")
    return structs.replace(machine, tensor_clock_ghz=clock)


@pytest.mark.usefixtures("served")
def test_the_same_constants_give_the_same_prediction():
    blocked = next(r for r in own_rows() if r.id == "sky-2048-m4-n4-k4")
    predictor = Predictor()
    (one,) = judged([blocked], predictor)
    assert one.predict(TRN2) == predictor.predict(blocked, "profile_us")
    assert one.predict(structs.replace(TRN2)) == one.predict(TRN2)
    assert (one.metric, one.measured) == ("profile_us", 907.033)


@pytest.mark.usefixtures("served")
def test_predictions_follow_the_constants_given():
    blocked = next(r for r in own_rows() if r.id == "sky-2048-m4-n4-k4")
    predictor = Predictor()
    active = (
        predictor.predict(blocked, "tensor_active_percent") / 100 * predictor.predict(blocked, "profile_us")
    )
    slow = slower(TRN2, 2)
    doubled = predictor.predict(blocked, "tensor_active_percent", slow) / 100
    doubled *= predictor.predict(blocked, "profile_us", slow)
    # all but the latencies of a few matmuls scales with the clock
    assert doubled == pytest.approx(2 * active, rel=0.01)
    # and the traces of the chip's own constants are as they were
    assert predictor.programs(blocked, 0)[0].machine is TRN2


@pytest.mark.usefixtures("served")
def test_constants_of_another_chip_are_refused():
    blocked = next(r for r in own_rows() if r.id == "sky-2048-m4-n4-k4")
    (program,) = Predictor().programs(blocked, 0)
    with pytest.raises(UsageError) as raised:
        recosted(program, machine_named("trn1"))
    assert str(raised.value) == "the program is for trn2, the constants are of trn1"


@pytest.mark.usefixtures("served")
def test_calls_of_one_kernel_and_shapes_are_traced_once():
    rows = {r.id: r for r in own_rows()}
    predictor = Predictor()
    baseline = [rows[f"akc-{of}-baseline-bf16-s512"] for of in ("attn", "prof")]
    assert predictor.programs(baseline[0], 0) is predictor.programs(baseline[1], 0)
    # one ran with descriptors written beforehand, the other had them generated
    transposed = [rows[f"cs149-{of}-transpose1024"] for of in ("chz", "xg")]
    assert predictor.programs(transposed[0], 0) is not predictor.programs(transposed[1], 0)


@pytest.mark.usefixtures("served")
def test_a_label_stands_for_both_halves_of_a_float32_product():
    # trn2: 512 columns twice, 4 passes in all, at 2.4 GHz: two starts in 4 * 512 / 2.4 = 853 ns
    ledger_row = row("a", {"interval_ns": 429.0}, kernel="single.matmuls", calls=((512, "float32", 8),),
                kind="instruction", label="MATMUL")  # fmt: skip
    (one,) = compare([ledger_row], Predictor())
    assert one.predicted == pytest.approx(853.3 / 2, rel=0.02)


@pytest.mark.usefixtures("served")
def test_a_descriptor_is_what_a_longer_transfer_takes_more():
    # 64 more descriptors over 16 engines are 4 each
    ledger_row = row("a", {"descriptor_ns": 156.5}, kernel="single.load", kind="instruction",
                calls=(("u8[64,4096]",), ("u8[128,4096]",)), units=(64, 128))  # fmt: skip
    predictor = Predictor()
    short, long = (
        predictor.predict(replace(ledger_row, calls=(c,)), "transfer_ns") for c in ledger_row.calls
    )
    assert predictor.predict(ledger_row, "descriptor_ns") == pytest.approx((long - short) / 4)


def test_a_picture_fills_marks_of_judged_rows_alone():
    text = svg([compared(10, 11, "<a>"), compared(100, 90, "b", split="fit")], "a & b")
    root = ET.fromstring(text)
    marks = [c for c in root.iter("{http://www.w3.org/2000/svg}circle") if len(c)]
    assert [m[0].text for m in marks] == [
        "b: measured 100, predicted 90 us",
        "<a>: measured 10, predicted 11 us",
    ]
    assert [m.get("fill") == "white" for m in marks] == [True, False]
    # one decade is 560 wide: 10 lies at the left end, 100 at the right
    assert [m.get("cx") for m in marks] == ["560.0", "0.0"]
