"""A headless Chromium, and pages opened in it that must stay silent."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nkilab.views.report import report_html
from nkilab.views.run import Run

CHROMIUM = os.environ.get("NKILAB_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium of the system; tests are skipped where it or Playwright is missing."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    if not CHROMIUM:
        pytest.skip("needs chromium on PATH, or its path in NKILAB_CHROMIUM")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


class Opened:
    """A page that is open, and everything that it complained about or asked the network for."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.asked: list[str] = []
        page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (self.complaints.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: self.asked.append(request.url))

    def field(self, name: str) -> str:
        """What the panel of the selected instruction says in a field."""
        return self.page.inner_text(f'[data-field="{name}"]')

    def js(self, script: str) -> Any:
        """The value of an expression in the page."""
        return self.page.evaluate(script)

    def until(self, script: str) -> None:
        """Wait for an expression to be true: the page forbids Playwright's own wait, which evaluates text."""
        for _ in range(100):
            if self.js(script):
                return
            self.page.wait_for_timeout(50)
        pytest.fail(f"after 5 s this is not true yet: {script}")


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Opens the report of a run; afterwards no page may have complained or asked for anything but itself."""
    all_opened: list[tuple[Opened, str]] = []

    def open_run(run: Run | str, width: int = 1280, height: int = 900, scheme: str = "light") -> Opened:
        text = run if isinstance(run, str) else report_html(run)
        path = tmp_path / f"report{len(all_opened)}.html"
        path.write_text(text, encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        page = Opened(context.new_page())
        all_opened.append((page, path.as_uri()))
        page.page.goto(path.as_uri())
        if "<script" in text:
            page.page.wait_for_selector("html[data-state]", state="attached")
        return page

    yield open_run
    for page, address in all_opened:
        assert page.complaints == []
        assert set(page.asked) == {address}
        page.page.context.close()
