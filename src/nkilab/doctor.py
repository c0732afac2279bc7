"""What is installed here, and who provides the names of NKI."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from . import __version__
from .dialects.serve import ROOTS
from .hook import installed_elsewhere, is_placeholder, provider_of

PACKAGES = ("numpy", "ml_dtypes", "numba", "rich", "click", "torch", "jax")


def report() -> dict[str, Any]:
    """Versions of nkilab, Python and what nkilab uses, and where another distribution provides NKI."""
    return {
        "schema": "nkilab.doctor/1",
        "nkilab": __version__,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "names": {root: _provider(root) for root in ROOTS},
    }


def _provider(root: str) -> str:
    """Who provides a name: another distribution, or nkilab, perhaps in front of a placeholder."""
    served = "served by nkilab"
    if is_placeholder(root):
        return f"{served}; {provider_of(root)} is a placeholder without content"
    return installed_elsewhere(root) or served


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def report_text(facts: dict[str, Any]) -> str:
    """The report as lines for a terminal."""
    lines = [f"nkilab {facts['nkilab']} on Python {facts['python']}"]
    lines += [f"  {name:10} {number or 'not installed'}" for name, number in facts["packages"].items()]
    lines += [f"  {root:10} {where}" for root, where in facts["names"].items()]
    return "\n".join(lines)
