"""Kernels of public repositories, launched with their own inputs, checked, timed and compared.

`NKILAB_WILD=FOLDER:... python -m tests.conformance.wild_launches [--rows WORD] [--json FILE]` runs the rows
of wild_launches.yaml whose repository is one of the folders, each in a process of its own. A row counts its
kernels: one is right if its driver saw no other result, and clean if no launch of it was stopped, and none
had an error or a warning. Kernels that the row calls `unsound`, each with the reason, have a fault: it must
be found, in the kernel or in the test that runs it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.conformance.wild import VARIABLE

TABLE = Path(__file__).with_name("wild_launches.yaml")
TIME_LIMIT_S = 900
MARK = "wild outcome: "


@dataclass
class Outcome:
    """What became of a row.

    Args:
        row: of the table.
        launches: kernel, file and line, error, findings that fail, microseconds, of each launch.
        errors: of the driver, by kernel; those of "" are of the last that it launched.
        seconds: that it took.
    """

    row: Mapping[str, Any]
    launches: list[dict[str, Any]] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def kernels(self) -> dict[str, list[dict[str, Any]]]:
        """Launches by kernel."""
        every: dict[str, list[dict[str, Any]]] = {}
        for launch in self.launches:
            every.setdefault(launch["kernel"], []).append(launch)
        return every

    def troubles(self, kernel: str) -> list[str]:
        """What was said of a kernel, or that its results are wrong."""
        sentences = [t for one in self.kernels[kernel] for t in (*one["findings"], one["error"])]
        last = self.errors.get("", "") if self.launches[-1]["kernel"] == kernel else ""
        return [t for t in dict.fromkeys([*sentences, self.errors.get(kernel, ""), last]) if t]


def rows(folders: Sequence[Path]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The rows of the table that the folders have, one per file that a pattern names."""
    for row in YAML(typ="safe").load(TABLE.read_text()):
        names = row.pop("repositories", None) or [row.pop("repository")]
        for folder in (f for f in folders if f.name in names):
            yield from ((folder, one) for one in _by_file(folder, {**row, "repository": folder.name}))


def _by_file(folder: Path, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    pattern = row.get("path", "")
    if "*" not in pattern:
        yield row
        return
    left_out = set(row.get("without", ()))
    for path in sorted(folder.glob(pattern)):
        if path.name not in left_out:
            yield {**row, "path": str(path.relative_to(folder))}


def outcome_of(folder: Path, row: Mapping[str, Any]) -> Outcome:
    """Run a row in a process of its own."""
    begin = time.monotonic()
    command = [sys.executable, "-P", "-m", "tests.conformance.wild_launches", "--one", json.dumps(row)]
    root = Path(__file__).parents[2]
    paths = os.pathsep.join([str(root), str(root / "src"), os.environ.get("PYTHONPATH", "")])
    done, error = None, f"it takes more than {TIME_LIMIT_S} s"
    try:
        done = subprocess.run(
            command, cwd=folder, env={**os.environ, "PYTHONPATH": paths}, text=True, check=False,
            capture_output=True, timeout=row.get("limit_s", TIME_LIMIT_S),
        )  # fmt: skip
        error = f"the process ends with {done.returncode}: {done.stderr[-300:]}"
    except subprocess.TimeoutExpired:
        pass
    line = next((x for x in (done.stdout if done else "").splitlines() if x.startswith(MARK)), "")
    content = json.loads(line.removeprefix(MARK)) if line else {"launches": [], "errors": {"": error}}
    return Outcome(row, **content, seconds=time.monotonic() - begin)


def run_one(row: Mapping[str, Any]) -> None:
    """Run a row in this process and print its outcome; the names are served from here on."""
    from nkilab import api, checking
    from nkilab.runner import serve_names
    from tests.conformance.wild_drivers import DRIVERS

    warnings.simplefilter("ignore")
    os.environ.update(row.get("environ", {}))
    outcome = Outcome(row)
    serve_names(row.get("nki", ""), row.get("target", ""), in_front=True)
    sys.path.insert(0, os.getcwd())
    with checking.every_launch() as reports:
        checked = api.WORLD.launching

        def recorded(kernel: Any, calls: Any, ranks: Any, machine: Any, **how: Any) -> Any:
            entry = {"kernel": kernel.name, "error": "", "findings": [], "latency_us": 0.0}
            outcome.launches.append(entry)
            try:
                left = checked(kernel, calls, ranks, machine, **how)
            except Exception as error:
                entry["error"] = f"{type(error).__name__}: {error}"
                raise
            entry["findings"] = [
                f"{f.rule}: {f.site}: {f.message}" for f in reports[-1].findings.verdict if f.fails
            ]
            programs = [program for launched in left for program in launched.programs]
            entry["latency_us"] = api.estimate_programs(programs).latency_us
            return left

        api.WORLD.launching = recorded
        try:
            how = {k: v for k, v in row.items() if k not in ("driver", "nki", "target")}
            outcome.errors = DRIVERS[row["driver"]](**how) or {}
        except BaseException as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            outcome.errors[""] = (
                f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
            )
    print(f"\n{MARK}{json.dumps({'launches': outcome.launches, 'errors': outcome.errors})}")


def label_of(row: Mapping[str, Any]) -> str:
    """The file of a row, or its name."""
    return str(row.get("path", row.get("name", "")))


def report(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Kernels that are right and clean, by repository; every other one with what was said of it."""
    sound = clean = 0
    for repository in dict.fromkeys(o.row["repository"] for o in outcomes):
        of_it = [o for o in outcomes if o.row["repository"] == repository]
        every = [(o, k) for o in of_it for k in o.kernels]
        good = [not o.troubles(k) for o, k in every if k not in o.row.get("unsound", {})]
        caught = [bool(o.troubles(k)) for o, k in every if k in o.row.get("unsound", {})]
        silent = [o for o in of_it if not o.launches]
        counts = f"{sum(good)} of {len(good)} kernels right and clean, {sum(caught)} of {len(caught)} unsound"
        yield f"{repository}: {counts} found, {len(silent)} rows launch nothing"
        sound, clean = sound + len(good), clean + sum(good)
        for one in of_it:
            sound_kernels = [k for k in one.kernels if k not in one.row.get("unsound", {})]
            troubles = [(k, t) for k in sound_kernels for t in one.troubles(k)]
            troubles += [(k, t) for k, t in one.errors.items() if k not in one.kernels and not one.launches]
            for kernel, trouble in troubles:
                yield f"  {label_of(one.row)} {kernel}: {' '.join(trouble.split())[:400]}"
    share = 100 * clean / max(sound, 1)
    yield f"{clean} of {sound} sound kernels right and clean ({share:.1f} %)"


def main() -> None:
    """Run the rows, or one of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--one")
    parser.add_argument("--rows", default="")
    parser.add_argument("--json")
    options = parser.parse_args()
    if options.one:
        run_one(json.loads(options.one))
        return
    folders = [Path(name).resolve() for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name]
    outcomes = []
    for folder, row in rows(folders):
        if options.rows not in json.dumps(row):
            continue
        outcomes.append(outcome_of(folder, row))
        line = f"{outcomes[-1].seconds:6.1f} s {row['repository']} {label_of(row)}"
        print(line, f"{len(outcomes[-1].kernels)} kernels", file=sys.stderr, flush=True)
    print("\n".join(report(outcomes)))
    if options.json:
        Path(options.json).write_text(json.dumps([vars(o) for o in outcomes], indent=1))


if __name__ == "__main__":
    main()
