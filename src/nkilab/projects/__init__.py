"""`nkilab init`: a project with a kernel, its test and a CI workflow, from the texts in `template/`."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from ..disk import write_whole_folder
from ..errors import UsageError
from .origin import is_local, requirement

SCHEMA = "nkilab.init/1"
# What stands in the template for where nkilab comes from.
REQUIREMENT = "{nkilab}"
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


def make_project(folder: Path, source: str = "") -> dict[str, Any]:
    """Write a project into a folder that is empty or not there.

    Args:
        folder: where it goes.
        source: where the project gets nkilab from; "" for where this one comes from.

    Returns:
        What was written, ready for JSON.

    Raises:
        UsageError: if something is in the folder, or it is a file, or the source is none or not known.
        FileError: if it cannot be made or written; nothing is left of it then.
    """
    nkilab = requirement(source)
    hint = "name a folder that is not there yet"
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file", hint=hint)
    existing = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    if existing:
        raise UsageError(f"{folder} is not empty: it holds {existing[0]}", hint=hint)
    texts = {place: template(name).replace(REQUIREMENT, nkilab) for name, place in PLACES.items()}
    write_whole_folder(folder, {place: text.encode() for place, text in texts.items()})
    return {
        "schema": SCHEMA, "folder": str(folder), "files": sorted(PLACES.values()), "requirement": nkilab,
    }  # fmt: skip


def summary_text(written: dict[str, Any]) -> str:
    """What was written, and what to do next."""
    lines = [f"nkilab: wrote {', '.join(written['files'])} to {written['folder']}"]
    if is_local(written["requirement"]):
        lines.append(
            "  note: requirements.txt names a place on this machine, which a runner elsewhere does not have: "
            "put a git address there, or pass --nkilab"
        )
    return "\n".join([*lines, f"  next: cd {written['folder']} && python3 -m pytest"])
