"""Advice as a change of the text: it runs, results stay, comments stay, and the time falls as advised."""

from __future__ import annotations

import io
import tokenize
from collections import Counter
from pathlib import Path

import pytest

import nkilab
from nkilab import advising
from nkilab.arguments import call_arguments
from nkilab.edits import REWRITES, Place, Refusal
from nkilab.errors import UsageError
from nkilab.migrate.source import parse

from .cases import Case
from .kernels import CASES, SEVERAL_WAYS

pytestmark = pytest.mark.corpus

# the changes whose results round otherwise, and by how much of the largest; all others leave every bit
ROUNDS = {
    # bfloat16 keeps 8 bits: each operand is off by 2 ** -9 of itself at most
    "lower_precision": 2 * 2**-9,
    # several sums of 4 * 128 float32 products become one product, which a BLAS may add up in another order
    "psum_in_flight": 512 * 2**-24,
}


def applied(folder: Path, case: Case) -> advising.Applied:
    path = folder / "kernel.py"
    path.write_text(case.text)
    call = (*call_arguments(case.args, ()), ())
    with nkilab.activate(), advising.fresh_modules({}):
        before = advising.ran(f"{path}:kernel", call, "trn2")
        ids = [own.id for own in before.advice]
        number = ids.index(case.id) + 1
        return advising.applied_to(f"{path}:kernel", call, "trn2", number, before)


def comments(text: str) -> Counter[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return Counter(token.string for token in tokens if token.type == tokenize.COMMENT)


@pytest.mark.parametrize("name", CASES)
def test_a_change_keeps_results_and_comments_and_gains_what_was_said(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    outcome = applied(tmp_path, case)
    assert case.says in [line.strip() for line in outcome.text.splitlines()]
    assert comments(outcome.text) == comments(case.text)
    assert outcome.difference <= ROUNDS.get(case.id, 0)
    low, high = outcome.advice.interval_us
    gain = outcome.before.latency_us - outcome.after.latency_us
    assert low < gain
    assert gain < high or case.id in SEVERAL_WAYS
    assert (tmp_path / "kernel.py").read_text() == case.text


@pytest.mark.parametrize("spelling", ["nki", "neuronxcc"])
def test_both_spellings_have_many_changes(spelling: str) -> None:
    assert len({case.id for name, case in CASES.items() if name.endswith(spelling)}) >= 8


def refused(name: str, line: str, number: str = "") -> str:
    """Why a change of a line of a kernel cannot be made, without a run."""
    case = CASES[name]
    text = case.text
    place = next(n for n, own in enumerate(text.splitlines(), 1) if own.strip().startswith(line))
    with nkilab.activate(), pytest.raises(Refusal) as caught:
        list(REWRITES[number or case.id](Place(parse("kernel.py", text.encode()), place), "all on ScalarE"))
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "line", "id", "why"),
    [
        ("fuse_alu, nki", "nisa.dma_copy(out", "hoist_loads",
         "the statement needs something that each iteration of its loop makes anew"),
        ("hoist_compute, nki", "nisa.tensor_tensor", "hoist_compute",
         "the statement needs something that each iteration of its loop makes anew"),
        ("fuse_alu, nki", "nisa.tensor_scalar(half", "fuse_activation", "line 17 is no activation"),
        ("fuse_reduction, nki", "nisa.activation(result", "fuse_alu",
         "2 statements read result; one would have to be the only reader"),
        ("fuse_reduction, nki", "nisa.tensor_reduce(largest", "fuse_reduction",
         "line 19 is no activation that could sum what it writes"),
        ("dead_work, nki", "for _", "dead_work", "the line is no single instruction"),
        ("fuse_alu, nki", "for _", "widen_moving",
         "no constant says the size of a tile; give it a name, as in TILE = 128"),
        ("fuse_alu, neuronxcc", "half =", "shift_engine",
         "the line calls no instruction of nki.isa, which alone takes engine="),
        ("hoist_loads of an inner loop, nki", "nisa.dma_copy(b", "interchange_loops",
         "statements stand between the two loops, or the inner one needs the outer one's index"),
        ("fuse_alu, nki", "nisa.dma_copy(out", "buffers",
         "no single statement before the loop makes the tile out"),
        ("fuse_alu, nki", "nisa.dma_copy(out", "cast_once", "the line is no copy of one tile into another"),
        ("fuse_alu, nki", "nisa.dma_copy(out", "lower_precision",
         "no statement of this function says the type of the product's operands"),
    ],
)  # fmt: skip
def test_a_change_that_the_text_does_not_show_is_refused(name: str, line: str, id: str, why: str) -> None:
    assert refused(name, line, id) == why


_DEPENDS = """
import nki
import nki.isa as nisa
import nki.language as nl

WIDTH = 256


@nki.jit
def kernel(x):
    # each element times the width of a tile
    out = nl.ndarray((128, 16384), nl.float32, buffer=nl.shared_hbm)
    for i in range(16384 // WIDTH):
        columns = nl.ds(i * WIDTH, WIDTH)
        tile = nl.ndarray((128, WIDTH), nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(tile, x[:, columns])
        nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=1.0 * WIDTH)
        nisa.dma_copy(out[:, columns], tile)
    return out
"""


def test_a_change_of_the_results_is_refused(tmp_path: Path) -> None:
    case = Case("bigger_transfers", _DEPENDS, ("f32[128,16384]",), "")
    with pytest.raises(UsageError) as caught:
        applied(tmp_path, case)
    # each element is twice as large, which the largest is off by as much as it is
    assert str(caught.value).endswith(
        " is not mechanical: bigger_transfers: the results of the changed kernel differ by 1.0e+00 of the "
        "largest\n  hint: move several iterations' pieces in one transfer, into one wider tile"
    )


SEVERAL_BUFFERS = """\
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(a, b):
    out = nl.ndarray(a.shape, nl.float32, buffer=nl.shared_hbm)
    left = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)  # of a
    right = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    for i in range(8):
        nisa.dma_copy(left, a[nl.ds(i * 128, 128), :])
        nisa.dma_copy(right, b[nl.ds(i * 128, 128), :])
        nisa.tensor_tensor(left, left, right, op=nl.add)
        nisa.dma_copy(out[nl.ds(i * 128, 128), :], left)
    return out
"""


def test_all_tiles_that_a_loop_loads_get_buffers_and_a_result_in_hbm_stays() -> None:
    with nkilab.activate():
        place = Place(parse("kernel.py", SEVERAL_BUFFERS.encode()), 11)
        first, *_ = REWRITES["buffers"](place, "a buffer for each load")
    loop = first.index("    for i")
    assert first.index("out = ") < loop < first.index("left = ") < first.index("right = ")
    assert "buffer=nl.sbuf)  # of a\n" in first
