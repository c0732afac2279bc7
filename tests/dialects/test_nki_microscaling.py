"""Microscaled tensors in kernels of `nki`: packed types at the boundary, shared tiles of scales, versions."""

from __future__ import annotations

import warnings

import ml_dtypes
import numpy as np
import pytest
from tests.dialects.spellings import copied_in, copied_out, refusal
from tests.dialects.spellings import nisa2 as nisa
from tests.dialects.spellings import nki2 as nki
from tests.dialects.spellings import nl2 as nl

import nkilab
from nkilab.dialects.serve import module_tree
from nkilab.errors import NkilabError, RuleError


def simulated(kernel, *arrays):
    with nkilab.api.chosen(target="trn3"):
        return nkilab.simulate(kernel)(*arrays)


def words(*shape):
    return np.random.default_rng(1).integers(0, 2**32, shape, np.uint32)


@nki.jit
def moved(x):
    tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=copied_in(x))
    nisa.memset(tile[0:1, :], 0)
    return copied_out(tile)


@pytest.mark.parametrize(
    ("name", "bits"),
    [("float8_e4m3fn_x4", "uint32"), ("float8_e5m2_x4", "uint32"), ("float4_e2m1fn_x4", "uint16")],
)
def test_packed_elements_go_in_and_out_bit_for_bit(name, bits):
    word_list = words(8, 6).view(bits)
    got = simulated(moved, word_list.view(np.dtype([(name, bits)])))
    word_list[0] = 0
    assert got.dtype.names == (name,)
    np.testing.assert_array_equal(got.view(bits), word_list)


@nki.jit
def reinterpreted(x):
    packed = copied_in(x.view(nl.float8_e4m3fn_x4))
    half = copied_out(packed.view(nl.float4_e2m1fn_x4))
    return copied_out(packed.view(nl.uint8)), half, copied_out(packed.view(nl.uint32))


def test_packed_tiles_and_integers_are_views_of_each_other():
    x = words(8, 6)
    octets, halves, whole = simulated(reinterpreted, x)
    np.testing.assert_array_equal(octets, x.view(np.uint8))
    np.testing.assert_array_equal(halves.view(np.uint16), x.view(np.uint16))
    np.testing.assert_array_equal(whole, x)


@nki.jit
def shared_scales(a, b):
    left, right = copied_in(a), copied_in(b)
    p, m, n = a.shape[0], a.shape[1] // 4, b.shape[1] // 4
    first = nl.ndarray((p, m), nl.float8_e4m3fn_x4, buffer=nl.sbuf)
    second = nl.ndarray((p, n), nl.float8_e4m3fn_x4, buffer=nl.sbuf)
    scales = nl.ndarray((p, n), nl.uint8, buffer=nl.sbuf)
    nisa.quantize_mx(dst=first, src=left, dst_scale=scales[0:, :m])
    nisa.quantize_mx(dst=second, src=right, dst_scale=scales[4:, :])
    acc = nl.ndarray((m, n), nl.float32, buffer=nl.psum)
    for _ in range(2):
        nisa.nc_matmul_mx(acc, first, second, scales[0:, :m], scales[4:, :])
    result = nl.ndarray((m, n), nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=result, src=acc)
    return copied_out(result)


def integers(seed, *shape):
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("partitions", [32, 64, 128])
def test_quantised_tensors_share_a_tile_of_scales_and_read_nothing_unwritten(partitions):
    # integers up to 4 survive quantising, so that the product is exact
    a, b = integers(1, partitions, 16 * 4), integers(2, partitions, 24 * 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = simulated(shared_scales, a, b)
    left, right = (x.astype(np.float64).reshape(partitions, -1, 4) for x in (a, b))
    np.testing.assert_array_equal(got, 2 * np.einsum("kmq,knq->mn", left, right))


def quantising(served):
    nki, nl, nisa = served["nki"], served["nki.language"], served["nki.isa"]

    @nki.jit
    def kernel(x):
        tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        data = nl.ndarray((x.shape[0], x.shape[1] // 4), nl.float8_e4m3fn_x4, buffer=nl.sbuf)
        scale = nl.ndarray((x.shape[0] // 8, x.shape[1] // 4), nl.uint8, buffer=nl.sbuf)
        nisa.quantize_mx(dst=data, src=tile, dst_scale=scale)
        out = nl.ndarray(scale.shape, scale.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=scale)
        return out

    return kernel


# hand: floor(log2 1) is 0; 127 - 8 before NKI 0.5, twice that since (release notes of 0.5, improvements)
@pytest.mark.parametrize(("version", "scale"), [("0.3", 119), ("0.4", 119), ("0.5", 120), ("", 120)])
def test_the_scale_became_two_times_larger_in_nki_0_5(version, scale):
    kernel = quantising(module_tree("nki", version))
    got = simulated(kernel, np.ones((32, 4), ml_dtypes.bfloat16))
    assert got.tolist() == [[scale]] * 4


@nki.jit
def too_few_scales(x):
    tile = copied_in(x)
    data = nl.ndarray((64, 4), nl.float8_e4m3fn_x4, buffer=nl.sbuf)
    scale = nl.ndarray((8, 4), nl.uint8, buffer=nl.sbuf)
    nisa.quantize_mx(dst=data, src=tile, dst_scale=scale)  # refused


def test_a_broken_rule_shows_the_tiles_as_the_kernel_wrote_them():
    with nkilab.api.chosen(target="trn3"):
        text = refusal(too_few_scales, np.ones((64, 16), ml_dtypes.bfloat16), kind=RuleError)
    assert text == (
        "HERE: quantize_mx: scales have too few partitions: those of each 32 partitions of data are 4 rows, "
        "32 partitions apart\n"
        "  dst = data: float8_e4m3fn_x4[64, 4] in sbuf\n"
        "  src = tile: bfloat16[64, 16] in sbuf\n"
        "  dst_scale = scale: uint8[8, 4] in sbuf\n"
        "  hint: allocate the scales with as many partitions as the data\n"
        "  source: MXFP matrix multiplication guide, scale tensor"
    )


@nki.jit
def filled(x):
    tile = nl.ndarray((4, 4), nl.float8_e5m2_x4, buffer=nl.sbuf)
    nisa.memset(tile, 1.0)  # refused


@nki.jit
def added(x):
    tile = nl.ndarray((4, 4), nl.float8_e5m2_x4, buffer=nl.sbuf)
    nisa.memset(tile, 0)
    nisa.tensor_tensor(tile, tile, tile, nl.add)  # refused


def test_packed_tiles_are_filled_with_zero_only():
    assert refusal(filled, words(4, 4), kind=RuleError) == (
        "HERE: memset: value is 1.0; tiles of float8_e5m2_x4 are filled with 0 only\n"
        "  dst = tile: float8_e5m2_x4[4, 4] in sbuf\n"
        "  hint: view the tile as an integer type to fill it with a pattern\n"
        "  source: nki.isa.memset"
    )


def test_packed_tiles_are_not_computed_on():
    text = refusal(added, words(4, 4), kind=RuleError)
    assert text.startswith("HERE: tensor_tensor: dst is float8_e5m2_x4; it must be float32 or tfloat32 or ")


def test_a_chip_before_trn3_has_no_microscaling():
    with pytest.raises(NkilabError, match=r"quantize_mx: it exists from trn3 on"):
        nkilab.simulate(shared_scales)(integers(1, 32, 16), integers(2, 32, 16))


def test_torch_gets_the_bits_of_packed_elements():
    torch = pytest.importorskip("torch")
    x = words(8, 6)
    tensor = torch.from_numpy(x.view(np.int32)).view(torch.uint32)
    _, halves, whole = simulated(reinterpreted, tensor)
    assert (halves.dtype, whole.dtype) == (torch.uint16, torch.uint32)
    np.testing.assert_array_equal(halves.numpy(), x.view(np.uint16))
