"""What a version of NKI accepts: everything some version does, with one notice; or exactly one version."""

from __future__ import annotations

import numpy as np
import pytest
from tests.dialects.spellings import marked_line, ramp

import nkilab
from nkilab.dialects.versions import version_named
from nkilab.errors import SpellingError, UsageError


def identity(served, region, **options):
    nl, nisa = served.nl, served.nisa

    @served.nki.jit(**options)
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=getattr(nl, region))  # refused
        tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        nisa.dma_copy(dst=out, src=tile)
        return out

    return kernel


TARGET = (
    "nki.jit(platform_target=...): NKI 0.1 added it and NKI 0.3 removed it; remove the keyword and set "
    "NEURON_PLATFORM_TARGET_OVERRIDE or run with --target"
)
RESULT = (
    "a result allocated with buffer=nl.hbm: NKI 0.3 removed it; allocate the result with buffer=nl.shared_hbm"
)


def test_without_a_version_a_removed_form_runs_with_one_notice(served, capsys):
    for _ in range(2):
        kernel = identity(served, "hbm", platform_target="trn1")
        np.testing.assert_array_equal(kernel(ramp(4, 3)), ramp(4, 3))
    assert capsys.readouterr().err == f"nkilab: notice: {TARGET}\nnkilab: notice: {RESULT}\n"
    assert nkilab.estimate(kernel, nkilab.spec((4, 3), "float32")).target == "trn1"


@pytest.mark.parametrize("served", ["0.1", "0.2", "0.2.0"], indirect=True)
def test_a_version_that_has_a_form_accepts_it_without_a_word(served, capsys):
    np.testing.assert_array_equal(identity(served, "hbm", platform_target="trn2")(ramp(4, 3)), ramp(4, 3))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("served", ["0.3", "0.6"], indirect=True)
def test_a_version_without_a_form_refuses_it_with_what_replaces_it(served, request):
    version = request.node.callspec.params["served"]
    with pytest.raises(SpellingError) as caught:
        identity(served, "hbm")(ramp(4, 3))
    assert isinstance(caught.value, TypeError)
    place = marked_line(identity)
    assert str(caught.value) == (
        f"{place}: kernel: NKI {version} does not accept a result allocated with buffer=nl.hbm; NKI 0.3 "
        "removed it\n"
        "  hint: allocate the result with buffer=nl.shared_hbm\n  source: NKI 0.3 release notes"
    )

    def decorating():
        served.nki.jit(lambda x: x, platform_target="trn2")  # refused

    with pytest.raises(SpellingError) as caught:
        decorating()
    assert isinstance(caught.value, TypeError)
    assert str(caught.value) == (
        f"{marked_line(decorating)}: nki.jit: NKI {version} does not accept nki.jit(platform_target=...); "
        "NKI 0.1 added it and NKI 0.3 removed it\n"
        "  hint: remove the keyword and set NEURON_PLATFORM_TARGET_OVERRIDE or run with --target\n"
        "  source: NKI 0.3 release notes"
    )
    np.testing.assert_array_equal(identity(served, "shared_hbm")(ramp(4, 3)), ramp(4, 3))


@pytest.mark.parametrize("served", ["0.2"], indirect=True)
def test_a_name_is_refused_before_the_version_that_added_it(served):
    def host():
        served.nki.simulate(identity(served, "shared_hbm"))  # refused

    with pytest.raises(SpellingError) as caught:
        host()
    assert isinstance(caught.value, AttributeError)
    assert str(caught.value) == (
        f"{marked_line(host)}: nki: NKI 0.2 has no nki.simulate; NKI 0.3 adds it\n"
        "  hint: run the script with nkilab run\n  source: stubs of NKI 0.2 and 0.3"
    )


GONE = {
    "simulate_kernel": "call nki.simulate(kernel)(...), which NKI 0.3 has",
    "baremetal": "call the kernel with arrays, or nki.simulate(kernel)",
    "benchmark": "use nkilab estimate or nkilab profile",
    "profile": "use nkilab profile",
}


@pytest.mark.parametrize("name", GONE)
@pytest.mark.parametrize(
    ("served", "who", "last"), [("", "nki", "0.6"), ("0.2", "NKI 0.2", "0.2")], indirect=["served"]
)
def test_a_function_of_beta_1_is_refused_in_nki_with_what_replaces_it(served, who, last, name):
    def host():
        getattr(served.nki, name)(lambda x: x)  # refused

    with pytest.raises(SpellingError) as caught:
        host()
    assert str(caught.value) == (
        f"{marked_line(host)}: nki: {who} has no nki.{name}; NKI 0.1 removed it\n"
        f"  hint: {GONE[name]}\n  source: stubs of NKI beta1 and {last}"
    )


@pytest.mark.parametrize("served", ["beta1", "2.23"], indirect=True)
def test_beta_1_has_no_package_nki(served):
    def host():
        served.nl.load  # noqa: B018  # refused

    with pytest.raises(SpellingError) as caught:
        host()
    assert str(caught.value) == (
        f"{marked_line(host)}: nki.language: NKI beta1 has no package nki; NKI 0.1 adds it\n"
        "  hint: import neuronxcc.nki"
    )


@pytest.mark.parametrize("served", ["0.2"], indirect=True)
def test_a_name_that_came_back_is_refused_in_between(served):
    def load():
        served.nl.load  # noqa: B018  # refused

    with pytest.raises(SpellingError) as caught:
        load()
    text = (
        "NKI 0.2 has no nl.load; NKI 0.1 removed it and NKI 0.3 brings it back\n"
        "  hint: use nisa.dma_copy(dst, src) to a tile of nl.ndarray\n  source: stubs of NKI beta1 and 0.2"
    )
    assert str(caught.value) == f"{marked_line(load)}: nki.language: {text}"

    def importing():
        from nki.language import load  # noqa: F401  # refused

    with pytest.raises(ImportError) as caught:
        importing()
    assert isinstance(caught.value, SpellingError)
    assert str(caught.value) == f"{marked_line(importing)}: nki.language: {text}"


def test_a_name_that_no_version_of_nki_has_is_refused_without_a_version_too(served):
    def arange():
        served.nl.arange(128)  # refused

    with pytest.raises(SpellingError) as caught:
        arange()
    assert str(caught.value) == (
        f"{marked_line(arange)}: nki.language: nki has no nl.arange; NKI 0.1 removed it\n"
        "  hint: index with slices or nl.ds, or with t.ap(pattern)\n  source: stubs of NKI beta1 and 0.6"
    )


@pytest.mark.parametrize(
    ("name", "version"),
    [("beta1", "beta1"), ("2.23", "beta1"), ("2.25", "beta1"), ("2.26.1", "beta1"), ("nki-0.3", "0.3"),
     ("0.4.0", "0.4"), ("2.27", "0.1"), ("2.29", "0.3"), ("2.32", "0.6")],
)  # fmt: skip
def test_an_sdk_release_names_the_version_it_has(name, version):
    assert version_named(name) == version


def test_a_release_that_never_was_is_no_version():
    with pytest.raises(UsageError) as caught:
        version_named("2.19")
    assert str(caught.value) == (
        "NKI version is 2.19; it must be one of beta1, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7\n"
        "  hint: an SDK release from 2.20 to 2.33 also names one"
    )


def test_a_version_that_does_not_exist_lists_those_that_do():
    with pytest.raises(UsageError) as caught, nkilab.activate(nki="1.9"):
        pass
    assert (
        str(caught.value) == "NKI version is 1.9; it must be one of beta1, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7"
    )


def psum_to_hbm(served):
    nl, nisa = served.nl, served.nisa

    @served.nki.jit
    def kernel(x):
        tile = nl.ndarray((3, 3), nl.float32, buffer=nl.psum)
        data = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=data, src=x)
        nisa.nc_matmul(tile, data, data)
        out = nl.ndarray((3, 3), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)  # refused
        return out

    return kernel


def test_a_transfer_from_psum_is_noticed_without_a_version(served, capsys):
    x = ramp(4, 3)
    np.testing.assert_array_equal(psum_to_hbm(served)(x), x.T @ x)
    assert capsys.readouterr().err == (
        "nkilab: notice: dma_copy from psum: NKI 0.3 removed it; copy the tile to sbuf with tensor_copy "
        "first\n"
    )


@pytest.mark.parametrize("served", ["0.6"], indirect=True)
def test_a_transfer_from_psum_is_refused_where_it_was_removed(served):
    with pytest.raises(SpellingError) as caught:
        psum_to_hbm(served)(ramp(4, 3))
    assert str(caught.value) == (
        f"{marked_line(psum_to_hbm)}: dma_copy: NKI 0.6 does not accept dma_copy from psum; NKI 0.3 "
        "removed it\n"
        "  hint: copy the tile to sbuf with tensor_copy first\n  source: NKI 0.3 release notes"
    )


def test_par_dim_has_no_effect_and_says_so(served, capsys):
    assert served.nl.par_dim(64) == 64
    assert capsys.readouterr().err == (
        "nkilab: notice: nl.par_dim: nki takes the first axis as the partition; the mark has no effect\n"
    )


def bare_names(served):
    """The kernel of the quickstart of SDK 2.27, whose memories have names without an import."""
    nisa = served.nisa

    @served.nki.jit
    def kernel(x):
        tile = sbuf.view(dtype=x.dtype, shape=x.shape)  # noqa: F821  # refused
        nisa.dma_copy(dst=tile, src=x)
        total = psum.view(x.dtype, x.shape)  # noqa: F821
        nisa.tensor_copy(dst=total, src=tile)
        other = served.nl.ndarray(x.shape, x.dtype, buffer=sbuf)  # noqa: F821
        nisa.tensor_copy(dst=other, src=total)
        out = hbm.view(dtype=x.dtype, shape=x.shape, name="out")  # noqa: F821
        nisa.dma_copy(dst=out, src=other)
        return out

    return kernel


BARE = "a memory by its bare name (sbuf, psum, hbm)"


@pytest.mark.parametrize("served", ["0.1", "0.2", ""], indirect=True)
def test_kernels_of_the_first_versions_name_memories_without_an_import(served, capsys):
    np.testing.assert_array_equal(bare_names(served)(ramp(4, 3)), ramp(4, 3))
    noticed = capsys.readouterr().err.splitlines()
    notice = (
        f"nkilab: notice: {BARE}: NKI 0.1 added it and NKI 0.3 removed it; write nl.ndarray(shape, dtype, "
    )
    assert [line for line in noticed if BARE in line] == (
        [] if served.nki._version else [f"{notice}buffer=nl.sbuf)"]
    )


@pytest.mark.parametrize("served", ["0.3", "0.6", "0.7"], indirect=True)
def test_later_versions_have_no_bare_names_of_memories(served):
    kernel = bare_names(served)
    with pytest.raises(SpellingError) as caught:
        kernel(ramp(4, 3))
    assert str(caught.value) == (
        f"{marked_line(kernel.func)}: sbuf: NKI {served.nki._version} does not accept {BARE}; "
        "NKI 0.1 added it and NKI 0.3 removed it\n"
        "  hint: write nl.ndarray(shape, dtype, buffer=nl.sbuf)\n"
        "  source: NKI quickstart of SDK 2.27 and 2.28"
    )


def test_a_package_says_whose_version_it_is():
    with nkilab.activate(nki="0.3"):
        import nki

        assert nki.__version__ == "0.3+nkilab"
    with nkilab.activate():
        import neuronxcc

        # the number of the vendor's compiler is nobody's to make up
        assert not hasattr(neuronxcc, "__version__")
