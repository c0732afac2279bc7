"""`nkilab run`: a host script with the names served, watched, checked, and told about as JSON."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from . import api
from .checking import Report, every_launch, told_of_script
from .dialects.serve import ROOTS
from .documents import print_document
from .errors import UsageError, printable
from .files import neff
from .hook import installed_elsewhere
from .reports import Reports
from .runner import put_tools_on_path, run_script, serve_names

SCHEMA = "nkilab.run/1"
Watch = Callable[[api.Shown], None]


class Launches:
    """Keeps what was launched, with a prediction of each; equal launches are timed once."""

    def __init__(self) -> None:
        self.launches: list[dict[str, Any]] = []
        self._known: dict[tuple[str, ...], dict[str, Any]] = {}

    def __call__(self, shown: api.Shown) -> None:
        """Note a launch."""
        key = tuple(neff.digest_of(program) for program in shown.programs)
        if key not in self._known:
            self._known[key] = api.estimate_programs(shown.programs).to_dict()
        self.launches.append(self._known[key])


def run(
    script: str, arguments: Sequence[str], *, version: str, target: str, as_module: bool, checks: bool,
    folder: str, json_file: str, ranks: int | None, backend: str,
) -> int:  # fmt: skip
    """Run a script as `nkilab run` does; the exit status, its own unless a check finds an error.

    Args:
        script: path, or name of a module.
        arguments: the script's own.
        version, target: that kernels are held to; "" for neither.
        as_module: whether `script` names a module.
        checks: whether to check every launch.
        folder: where reports go; "" for none.
        json_file: where what was launched is told; "" for nowhere.
        ranks: how many run the script together; None for one that is no rank.
        backend: "sim" to serve the names even where the vendor's package has them, "vendor" not to.

    Raises:
        UsageError: if there is no such script, version, chip or backend.
        FileError: if the file cannot be written.
    """
    if backend == "vendor":
        _check_vendor()
        # the script's children are not served either
        os.environ.pop("NKILAB", None)
        return run_script(script, arguments, as_module=as_module, ranks=ranks or 0)[0]
    serve_names(version, target, in_front=backend == "sim")
    # the script's children, such as workers that are spawned, find the names too
    os.environ["NKILAB"] = "1"
    launches = Launches()
    watching: list[Watch] = [Reports(Path(folder))] if folder else []
    watching += [launches] if json_file else []
    if watching:
        api.choose(watch=_all(watching))
    checking: AbstractContextManager[list[Report]] = every_launch() if checks else nullcontext([])
    with put_tools_on_path(), checking as reports:
        status, failure = run_script(script, arguments, as_module=as_module, ranks=ranks or 0)
    if checks:
        status = told_of_script(reports) or status
    if json_file:
        document = {"schema": SCHEMA, "script": script, "arguments": list(arguments), "status": status}
        outcome = {"launches": launches.launches, "checks": [report.to_dict() for report in reports]}
        print_document({**document, **outcome, "error": failure.to_dict() if failure else None})
        print(printable(f"nkilab: wrote {json_file}"), file=sys.stderr)
    return status


def _all(watching: Sequence[Watch]) -> Watch:
    def tell(shown: api.Shown) -> None:
        for watch in watching:
            watch(shown)

    return tell


def _check_vendor() -> None:
    """Refuse to run on a vendor's package that is not there."""
    if not any(installed_elsewhere(root) for root in ROOTS):
        raise UsageError(
            f"--backend is vendor; neither {' nor '.join(ROOTS)} is installed",
            hint="leave --backend out: nkilab serves the names",
        )
