"""Transfers that bring many blocks, rows or turns at once, in both spellings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

import nkilab.einsum
from nkilab.einsum.report import transfers
from nkilab.einsum.tree.nodes import PSUM, Activate, Alloc, Load, Loop, Reduce, Statement, Store, statements

pytestmark = pytest.mark.corpus

REFLECTION = """
S[] = V[m] . V[m] ;; M mul V add
R[] = S[] ;; M unary(reciprocal)
W[n] = V[m] . A[m, n] ;; M mul V add
X[n] = W[n] . R[] ;; M mul
Z[m, n] = A[m, n] . X[n] ;; M binary(subtract)
"""
RECURRENCE = """
einsum:
  declaration:
    K: [T, D]
    V: [T, F]
    G: [T]
    S: [T1, D, F]
    E: [T, F]
    U: [T, D, F]
    O: [T, F]
  expressions:
    - "S[0, d, f] = const(0)"
    - iterate: t
      body:
        - "E[t, f] = V[t, f] . G[t] ;; M mul"
        - "U[t, d, f] = K[t, d] . E[t, f] ;; M mul"
        - "S[t+1, d, f] = S[t, d, f] . U[t, d, f] ;; M add"
        - "O[t, f] = K[t, d] . S[t+1, d, f] ;; M mul V add"
"""
LOGSUM = """
L[m] = X[j, m] ;; V max
E[j, m] = X[j, m] . L[m] ;; M binary(subtract_exp)
Z[m] = E[j, m] ;; V add
"""


def recurrence(k: np.ndarray, v: np.ndarray, g: np.ndarray) -> np.ndarray:
    """What RECURRENCE computes: state t is the sum of the outer products so far."""
    states = np.cumsum(np.einsum("td,tf->tdf", k, v * g[:, None]), 0)
    return np.einsum("td,tdf->tf", k, states)


@dataclass(frozen=True)
class Case:
    """A cascade, extents, shapes of its inputs, and what it computes."""

    text: str
    sizes: dict[str, int]
    shapes: tuple[tuple[int, ...], ...]
    wanted: Callable[..., np.ndarray]


CASES = {
    "turned copy": Case(
        "Z[n, m] = A[m, n] ;; M unary(exp)", {"M": 512, "N": 256}, ((512, 256),), lambda a: np.exp(a).T
    ),
    "turned operand": Case(
        "Z[m, n] = A[m, k] . B[k, n] ;; M mul V add",
        {"M": 256, "K": 384, "N": 96},
        ((256, 384), (384, 96)),
        lambda a, b: a @ b,
    ),
    "turned result": Case(
        "Z[i, j, r] = A[i, j, k] . U[k, r] ;; M mul V add",
        {"I": 256, "J": 3, "K": 256, "R": 32},
        ((256, 3, 256), (256, 32)),
        lambda a, u: a @ u,
    ),
    "batches": Case(
        "Z[b, m, n] = A[b, m, k] . C[b, k, n] ;; M mul V add",
        {"B": 5, "M": 256, "N": 200, "K": 64},
        ((5, 256, 64), (5, 64, 200)),
        lambda a, c: a @ c,
    ),
    "several nests": Case(
        REFLECTION, {"M": 512, "N": 256}, ((512,), (512, 256)), lambda v, a: a - (v @ a / (v @ v))[None]
    ),
    "several nests, ragged": Case(
        REFLECTION, {"M": 300, "N": 140}, ((300,), (300, 140)), lambda v, a: a - (v @ a / (v @ v))[None]
    ),
    "turns": Case(
        RECURRENCE, {"T": 96, "T1": 97, "D": 40, "F": 130}, ((96, 40), (96, 130), (96,)), recurrence
    ),
    "turns that nothing divides": Case(
        RECURRENCE, {"T": 67, "T1": 68, "D": 128, "F": 64}, ((67, 128), (67, 64), (67,)), recurrence
    ),
    "in PSUM": Case(LOGSUM, {"J": 512, "M": 128}, ((512, 128),), lambda x: np.exp(x - x.max(0)).sum(0)),
}


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
@pytest.mark.parametrize("name", CASES)
def test_what_is_moved_at_once_is_moved_right(name: str, dialect: str) -> None:
    case, random = CASES[name], np.random.default_rng(0)
    compiled = nkilab.einsum.compile(case.text, sizes=case.sizes, dialect=dialect)
    arrays = [random.standard_normal(s).astype(np.float32) for s in case.shapes]
    if case.text == REFLECTION:
        inputs = dict(zip(("V", "A"), arrays, strict=True))
        arrays = [inputs[n] for n in compiled.inputs]
        wanted = case.wanted(inputs["V"], inputs["A"])
    else:
        inputs = dict(zip(compiled.inputs, arrays, strict=True))
        wanted = case.wanted(*(a.astype(np.float64) for a in arrays))
    # float32 sums of at most 512 products; the recurrence adds up 96 of them
    np.testing.assert_allclose(
        compiled(*arrays), wanted, rtol=1e-4, atol=1e-3 * max(1.0, np.abs(wanted).max() / 100)
    )


def count(body: list[Statement], kind: type[Statement]) -> int:
    """How often statements of a kind run."""
    return sum(
        int(str(s.trips)) * count(s.body, kind) if isinstance(s, Loop) else isinstance(s, kind) for s in body
    )


def tree(text: str, sizes: dict[str, int], dtypes: str = "float32") -> list[Statement]:
    compiled = nkilab.einsum.compile(text, sizes=sizes, dtypes=dtypes)
    assert compiled.tree is not None
    return compiled.tree.body


def test_a_tensor_is_turned_with_transfers_of_a_mebibyte() -> None:
    # 128 columns of 4096 rows of bfloat16 are 1 MiB: 32 loads and 32 stores for 4096 x 4096, not 1024 loads
    body = tree("Z[n, m] = A[m, n]", {"M": 4096, "N": 4096}, "bfloat16")
    assert (count(body, Load), count(body, Store)) == (32, 32)


def test_results_of_a_batch_are_stored_at_once() -> None:
    # a batch of 512 x 64 and 64 x 512: two loads and one store
    body = tree(CASES["batches"].text, {"B": 16, "M": 512, "N": 512, "K": 64}, "bfloat16")
    # a result of 512 KiB takes longer to move than to issue; operands of 64 KiB come several together
    assert count(body, Load) < 16
    assert count(body, Store) <= 16


def test_what_a_nest_loads_the_next_one_reads() -> None:
    # 8192 rows of 128 columns are 4 MiB: four loads of A per tile of n, for both nests that read it
    body = tree(REFLECTION, {"M": 8192, "N": 1024})
    loads = [s for s in statements(body) if isinstance(s, Load) and s.src.buffer.name == "A"]
    assert len(loads) == 1
    assert count(body, Load) == 8 * 4 + 2


def test_pieces_of_many_turns_are_one_transfer() -> None:
    # 32 turns at once: K as columns and as rows, V and G, and the results
    stepwise = RECURRENCE.replace("V[t, f] . G[t] ;; M mul", "V[t, f] . S[t, 0, f] ;; M mul")
    body = tree(stepwise, {"T": 256, "T1": 257, "D": 64, "F": 64})
    assert count(body, Load) <= 8 * 4
    assert count(body, Store) <= 8


def test_transposed_columns_that_vector_engine_reads_stay_in_psum() -> None:
    body = tree(LOGSUM, {"J": 512, "M": 128})
    transposed = [
        s.buffer for s in statements(body) if isinstance(s, Alloc) and s.buffer.name.startswith("turned")
    ]
    assert [b.memory for b in transposed] == [PSUM]
    assert not [s for s in statements(body) if type(s).__name__ == "Copy"]


def test_scalar_engine_sums_rows_where_vector_engine_multiplies() -> None:
    # Y = A . x on VectorE is a product and a sum of 4096 elements a block; the sums go to ScalarE
    text = "Y[m] = A[m, k] . X[m, k] ;; M mul V add"
    body = tree(text, {"M": 1024, "K": 4096})
    assert not [s for s in statements(body) if isinstance(s, Reduce)]
    assert [s.function for s in statements(body) if isinstance(s, Activate)] == ["copy"]


def transfers_of(kernel: nkilab.einsum.CompiledEinsum, tensor: str) -> int:
    """Transfers that a kernel makes of a tensor, loops unrolled."""

    def count(body: list[Statement], turns: int) -> int:
        loops = [s for s in body if isinstance(s, Loop)]
        own = sum(isinstance(s, Load) and s.src.buffer.tensor == tensor for s in body)
        return own * turns + sum(count(s.body, turns * s.turns_at({})) for s in loops)

    assert kernel.tree is not None
    return count(kernel.tree.body, 1)


def test_both_operands_of_a_product_that_fit_together_are_read_once() -> None:
    # in bfloat16 each takes 64 KiB of the 208 KiB of a partition; B was read 16 times
    sizes = dict.fromkeys("MNK", 2048)
    kernel = nkilab.einsum.compile(
        "Z[m, n] = A[k, m] . B[k, n] ;; M mul V add", sizes=sizes, dtypes=dict.fromkeys("ABZ", "bfloat16")
    )
    assert max(transfers_of(kernel, name) for name in "AB") <= 16


def test_whole_blocks_of_ragged_operands_come_at_once() -> None:
    # 7 blocks of 128 rows and 104 more: 64 transfers if each tile of A came by itself
    kernel = nkilab.einsum.compile(
        "Z[m, n] = A[m, k] . B[k, n] ;; M mul V add", sizes=dict.fromkeys("MNK", 1000),
        dtypes=dict.fromkeys("ABZ", "bfloat16"),
    )  # fmt: skip
    assert transfers_of(kernel, "A") <= 8
    assert transfers_of(kernel, "B") <= 8


@pytest.mark.corpus(drawn=False)
def test_weights_that_no_turn_exchanges_take_one_buffer() -> None:
    # 43 KiB of a partition each; U took two buffers, did not fit, and was read anew for every 128 rows of X
    text = """
    G[m, f] = X[k, m] . W[k, f] ;; M mul V add
    H[m, f] = X[k, m] . U[k, f] ;; M mul V add
    P[m, f] = G[m, f] . H[m, f] ;; M mul
    Z[m, n] = P[m, f] . V[f, n] ;; M mul V add
    """
    sizes = {"M": 512, "K": 1024, "F": 2736, "N": 1024}
    types = dict.fromkeys("XWUVZ", "bfloat16")
    kernel = nkilab.einsum.compile(text, sizes=sizes, dtypes=types)
    # a transfer per 128 rows of K at most
    assert max(transfers_of(kernel, name) for name in "WU") <= 8


@pytest.mark.corpus(drawn=False)
def test_what_is_on_chip_whole_is_not_loaded_again_in_parts() -> None:
    text = """
SB[r, m] = AI[r, n] . DO[m, n] ;; M mul V add
SA[r, n] = B[r, m] . DO[m, n] ;; M mul V add
IA[k, n] = A[r, k] . SA[r, n] ;; M mul V add
IW[k, n] = W[k, m] . DO[m, n] ;; M mul V add
DI[k, n] = IA[k, n] . IW[k, n] ;; M add
"""
    sizes = {"R": 128, "M": 4096, "N": 1024, "K": 2048}
    types = dict.fromkeys(("AI", "DO", "B", "A", "W", "SB", "DI"), "bfloat16")
    kernel = nkilab.einsum.compile(text, sizes=sizes, dtypes=types, outputs=["SB", "DI"])
    moved = sum(size for t, size in transfers(kernel.tree.body, 1, kernel.extents) if t.name == "DO")
    # once with m on the partitions, once with n
    assert moved == 2 * 4096 * 1024 * 2


def test_scores_of_one_token_leave_psum_together() -> None:
    text = "L[h, s] = Q[h, e] . K[h, e, s] ;; M mul V add; G[h] = L[h, s] ;; V max"
    types = dict.fromkeys(("Q", "K", "G"), "bfloat16")
    for dialect in ("nki", "neuronxcc"):
        kernel = nkilab.einsum.compile(
            text, sizes={"H": 4, "E": 128, "S": 2048}, dtypes=types, dialect=dialect
        )
        # per head 16 products of 128 keys; two more for the greatest of all partitions
        assert kernel.estimate.program.opcodes()["nc_matmul"] >= 64
        copies = kernel.estimate.program.opcodes()["tensor_copy"]
        # where the timing model finds products of their own for each tile as fast, copies may stay
        assert copies <= 4 * 4 or "K[h, e, s] stationary" in " ".join(kernel.changes)
        assert not [str(v) for v in kernel.verify() if not v.is_fine]
