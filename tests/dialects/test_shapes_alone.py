"""Where only shapes are known, calls go a shorter way; what they leave is what a run with data leaves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.dialects.spellings import nisa2 as nisa
from tests.dialects.spellings import nki2 as nki
from tests.dialects.spellings import nl2 as nl

from nkilab import activate, api, spec
from nkilab.errors import KernelError
from nkilab.launches import launch
from nkilab.trace.program import Program

SHAPES = (256, 256), (256, 1024)
POINTS = ((1, 1, 1), (2, 1, 2), (1, 2, 2), (2, 2, 1))


def everything(program: Program) -> tuple[object, ...]:
    """All that a program holds, in a form that compares."""
    columns = ("form", "line", "position", "value", "storage", "offset")
    return (
        [getattr(program, f"{name}_column").tolist() for name in columns],
        [(type(f), f.layouts, f.attribute_values) for f in program.forms],
        program.lines, program.positions, program.unrolled, program.values, program.storages,
        program.marks.births, program.marks.loops,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["blocked", "blocked_tiles"])
@pytest.mark.parametrize("point", POINTS)
def test_a_blocked_product_leaves_the_same_program_with_data_and_without(name, point):
    with activate():
        from nkilab.ledger.kernels import matmul

        kernel, machine = api.as_kernel(getattr(matmul, name)), api.machine_for(None)
        sizes = dict(zip(("tiles_m", "tiles_n", "tiles_k"), point, strict=True))
        arrays = tuple(np.ones(shape, np.float32) for shape in SHAPES)
        shapes = tuple(spec(shape, "float32") for shape in SHAPES)
        # without data twice: the second time everything that is remembered was seen before
        computed, *traced = (
            launch(kernel, inputs, dict(sizes), machine, has_data=inputs is arrays).program
            for inputs in (arrays, shapes, shapes)
        )
    for program in traced:
        assert everything(program) == everything(computed)


@nki.jit
def refilled(x, columns):
    """Sums of products that overwrite and add, of the whole tile and of parts, between other writes."""
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    left = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf)
    right = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=left, src=x[:, 0:128])
    nisa.dma_copy(dst=right, src=x)
    total = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=total, stationary=left, moving=right)
    nisa.nc_matmul(dst=total, stationary=left, moving=right)
    nisa.memset(dst=total[:, 0:columns], value=0.0)
    nisa.nc_matmul(dst=total, stationary=left, moving=right)
    nisa.nc_matmul(dst=total, stationary=left, moving=right, accumulate=False)
    result = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=result, src=total)
    nisa.dma_copy(dst=out, src=result)
    return out


@pytest.mark.parametrize("columns", [128, 512])
def test_products_add_to_the_same_elements_with_data_and_without(columns):
    array = np.ones((128, 512), np.float32)
    computed, traced = (
        launch(api.as_kernel(refilled), (x, columns), {}, api.machine_for(None), has_data=x is array).program
        for x in (array, spec((128, 512), "float32"))
    )
    assert everything(traced) == everything(computed)
    added = [v for row in range(len(traced)) if traced.form_of(row).name == "nc_matmul"
             for v in traced.values_of(row)]  # fmt: skip
    # after the memset of a part, its columns are overwritten and the others are added to
    assert added == ([False, True, False, True, False] if columns == 128 else [False, True, False, False])


BOUND = st.none() | st.integers(-2, 9)


@given(
    st.tuples(BOUND, BOUND, BOUND, BOUND, st.none() | st.integers(-1, 4)), st.sampled_from(["sbuf", "hbm"])
)
def test_a_usual_subscript_means_what_its_unusual_spelling_means(bounds, memory):
    # `nl.ds` and negative numbers go the long way
    a, b, c, d, place = bounds
    seen: list[object] = []

    @nki.jit
    def looks(x):
        shape = (8, 8) if place is None else (8, 4, 8)
        tile = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf if memory == "sbuf" else nl.hbm)
        middle = () if place is None else (place,)
        keys = (slice(a, b), *middle, slice(c, d)), (slice(a, b, 1), *middle, slice(c, d, 1))
        for key in keys:
            try:
                view = tile[key]
            except KernelError as error:
                seen.append(str(error).replace(":1", ""))
            else:
                seen.append((view.layout, view.offset))
        return x

    launch(api.as_kernel(looks), (spec((8, 8), "float32"),), {}, api.machine_for(None), has_data=False)
    assert seen[0] == seen[1]
