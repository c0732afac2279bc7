"""`nkilab init`: a project with a kernel, its test and a CI workflow, from the texts in `template/`."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from ..disk import write_whole_folder
from ..errors import UsageError

SCHEMA = "nkilab.init/1"
# Where each text of the template goes.
PLACES = {
    "softmax.py.txt": "softmax.py",
    "test_softmax.py.txt": "test_softmax.py",
    "requirements.txt.txt": "requirements.txt",
    "pyproject.toml.txt": "pyproject.toml",
    "README.md.txt": "README.md",
    "gitignore.txt": ".gitignore",
    "kernels.yml.txt": ".github/workflows/kernels.yml",
}


def template(name: str) -> str:
    """One text of the template."""
    return files(__package__).joinpath("template", name).read_text(encoding="utf-8")


def make_project(folder: Path) -> dict[str, Any]:
    """Write a project into a folder that is empty or not there.

    Returns:
        What was written, ready for JSON.

    Raises:
        UsageError: if something is in the folder, or it is a file.
        FileError: if it cannot be made or written; nothing is left of it then.
    """
    hint = "name a folder that is not there yet"
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file", hint=hint)
    held = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    if held:
        raise UsageError(f"{folder} is not empty: it holds {held[0]}", hint=hint)
    write_whole_folder(folder, {place: template(name).encode() for name, place in PLACES.items()})
    return {"schema": SCHEMA, "folder": str(folder), "files": sorted(PLACES.values())}


def told(made: dict[str, Any]) -> str:
    """What was written, and what to do next."""
    return (
        f"nkilab: wrote {', '.join(made['files'])} to {made['folder']}\n"
        f"  next: cd {made['folder']} && python3 -m pytest"
    )
