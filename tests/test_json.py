"""Every verb prints JSON alone where that is asked for, and it keeps to a published schema."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from nkilab.cli import VERBS
from nkilab.neuron_profile import command as neuron_profile
from tests.command_line import inside, script
from tests.edits.kernels import CASES as EDITED
from tests.ledger.test_regret import LEDGER as GRID
from tests.tune.kernels import written

FOLDER = Path(__file__).parents[1] / "docs" / "schemas"
KERNELS = """\
import nki
import nki.isa as nisa
import nki.language as nl

print("the user's module prints")

@nki.jit
def double(x, factor=2.0):
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out

@nki.jit
def holes(x):
    tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(tile[0:64], x[0:64])
    nisa.dma_copy(out, tile)
    return out

@nki.jit
def slow(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in range(64):
        tile = nl.ndarray((128, 64), x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile, x[:, i * 64 : i * 64 + 64])
        nisa.dma_copy(out[:, i * 64 : i * 64 + 64], tile)
    return out
"""
HOST = """\
import sys
import numpy as np
from kernels import double
for rows in (64, 128, 64):
    double(np.ones((rows, 64), np.float32))
sys.exit(3)
"""
BETA = """\
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

@nki.jit
def scaled(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * 2)
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
NEFF = "files/row_softmax.neff"
ARG = ("--arg", "f32[128,4096]")
# Per case the arguments, where --json follows, and the exit status.
CASES = {
    "demo": (("demo", "--output", "files"), 0),
    "estimate": (("estimate", "kernels.py:double", *ARG, "--kw", "factor=3"), 0),
    "estimate, three chips": (("estimate", "kernels.py:double", *ARG, "--target", "trn1,trn2,trn3"), 0),
    "check": (("check", "kernels.py:double", *ARG, "--replay", "1", "--numerics"), 0),
    "check, errors": (("check", "kernels.py:holes", "--arg", "f32[128,512]"), 1),
    "check, advice": (("check", "kernels.py:slow", *ARG), 0),
    "check --what-if": (("check", "kernels.py:slow", *ARG, "--what-if", "WHAT"), 0),
    "advise": (("advise", "kernels.py:slow", *ARG), 0),
    "advise --apply": (("advise", "advised.py:kernel", "--arg", "f32[128,2048]", "--apply", "1"), 0),
    "check --list": (("check", "--list"), 0),
    "profile": (("profile", "kernels.py:double", *ARG), 0),
    "profile --what-if": (("profile", "kernels.py:double", *ARG, "--what-if", "dma_bandwidth=2x"), 0),
    "diff": (("diff", "kernels.py:double", "kernels.py:slow", *ARG), 0),
    "compare": (("compare", "kernels.py:double", "card.txt", *ARG), 0),
    "diff, a profile": (("diff", "kernels.py:double", "card.txt", *ARG), 0),
    "einsum": (("einsum", "mk,kn->mn", "--size", "M=8", "--size", "K=8", "--size", "N=8"), 0),
    "einsum --test": (("einsum", "a->a", "--size", "A=64", "--test"), 0),
    "tune": (("tune", "copied.py:copied", "--space", "space.yaml", "--arg", "f32[128,2048]"), 0),
    "validate": (("validate", "mine.yaml"), 0),
    "validate, a bar missed": (("validate", "wrong.yaml"), 1),
    "validate --regret": (("validate", "--regret", "grid.yaml"), 0),
    "calibrate": (("calibrate", "--from", "mine.yaml", "-o", "ours.yaml"), 0),
    "neuron-profile capture": (("neuron-profile", "capture", "-n", NEFF, "-s", "x.ntff"), 0),
    "neuron-profile view": (("neuron-profile", "view", "-n", NEFF), 0),
    "neuron-profile summary": (("neuron-profile", "summary", "-n", NEFF), 0),
    "explain": (("explain", "nc_matmul"), 0),
    "explain, several pages": (("explain", "exp"), 0),
    "explain, a chip": (("explain", "trn2"), 0),
    "migrate": (("migrate", "beta.py"), 1),
    "ops": (("ops", "nki.isa.nc_matmul"), 0),
    "ops, all names": (("ops",), 0),
    "init": (("init", "project"), 0),
    "stubs": (("stubs", "typings", "--nki", "0.3"), 0),
    "doctor": (("doctor",), 0),
    "completion": (("completion", "fish"), 0),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What the cases read, NEFFs of the demo among it."""
    folder = tmp_path_factory.mktemp("json")
    written(folder)
    (folder / "kernels.py").rename(folder / "copied.py")
    texts = {
        "kernels.py": KERNELS, "host.py": HOST, "beta.py": BETA, "mine.yaml": LEDGER,
        "wrong.yaml": LEDGER.replace("25", "2500").replace("split: fit", "split: judge"),
        "grid.yaml": GRID.replace("kernels.py", "copied.py"), "card.txt": "total_time 3.1e-5\n",
        "advised.py": EDITED["fuse_alu, nki"].text,
    }  # fmt: skip
    for name, text in texts.items():
        script(folder, text, name)
    np.save(folder / "x.npy", np.ones((4, 4), np.float32))
    assert inside("demo", "--output", "files", folder=folder) == 0
    return folder


def check(value):
    """Validate a value by the schema that it names; its name."""
    jsonschema = pytest.importorskip("jsonschema")
    name = value["schema"].replace("/", "-")
    schema = json.loads((FOLDER / f"{name}.json").read_text())
    assert schema["$id"] == value["schema"]
    jsonschema.Draft202012Validator(schema).validate(value)
    return value["schema"]


@pytest.mark.parametrize("case", CASES)
def test_standard_output_holds_json_alone_by_a_published_schema(folder, capfd, case):
    arguments, status = CASES[case]
    if "WHAT" in arguments:
        assert inside(*arguments, folder=folder) == 2
        name = capfd.readouterr().err.split("its advice is ")[1].split(",")[0].strip()
        arguments = [name if word == "WHAT" else word for word in arguments]
    assert inside(*arguments, "--json", folder=folder) == status, capfd.readouterr().err
    printed = capfd.readouterr().out
    document = json.loads(printed)
    for value in document if isinstance(document, list) else [document]:
        check(value)


def test_run_writes_what_was_launched(folder, capfd):
    assert inside("run", "--check", "--json", "run.json", "host.py", folder=folder) == 3
    assert capfd.readouterr().out == "the user's module prints\n"
    document = json.loads((folder / "run.json").read_text())
    check(document)
    assert (document["script"], document["arguments"], document["status"]) == ("host.py", [], 3)
    # by hand: three launches, the third as the first; each transfer is rows * 64 * 4 bytes, in and out
    moved = [one["summary"]["metrics"]["dma_transfer_total_bytes"] for one in document["launches"]]
    assert moved == [2 * 64 * 64 * 4, 2 * 128 * 64 * 4, 2 * 64 * 64 * 4]
    assert [one["kernel"] for one in document["checks"]] == ["double"] * 3


def test_every_verb_has_json_and_a_case():
    """`run` writes it to a file, since standard output is the script's; `watch` where it is ended."""
    names = {arguments[0] for arguments, _ in CASES.values()}
    assert names | {"run", "watch"} == {verb.name for verb in VERBS}
    for verb in [v for v in VERBS if v.name != "neuron-profile"] + list(neuron_profile.commands.values()):
        assert "--json" in {word for parameter in verb.params for word in parameter.opts}, verb.name
