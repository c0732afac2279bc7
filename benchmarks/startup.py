"""What a fresh process costs: imports, help, and verbs on a small kernel, against `import numpy`."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from timing import bar, medians

RUNS = 15
KERNEL = f"{Path(__file__).with_name('matmul_kernel.py')}:tiled_matmul"
SMALL = ("--arg", "f32[128,128]", "--arg", "f32[128,512]")
VERBS = ("estimate", "check", "profile")


def process(*arguments: str) -> Callable[[], object]:
    """Run Python in a process of its own."""
    # an installed package has its bytecode; without, most of the time goes to compiling it
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return lambda: subprocess.run(
        [sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=variables
    )


def _of_children() -> float:
    """Processor seconds of the processes that ended: what else the machine does is left out."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Measure and print."""
    times = medians(
        {
            "python alone": process("-c", "pass"),
            "import numpy": process("-c", "import numpy"),
            "import nkilab": process("-c", "import nkilab"),
            "nkilab --help": process("-m", "nkilab", "--help"),
            **{f"nkilab {verb}": process("-m", "nkilab", verb, KERNEL, *SMALL) for verb in VERBS},
        },
        RUNS,
        _of_children,
    )
    print(", ".join(f"{name} {t:.3f} s" for name, t in times.items()))
    bar(
        "import nkilab, beyond python alone", times["import nkilab"] - times["python alone"], "s", "under 0.2"
    )
    bar("nkilab --help, whole process", times["nkilab --help"], "s", "under 0.3")
    for verb in VERBS:
        spent = times[f"nkilab {verb}"]
        bar(f"nkilab {verb} of a small kernel / import numpy", spent / times["import numpy"], "times", "2")


if __name__ == "__main__":
    main()
