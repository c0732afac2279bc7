"""What the compiler leaves out: loads of what SBUF still holds; against counts by hand and published ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nkilab
from nkilab import api
from nkilab.isa.operators import OPERATORS
from nkilab.launches import launch
from nkilab.place import plan
from nkilab.place.compiler_passes import MIDDLE_END, compiled
from nkilab.place.redundant import Ring, without_redundant_loads
from nkilab.trace.program import Program
from tests.place.handmade import Kernel, part


def traced(kernel: Any, *shapes: tuple[tuple[int, ...], str], data: tuple[Any, ...] = ()) -> Program:
    specs = tuple(nkilab.spec(shape, dtype) for shape, dtype in shapes)
    nki_kernel = api.as_kernel(kernel)
    return launch(nki_kernel, (*specs, *data), {}, api.machine_for(nki_kernel), has_data=False).program


def loads_twice(spelling: str, **options: Any) -> Any:
    """A kernel that loads its input, something else of some size, and its input again."""
    if spelling == "nki":
        import nki  # type: ignore[import-not-found]
        import nki.isa as nisa  # type: ignore[import-not-found]
        import nki.language as nl  # type: ignore[import-not-found]

        @nki.jit
        def kernel(x, between):
            out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            sums = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
            for again in range(2):
                tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=tile, src=x)
                other = nl.ndarray(between.shape, dtype=x.dtype, buffer=nl.sbuf)
                if not again:
                    nisa.dma_copy(dst=other, src=between)
                if options.get("writes") and not again:
                    nisa.memset(tile[0:128, 0:1], 1)
                nisa.tensor_tensor(dst=sums, data1=tile, data2=tile, op=nl.add)
            nisa.dma_copy(dst=out, src=sums)
            return out

        return kernel
    import neuronxcc.nki as beta1  # type: ignore[import-not-found]
    import neuronxcc.nki.compiler as ncc  # type: ignore[import-not-found]
    import neuronxcc.nki.language as nl  # type: ignore[import-not-found]

    def text(x, between):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        first = nl.load(x)
        other = nl.load(between)
        nl.store(out, first + nl.load(x) + nl.sum(other, axis=1))
        return out

    return ncc.skip_middle_end_transformations(beta1.jit(text)) if options.get("skips") else beta1.jit(text)


def loads_of(program: Program) -> int:
    return program.opcodes()["dma_copy"] - 1


@pytest.mark.parametrize(
    ("columns", "expected"),
    # the window holds 47 KiB: a tile of 512 bytes and 46.5 KiB after it fit, 4 bytes more do not
    [(256, 2), (93 * 128, 2), (93 * 128 + 1, 3)],
)
def test_a_load_is_left_out_while_a_window_of_47_kib_holds_what_it_loads(columns: int, expected: int) -> None:
    with nkilab.activate():
        program = traced(loads_twice("nki"), ((128, 128), "float32"), ((128, columns), "float32"))
    assert loads_of(program) == 3
    shorter = compiled(program)
    assert loads_of(shorter) == expected
    assert len(shorter.notes) == (expected < 3)


def test_a_tile_that_something_else_writes_is_loaded_again() -> None:
    with nkilab.activate():
        program = traced(loads_twice("nki", writes=True), ((128, 128), "float32"), ((128, 128), "float32"))
    assert loads_of(compiled(program)) == 3


def test_who_read_the_second_tile_reads_the_first() -> None:
    with nkilab.activate():
        program = traced(loads_twice("nki"), ((128, 128), "float32"), ((128, 128), "float32"))
    shorter = compiled(program)
    adds = [r for r in range(len(shorter)) if shorter.form_of(r).name == "tensor_tensor"]
    tiles = [[a.storage for a in shorter.accesses(r)][1] for r in adds]
    assert tiles[0] == tiles[1]
    # the first tile and the sums; nothing reads what is loaded between
    assert plan(shorter).peak_sbuf_bytes == 2 * 512
    assert [shorter.place_of(r) for r in adds] == [program.place_of(r) for r in adds_of(program)]


def adds_of(program: Program) -> list[int]:
    return [r for r in range(len(program)) if program.form_of(r).name == "tensor_tensor"]


@pytest.mark.parametrize(("skips", "expected"), [(False, 2), (True, 3)])
def test_the_middle_end_of_beta_1_leaves_out_and_can_be_skipped(skips: bool, expected: int) -> None:
    with nkilab.activate():
        kernel = loads_twice("neuronxcc", skips=skips)
        program = traced(kernel, ((128, 128), "float32"), ((128, 40 * 1024), "float32"))
    assert loads_of(compiled(program)) == expected


def tiled() -> Any:
    import nki
    import nki.isa as nisa
    import nki.language as nl

    @nki.jit
    def kernel(lhsT, rhs):
        (K, M), N = lhsT.shape, rhs.shape[1]
        out = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.shared_hbm)
        for m in range(0, M, 128):
            for n in range(0, N, 512):
                product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
                for k in range(0, K, 128):
                    left = nl.ndarray((128, 128), dtype=lhsT.dtype, buffer=nl.sbuf)
                    right = nl.ndarray((128, 512), dtype=rhs.dtype, buffer=nl.sbuf)
                    nisa.dma_copy(dst=left, src=lhsT[k : k + 128, m : m + 128])
                    nisa.dma_copy(dst=right, src=rhs[k : k + 128, n : n + 512])
                    nisa.nc_matmul(dst=product, stationary=left, moving=right)
                result = nl.ndarray((128, 512), dtype=lhsT.dtype, buffer=nl.sbuf)
                nisa.tensor_copy(dst=result, src=product)
                nisa.dma_copy(dst=out[m : m + 128, n : n + 512], src=result)
        return out

    return kernel


def test_a_tiled_product_moves_as_many_transfers_as_a_published_profile_counts() -> None:
    # NKI 0.6 on trn2, 2048^3 in float32: 1,600 transfers, 318,767,104 bytes, for 2,112 in the source
    with nkilab.activate():
        predicted = api.estimate(tiled(), *[nkilab.spec((2048, 2048), "float32")] * 2)
    assert predicted.program.opcodes()["dma_copy"] == 1600
    assert predicted.summary.values["dma_transfer_total_bytes"] == 318_767_104
    assert any("512 loads are left out" in note for note in predicted.notes)


def test_a_program_compiled_twice_is_the_same() -> None:
    with nkilab.activate():
        once = compiled(traced(tiled(), *[((512, 1024), "bfloat16")] * 2))
    assert compiled(once) is once


def test_a_window_of_nothing_changes_nothing() -> None:
    with nkilab.activate():
        program = traced(tiled(), *[((256, 512), "bfloat16")] * 2)
    program.machine = program.machine.with_constants({"redundant_load_window_bytes": 0}, "a test")
    assert without_redundant_loads(program, Ring) is program


# columns loaded between the two loads of a tile, and by how many beside them the sum in SBUF lives
@pytest.mark.parametrize(("columns", "expected"), [(128, 2), (45056 - 256, 2), (45056 - 128, 3)])
def test_beta_1_keeps_a_tile_where_sbuf_has_room_for_it(columns: int, expected: int) -> None:
    # trn1: 176 KiB a partition, 45056 columns of float32. When the tile is loaded again there lie beside it
    # the 128 columns of the sum and what was loaded between
    k = Kernel("trn1")
    x, y, out = k.hbm(128, 128), k.hbm(128, columns), k.hbm(128, 128)
    first, between, second = k.tile(128, 128), k.tile(128, columns), k.tile(128, 128)
    total = k.tile(128, 128)
    k.load(first, x)
    k.copy(total, first)
    k.load(between, y)
    k.copy(part(between, (0, 128), (0, 64)), part(between, (0, 128), (64, 128)))
    k.load(second, x)
    k.call("tensor_tensor", total, total, second, op=OPERATORS["add"])
    k.store(out, total)
    k.program.compiler = MIDDLE_END
    assert loads_of(compiled(k.program)) == expected


def test_values_do_not_change() -> None:
    x = np.random.default_rng(0).standard_normal((128, 128), dtype=np.float32)
    with nkilab.activate():
        out = nkilab.simulate(loads_twice("nki"))(x, x)
    np.testing.assert_array_equal(out, x + x)
