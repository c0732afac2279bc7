"""Which programs differ only in where in HBM they load and store."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nkilab.place.compiler_passes import MIDDLE_END
from nkilab.place.equal_programs import is_moved
from nkilab.place.plan import Finding
from nkilab.place.slots import slots_of
from nkilab.trace.run_notes import EVERY_TILE, Address

from .handmade import Kernel, columns, rows


def shifted(
    block: int = 0,
    *,
    chip: str = "trn2",
    column: int = 0,
    engine: str = "vector",
    dtype: str = "float32",
    source: int = 0,
    more: bool = False,
) -> Kernel:
    """A block of 128 rows is loaded, a half of its columns copied, and stored back."""
    k = Kernel(chip)
    x, y = k.hbm(512, 64), k.hbm(512, 64)
    a, b, c = k.tile(128, 64), k.tile(128, 32), k.tile(128, 32, dtype=dtype)
    k.load(a, rows((x, y)[source], block, block + 128))
    k.copy(b, columns(a, column, column + 32), engine)
    k.copy(c, b, engine)
    k.store(columns(rows(y, block, block + 128), 0, 32), b)
    if more:
        k.fill(a)
    return k


def are_moved(one: Kernel, other: Kernel) -> bool:
    return is_moved(one.program, slots_of(one.program), other.program, slots_of(other.program))


def test_programs_that_load_and_store_elsewhere_are_alike() -> None:
    assert are_moved(shifted(), shifted())
    assert are_moved(shifted(), shifted(256))


@pytest.mark.parametrize(
    "other",
    [
        shifted(chip="trn3"), shifted(column=32), shifted(engine="scalar"), shifted(dtype="bfloat16"),
        shifted(source=1), shifted(more=True), Kernel(),
    ],
    ids=["chip", "columns of a tile", "engine", "type", "tensor", "one more row", "nothing"],
)  # fmt: skip
def test_programs_that_differ_otherwise_are_not(other: Kernel) -> None:
    assert not are_moved(shifted(), other)
    assert not are_moved(other, shifted())


def in_loop(k: Kernel) -> None:
    k.program.position_column[1] += 1


def on_another_line(k: Kernel) -> None:
    k.program.line_column[1] += 1


def to_another_tile(k: Kernel) -> None:
    k.program.storage_column[3] += 1


def with_an_address(k: Kernel) -> None:
    k.program.addresses[2] = Address(0, 0, 0, EVERY_TILE, True)


def with_a_finding(k: Kernel) -> None:
    k.program.findings = [Finding("spill", "", "")]


def in_beta_1(k: Kernel) -> None:
    k.program.compiler = MIDDLE_END


def with_a_loop(k: Kernel) -> None:
    k.program.positions.append((0, 7, 0))


def of_another_size(k: Kernel) -> None:
    k.program.storages[4] = k.program.storages[4]._replace(shape=(128, 33))


@pytest.mark.parametrize(
    "change",
    [in_loop, on_another_line, to_another_tile, with_an_address, with_a_finding, in_beta_1, with_a_loop,
     of_another_size],
)  # fmt: skip
def test_one_difference_is_enough(change: Callable[[Kernel], None]) -> None:
    other = shifted()
    change(other)
    assert not are_moved(shifted(), other)


def test_who_reads_what_it_writes_differs_from_who_overwrites() -> None:
    one, other = Kernel(), Kernel()
    for k, accumulates in ((one, False), (other, True)):
        k.matmul(k.psum(128, 64), k.tile(128, 128), k.tile(128, 64), accumulate=accumulates)
    assert not are_moved(one, other)
