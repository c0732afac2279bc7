"""Each transformation finds what needs it, gains what rewriting gains, and is silent where it is done."""

from __future__ import annotations

from functools import cache

import pytest

import nkilab
from nkilab.advice import CATALOGUE, Subject, advice_of, subject_of
from nkilab.advice.trials import edits_of
from nkilab.api import as_kernel, machine_for
from nkilab.arguments import argument
from nkilab.estimates import estimate_program
from nkilab.launches import launch

with nkilab.activate():
    from .pairs import PAIRS, SILENT


@cache
def subject(name: str, *, rewritten: bool) -> Subject:
    kernel, args, _ = PAIRS[name]
    with nkilab.activate():
        own = as_kernel(kernel)
        arguments = (*map(argument, args), rewritten)
        program = launch(own, arguments, {}, machine_for(own, "trn2"), has_data=False).programs[0]
        estimate = estimate_program(program)
    return subject_of(program, estimate.program, estimate.plan, estimate.timeline)


@pytest.mark.parametrize("name", PAIRS)
def test_an_edit_gains_what_the_rewritten_kernel_gains(name: str) -> None:
    slow, fast = (subject(name, rewritten=rewritten).latency_ns for rewritten in (False, True))
    assert fast < 0.97 * slow
    edited = min(edits_of(subject(name, rewritten=False), name))
    assert edited == pytest.approx(fast, rel=PAIRS[name][2])


@pytest.mark.parametrize("name", sorted(set(PAIRS) - SILENT))
def test_a_kernel_that_needs_a_transformation_is_told_so(name: str) -> None:
    assert name in {own.id for own in advice_of(subject(name, rewritten=False))}


@pytest.mark.parametrize("name", PAIRS)
def test_a_rewritten_kernel_is_not_told_again(name: str) -> None:
    assert name not in {own.id for own in advice_of(subject(name, rewritten=True))}


def test_every_transformation_has_a_pair() -> None:
    assert set(CATALOGUE) == {*PAIRS, *(id for id, own in CATALOGUE.items() if own.rule.wrong is not None)}
