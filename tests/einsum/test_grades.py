"""The table of what may be wrong: every row and fault has a specification, with its grade and text."""

from __future__ import annotations

from pathlib import Path

import pytest

import nkilab.einsum
from nkilab.einsum.checks.judge import judge
from nkilab.einsum.grades import Finding, Grade, enforce, table
from nkilab.einsum.language.sources import Source
from nkilab.einsum.language.spec import read_spec
from nkilab.errors import SpecError
from nkilab.machine import machine_named
from tests.einsum.mistakes import BY_CONSTRUCTION, MISTAKES, Mistake
from tests.einsum.specs import PRODUCT, SUMS

pytestmark = pytest.mark.corpus

PINNED = Path(__file__).with_name("mistakes.txt")
every = pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: f"{m.row} {m.name}".strip())
repairs = [m for m in MISTAKES if table()[m.row].grade is Grade.REPAIR]


def findings(text: str, chip: str = "trn2") -> tuple[Finding, ...]:
    return judge(read_spec(Source(text, "s.yaml")), machine_named(chip))


def pinned() -> dict[str, str]:
    """Texts by title: "row name: grade"."""
    blocks = PINNED.read_text().split("== ")[1:]
    return {title: text.rstrip("\n") for title, _, text in (b.partition("\n") for b in blocks)}


def test_nothing_is_wrong_with_what_is_changed() -> None:
    assert findings(PRODUCT) == ()
    # a sum carried by a loop is repaired; a column of two numbers makes short rows
    assert {f.row.id for f in findings(SUMS)} == {"carried-loop", "short-row"}


@every
def test_a_mistake_is_told_with_place_key_sentence_and_change(mistake: Mistake) -> None:
    finding = next(f for f in findings(mistake.text) if f.row.id == mistake.row)
    title = f"{mistake.row}{' ' + mistake.name if mistake.name else ''}: {finding.grade.value}"
    assert finding.text == pinned()[title]


def test_every_row_has_a_mistake_and_every_pinned_text_too() -> None:
    assert {m.row for m in MISTAKES} == {row.id for row in table().values()}
    assert len(pinned()) == len(MISTAKES)


def test_every_fault_of_the_published_example_has_an_answer() -> None:
    answered = {fault for row in table().values() for fault in row.faults}
    assert answered | set(BY_CONSTRUCTION) == set(range(1, 31))
    assert not answered & set(BY_CONSTRUCTION)


def test_what_is_repaired_is_fixed() -> None:
    repaired = {fault for row in table().values() if row.grade is Grade.REPAIR for fault in row.faults}
    assert repaired == {3, 4, 5, 6, 7, 20}
    assert all(bool(row.taken) == (row.grade is Grade.REPAIR) for row in table().values())


@every
def test_errors_stop_and_nothing_else_does(mistake: Mistake) -> None:
    if table()[mistake.row].grade is Grade.ERROR:
        with pytest.raises(SpecError):
            nkilab.einsum.compile(mistake.text)
    else:
        enforce(findings(mistake.text))


@pytest.mark.parametrize("mistake", repairs, ids=lambda m: m.row)
def test_strict_refuses_repairs_with_the_same_texts(mistake: Mistake) -> None:
    repairs_reported = nkilab.einsum.compile(mistake.text).repairs
    with pytest.raises(SpecError) as refused:
        nkilab.einsum.compile(mistake.text, strict=True)
    for finding in repairs_reported:
        assert str(finding) in str(refused.value)
        assert finding.change in str(refused.value)


def test_a_tensor_may_be_read_in_two_layouts() -> None:
    # fault 12: XS is made as [K0 | K1, M] and read as [K0 | K1, M1, M0], the same elements in the same places
    assert nkilab.einsum.compile(PRODUCT).repairs == ()


def test_capacity_is_that_of_the_chip() -> None:
    # where T is summed, U, C, A and T are there: 8 + 3 * 2 * 8192 * 4 bytes; trn1 has 180,224, trn2 212,984
    text = SUMS.replace("N: 512}", "N: 8192}")
    assert not [f for f in findings(text) if f.row.id == "sbuf-capacity"]
    (finding,) = [f for f in findings(text, "trn1") if f.row.id == "sbuf-capacity"]
    assert finding.problem == "tiles in SBUF need 196616 bytes of a partition at T; trn1 has 180224"


def test_several_errors_are_told_at_once() -> None:
    text = PRODUCT.replace("instruction: MatVec", "instruction: MatMul").replace(
        "{einsum: ZS, component: VectorEngine", "{einsum: ZS, component: DMAEngine"
    )
    with pytest.raises(SpecError) as refused:
        nkilab.einsum.compile(text)
    assert str(refused.value) == (
        "49:57: binding.engine[3].instruction: MatMul is no instruction; the instructions are Load, Store, "
        "MatVec, LoopReduce, BroadcastTo, SimpleTensorScalar, SimpleTensorTensor, Activation, TensorReduce, "
        "TensorCopy, Transpose\n"
        "  also 50:31: binding.engine[4].component: SimpleTensorTensor does not run on DMAEngine; it runs on "
        "VectorEngine or GpSimdEngine (write component: VectorEngine)\n"
        "  hint: write MatVec, if that is meant"
    )
