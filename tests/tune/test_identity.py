"""What names a kernel: another name for whatever changes what it computes, the same for the same."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from nkilab.tune.identity import identity_of

HELPERS = "WIDTH = 512\n\n\ndef width(n):\n    return n * WIDTH\n"
KERNEL = """\
import enum

import numpy as np

import helpers
from helpers import width

COUNT = 2


class Order(enum.Enum):
    ROWS = 1


def kernel(x, n=3):
    return width(n) + COUNT + helpers.WIDTH + len(np.shape(x)) + Order.ROWS.value
"""


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function that writes two files, imports them anew, and names the kernel."""

    def module(name: str, text: str) -> ModuleType:
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        module = ModuleType(name)
        module.__file__ = str(path)
        monkeypatch.setitem(sys.modules, name, module)
        exec(compile(text, str(path), "exec"), vars(module))
        return module

    def name_of(helpers: str = HELPERS, kernel: str = KERNEL, **values: object) -> str:
        module("helpers", helpers)
        loaded_module = module("kernel", kernel)
        vars(loaded_module).update(values)
        return identity_of(loaded_module.kernel)

    return name_of


def test_the_same_text_has_the_same_name(named):
    assert named() == named()


@pytest.mark.parametrize(
    "change",
    [
        {"helpers": HELPERS.replace("n * WIDTH", "n + WIDTH")},
        {"helpers": HELPERS.replace("512", "256")},
        {"kernel": KERNEL.replace("COUNT = 2", "COUNT = 4")},
        {"COUNT": 4},
        {"COUNT": (1, 2)},
    ],
    ids=["another module's function", "its constant", "a constant", "a value of the run", "another type"],
)
def test_what_the_kernel_reaches_changes_its_name(change, named):
    assert named(**change) != named()


def test_what_it_does_not_reach_is_left_out(named):
    assert named(OTHER=1) == named(OTHER=2)


def kernel_of_width(width: object):
    def kernel(x):
        return x, width

    return kernel


def test_values_of_an_outer_function_count():
    assert identity_of(kernel_of_width(128)) == identity_of(kernel_of_width(128))
    assert (
        len({identity_of(kernel_of_width(w)) for w in (128, 256, "128", (1, 2), {"a": 1}, {"a": 2}, None)})
        == 7
    )


def test_code_that_stands_in_no_file_is_named_by_its_instructions():
    def cell(text: str) -> str:
        counts: dict = {}
        exec(compile(f"def kernel(x):\n    return {text}\n", "<cell 1>", "exec"), counts)
        return identity_of(counts["kernel"])

    assert cell("x + 1") == cell("x + 1")
    assert len({cell("x + 1"), cell("x + 2"), cell("x - 1"), cell("[x for _ in range(3)]")}) == 4


def test_things_that_hold_each_other_are_looked_at_once():
    circle: list = []
    circle.append(circle)
    assert identity_of(kernel_of_width(circle)) == identity_of(kernel_of_width(circle))
