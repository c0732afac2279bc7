"""A launch computed from a tape leaves what the kernel would, and a kernel that may differ runs again."""

from __future__ import annotations

import math
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

import nkilab
from nkilab import tapes
from nkilab.errors import NkilabError, NkilabWarning

with nkilab.activate():
    import neuronxcc.nki as beta1
    import neuronxcc.nki.compiler as ncc
    import neuronxcc.nki.language as bl
    import nki
    import nki.isa as nisa
    import nki.language as nl

HEAD = """
import math
import numpy as np
import nki, nki.isa as nisa, nki.language as nl
SCALE = 2.0
OTHERS = [1.0]
def helper(x):
    return x * 3
def scaled(x, factor):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, x)
    nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=factor)
    nisa.dma_copy(out, tile)
    return out
@nki.jit
def kernel(x{parameters}):
"""


@pytest.fixture(autouse=True)
def no_tapes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # where a debugger looks on nothing is replayed; what measures coverage looks on, too
    monkeypatch.setattr(sys, "gettrace", lambda: None)
    tapes.forget_tapes()
    yield
    tapes.forget_tapes()


def replays(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rows of each launch that is computed from a tape from here on."""
    rows: list[int] = []

    def counted(name: str) -> Callable[..., Any]:
        own = getattr(tapes.Tape, name)
        return lambda tape, data: (own(tape, data), rows.append(tape.size))[0]

    for name in ("play", "again"):
        monkeypatch.setattr(tapes.Tape, name, counted(name))
    return rows


played = pytest.fixture(replays, name="played")


def module(body: str, parameters: str = "") -> Any:
    """A module with a kernel of this body."""
    text_module = types.ModuleType("kernels")
    with nkilab.activate():
        text = HEAD.format(parameters=parameters) + "".join(
            f"    {line}\n" for line in dedent(body).splitlines()
        )
        exec(compile(text, "<kernel of a test>", "exec"), vars(text_module))
    return text_module


def x_of(seed: int, shape: tuple[int, ...] = (4, 6)) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def test_the_second_launch_is_computed_from_a_tape(played: list[int]) -> None:
    kernel = module("return scaled(x, SCALE)").kernel
    results = [kernel(x_of(n)) for n in range(3)]
    assert played == [3, 3]
    for n, result in enumerate(results):
        np.testing.assert_array_equal(result, x_of(n) * 2)


def _set(name: str, value: Any) -> Callable[[Any], None]:
    return lambda text_module: setattr(text_module, name, value)


@pytest.mark.parametrize(
    ("body", "change", "factor"),
    [
        ("return scaled(x, SCALE)", _set("SCALE", 5.0), 5),
        # of another type, though equal to what it was
        ("return scaled(x, SCALE if type(SCALE) is float else 7.0)", _set("SCALE", 2), 7),
        (
            "return scaled(x, helper(1.0))",
            lambda text_module: setattr(text_module.helper, "__code__", (lambda x: x * 4).__code__),
            4,
        ),
        ("return scaled(x, helper(1.0))", _set("helper", lambda x: x * 5), 5),
        ("return scaled(x, float(len('ab')))", _set("len", lambda text: 6), 6),
        ("return scaled(x, deep)", lambda own: setattr(own.kernel.function, "__defaults__", (8.0,)), 8),
        ("return scaled(x, math.pi)", _set("math", types.SimpleNamespace(pi=9.0)), 9),
    ],
)  # fmt: skip
def test_a_change_of_what_the_kernel_reads_is_noticed(body: str, change: Any, factor: float) -> None:
    text_module = module(body, ", deep=1.0")
    for _ in range(3):
        text_module.kernel(x_of(0))
    change(text_module)
    np.testing.assert_array_equal(text_module.kernel(x_of(0)), x_of(0) * np.float32(factor))


@pytest.mark.parametrize(
    "body",
    [
        "return scaled(x, OTHERS[0])",
        "return scaled(x, float(np.random.default_rng().random()))",
        "print('here')\nreturn scaled(x, 2.0)",
        "global SCALE\nSCALE = SCALE + 1\nreturn scaled(x, SCALE)",
        "return scaled(x, float(getattr(np, 'pi')))",
        "return scaled(x, float(np.load('factor.npy')))",
        "own = np\nreturn scaled(x, float(own.load('factor.npy')))",
        "import os\nreturn scaled(x, float(len(os.environ)))",
        "import time\nreturn scaled(x, time.time())",
        "return scaled(x, float(open('factor').read()))",
    ],
)
def test_a_kernel_that_reads_what_cannot_be_compared_runs_each_time(body: str) -> None:
    kernel = module(body).kernel
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.stdout, "write", lambda text: len(text))
        for _ in range(3):
            with suppress(FileNotFoundError):
                kernel(x_of(0))
    assert not tapes._tapes


@pytest.mark.parametrize(
    "body",
    [
        # elements of an argument and of a tile decide
        "return scaled(x, 2.0 if float(np.array(x)[0, 0]) > 0 else 3.0)",
        "y = scaled(x, 1.0)\nreturn scaled(x, 2.0 if float(np.array(y)[0, 0]) > 0 else 3.0)",
        "y = scaled(x, 2.0)\nstr(y)\nreturn y",
    ],
)
def test_a_kernel_that_looks_at_elements_runs_each_time(body: str, played: list[int]) -> None:
    kernel = module(body).kernel
    for x in (x_of(0), x_of(0), -x_of(0), x_of(1)):
        positive = x[0, 0] > 0 or "3.0" not in body
        np.testing.assert_array_equal(kernel(x), x * np.float32(2 if positive else 3))
    assert played == []


def test_a_helper_with_a_memory_and_a_function_as_defaults_is_played(played: list[int]) -> None:
    text_module = module("return applied(x)")
    text = """
        def applied(x, op=nl.exp, memory=nl.sbuf):
            out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
            tile = nl.ndarray(x.shape, x.dtype, buffer=memory)
            nisa.dma_copy(tile, x)
            nisa.activation(tile, op=op, data=tile)
            nisa.dma_copy(out, tile)
            return out
    """
    exec(compile(dedent(text), "<helper of a test>", "exec"), vars(text_module))
    results = [text_module.kernel(x_of(n)) for n in range(3)]
    assert played == [3, 3]
    text_module.applied.__defaults__ = (text_module.nl.tanh, text_module.nl.sbuf)
    np.testing.assert_allclose(results[2], np.exp(x_of(2)), rtol=1e-6)
    np.testing.assert_allclose(text_module.kernel(x_of(2)), np.tanh(x_of(2)), rtol=1e-6)


@pytest.mark.parametrize("other", [x_of(0, (4, 8)), x_of(0).astype(np.float16)])
def test_another_shape_or_type_is_another_launch(other: np.ndarray, played: list[int]) -> None:
    kernel = module("return scaled(x, 2.0)").kernel
    kernel(x_of(0))
    result = kernel(other)
    assert played == []
    assert result.dtype == other.dtype
    np.testing.assert_array_equal(result, other * other.dtype.type(2))


def test_numbers_among_the_arguments_make_launches_differ() -> None:
    kernel = module("return scaled(x, factor)", ", factor").kernel
    for factor in (2.0, 2.0, 3.0, 2, 2, -0.0, 0.0):
        np.testing.assert_array_equal(kernel(x_of(1), factor), x_of(1) * np.float32(factor))
        result = kernel(np.ones((1, 1), np.float32), factor)
        assert math.copysign(1, result[0, 0]) == math.copysign(1, factor)


def test_a_load_of_a_tile_is_none_of_a_file(played: list[int]) -> None:
    @beta1.jit
    def kernel(x):  # type: ignore[no-untyped-def]
        out = bl.ndarray(x.shape, np.float32, buffer=bl.shared_hbm)
        bl.store(out, bl.load(x) * 2.0)
        return out

    for n in range(3):
        np.testing.assert_array_equal(kernel(x_of(n)), x_of(n) * 2)
    assert len(played) == 2


def test_a_result_in_private_memory_is_played(played: list[int]) -> None:
    text = "out = nl.ndarray(x.shape, x.dtype, buffer=nl.private_hbm)\nnisa.dma_copy(out, x)\nreturn out"
    kernel = module(text).kernel
    for n in range(3):
        np.testing.assert_array_equal(kernel(x_of(n)), x_of(n))
    assert played == [1, 1]


def test_results_of_earlier_launches_stay_as_they_are(played: list[int]) -> None:
    kernel = module("return scaled(x, 2.0), x").kernel
    launches = [kernel(x_of(n)) for n in range(4)]
    assert played == [3, 3, 3]
    for n, (result, same) in enumerate(launches):
        np.testing.assert_array_equal(result, x_of(n) * 2)
        np.testing.assert_array_equal(same, x_of(n))


def test_warnings_of_a_launch_are_set_each_time(played: list[int]) -> None:
    kernel = module("out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)\nreturn out").kernel
    for _ in range(3):
        with pytest.warns(NkilabWarning, match="kernel returns .unnamed.: float32.*which was never written"):
            kernel(x_of(0))
    assert played == []


def test_data_that_a_function_is_not_documented_for_are_told_of_by_the_kernel(played: list[int]) -> None:
    kernel = module("""
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile, x)
        nisa.activation(tile, op=nl.sin, data=tile)
        nisa.dma_copy(out, tile)
        return out
    """).kernel
    for _ in range(2):
        kernel(np.zeros((4, 4), np.float32))
    with pytest.warns(
        NkilabWarning, match="activation: an input of sin lies outside its documented range"
    ) as outside:
        kernel(np.full((4, 4), 100, np.float32))
    # the line of the instruction
    assert played == [3]
    assert outside[0].filename == "<kernel of a test>"
    assert outside[0].lineno == HEAD.count("\n") + 5


def test_an_input_that_the_kernel_writes_is_written_each_time(played: list[int]) -> None:
    kernel = module("""
        tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile, x)
        nisa.tensor_scalar(tile, tile, op0=nl.add, operand0=1.0)
        nisa.dma_copy(x, tile)
        return x
    """).kernel
    x = np.zeros((4, 4), np.float32)
    for n in range(3):
        kernel(x)
        assert (x == n + 1).all()
    assert played == []


def test_constants_of_the_host_are_read_each_time(played: list[int], tmp_path: Path) -> None:
    kernel = module(f"""
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile, own = (nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf) for _ in range(2))
        nisa.dma_copy(own, nl.shared_constant("{tmp_path / "constant.npy"}"))
        nisa.dma_copy(tile, x)
        nisa.tensor_tensor(tile, tile, own, op=nl.add)
        nisa.dma_copy(out, tile)
        return out
    """).kernel
    for n in range(3):
        np.save(tmp_path / "constant.npy", x_of(n + 1))
        np.testing.assert_array_equal(kernel(x_of(n)), x_of(n) + x_of(n + 1))
    assert played == []


def test_rows_that_elements_choose_are_played_with_the_errors_of_the_kernel(played: list[int]) -> None:
    kernel = module("""
        rows = nl.ndarray((2, 1), nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(rows, chosen)
        tile = nl.ndarray((2, 6), x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile, x.ap([[6, 2], [1, 6]], vector_offset=rows, indirect_dim=0))
        out = nl.ndarray((2, 6), x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, tile)
        return out
    """, ", chosen").kernel  # fmt: skip
    for first in (0, 2, 1):
        rows = np.array([[first], [3 - first]], np.int32)
        np.testing.assert_array_equal(kernel(x_of(first), rows), x_of(first)[rows[:, 0]])
    assert played == [3, 3]
    # the line of the instruction, and what the kernel says of it
    where = f"<kernel of a test>:{HEAD.count(chr(10)) + 5}: dma_copy: row 1 of "
    with pytest.raises(NkilabError, match=f"{where}.* has the index 4; the axis has 4 elements"):
        kernel(x_of(0), np.array([[0], [4]], np.int32))
    np.testing.assert_array_equal(kernel(x_of(0), rows), x_of(0)[rows[:, 0]])


@pytest.mark.parametrize(("first", "rows"), [("nisa.memset(kept, 3.0)", [4, 4]), ("pass", [])])
def test_what_data_leave_unwritten_is_found_each_time(first: str, rows: list[int], played: list[int]) -> None:
    kernel = module(f"""
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile, kept = (nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf) for _ in range(2))
        nisa.dma_copy(tile, x)
        {first}
        nisa.tensor_copy_predicated(kept, tile, tile.view(nl.uint32))
        nisa.dma_copy(out, kept)
        return out
    """).kernel
    for x in (x_of(0), x_of(1), x_of(2) * np.float32([1, 0, 1, 1, 0, 1]) + 0):
        result, heard = outcome(kernel, x)
        is_told = first == "pass" and not x.all()
        assert any("kept" in text and "written" in text for text in heard) == is_told
        if not is_told:
            assert result == np.where(x != 0, x, np.float32(3)).tobytes()
    assert played == rows


def test_tiles_that_share_bytes_are_computed_each_time(played: list[int]) -> None:
    @beta1.jit
    def kernel(x):  # type: ignore[no-untyped-def]
        out = bl.ndarray((4, 8), x.dtype, buffer=bl.shared_hbm)
        a = bl.ndarray((4, 8), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
        b = bl.ndarray((4, 8), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
        a[...] = bl.load(x)
        bl.store(out, b)
        return out

    for n in range(3):
        np.testing.assert_array_equal(kernel(x_of(n, (4, 8))), x_of(n, (4, 8)))
    assert played == []


def test_a_variable_of_the_vendors_makes_launches_differ(
    played: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = module("return scaled(x, 2.0)").kernel
    kernel(x_of(0))
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "1")
    kernel(x_of(0))
    assert played == []


def test_masks_are_not_forgotten(played: list[int]) -> None:
    @beta1.jit
    def kernel(x):  # type: ignore[no-untyped-def]
        out = bl.ndarray(x.shape, x.dtype, buffer=bl.shared_hbm)
        p, f = bl.mgrid[0:4, 0:6]
        bl.store(out, bl.load(x))
        bl.store(out[p, f], bl.load(x[p, f]) * 2.0, mask=f + p < 4)
        return out

    for n in range(3):
        expected = x_of(n)
        expected[np.add.outer(np.arange(4), np.arange(6)) < 4] *= 2
        np.testing.assert_array_equal(kernel(x_of(n)), expected)
    assert len(played) == 2


@nki.jit
def layered(x: Any, w: Any) -> Any:
    """A product, an exponential and row sums, in tiles that are large and small."""
    out = nl.ndarray((128, 512), x.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)
    for k in nl.affine_range(3):
        left = nl.ndarray((128, 128), x.dtype, buffer=nl.sbuf)
        right = nl.ndarray((128, 512), x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(left, x[k * 128 : (k + 1) * 128, :])
        nisa.dma_copy(right, w[k * 128 : (k + 1) * 128, :])
        nisa.nc_matmul(total, left, right)
    part = nl.ndarray((128, 512), x.dtype, buffer=nl.sbuf)
    # half of a tile is written before all of it is read, which is told to nobody
    nisa.tensor_copy(part[:, 0:256], total[:, 0:256])
    nisa.activation(part, op=nl.exp, data=part, scale=0.01)
    nisa.tensor_copy(part[:, 256:512], total[:, 256:512])
    sums = nl.ndarray((128, 1), nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(sums, op=nl.add, data=part, axis=1)
    nisa.tensor_scalar(part, part, op0=nl.multiply, operand0=sums)
    nisa.dma_copy(out, part)
    return out


def test_a_tape_leaves_the_bits_that_the_kernel_leaves(played: list[int]) -> None:
    arrays = [(x_of(n, (384, 128)), x_of(-n % 7, (384, 512))) for n in range(3)]
    first = []
    for pair in arrays:
        first.append(layered(*pair))
        tapes.forget_tapes()
    again = [layered(*pair) for pair in arrays]
    assert len(played) == 2
    assert [a.tobytes() for a in again] == [f.tobytes() for f in first]


def outcome(kernel: Any, *arrays: Any) -> tuple[bytes, list[str]]:
    """Bits of the result, and what was told to the user."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        return kernel(*arrays).tobytes(), [str(warning.message) for warning in heard]


def test_a_launch_is_calls_on_the_same_arrays_from_the_third_on(played: list[int]) -> None:
    kernel = module("return scaled(scaled(x, 2.0), 3.0)").kernel
    for n in range(4):
        np.testing.assert_array_equal(kernel(x_of(n)), x_of(n) * 6)
    (tape,) = tapes._tapes.values()
    assert len(tape._calls) == 6
    assert played == [6, 6, 6]


def test_an_array_that_changes_after_a_launch_changes_no_other_launch() -> None:
    kernel = module("return scaled(x, 2.0)").kernel
    x = x_of(0)
    results = []
    for n in range(4):
        x[...] = x_of(n)
        results.append(kernel(x))
    x[...] = 0
    for n, result in enumerate(results):
        np.testing.assert_array_equal(result, x_of(n) * 2)


def test_a_tape_keeps_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tapes, "MOST_BYTES", 4 * 6 * 4)
    kernel = module("return scaled(scaled(x, 2.0), 3.0)").kernel
    for n in range(4):
        np.testing.assert_array_equal(kernel(x_of(n)), x_of(n) * 6)
    (tape,) = tapes._tapes.values()
    assert all(storage.data is None for storage in tape._storages.values())


def test_tapes_that_need_more_than_all_may_let_go_of_their_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    own = module("return scaled(x, SCALE)")
    # an input, a tile and a result of 4 x 6, and of 4 x 7
    monkeypatch.setattr(tapes, "MOST_OF_ALL", 4 * 4 * 7 * 3)
    for columns in (6, 7, 6):
        for n in range(4):
            np.testing.assert_array_equal(own.kernel(x_of(n, (4, columns))), x_of(n, (4, columns)) * 2)
    assert sum(tape.kept_bytes for tape in tapes._tapes.values()) <= 4 * 4 * 7 * 3


def test_tapes_hold_a_bounded_number_of_rows(monkeypatch: pytest.MonkeyPatch, played: list[int]) -> None:
    monkeypatch.setattr(tapes, "MOST_ROWS", 5)
    kernel = module("return scaled(x, 2.0)").kernel
    for columns in (6, 7, 8):
        for _ in range(2):
            kernel(x_of(0, (4, columns)))
    assert sum(tape.size for tape in tapes._tapes.values()) <= 6
    kernel(x_of(0, (4, 6)))
    assert played == [3, 3, 3]


def test_a_launch_within_the_launch_that_plays_runs_as_ever() -> None:
    kernel = module("return scaled(x, 2.0)").kernel
    kernel(x_of(0))
    (tape,) = tapes._tapes.values()
    with tape.lock:
        np.testing.assert_array_equal(kernel(x_of(1)), x_of(1) * 2)


def test_somebody_who_looks_on_sees_the_kernel_run(
    monkeypatch: pytest.MonkeyPatch, played: list[int]
) -> None:
    kernel = module("return scaled(x, 2.0)").kernel
    kernel(x_of(0))
    monkeypatch.setenv("NKILAB_SYNC", "1")
    kernel(x_of(0))
    monkeypatch.delenv("NKILAB_SYNC")
    sys.setprofile(lambda *event: None)
    try:
        kernel(x_of(0))
    finally:
        sys.setprofile(None)
    assert played == []
