"""nki.benchmark, nki.profile, nki.baremetal: on shapes, on the model, with the files they name."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.dialects.spellings import nki1 as nki
from tests.dialects.spellings import nl1 as nl
from tests.dialects.spellings import ramp

import nkilab
from nkilab.api import WORLD
from nkilab.errors import FileError, UsageError
from nkilab.files import neff, ntff

with nkilab.activate():
    import neuronxcc.nki.typing as nt


def plain(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.exp(nl.load(x)))
    return out


class Untouchable:
    """An array whose elements may not be looked at."""

    shape = (64, 256)
    dtype = np.dtype(np.float32)

    def __array__(self, *args, **kwargs):
        raise AssertionError("the elements were looked at")


def test_benchmark_prints_a_table_and_keeps_the_latency(capsys):
    bench = nki.benchmark(warmup=5, iters=10)(plain)
    assert bench(ramp(64, 256)) is None
    shown = capsys.readouterr().out
    latency = bench.benchmark_result.nc_latency
    expected = max(1, round(nkilab.estimate(nki.jit(plain), nkilab.spec((64, 256), "float32")).latency_us))
    assert [latency.get_latency_percentile(p) for p in (0, 1, 10, 25, 50, 90, 99, 100)] == [expected] * 8
    lines = shown.splitlines()
    assert lines[0] == "plain"
    assert lines[2].split() == (
        [
            "B",
            "NC",
            "NC",
            "USED",
            "WEIGHTS",
            "MODE",
            "INF/S",
            "IRES/S",
            "L(1)",
            "L(50)",
            "L(99)",
            "NCL(1)",
            "NCL(50)",
            "NCL(99)",
            "%USER",
        ]
    )
    assert lines[3].split() == (
        f"1 1 1 dynamic MODEL {1e6 / expected:.2f} {1e6 / expected:.2f} n/a n/a n/a {expected} {expected} "
        f"{expected} N/A".split()
    )
    assert lines[5].startswith("modelled on trn2: NCL is one prediction, believed between ")


def test_benchmark_looks_at_shapes_alone(capsys):
    nki.benchmark(nki.jit(plain))(Untouchable())
    assert capsys.readouterr().out.startswith("plain\n")


def test_a_percentile_that_is_not_reported_is_refused(capsys):
    bench = nki.benchmark(plain)
    bench(ramp(4, 4))
    with pytest.raises(UsageError) as caught:
        bench.benchmark_result.nc_latency.get_latency_percentile(42)
    assert str(caught.value) == "percentile is 42; it must be one of 0, 1, 10, 25, 50, 90, 99, 100"


def test_benchmark_saves_the_files_it_is_told_to(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    nki.benchmark(plain, save_neff_name="exp.neff", save_trace_name="exp.ntff")(ramp(4, 4))
    assert capsys.readouterr().out.startswith("exp\n")
    program = neff.read(tmp_path / "exp.neff")
    ntff.read(tmp_path / "exp.ntff").check_belongs_to(program)
    assert program.kernel_name == "plain"
    nki.benchmark(save_trace_name="only.ntff")(plain)(ramp(4, 4))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["exp.neff", "exp.ntff", "file.neff", "only.ntff"]


def test_a_benchmark_takes_a_grid(capsys):
    @nki.benchmark
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        i = nl.program_id(0)
        nl.store(out[i], nl.load(x[i]))
        return out

    one, four = kernel[1], kernel[4]
    one(ramp(4, 128, 2048))
    four(ramp(4, 128, 2048))
    times = [k.benchmark_result.nc_latency.get_latency_percentile(50) for k in (one, four)]
    assert times[1] > times[0]


@nki.profile
def profiled_without_options(x):
    return plain(x)


def test_profile_needs_an_absolute_folder():
    with pytest.raises(FileError) as caught:
        profiled_without_options(ramp(4, 4))
    assert str(caught.value) == (
        "working_directory is not given; it must be the absolute path of a folder, whose parent exists\n"
        "  hint: pass working_directory=Path.cwd()"
    )


@pytest.mark.parametrize("folder", ["here", "/no/such/folder"])
def test_profile_refuses_a_folder_that_is_relative_or_has_no_parent(folder):
    with pytest.raises(FileError) as caught:
        nki.profile(plain, working_directory=folder)(ramp(4, 4))
    assert str(caught.value) == (
        f"working_directory is '{folder}'; it must be the absolute path of a folder, whose parent exists\n"
        "  hint: pass working_directory=Path.cwd()"
    )


def test_profile_writes_a_program_and_a_trace(tmp_path):
    assert nki.profile(working_directory=tmp_path)(plain)(ramp(4, 4)) is None
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file.neff", "json_reports", "profile.ntff"]
    ntff.read(tmp_path / "profile.ntff").check_belongs_to(neff.read(tmp_path / "file.neff"))


def test_profile_nth_names_the_execution_in_the_file(tmp_path):
    options = {"working_directory": str(tmp_path), "save_neff_name": "a.neff", "save_trace_name": "b.ntff"}
    nki.profile(plain, **options, profile_nth=2)(ramp(4, 4))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.neff", "b_exec_2.ntff", "json_reports"]


def test_every_nth_execution_gets_a_trace_and_a_report_in_a_new_folder(tmp_path):
    folder = tmp_path / "new"
    nki.profile(plain, working_directory=folder, save_trace_name="b.ntff", profile_nth=3, num_execs=7)(
        ramp(4, 4)
    )
    assert sorted(p.name for p in folder.iterdir()) == [
        "b_exec_3.ntff", "b_exec_6.ntff", "file.neff", "json_reports"
    ]  # fmt: skip
    reports = sorted((folder / "json_reports").iterdir())
    assert [p.name for p in reports] == ["b_exec_3.json", "b_exec_6.json"]
    assert json.loads(reports[0].read_text())["schema"] == "nkilab.estimate/1"


@pytest.mark.parametrize("nth", [0, -1, "two"])
def test_profile_nth_counts_from_one(tmp_path, nth):
    with pytest.raises(UsageError) as caught:
        nki.profile(plain, working_directory=tmp_path, profile_nth=nth)(ramp(4, 4))
    assert str(caught.value) == f"profile_nth is {nth!r}; executions count from 1"
    assert not list(tmp_path.iterdir())


def test_profile_refuses_to_overwrite_unless_told_to(tmp_path):
    (tmp_path / "profile.ntff").write_text("mine")
    with pytest.raises(FileError) as caught:
        nki.profile(plain, working_directory=tmp_path)(ramp(4, 4))
    assert str(caught.value) == (
        f"{tmp_path / 'profile.ntff'} exists\n  hint: pass overwrite=True, or name another file"
    )
    assert [p.read_text() for p in tmp_path.iterdir()] == ["mine"]
    nki.profile(plain, working_directory=tmp_path, overwrite=True)(ramp(4, 4))
    ntff.read(tmp_path / "profile.ntff").check_belongs_to(neff.read(tmp_path / "file.neff"))


def test_a_profile_of_a_kernel_that_is_refused_leaves_nothing_behind(tmp_path):
    with pytest.raises(ValueError, match="exceed architecture limitation"):
        nki.profile(plain, working_directory=tmp_path)(ramp(256, 4))
    assert not list(tmp_path.iterdir())


def test_baremetal_computes_and_saves(tmp_path):
    x = ramp(4, 4) / 8
    run = nki.baremetal(plain, save_neff_name=tmp_path / "f.neff", save_trace_name=tmp_path / "f.ntff")
    np.testing.assert_array_equal(run(x), np.exp(x.astype(np.float64)).astype(np.float32))
    ntff.read(tmp_path / "f.ntff").check_belongs_to(neff.read(tmp_path / "f.neff"))
    decorated = nki.baremetal(artifacts_dir="ignored")(plain)
    np.testing.assert_array_equal(decorated(x), run(x))


def test_a_file_that_cannot_be_written_is_an_error_of_ours(tmp_path):
    with pytest.raises(FileError) as caught:
        nki.baremetal(plain, save_neff_name=tmp_path / "no" / "f.neff")(ramp(4, 4))
    assert str(caught.value) == f"{tmp_path / 'no' / 'f.neff'} cannot be written: no such file or directory"


def test_a_measured_kernel_can_be_measured_otherwise(tmp_path, capsys):
    bench = nki.benchmark(plain)
    nki.profile(bench, working_directory=tmp_path)(ramp(4, 4))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file.neff", "json_reports", "profile.ntff"]
    assert nki.simulate_kernel(bench, ramp(1, 1))[0, 0] == 1
    assert nkilab.estimate(bench, nkilab.spec((4, 4), "float32")).latency_us > 0


def test_a_misspelt_option_is_noticed_once_and_ignored(capsys, monkeypatch):
    monkeypatch.setattr(WORLD, "_noticed", set())
    for _ in range(2):
        nki.benchmark(plain, warmups=3, debug_kernel=True)
    expected = "nkilab: notice: nki.benchmark ignores the keyword warmups; did you mean warmup?\n"
    assert capsys.readouterr().err == expected


def test_a_tensor_of_a_shape_and_a_type_is_measured_as_an_array_is(capsys):
    latencies = []
    for shaped in (nt.tensor[[64, 256], nl.float32], nt.tensor[(64, 256), np.float32], ramp(64, 256)):
        bench = nki.benchmark(plain)
        bench(shaped)
        latencies.append(bench.benchmark_result.nc_latency.get_latency_percentile(99))
    assert len(set(latencies)) == 1
    assert nt.tensor[64, 256] is nt.tensor
