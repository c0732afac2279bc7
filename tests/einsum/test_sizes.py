"""Constants at the top of kernels: with others in place the kernel is another, and right; so is its space."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from ruamel.yaml import YAML

import nkilab.einsum
from nkilab.einsum.compiled import CompiledEinsum
from nkilab.einsum.emit.sizes import expressions, named
from nkilab.einsum.emit.text import inside
from nkilab.einsum.tree.expr import expr, name_of
from nkilab.einsum.tree.nodes import statements
from tests.einsum.baseline import traced_program
from tests.einsum.cascades import CASES, Case

pytestmark = pytest.mark.corpus

PRODUCT = "Z[m, n] = A[m, k] . B[k, n] ;; M mul V add"
ATTENTION = """
    S[m, p] = Q[e, p] . K[e, m] ;; M mul V add
    G[p] = S[m, p] ;; V max
    N[m, p] = S[m, p] . G[p] ;; M binary(subtract_exp)
    D[p] = N[m, p] ;; V add
    A[f, p] = N[m, p] . V[m, f] ;; M mul V add
    Z[f, p] = A[f, p] . D[p] ;; M binary(divide)
"""
NORM = """
    S[m] = X[m, n] . X[m, n] ;; M mul V add
    R[m] = S[m] ;; M unary(rsqrt)
    T[m, n] = X[m, n] . R[m] ;; M mul
    Z[m, n] = T[m, n] . G[n] ;; M mul
"""
CHOSEN = {
    "product": (PRODUCT, {"M": 1024, "N": 1024, "K": 512}),
    "ragged product": (PRODUCT, {"M": 300, "N": 1100, "K": 200}),
    "attention": (ATTENTION, {"E": 64, "P": 512, "M": 512, "F": 64}),
    "norm": (NORM, {"M": 512, "N": 16384}),
    "convolution": (
        "Z[k, p, q] = X[c, p + r, q + s] . F[k, c, r, s] ;; M mul V add",
        {"K": 128, "C": 128, "P": 32, "Q": 64, "R": 3, "S": 3, "X_1": 34, "X_2": 66},
    ),
    "transpose": ("Z[n, m] = A[m, n]", {"M": 1024, "N": 512}),
}


def compiled(name: str, dialect: str = "nki", **changes: int) -> CompiledEinsum:
    """The kernel of an entry of `CHOSEN`."""
    text, sizes = CHOSEN[name]
    return nkilab.einsum.compile(text, sizes={**sizes, **changes}, dialect=dialect)


def with_constants(kernel: CompiledEinsum, **values: int) -> CompiledEinsum:
    """The kernel with other constants at its top."""
    source = kernel.source
    for name, value in values.items():
        source, count = re.subn(rf"^{name} = \d+$", f"{name} = {value}", source, flags=re.MULTILINE)
        assert count == 1, name
    return replace(kernel, source=source)


def space(kernel: CompiledEinsum) -> dict[str, list[int]]:
    """The parameters of its space."""
    parameters: dict[str, list[int]] = YAML(typ="safe").load(kernel.space_text)["parameters"]
    return parameters


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_a_kernel_with_names_builds_the_instructions_of_its_numbers(case: Case, dialect: str) -> None:
    kernel = nkilab.einsum.compile(case.cascade, sizes=case.extents(), dialect=dialect)
    assert kernel.tree is not None
    numbers = nkilab.einsum.compiler.PRINTERS[dialect](kernel.tree).text()
    (first,), (second,) = (
        traced_program(text, kernel.specs, kernel.name) for text in (kernel.source, numbers)
    )
    assert first.opcodes() == second.opcodes()
    assert [f.layouts for f in first.forms] == [f.layouts for f in second.forms]
    np.testing.assert_array_equal(first.form_column, second.form_column)
    np.testing.assert_array_equal(first.storage_column, second.storage_column)
    np.testing.assert_array_equal(first.offset_column, second.offset_column)


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
@pytest.mark.parametrize("name", CHOSEN)
def test_every_size_of_a_space_gives_right_values(name: str, dialect: str) -> None:
    kernel = compiled(name, dialect)
    sizes = space(kernel)
    assert sizes
    for constant, values in sizes.items():
        for value in (values[0], values[-1]):
            for verdict in with_constants(kernel, **{constant: value}).verify():
                assert verdict.is_fine, (constant, value, str(verdict))


@pytest.mark.parametrize("name", ["product", "norm"])
def test_kernels_of_two_sizes_differ_in_their_constants_alone(name: str) -> None:
    lines = [compiled(name, M=size).source.splitlines() for size in (2048, 4096)]
    differing = [(a, b) for a, b in zip(*lines, strict=True) if a != b]
    assert ("M = 2048", "M = 4096") in differing
    assert all(re.fullmatch(r"[A-Z0-9_]+ = \d+", line) for pair in differing for line in pair), differing


def test_a_product_names_its_extents_tiles_and_strides() -> None:
    source = compiled("product", M=4096, K=4096, N=4096).source
    assert "\nM = 4096\n" in source
    assert "\nM_TILE = 128\n" in source
    assert "assert A.shape == (M, K)\n" in source
    assert ".reshape(" not in source
    body = source[source.index("def kernel") :]
    assert not re.search(r"\b\d{2,}\b", body.replace("float32", "")), body


def test_a_window_of_a_convolution_is_a_tile_and_its_edges() -> None:
    # too large to be on chip whole
    source = compiled("convolution", P=1024, X_1=1026).source
    assert "P_TILE + 2" in source


def test_tensors_keep_their_names_where_ranks_are_called_alike() -> None:
    source = compiled("attention", E=128).source
    assert "def kernel(Q, K, V):" in source
    assert not re.search(r"^[QKVZ] = ", source, flags=re.MULTILINE)


def test_what_a_mask_adds_to_positions_fixes_the_tiles_of_its_ranks() -> None:
    masked = "S[m, n] = A[m, n] if m + 3 >= n else -1\nZ[m] = S[m, n] ;; V add"
    kernel = nkilab.einsum.compile(masked, sizes={"M": 512, "N": 512})
    assert kernel.tree is not None
    assert named(kernel.tree, kernel.cascade).fixed == {"M_TILE"}
    assert kernel.space_text == ""


def test_a_tree_with_names_and_its_numbers_in_place_is_the_tree_of_numbers() -> None:
    kernel = compiled("attention")
    assert kernel.tree is not None
    again = named(kernel.tree, kernel.cascade).at({})
    assert [type(s) for s in statements(again.body)] == [type(s) for s in statements(kernel.tree.body)]
    assert all(not n.isupper() for e in expressions(again) for n in e.names)


def test_a_shifted_turn_is_written_as_such() -> None:
    i, tile, size = name_of("i"), name_of("P_TILE"), name_of("P")
    assert str(i * 128 + 128) == "(i + 1) * 128"
    assert str(i * -128 - 128) == "-(i + 1) * 128"
    assert str(i * tile + tile) == "(i + 1) * P_TILE"
    assert str(i + 1) == "i + 1"
    assert str(size // tile - 1) == "P // P_TILE - 1"
    assert str(size // size) == "1"
    assert (size // tile * 2).replaced({"P": expr(512), "P_TILE": expr(128)}) == expr(8)


def test_a_long_call_is_broken_inside_its_last_parentheses() -> None:
    assert inside("dst=a.ap([[1, 2], [3, 4]], offset=f(5, 6)),") == (
        "dst=a.ap(", ["[[1, 2], [3, 4]]", "offset=f(5, 6)"], "),",
    )  # fmt: skip
    assert inside("x = 1 + 2") is None
