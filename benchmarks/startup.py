"""How long a fresh process takes to import nkilab and to print its help."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from timing import bar, medians

RUNS = 15


def _process(*arguments: str) -> Callable[[], object]:
    return lambda: subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    """Measure and print."""
    times = medians(
        {
            "python alone": _process("-c", "pass"),
            "import numpy": _process("-c", "import numpy"),
            "import nkilab": _process("-c", "import nkilab"),
            "nkilab --help": _process("-m", "nkilab", "--help"),
        },
        RUNS,
    )
    print(", ".join(f"{name} {t:.3f} s" for name, t in times.items()))
    bar(
        "import nkilab, beyond python alone", times["import nkilab"] - times["python alone"], "s", "under 0.2"
    )
    bar("nkilab --help, whole process", times["nkilab --help"], "s", "under 0.3")


if __name__ == "__main__":
    main()
