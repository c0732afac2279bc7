"""`nkilab init`: a project with a kernel, its test and a CI workflow, from the texts in `template/`."""

from __future__ import annotations

import json
import re
import subprocess
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from ..disk import write_whole_folder
from ..errors import UsageError

HINT = "pass --nkilab SOURCE: a git address, the address of a wheel, or a folder or wheel on this machine"
ARCHIVES = (".whl", ".tar.gz", ".zip")
# ssh://git@host/owner/name, or as git shortens it: git@host:owner/name
_SSH = re.compile(r"(?:ssh://)?(?P<user>[\w.-]+@)?(?P<host>[\w.-]+)[:/](?P<path>[\w./~-]+)")


def requirement(source: str = "") -> str:
    """The line of a requirements file that installs nkilab from a source.

    Args:
        source: an address or a path as the user gives it; "" for where this nkilab comes from.

    Raises:
        UsageError: if the source is none, or is not given and cannot be told.
    """
    where = _from_source(source) if source else _from_installation()
    return f"nkilab @ {where}"


def is_local(line: str) -> bool:
    """Whether a requirement names something that other machines do not have."""
    return " @ file:" in line


def _from_source(source: str) -> str:
    shortened = _SSH.fullmatch(source)
    if "://" in source:
        if re.search(r"\s", source):
            raise UsageError(f"--nkilab is {source!r}; an address has no blanks", hint=HINT)
        is_whole = source.startswith(("git+", "file:")) or urlsplit(source).path.endswith(ARCHIVES)
        return source if is_whole else f"git+{source}"
    if shortened and shortened["user"]:
        return f"git+ssh://{shortened['user']}{shortened['host']}/{shortened['path']}"
    path = Path(source).expanduser().resolve()
    if not _is_nkilab(path):
        raise UsageError(
            f"--nkilab is {source}; that is neither an address nor a folder or wheel of nkilab", hint=HINT
        )
    return path.as_uri()


def _is_nkilab(path: Path) -> bool:
    """Whether a path is a wheel or archive of nkilab, or a folder with its source."""
    if path.is_file():
        return path.name.startswith("nkilab-") and path.name.endswith(ARCHIVES)
    try:
        text = (path / "pyproject.toml").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    return re.search(r'^name = "nkilab"$', text, re.M) is not None


def _from_installation() -> str:
    """The checkout that this nkilab runs from, or what its installer noted."""
    here = Path(__file__).resolve().parents[3]
    where = _of_folder(here) if _is_nkilab(here) else _of_record(_installers_record())
    if not where:
        raise UsageError("where this nkilab was installed from is not known", hint=HINT)
    return where


def _installers_record() -> dict[str, object]:
    """What pip noted where it installed from a place instead of an index (PEP 610); {} if nothing."""
    try:
        record = json.loads(distribution("nkilab").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _of_record(record: dict[str, object]) -> str:
    """The source that an installer's record names; "" if it names none that is still there."""
    address = str(record.get("url", ""))
    match record.get("vcs_info"):
        case {"vcs": "git", "commit_id": str(commit)}:
            return f"git+{_without_secrets(address)}@{commit}"
        case dict():
            return ""
    if not address.startswith("file:"):
        return _without_secrets(address)
    path = Path(unquote(urlsplit(address).path))
    if not _is_nkilab(path):
        return ""
    return _of_folder(path) if path.is_dir() else path.as_uri()


def _of_folder(folder: Path) -> str:
    """The repository that a folder was cloned from, at its commit if that is there; else the folder."""
    remote = _git(folder, "config", "--get", "remote.origin.url")
    address = _public(remote)
    if not address:
        return folder.as_uri()
    commit = _git(folder, "rev-parse", "HEAD")
    is_there = bool(commit and _git(folder, "branch", "--remotes", "--contains", commit))
    return f"git+{address}@{commit}" if is_there else f"git+{address}"


def _git(folder: Path, *words: str) -> str:
    """What git says of a folder; "" where it says nothing or is not installed."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _public(remote: str) -> str:
    """The address at which others read a repository; "" where that is a folder of this machine."""
    if remote.startswith(("https://", "http://")):
        return _without_secrets(remote)
    is_path = not remote or remote.startswith(("/", ".", "~", "file:"))
    by_ssh = None if is_path else _SSH.fullmatch(remote)
    return f"https://{by_ssh['host']}/{by_ssh['path']}" if by_ssh else ""


def _without_secrets(address: str) -> str:
    """An address without the user and password that a clone may have kept in it."""
    parts = urlsplit(address)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


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
