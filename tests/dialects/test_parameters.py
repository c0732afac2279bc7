"""Parameters per version: what exactly one version takes, and what all of them together do."""

from __future__ import annotations

import numpy as np
import pytest
from tests.dialects.spellings import marked_line, ramp

import nkilab
from nkilab.errors import SpellingError


def under(*versions):
    return pytest.mark.parametrize("served", versions, indirect=True)


def run_on(served, body, *arrays):
    """What a kernel gives that calls body(out, one tile per array) and returns the tile `out` from SBUF."""
    nl, nisa = served.nl, served.nisa

    @served.nki.jit
    def kernel(*inputs):
        tiles = []
        for x in inputs:
            tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x)
            tiles.append(tile)
        result = nl.ndarray(inputs[0].shape, inputs[0].dtype, buffer=nl.sbuf)
        nisa.memset(result, 0.0)
        body(result, *tiles)
        out = nl.ndarray(inputs[0].shape, inputs[0].dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=result)
        return out

    return kernel(*arrays)


def refused(served, body, *arrays):
    """The message of a kernel that is refused in the marked line of `body`, which it shows as HERE."""
    with pytest.raises(SpellingError) as caught:
        run_on(served, body, *arrays)
    assert isinstance(caught.value, TypeError | AttributeError)
    return str(caught.value).replace(marked_line(body), "HERE")


# hand: rows of 3, kept where p - i + 1 >= 0
TRIANGLE = np.array([[0, 1, -9], [3, 4, 5]], np.float32)


def by_older_order(served):
    nl, nisa = served.nl, served.nisa

    def body(out, tile):
        nisa.affine_select(out, [[-1, 3]], 1, 1, tile, -9.0, nl.greater_equal)  # refused

    return body


@under("", "0.1", "0.2")
def test_affine_select_takes_its_offset_third_up_to_0_2(served, capsys, request):
    np.testing.assert_array_equal(run_on(served, by_older_order(served), ramp(2, 3)), TRIANGLE)
    captured = capsys.readouterr().err
    is_any = request.node.callspec.params["served"] == ""
    notice = (
        "nkilab: notice: positional arguments in an older order of nisa.affine_select: NKI 0.3 changed it\n"
    )
    assert captured == (notice if is_any else "")


@under("0.3", "0.6")
def test_the_older_order_is_told_where_the_version_has_another(served, request):
    version = request.node.callspec.params["served"]
    assert refused(served, by_older_order(served), ramp(2, 3)) == (
        "HERE: affine_select: the positional arguments stand for dst, pattern, offset, channel_multiplier, "
        f"on_true_tile, on_false_value, cmp_op; in NKI {version} they stand for dst, pattern, "
        "channel_multiplier, on_true_tile, on_false_value, cmp_op, offset\n  hint: give them by keyword"
    )


@under("", "0.3", "0.6")
def test_affine_select_takes_its_offset_last_from_0_3_on(served):
    nl, nisa = served.nl, served.nisa

    def body(out, tile):
        nisa.affine_select(out, [[-1, 3]], 1, tile, -9.0, nl.greater_equal, 1)

    np.testing.assert_array_equal(run_on(served, body, ramp(2, 3)), TRIANGLE)


@under("", "0.1", "0.2", "0.3", "0.6")
def test_keywords_mean_the_same_in_every_version(served):
    nl, nisa = served.nl, served.nisa

    def body(out, tile):
        nisa.affine_select(
            dst=out, on_true_tile=tile, on_false_value=-9.0, cmp_op=nl.greater_equal, pattern=[[-1, 3]],
            channel_multiplier=1, offset=1,
        )  # fmt: skip

    np.testing.assert_array_equal(run_on(served, body, ramp(2, 3)), TRIANGLE)


def without_offset(served):
    def body(out, tile):
        served.nisa.iota(out, [[2, 3]], channel_multiplier=10)  # refused

    return body


@under("0.1", "0.2")
def test_iota_needs_its_offset_up_to_0_2(served, request):
    version = request.node.callspec.params["served"]
    assert refused(served, without_offset(served), ramp(2, 3)) == (
        f"HERE: iota: offset is not given; NKI {version} has no default\n  hint: give offset="
    )


@under("", "0.3", "0.6")
def test_iota_starts_at_zero_from_0_3_on(served):
    # hand: 10 p + 2 i
    expected = [[0, 2, 4], [10, 12, 14]]
    np.testing.assert_array_equal(run_on(served, without_offset(served), ramp(2, 3)), expected)


def added(served, *order):
    """A kernel that adds x to itself with dma_compute, its arguments after dst in the order given."""
    nl, nisa = served.nl, served.nisa

    @served.nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        words = {"srcs": [x, x], "scales": [1.0, 1.0], "reduce_op": nl.add}
        nisa.dma_compute(out, *(words[name] for name in order))  # refused
        return out

    return kernel


@under("", "0.1", "0.2")
def test_dma_compute_takes_scales_before_the_operator_up_to_0_2(served):
    x = ramp(2, 3)
    np.testing.assert_array_equal(added(served, "srcs", "scales", "reduce_op")(x), x + x)


@under("", "0.3", "0.6")
def test_dma_compute_takes_the_operator_before_scales_from_0_3_on(served):
    x = ramp(2, 3)
    np.testing.assert_array_equal(added(served, "srcs", "reduce_op")(x), x + x)
    np.testing.assert_array_equal(added(served, "srcs", "reduce_op", "scales")(x), x + x)


@under("0.6")
def test_dma_compute_in_the_older_order_is_told(served):
    with pytest.raises(SpellingError) as caught:
        added(served, "srcs", "scales", "reduce_op")(ramp(2, 3))
    assert str(caught.value) == (
        f"{marked_line(added)}: dma_compute: the positional arguments stand for dst, srcs, scales, "
        "reduce_op; in NKI 0.6 they stand for dst, srcs, reduce_op, scales, unique_indices, oob_mode\n"
        "  hint: give them by keyword"
    )


def adding_copy(served, **words):
    nl, nisa = served.nl, served.nisa

    @served.nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=x)
        nisa.dma_copy(dst=out, src=x, dst_rmw_op=nl.add, **words)  # refused
        return out

    return kernel


@under("", "0.1", "0.2")
def test_dma_copy_adds_up_to_0_2(served, capsys, request):
    x = ramp(2, 3)
    np.testing.assert_array_equal(adding_copy(served)(x), x + x)
    is_any = request.node.callspec.params["served"] == ""
    notice = "nkilab: notice: the keyword dst_rmw_op of nisa.dma_copy: NKI 0.3 removed it\n"
    assert capsys.readouterr().err == (notice if is_any else "")


@under("0.3", "0.6")
def test_dma_copy_refuses_to_add_from_0_3_on(served, request):
    version = request.node.callspec.params["served"]
    with pytest.raises(SpellingError) as caught:
        adding_copy(served)(ramp(2, 3))
    assert str(caught.value) == (
        f"{marked_line(adding_copy)}: dma_copy: NKI {version} has no keyword dst_rmw_op; NKI 0.3 removed it\n"
        "  hint: use nisa.dma_compute(dst, srcs, reduce_op)"
    )


@under("0.1")
def test_a_keyword_is_refused_before_the_version_that_added_it(served):
    with pytest.raises(SpellingError) as caught:
        adding_copy(served, unique_indices=True)(ramp(2, 3))
    assert str(caught.value) == (
        f"{marked_line(adding_copy)}: dma_copy: NKI 0.1 has no keyword unique_indices; NKI 0.2 adds it\n"
        "  hint: use nisa.dma_compute(dst, srcs, reduce_op)"
    )


@under("0.2", "0.3")
def test_nc_matmul_accumulates_on_request_from_0_3_on(served, request):
    nl, nisa = served.nl, served.nisa

    @served.nki.jit
    def kernel(x):
        tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        product = nl.ndarray((3, 3), nl.float32, buffer=nl.psum)
        nisa.nc_matmul(product, tile, tile)
        nisa.nc_matmul(product, tile, tile, accumulate=True)  # refused
        buffer = nl.ndarray((3, 3), nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(buffer, product)
        out = nl.ndarray((3, 3), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=buffer)
        return out

    x = ramp(2, 3)
    if request.node.callspec.params["served"] == "0.3":
        np.testing.assert_array_equal(kernel(x), 2 * x.T @ x)
        return
    with pytest.raises(SpellingError) as caught:
        kernel(x)
    assert str(caught.value).endswith(": nc_matmul: NKI 0.2 has no keyword accumulate; NKI 0.3 adds it")


@under("", "0.2")
def test_a_dtype_on_tensor_copy_has_no_effect_and_is_noticed(served, capsys):
    def body(out, tile):
        served.nisa.tensor_copy(out, tile, dtype=served.nl.bfloat16)

    # 257 needs 9 bits: bfloat16 would round it
    x = np.full((2, 3), 257, np.float32)
    np.testing.assert_array_equal(run_on(served, body, x), x)
    assert capsys.readouterr().err == "nkilab: notice: nisa.tensor_copy ignores the keyword dtype\n"


@under("0.3", "0.6")
def test_a_dtype_on_tensor_copy_is_refused_from_0_3_on(served, request):
    version = request.node.callspec.params["served"]

    def body(out, tile):
        served.nisa.tensor_copy(out, tile, dtype=served.nl.bfloat16)  # refused

    assert refused(served, body, ramp(2, 3)) == (
        f"HERE: tensor_copy: NKI {version} has no keyword dtype; NKI 0.3 removed it\n"
        "  hint: leave it out; the dtype of dst decides"
    )


def words_called(served):
    def body(out, tile):
        served.nl.add(tile, tile)  # refused

    return body


@under("0.1", "0.2")
def test_a_word_is_not_called_up_to_0_2(served, request):
    version = request.node.callspec.params["served"]
    assert refused(served, words_called(served), ramp(2, 3)) == (
        f"HERE: nl.add: nl.add is a word for op= in NKI {version}, not a function; NKI 0.3 makes it one\n"
        "  hint: use it as op=nl.add in nisa.tensor_tensor, tensor_scalar or activation\n"
        f"  source: stubs of NKI {version}"
    )


@under("0.1", "0.2", "0.6")
def test_a_word_serves_as_an_operator_in_every_version(served):
    def body(out, tile):
        served.nisa.tensor_tensor(out, tile, tile, served.nl.add)

    x = ramp(2, 3)
    np.testing.assert_array_equal(run_on(served, body, x), x + x)


@under("0.2", "0.4")
def test_view_methods_are_refused_before_0_5(served, request):
    version = request.node.callspec.params["served"]

    def body(out, tile):
        tile.permute((0, 1))  # refused

    assert refused(served, body, ramp(2, 3)) == (
        f"HERE: tensor.permute: NKI {version} has no tensor.permute; NKI 0.5 adds it\n"
        f"  source: stubs of NKI {version} and 0.5"
    )


@under("0.2")
def test_a_member_of_tile_size_is_refused_before_its_version(served):
    def body(out, tile):
        served.nl.tile_size.psum_num_banks  # noqa: B018  # refused

    assert refused(served, body, ramp(2, 3)) == (
        "HERE: nl.tile_size: NKI 0.2 has no nl.tile_size.psum_num_banks; NKI 0.5 adds it\n"
        "  source: stubs of NKI 0.2 and 0.5"
    )


@under("0.5")
def test_tensor_scalar_reduce_needs_a_result_before_0_6(served):
    nl, nisa = served.nl, served.nisa

    def body(out, tile):
        nisa.tensor_scalar_reduce(out, tile, nl.multiply, 2.0, nl.add)  # refused

    assert refused(served, body, ramp(2, 3)) == (
        "HERE: tensor_scalar_reduce: reduce_res is not given; NKI 0.5 has no default\n"
        "  hint: give reduce_res="
    )


def string_buffer(served):
    def body(out, tile):
        served.nl.ndarray((2, 3), served.nl.float32, buffer="psum")  # refused

    return body


def integer_enum(served):
    def body(out, tile):
        served.nisa.tensor_copy(out, tile, engine=5)  # refused

    return body


@under("", "0.1", "0.2")
def test_strings_and_numbers_stand_for_members_up_to_0_2(served, capsys, request):
    run_on(served, string_buffer(served), ramp(2, 3))
    np.testing.assert_array_equal(run_on(served, integer_enum(served), ramp(2, 3)), ramp(2, 3))
    is_any = request.node.callspec.params["served"] == ""
    notice = (
        "nkilab: notice: a string for buffer=: NKI 0.1 added it and NKI 0.3 removed it; use nl.sbuf, "
        "nl.psum, nl.private_hbm or nl.shared_hbm\n"
    )
    assert capsys.readouterr().err == (notice if is_any else "")


@under("0.3", "0.6")
def test_strings_and_numbers_are_refused_from_0_3_on(served, request):
    version = request.node.callspec.params["served"]
    assert refused(served, string_buffer(served), ramp(2, 3)) == (
        f"HERE: ndarray: NKI {version} does not accept a string for buffer=; NKI 0.1 added it and NKI 0.3 "
        "removed it\n  hint: use nl.sbuf, nl.psum, nl.private_hbm or nl.shared_hbm\n"
        "  source: NKI 0.3 release notes"
    )
    assert refused(served, integer_enum(served), ramp(2, 3)) == (
        f"HERE: tensor_copy: NKI {version} does not accept a number for a member of an enumeration; NKI 0.3 "
        "removed it\n  hint: use the member, as nisa.engine.vector\n  source: NKI 0.3 release notes"
    )


@under("0.2", "0.3", "0.6")
def test_numbers_of_descriptor_generation_are_taken_in_every_version(served):
    # the vendor's library for 0.3 copies with 3, which is none there
    def body(out, tile):
        served.nisa.dma_copy(out, tile, dge_mode=3)

    np.testing.assert_array_equal(run_on(served, body, ramp(2, 3)), ramp(2, 3))


@under("0.3", "0.6")
def test_members_and_regions_are_taken_in_every_version(served):
    def body(out, tile):
        served.nl.ndarray((2, 3), served.nl.float32, buffer=served.nl.psum)
        served.nisa.tensor_copy(out, tile, served.nisa.engine.vector)

    np.testing.assert_array_equal(run_on(served, body, ramp(2, 3)), ramp(2, 3))


def beta1_kernel():
    import neuronxcc.nki as nki
    import neuronxcc.nki.language as nl

    @nki.jit
    def kernel(x):
        tile = nl.load(x)  # refused
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    return kernel


@pytest.mark.parametrize("version", ["", "beta1", "2.20", "0.1", "0.3"])
def test_beta_1_runs_under_its_versions_and_as_long_as_nki_has_it(version):
    with nkilab.activate(nki=version):
        np.testing.assert_array_equal(beta1_kernel()(ramp(2, 3)), ramp(2, 3))


@pytest.mark.parametrize("version", ["0.4", "0.6"])
def test_beta_1_is_an_error_in_kernels_from_0_4_on(version):
    with nkilab.activate(nki=version), pytest.raises(SpellingError) as caught:
        beta1_kernel()(ramp(2, 3))
    assert str(caught.value) == (
        f"{marked_line(beta1_kernel)}: load: NKI {version} does not accept neuronxcc.nki.language in "
        "kernels; NKI 0.4 removed it\n"
        f"  hint: import nki instead; nkilab migrate FILE.py --to {version} lists what changes\n"
        "  source: NKI 0.4 release notes"
    )
