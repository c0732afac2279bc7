"""What the checks of text find in the kernels of public repositories, which are taken to work.

`NKILAB_WILD=FOLDER:... python -m tests.conformance.wild [--lines]` reads every Python file below the folders,
one repository each, without running it; kernels of `nki` are read for each version that has a front end
of its own. It counts findings that fail by rule, and files at which the checks themselves break down.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nkilab.checks.finding import Finding
from nkilab.checks.restricted_language import violations
from nkilab.checks.scope import Scope
from nkilab.dialects.grammar import FIRST_PARSED, LAST_PARSED
from nkilab.dialects.history import BETA1, VERSIONS
from nkilab.errors import NkilabError
from nkilab.migrate.source import Function, Source, read

VARIABLE = "NKILAB_WILD"
# all generations of chips
ANY_CHIP = 0
PARSED = VERSIONS[VERSIONS.index(FIRST_PARSED) : VERSIONS.index(LAST_PARSED) + 1]


@dataclass(frozen=True)
class Reading:
    """What was found in one kernel.

    Args:
        repository: the name of its folder.
        kernel: of its file and function.
        version: of NKI.
        findings: those that fail.
    """

    repository: str
    kernel: str
    version: str
    findings: tuple[Finding, ...]


def spelling_of(source: Source, kernel: Function) -> str:
    """Whose names stand in a kernel, by the greater number; that of its file where it has none."""
    of_kernel = Counter(use.spelling for use in source.uses if kernel in source.around(use.node))
    of_file = Counter(use.spelling for use in source.uses)
    return next((s for s, _ in (*of_kernel.most_common(1), *of_file.most_common(1))), "nki")


def readings(folder: Path) -> Iterator[Reading]:
    """The kernels of a repository, once per version that may compile them."""
    for path in sorted(folder.rglob("*.py")):
        try:
            source = read(str(path))
        except NkilabError as error:
            print(f"{path}: left out: {str(error).splitlines()[0]}", file=sys.stderr)
            continue
        for kernel in sorted(source.kernels, key=lambda k: k.lineno):
            spelling = spelling_of(source, kernel)
            name = f"{path.relative_to(folder)}:{kernel.lineno} {kernel.name}"
            for version in PARSED if spelling == "nki" else (BETA1,):
                told = violations(Scope(source, kernel, version), spelling, version, ANY_CHIP)
                yield Reading(folder.name, name, version, tuple(f for f in told if f.fails))


def main() -> None:
    """Print the counts; with --lines, every finding."""
    folders = [Path(name) for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name]
    every = [reading for folder in folders for reading in readings(folder)]
    for repository in dict.fromkeys(r.repository for r in every):
        of_it = [r for r in every if r.repository == repository]
        # a kernel is written for one version: the one that refuses least of it
        best = {k: min((r for r in of_it if r.kernel == k), key=lambda r: len(r.findings))
                for k in dict.fromkeys(r.kernel for r in of_it)}  # fmt: skip
        rules = Counter(f.rule for r in best.values() for f in r.findings)
        clean = sum(not r.findings for r in best.values())
        print(f"{repository}: {clean} of {len(best)} kernels clean; {dict(rules)}")
        for reading in best.values() if "--lines" in sys.argv else ():
            for finding in reading.findings:
                where = f"{reading.kernel} ({reading.version}): {finding.site}"
                print(f"  {where}: {finding.rule}: {finding.message}")


if __name__ == "__main__":
    main()
