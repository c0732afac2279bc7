"""Ranks that do the same are traced once; whoever may do something else is traced as it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nkilab
from nkilab import api, estimates, launches
from nkilab.errors import NkilabError
from nkilab.launches import Launched, launch_ranks

with nkilab.activate():
    import nki
    import nki.collectives as ncc
    import nki.isa as nisa
    import nki.language as nl

RANKS = 4
X = nkilab.spec((128, 64), "float32")
ALL = ncc.ReplicaGroup([[2, 0, 3, 1]])
PAIRS = ncc.ReplicaGroup([[0, 1], [2, 3]])


def _results(x: Any) -> tuple[Any, Any]:
    src, dst = (nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name=n) for n in ("src", "dst"))
    tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, x)
    nisa.dma_copy(src, tile)
    return src, dst


@nki.jit
def reduced_twice(x: Any, group: Any) -> Any:
    src, dst = _results(x)
    ncc.all_reduce([src], [dst], group, nl.add)
    ncc.all_reduce([dst], [src], group, nl.maximum)
    return src


@nki.jit
def permuted(x: Any, group: Any) -> Any:
    src, dst = _results(x)
    ncc.collective_permute([src], [dst], [(0, 1), (1, 0)])
    return dst


@nki.jit
def asking(x: Any, group: Any) -> Any:
    src, dst = _results(x)
    ncc.rank_id()
    ncc.all_reduce([src], [dst], group, nl.add)
    return dst


@nki.jit
def of_two_cores(x: Any, group: Any) -> Any:
    src, dst = _results(x)
    nisa.core_barrier(src, cores=(0, 1))
    other, own, theirs = 1 - nl.program_id(0), *(nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf) for _ in "ab")
    nisa.dma_copy(own, src)
    nisa.sendrecv(own, theirs, other, other, 0)
    ncc.all_reduce([src], [dst], group, nl.add)
    nisa.core_barrier(dst, cores=(0, 1))
    return dst


class Rows(nl.NKIObject):
    """What a kernel keeps for as long as it runs, and prints."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def tile(self, x: Any) -> Any:
        self.names.append(f"row {len(self.names)}")
        print(self.names[-1])
        return nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf, name=self.names[-1])


KEPT: dict[str, Any] = {"depth": 0, "shapes": {}}


@nki.jit
def with_own_notes(x: Any, group: Any) -> Any:
    rows, (src, dst) = Rows(), _results(x)
    KEPT["depth"] += 1
    nisa.dma_copy(rows.tile(x), x)
    nisa.dma_copy(rows.tile(x), x)
    KEPT["depth"] -= 1
    ncc.all_reduce([src], [dst], group, nl.add)
    return dst


@nki.jit
def remembering(x: Any, group: Any) -> Any:
    """The first rank fills what the others find."""
    src, dst = _results(x)
    print("new" if x.shape not in KEPT["shapes"] else "known")
    KEPT["shapes"].setdefault(x.shape, []).append(None)
    del KEPT["shapes"][x.shape][1:]
    ncc.all_reduce([src], [dst], group, nl.add)
    return dst


@nki.jit
def fewer_behind_the_first(x: Any, group: Any) -> Any:
    src, dst = _results(x)
    if not KEPT["shapes"]:
        nisa.dma_copy(src, x)
    KEPT["shapes"]["seen"] = True
    ncc.all_reduce([src], [dst], group, nl.add)
    return dst


COUNTS: list[int] = []


@nki.jit
def counting(x: Any, group: Any) -> Any:
    src, dst = _results(x)
    COUNTS.append(1)
    ncc.all_reduce([src], [dst], group, nl.add)
    return dst


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of each rank whose kernel runs."""
    ranks: list[int] = []
    run = launches._run

    def counted(session: Any, *others: Any) -> Any:
        ranks.append(session.together.own_rank)
        return run(session, *others)

    monkeypatch.setattr(launches, "_run", counted)
    return ranks


def _left(kernel: Any, calls: list[Any]) -> list[Launched]:
    return launch_ranks(
        api.as_kernel(kernel), calls, range(len(calls)), api.machine_for(None), launched=len(calls),
        has_data=False,
    )  # fmt: skip


def _described(left: list[Launched]) -> list[Any]:
    """Everything that estimates and checks read of programs."""
    programs = [program for one in left for program in one.programs]
    rows = [[(p.form_of(r).name, p.values_of(r), p.place_of(r), [*p.accesses(r)]) for r in range(len(p))]
            for p in programs]  # fmt: skip
    known = [(p.title, p.core, p.met, p.storages, p.notes, p.marks) for p in programs]
    return [
        rows,
        known,
        [(one.results, one.origins, one.memories) for one in left],
        sorted(left[0].rendezvous, key=repr),
    ]


def _as_they_run(make: Callable[[], list[Launched]], monkeypatch: pytest.MonkeyPatch) -> list[Launched]:
    with monkeypatch.context() as patch:
        patch.setattr(launches, "are_alike", lambda *call: False)
        return make()


def test_equal_ranks_leave_what_they_leave_when_all_run(
    runs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    left = _left(reduced_twice, [((X, ALL), {})] * RANKS)
    assert runs == [0]
    all_run = _as_they_run(lambda: _left(reduced_twice, [((X, ALL), {})] * RANKS), monkeypatch)
    assert sorted(runs) == [0, 0, 1, 2, 3]
    assert repr(_described(left)) == repr(_described(all_run))
    # by hand: the place of ranks 0 to 3 in the group 2, 0, 3, 1
    assert [[one.program.values_of(r)[0][0] for r in (2, 3)] for one in left] == [
        [1, 1],
        [3, 3],
        [0, 0],
        [2, 2],
    ]
    assert nkilab.estimate(reduced_twice, X, ALL, ranks=RANKS).latency_us == pytest.approx(
        api.estimate_programs([p for one in all_run for p in one.programs]).latency_us, rel=0
    )


@pytest.mark.parametrize(
    ("kernel", "calls"),
    [
        # smaller groups, groups of their own, a question for the rank, neighbours, what the kernel keeps
        (reduced_twice, [((X, PAIRS), {})] * RANKS),
        (reduced_twice, [((X,), {"group": ncc.ReplicaGroup([[0, 1, 2, 3]])}) for _ in range(RANKS)]),
        (asking, [((X, ALL), {})] * RANKS),
        (permuted, [((X, ALL), {})] * RANKS),
        (counting, [((X, ALL), {})] * RANKS),
    ],
)
def test_ranks_that_may_differ_all_run(kernel: Any, calls: list[Any], runs: list[int]) -> None:
    COUNTS.clear()
    _left(kernel, calls)
    assert runs[-RANKS:] == [0, 1, 2, 3]
    # what ran to see whether ranks are equal left nothing
    assert len(COUNTS) == (RANKS if kernel is counting else 0)


@pytest.mark.parametrize(
    ("kernel", "tried"), [(of_two_cores[2], [0, 0]), (with_own_notes, [0]), (remembering, [0, 0])]
)
def test_ranks_of_which_each_leaves_what_it_finds_are_traced_once(
    kernel: Any, tried: list[int], runs: list[int], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    KEPT["shapes"].clear()
    left = _left(kernel, [((X, ALL), {})] * RANKS)
    assert runs == tried
    printed, kept = capsys.readouterr().out, repr(KEPT)
    KEPT["shapes"].clear()
    all_run = _as_they_run(lambda: _left(kernel, [((X, ALL), {})] * RANKS), monkeypatch)
    assert repr(_described(left)) == repr(_described(all_run))
    assert (capsys.readouterr().out, repr(KEPT)) == (printed, kept)


def test_ranks_behind_a_first_that_leaves_them_less_to_do_all_run(runs: list[int]) -> None:
    KEPT["shapes"].clear()
    sizes = [len(one.program) for one in _left(fewer_behind_the_first, [((X, ALL), {})] * RANKS)]
    assert sizes == [4, 3, 3, 3]
    assert runs[-RANKS:] == [0, 1, 2, 3]


def test_ranks_of_other_shapes_are_refused_as_ever() -> None:
    calls = [((X, ALL), {})] * 3 + [((nkilab.spec((64, 64), "float32"), ALL), {})]
    with pytest.raises(
        NkilabError, match=r"src is float32\[64, 64\] in hbm in rank 3 and float32\[128, 64\]"
    ):
        _left(reduced_twice, calls)


def test_what_the_user_is_told_is_told_where_all_run(runs: list[int]) -> None:
    def of_pair() -> ncc.ReplicaGroup:
        return ncc.ReplicaGroup([[0, 1]])

    with pytest.raises(NkilabError, match="rank 2 is in no group"):
        _left(reduced_twice, [((X, of_pair()), {})] * RANKS)


def test_ranks_with_data_are_computed_each() -> None:
    own = nkilab.per_rank([np.full((128, 64), rank, np.float32) for rank in range(RANKS)])
    for result in nkilab.launch(reduced_twice, RANKS)(own, ALL):
        np.testing.assert_array_equal(result, np.full((128, 64), 6, np.float32))


def test_rows_of_ranks_that_are_traced_once_are_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    programs: list[Any] = []
    signature = estimates.signature
    monkeypatch.setattr(estimates, "signature", lambda one: (programs.append(one), signature(one))[1])
    left = _left(reduced_twice, [((X, ALL), {})] * RANKS)
    estimated = estimates.estimate_programs([one.program for one in left])
    assert len(programs) == 1
    assert [len(cores.titles) for cores in estimated.cores] == [RANKS]
