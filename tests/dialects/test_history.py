"""The tables of names and parameters per version, against lines of the manuals typed by hand."""

from __future__ import annotations

from itertools import pairwise

import pytest

from nkilab.dialects.gate import name_in
from nkilab.dialects.history import (
    BETA1,
    NEWEST,
    RELEASES,
    VERSIONS,
    at,
    canonical_name,
    history,
    keyword_story,
    replacement,
    spelled,
    story,
    versions_with,
)
from nkilab.dialects.serve import every_table

NUMBERED = VERSIONS[1:-1]

# hand: NKI API reference, "new in" and release notes: the versions that have a name
HAVING = {
    "language.load": (BETA1, "0.3", "0.4", "0.5", "0.6", "0.7"),
    "language.arange": (BETA1,),
    "isa.activate2": ("0.4", "0.5", "0.6", "0.7"),
    "isa.topk": ("0.6", "0.7"),
    "isa.exponential": ("0.2", "0.3", "0.4", "0.5", "0.6", "0.7"),
    "isa.tensor_copy_dynamic_src": (BETA1, "0.1", "0.2", "0.3"),
    "isa.register_alloc": VERSIONS[1:],
    "language.fori_loop": ("0.6", "0.7"),
    "language.dynamic_range": NUMBERED,
    "language.tiles": ("0.7",),
    "isa.NkiScalar": ("0.7",),
    "simulate": ("0.3", "0.4", "0.5", "0.6", "0.7"),
    "simulate_kernel": (BETA1,),
    "collectives.all_reduce": VERSIONS[2:],
    "collectives.all_gather_v": ("0.6", "0.7"),
    "tensor.permute": ("0.5", "0.6", "0.7"),
    "tensor.astype": (BETA1,),
    "compiler.sbuf.mod_alloc": (BETA1,),
    "language.tile_size.psum_num_banks": ("0.5", "0.6", "0.7"),
    "isa.nc_matmul": VERSIONS,
}

# hand: parameters as the API reference of each release prints them, the defaults without what they mean
PARAMETERS = [
    ("isa.affine_select", BETA1, "pred on_true_tile on_false_value *mask= *dtype="),
    ("isa.affine_select", "0.2",
     "dst pattern offset channel_multiplier on_true_tile on_false_value cmp_op= name="),
    ("isa.affine_select", "0.3",
     "dst pattern channel_multiplier on_true_tile on_false_value cmp_op= offset= name="),
    ("isa.iota", "0.2", "dst pattern offset channel_multiplier= name="),
    ("isa.iota", "0.6", "dst pattern offset= channel_multiplier= name="),
    ("isa.dma_compute", "0.1", "dst srcs scales reduce_op name="),
    ("isa.dma_compute", "0.3", "dst srcs reduce_op scales= unique_indices= name="),
    ("isa.dma_compute", "0.4", "dst srcs reduce_op scales= unique_indices= oob_mode= name="),
    ("isa.dma_copy", "0.2", "dst src dst_rmw_op= oob_mode= dge_mode= unique_indices= name="),
    ("isa.dma_copy", "0.3", "dst src oob_mode= dge_mode= engine= name="),
    ("isa.dma_copy", "0.6", "dst src priority= oob_mode= dge_mode= engine= name="),
    ("isa.register_move", "0.2", "dst imm"),
    ("isa.register_move", "0.3", "dst src"),
    ("isa.sendrecv", "0.2", "src dst send_to_rank recv_from_rank pipe_id name= *use_gpsimd_dma="),
    ("isa.sendrecv", "0.3", "src dst send_to_rank recv_from_rank pipe_id dma_engine= name="),
    ("isa.tensor_scalar_reduce", "0.5",
     "dst data op0 operand0 reduce_op reduce_res reverse0= reduce_cmd= reduce_init= name="),
    ("isa.nc_stream_shuffle", BETA1, "src dst shuffle_mask *dtype= *mask="),
    ("isa.nc_stream_shuffle", "0.1", "dst src shuffle_mask name="),
    ("language.ndarray", "0.2", "shape dtype buffer= name= *address="),
    ("language.ndarray", "0.3", "shape dtype buffer= name= address="),
    ("language.empty_like", "0.6", "x dtype= buffer= name="),
    ("language.empty_like", "0.7", "x dtype= buffer= name= *transpose_axes= *address="),
    ("language.alloc_tiles", "0.7", "*tile_shape *element_shape *buffer *dtype *address= *name="),
    ("isa.scalar_store", "0.7", "dst value"),
    ("collectives.all_to_all_v_trigger", "0.7", "prepare_instr name="),
    ("language.shared_constant", "0.2", "constant dtype="),
    ("language.shared_constant", "0.3", "constant"),
]  # fmt: skip

DEFAULTS = [
    ("isa.range_select", "0.1", "reduce_cmd", "reduce_cmd.idle"),
    ("isa.range_select", "0.2", "reduce_cmd", "reduce_cmd.reset_reduce"),
    ("isa.range_select", "0.1", "on_false_value", "0.0"),
    ("isa.rng", "0.4", "engine", "engine.unknown"),
    ("isa.rng", "0.5", "engine", "engine.vector"),
    ("isa.rand_get_state", "0.5", "engine", "engine.gpsimd"),
    ("isa.core_barrier", "0.2", "engine", "engine.unknown"),
    ("isa.core_barrier", "0.3", "engine", "engine.gpsimd"),
]


@pytest.mark.parametrize("name", HAVING)
def test_a_name_exists_in_the_versions_the_documents_give_it(name):
    assert versions_with(name) == HAVING[name]


@pytest.mark.parametrize(("name", "version", "words"), PARAMETERS)
def test_parameters_stand_in_the_order_of_the_version(name, version, words):
    event = at(name, version)
    assert event is not None
    told = [
        ("" if p.is_positional else "*") + p.name + ("=" if p.default else "")
        for p in event.signature.parameters
    ]
    assert " ".join(told) == words


@pytest.mark.parametrize(("name", "version", "keyword", "text"), DEFAULTS)
def test_a_default_is_that_of_the_version(name, version, keyword, text):
    event = at(name, version)
    assert event is not None
    parameter = event.signature.named(keyword)
    assert parameter is not None
    assert parameter.default == text


@pytest.mark.parametrize("version", ["0.1", "0.2"])
def test_operators_are_words_before_0_3(version):
    for name in ("add", "exp", "maximum", "relu"):
        event = at(f"language.{name}", version)
        assert event is not None
        assert event.kind == "word"
        later = at(f"language.{name}", "0.3")
        assert later is not None
        assert later.kind == "function"


def test_the_story_of_a_name_says_who_took_it_and_who_brought_it():
    assert story("language.load", "0.2") == "NKI 0.1 removed it and NKI 0.3 brings it back"
    assert story("language.arange", "0.6") == "NKI 0.1 removed it"
    assert story("isa.topk", "0.2") == "NKI 0.6 adds it"
    assert keyword_story("isa.nc_matmul", "accumulate", "0.2") == "NKI 0.3 adds it"
    assert keyword_story("isa.nc_matmul", "mask", "0.6") == "NKI 0.1 removed it"
    assert keyword_story("isa.nc_matmul", "nothing", "0.6") == ""
    assert replacement("isa.tensor_copy_dynamic_src", "0.6") == (
        "use nisa.tensor_copy with src.ap(pattern, scalar_offset=...)"
    )


def test_names_are_spelled_as_users_write_them():
    written = ("nl.load", "nisa.dma_copy", "nki.jit", "nki.collectives.all_reduce", "tensor.permute")
    for text in written:
        assert spelled(canonical_name(text)) == text
    for text in ("nki.language.load", "neuronxcc.nki.language.load", "language.load", "load"):
        assert canonical_name(text) == "language.load"
    assert canonical_name("nl.loda") == ""


def test_a_name_that_is_gone_says_what_to_write_instead():
    mute = [n for n, events in history().items() for e in events if e.kind == "gone" and not e.note]
    assert mute == []


def test_no_release_tells_what_the_one_before_told():
    for name, events in history().items():
        for one, other in pairwise(events):
            told = [(e.kind, e.text, e.extras, e.is_listed) for e in (one, other)]
            # dma_engine becomes an enumeration where it was a constant
            assert told[0] != told[1] or name == "isa.dma_engine", (name, other.release.name)


# Names that are ours alone, or that stand for whole modules.
OWN = ("_private", "nccl", "dtype", "language.constants", "meta", "isa._", "isa.constants")


@pytest.mark.parametrize("spelling", ["neuronxcc", "nki"])
def test_every_name_served_has_a_history(spelling):
    for module, names in every_table(spelling).items():
        for name in names:
            full = name_in(module, name)
            having = set(versions_with(full))
            is_there = BETA1 in having if spelling == "neuronxcc" else having - {BETA1}
            assert is_there or full.startswith(OWN), full


def test_releases_stand_in_order_and_the_newest_with_stubs_is_before_the_last():
    assert [r.sdk for r in RELEASES] == sorted(r.sdk for r in RELEASES)
    assert VERSIONS == (BETA1, "0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7")
    assert NEWEST == "0.6"
