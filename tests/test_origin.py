"""Where `nkilab init` says that nkilab comes from: never an index, which anybody may register a name at."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nkilab import projects
from nkilab.errors import UsageError
from nkilab.projects import make_project, summary_text, template
from tests.command_line import call

HINT = (
    "\n  hint: pass --nkilab SOURCE: a git address, the address of a wheel, or a folder or wheel on this "
    "machine"
)
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def git(folder: Path, *words: str) -> str:
    mine = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", *mine, "-C", str(folder), *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with one commit and a project that says that it is nkilab."""
    folder = tmp_path / "a checkout"
    folder.mkdir()
    (folder / "pyproject.toml").write_text('[project]\nname = "nkilab"\n')
    git(folder, "init", "--quiet")
    git(folder, "add", "-A")
    git(folder, "commit", "--quiet", "-m", "one")
    return folder


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes this nkilab one of site-packages, with a record as an installer notes it; None for no record."""

    def place(record: Any) -> None:
        class Distribution:
            def read_text(self, name: str) -> str | None:
                assert name == "direct_url.json"
                return record if record is None or isinstance(record, str) else json.dumps(record)

        there = tmp_path / "lib" / "python3" / "site-packages" / "nkilab" / "projects" / "__init__.py"
        monkeypatch.setattr(projects, "__file__", str(there))
        monkeypatch.setattr(projects, "distribution", lambda name: Distribution())

    return place


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("git+https://example.org/a/nkilab@v1", "git+https://example.org/a/nkilab@v1"),
        ("https://example.org/a/nkilab.git", "git+https://example.org/a/nkilab.git"),
        (
            "https://example.org/nkilab-0.1.0-py3-none-any.whl",
            "https://example.org/nkilab-0.1.0-py3-none-any.whl",
        ),
        ("ssh://git@example.org/a/nkilab", "git+ssh://git@example.org/a/nkilab"),
        ("git@example.org:a/nkilab.git", "git+ssh://git@example.org/a/nkilab.git"),
    ],
)
def test_an_address_becomes_what_pip_reads(source: str, expected: str) -> None:
    assert projects.requirement(source) == f"nkilab @ {expected}"


def test_a_path_is_written_whole(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"nkilab @ {checkout.as_uri()}"
    assert "%20" in address
    assert projects.requirement(str(checkout)) == address
    monkeypatch.chdir(checkout)
    assert projects.requirement(".") == address
    wheel = checkout / "nkilab-0.1.0-py3-none-any.whl"
    wheel.write_bytes(b"")
    assert projects.requirement(wheel.name) == f"nkilab @ {wheel.as_uri()}"


@pytest.mark.parametrize("source", ["nowhere", "nkilab", "nkilab==0.1.0", ".", "other-1.0.whl"])
def test_what_is_neither_an_address_nor_nkilab_is_refused(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other-1.0.whl").write_bytes(b"")
    with pytest.raises(UsageError) as caught:
        projects.requirement(source)
    assert str(caught.value) == (
        f"--nkilab is {source}; that is neither an address nor a folder or wheel of nkilab{HINT}"
    )


def test_no_second_line_comes_into_the_requirements() -> None:
    with pytest.raises(UsageError) as caught:
        projects.requirement("https://example.org/a\n--index-url https://example.org")
    assert str(caught.value) == (
        "--nkilab is 'https://example.org/a\\n--index-url https://example.org'; an address has no "
        f"blanks{HINT}"
    )


@pytest.mark.parametrize("record", [None, {}, "{", "[]", {"url": "file:///gone", "dir_info": {}},
                                    {"url": "https://example.org/a", "vcs_info": {"vcs": "hg"}}])  # fmt: skip
def test_where_nothing_is_known_the_user_is_asked_and_nothing_is_written(
    record: Any, installed: Any, tmp_path: Path
) -> None:
    installed(record)
    with pytest.raises(UsageError) as caught:
        make_project(tmp_path / "mine")
    assert str(caught.value) == f"where this nkilab was installed from is not known{HINT}"
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize("secret", ["", "user:password@"])
def test_what_was_installed_from_a_repository_comes_from_its_commit(secret: str, installed: Any) -> None:
    url = f"https://{secret}example.org/a/nkilab.git"
    installed({"url": url, "vcs_info": {"vcs": "git", "commit_id": COMMIT}})
    assert projects.requirement() == f"nkilab @ git+https://example.org/a/nkilab.git@{COMMIT}"


def test_what_was_installed_from_a_wheel_comes_from_it(installed: Any, tmp_path: Path) -> None:
    installed({"url": "https://example.org/nkilab-0.1.0.whl", "archive_info": {}})
    assert projects.requirement() == "nkilab @ https://example.org/nkilab-0.1.0.whl"
    wheel = tmp_path / "nkilab-0.1.0.whl"
    wheel.write_bytes(b"")
    installed({"url": wheel.as_uri(), "archive_info": {}})
    assert projects.requirement() == f"nkilab @ {wheel.as_uri()}"


@pytest.mark.parametrize(
    ("remote", "expected"),
    [
        ("https://example.org/a/nkilab.git", "git+https://example.org/a/nkilab.git"),
        ("https://user:password@example.org/a/nkilab", "git+https://example.org/a/nkilab"),
        # a runner has no key of the user's
        ("git@example.org:a/nkilab.git", "git+https://example.org/a/nkilab.git"),
        ("ssh://git@example.org/a/nkilab", "git+https://example.org/a/nkilab"),
        ("/srv/nkilab.git", ""),
        ("../nkilab", ""),
        ("", ""),
    ],
)
def test_a_checkout_comes_from_where_it_was_cloned_from(
    remote: str, expected: str, checkout: Path, installed: Any
) -> None:
    if remote:
        git(checkout, "remote", "add", "origin", remote)
    installed({"url": checkout.as_uri(), "dir_info": {"editable": True}})
    # its commit is in no branch of the remote: nobody else could fetch it
    assert projects.requirement() == f"nkilab @ {expected or checkout.as_uri()}"
    if expected:
        git(checkout, "update-ref", "refs/remotes/origin/main", "HEAD")
        assert projects.requirement() == f"nkilab @ {expected}@{git(checkout, 'rev-parse', 'HEAD')}"


def test_a_project_names_no_index_and_says_where_a_runner_would_look_in_vain(
    checkout: Path, tmp_path: Path
) -> None:
    project = make_project(tmp_path / "mine", str(checkout))
    assert (tmp_path / "mine" / "requirements.txt").read_text() == f"nkilab @ {checkout.as_uri()}\npytest\n"
    assert summary_text(project).splitlines()[1] == (
        "  note: requirements.txt names a place on this machine, which a runner elsewhere does not have: put "
        "a git address there, or pass --nkilab"
    )
    elsewhere = make_project(tmp_path / "other", "https://example.org/a/nkilab")
    assert "note" not in summary_text(elsewhere)
    assert template("requirements.txt.txt").splitlines()[0] == "{nkilab}"


def test_the_option_is_one_of_the_program(tmp_path: Path) -> None:
    done = call("init", "mine", "--nkilab", "nowhere", folder=tmp_path)
    expected = (
        f"nkilab: --nkilab is nowhere; that is neither an address nor a folder or wheel of nkilab{HINT}\n"
    )
    assert (done.returncode, done.stderr) == (2, expected)
