"""A notebook of six parts, description, specification, kernel, test, benchmark, profile, whose cells run."""

from __future__ import annotations

import json
from typing import Any

from ..language.ast import Cascade

SERVE = """\
# where the vendor's packages are not installed, nkilab serves their names
try:
    import {root}
except ImportError:
    import nkilab.hook

    nkilab.hook.switch_on()
"""


def notebook(
    name: str, cascade: Cascade, spec: str, kernel: str, test: str, benchmark: str, profile: str
) -> str:
    """The text of an .ipynb file.

    Args:
        spec: YAML.
        kernel: text of its module.
        test, benchmark, profile: texts of cells below the kernel's.
    """
    root = "neuronxcc.nki" if "import neuronxcc" in kernel else "nki"
    cells: list[dict[str, Any]] = [
        _markdown(f"## Kernel description\n\n{description(name, cascade)}"),
        _markdown("## Einsum"),
        _code(f'"""\n{spec.strip(chr(10))}\n"""'),
        _markdown("## Generated NKI function"),
        _code(SERVE.format(root=root)),
        _code(kernel),
    ]
    for title, text in (("Test", test), ("Benchmark", benchmark), ("Profile", profile)):
        cells += [_markdown(f"## {title}"), _code(text)]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    held = {
        "cells": cells,
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(held, indent=1) + "\n"


def description(name: str, cascade: Cascade) -> str:
    """What a kernel computes, in Markdown."""
    lines = [f"`{name}` computes {_listed(cascade.outputs)} from {_listed(cascade.inputs)}:", ""]
    lines += [f"- `{einsum.text or einsum}`" for einsum in cascade.einsums]
    return "\n".join(lines)


def _listed(tensors: tuple[str, ...]) -> str:
    return ", ".join(f"`{t}`" for t in tensors) or "nothing"


def _markdown(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": text.splitlines(True)}


def _code(text: str) -> dict[str, Any]:
    return {
        "cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [],
        "source": text.rstrip("\n").splitlines(True),
    }  # fmt: skip
