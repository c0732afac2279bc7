"""What views say of one run agrees: every share, sum and rate follows from one decomposition of the time."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nkilab import activate, estimate, spec
from nkilab.views.record import profile_dict
from nkilab.views.run import Run
from tests.place.handmade import Kernel
from tests.timing.test_clock import ROUND, fact
from tests.views.runs import kernel_run, run_of
from tests.views.test_path import KERNELS


@pytest.fixture(params=KERNELS)
def run(request: pytest.FixtureRequest) -> Run:
    return kernel_run(request.param)


def one_product() -> Run:
    """A product whose operands lie there from the launch on: nothing hides that its weights load."""
    k = Kernel(replace(ROUND, kernel_start_ns=fact(9000.0), kernel_end_ns=fact(2000.0)))
    a, b = k.tile(128, 128, dtype="bfloat16"), k.tile(128, 512, dtype="bfloat16")
    k.fill(a)
    k.fill(b)
    k.matmul(k.psum(128, 512), a, b)
    return run_of(k)


def test_weights_that_nothing_hides_are_time_of_tensor_e() -> None:
    run = one_product()
    timeline, spent = run.timeline, run.path.spent_ns()
    (weights, product) = timeline.of_engine("tensor").tolist()
    loading = float(timeline.start_ns[product] - timeline.start_ns[weights])
    assert loading == pytest.approx(spent["weights"])
    # a column of weights each cycle of 2.4 GHz
    assert loading == pytest.approx(128 / 2.4)
    assert run.stalls.busy_ns["tensor"] == pytest.approx(loading + float(timeline.busy_ns[product]))
    assert "weights" not in run.stalls.of("tensor")
    (line,) = (line for line in run.lines if line.engines == ("tensor",))
    assert line.busy_ns == pytest.approx(run.stalls.busy_ns["tensor"])


def test_transfers_that_wait_to_be_issued_above_all_are_bound_by_that() -> None:
    """Sixteen short loads one after another, then a little work: units idle while VectorE works."""
    with activate():
        import nki
        import nki.isa as nisa
        import nki.language as nl

        @nki.jit
        def pieces(x):
            out = nl.ndarray((128, 256), nl.float32, buffer=nl.shared_hbm)
            tile = nl.ndarray((128, 256), nl.float32, buffer=nl.sbuf)
            for i in range(16):
                nisa.dma_copy(tile[:, nl.ds(i * 16, 16)], x[:, nl.ds(i * 16, 16)])
            result = nl.ndarray((128, 256), nl.float32, buffer=nl.sbuf)
            nisa.tensor_copy(result, tile)
            for _ in range(4):
                nisa.activation(result, op=nl.exp, data=result)
            nisa.dma_copy(out, result)
            return out

        run = estimate(pieces, spec((128, 256), "float32")).run
    spent = run.path.spent_ns()
    assert spent["issue"] > spent["first byte"] + spent["moving"] > spent["execute"]
    assert max(run.summary.occupancy.values()) < 0.8
    assert run.summary.bound == "DMA issue"


def test_launch_and_end_stand_in_the_time_of_every_engine() -> None:
    run = one_product()
    # two fills of 612 and 612 ns, or of fewer elements: VectorE waits for the launch alone before them
    assert run.stalls.of("vector")["start"] == pytest.approx(9000)
    assert run.stalls.of("tensor")["end"] >= 2000


def test_busy_is_one_number_in_every_view(run: Run) -> None:
    timeline, record = run.timeline, profile_dict(run)
    span = timeline.end_ns.max() - run.program.machine["kernel_start_ns"]
    for one in record["engines"]:
        engine, parts = one["engine"], [one["busy_us"], *(s["time_us"] for s in one["stalls"])]
        assert sum(parts) == pytest.approx(record["latency_us"])
        if engine == "dma":
            assert one["busy_us"] == pytest.approx(run.summary["dma_active_time"])
            continue
        assert one["busy_us"] * 1000 == pytest.approx(timeline.occupied_ns(engine))
        assert one["busy_us"] * 1000 == pytest.approx(run.summary.occupancy[f"{engine} engine"] * span)
        # what the vendor calls active has results under way besides
        assert one["busy_us"] <= run.summary[f"{engine}_engine_active_time"] * (1 + 1e-9)


def test_lines_add_up_to_engines_bytes_and_path(run: Run) -> None:
    record = profile_dict(run)
    fixed = sum(one["time_us"] for one in record["critical_path"] if one["kind"] in ("launch", "end"))
    assert sum(one["critical_path_us"] for one in record["lines"]) == pytest.approx(
        record["latency_us"] - fixed
    )
    moved = run.summary["dma_transfer_total_bytes"]
    assert sum(one["dma_bytes"] for one in record["lines"]) == moved
    assert sum(one["bytes"] for one in record["dma"]["descriptor_sizes"]) == moved
    # several transfers move at once
    engines = sum(busy for engine, busy in run.stalls.busy_ns.items() if engine != "dma")
    transfers = float(run.timeline.busy_ns[run.timeline.of_engine("dma")].sum())
    assert sum(cost.busy_ns for cost in run.lines) == pytest.approx(engines + transfers)


def test_the_point_of_the_roofline_is_the_mfu(run: Run) -> None:
    share = run.roofline.achieved / run.roofline.peak["bfloat16"]
    assert 100 * share == pytest.approx(run.summary["mfu_once_percent"])
