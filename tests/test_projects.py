"""`nkilab init`: what it writes passes as it is, and is what the documents show."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from nkilab.errors import UsageError
from nkilab.projects import PLACES, make_project, template
from tests.program import SOURCE, call, told

DOCS = Path(__file__).parents[1] / "docs"
# pytest finds the plugin of an installed nkilab by itself, under the name nkilab
PYTEST = ("-m", "pytest", "-q", "-p", "no:nkilab", "-p", "nkilab.suites.plugin", "-p", "no:cacheprovider")


def test_a_project_passes_on_both_chips_and_so_does_the_page_about_it(tmp_path):
    done = call("init", "mine", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "mine" / "requirements.txt").read_text().startswith("nkilab @ ")
    assert done.stdout.endswith("\n  next: cd mine && python3 -m pytest\n")
    project = tmp_path / "mine"
    held = sorted(str(p.relative_to(project)) for p in project.rglob("*") if p.is_file())
    assert held == sorted(PLACES.values())
    # the test that docs/pytest.md shows, beside the project's own
    shown = re.search(r"```python\n(.*?)```", (DOCS / "pytest.md").read_text(), re.S)[1]
    (project / "test_page.py").write_text(shown)
    done = call("--nki-target", "trn1,trn2", folder=project, python=PYTEST)
    assert done.returncode == 0, done.stdout
    # four tests of the project and three of the page per chip, and one without a fixture of ours
    assert "15 passed" in done.stdout
    assert "softmax on trn1: " in done.stdout
    assert "softmax on trn2: " in done.stdout


def test_the_page_shows_the_workflow_that_is_written():
    shown = re.search(r"```yaml\n(.*?)```", (DOCS / "pytest.md").read_text(), re.S)[1]
    assert shown == template("kernels.yml.txt")


def test_a_folder_that_holds_something_is_left_alone(tmp_path):
    (tmp_path / ".keep").write_text("")
    with pytest.raises(UsageError) as caught:
        make_project(tmp_path)
    expected = f"{tmp_path} is not empty: it holds .keep\n  hint: name a folder that is not there yet"
    assert str(caught.value) == expected
    assert [p.name for p in tmp_path.iterdir()] == [".keep"]


def test_an_empty_folder_is_filled(tmp_path):
    assert json.loads(json.dumps(make_project(tmp_path)))["files"] == sorted(PLACES.values())


@pytest.mark.parametrize(("shell", "word"), [("bash", "complete"), ("zsh", "compdef"), ("fish", "complete")])
def test_completion_prints_the_script_of_a_shell(shell, word, tmp_path):
    status, output, complaint = told(call("completion", shell, folder=tmp_path))
    assert (status, complaint) == (0, "")
    assert word in output
    assert "_NKILAB_COMPLETE" in output


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("nkilab est", ["plain,estimate"]),
        ("nkilab estimate --tri", ["plain,--trips"]),
        ("nkilab estimate x --target tr", ["plain,trn1", "plain,trn2", "plain,trn3"]),
        ("nkilab estimate x --target trn1,tr", ["plain,trn1,trn1", "plain,trn1,trn2", "plain,trn1,trn3"]),
        ("nkilab run --nki 0.7", ["plain,0.7"]),
        ("nkilab einsum --dialect n", ["plain,nki", "plain,neuronxcc"]),
        ("nkilab explain race-two-c", ["plain,race-two-cores"]),
        ("nkilab run scr", ["file,scr"]),
    ],
)
def test_a_shell_is_told_what_may_follow(line, expected, tmp_path):
    words = line.split()
    asked = {"_NKILAB_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    done = call(folder=tmp_path, env=asked)
    assert done.stdout.splitlines() == expected


def test_a_backend_is_chosen_where_the_vendors_package_is_installed(tmp_path):
    """The package is a stand-in with the parts by which a real one is known."""
    package = tmp_path / "site" / "nki"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "language.py").write_text("name = 'the vendor'\n")
    (tmp_path / "host.py").write_text("import nki.language as nl\nprint(getattr(nl, 'name', 'nkilab'))\n")
    paths = {"PYTHONPATH": f"{SOURCE}{os.pathsep}{package.parent}"}
    assert told(call("run", "--backend", "vendor", "host.py", folder=tmp_path, env=paths)) == (
        0,
        "the vendor\n",
        "",
    )
    assert told(call("run", "--backend", "sim", "host.py", folder=tmp_path, env=paths)) == (0, "nkilab\n", "")
