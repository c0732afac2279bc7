"""Every public name of nki.language lowers to declared instructions: nothing else touches tile data."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.sources import SOURCES, name_of, nodes

from nkilab.dialects.kernel import Kernel
from nkilab.dialects.serve import tables
from nkilab.dialects.value_returning.reductions_over_loops import LoopReduction
from nkilab.dialects.value_returning.tensor import Tensor, settled
from nkilab.machine import machine_named
from nkilab.tiles.tile import array_of
from nkilab.trace.program import Program
from nkilab.trace.session import Session, tracing

NL = tables("neuronxcc", "")["neuronxcc.nki.language"]
SENTINEL = 7

# Names that make no tile: types, buffers, shapes, loops, indices, coordinates.
NO_TILE = {
    "bool_", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float16", "float32", "bfloat16",
    "tfloat32", "float8_e4m3", "float8_e5m2", "fp32", "bfp16", "finfo", "static_cast",
    "sbuf", "psum", "hbm", "private_hbm", "shared_hbm", "par_dim", "arange", "mgrid", "gemm_grid",
    "gemm_stationary_grid", "ds", "tile_size",
    "affine_range", "sequential_range", "static_range",
    "program_id", "num_programs", "program_ndim", "nc", "spmd_dim",
}  # fmt: skip
# Names that make a tile without data, or a view of one that exists.
NO_ROW = {"ndarray", "empty_like", "expand_dims", "shared_constant", "shared_identity_matrix"}

Call = Callable[[Callable[..., Any], Tensor, Tensor], Any]
SPECIAL: dict[str, Call] = {
    "zeros": lambda f, t, h: f((4, 4), np.float32),
    "ones": lambda f, t, h: f((4, 4), np.float32),
    "full": lambda f, t, h: f((4, 4), 3, np.float32),
    "load": lambda f, t, h: f(h),
    "load_transpose2d": lambda f, t, h: f(h),
    "store": lambda f, t, h: f(h, t),
    "broadcast_to": lambda f, t, h: f(t[0:1], shape=(4, 4)),
    "loop_reduce": lambda f, t, h: f(t, np.add, list(NL["affine_range"](1))),
    "device_print": lambda f, t, h: None,
    "where": lambda f, t, h: f(t, t, t),
    "atomic_rmw": lambda f, t, h: f(h[NL["zeros"]((4, 1), np.int32)], t, np.add),
    "all_reduce": lambda f, t, h: f(t, np.add, 0),
    "softmax": lambda f, t, h: f(t, 1),
    "rms_norm": lambda f, t, h: f(t, t, 1, 4),
    "dropout": lambda f, t, h: f(t, 0.5),
    "rand": lambda f, t, h: f((4, 4)),
    "random_seed": lambda f, t, h: f(1),
    "gather_flattened": lambda f, t, h: f(t, NL["zeros"]((4, 4), np.uint32)),
    "matmul": lambda f, t, h: f(t, t),
    **{n: lambda f, t, h: f(t, axis=1) for n in ("sum", "prod", "max", "min", "mean", "var", "all")},
}
BITWISE = {"bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift", "invert"}
TWO_TILES = {
    "add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "mod", "fmod",
    "equal", "not_equal", "greater", "greater_equal", "less", "less_equal",
    "logical_and", "logical_or", "logical_xor", *BITWISE,
} - {"invert"}  # fmt: skip


def fill_with_sentinel(session: Session, form: Any, operands: Any, values: Any, mask: Any) -> None:
    """An executor that knows no instruction: whatever is written holds the sentinel."""
    for slot in form.written_slots:
        view = operands[slot]
        if view.storage.data is None:
            view.storage.allocate()
        array_of(view)[...] = SENTINEL
        view.storage.written.add(view)


def result_under_sentinel(name: str) -> tuple[Any, Tensor, Program]:
    """What a function of nl gives where instructions write the sentinel, the HBM tensor, and the rows."""
    program = Program(machine_named("trn2"))
    session = Session(program.machine, program, fill_with_sentinel)
    dtype = np.int32 if name in BITWISE else np.float32
    with tracing(session):
        tile = NL["ndarray"]((4, 4), dtype)
        other = NL["ndarray"]((4, 4), dtype, buffer=NL["shared_hbm"])
        other.storage.allocate(np.ones((4, 4), dtype))
        tile.storage.allocate(np.ones((4, 4), dtype))
        if name in SPECIAL:
            tensor = SPECIAL[name](NL[name], tile, other)
        elif name in TWO_TILES:
            tensor = NL[name](tile, tile)
        else:
            tensor = NL[name](tile)
        if isinstance(tensor, LoopReduction):
            tensor = tensor.tensor()
        if isinstance(tensor, Tensor):
            settled(tensor)
        session.flush()
    return tensor, other, program


# Names that return no tile, or write only the rows that indices choose.
NO_RESULT = {"device_print", "random_seed", "atomic_rmw"}


@pytest.mark.parametrize("name", sorted(set(NL) - NO_TILE - NO_ROW - NO_RESULT))
def test_a_name_of_language_writes_only_what_instructions_write(name: str) -> None:
    result, other, program = result_under_sentinel(name)
    assert len(program) > 0
    written = other if name == "store" else result
    array = array_of(written)
    assert (array == np.array(SENTINEL).astype(array.dtype)).all()


@pytest.mark.parametrize("name", sorted(NO_ROW))
def test_a_name_that_makes_a_view_records_nothing(name: str) -> None:
    program = Program(machine_named("trn2"))
    with tracing(Session(program.machine, program, fill_with_sentinel)):
        tile = NL["ndarray"]((4, 4), np.float32)
        calls = {"ndarray": lambda f: f((4, 4), np.float32), "empty_like": lambda f: f(tile),
                 "expand_dims": lambda f: f(tile, 2), "shared_identity_matrix": lambda f: f(4),
                 "shared_constant": lambda f: f(np.ones((2, 2), np.float32))}  # fmt: skip
        view = calls[name](NL[name])
    assert isinstance(view, Tensor)
    assert len(program) == 0


def test_every_name_is_walked() -> None:
    unary = set(NL) - NO_TILE - NO_ROW - set(SPECIAL) - TWO_TILES
    assert all(callable(NL[n]) and not isinstance(NL[n], Kernel) for n in unary)
    assert set(NL) >= NO_TILE | NO_ROW


def test_only_execution_results_and_debugging_reach_the_elements_of_tiles() -> None:
    reaching = set()
    for path in SOURCES:
        for node in nodes(path):
            if isinstance(node, ast.Name) and node.id in ("array_of", "memory_of"):
                reaching.add(name_of(path))
    assert reaching == {
        "tiles/tile.py",
        "tiles/indirect.py",
        "isa/accumulators.py",
        "execute/step.py",
        # which elements of the others a predicate leaves out
        "execute/unwritten.py",
        # compares what two computations of a recording hold
        "checks/numerics.py",
        # compares what two cores store to one place
        "checks/watch.py",
        "border.py",
        "dialects/value_returning/tensor.py",
        "dialects/dst_first/tensor.py",
    }
