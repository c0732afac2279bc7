"""What is reported as right in a simulator and wrong, or refused, on a device, played again.

Each report is told here as our reference notes and the vendor's documents tell it. Some are faults of a
compiler: then our values are right, nothing is found, and that is what the test says.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import nkilab
from nkilab.arguments import argument

with nkilab.activate():
    import neuronxcc.nki as nki1
    import neuronxcc.nki.compiler as ncc1
    import neuronxcc.nki.isa as nisa1
    import neuronxcc.nki.language as nl1
    import nki
    import nki.isa as nisa
    import nki.language as nl


def failing(kernel: Any, *args: str) -> set[str]:
    """The rules for which a kernel fails."""
    return {f.rule for f in nkilab.check(kernel, *(argument(a) for a in args)).verdict if f.fails}


def noted(kernel: Any, *args: str, target: str = "trn2") -> set[str]:
    """The rules of which it is uncertain that a build refuses a kernel for them, or that the chip differs."""
    findings = nkilab.check(kernel, *(argument(a) for a in args), target=target)
    return {f.rule for f in findings if f.severity == "note"}


def test_accumulating_on_unwritten_psum_is_found() -> None:
    """NKI 0.5 release notes, improvements: undefined on hardware, silently zero in earlier simulators."""

    @nki.jit
    def kernel(a, b):
        left = nl.ndarray((128, 128), nl.bfloat16, buffer=nl.sbuf)
        right = nl.ndarray((128, 512), nl.bfloat16, buffer=nl.sbuf)
        total = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)
        result = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
        out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(left, a)
        nisa.dma_copy(right, b)
        nisa.nc_matmul(total, left, right, accumulate=True)
        nisa.tensor_copy(result, total)
        nisa.dma_copy(out, result)
        return out

    assert failing(kernel, "bf16[128,128]", "bf16[128,512]") == {"psum-accumulate-unwritten"}


def test_sums_that_begin_with_a_memset_are_noted_on_trn2() -> None:
    """aws-neuron-sdk issue 1051 among the pains about `+=` and the first write; NKI 0.6 release notes."""

    @nki.jit
    def kernel(a, b):
        left = nl.ndarray((128, 128), nl.bfloat16, buffer=nl.sbuf)
        right = nl.ndarray((128, 512), nl.bfloat16, buffer=nl.sbuf)
        total = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)
        result = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
        out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(left, a)
        nisa.dma_copy(right, b)
        nisa.memset(total, 0.0)
        for _ in range(2):
            nisa.nc_matmul(total, left, right, accumulate=True)
        nisa.tensor_copy(result, total)
        nisa.dma_copy(out, result)
        return out

    assert failing(kernel, "bf16[128,128]", "bf16[128,512]") == set()
    assert noted(kernel, "bf16[128,128]", "bf16[128,512]") == {"psum-accumulate-zeroed"}


def test_a_slice_of_a_reshaped_tile_is_right_here_and_noted_on_trn1() -> None:
    """aws-neuron-sdk issue 1255: exp of a slice of a reshaped tile, wrong on trn1 for even batches.

    That is a fault of the compiler's: the kernel breaks no rule. Our values are those of NumPy.
    """

    @nki1.jit
    def kernel(x):
        out = nl1.ndarray((128, 4, 64), x.dtype, buffer=nl1.shared_hbm)
        tile = nl1.load(x)
        cube = tile.reshape((128, 4, 64))
        for i in nl1.static_range(4):
            nl1.store(out[:, i, :], nisa1.activation(op=np.exp, data=cube[:, i, :]))
        return out

    assert failing(kernel, "f32[128,256]") == set()
    assert noted(kernel, "f32[128,256]", target="trn1") == {"activation-of-slice"}
    assert noted(kernel, "f32[128,256]") == set()
    x = np.linspace(-1, 1, 128 * 256, dtype=np.float32).reshape(128, 256)
    # float32 rounding of an exactly evaluated exp, twice
    np.testing.assert_allclose(kernel(x), np.exp(x).reshape(128, 4, 64), rtol=3e-7)


def test_a_product_that_broadcasts_over_an_axis_is_right_here_and_noted_on_trn1() -> None:
    """aws-neuron-sdk issue 1138: [P, H, D] times [P, H, 1] repeats rows on the device, not in the simulator.

    That is a fault of the compiler's: the kernel breaks no rule. Our values are those of NumPy.
    """

    @nki1.jit
    def kernel(o, scale):
        out = nl1.ndarray((128, 4, 64), o.dtype, buffer=nl1.shared_hbm)
        tile, factor = nl1.load(o), nl1.load(scale)
        nl1.store(out, nl1.multiply(tile, factor.reshape((128, 4, 1))))
        return out

    assert failing(kernel, "f32[128,4,64]", "f32[128,4]") == set()
    assert noted(kernel, "f32[128,4,64]", "f32[128,4]", target="trn1") == {"rows-alike"}
    assert noted(kernel, "f32[128,4,64]", "f32[128,4]") == set()
    rng = np.random.default_rng(1138)
    o, scale = (rng.standard_normal(s, dtype=np.float32) for s in ((128, 4, 64), (128, 4)))
    np.testing.assert_array_equal(kernel(o, scale), o * scale[:, :, None])


def test_a_reshape_that_splits_the_free_axis_is_right_here_and_nothing_is_found() -> None:
    """aws-neuron-sdk issue 1051, comment of 2024-12-05: the reshape of loaded weights was at fault.

    That is a fault of the compiler's: the kernel breaks no rule. Our values are those of NumPy.
    """

    @nki1.jit
    def kernel(w):
        out = nl1.ndarray((3, 128, 2, 64), w.dtype, buffer=nl1.shared_hbm)
        weights = nl1.load(w)
        parted = weights.reshape((128, 2, 64, 3))
        for tap in nl1.static_range(3):
            nl1.store(out[tap], nl1.copy(parted[:, :, :, tap]))
        return out

    assert failing(kernel, "f32[128,128,3]") == set()
    w = np.arange(128 * 128 * 3, dtype=np.float32).reshape(128, 128, 3)
    np.testing.assert_array_equal(kernel(w), w.reshape(128, 2, 64, 3).transpose(3, 0, 1, 2))


def test_two_tiles_that_fill_sbuf_are_found_without_a_compiler() -> None:
    """aws-neuron-sdk issue 1060: 2 x 98568 + 888 bytes per partition where trn1 has 196608."""

    @nki1.jit
    def kernel(x):
        out = nl1.ndarray((128, 24642), x.dtype, buffer=nl1.shared_hbm)
        position_out = nl1.load(x)
        nl1.store(out, nl1.add(position_out, 1.0))
        return out

    findings = nkilab.check(kernel, argument("f32[128,24642]"), target="trn1")
    assert [f.rule for f in findings if f.fails] == ["sbuf-full"]
    assert not [f for f in nkilab.check(kernel, argument("f32[128,24642]"), target="trn2").verdict if f.fails]


def test_a_memset_in_the_wrong_place_is_found() -> None:
    """nki-autotune, learnings: a memset in the wrong place passes the simulator and fails on the card."""

    @nki.jit
    def kernel(x):
        whole = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf, address=(0, 0))
        pad = nl.ndarray((128, 12), nl.float32, buffer=nl.sbuf, address=(0, 2000))
        out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(whole[:, 0:500], x[:, 0:500])
        nisa.memset(pad, 0.0)
        nisa.dma_copy(out[:, 0:500], whole[:, 0:500])
        nisa.dma_copy(out[:, 500:512], pad)
        return out

    # the pad lies behind what is loaded: its bytes are its own
    assert failing(kernel, "f32[128,512]") == set()

    @nki.jit
    def late(x):
        whole = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf, address=(0, 0))
        pad = nl.ndarray((128, 12), nl.float32, buffer=nl.sbuf, address=(0, 2000))
        out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(whole, x)
        nisa.memset(pad, 0.0)
        nisa.dma_copy(out, whole)
        return out

    # a simulator that gives each tensor memory of its own returns x; on the device the pad is zero
    assert failing(late, "f32[128,512]") == {"lifetime-conflict"}


def test_running_out_of_psum_is_found_without_a_card() -> None:
    """nki-autotune, learnings: 12 of 15 variants ran out of PSUM on hardware only."""

    @nki1.jit
    def kernel(a, b):
        out = nl1.ndarray((12, 128, 512), nl1.float32, buffer=nl1.shared_hbm)
        left, right = nl1.load(a), nl1.load(b)
        sums = [nl1.zeros((128, 512), nl1.float32, buffer=nl1.psum) for _ in range(12)]
        for total in sums:
            total += nisa1.nc_matmul(left, right)
        for i, total in enumerate(sums):
            nl1.store(out[i], nl1.copy(total))
        return out

    assert failing(kernel, "bf16[128,128]", "bf16[128,512]") == {"psum-full"}


def test_the_first_lifetime_conflict_of_the_guide_is_found() -> None:
    """Direct allocation guide, lifetime conflicts: t0 takes bytes 0 to 2048 and t1 1024 to 3072."""

    @nki1.jit
    def kernel(x, y):
        out = nl1.ndarray((2, 128, 512), nl1.bfloat16, buffer=nl1.shared_hbm)
        t0 = nl1.ndarray((4, nl1.par_dim(128), 512), dtype=nl1.bfloat16,
                         buffer=ncc1.sbuf.mod_alloc(base_addr=0, num_free_tiles=(2,)))  # fmt: skip
        t1 = nl1.ndarray((4, nl1.par_dim(128), 512), dtype=nl1.bfloat16,
                         buffer=ncc1.sbuf.mod_alloc(base_addr=1024, num_free_tiles=(2,)))  # fmt: skip
        for i in nl1.static_range(2):
            t0[i] = nl1.load(x[i])
        for i in nl1.static_range(2):
            t1[i] = nl1.load(y[i])
        for i in nl1.static_range(2):
            nl1.store(out[i], t0[i])
        return out

    assert failing(kernel, "bf16[4,128,512]", "bf16[4,128,512]") == {"lifetime-conflict"}


def test_a_loop_on_the_device_that_meets_what_stood_before_it_is_found() -> None:
    """NKI 0.4 release notes, fixed hardware races: loop bodies that overlap accesses before the loop."""

    @nki.jit
    def kernel(x, at):
        buffer = nl.ndarray((8, 512), nl.float32, buffer=nl.shared_hbm)
        out = nl.ndarray((8, 512), nl.float32, buffer=nl.shared_hbm)
        tile = nl.ndarray((8, 512), nl.float32, buffer=nl.sbuf)
        row = nl.ndarray((1, 512), nl.float32, buffer=nl.sbuf)
        place = nl.ndarray((1, 1), nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(tile, x)
        nisa.dma_copy(buffer, tile)
        nisa.dma_copy(place, at)
        nisa.dma_copy(row, buffer.ap(pattern=[[512, 1], [1, 512]], scalar_offset=place, indirect_dim=0))
        nisa.dma_copy(out, tile)
        nisa.dma_copy(out[0:1], row)
        return buffer, out

    assert failing(kernel, "f32[8,512]", "i32[1,1]") == {"race-dynamic-hbm"}


def test_a_tile_that_outer_loops_fill_again_is_found() -> None:
    """aws-neuron-sdk issue 1051, comment of 2024-12-06: what is loaded has no index of the outer loops.

    The answer calls it a way to trigger faults of the compiler: iterations of affine_range share the tile.
    """

    @nki1.jit
    def kernel(x):
        out = nl1.ndarray((2, 3, 128, 512), x.dtype, buffer=nl1.shared_hbm)
        rows = nl1.ndarray((4, nl1.par_dim(128), 512), x.dtype, buffer=nl1.sbuf)
        for image in nl1.affine_range(2):
            for tap in nl1.affine_range(3):
                for row in nl1.affine_range(4):
                    rows[row] = nl1.load(x[image, row])
                nl1.store(out[image, tap], nl1.add(rows[tap], rows[tap + 1]))
        return out

    assert failing(kernel, "f32[2,4,128,512]") == {"affine-output"}


def test_sums_in_sbuf_are_right_here_and_noted() -> None:
    """aws-neuron-sdk issue 1056: `a += y` on a tile in sbuf failed in affine_range, and not in static_range.

    A fault of the compiler's, which the release notes of SDK 2.22 tell to be repaired.
    """

    @nki1.jit
    def kernel(x):
        out = nl1.ndarray((128, 512), x.dtype, buffer=nl1.shared_hbm)
        total = nl1.zeros((128, 512), x.dtype, buffer=nl1.sbuf)
        for i in nl1.affine_range(4):
            total += nl1.load(x[i])
        nl1.store(out, total)
        return out

    assert failing(kernel, "f32[4,128,512]") == set()
    assert noted(kernel, "f32[4,128,512]") == {"affine-plus-assign"}
    x = np.arange(4 * 128 * 512, dtype=np.float32).reshape(4, 128, 512) % 17
    np.testing.assert_array_equal(kernel(x), x.sum(0))


def test_an_address_beyond_sbuf_is_an_error_with_the_bytes_of_the_tile() -> None:
    """aws-neuron-sdk issue 1036: blocks of 4000 bytes reach byte 400000; an unhandled exception there."""

    @nki1.jit
    def kernel(x):
        out = nl1.ndarray((100, 128, 1000), x.dtype, buffer=nl1.shared_hbm)
        tile = nl1.ndarray((100, nl1.par_dim(128), 1000), x.dtype,
                           buffer=ncc1.sbuf.mod_alloc(base_addr=0, num_free_tiles=(100,)))  # fmt: skip
        for i in nl1.affine_range(100):
            tile[i] = nl1.load(x[i])
            nl1.store(out[i], tile[i])
        return out

    (finding,) = [f for f in nkilab.check(kernel, argument("f32[100,128,1000]")).verdict if f.fails]
    # trn2 has 208 KiB, less 8 bytes of the compiler's, to begin in: block 53 would end at 4000 * 54
    assert finding.rule == "kernel-error"
    assert "bytes 216000 to 220000" in finding.message


def test_a_copy_to_partition_one_is_told_with_the_partitions_that_may_begin() -> None:
    """aws-neuron-sdk issue 1354: a copy to rows 1 and 2 in a loop fails with no information."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((2, 2), nl.int32, buffer=nl.shared_hbm)
        rows = nl.load(x)
        turn = nl.zeros((2, 2), nl.int32, buffer=nl.sbuf)
        for row in nl.static_range(2):
            for _ in nl.dynamic_range(2):
                nisa.dma_copy(turn, rows[row : row + 2, :2])
                nisa.tensor_scalar(turn, turn, op0=nl.add, operand0=1)
            nisa.tensor_copy(rows[row : row + 2, :2], turn)
        nl.store(out, turn)
        return out

    (finding,) = [f for f in nkilab.check(kernel, argument("i32[3,2]")).verdict if f.fails]
    assert finding.message == (
        "tensor_copy: dst starts at partition 1 with 2 partitions; it must start at 0, 32, 64 or 96"
    )
    assert finding.code == "NCC_INLA001"


def test_two_loads_into_one_tile_are_right_here_and_nothing_is_found() -> None:
    """aws-neuron-sdk issue 1281: loads of [128, 512] into a tile [128, 2, 512] are told not to match.

    A fault of the compiler's: shapes agree. Our values are those of NumPy.
    """

    @nki.jit
    def kernel(x):
        tile = nl.ndarray((128, 2, 512), nl.float16, buffer=nl.sbuf)
        out = nl.ndarray((2, 128, 512), nl.float16, buffer=nl.shared_hbm)
        for half in nl.affine_range(2):
            nisa.dma_copy(tile[:, half, :], x[half, :, :])
        for half in nl.affine_range(2):
            nisa.dma_copy(out[half], tile[:, half, :])
        return out

    assert failing(kernel, "f16[2,128,512]") == set()
    x = np.arange(2 * 128 * 512, dtype=np.float16).reshape(2, 128, 512)
    np.testing.assert_array_equal(kernel(x), x)


def test_partial_sums_of_two_cores_behind_a_barrier_are_in_order() -> None:
    """aws-neuron-sdk issue 1298: a sum over two cores through shared HBM; a fault of the compiler's."""

    @nki.jit
    def kernel(x):
        core = nl.program_id(0)
        mine = nl.ndarray((1, 1024), nl.float32, buffer=nl.sbuf)
        other = nl.ndarray((1, 1024), nl.float32, buffer=nl.sbuf)
        parts = nl.ndarray((2, 1024), nl.float32, buffer=nl.shared_hbm)
        out = nl.ndarray((2, 1024), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(mine, x[core : core + 1])
        nisa.dma_copy(parts[core : core + 1], mine)
        nisa.core_barrier(parts, (0, 1))
        nisa.dma_copy(other, parts[1 - core : 2 - core])
        nisa.tensor_tensor(mine, mine, other, op=nl.add)
        nisa.dma_copy(out[core : core + 1], mine)
        return out

    assert failing(kernel[2], "f32[2,1024]") == set()
    x = np.arange(2048, dtype=np.float32).reshape(2, 1024)
    np.testing.assert_array_equal(kernel[2](x), np.stack([x.sum(0)] * 2))
