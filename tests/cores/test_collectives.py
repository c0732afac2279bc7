"""Collectives against NumPy, over groups, types, shapes and memories; and every way in which they end."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nkilab
from nkilab.errors import DeadlockError, NkilabError, RuleError, UseError
from tests.dialects.spellings import marked_line
from tests.dialects.spellings import nisa2 as nisa
from tests.dialects.spellings import nki2 as nki
from tests.dialects.spellings import nl2 as nl
from tests.examples import examples

with nkilab.activate():
    import nki.collectives as ncc

TYPES = [np.float32, np.int32, np.float16, ml_dtypes.bfloat16]
REDUCTIONS = {"add": np.add, "minimum": np.minimum, "maximum": np.maximum}
NODES = nkilab.Topology(ranks_per_chip=1, ranks_per_node=1)


def copied(x: Any, name: str) -> Any:
    """A copy of an input in memory that all cores of a rank see."""
    tile = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name=name)
    nisa.dma_copy(tile, x)
    return tile


def result_like(x: Any, *shape: int, name: str = "dst") -> Any:
    return nl.ndarray(shape or x.shape, x.dtype, buffer=nl.shared_hbm, name=name)


@nki.jit
def reduces(x, group, op):
    dst = result_like(x)
    ncc.all_reduce([copied(x, "src")], [dst], group, op)
    return dst


@nki.jit
def gathers(x, group, n):
    dst = result_like(x, n * x.shape[0], *x.shape[1:])
    ncc.all_gather([copied(x, "src")], [dst], group, 0)
    return dst


@nki.jit
def scatters(x, group, n, op):
    dst = result_like(x, x.shape[0] // n, *x.shape[1:])
    ncc.reduce_scatter([copied(x, "src")], [dst], group, 0, op)
    return dst


@nki.jit
def swaps(x, group):
    dst = result_like(x)
    ncc.all_to_all([copied(x, "src")], [dst], group, 0)
    return dst


@nki.jit
def passes_on(x, group):
    dst = result_like(x)
    ncc.collective_permute_implicit([[copied(x, "src")]], [[dst]], group)
    return dst


@nki.jit
def passes_sums_on(x, y, group, op):
    dst = result_like(x)
    ncc.collective_permute_implicit_reduce([[copied(x, "a")]], [[copied(y, "b")]], [[dst]], group, op)
    return dst


@nki.jit
def on_chip(x, group, n, dim):
    tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, x)
    rows, columns = x.shape
    shape = (n * rows, columns) if dim == 0 else (rows, n * columns)
    together = nl.ndarray(shape, x.dtype, buffer=nl.sbuf)
    ncc.all_gather([tile], [together], group, dim)
    total = nl.ndarray(shape, x.dtype, buffer=nl.sbuf)
    ncc.all_reduce([together], [total], group, nl.maximum)
    out = result_like(x, *shape)
    nisa.dma_copy(out, total)
    return out


@st.composite
def partitions(draw: Any) -> list[list[int]]:
    """Groups of equal size over 2 to 6 ranks, in any order."""
    size, count = draw(st.sampled_from([(1, 3), (2, 1), (2, 2), (3, 1), (3, 2), (4, 1), (2, 3)]))
    ranks = draw(st.permutations(range(size * count)))
    return [list(ranks[i * size : (i + 1) * size]) for i in range(count)]


def own(groups: list[list[int]], rank: int) -> list[int]:
    return next(group for group in groups if rank in group)


def drawn(seed: int, ranks: int, shape: tuple[int, ...], dtype: Any) -> list[np.ndarray]:
    # small whole numbers: sums are exact in every type and order
    draw = np.random.default_rng(seed)
    return [draw.integers(-8, 9, shape).astype(dtype) for _ in range(ranks)]


CASES = given(
    partitions(),
    st.sampled_from(TYPES),
    st.sampled_from([(1,), (3,), (2, 5), (4, 1, 3)]),
    st.sampled_from(list(REDUCTIONS)),
    st.integers(0, 99),
)


@settings(max_examples=examples(25), deadline=None)
@CASES
def test_reductions_are_numpys(groups: Any, dtype: Any, tail: Any, op: str, seed: int) -> None:
    ranks, n = sum(map(len, groups)), len(groups[0])
    xs = drawn(seed, ranks, (n * 2, *tail), dtype)
    group, how = ncc.ReplicaGroup(groups), getattr(nl, op)
    everywhere = nkilab.launch(reduces, ranks)(nkilab.per_rank(xs), group, how)
    parts = nkilab.launch(scatters, ranks)(nkilab.per_rank(xs), group, n, how)
    for rank in range(ranks):
        members = own(groups, rank)
        expected = REDUCTIONS[op].reduce([xs[r].astype(np.float64) for r in members]).astype(dtype)
        assert everywhere[rank].dtype == np.dtype(dtype)
        np.testing.assert_array_equal(everywhere[rank], expected)
        at = 2 * members.index(rank)
        np.testing.assert_array_equal(parts[rank], expected[at : at + 2])


@settings(max_examples=examples(25), deadline=None)
@CASES
def test_moves_are_numpys(groups: Any, dtype: Any, tail: Any, op: str, seed: int) -> None:
    ranks, n = sum(map(len, groups)), len(groups[0])
    xs = drawn(seed, ranks, (n * 2, *tail), dtype)
    group = ncc.ReplicaGroup(groups)
    together = nkilab.launch(gathers, ranks)(nkilab.per_rank(xs), group, n)
    swapped = nkilab.launch(swaps, ranks)(nkilab.per_rank(xs), group)
    passed = nkilab.launch(passes_on, ranks)(nkilab.per_rank(xs), group)
    for rank in range(ranks):
        members = own(groups, rank)
        place = members.index(rank)
        np.testing.assert_array_equal(together[rank], np.concatenate([xs[r] for r in members]))
        parts = [xs[r][2 * place : 2 * place + 2] for r in members]
        np.testing.assert_array_equal(swapped[rank], np.concatenate(parts))
        np.testing.assert_array_equal(passed[rank], xs[members[place - 1]])


@settings(max_examples=examples(10), deadline=None)
@CASES
def test_a_ring_passes_what_it_reduced(groups: Any, dtype: Any, tail: Any, op: str, seed: int) -> None:
    ranks = sum(map(len, groups))
    xs, ys = (drawn(seed + k, ranks, (2, *tail), dtype) for k in range(2))
    group, how = ncc.ReplicaGroup(groups), getattr(nl, op)
    passed = nkilab.launch(passes_sums_on, ranks)(nkilab.per_rank(xs), nkilab.per_rank(ys), group, how)
    for rank in range(ranks):
        before = own(groups, rank)[own(groups, rank).index(rank) - 1]
        np.testing.assert_array_equal(passed[rank], REDUCTIONS[op](xs[before], ys[before]))


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("cores", [1, 2])
def test_tiles_in_sbuf_are_gathered_along_either_axis(dim: int, cores: int) -> None:
    xs = drawn(3, 4, (8, 6), np.float32)
    group = ncc.ReplicaGroup([[0, 1], [3, 2]])
    results = nkilab.launch(on_chip[cores], 4)(nkilab.per_rank(xs), group, 2, dim)
    for rank, members in enumerate([[0, 1], [0, 1], [3, 2], [3, 2]]):
        np.testing.assert_array_equal(results[rank], np.concatenate([xs[r] for r in members], dim))


def test_sums_are_rounded_once() -> None:
    # hand: 256 + 1 + 1 + ... in bfloat16 stays 256 if every step rounds; 256 + 7 = 263 rounds to 264
    xs = [np.full((1, 1), 256 if rank == 0 else 1, ml_dtypes.bfloat16) for rank in range(8)]
    results = nkilab.launch(reduces, 8)(nkilab.per_rank(xs), ncc.ReplicaGroup([list(range(8))]), nl.add)
    assert [float(r[0, 0]) for r in results] == [264.0] * 8


def test_several_tensors_in_hbm_go_together() -> None:
    @nki.jit
    def kernel(x, y, group):
        a, b = result_like(x, name="a"), result_like(y, name="b")
        ncc.all_reduce([copied(x, "c"), copied(y, "d")], [a, b], group, nl.add)
        return a, b

    xs, ys = drawn(1, 2, (4, 2), np.float32), drawn(2, 2, (3,), np.int32)
    results = nkilab.launch(kernel, 2)(nkilab.per_rank(xs), nkilab.per_rank(ys), ncc.ReplicaGroup([[0, 1]]))
    for a, b in results:
        np.testing.assert_array_equal(a, xs[0] + xs[1])
        np.testing.assert_array_equal(b, ys[0] + ys[1])


def test_pairs_swap_and_others_stay_as_they_are() -> None:
    @nki.jit
    def kernel(x):
        dst = copied(x, "dst")
        ncc.collective_permute([copied(x, "src")], [dst], [(0, 2), (2, 0)])
        return dst

    xs = [np.full((2, 2), rank, np.float32) for rank in range(3)]
    results = nkilab.launch(kernel, 3)(nkilab.per_rank(xs))
    assert [r[0, 0] for r in results] == [2, 1, 0]


@nki.jit
def turns_of_a_ring(x, group, n):
    """What each rank holds after every turn, in the row that the ring says."""
    out = result_like(x, n, *x.shape, name="out")
    carried, free = copied(x, "held"), result_like(x, name="free")
    for turn in range(n):
        of = ncc.collective_permute_implicit_current_processing_rank_id(turn, group)
        size = x.shape[0] * x.shape[1]
        there = out.ap([[x.shape[1], x.shape[0]], [1, x.shape[1]]], scalar_offset=of, indirect_dim=0)
        assert size
        nisa.dma_copy(there, carried)
        ncc.collective_permute_implicit([[carried]], [[free]], group)
        carried, free = free, carried
    return out


def test_a_ring_brings_every_rank_its_data_in_turn() -> None:
    xs = drawn(5, 4, (2, 3), np.float32)
    results = nkilab.launch(turns_of_a_ring, 4)(nkilab.per_rank(xs), ncc.ReplicaGroup([[0, 1, 2, 3]]), 4)
    for result in results:
        np.testing.assert_array_equal(result, np.stack(xs))


def test_rank_id_chooses_what_a_rank_reads() -> None:
    @nki.jit
    def kernel(x):
        out = result_like(x, *x.shape[1:])
        pattern = [[x.shape[2], x.shape[1]], [1, x.shape[2]]]
        nisa.dma_copy(out, x.ap(pattern, scalar_offset=ncc.rank_id(name="me"), indirect_dim=0))
        return out

    x = drawn(6, 1, (3, 2, 4), np.float32)[0]
    for rank, result in enumerate(nkilab.launch(kernel, 3)(x)):
        np.testing.assert_array_equal(result, x[rank])


@nki.jit
def sends_varying(x, counts, group, size):
    dst = result_like(x, size)
    zeros = nl.ndarray((1, size), x.dtype, buffer=nl.sbuf)
    nisa.memset(zeros, 0)
    nisa.dma_copy(dst.reshape((1, size)), zeros)
    metadata = copied(counts, "metadata")
    ncc.all_to_all_v([copied(x, "src")], [dst], group, metadata)
    return dst, metadata


def test_every_rank_sends_as_much_as_its_counts_say() -> None:
    # hand: rank r sends 1 + (r + d) % 3 elements to d, from place d; slots of 4
    n, slot = 3, 4
    xs = [np.arange(8, dtype=np.float32) + 100 * r for r in range(n)]
    sent = np.array([[1 + (r + d) % 3 for d in range(n)] for r in range(n)])
    counts = [np.array([sent[r], range(n), [0] * n], np.uint32) for r in range(n)]
    results = nkilab.launch(sends_varying, n, topology=NODES)(
        nkilab.per_rank(xs), nkilab.per_rank(counts), ncc.ReplicaGroup([[0, 1, 2]]), n * slot
    )
    for rank, (dst, metadata) in enumerate(results):
        expected = np.zeros(n * slot, np.float32)
        for r in range(n):
            expected[r * slot : r * slot + sent[r, rank]] = xs[r][rank : rank + sent[r, rank]]
        np.testing.assert_array_equal(dst, expected)
        np.testing.assert_array_equal(metadata[2], sent[:, rank])


def test_a_rank_gathers_as_much_as_each_sends() -> None:
    @nki.jit
    def kernel(x, counts, group):
        if nl.program_id(0) == 0:
            dst = result_like(x, 16)
        else:
            dst = result_like(x, 16)
        ncc.all_gather_v([copied(x, "src")], [dst], group, copied(counts, "metadata"), recv_counts_known=True)
        return dst

    xs = [np.arange(6, dtype=np.float32) + 10 * r for r in range(4)]
    counts = [np.array([[r, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]], np.uint32) for r in range(4)]
    with pytest.warns(Warning, match="written in part only"):
        results = nkilab.launch(kernel[2], 4)(
            nkilab.per_rank(xs), nkilab.per_rank(counts), ncc.ReplicaGroup([[0, 1, 2, 3]])
        )
    for result in results:
        for r in range(4):
            np.testing.assert_array_equal(result[4 * r : 4 * r + r], xs[r][1 : 1 + r])


def test_a_collective_of_one_rank_is_a_copy() -> None:
    x = drawn(7, 1, (2, 3), np.float32)[0]
    np.testing.assert_array_equal(reduces(x, ncc.ReplicaGroup([[0]]), nl.add), x)


# how launches end that cannot go on


def ended(kernel: Any, ranks: int, *args: Any, kind: Any = RuleError, **how: Any) -> str:
    """The message, the place of the line marked "# refused" in it replaced by HERE."""
    with pytest.raises(kind) as caught:
        nkilab.launch(kernel, ranks, **how)(*args)
    return str(caught.value).replace(marked_line(kernel.function), "HERE")


X = np.ones((4, 4), np.float32)
BOTH = [[0, 1]]


def test_ranks_that_call_different_collectives_are_told_where_all_stand() -> None:
    @nki.jit
    def kernel(x, group, me):
        src, dst = copied(x, "src"), result_like(x)
        if me == 0:
            ncc.all_reduce([src], [dst], group, nl.add)
        ncc.all_to_all([src], [dst], group, 0)  # refused
        return dst

    message = ended(kernel, 2, X, ncc.ReplicaGroup(BOTH), nkilab.per_rank([0, 1]))
    file, _, line = marked_line(kernel.function).partition(":")
    before = f"{file}:{int(line) - 1}"
    assert message == (
        "HERE: all_to_all: the call is all_to_all in rank 1 and all_reduce in rank 0\n"
        f"  rank 0 is at {before} in all_reduce of float32[4, 4] with ranks [0, 1]\n"
        "  rank 1 is at HERE in all_to_all of float32[4, 4] with ranks [0, 1]\n"
        "  hint: let all ranks of a group come to the same collectives, in the same order\n"
        "  source: nki.collectives"
    )


def test_a_rank_that_does_not_come_is_a_deadlock_that_shows_every_rank() -> None:
    @nki.jit
    def kernel(x, group, me):
        dst = copied(x, "dst")
        if me != 2:
            ncc.all_reduce([copied(x, "src")], [dst], group, nl.add)  # refused
        return dst

    message = ended(
        kernel, 3, X, ncc.ReplicaGroup([[0, 1, 2]]), nkilab.per_rank([0, 1, 2]), kind=DeadlockError
    )
    assert message == (
        "HERE: all_reduce: nobody can run: each program waits for one that does not come\n"
        "  rank 0 waits at HERE for all_reduce of float32[4, 4] with ranks [0, 1, 2]\n"
        "  rank 1 waits at HERE for all_reduce of float32[4, 4] with ranks [0, 1, 2]\n"
        "  rank 2 has returned\n"
        "  hint: let all ranks of a group come to the same collectives, in the same order\n"
        "  source: nki.collectives"
    )


def test_groups_that_cross_are_a_deadlock() -> None:
    @nki.jit
    def kernel(x, first, second):
        dst = result_like(x)
        ncc.all_reduce([copied(x, "src")], [dst], first, nl.add)  # refused
        ncc.all_reduce([dst], [copied(x, "other")], second, nl.add)
        return dst

    three = [
        ncc.ReplicaGroup([[0, 1], [2]]),
        ncc.ReplicaGroup([[1, 2], [0]]),
        ncc.ReplicaGroup([[0, 2], [1]]),
    ]
    message = ended(
        kernel, 3, X, nkilab.per_rank(three), nkilab.per_rank(three[1:] + three[:1]), kind=DeadlockError
    )
    assert "rank 0 waits at HERE" in message


def test_one_ranks_exception_stops_all_with_its_own_message() -> None:
    @nki.jit
    def kernel(x, group, me):
        dst = copied(x, "dst")
        if me == 1:
            raise KeyError("mine")  # refused
        ncc.all_reduce([copied(x, "src")], [dst], group, nl.add)
        return dst

    with pytest.raises(KeyError, match="mine") as caught:
        nkilab.launch(kernel, 3)(X, ncc.ReplicaGroup([[0, 1, 2]]), nkilab.per_rank([0, 1, 2]))
    file, _, line = marked_line(kernel.function).partition(":")
    assert caught.value.__notes__ == [
        f"raised in rank 1 of 3\n  rank 0 waits at {file}:{int(line) + 1} for all_reduce of float32[4, 4] "
        "with ranks [0, 1, 2]\n  rank 2 has not started"
    ]


REFUSED = [
    ("add", [[0]], "rank 1 is in no group of [[0]]"),
    ("add", [[0, 5]], "replica_group names rank 5; this launch has ranks 0 to 1"),
    ("multiply", BOTH, "op is not add, minimum or maximum"),
]


@pytest.mark.parametrize(("op", "groups", "text"), REFUSED, ids=[text for *_, text in REFUSED])
def test_a_group_or_operator_that_does_not_fit_is_refused(op: str, groups: Any, text: str) -> None:
    with pytest.raises(RuleError, match=re.escape(text)):
        nkilab.launch(reduces, 2)(X, ncc.ReplicaGroup(groups), getattr(nl, op))


BAD_PAIRS = [
    ([(0, 1)], RuleError, "in it every rank that sends also receives"),
    ([(0, 1), (0, 0)], UseError, "a rank sends twice, or receives twice"),
    ([(0, 1, 2)], UseError, "it must be a list of pairs of ranks"),
    ([(0.5, 1), (1, 0)], UseError, "it must be a list of pairs of ranks"),
    ([(0, 2), (2, 0)], RuleError, "source_target_pairs names rank 2; this launch has ranks 0 to 1"),
]


@pytest.mark.parametrize(("pairs", "kind", "text"), BAD_PAIRS, ids=[text for *_, text in BAD_PAIRS])
def test_pairs_that_are_no_rings_are_refused(pairs: Any, kind: Any, text: str) -> None:
    @nki.jit
    def kernel(x):
        ncc.collective_permute([copied(x, "src")], [result_like(x)], pairs)  # refused
        return x

    assert text in ended(kernel, 2, X, kind=kind)


def test_calls_that_no_list_fits_are_refused() -> None:
    @nki.jit
    def kernel(x, group, body):
        src, dst = copied(x, "src"), result_like(x)
        tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
        body(src, dst, tile, group)
        return dst

    def no_list(src, dst, tile, group):
        ncc.all_reduce(src, dst, group, nl.add)

    def unequal(src, dst, tile, group):
        ncc.all_reduce([src, src], [dst], group, nl.add)

    def several_on_chip(src, dst, tile, group):
        ncc.all_reduce([tile, tile], [tile, tile], group, nl.add)

    def no_group(src, dst, tile, group):
        ncc.all_reduce([src], [dst], [[0, 1]], nl.add)

    def channels(src, dst, tile, group):
        ncc.collective_permute_implicit([[src]], [[dst]], group, channel_ids=[1])

    def many_channels(src, dst, tile, group):
        ncc.collective_permute_implicit([[src]] * 3, [[dst]] * 3, group, channel_ids=[0, 1, 2])

    def early_priority(src, dst, tile, group):
        ncc.all_reduce([src], [dst], group, nl.add, priority=1)

    def one_core(src, dst, tile, group):
        ncc.all_gather_v([src], [dst], group, src)

    def one_node(src, dst, tile, group):
        ncc.all_to_all_v([src], [dst], group, src)

    texts = {
        no_list: "all_reduce: srcs and dsts are lists of tensors",
        unequal: "all_reduce: srcs and dsts hold 2 and 1 tensors; each src has one dst",
        several_on_chip: "and one lies on chip; several go together in hbm alone",
        no_group: "replica_group is of type list; it must be a ReplicaGroup",
        channels: "channel_ids is [1]; they must be 0, 1, ... without a gap",
        many_channels: "there are 3 channels; a group of 2 ranks has at most 2",
        early_priority: "priority is 1; trn2 has none, NeuronCore-v4 does",
        one_core: "all_gather_v needs ranks of two cores each; those of this launch have 1",
        one_node: "does not have ranks of one place on different nodes of 128 ranks",
    }
    for body, text in texts.items():
        with pytest.raises(NkilabError, match=re.escape(text)):
            nkilab.launch(kernel, 2)(X, ncc.ReplicaGroup(BOTH), body)


def test_more_than_a_slot_holds_is_refused() -> None:
    counts = np.array([[3, 0], [0, 0], [0, 0]], np.uint32)
    x = np.ones(4, np.float32)
    with pytest.raises(
        UseError, match="rank 0 sends 3 elements to rank 0, whose dst has place for 2 of them"
    ):
        nkilab.launch(sends_varying, 2, topology=NODES)(x, counts, ncc.ReplicaGroup(BOTH), 4)


def test_every_run_is_the_same() -> None:
    xs = [np.random.default_rng(r).standard_normal((64, 32)).astype(np.float32) for r in range(4)]
    group = ncc.ReplicaGroup([[2, 0, 3, 1]])
    runs = [nkilab.launch(reduces, 4)(nkilab.per_rank(xs), group, nl.add) for _ in range(3)]
    assert len({result.tobytes() for run in runs for result in run}) == 1
