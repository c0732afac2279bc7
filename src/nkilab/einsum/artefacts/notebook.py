"""A notebook of six parts: description, specification, kernel, test, benchmark, profile."""

from __future__ import annotations

import json
from typing import Any


def notebook(
    description: str, spec: str, kernel: str, test: str, benchmark: str, profile: str, module: str
) -> str:
    """The text of an .ipynb file.

    Args:
        description: what the kernel computes, in Markdown.
        spec: YAML.
        kernel: text of the module.
        test, benchmark, profile: texts of the scripts.
        module: name under which the kernel's cell writes its module, which the later cells import.
    """
    write = f"%%writefile {module}.py\n{kernel}"
    reason = "# serves the names nki and neuronxcc; leave it out on Trainium"
    served = f"import nkilab.hook\n\n{reason}\nnkilab.hook.switch_on()"
    cells: list[dict[str, Any]] = [
        _markdown(f"## Kernel description\n\n{description}"),
        _markdown("## Einsum"),
        _code(f'"""\n{spec}"""'),
        _markdown("## Generated NKI function"),
        _code(served),
        _code(write),
        _markdown("## Test"),
        _code(test),
        _markdown("## Benchmark"),
        _code(benchmark),
        _markdown("## Profile"),
        _code(profile),
    ]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    held = {
        "cells": cells,
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(held, indent=1) + "\n"


def _markdown(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": text.splitlines(True)}


def _code(text: str) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": text.splitlines(True),
    }
