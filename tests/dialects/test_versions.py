"""What a version of NKI accepts: everything some version does, with one notice; or exactly one version."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import numpy as np
import pytest
from tests.dialects.spellings import marked_line, ramp

import nkilab
from nkilab.api import WORLD
from nkilab.errors import SpellingError, UsageError


@pytest.fixture
def served(monkeypatch, request):
    """The modules of `nki` under the version that the test asks for, inside an activation."""
    monkeypatch.setattr(WORLD, "_noticed", set())
    with nkilab.activate(nki=getattr(request, "param", "")):
        names = {n: importlib.import_module(f"nki{n}") for n in ("", ".isa", ".language")}
        yield SimpleNamespace(nki=names[""], nisa=names[".isa"], nl=names[".language"])


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
def test_simulate_is_refused_before_the_version_that_added_it(served):
    def host():
        served.nki.simulate(identity(served, "shared_hbm"))  # refused

    with pytest.raises(SpellingError) as caught:
        host()
    assert str(caught.value) == (
        f"{marked_line(host)}: nki.simulate: NKI 0.2 does not accept nki.simulate; NKI 0.3 added it\n"
        "  hint: run the script with nkilab run\n  source: NKI 0.3 release notes"
    )


GONE = {
    "simulate_kernel": "call nki.simulate(kernel)(...)\n  source: NKI 0.3 release notes",
    "baremetal": "call the kernel with arrays, or nki.simulate(kernel)\n  source: NKI 0.1 stubs",
    "benchmark": "use nkilab estimate or nkilab profile\n  source: NKI 0.1 stubs",
    "profile": "use nkilab profile\n  source: NKI 0.1 stubs",
}


@pytest.mark.parametrize("name", GONE)
@pytest.mark.parametrize(
    ("served", "told"), [("", "0.6"), ("0.2", "0.2"), ("beta1", "0.6")], indirect=["served"]
)
def test_a_function_of_beta_1_is_refused_in_nki_with_what_replaces_it(served, told, name):
    def host():
        getattr(served.nki, name)(lambda x: x)  # refused

    with pytest.raises(SpellingError) as caught:
        host()
    assert isinstance(caught.value, TypeError)
    assert str(caught.value) == (
        f"{marked_line(host)}: nki.{name}: NKI {told} does not accept nki.{name}; NKI 0.1 removed it\n"
        f"  hint: {GONE[name]}"
    )


def test_a_version_that_does_not_exist_lists_those_that_do():
    with pytest.raises(UsageError) as caught, nkilab.activate(nki="1.9"):
        pass
    assert str(caught.value) == "NKI version is 1.9; it is one of beta1, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7"


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
