"""Proofs over loop trees hold for what the compiler makes, and fail for what somebody broke."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import nkilab.einsum
from nkilab.einsum.language.extents import sized
from nkilab.einsum.language.forms import spec_from
from nkilab.einsum.lower import plane_tiles
from nkilab.einsum.plan.lower import lower
from nkilab.einsum.prove import ProofError, prove
from nkilab.einsum.room import NoRoomError, proved_room
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
                result = search(statement.body)
                if result is not None:
                    return result
        return body if any(isinstance(s, kind) for s in body) else None

    result = search(kernel.body)
    assert result is not None
    return result


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_what_the_compiler_makes_is_proved(case: Case) -> None:
    cascade = sized(case.cascade, case.extents())
    kernel, _ = lower(cascade, dict.fromkeys(cascade.tensors, "float32") | {"IX": "int32"}, TRN2, "kernel")
    assert len(prove(kernel, TRN2)) == 5


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


def test_a_sum_that_takes_fewer_elements_than_are_told_is_refused() -> None:
    kernel = tree_of("Z[m] = X[m, n] ;; V add", M=100, N=40)
    prove(kernel, TRN2)
    body = body_with(kernel, nodes.Reduce)
    place = next(n for n, s in enumerate(body) if isinstance(s, nodes.Reduce))
    reduced = body[place]
    assert isinstance(reduced, nodes.Reduce)
    rows, columns = reduced.src.index
    assert isinstance(columns, nodes.Cut)
    fewer = replace(reduced.src, index=(rows, replace(columns, count=columns.count - 1)))
    body[place] = replace(reduced, src=fewer)
    with pytest.raises(ProofError, match="Reduce into z_sum takes other elements than the sum z_sum"):
        prove(kernel, TRN2)


def test_a_tile_with_too_many_partitions_is_refused() -> None:
    kernel = tree_of(PRODUCT, M=64, N=64, K=64)
    wide = nodes.Alloc(nodes.Buffer("wide", (expr(129), expr(4)), "float32", nodes.SBUF))
    with pytest.raises(ProofError, match="wide has 129 partitions"):
        prove(replace(kernel, body=[wide, *kernel.body]), TRN2)


def test_tiles_that_live_one_after_the_other_share_room() -> None:
    # each of 3 tiles of 100,000 bytes lives until the statement after it; two at once are 200,000 of 212,984
    tiles = [nodes.Buffer(f"t{n}", (expr(128), expr(25_000)), "float32", nodes.SBUF) for n in range(3)]
    views = [nodes.View(b, (nodes.Cut(expr(0), expr(128)), nodes.Cut(expr(0), expr(25_000)))) for b in tiles]
    body: list[Statement] = [nodes.Alloc(tiles[0]), nodes.Fill(views[0], 0.0)]
    body += [nodes.Alloc(tiles[1]), nodes.Copy(views[1], views[0]), nodes.Alloc(tiles[2])]
    body += [nodes.Copy(views[2], views[1])]
    kernel = Kernel("kernel", (), body, ())
    assert proved_room(kernel, TRN2).startswith("200000 bytes per partition of SBUF of 212984")
    kernel.body.append(nodes.Copy(views[2], views[0]))
    with pytest.raises(
        NoRoomError, match="tiles of kernel take 300000 bytes per partition of SBUF at once; trn2 has 212984"
    ):
        proved_room(kernel, TRN2)


def test_banks_of_psum_are_counted_whole() -> None:
    # a tile of 4 bytes takes a bank of 2 KiB; there are 8
    tiles = [nodes.Buffer(f"t{n}", (expr(128), expr(1)), "float32", nodes.PSUM) for n in range(9)]
    tiles.append(nodes.Buffer("copy", (expr(128), expr(1)), "float32", nodes.SBUF))
    *views, copy = (
        nodes.View(b, (nodes.Cut(expr(0), expr(128)), nodes.Cut(expr(0), expr(1)))) for b in tiles
    )

    def kernel(count: int) -> Kernel:
        # all are filled before the first is read
        body: list[Statement] = [nodes.Alloc(b) for b in tiles]
        body += [nodes.Fill(v, 0.0) for v in views[:count]]
        return Kernel("kernel", (), [*body, *(nodes.Copy(copy, v) for v in views[:count])], ())

    assert "8 banks of PSUM of 8" in proved_room(kernel(8), TRN2)
    with pytest.raises(NoRoomError, match="take 9 banks of PSUM at once; trn2 has 8"):
        proved_room(kernel(9), TRN2)


def test_a_loop_has_two_buffers_of_its_tiles_where_there_is_room() -> None:
    def looped(columns: int) -> Kernel:
        tile = nodes.Buffer("t", (expr(128), expr(columns)), "float32", nodes.SBUF)
        view = nodes.View(tile, (nodes.Cut(expr(0), expr(128)), nodes.Cut(expr(0), expr(columns))))
        return Kernel("kernel", (), [Loop("i", 4, [nodes.Alloc(tile), nodes.Fill(view, 0.0)])], ())

    # 2 x 80,000 bytes of 212,984; 2 x 160,000 are too many
    assert "160000 bytes per partition of SBUF of 212984, loops with two buffers" in proved_room(
        looped(20_000), TRN2
    )
    assert "160000 bytes per partition of SBUF of 212984, loops with one buffer" in proved_room(
        looped(40_000), TRN2
    )


def test_a_tensor_that_comes_back_from_hbm_before_it_is_stored_is_noticed() -> None:
    shape = expr(128), expr(4)
    source, scratch, target = (
        nodes.Buffer("source", shape, "float32", nodes.SBUF),
        nodes.Buffer("scratch", shape, "float32", nodes.HBM, "scratch"),
        nodes.Buffer("target", shape, "float32", nodes.SBUF),
    )
    cuts = tuple(nodes.Cut(expr(0), extent) for extent in shape)
    tile, stored, loaded = (nodes.View(buffer, cuts) for buffer in (source, scratch, target))
    body: list[Statement] = [*map(nodes.Alloc, (source, scratch, target)), nodes.Fill(tile, 0.0)]
    store, load = nodes.Store(stored, tile), nodes.Load(loaded, stored)
    assert prove(Kernel("kernel", (), [*body, store, load], ()), TRN2)
    with pytest.raises(ProofError, match="reads of scratch what nothing wrote before"):
        prove(Kernel("kernel", (), [*body, load, store], ()), TRN2)


@pytest.mark.parametrize(
    ("length", "step", "first"),
    [(35, 4, 0), (36, 4, 0), (36, 4, 1), (36, -4, 28), (36, -4, 27), (35, -4, 28)],
)
def test_windows_beyond_what_they_are_windows_of_are_noticed(length: int, step: int, first: int) -> None:
    # from the first element on to 4 * 7 + 7 behind it, or from 4 * 7 before it to 7 behind it
    base = nodes.Buffer("x", (expr(length),), "float32", nodes.HBM, "input")
    rows = replace(
        base, name="rows", shape=(expr(8), expr(8)), base=base, window=((step,), (1,)), first=(first,)
    )
    tile = nodes.Buffer("tile", rows.shape, "float32", nodes.SBUF)
    body = [nodes.Alloc(rows), nodes.Alloc(tile), nodes.Load(nodes.all_of(tile), nodes.all_of(rows))]
    kernel = nodes.Kernel("kernel", (), body, ())
    if (length, first) in ((36, 0), (36, 28)):
        assert prove(kernel, TRN2)[0] == "2 accesses lie inside their tensors"
        return
    with pytest.raises(ProofError, match="touches more than rows has"):
        prove(kernel, TRN2)


def test_a_view_that_leaves_out_an_axis_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # the planner's own guard off, the second `a` of A was read at 0 alone, and the kernel proved
    monkeypatch.setattr(plane_tiles, "is_simple", lambda _: True)
    kernel = nkilab.einsum.compile("aeba->abe", sizes={"A": 3, "E": 2, "B": 5})
    refused = "their plan is refused (Copy into z_out takes a part of the axes of a_block); "
    assert refused in kernel.changes[0]
    a = np.arange(90, dtype=np.float32).reshape(3, 2, 5, 3)
    assert np.array_equal(kernel(a), np.einsum("aeba->abe", a))


def test_loops_of_a_rank_that_is_called_as_points_are() -> None:
    """Three loops over D are d, d2, d3, which no point of the proof may be called."""
    sizes = {"S": 64, "I": 8, "J": 8, "C": 8, "D": 16}
    kernel = nkilab.einsum.compile("sic,sjd->ijcd", sizes=sizes, dtypes="bfloat16")
    assert kernel.proofs
