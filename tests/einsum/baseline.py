"""What compiled cascades weigh, against the table that is kept: no step may make a kernel worse unseen.

    python -m tests.einsum.baseline              compare with `baseline.tsv`: nothing worse by 2 %
    ... --values                                 run small kernels on their probes, too
    ... --update [--because WHY]                 write the table anew; WHY stands where it got worse
    ... --against REVISION                       kernels of another revision and these, on one clock

Names or parts of rows (`softmax`, `bench`, `neuronxcc`) choose some. Cascades of the corpus need
NKILAB_EINSUM_CORPUS; those of this folder are always there. Statements, transfers, bytes and room are
compared whatever the clock says. Latency and the work of engines depend on the timing model too: they are
compared where that is the one of the table, else not; `--against` compares them on one clock.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import nkilab.einsum
from nkilab.api import traced
from nkilab.einsum.compiled import CompiledEinsum, module_of
from nkilab.einsum.language.ast import Cascade
from nkilab.einsum.room import lives_of, size_of
from nkilab.einsum.tree.nodes import PSUM, SBUF, run_by
from nkilab.errors import NkilabError
from nkilab.estimates import estimate_programs
from nkilab.hook import activate
from nkilab.trace.program import Program
from tests.einsum.cascades import CASES
from tests.einsum.realistic import REALISTIC
from tests.einsum.renaming import shape_of

FILE = Path(__file__).with_suffix(".tsv")
ROOT = Path(__file__).parents[2]
DIALECTS, DTYPES = ("nki", "neuronxcc"), ("float32", "bfloat16")
# part of a figure that it may grow by
MOST = 0.02
# folders whose modules, with the chips, say how long instructions take
CLOCK = ("isa", "machine", "place", "timing")
STRUCTURE = ("statements", "transfers", "bytes", "sbuf", "psum")
TIMES = ("tensor", "vector", "scalar", "gpsimd", "latency")


@dataclass(frozen=True)
class Subject:
    """A cascade at one size, in one type and spelling."""

    name: str
    size: str
    dtype: str
    dialect: str
    cascade: Cascade
    extents: Mapping[str, int]

    @property
    def key(self) -> str:
        """What its row begins with."""
        return f"{self.name} {self.size} {self.dtype} {self.dialect}"

    def compiled(self) -> CompiledEinsum:
        """Its kernel."""
        types = dict.fromkeys((*self.cascade.inputs, *self.cascade.outputs), self.dtype)
        gathered = {g.access.tensor for e in self.cascade.einsums for a in e.accesses for g in a.gathers}
        types |= dict.fromkeys(gathered, "int32")
        return nkilab.einsum.compile(self.cascade, sizes=self.extents, dtypes=types, dialect=self.dialect)


@dataclass(frozen=True)
class Row:
    """What a kernel weighs.

    Args:
        statements: that it runs.
        transfers, bytes: of DMA.
        sbuf, psum: the most that live tiles take, one buffer each: bytes per partition, banks.
        tensor, vector, scalar, gpsimd: microseconds of work.
        latency: predicted, in microseconds.
        roofline: of the cascade, in microseconds.
        text: a digest of the kernel without its names.
        refused: the first line of the error, where there is no kernel.
        because: why it got worse, where it did.
    """

    statements: int = 0
    transfers: int = 0
    bytes: int = 0
    sbuf: int = 0
    psum: int = 0
    tensor: float = 0.0
    vector: float = 0.0
    scalar: float = 0.0
    gpsimd: float = 0.0
    latency: float = 0.0
    roofline: float = 0.0
    text: str = ""
    refused: str = ""
    because: str = ""


def subjects() -> Iterator[Subject]:
    """All that is weighed: small cases, realistic ones, and the corpus where it is named."""
    for case in CASES:
        ones = case.extents(**dict.fromkeys(case.sizes, 1))
        yield from _each(case.name, case.cascade, {"ragged": case.extents(), "one": ones})
    for case in REALISTIC:
        yield from _each(case.name, case.cascade, {"real": case.extents()})
    yield from _of_corpus()


def _each(name: str, cascade: Cascade, sizes: Mapping[str, Mapping[str, int]]) -> Iterator[Subject]:
    for size, extents in sizes.items():
        for dtype in DTYPES:
            yield from (Subject(name, size, dtype, dialect, cascade, extents) for dialect in DIALECTS)


def _of_corpus() -> Iterator[Subject]:
    from benchmarks.einsums import SHAPES

    from tests.conformance.corpus import corpus, extents

    for entry in corpus():
        sizes = {kind: extents(entry, kind) for kind in ("exact", "ragged", "one")}
        yield from _each(entry.name, entry.cascade, sizes)
        text, dtype = SHAPES[entry.name]
        real = {rank: int(size) for rank, size in (part.split("=") for part in text.split())}
        yield Subject(entry.name, "bench", dtype, "nki", entry.cascade, real)


def clock() -> str:
    """A digest of what says how long instructions take."""
    folder = Path(nkilab.__file__).parent
    paths = sorted(p for name in CLOCK for p in (folder / name).rglob("*.py"))
    return hashlib.sha256(b"".join(p.read_bytes() for p in paths)).hexdigest()[:12]


def weighed(subject: Subject) -> Row:
    """The row of a subject."""
    try:
        kernel = subject.compiled()
    except NkilabError as error:
        return Row(refused=str(error).splitlines()[0].partition(": ")[2][:100])
    assert kernel.tree is not None
    bank = int(kernel.machine["psum_bank_bytes"])
    body = kernel.tree.body
    return replace(
        timed(traced_program(kernel.source, kernel.specs, kernel.name)),
        statements=run_by(body),
        sbuf=lives_of(body).peak(lambda b: size_of(b) if b.memory == SBUF else 0, 1),
        psum=lives_of(body).peak(lambda b: -(-size_of(b) // bank) if b.memory == PSUM else 0, 1),
        roofline=round(kernel.roofline.least_us, 3),
        text=hashlib.sha256(" ".join(shape_of(kernel.source)).encode()).hexdigest()[:10],
    )


def timed(programs: tuple[Program, ...]) -> Row:
    """The part of a row that a traced program gives; what the compiler adds counts in the latency alone."""
    work = dict.fromkeys(("tensor", "vector", "scalar", "gpsimd"), 0.0)
    transfers = size = 0
    forms = programs[0].forms
    for form in programs[0].form_column.tolist():
        for step in forms[form].steps:
            if step.engine == "dma":
                transfers, size = transfers + 1, size + step.moved_bytes
            else:
                work[step.engine] += step.busy_ns / 1000
    rounded = {engine: round(time, 3) for engine, time in work.items()}
    latency = round(estimate_programs(programs).latency_us, 3)
    return Row(transfers=transfers, bytes=size, latency=latency, **rounded)


def is_right(subject: Subject) -> bool:
    """Whether the kernel passes its probes."""
    return all(verdict.is_fine for verdict in subject.compiled().verify())


def worse(old: Row, new: Row, names: Iterable[str]) -> list[str]:
    """Figures that grew, one sentence each; a kernel that is refused now is worse, too."""
    if new.refused and not old.refused:
        return [f"refused: {new.refused}"]
    pairs = ((name, getattr(old, name), getattr(new, name)) for name in names)
    grown = [f"{n} {a:g} -> {b:g}" for n, a, b in pairs if b > a * (1 + MOST) + 1e-9]
    return [] if old.refused else grown


def read() -> tuple[str, dict[str, Row]]:
    """The clock of the table, and its rows."""
    first, *lines = FILE.read_text(encoding="utf-8").splitlines()
    rows = {}
    for line in lines[1:]:
        key, *cells = line.split("\t")
        rows[key] = Row(*(f.type_of(cell) for f, cell in zip(_columns(), cells, strict=True)))
    return first.split()[-1], rows


@dataclass(frozen=True)
class _Column:
    name: str
    type_of: Any


def _columns() -> list[_Column]:
    types = {"int": int, "float": float, "str": str}
    return [_Column(f.name, types[str(f.type)]) for f in fields(Row)]


def write(rows: Mapping[str, Row]) -> None:
    """Write the table."""
    columns = _columns()
    lines = [f"# written by `python -m tests.einsum.baseline --update`; clock {clock()}"]
    lines.append("\t".join(["cascade", *(c.name for c in columns)]))
    for key, row in rows.items():
        lines.append("\t".join([key, *(_cell(getattr(row, c.name)) for c in columns)]))
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _cell(value: float | str) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def sources(chosen: Iterable[Subject]) -> dict[str, tuple[str, dict[str, Any], str]]:
    """Texts of kernels, with their names and what they take: what another revision is asked for."""
    texts = {}
    for subject in chosen:
        try:
            kernel = subject.compiled()
        except NkilabError:
            continue
        texts[subject.key] = (kernel.source, kernel.specs, kernel.name)
    return texts


def sources_of(revision: str, chosen: list[Subject]) -> dict[str, str]:
    """Texts of the kernels that another revision makes of the same cascades."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", revision, "src"], cwd=ROOT, capture_output=True, check=True
        )
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        path = os.pathsep.join([str(Path(folder) / "src"), str(ROOT)])
        command = [sys.executable, "-m", "tests.einsum.baseline", "--sources", *(s.key for s in chosen)]
        texts = subprocess.run(
            command, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE, check=True
        )
        return dict(json.loads(texts.stdout))


def against(revision: str, chosen: list[Subject]) -> list[str]:
    """Lines on kernels that are slower, on one clock, than those of another revision."""
    lines, ratios = [], []
    before = sources_of(revision, chosen)
    for key, (source, specs, name) in sources(chosen).items():
        if key not in before or before[key] == source:
            continue
        old, new = (timed(traced_program(text, specs, name)) for text in (before[key], source))
        ratios.append(new.latency / old.latency)
        lines += [f"{key}: {growth}" for growth in worse(old, new, (*STRUCTURE[1:3], *TIMES))]
    ratios.sort()
    least, middle, most = (ratios[n] for n in (0, len(ratios) // 2, -1)) if ratios else (1.0, 1.0, 1.0)
    print(f"{len(ratios)} texts differ; latency to before: {least:.3f}, middle {middle:.3f}, {most:.3f}")
    return lines


def traced_program(source: str, specs: Mapping[str, Any], name: str) -> tuple[Program, ...]:
    """What a kernel records, from its text and the shapes that it takes."""
    with activate():
        return traced(getattr(module_of(source, name), name), (), dict(specs), "trn2")


def compare(chosen: list[Subject], has_values: bool) -> list[str]:
    """A line per figure that got worse, and per kernel that is wrong."""
    stored_clock, kept = read()
    names = STRUCTURE if stored_clock != clock() else (*STRUCTURE, *TIMES)
    lines, texts = [], 0
    for subject in chosen:
        row, old = weighed(subject), kept.get(subject.key)
        if old is None:
            lines.append(f"{subject.key}: is not in the table")
            continue
        texts += row.text != old.text
        lines += [f"{subject.key}: {growth}" for growth in worse(old, row, names)]
        if has_values and subject.size not in ("real", "bench") and not row.refused and not is_right(subject):
            lines.append(f"{subject.key}: values are wrong")
    print(f"{len(chosen)} kernels weighed, {texts} with another text than the table's")
    if names == STRUCTURE:
        print("the clock is another one than the table's: times are not compared; --against REVISION does")
    return lines


def update(chosen: list[Subject], because: str) -> list[str]:
    """Write rows anew; those that got worse need a reason."""
    kept = read()[1] if FILE.exists() else {}
    is_same_clock = FILE.exists() and read()[0] == clock()
    names = (*STRUCTURE, *TIMES) if is_same_clock else STRUCTURE
    lines = []
    for subject in chosen:
        row, old = weighed(subject), kept.get(subject.key, Row(refused="new"))
        growth = worse(old, row, names)
        if growth and not because:
            lines += [f"{subject.key}: {one}; --because says why" for one in growth]
            continue
        reason = f"{because} ({'; '.join(growth)})" if growth else old.because
        kept[subject.key] = replace(row, because=reason)
    write(kept)
    return lines


def main() -> int:
    """Compare, or write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", help="rows whose key has one of these")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--because", default="")
    parser.add_argument("--values", action="store_true", help="run small kernels on their probes, too")
    parser.add_argument("--against", default="")
    parser.add_argument("--sources", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    chosen = [s for s in subjects() if not arguments.words or any(w in s.key for w in arguments.words)]
    if arguments.sources:
        print(json.dumps({key: text for key, (text, _, _) in sources(chosen).items()}))
        return 0
    if arguments.update:
        lines = update(chosen, arguments.because)
    elif arguments.against:
        lines = against(arguments.against, chosen)
    else:
        lines = compare(chosen, arguments.values)
    print("\n".join(lines))
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
