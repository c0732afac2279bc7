"""Proofs over loop trees hold for what the compiler makes, and fail for what somebody broke."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nkilab.einsum.language.extents import sized
from nkilab.einsum.language.forms import spec_from
from nkilab.einsum.plan.lower import lower
from nkilab.einsum.prove import ProofError, prove
from nkilab.einsum.tree import nodes
from nkilab.einsum.tree.expr import expr
from nkilab.einsum.tree.nodes import Kernel, Loop, Statement
from nkilab.machine import machine_named
from tests.einsum.cascades import CASES, Case

TRN2 = machine_named("trn2")
PRODUCT = "Z[m, n] = A[k, m] . B[k, n] ;; M mul V add"


def tree_of(text: str, **sizes: int) -> Kernel:
    cascade = sized(spec_from(text).cascade, sizes)
    kernel, _ = lower(cascade, dict.fromkeys(cascade.tensors, "float32"), TRN2, "kernel")
    return kernel


def body_with(kernel: Kernel, kind: type[Statement]) -> list[Statement]:
    """The innermost body that has a statement of a kind."""

    def search(body: list[Statement]) -> list[Statement] | None:
        for statement in body:
            if isinstance(statement, Loop):
                found = search(statement.body)
                if found is not None:
                    return found
        return body if any(isinstance(s, kind) for s in body) else None

    found = search(kernel.body)
    assert found is not None
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_what_the_compiler_makes_is_proved(case: Case) -> None:
    cascade = sized(case.cascade, case.extents())
    kernel, _ = lower(cascade, dict.fromkeys(cascade.tensors, "float32") | {"IX": "int32"}, TRN2, "kernel")
    assert len(prove(kernel, TRN2)) == 4


def test_a_kernel_that_leaves_out_a_ragged_edge_is_refused() -> None:
    kernel = tree_of("Z[m, n] = A[m, n] ;; M unary(exp)", M=300, N=40)
    (loop,) = (s for s in kernel.body if isinstance(s, Loop))
    shorter = [replace(s, trips=2) if s is loop else s for s in kernel.body]
    with pytest.raises(ProofError, match="Z is not stored whole"):
        prove(replace(kernel, body=shorter), TRN2)


def test_a_load_that_nobody_made_is_noticed() -> None:
    kernel = tree_of("Z[m, n] = A[m, n] ;; M unary(exp)", M=300, N=40)
    body = body_with(kernel, nodes.Load)
    body[:] = [s for s in body if not isinstance(s, nodes.Load)]
    with pytest.raises(ProofError, match="reads of a_tile what nothing wrote before"):
        prove(kernel, TRN2)


def test_an_access_beyond_the_edge_is_noticed() -> None:
    kernel = tree_of("Z[m, n] = A[m, n] ;; M unary(exp)", M=300, N=40)
    (loop,) = (s for s in kernel.body if isinstance(s, Loop))
    longer = [replace(s, trips=4) if s is loop else s for s in kernel.body]
    with pytest.raises(ProofError, match="touches more than"):
        prove(replace(kernel, body=longer), TRN2)


def test_a_sum_that_is_read_while_it_grows_is_refused() -> None:
    kernel = tree_of(PRODUCT, M=64, N=64, K=512)
    inner = body_with(kernel, nodes.MatMul)
    (product,) = (s for s in inner if isinstance(s, nodes.MatMul))
    copy = next(s for s in nodes.statements(kernel.body) if isinstance(s, nodes.Copy))
    inner.append(copy)
    assert product.dst.buffer is copy.src.buffer
    with pytest.raises(ProofError, match="before its sum is complete"):
        prove(kernel, TRN2)


def test_a_tile_with_too_many_partitions_is_refused() -> None:
    kernel = tree_of(PRODUCT, M=64, N=64, K=64)
    wide = nodes.Alloc(nodes.Buffer("wide", (expr(129), expr(4)), "float32", nodes.SBUF))
    with pytest.raises(ProofError, match="wide has 129 partitions"):
        prove(replace(kernel, body=[wide, *kernel.body]), TRN2)
