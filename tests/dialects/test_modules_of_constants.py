"""Modules of constants, types and annotations in both spellings, and what their members mean in kernels."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.dialects.spellings import (
    copied_in,
    copied_out,
    marked_line,
    ncc1,
    nisa1,
    nisa2,
    nki1,
    nki2,
    nl1,
    nl2,
    ramp,
    refusal,
)

import nkilab
from nkilab.dialects.serve import module_tree
from nkilab.dialects.value_returning.program_ids import COLLECTIVES
from nkilab.errors import LimitError, RuleError, SpellingError, UnsupportedError, UseError

with nkilab.activate():
    import neuronxcc.nki.typing as nt1
    import nki.collectives as ncc2
    import nki.dtype as types2
    import nki.meta.tensor as arrays2
    import nki.typing as nt2
    from neuronxcc.nki import nccl

INTEGERS = np.random.default_rng(3).integers(-4, 5, (32, 64)).astype(ml_dtypes.bfloat16)
E4M3 = ml_dtypes.float8_e4m3


def on_trn3(kernel, *arrays):
    with nkilab.api.chosen(target="trn3"):
        return nkilab.simulate(kernel)(*arrays)


# hand: enumerations of nki.isa, stubs of NKI 0.6
@pytest.mark.parametrize(
    ("name", "members"),
    [
        ("engine", {"unknown": 0, "tensor": 1, "scalar": 2, "gpsimd": 3, "dma": 4, "vector": 5, "sync": 6}),
        ("matmul_perf_mode", {"none": "none", "double_row": "double_row"}),
        ("dma_engine", {"dma": 1, "gpsimd_dma": 2}),
        ("oob_mode", {"error": 0, "skip": 1}),
    ],
)
def test_the_module_of_constants_holds_the_enumerations(name, members):
    enumeration = getattr(nisa2.constants, name)
    assert enumeration is getattr(nisa2, name)
    assert {member.name: member.value for member in enumeration} == members
    if name != "dma_engine":
        # in Beta 1 this name is an engine
        assert getattr(nisa1.constants, name) is getattr(nisa1, name)


def test_a_member_that_no_enumeration_has_is_told_the_nearest():
    with pytest.raises(AttributeError, match=r"did you mean double_row\?"):
        _ = nisa2.matmul_perf_mode.double_rows
    with pytest.raises(AttributeError, match="did you mean oob_mode"):
        _ = nisa1.constants.oob_modes


def test_the_dma_engine_of_beta_1_is_an_engine():
    # hand: stubs of SDK 2.20 to 2.26: DMA is the fifth engine; no compute instruction runs on it
    assert nisa1.dma_engine == 4

    def body(x):
        nisa1.memset((4, 3), 1.0, np.float32, engine=nisa1.dma_engine)  # refused

    with pytest.raises(RuleError, match="it must be one of unknown, vector, gpsimd"):
        nki1.jit(body)(ramp(4, 3))


def test_numbers_and_sizes_of_beta_1_are_those_of_the_format():
    # hand: bfloat16 is the upper half of float32: sign, 8 bits of exponent, 7 of mantissa
    assert np.float32(nl1.bfp16.min).view(np.uint32) >> 16 == 0xFF80
    assert [nl1.constants.sizeinbytes(t) for t in (np.int8, nl1.bfloat16, np.float32)] == [1, 2, 4]
    with pytest.raises(RuleError, match="complex64"):
        nl1.constants.sizeinbytes(np.complex64)


@nki1.jit
def product_of_beta_1(x, y, mode):
    tile = nisa1.nc_matmul(nl1.load(x), nl1.load(y), perf_mode=mode)
    out = nl1.ndarray(tile.shape, np.float32, buffer=nl1.shared_hbm)
    nl1.store(out, tile)
    return out


def test_modes_of_products_in_beta_1():
    x, y = (ramp(16, 2, 4) % 3).astype(E4M3), (ramp(16, 2, 8) % 4).astype(E4M3)
    wide_x, wide_y = x.astype(np.float32), y.astype(np.float32)
    both = product_of_beta_1(x, y, nisa1.matmul_perf_mode.double_row)
    np.testing.assert_array_equal(both, np.einsum("krm,krn->mn", wide_x, wide_y))
    one = product_of_beta_1(x[:, 0], y[:, 0], nisa1.matmul_perf_mode.none)
    np.testing.assert_array_equal(one, wide_x[:, 0].T @ wide_y[:, 0])
    with pytest.raises(RuleError, match="float8"):
        product_of_beta_1(wide_x, wide_y, nisa1.matmul_perf_mode.double_row)


def test_the_plain_mode_of_products():
    @nki2.jit
    def kernel(x, y):
        acc = nl2.ndarray((4, 6), nl2.float32, buffer=nl2.psum)
        nisa2.nc_matmul(acc, copied_in(x), copied_in(y), perf_mode=nisa2.matmul_perf_mode.none)
        tile = nl2.ndarray((4, 6), nl2.float32)
        nisa2.tensor_copy(tile, acc)
        return copied_out(tile)

    x, y = ramp(8, 4), ramp(8, 6)
    np.testing.assert_array_equal(kernel(x, y), x.T @ y)


def test_an_exchange_by_the_shared_dma_engines():
    @nki2.jit
    def kernel(x):
        out = nl2.ndarray(x.shape, x.dtype, buffer=nl2.shared_hbm)
        me = nl2.program_id(0)
        mine, theirs = copied_in(x[me]), nl2.ndarray(x.shape[1:], x.dtype)
        nisa2.sendrecv(mine, theirs, 1 - me, 1 - me, 0, dma_engine=nisa2.dma_engine.dma)
        nisa2.dma_copy(dst=out[me], src=theirs)
        return out

    # 4096 bytes a partition: more than the other engine moves
    x = ramp(2, 4, 1024)
    np.testing.assert_array_equal(kernel[2](x), x[::-1])


def test_grids_of_products_are_as_large_as_their_operands():
    @nki1.jit
    def kernel(a, b):
        out = nl1.ndarray((128, 512), a.dtype, buffer=nl1.shared_hbm)
        left, right = nl1.gemm_stationary_grid(), nl1.gemm_grid()
        product = nisa1.nc_matmul(nl1.load(a[left.p, left.x]), nl1.load(b[right.p, right.x]))
        nl1.store(out[right.p, right.x], product)
        return out

    a, b = ramp(128, 128) % 7, ramp(128, 512) % 5
    np.testing.assert_array_equal(kernel(a, b), a.T @ b)


def test_a_grid_has_no_more_names_than_axes():
    def body(x):
        nl1.load(x[nl1.gemm_grid().y])  # refused

    with pytest.raises(UseError) as caught:
        nki1.jit(body)(ramp(4, 3))
    assert str(caught.value) == (
        f"{marked_line(body)}: mgrid: the index grid has 2 axes; it has no second free grid\n"
        "  hint: write a slice more in the subscript of nl.mgrid"
    )


def test_tiles_of_beta_1_are_of_the_public_class():
    @nki1.jit
    def kernel(x):
        tile = nl1.load(x)
        assert isinstance(x, nki1.tensor)
        assert isinstance(tile, nki1.tensor)
        assert not isinstance(np.float32(1), nki1.tensor)
        out = nl1.ndarray(x.shape, np.int32, buffer=nl1.shared_hbm)
        nl1.store(out, nki1.tensor.view(tile, np.int32))
        return out

    np.testing.assert_array_equal(kernel(ramp(4, 3)), ramp(4, 3).view(np.int32))


@nki1.jit
def banks_chosen(x, last):
    """Squares in banks that a function gives: with one bank the second overwrites the first."""
    out = nl1.ndarray((2, 8, 8), np.float32, buffer=nl1.shared_hbm)
    tile = nl1.ndarray((8, 8), np.float32, buffer=ncc1.sbuf.mod_alloc(base_addr=0))
    tile[...] = nl1.load(x)
    copies = nl1.ndarray((2, nl1.par_dim(8), 8), np.float32,
                         buffer=ncc1.sbuf.mod_alloc(base_addr=64, num_free_tiles=(2,)))  # fmt: skip
    chosen = ncc1.psum.alloc(lambda idx, pdim_size, fdim_size: (last * idx[0], 0, 0))
    blocks = nl1.ndarray((2, nl1.par_dim(8), 8), np.float32, buffer=chosen)
    for i in nl1.static_range(2):
        tile[...] = nl1.add(tile, 1.0)
        blocks[i] = nisa1.nc_matmul(tile, tile)
    for i in nl1.static_range(2):
        copies[i] = nl1.copy(blocks[i])
        nl1.store(out[i], copies[i])
    return out


def test_a_function_gives_banks_of_psum():
    x = ramp(8, 8) / 8
    squares = [(x + i).T @ (x + i) for i in (1, 2)]
    np.testing.assert_allclose(banks_chosen(x, 7), np.stack(squares), rtol=1e-6)
    np.testing.assert_allclose(banks_chosen(x, 0), np.stack([squares[1]] * 2), rtol=1e-6)
    # eight banks: 0 to 7
    with pytest.raises(LimitError, match="bank is 8; trn2 has 8"):
        banks_chosen(x, 8)


def test_automatic_places_in_psum_are_the_buffer_itself():
    @nki1.jit
    def kernel(x):
        out = nl1.ndarray((3, 3), np.float32, buffer=nl1.shared_hbm)
        total = nl1.ndarray((3, 3), np.float32, buffer=ncc1.psum.auto_alloc())
        tile = nl1.load(x)
        total[...] = nisa1.nc_matmul(tile, tile)
        nl1.store(out, nl1.copy(total))
        return out

    np.testing.assert_array_equal(kernel(ramp(4, 3)), ramp(4, 3).T @ ramp(4, 3))
    with pytest.raises(TypeError):
        ncc1.psum.auto_alloc(0)


def test_an_element_decides_how_often_a_loop_of_beta_1_goes_round():
    @nki1.jit
    def kernel(x):
        out = nl1.ndarray(x.shape, x.dtype, buffer=nl1.shared_hbm)
        tile, cond = nl1.load(x), nt1.scalar(True)
        while cond:
            tile[...] = tile * 2.0
            cond = nt1.scalar(tile[0, 0]) < 100
        nl1.store(out, tile)
        return out

    # hand: 3 * 2**6 is the first of 6, 12, 24, ... that reaches 100
    np.testing.assert_array_equal(kernel(np.float32([[3]])), [[192]])


def test_collectives_of_beta_1_are_refused_by_name():
    for name in COLLECTIVES:
        with pytest.raises(UnsupportedError, match=f"nccl.{name} has no published meaning"):
            getattr(nccl, name)()


@pytest.mark.parametrize("name", ["bfloat16", "float16", "int32", "uint8", "float8_e4m3", "float8_e5m2"])
def test_types_have_a_module_of_their_own(name):
    x = np.array([[1.0, 2.75, 3.0, 200.0]], np.float32)

    @nki2.jit
    def kernel(x):
        tile = nl2.ndarray(x.shape, getattr(nki2.dtype, name))
        nisa2.tensor_copy(tile, copied_in(x))
        return copied_out(tile)

    dtype = getattr(ml_dtypes, name, None) or np.dtype(name)
    expected = np.rint(x) if "int" in name else x
    np.testing.assert_array_equal(
        np.asarray(kernel(x), np.float32), expected.astype(dtype).astype(np.float32)
    )
    with pytest.raises(AttributeError, match=r"did you mean float32\?"):
        _ = types2.float33


def test_arrays_of_the_host_are_those_of_numpy():
    @nki2.jit
    def kernel(x):
        parts = (arrays2.arange(2, 14, 3), arrays2.arange(4, dtype=nl2.float32), arrays2.identity(4)[1])
        rows = np.stack([np.float32(p) for p in (*parts, arrays2.zeros((4,)))])
        return copied_out(copied_in(nl2.shared_constant(rows)))

    expected = np.stack([np.arange(2, 14, 3), np.arange(4), np.eye(4)[1], np.zeros(4)])
    np.testing.assert_array_equal(kernel(ramp(1, 1)), expected)
    assert arrays2.identity(3, dtype=nl2.int8).dtype == np.int8


EXTENTS = "a tensor has at least one axis and one element along each"
ELEMENTS = "it must have an element or more"


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: arrays2.arange(0, 4, 0), f"arange: an array from 0 to 4 by 0 is empty; {ELEMENTS}"),
        (lambda: arrays2.arange(4, 0), f"arange: an array from 4 to 0 by 1 is empty; {ELEMENTS}"),
        (lambda: arrays2.arange("4"), "arange: stop is '4'; it must be a number"),
        (lambda: arrays2.identity(0), f"identity: shape is [0]; {EXTENTS}"),
        (lambda: arrays2.zeros((2, -1)), f"zeros: shape is [2, -1]; {EXTENTS}"),
    ],
)
def test_arrays_of_the_host_that_hold_nothing_are_refused(make, text):
    with pytest.raises(UseError) as caught:
        make()
    assert str(caught.value).partition(": ")[2] == text


def test_registers_are_of_the_public_class():
    @nki2.jit
    def kernel(x):
        register = nisa2.register_alloc(3)
        assert isinstance(register, nisa2.VirtualRegister)
        assert not isinstance(x, nisa2.VirtualRegister)
        tile = nl2.ndarray((1, 1), nl2.int32)
        nisa2.register_move(register, -7)
        nisa2.register_store(tile, register)
        return copied_out(tile)

    np.testing.assert_array_equal(kernel(ramp(1, 1)), [[-7]])


def test_a_tile_is_no_register():
    def wrong(x):
        nisa2.register_move(x, 1)  # refused

    assert refusal(nki2.jit(wrong), ramp(1, 1), kind=UseError).startswith(
        "HERE: register_move: dst is of type Tensor; it must be a register"
    )


@nki2.jit
def product_of_e5m2(a, b):
    data, scales = [], []
    for x in (a, b):
        data.append(nl2.ndarray((32, x.shape[1] // 4), nl2.float8_e5m2_x4))
        scales.append(nl2.ndarray((4, x.shape[1] // 4), nl2.float8_e8m0fnu))
        nisa2.quantize_mx(dst=data[-1], src=copied_in(x), dst_scale=scales[-1])
    acc = nl2.ndarray((a.shape[1] // 4, b.shape[1] // 4), nl2.float32, buffer=nl2.psum)
    nisa2.nc_matmul_mx(acc, *data, *scales)
    tile = nl2.ndarray(acc.shape, nl2.float32)
    nisa2.tensor_copy(tile, acc)
    return copied_out(tile), copied_out(scales[0])


def test_a_product_of_four_packed_e5m2_with_scales_of_eight_bits():
    # whole numbers up to 4 have at most 2 bits behind the first: the product is exact
    got, scales = on_trn3(product_of_e5m2, INTEGERS, INTEGERS)
    wide = INTEGERS.astype(np.float32).reshape(32, -1, 4)
    np.testing.assert_array_equal(got, np.einsum("kmq,knq->mn", wide, wide))
    assert scales.dtype == ml_dtypes.float8_e8m0fnu
    # hand: nki.isa.quantize_mx: 2**(floor(log2 most) - (15 - 1)), of 8 partitions and the 4 elements
    most = np.abs(wide).reshape(4, 8, -1, 4).max(axis=(1, 3))
    np.testing.assert_array_equal(scales.astype(np.float64), 2 ** (np.floor(np.log2(most)) - 14.0))


def test_types_of_microscaling_hold_what_they_can():
    def filled(x):
        nisa2.memset(nl2.ndarray((4, 4), nl2.float8_e5m2_x4), 1.0)  # refused

    assert refusal(nki2.jit(filled), ramp(1, 1), kind=RuleError).startswith(
        "HERE: memset: value is 1.0; tiles of float8_e5m2_x4 are filled with 0 only\n"
    )
    with pytest.raises(SpellingError, match=r"NKI 0\.4 has no nl\.float8_e8m0fnu"):
        _ = module_tree("nki", "0.4")["nki.language"].float8_e8m0fnu


@pytest.mark.parametrize(("target", "mebibytes"), [("trn1", 24), ("trn2", 28), ("trn3", 32)])
def test_all_of_sbuf_is_as_large_as_the_guides_say(target, mebibytes):
    # hand: architecture guides of Trainium 1, 2 and 3, SBUF capacity
    with nkilab.api.chosen(target=target):
        assert nl2.tile_size.sbuf_size_bytes == mebibytes * 2**20
    with pytest.raises(SpellingError, match=r"NKI 0\.3 has no nl\.tile_size\.sbuf_size_bytes"):
        _ = module_tree("nki", "0.3")["nki.language"].tile_size.sbuf_size_bytes


def test_groups_of_ranks_do_not_overlap():
    # hand: nki.collectives.ReplicaGroup: lists of ranks, none in two of them
    assert ncc2.ReplicaGroup([[0, 2], [1, 3]]) == ncc2.ReplicaGroup(groups=([0, 2], [1, 3]))
    assert ncc2.ReplicaGroup([[0, 2], [1, 3]]) != ncc2.ReplicaGroup([[0, 1], [2, 3]])
    with pytest.raises(UseError, match=r"rank 2 stands in groups .* more than once"):
        ncc2.ReplicaGroup([[0, 2], [2, 3]])


def test_the_value_of_a_tensor_while_it_is_simulated():
    @nki2.jit
    def kernel(x):
        tile = copied_in(x)
        seen.append(tile.sim_value)
        nisa2.memset(tile, 0.0)
        assert tile.device_value is None
        return copied_out(tile)

    seen = []
    np.testing.assert_array_equal(kernel(ramp(4, 6)), 0)
    np.testing.assert_array_equal(seen, [ramp(4, 6)])
    with pytest.raises(UseError, match="has no data here"):
        nkilab.estimate(kernel, nkilab.spec((4, 6), "float32"))


def test_rows_that_a_tile_of_indices_selects():
    @nki2.jit
    def kernel(x, at):
        tile = nl2.ndarray((3, 6), x.dtype)
        nisa2.dma_copy(dst=tile, src=x.vector_select(0, copied_in(at)))
        return copied_out(tile)

    rows = np.int32([[7], [0], [7]])
    np.testing.assert_array_equal(kernel(ramp(8, 6), rows), ramp(8, 6)[rows[:, 0]])

    def second_axis(x):
        x.vector_select(1, nl2.zeros((3, 1), nl2.int32))  # refused

    assert refusal(nki2.jit(second_axis), ramp(8, 6), kind=UseError).startswith(
        "HERE: vector_select: dim is 1; vector_select chooses along axis 0"
    )


def test_annotations_of_nki_change_nothing():
    @nki2.jit
    def kernel(x: nt2.tensor[4, 6], y: nt2.mutable_tensor, z: nt2.mutable, times: nt2.scalar):
        tile = copied_in(x)
        nisa2.tensor_scalar(tile, tile, nl2.multiply, times)
        nisa2.dma_copy(dst=y, src=tile)
        nisa2.dma_copy(dst=z, src=tile)
        return copied_out(tile)

    y, z = np.zeros((4, 6), np.float32), np.zeros((4, 6), np.float32)
    for result in (kernel(ramp(4, 6), y, z, 3.0), y, z):
        np.testing.assert_array_equal(result, 3 * ramp(4, 6))


def test_scalar_is_called_in_beta_1_alone():
    def body(x):
        nt2.scalar(copied_in(x))  # refused

    assert refusal(nki2.jit(body), ramp(1, 1), kind=SpellingError, also=Exception) == (
        "HERE: scalar: nki.typing.scalar annotates a parameter in nki; it is called in Beta 1 alone\n"
        "  hint: load the element into a register with nisa.register_load, and loop with nl.while_loop\n"
        "  source: nki.isa.VirtualRegister"
    )
