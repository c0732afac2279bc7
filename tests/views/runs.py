"""Runs of programs made by hand, and of kernels, for tests of views."""

from __future__ import annotations

from functools import cache

from msgspec.structs import replace

from nkilab import activate, spec
from nkilab.launches import launch
from nkilab.machine import MACHINES
from nkilab.place import plan
from nkilab.profiles import profile_of
from nkilab.timing import simulate
from nkilab.views.run import Run
from nkilab.views.summary import summarize
from tests.place.handmade import Kernel, part, rows
from tests.timing.test_clock import ROUND, fact


def run_of(k: Kernel) -> Run:
    """A hand-made program, planned and timed."""
    placed = plan(k.program)
    timeline = simulate(k.program, placed)
    latency = timeline.latency_us
    return Run(
        k.program, placed, timeline, summarize(k.program, placed, timeline), (latency / 2, latency * 2)
    )


def loaded_copied_stored(columns: int = 512) -> Kernel:
    """A load, a copy by VectorE, a store; tiles [128, columns] of float32."""
    k = Kernel(ROUND)
    a, b = k.tile(128, columns, name="a"), k.tile(128, columns, name="b")
    k.load(a, k.hbm(128, columns, name="x"))
    k.copy(b, a)
    k.store(k.hbm(128, columns, name="out"), b)
    return k


def pipeline(pieces: int = 1, trips: int = 4) -> Kernel:
    """Loads, copies by VectorE and ScalarE, stores; each tile in so many pieces."""
    k = Kernel(ROUND)
    source, target = k.hbm(128 * trips, 512, name="x"), k.hbm(128 * trips, 512, name="out")
    for i in range(trips):
        a, b, c = (k.tile(128, 512, name=name) for name in "abc")
        columns = [(n * 512 // pieces, (n + 1) * 512 // pieces) for n in range(pieces)]
        for here in columns:
            k.load(part(a, (0, 128), here), part(rows(source, i * 128, i * 128 + 128), (0, 128), here))
        for here in columns:
            k.copy(part(b, (0, 128), here), part(a, (0, 128), here))
            k.copy(part(c, (0, 128), here), part(b, (0, 128), here), "scalar")
        k.store(rows(target, i * 128, i * 128 + 128), c)
    return k


def side_by_side() -> Kernel:
    """Eight products of 512 rows on four tiles of TensorE's array: each tile has two, one after the other."""
    k = Kernel(replace(MACHINES["trn2"], tensor_warm_up_ns=fact(0.0)))
    a, b = k.tile(128, 128, dtype="bfloat16"), k.tile(128, 512, dtype="bfloat16")
    k.fill(a)
    k.fill(b)
    for i in range(8):
        chosen = {"tile_position": (0, 32 * (i % 4)), "tile_size": (128, 32)}
        k.call("nc_matmul", k.psum(32, 512), part(a, (0, 128), (0, 32)), b, values=(False,), **chosen)
    return k


@cache
def kernel_run(name: str) -> Run:
    """One of the ledger's kernels on small shapes, on the chip with round numbers."""
    with activate():
        from nkilab.ledger.kernels import attention, matmul, tutorial

        f32, bf16 = "float32", [spec((512, columns), "bfloat16") for columns in (256, 1024)]
        calls = {
            "tiled": (matmul.tiled, [spec((256, 256), f32), spec((256, 1024), f32)]),
            "hoisted": (
                matmul.block_free,
                [*bf16, 1, 1],
            ),
            "blocked": (matmul.blocked, [spec((512, 512), f32), spec((512, 1024), f32), 2, 1, 2]),
            "block_free": (tutorial.block_free, [spec((512, 256), f32), spec((512, 1024), f32)]),
            "attention": (attention.attention_in_phases, [spec((128, 512), f32)] * 3),
        }
        kernel, args = calls[name]
        return profile_of(launch(kernel, tuple(args), {}, ROUND, has_data=False).programs).run
