"""A report of every kernel that a host script launches, in one folder, with a page that lists them."""

from __future__ import annotations

import re
import sys
from html import escape
from pathlib import Path

from .api import Shown, beside_one_core
from .disk import write_whole_folder
from .errors import printable
from .files import neff, ntff
from .profiles import Profile, profile_of
from .views.report import report_html
from .views.report.page import page
from .views.units import duration

INDEX = "index.html"
_LONGEST_NAME = 60


class Reports:
    """Writes a report per launch; equal launches are timed once.

    Args:
        folder: where reports go; made at the first launch.
        with_files: whether to write a NEFF and an NTFF beside each report, as a profiler does.
    """

    def __init__(self, folder: Path, *, with_files: bool = False) -> None:
        self._folder = folder
        self._with_files = with_files
        # by digests of the programs of a launch: what is written, and the cells of its row in the index
        self._known: dict[tuple[str, ...], tuple[dict[str, bytes], tuple[str, ...]]] = {}
        self._rows: list[tuple[str, ...]] = []

    def __call__(self, shown: Shown) -> None:
        """Write the report of a launch, and bring the index up to date.

        Raises:
            FileError: if the folder cannot be made or written.
        """
        key = tuple(neff.digest_of(program) for program in shown.programs)
        known = self._known.get(key)
        if known is None:
            profile = profile_of(shown.programs)
            if shown.ranks == 1:
                profile = beside_one_core(profile, shown.kernel, shown.args, shown.kwargs)
            cells: tuple[str, ...] = (
                profile.kernel_name, profile.target, duration(profile.timeline.latency_ns),
                profile.summary.bound,
                f"{profile.mfu_percent:.1f} %",
            )  # fmt: skip
            known = self._known[key] = (self._contents(profile), cells)
        contents, cells = known
        safe = re.sub(r"[^A-Za-z0-9_-]", "_", cells[0])[:_LONGEST_NAME]
        stem = f"{len(self._rows) + 1:03d}-{safe}"
        name = f"{stem}.html"
        self._rows.append((name, *cells))
        files = {f"{stem}{suffix}": content for suffix, content in contents.items()}
        write_whole_folder(self._folder, {**files, INDEX: self._index().encode()})
        print(printable(f"nkilab: wrote {self._folder / name}"), file=sys.stderr)

    def _contents(self, profile: Profile) -> dict[str, bytes]:
        """What is written of a launch, by suffix."""
        files = {".html": report_html(profile.run).encode()}
        if self._with_files:
            files[".neff"] = neff.packed(profile.program)
            files[".ntff"] = ntff.packed(profile.program, profile.timeline)
        return files

    def _index(self) -> str:
        rows = "".join(
            f'<tr><td>{place}</td><td><a href="{name}">{escape(kernel)}</a></td>'
            + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
            + "</tr>"
            for place, (name, kernel, *cells) in enumerate(self._rows, 1)
        )
        return page("index.html", (), "Kernel launches", {"rows": rows})
