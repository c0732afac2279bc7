"""Iterations done together: blocks of products, larger transfers, wider tiles, more partitions, phases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from ...isa.declare import Instruction
from ...trace.program import Program
from ..declare import POINTWISE, Candidate, Edit, Subject, plural, transformation
from ..draft import FREE, PARTITIONS, Unfit
from ..jam import Block, jammed
from ..loops import Loop
from ..reorder import reordered
from ..subject import rows_where
from .added_products import longer_sums

Joins = Callable[[Instruction], bool] | None
Named = tuple[str, Edit]
# hw: a transfer of less than this is mostly fixed cost (DMA guide, "DMA size")
LARGE_BYTES = 1 << 20
_GUIDE = "NKI kernel optimization guide"


def _edit(
    subject: Subject, block: Block, axis: str = FREE, joins: Joins = None, *, shares: bool = True
) -> Edit:
    return lambda: jammed(subject.equals, block, axis, joins, shares=shares)


def _everything(form: Instruction) -> bool:
    return True


def _transfers(form: Instruction) -> bool:
    return form.name == "dma_copy"


def _names(program: Program, loop: Loop) -> list[str]:
    """Instructions of one iteration."""
    return [program.form_of(row).name for row in loop.rows()[0].tolist()]


def _products(program: Program, loop: Loop) -> int:
    return sum(name in ("nc_matmul", "nc_matmul_mx") for name in _names(program, loop))


def _transfer_rows(subject: Subject, loop: Loop) -> np.ndarray:
    """Rows of a loop that move bytes."""
    return np.intersect1d(loop.rows(), rows_where(subject.base, lambda form: form.name.startswith("dma_")))


def _outer(subject: Subject) -> list[Loop]:
    """Loops whose iterations finish a result: with products and a store or a copy out of PSUM."""
    return [loop for loop in subject.loops if len({*_names(subject.base, loop)} - {"dma_copy"}) > 1
            and _products(subject.base, loop)]  # fmt: skip


@transformation(
    "block_mn",
    title="a loaded tile serves several output tiles",
    what="operand tiles are loaded again for each output tile that they are part of",
    why="a block of output tiles reads each operand tile once; PSUM has eight banks for the sums",
    fix="compute a block of output tiles together: load its rows and columns once, multiply all pairs",
    source=f"{_GUIDE}, block the free dimension",
)
def blocks(subject: Subject) -> Iterator[Candidate]:
    """Blocks of output tiles, along each of the loops over them and along both."""
    own = subject
    if not any(len(_repeated_transfers(subject, loop)) for loop in _outer(subject)[:3]):
        subject = subject.renewed
    for loop in _outer(subject)[:3]:
        loads = _repeated_transfers(subject, loop)
        if not len(loads):
            continue
        edits = [(f"blocks of {near} iterations", _edit(subject, Block(loop, near))) for near in (4, 2)]
        for period in loop.periods(subject.base)[:1]:
            far = [(f"blocks of {far} x {near} iterations", _edit(subject, Block(loop, near, far, period)))
                   for far, near in ((2, 2), (2, 4), (4, 2), (2, 1), (4, 1))]  # fmt: skip
            edits = [far[0], edits[0], far[1], edits[1], *far[2:]]
        yield Candidate(
            loop.line,
            f"{plural(len(loads), 'transfer', 'bring')} operand tiles that other output tiles use too",
            subject.weight(loads), tuple(edits), since_ns=0.0 if subject is own else own.renewed_ns,
        )  # fmt: skip


def _repeated_transfers(subject: Subject, loop: Loop) -> np.ndarray:
    """Rows of a loop that load what other iterations load too."""
    again = subject.equals.first
    rows = [row for tile in again for row in subject.equals.writers[tile]]
    mine = np.intersect1d(np.array(rows, np.int64), loop.rows().ravel())
    return np.intersect1d(mine, _transfer_rows(subject, loop))


@transformation(
    "block_k", relieves=("dma", *POINTWISE), title="contraction tiles are loaded together",
    what="operand tiles arrive one for each multiplication, which waits for them",
    why="a transfer has a fixed cost of about two microseconds; several tiles share it",
    fix="load several tiles of the contraction in one transfer, then multiply them one after another",
    source=f"{_GUIDE}, block all dimensions",
)  # fmt: skip
def contraction_blocks(subject: Subject) -> Iterator[Candidate]:
    """Iterations of one product each, whose loads are one transfer."""
    for loop in subject.loops:
        transfers = _transfer_rows(subject, loop)
        if _products(subject.base, loop) != 1 or not len(transfers) or loop in _outer(subject):
            continue
        blocks = [Block(loop, count) for count in (4, 8, 2)]
        edits = [(f"{own.size} contraction tiles in one transfer", _edit(subject, own, FREE, _transfers))
                 for own in blocks]  # fmt: skip
        yield Candidate(
            loop.line, f"{plural(len(transfers), 'transfer')}, each for one multiplication",
            subject.weight(transfers), tuple(edits),
        )  # fmt: skip
        break
    for rows, line, longer in longer_sums(subject):
        yield Candidate(
            line, f"{plural(len(rows), 'addition')} of short sums of products", subject.weight(rows), longer
        )


@transformation(
    "bigger_transfers",
    title="transfers are large enough to hide their fixed cost",
    what="a loop moves many small pieces that lie side by side in HBM",
    why="a transfer takes about two microseconds before its first byte, whatever its size",
    fix="move several iterations' pieces in one transfer, into one wider tile",
    source="NKI performance guide, DMA size; DMA bandwidth guide",
)
def larger_transfers(subject: Subject) -> Iterator[Candidate]:
    """Iterations whose rows are joined along the free axis, transfers above all."""
    for loop in subject.loops[:4]:
        rows = _transfer_rows(subject, loop)
        if not len(rows):
            continue
        size = max(_moved(subject, int(r)) for r in np.intersect1d(rows, loop.rows()[0]).tolist())
        if size >= LARGE_BYTES:
            continue
        most = min(len(loop.start), 4 * LARGE_BYTES // max(1, size))
        divisors = [n for n in range(2, most + 1) if len(loop.start) % n == 0]
        # one that is near each power of four
        counts = sorted(
            {min(divisors, key=lambda n: abs(np.log(n / p))) for p in (4, 16, 64, 256) if divisors}
        )
        joins = _transfers if _products(subject.base, loop) else _everything
        edits = [
            (f"{n} pieces at once", _edit(subject, Block(loop, n), FREE, joins, shares=False))
            for n in reversed(counts[-3:])
        ]
        if edits:
            yield Candidate(
                loop.line, f"{plural(len(rows), 'transfer')} of at most {size} bytes each",
                subject.weight(rows), tuple(edits),
            )  # fmt: skip


def _moved(subject: Subject, row: int) -> int:
    return sum(step.moved_bytes for step in subject.base.form_of(row).steps)


@transformation(
    "widen_moving",
    title="moving tiles are 512 columns wide",
    what="a multiplication streams fewer columns than it may",
    why="weights load for each multiplication, and 64 cycles are the least that one takes",
    fix="give moving up to 512 columns, and psum a tile of as many",
    source="nki.isa.nc_matmul, tile size; trn1 architecture guide, TensorE",
)
def wider_moving(subject: Subject) -> Iterator[Candidate]:
    """Output tiles side by side whose products share their stationary tile, joined to one product."""
    most = subject.base.machine.limit("moving_free_max")
    for loop in _outer(subject)[:2]:
        rows = loop.rows().ravel()
        matmuls = np.intersect1d(rows, subject.rows_of("nc_matmul"))
        widths = {subject.base.form_of(int(r)).layouts[2].free_size for r in matmuls[:64]}
        width = max(widths, default=most)
        if 2 * width > most:
            continue
        counts = [n for n in (4, 2) if n * width <= most]
        yield Candidate(
            int(subject.base.line_column[matmuls[0]]),
            f"{plural(len(matmuls), 'matmul', 'stream')} {width} columns; {most} are allowed",
            max(subject.weight(matmuls), subject.weight(_transfer_rows(subject, loop))),
            tuple((f"{n * width} columns at once", _wider(subject, Block(loop, n))) for n in counts),
        )


def _wider(subject: Subject, block: Block) -> Edit:
    """Joined iterations, if that joins products."""

    def edit() -> Program:
        joined = jammed(subject.equals, block, FREE, _everything)
        if joined.opcodes()["nc_matmul"] == subject.base.opcodes()["nc_matmul"]:
            raise Unfit
        return joined

    return edit


@transformation(
    "fill_partitions",
    title="tiles use all 128 partitions",
    what="instructions and transfers work on few of the 128 partitions, or matmuls contract over few rows",
    why="an instruction takes as long for one partition as for all; a pass of TensorE as long for few rows",
    fix="lay the data out so that tiles have 128 partitions and the contraction 128 rows",
    source="NKI programming guide, partition dimension; trn1 architecture guide, TensorE",
)
def more_partitions(subject: Subject) -> Iterator[Candidate]:
    """Iterations whose rows are joined along the partition axis."""
    most = subject.base.machine.limit("partitions")
    for loop in subject.loops[:3]:
        forms = [subject.base.form_of(row) for row in loop.rows()[0].tolist()]
        # what a product writes has the partitions of its columns, not of the contraction
        tiles = [(f, spec, g) for f in forms for _, spec, g in f.tile_slots() if g.is_on_chip]
        shapes = [g.partitions for f, spec, g in tiles if not (f.accumulates and spec.is_written)]
        height = max(shapes, default=most)
        count = most // max(height, 1)
        while count > 1 and len(loop.start) % count:
            count //= 2
        if count < 2:
            continue
        yield Candidate(
            loop.line, f"tiles of {plural(height, 'partition')}; {most} are there",
            subject.weight(loop.rows().ravel()),
            ((f"{count * height} partitions at once",
              _edit(subject, Block(loop, count), PARTITIONS, _everything)),),
        )  # fmt: skip


@transformation(
    "split_phases", relieves=("tensor",), title="work of one kind stands together",
    what="an engine alternates between transpositions and products that wait for each other",
    why="each change waits for a copy out of PSUM on another engine",
    fix="transpose the tiles of several iterations first, then multiply them",
    source="NKIBench write-ups of batched products",
)  # fmt: skip
def phases(subject: Subject) -> Iterator[Candidate]:
    """Iterations in step: each does one thing before the first does the next."""
    for loop in subject.loops:
        names = _names(subject.base, loop)
        tensor = _tensor_rows(subject, loop)
        if len(set(names)) < 3 or len(tensor) < 2 * len(loop.start) or len(_stages(subject, loop)) > 1:
            continue
        edits = _in_step(subject, loop, (4, 2, 8))
        if edits:
            yield Candidate(
                loop.line,
                f"{plural(len(loop.start), 'iteration')} do {len(set(names))} kinds of work in turn",
                subject.weight(tensor) / 2, edits,
            )  # fmt: skip
            return


def _tensor_rows(subject: Subject, loop: Loop) -> np.ndarray:
    """Rows of a loop on TensorE."""
    on_tensor = rows_where(subject.base, lambda form: form.steps[0].engine == "tensor")
    return np.intersect1d(loop.rows().ravel(), on_tensor)


def _in_step(subject: Subject, loop: Loop, counts: tuple[int, ...]) -> tuple[Named, ...]:
    """So many iterations, each of which does one thing before the first does the next."""
    return tuple(
        (f"the same work of {count} iterations grouped", _edit(subject, Block(loop, count), shares=False))
        for count in counts if len(loop.start) % count == 0
    )  # fmt: skip


def _stages(subject: Subject, loop: Loop) -> list[int]:
    """Places in an iteration where TensorE begins, first and behind what computes with its results."""
    result, computed = list[int](), True
    for place, row in enumerate(loop.rows()[0].tolist()):
        form = subject.base.form_of(row)
        if form.steps[0].engine == "tensor":
            result += [place] if computed else []
            computed = False
        computed |= form.name in ("activation", "activation_reduce", "tensor_reduce", "tensor_tensor")
    return result


@transformation(
    "software_pipeline", relieves=(), title="the next iteration begins before this one ends",
    what="an iteration multiplies, computes with the result and multiplies again; TensorE waits in between",
    why="an engine takes its instructions in the order of the text: what could begin in the next iteration "
    "stands behind what waits in this one",
    fix="issue the first products of the next iteration before the last ones of this one",
    source="fused attention tutorial, software pipelining; NKI performance guide, engine parallelism",
)  # fmt: skip
def pipelined(subject: Subject) -> Iterator[Candidate]:
    """The first stage of each iteration before the later ones of the iteration before it, and in step."""
    for loop in subject.loops:
        stages = _stages(subject, loop)
        if len(stages) < 2:
            continue
        ahead = partial(_staged, subject, loop, stages[-1])
        edits: tuple[Named, ...] = (
            ("the first products of the next iteration before the last of this one", ahead),
            *_in_step(subject, loop, (2, 4)),
        )
        message = (
            f"{plural(len(loop.start), 'iteration')} of {len(stages)} stages on TensorE, one after another"
        )
        yield Candidate(loop.line, message, subject.weight(_tensor_rows(subject, loop)), edits)
        return


def _staged(subject: Subject, loop: Loop, cut: int) -> Program:
    """A program whose iterations begin where those before them come to a place."""
    rows, key = loop.rows(), np.arange(len(subject.base), dtype=np.float64)
    key[rows[1:, :cut]] = rows[:-1, cut, None] - 1 + np.arange(1, cut + 1) / (cut + 1)
    return reordered(subject.base, key)[0]
