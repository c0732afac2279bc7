"""The public interface is what docs/interface.md lists, no more and no less."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

import nkilab
from nkilab.cli import main
from nkilab.suites import plugin

from .sources import SOURCES, dotted, nodes, tree

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "interface.md").read_text()
READS = re.compile(r"environ\.get$|getenv$|^is_set$|^megabytes$")


def listed(start):
    """The words between backticks of the paragraph that begins so."""
    paragraph = TEXT.split(f"\n{start}", 1)[1].split("\n\n")[0]
    return re.findall(r"`([^`]+)`", paragraph)


@pytest.mark.parametrize("module", ["nkilab", "nkilab.einsum", "nkilab.jax", "nkilab.torch", "nkilab.tune"])
def test_python_names_are_those_listed(module):
    member = nkilab
    for part in module.split(".")[1:]:
        member = getattr(member, part)
    assert listed(f"`{module}`:") == sorted(member.__all__)
    assert all(hasattr(member, name) for name in member.__all__)


def test_what_interfaces_return_has_the_attributes_listed():
    product = "Z[m, n] = A[m, k] . B[k, n] ;; M mul V add"
    compiled = nkilab.einsum.compile(product, sizes={"M": 128, "K": 128, "N": 128})
    estimate = compiled.estimate
    finding = nkilab.Finding("rule", "message", "here.py:1", "", "fix")
    words = listed("An `Estimate` has")
    for name, value in (("CompiledEinsum", compiled), ("Finding", finding)):
        cut = words.index(name)
        attributes, words = words[cut + 1 :], words[:cut]
        assert attributes == sorted(attributes)
        assert [word for word in attributes if not hasattr(value, word)] == []
    assert words.pop() == "Profile"
    assert [word for word in words if not hasattr(estimate, word)] == []
    assert f"predicted {estimate.latency_us:.1f} us" in compiled.report


def test_verbs_and_options_are_those_listed():
    rows = re.findall(r"^\| `([a-z-]+)` \| (.*) \|$", TEXT.split("## pytest")[0], re.M)
    expected = {}
    for verb in main.commands.values():
        words = [word for p in verb.params for word in p.opts if word.startswith("-")]
        expected[verb.name] = sorted(words)
    assert {verb: re.findall(r"`([^`]+)`", options) for verb, options in rows} == expected
    assert [verb for verb, _ in rows] == list(main.commands)


def test_what_pytest_sees_is_what_is_listed():
    path = Path(plugin.__file__)
    functions = [node for node in tree(path).body if isinstance(node, ast.FunctionDef)]
    fixtures = {
        f.name for f in functions if any(ast.unparse(d) == "pytest.fixture" for d in f.decorator_list)
    }
    assert set(listed("Fixtures:")) == fixtures
    calls = [node for node in nodes(path) if isinstance(node, ast.Call)]
    options = {c.args[0].value for c in calls if ast.unparse(c.func).endswith("addoption")}
    settings = {c.args[0].value for c in calls if ast.unparse(c.func).endswith("addini")}
    assert set(listed("Options:")) == options
    assert set(listed("Setting of the ini file:")) == settings
    marks = {marker.split("(")[0] for marker in (plugin.MARKER, plugin.budgets.MARKER)}
    assert set(listed("Markers:")) == marks


def test_entry_points_are_those_listed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"nkilab": "nkilab.cli:main"}
    assert project["entry-points"] == {"pytest11": {"nkilab": "nkilab.suites.plugin"}}
    assert listed("Entry point of the group") == ["pytest11", "nkilab", "nkilab.suites.plugin"]


def test_environment_variables_that_are_read_are_those_listed():
    """What is read by name, or by a constant: environ.get(X), environ[X], os.getenv(X), is_set(X) ..."""
    # the line that Python runs at its start reads the first
    assert 'os.environ.get("NKILAB")' in (ROOT / "src" / "nkilab.pth").read_text()
    variables = {"NKILAB"}
    constants = {
        target.id: node.value.value
        for path in SOURCES
        for node in tree(path).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for path in SOURCES:
        for node in nodes(path):
            argument = None
            if isinstance(node, ast.Call) and READS.search(dotted(node.func)):
                argument = node.args[0]
            elif isinstance(node, ast.Subscript) and dotted(node.value).endswith("environ"):
                argument = node.slice
            if isinstance(argument, ast.Constant):
                variables.add(argument.value)
            elif isinstance(argument, ast.Name) and argument.id in constants:
                variables.add(constants[argument.id])
    rows = set(re.findall(r"^\| `([A-Z_]+)` \|", TEXT, re.M))
    # these are put together for children
    assert rows == variables - {"PATH", "PYTHONPATH"}


def test_schemas_that_are_named_exist():
    for name in re.findall(r"`(nkilab\.[a-z]+/\d)`", TEXT):
        assert any(f'"{name}"' in path.read_text() for path in SOURCES), name
