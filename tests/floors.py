"""What the tests covered of each folder, against the floors of `budgets.toml`.

    python -m tests.floors            fails where the data of `pytest --cov` are below a floor
    python -m tests.floors --raise    writes shares, rounded down, into budgets.toml where they are above

Jobs that numba compiles count only where a test also runs them as Python.
"""

from __future__ import annotations

import sys
import tomllib
from collections import defaultdict
from pathlib import Path

import coverage

FILE = Path(__file__).with_name("budgets.toml")
MODULES = "modules"


def home_of(path: str) -> str:
    """The folder of the package that a file belongs to; those of none are one."""
    _, _, below = path.replace("\\", "/").rpartition("/nkilab/")
    return below.split("/")[0] if "/" in below else MODULES


def shares(measured: coverage.Coverage) -> dict[str, tuple[int, int]]:
    """Per folder its statements and how many of them ran, in any copy of a module: installed, or in `src`."""
    statements, ran = defaultdict[str, set[int]](set), defaultdict[str, set[int]](set)
    for path in measured.get_data().measured_files():
        _, lines, _, missing, _ = measured.analysis2(path)
        module = path.replace("\\", "/").rpartition("/nkilab/")[2]
        statements[module] |= {*lines}
        ran[module] |= {*lines} - {*missing}
    by_folder: dict[str, tuple[int, int]] = {}
    for module, lines in sorted(statements.items()):
        count, covered = by_folder.get(home_of(f"/nkilab/{module}"), (0, 0))
        by_folder[home_of(f"/nkilab/{module}")] = count + len(lines), covered + len(ran[module])
    return dict(sorted((home, share) for home, share in by_folder.items() if share[0]))


def complaints(measured: dict[str, tuple[int, int]], floors: dict[str, int]) -> list[str]:
    """What lies below its floor, or has none."""
    below = [f"{home} has no floor" for home in measured.keys() - floors.keys()]
    below += [f"{home} has a floor and no statement" for home in floors.keys() - measured.keys()]
    for home in measured.keys() & floors.keys():
        count, ran = measured[home]
        if 100 * ran < floors[home] * count:
            below.append(f"{home} is covered to {100 * ran / count:.1f} %; its floor is {floors[home]} %")
    return sorted(below)


def raised(text: str, measured: dict[str, tuple[int, int]]) -> str:
    """The file with the floors of folders that the tests cover further, and of new folders."""
    before, _, _ = text.partition("[coverage]\n")
    floors = tomllib.loads(text)["coverage"]
    shares = {home: 100 * ran // count for home, (count, ran) in measured.items()}
    rows = [f"{home} = {max(share, floors.get(home, 0))}" for home, share in shares.items()]
    return "\n".join([f"{before}[coverage]", *rows]) + "\n"


def main() -> int:
    """Print the table, and what lies below."""
    floors = tomllib.loads(FILE.read_text(encoding="utf-8"))["coverage"]
    measured = coverage.Coverage()
    measured.load()
    # processes that ended after pytest did
    measured.combine(keep=False, strict=False)
    by_folder = shares(measured)
    print(f"{'folder':12} {'lines':>7} {'covered':>8} {'share':>7} {'floor':>6}")
    for home, (count, ran) in by_folder.items():
        print(f"{home:12} {count:7} {ran:8} {100 * ran / count:6.1f}% {floors.get(home, 'none'):>5}%")
    if "--raise" in sys.argv:
        FILE.write_text(raised(FILE.read_text(encoding="utf-8"), by_folder), encoding="utf-8")
        return 0
    below = complaints(by_folder, floors)
    print("\n".join(below + ["write tests, or say in the commit why a floor comes down"] * bool(below)))
    return 1 if below else 0


if __name__ == "__main__":
    sys.exit(main())
