"""`nkilab explain` has a page for everything it lists."""

from __future__ import annotations

import pytest

from nkilab.errors import UsageError
from nkilab.explain import explanation
from nkilab.isa import REGISTRY
from nkilab.machine import MACHINES
from nkilab.views.metrics import METRICS


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_the_page_of_an_instruction_names_every_operand_rule_and_its_source(name: str) -> None:
    page = explanation(name)
    cls = REGISTRY[name]
    for words in [*cls.operands, *cls.attributes, *cls.values, *(r.sentence for r in cls.rules), cls.source]:
        assert words in page


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_the_page_of_a_chip_names_every_fact_with_its_source(name: str) -> None:
    page = explanation(name)
    for fact_name, fact in MACHINES[name].facts().items():
        assert fact_name in page
        assert fact.source in page


@pytest.mark.parametrize("name", sorted(METRICS))
def test_the_page_of_a_metric_is_its_unit_and_definition(name: str) -> None:
    assert explanation(name) == f"{name} [{METRICS[name].unit}]\n\n{METRICS[name].definition}"


def test_a_name_without_a_page_offers_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        explanation("nc_matmull")
    assert str(caught.value) == "there is no page of nc_matmull\n  hint: did you mean nc_matmul?"


def test_a_spelling_that_lacks_an_instruction_says_so() -> None:
    assert "neuronxcc.nki  does not have it" in explanation("rng")
