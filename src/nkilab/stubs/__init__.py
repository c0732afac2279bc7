"""Type stubs of `nki` and `neuronxcc`, made from what is served: for editors and type checkers.

They are written where the user says, and never installed: a stub package in site-packages stands before the
types of a vendor's package of the same name. docs/decisions/007-stubs-are-not-installed.md has the reasons.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..dialects.history import BETA1
from ..dialects.serve import ROOTS, tables
from ..dialects.versions import version_named
from ..disk import write_whole_folder
from ..errors import UsageError
from .text import HEAD, module_text, root_text

SCHEMA = "nkilab.stubs/1"
# What a folder of ours begins with; another one is not written over.
MARK = HEAD.splitlines()[0]


def stub_texts(version: str = "") -> dict[str, str]:
    """The stubs by path below their folder.

    Args:
        version: of whose names and parameters they are; of all versions if "".
    """
    texts: dict[str, str] = {}
    for root in _roots(version):
        served = tables(root, version)
        for name, names in served.items():
            children = sorted(
                {n.split(".")[len(name.split("."))] for n in served if n.startswith(f"{name}.")}
            )
            make = root_text if name in ("nki", "neuronxcc.nki") else module_text
            texts["/".join([*name.split("."), "__init__.pyi"])] = make(name, names, children, version)
    return texts


def _roots(version: str) -> tuple[str, ...]:
    """The packages that a version has."""
    if not version:
        return ROOTS
    return ("neuronxcc",) if version == BETA1 else ("nki",)


def write_stubs(folder: Path, version: str) -> dict[str, Any]:
    """Write the stubs to a folder, all or none; what stands there of an earlier time is written over.

    Args:
        folder: made if it is not there.
        version: of whose names and parameters they are; of all versions if "".

    Returns:
        What was written, ready for JSON.

    Raises:
        UsageError: if there is no such version, or something stands there that nkilab did not write.
        FileError: if a file cannot be written.
    """
    asked = version_named(version) if version else ""
    for place in (folder, *(folder / root for root in ROOTS)):
        if place.exists() and not place.is_dir():
            raise UsageError(f"{place} is a file", hint="name a folder for stubs alone, such as typings")
    for root in ROOTS:
        _check_own(folder / root)
    texts = stub_texts(asked)
    write_whole_folder(folder, {name: text.encode() for name, text in texts.items()})
    return {"schema": SCHEMA, "folder": str(folder), "nki": asked, "files": sorted(texts)}


def _check_own(folder: Path) -> None:
    """Refuse to write stubs beside modules that are not ours."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    foreign = [f for f in files if f.suffix != ".pyi" or not f.read_bytes().startswith(MARK.encode())]
    if foreign:
        raise UsageError(
            f"{foreign[0]} was not written by nkilab stubs",
            hint="name a folder for stubs alone, such as typings",
        )


def summary_text(written: dict[str, Any]) -> str:
    """What was written, and what to do with it."""
    folder = written["folder"]
    return (
        f"nkilab: wrote {len(written['files'])} stubs to {folder}\n"
        "  VS Code and pyright read a folder that is called typings, or the setting stubPath\n"
        f'  mypy: put mypy_path = "{folder}" into the section [tool.mypy] of pyproject.toml'
    )
