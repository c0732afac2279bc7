"""The type checker is strict everywhere but where `budgets.toml` says, and nothing there is needless."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from .budgets import FILE, budgets

PROJECT = Path(__file__).parent.parent
# What mypy says of a line that a setting forbids
CODES = {
    "disallow_any_generics": "type-arg",
    "disallow_incomplete_defs": "no-untyped-def",
    "disallow_untyped_calls": "no-untyped-call",
    "disallow_untyped_decorators": "untyped-decorator",
    "disallow_untyped_defs": "no-untyped-def",
    "warn_return_any": "no-any-return",
}


def settings() -> dict:
    return tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]


def lenient() -> dict[str, list[str]]:
    """Per setting the modules that need not keep it, as paths below the package."""
    lenient_options: dict[str, list[str]] = {}
    for override in settings()["overrides"]:
        for setting in override.keys() - {"module", "ignore_missing_imports"}:
            names = [name.removeprefix("nkilab.").removesuffix(".*") for name in override["module"]]
            lenient_options.setdefault(setting, []).extend(name.replace(".", "/") for name in names)
    return lenient_options


def test_the_type_checker_is_strict_where_nothing_else_is_listed() -> None:
    assert settings()["strict"] is True
    assert lenient() == budgets()["typing"], (
        f"{FILE.name} lists what pyproject.toml lets through; it only gets shorter"
    )


def test_whatever_is_let_through_is_needed(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="needs mypy")
    foreign = [o for o in settings()["overrides"] if "ignore_missing_imports" in o]
    lines = ["[mypy]", "strict = true", "untyped_calls_exclude = ml_dtypes"]
    lines += [f"[mypy-{name}]\nignore_missing_imports = true" for o in foreign for name in o["module"]]
    (tmp_path / "mypy.ini").write_text("\n".join(lines), encoding="utf-8")
    # kept between runs, beside that of the usual settings: what did not change is not read again
    cache = PROJECT / ".mypy_cache" / "without_exceptions"
    options = ["--config-file", str(tmp_path / "mypy.ini"), "--cache-dir", str(cache)]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--python-version", "3.11", *options, "src"],
        cwd=PROJECT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    errors = re.findall(r"^src/nkilab/([\w/]+)\.py:\d+: error: .*\[([\w-]+)\]$", done.stdout, re.M)
    assert errors, done.stdout + done.stderr
    needless = [
        (setting, place)
        for setting, places in budgets()["typing"].items()
        for place in places
        if not any(code == CODES[setting] and f"{name}/".startswith(f"{place}/") for name, code in errors)
    ]
    assert not needless, f"these pass: take them out of pyproject.toml and {FILE.name}"
