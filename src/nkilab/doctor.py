"""What is installed here, who provides the names of NKI, and what is kept on disk."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from . import __version__, code_cache, kept_estimates
from .dialects.serve import ROOTS
from .hook import installed_elsewhere, is_placeholder, provider_of
from .private_files import PrivateFolder

PACKAGES = ("numpy", "ml_dtypes", "numba", "rich", "click", "torch", "jax")


def report(*, has_cache: bool = False, is_cleared: bool = False) -> dict[str, Any]:
    """Versions of nkilab, Python and what nkilab uses, and where another distribution provides NKI.

    Args:
        has_cache: whether to tell what is kept on disk.
        is_cleared: whether to take that away.
    """
    folders = (code_cache.FOLDER, kept_estimates.FOLDER)
    return {
        "schema": "nkilab.doctor/1",
        "nkilab": __version__,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "names": {root: _provider(root) for root in ROOTS},
        **({"kept": [_kept(folder, is_cleared=is_cleared) for folder in folders]} if has_cache else {}),
    }


def _kept(folder: PrivateFolder, *, is_cleared: bool) -> dict[str, object]:
    """Where files are kept, how many and of how many bytes; then they are taken away if that is asked for."""
    files = folder.files()
    if is_cleared:
        folder.shrink(0)
    size = sum(own for _, own, _ in files)
    what = f"{folder.what} {'taken away' if is_cleared else 'kept'}"
    return {"what": what, "folder": str(folder.place() or ""), "files": len(files), "bytes": size}


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
    for own in facts.get("kept", ()):
        size = f"{own['files']} files of {own['bytes'] / 1e6:.1f} MB"
        lines.append(f"{own['what']}: {size} in {own['folder'] or 'no folder'}")
    return "\n".join(lines)
