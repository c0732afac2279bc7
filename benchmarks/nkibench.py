"""Predictions for the 14 baselines of NKIBench, unchanged, against the summaries that its authors published.

    python benchmarks/nkibench.py ACCELOPT [NAME...]

ACCELOPT is a checkout of zhang677/AccelOpt: Beta 1 kernels of real sizes on trn1, with mean latency and bytes
from the vendor's profiler. Four of them are fit rows of the ledger too, as kernels of our own.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import sys
import warnings
from pathlib import Path
from types import ModuleType

import nkilab

RESULTS = "experiments/full_complete_local/profile_results.csv"


def module(path: Path) -> ModuleType:
    """The module in a file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def predicted(folder: Path, row: dict[str, str]) -> nkilab.Estimate:
    """The estimate of a baseline, from the shapes of its task."""
    task, kernel = (module(folder / row[column].split("/AccelOpt/")[1]) for column in ("task", "kernel"))
    inputs = task.transform_to_nki_inputs(task.get_inputs())
    specs = [nkilab.spec(a.shape, a.dtype) if hasattr(a, "shape") else a for a in inputs]
    return nkilab.estimate(kernel.kernel, *specs, target="trn1")


def main(folder: Path, names: list[str]) -> None:
    """Print a line per baseline, then the mean error."""
    warnings.simplefilter("ignore")
    errors = []
    print(f"{'baseline':40} {'measured us':>12} {'predicted':>10} {'error':>7}  HBM bytes but spills, both")
    with nkilab.activate():
        for row in csv.DictReader((folder / RESULTS).open(encoding="utf-8")):
            if names and not any(name in row["case_name"] for name in names):
                continue
            profile = json.loads(row["profile"])
            prediction = predicted(folder, row)
            measured = profile["latency"] * 1000
            errors.append(prediction.latency_us / measured - 1)
            moved = [
                sum(values[f"hbm_{way}_bytes"] for way in ("read", "write"))
                - values["spill_save_bytes"] - values["spill_reload_bytes"]
                for values in (profile, prediction.summary.values)
            ]  # fmt: skip
            print(
                f"{row['case_name']:40} {measured:12.0f} {prediction.latency_us:10.0f} {errors[-1]:+7.1%}"
                f"  {moved[0]:,.0f}  {moved[1]:,.0f}"
            )
    print(f"mean error of {len(errors)}: {sum(map(abs, errors)) / len(errors):.1%}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
