"""`nkilab calibrate`, and the machine files that it writes, as a user calls them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nkilab.errors import NkilabError
from nkilab.files.neff import packed, unpacked
from nkilab.machine import MACHINES, machine_named
from tests.command_line import call, outcome_of
from tests.place.handmade import Kernel

KERNEL = """\
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def double(x):
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""
LEDGER = """\
schema: nkilab.ledger/1
sources:
  lab: {ref: our notebook}
groups:
  - {family: doubling, kernel: "kernels.py:double", chip: trn2, dialect: nki, trust: B,
     split: fit, noise: 0.02, source: lab, rows: [
       {id: small, args: ['f32[128,512]'], measured: {nc_latency_us: 25}},
       {id: large, args: ['f32[128,8192]'], measured: {nc_latency_us: 47}}]}
"""
HINT = (
    "\n  hint: write one with `nkilab calibrate --from LEDGER.yaml -o MACHINE.yaml`; "
    "docs/ledger.md shows the format"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kernels.py").write_text(KERNEL)
    (tmp_path / "mine.yaml").write_text(LEDGER)
    return tmp_path


def test_a_chip_is_fitted_and_the_file_is_a_target(folder: Path) -> None:
    status, output, complaint = outcome_of(
        call("calibrate", "--from", "mine.yaml", "-o", "ours.yaml", folder=folder)
    )
    assert (status, complaint) == (0, "")
    assert "mean error of 2 rows:" in output
    assert "written: ours.yaml; use it with --target ours.yaml" in output
    times = {}
    for target in ("trn2", "ours.yaml"):
        arguments = ("estimate", "kernels.py:double", "--arg", "f32[128,512]", "--target", target, "--json")
        status, output, complaint = outcome_of(call(*arguments, folder=folder))
        assert (status, complaint) == (0, "")
        document = json.loads(output)
        times[document["target"]] = document["latency_us"]
    assert set(times) == {"trn2", "trn2 (ours.yaml)"}
    assert abs(times["trn2 (ours.yaml)"] - 25) < 0.3 * abs(times["trn2"] - 25)


def test_json_tells_rows_constants_and_errors(folder: Path) -> None:
    status, output, _ = outcome_of(
        call("calibrate", "--from", "mine.yaml", "-o", "ours.yaml", "--json", folder=folder)
    )
    document = json.loads(output)
    assert (status, document["schema"], document["chip"]) == (0, "nkilab.calibrate/1", "trn2")
    assert [one["id"] for one in document["rows"]] == ["small", "large"]
    errors = [abs(one["after"] / one["measured"] - 1) for one in document["rows"]]
    assert document["mape"]["after"] == pytest.approx(sum(errors) / 2)
    assert document["mape"]["after"] < document["mape"]["before"]
    written = machine_named(str(folder / "ours.yaml"))
    for name, value in document["constants"].items():
        assert value["before"] == MACHINES["trn2"][name]
        assert written[name] == pytest.approx(value["after"], rel=1e-5)


@pytest.mark.parametrize(
    ("expected", "arguments", "old", "new", "message"),
    [
        (2, ("-o", "ours.txt"), "", "", "-o is ours.txt; a machine file ends in .yaml\n"
         "  hint: name a file that ends in .yaml"),
        (1, ("-o", "ours.yaml"), "split: fit", "split: judge",
         "mine.yaml has no time that constants may be fitted to\n"
         "  hint: give rows split: fit, whose first quantity is a time on the core, such as nc_latency_us"),
        (1, ("-o", "ours.yaml", "--target", "trn1"), "", "",
         "mine.yaml has no time on trn1 that constants may be fitted to\n"
         "  hint: give rows split: fit, whose first quantity is a time on the core, such as nc_latency_us"),
        (2, ("-o", "ours.yaml"), "{id: large,", "{id: large, chip: trn1,",
         "mine.yaml has rows of trn1, trn2\n  hint: choose one of them with --target"),
    ],
)  # fmt: skip
def test_what_cannot_be_fitted_is_told_and_nothing_is_written(
    folder: Path, expected: int, arguments: tuple[str, ...], old: str, new: str, message: str
) -> None:
    (folder / "mine.yaml").write_text(LEDGER.replace(old, new))
    status, output, complaint = outcome_of(
        call("calibrate", "--from", "mine.yaml", *arguments, folder=folder)
    )
    assert (status, output, complaint) == (expected, "", f"nkilab: {message}\n")
    assert sorted(p.name for p in folder.iterdir() if p.suffix in (".yaml", ".txt")) == ["mine.yaml"]


FILE = """\
schema: nkilab.machine/1
chip: gen3
source: our lab
constants:
  dma_start_ns: 900
"""


def test_a_file_changes_the_constants_it_names(tmp_path: Path) -> None:
    path = tmp_path / "ours.yml"
    path.write_text(FILE)
    machine = machine_named(str(path))
    assert (machine.name, machine.label, machine.generation) == ("trn2", "trn2 (ours.yml)", 3)
    assert machine["dma_start_ns"] == 900
    assert (machine.dma_start_ns.certainty, machine.dma_start_ns.source) == ("fitted", "our lab")
    same = {name: fact for name, fact in machine.facts().items() if name != "dma_start_ns"}
    assert same == {n: f for n, f in MACHINES["trn2"].facts().items() if n != "dma_start_ns"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("nkilab.machine/1", "mine",
         "ours.yaml:1: the schema is 'mine'; a machine file has 'nkilab.machine/1'"),
        ("source:", "sauce:", "ours.yaml:1: 'sauce' is no key; there are schema, chip, source, constants"),
        ("gen3", "gpu", "ours.yaml:1: chip is 'gpu'; it must be one of trn1, trn2, trn3"),
        ("constants:\n  dma_start_ns: 900", "constants: 7",
         "ours.yaml:1: constants is 7; it must hold names and values"),
        ("dma_start_ns: 900", "dma_begin_ns: 900", "ours.yaml:5: 'dma_begin_ns' is no constant of a chip"),
        ("900", "soon", "ours.yaml:5: dma_start_ns is 'soon'; it must be a number of at least 0"),
        ("900", "-1", "ours.yaml:5: dma_start_ns is -1; it must be a number of at least 0"),
        ("900", ".nan", "ours.yaml:5: dma_start_ns is nan; it must be a number of at least 0"),
        ("dma_start_ns: 900", "dma_engines: 0",
         "ours.yaml:5: dma_engines is 0; it must be a whole number above 0"),
        ("dma_start_ns: 900", "psum_banks: 8.5",
         "ours.yaml:5: psum_banks is 8.5; it must be a whole number above 0"),
        ("900", "true", "ours.yaml:5: dma_start_ns is True; it must be a number of at least 0"),
        ("chip: gen3", "chip: [", "ours.yaml:4: this is no YAML: expected ',' or ']', but got ':'"),
    ],
)  # fmt: skip
def test_a_fault_of_a_file_is_told_with_its_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "ours.yaml"
    assert old in FILE
    path.write_text(FILE.replace(old, new, 1))
    with pytest.raises(NkilabError) as raised:
        machine_named(str(path))
    hint = "\n  hint: `nkilab explain trn2` lists them" if "no constant" in message else HINT
    hint = "\n  hint: did you mean source?" if "sauce" in message else hint
    assert str(raised.value) == message + hint


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(NkilabError) as raised:
        machine_named(str(tmp_path / "none.yaml"))
    assert str(raised.value) == f"{tmp_path / 'none.yaml'} cannot be read: no such file or directory"


def test_a_neff_keeps_the_constants_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "ours.yaml"
    path.write_text(FILE)
    k = Kernel(machine_named(str(path)))
    k.fill(k.tile(128, 64))
    again = unpacked(packed(k.program), "a.neff")
    assert again.machine == k.program.machine
    assert again.machine.label == "trn2 (ours.yaml)"
