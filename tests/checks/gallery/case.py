"""Small kernels, wrong and repaired, each with the findings that its lines are marked with.

A line ends with `# finds: RULE` where a finding points; `wrong_...` has one or more, `right_...` none. A
kernel
that takes arrays says which, as on a command line.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nkilab.arguments import argument

_MARK = re.compile(r"# finds: ([a-z0-9_-]+(?:, [a-z0-9_-]+)*)")
CASES: list[Case] = []


@dataclass(frozen=True)
class Case:
    """One kernel of the gallery.

    Args:
        name: of the module and function.
        kernel: jitted, with its grid.
        args: arrays or specs.
        expected: rule and line of each finding.
        options: of the check.
    """

    name: str
    kernel: Any
    args: tuple[Any, ...]
    expected: frozenset[tuple[str, int]]
    options: dict[str, Any]

    @property
    def is_wrong(self) -> bool:
        return self.name.rpartition(".")[2].startswith("wrong")


def case(*args: str, grid: int = 0, **options: Any) -> Callable[[Any], Any]:
    """Put a kernel into the gallery.

    Args:
        args: "f32[128,512]" per parameter that is a tensor.
        grid: cores or instances.
        options: `target`, `replay`, `numerics` of the check; `version` as `--nki`; `ranks` of the launch;
            `elsewhere`, rules, by commas, with the line of the module, outside of the kernel, they point to.
    """

    def keep(kernel: Any) -> Any:
        lines, first = inspect.getsourcelines(kernel.function)
        expected = set()
        for number, line in enumerate(lines, first):
            matched = _MARK.search(line)
            if matched:
                expected |= {(rule, number) for rule in matched[1].split(", ")}
        for rules, text in options.pop("elsewhere", {}).items():
            module_lines = inspect.getsource(inspect.getmodule(kernel.function)).splitlines()
            number = 1 + [line.strip() for line in module_lines].index(text)
            expected |= {(rule, number) for rule in rules.split(", ")}
        module = kernel.function.__module__.rpartition(".")[2]
        name = f"{module}.{kernel.name}"
        launched = kernel[grid] if grid else kernel
        values = tuple(argument(a) for a in args)
        CASES.append(Case(name, launched, values, frozenset(expected), options))
        return kernel

    return keep
