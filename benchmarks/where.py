"""Where the time of a program goes, by module of nkilab: a line of what py-spy sampled.

    py-spy record --rate 200 --full-filenames --format raw --output samples.txt -- \\
        python benchmarks/overhead.py
    python benchmarks/where.py samples.txt [MODULE]

Time belongs to the innermost function of nkilab that runs, with what NumPy and Python do for it; to a kernel
where that is the innermost; else to the package of the innermost function. With a part of a path, such as
`launches.py`, only what runs below it counts. Threads are added up; a thread that waits is not sampled.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

# of a frame as py-spy writes it: function (file:line)
_PLACE = re.compile(r"\((.+):\d+\)$")
_OWN = re.compile(r"nkilab/(.+)$")
# shares below this are added up
LEAST = 0.04


def part_of(stack: list[str]) -> str:
    """The module of nkilab that a stack's time belongs to, or whose it is."""
    files = [match[1] for frame in stack if (match := _PLACE.search(frame))]
    for file in reversed(files):
        own = _OWN.search(file)
        is_kernel = own is None and "/" in file and "site-packages" not in file and "lib/python" not in file
        if own and not own[1].startswith(("tracebacks", "_lazy")):
            return own[1]
        if is_kernel:
            return f"`{Path(file).name}`"
    return "Python and packages"


def shares(text: str, below: str = "") -> dict[str, float]:
    """The share of each part, largest first."""
    samples: Counter[str] = Counter()
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        if below in stack:
            samples[part_of(stack.split(";"))] += int(count)
    total = samples.total()
    large = {part: count / total for part, count in samples.most_common() if count >= LEAST * total}
    return {**large, "others": 1 - sum(large.values())}


def main() -> None:
    """Print the shares."""
    text = Path(sys.argv[1]).read_text(encoding="utf-8")
    parts = shares(text, *sys.argv[2:3])
    print(", ".join(f"{part} {share:.0%}" for part, share in parts.items()))


if __name__ == "__main__":
    main()
