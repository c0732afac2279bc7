"""The report of a large kernel: how long it takes to make, how large it is, how fast a browser draws it.

    python benchmarks/report.py [TILES]

TILES rows of result tiles of a tiled product with K = N = 8192; 40 make 247,000 events, which repeat.
A kernel of as many events without any rhythm follows. Needs playwright and chromium (NKILAB_CHROMIUM, or on
PATH); without them only the files are measured.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from nkilab import activate, profile, spec
from nkilab.profiles import Profile
from timing import bar, seconds

ZOOMING = """async () => {
  const { timeline } = nkilab;
  const next = () => new Promise((done) => requestAnimationFrame(done));
  const middle = (values) => values.sort((a, b) => a - b)[values.length >> 1];
  const frames = [];
  timeline.drawTimes.length = 0;
  let last = await next();
  for (let i = 0; i < 200; i++) {
    timeline.zoom(i % 100 < 50 ? 0.85 : 1 / 0.85, 0.2 + 0.6 * ((i % 9) / 9));
    const now = await next();
    frames.push(now - last);
    last = now;
  }
  return { frame: middle(frames), draw: middle(timeline.drawTimes), drawn: nkilab.firstDrawn };
}"""


def profile_of(tiles: int) -> Profile:
    """The profile of a tiled product."""
    with activate():
        from nkilab.ledger.kernels import matmul

        return profile(matmul.tiled, spec((8192, 128 * tiles), "float32"), spec((8192, 8192), "float32"))


def made_by_chance(tiles: int) -> Profile:
    """The profile of a kernel without rhythm, of about as many events."""
    with activate():
        from report_kernel import irregular

        return profile(irregular, spec((4096, 128), "float32"), spec((4096, 8192), "float32"), 750 * tiles)


def draw(path: Path) -> None:
    """Open a report in headless Chromium and zoom."""
    chromium = os.environ.get("NKILAB_CHROMIUM") or shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        chromium = None
    if not chromium:
        print("a browser is not measured: playwright or chromium is missing")
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(path.as_uri())
        page.wait_for_function("document.documentElement.dataset.state === 'drawn'")
        frames = page.evaluate(ZOOMING)
        browser.close()
    bar("first timeline after navigation", frames["drawn"] / 1000, "s", "1 s")
    bar("median frame while zooming", frames["frame"], "ms", "50 ms")
    bar("of that, median drawing", frames["draw"], "ms", "50 ms")


def main() -> None:
    """Make, measure, draw."""
    tiles = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    for what, make in {"in rhythm": profile_of, "by chance": made_by_chance}.items():
        print(f"events {what}:")
        measure(make(tiles))


def measure(run: Profile) -> None:
    """Write a profile in every form, and look at its report."""
    print(f"{len(run.timeline):,} events")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        print(f"report made in {seconds(lambda: run.save_html(path)):.2f} s")
        bar("size", path.stat().st_size / 1e6, "MB", "20 MB")
        draw(path)
        saves = {"trace.json": run.save_trace, "trace.pftrace": run.save_trace, "tables": run.save_tables}
        for kind, save in saves.items():
            print(f"{kind} made in {seconds(lambda s=save, k=kind: s(Path(folder) / k)):.2f} s")


if __name__ == "__main__":
    main()
