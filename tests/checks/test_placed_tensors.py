"""Refusals by chip, version, place and type: each holds where its source says, and nowhere beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nkilab.checks.declare import COPIED, Example
from tests.checks.test_examples import reported

pytestmark = pytest.mark.corpus

X = {"x": "f32[128,512]"}
SQUARE = {"x": "bf16[128,128]"}


def rules(
    path: Path, body: str, args: dict[str, str] = X, options: tuple[str, ...] = (), **facts: str
) -> set[str]:
    """The rules that a kernel breaks."""
    report = reported(Example(body, args, options=options, **facts), path / "kernel_file.py")
    return {f.rule for f in report.findings}


@pytest.mark.parametrize("dtype", ["f32", "bf16", "nl.float16", "i32"])
@pytest.mark.parametrize(
    ("chip", "version"), [("trn1", "0.2"), ("trn1", "0.6"), ("trn1", "0.1"), ("trn2", "0.6")]
)
def test_tiles_of_psum_are_float32_on_trn1_from_0_2_on(tmp_path, dtype, chip, version):
    body = COPIED.body.format(f"tiles: half {dtype}[128,512] psum\nnisa.tensor_copy(half, tile)")
    broken = rules(tmp_path, body, options=("--target", chip, "--nki", version))
    assert ("psum-type" in broken) == (dtype != "f32" and chip == "trn1" and version != "0.1")


@pytest.mark.parametrize("maker", ["ndarray", "zeros"])
def test_who_makes_a_tile_of_psum_makes_no_difference(tmp_path, maker):
    body = COPIED.body.format(f"nisa.tensor_copy(nl.{maker}((128, 512), nl.bfloat16, buffer=nl.psum), tile)")
    assert "psum-type" in rules(tmp_path, body, options=("--target", "trn1"))


@pytest.mark.parametrize("chip", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize("source", ["loaded", "x"])
def test_transfers_of_trn1_transpose_what_lies_in_hbm(tmp_path, chip, source):
    body = (
        "tiles: loaded bf16[128,128] sbuf < x; tile bf16[128,128] sbuf; out bf16[128,128] hbm < tile\n"
        f"nisa.dma_transpose(tile, {source})"
    )
    broken = rules(tmp_path, body, SQUARE, ("--target", chip))
    assert ("transpose-within-sbuf" in broken) == (chip == "trn1" and source == "loaded")


@pytest.mark.parametrize(("chip", "dtype", "is_taken"), [
    ("trn1", "f32", True), ("trn1", "bf16", True), ("trn2", "f32", False), ("trn2", "bf16", True),
])  # fmt: skip
def test_tensore_of_trn1_transposes_into_words(tmp_path, chip, dtype, is_taken):
    body = (
        f"tiles: tile bf16[128,128] sbuf < x; turned {dtype}[128,128] psum; out bf16[128,128] hbm < tile\n"
        "nisa.nc_transpose(turned, tile)\nnisa.tensor_copy(tile, turned)"
    )
    assert ("kernel-error" not in rules(tmp_path, body, SQUARE, ("--target", chip))) == is_taken


@pytest.mark.parametrize("chip", ["trn1", "trn2"])
@pytest.mark.parametrize("columns", [32, 64])
@pytest.mark.parametrize("start", [0, 32, 64, 96])
def test_trn1_has_halves_of_tensore_and_no_quarters(tmp_path, chip, columns, start):
    if start + columns > 128 or start % columns:
        pytest.skip("no place of the tensor engine")
    body = (
        f"tiles: left bf16[128,{columns}] sbuf < x[:, 0:{columns}]; total f32[128,{columns}] psum\n"
        f"tiles: part f32[128,{columns}] sbuf; out f32[128,{columns}] hbm < part\nnisa.memset(part, 0.0)\n"
        f"nisa.nc_matmul(total[{start}:{start + columns}], left[0:32], left[0:32])\n"
        f"nisa.tensor_copy(part[{start}:{start + columns}], total[{start}:{start + columns}])"
    )
    broken = rules(tmp_path, body, SQUARE, ("--target", chip))
    assert "kernel-error" not in broken
    assert ("tensor-quarter" in broken) == (chip == "trn1" and columns == 32 and start in (32, 96))


@pytest.mark.parametrize(("chip", "dtype", "is_told"), [
    ("trn2", "nl.float8_e4m3", True), ("trn2", "nl.float8_e5m2", True), ("trn2", "nl.bfloat16", False),
    ("trn3", "nl.float8_e5m2", False),
])  # fmt: skip
def test_bytes_come_out_of_tensore_of_trn2_as_two(tmp_path, chip, dtype, is_told):
    body = (
        f"tiles: tile {dtype}[128,128] sbuf; turned {dtype}[128,128] psum; out {dtype}[128,128] hbm < tile\n"
        "nisa.memset(tile, 0.0)\nnisa.nc_transpose(turned, tile)\nnisa.tensor_copy(tile, turned)"
    )
    assert ("transpose-bytes" in rules(tmp_path, body, SQUARE, ("--target", chip))) == is_told


@pytest.mark.parametrize("version", ["0.1", "0.6", "0.7"])
@pytest.mark.parametrize(("line", "is_value"), [
    ("by = len(range(4))", True), ("by = list(range(3))[2]", True), ("steps = range(2)\nby = 2", True),
    ("assert 3 in range(4)\nby = 2", True), ("by = 0\nfor i in range(2):\n    by = by + 1", False),
    ("by = 0\nfor i in range(4, 0, -2):\n    by = by + 1", False),
])  # fmt: skip
def test_a_range_is_part_of_a_loop_and_no_value(tmp_path, version, line, is_value):
    body = COPIED.body.format(f"{line}\nnisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=float(by))")
    broken = rules(tmp_path, body, options=("--nki", version))
    assert ("unsupported-python" in broken) == (is_value and version != "0.7")


@pytest.mark.parametrize("version", ["0.1", "0.6", "0.7"])
def test_lists_are_not_sorted(tmp_path, version):
    body = COPIED.body.format("order = [2, 1]\norder.sort()")
    assert ("unsupported-python" in rules(tmp_path, body, options=("--nki", version))) == (version != "0.7")


COLLECTIVE = """
tiles: given f32[128,512] shared_hbm, name="given"; summed f32[128,512] hbm, name="summed"
nisa.dma_copy(given, x)
{}ncc.all_reduce([given], [summed], ncc.ReplicaGroup([[0]]), nl.add)
tiles: out f32[128,512] hbm < summed
"""
NCC = "import nki.collectives as ncc"


@pytest.mark.parametrize(("head", "is_told"), [
    ("", False), ("for i in nl.dynamic_range(2):\n    ", True), ("for i in nl.static_range(2):\n    ", False),
    ("for i in nl.affine_range(2):\n    ", False), ("for i in nl.sequential_range(2):\n    ", False),
    ("for j in nl.static_range(2):\n    for i in nl.dynamic_range(2):\n        ", True),
])  # fmt: skip
def test_collectives_stand_outside_of_loops_on_the_device(tmp_path, head, is_told):
    broken = rules(tmp_path, COLLECTIVE.format(head), options=("--nki", "0.6"), above=NCC)
    assert ("collective-in-device-loop" in broken) == is_told


@pytest.mark.parametrize(("chip", "config", "is_told"), [
    ("trn2", None, True), ("trn2", "2", False), ("trn2", "1", False), ("trn3", None, True),
    ("trn1", None, False),
])  # fmt: skip
def test_a_collective_on_one_of_two_cores_is_told(tmp_path, monkeypatch, chip, config, is_told):
    monkeypatch.delenv("NEURON_LOGICAL_NC_CONFIG", raising=False)
    if config is not None:
        monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", config)
    grid = "2" if config == "2" else ""
    broken = rules(
        tmp_path, COLLECTIVE.format(""), options=("--nki", "0.6", "--target", chip), above=NCC, grid=grid
    )
    assert ("collective-one-core" in broken) == is_told


KEPT = "\nkept = nl.ndarray((128, 512), nl.float32, buffer=nl.private_hbm)\nnisa.dma_copy(kept, tile{})"


@pytest.mark.parametrize(("mode", "loads", "is_told"), [
    (", dge_mode=nisa.dge_mode.none", True, True), (", dge_mode=nisa.dge_mode.none", False, False),
    (", dge_mode=nisa.dge_mode.swdge", True, False), ("", True, False),
])  # fmt: skip
def test_stores_without_dge_that_are_loaded_again_are_told(tmp_path, mode, loads, is_told):
    body = COPIED.body.format(KEPT.format(mode) + ("\nnisa.dma_copy(tile, kept)" if loads else ""))
    assert ("descriptors-unordered" in rules(tmp_path, body)) == is_told


@pytest.mark.parametrize(("parameter", "line", "is_told"), [
    ("y", "nisa.dma_copy(y, tile)", True), ("y: nt.mutable_tensor", "nisa.dma_copy(y, tile)", False),
    ("y", "nisa.dma_copy(tile, y)", False),
])  # fmt: skip
def test_an_argument_that_is_written_is_returned(tmp_path, parameter, line, is_told):
    args = {**X, parameter: "f32[128,512]"}
    broken = rules(tmp_path, COPIED.body.format(line), args, above="import nki.typing as nt")
    assert ("argument-unreturned" in broken) == is_told


@pytest.mark.parametrize(("head", "call", "version", "is_told"), [
    ("t, *, by=2.0", "scaled(tile)", "0.6", True), ("t, *, by=2.0", "scaled(tile, by=1.0)", "0.6", False),
    ("t, by=2.0", "scaled(tile)", "0.6", False), ("t, *, by=2.0", "scaled(tile)", "0.7", False),
])  # fmt: skip
def test_a_keyword_default_is_passed(tmp_path, head, call, version, is_told):
    helper = f"def scaled({head}):\n    nisa.tensor_scalar(t, t, op0=nl.multiply, operand0=by)\n"
    broken = rules(tmp_path, COPIED.body.format(call), options=("--nki", version), above=helper)
    assert ("keyword-default" in broken) == is_told


@pytest.mark.parametrize(
    ("dtype", "is_told"), [("f32", True), ("i32", True), ("bf16", False), ("f16", False)]
)
def test_transfers_of_beta_1_transpose_two_bytes(tmp_path, dtype, is_told):
    body = "tiles: out x.dtype[128,128] hbm\nnl.store(out, nisa.dma_transpose(x))"
    example = Example(body, {"x": f"{dtype}[128,128]"}, "neuronxcc")
    broken = {f.rule for f in reported(example, tmp_path / "kernel_file.py").findings}
    assert ("transpose-float32" in broken) == is_told
