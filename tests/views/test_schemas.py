"""What is printed as JSON keeps to the schemas in docs/schemas, which name their version."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nkilab import activate, profile, spec
from nkilab.views.difference import Difference
from nkilab.views.record import profile_dict
from tests.place.handmade import Kernel
from tests.views.runs import kernel_run, run_of
from tests.views.test_path import KERNELS

FOLDER = Path(__file__).parents[2] / "docs" / "schemas"
FILES = sorted(FOLDER.glob("*.json"))
jsonschema = pytest.importorskip("jsonschema")


def check(value: dict[str, Any]) -> None:
    """Validate a value by the schema that it names."""
    name, _, version = value["schema"].partition("/")
    schema = json.loads((FOLDER / f"{name}-{version}.json").read_text())
    assert schema["$id"] == value["schema"] == schema["properties"]["schema"]["const"]
    jsonschema.Draft202012Validator(schema).validate(json.loads(json.dumps(value)))


@pytest.mark.parametrize("path", FILES, ids=[path.name for path in FILES])
def test_schemas_are_schemas_and_closed(path: Path) -> None:
    schema = json.loads(path.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["additionalProperties"] is False
    assert set(schema["required"]) <= set(schema["properties"])


@pytest.mark.parametrize("path", FILES, ids=[path.name for path in FILES])
def test_what_a_schema_has_of_another_is_the_same_there(path: Path) -> None:
    inner = json.loads(path.read_text()).get("$defs", {})
    for name in {"estimate", "check", "summary", "error"} & set(inner):
        other = json.loads((FOLDER / f"nkilab.{name}-1.json").read_text())
        assert inner[name]["properties"] == other["properties"], name


@pytest.mark.parametrize("name", KERNELS)
def test_profiles_and_summaries_keep_to_their_schema(name: str) -> None:
    check(profile_dict(kernel_run(name)))
    check(kernel_run(name).summary.to_dict())


def test_an_empty_profile_keeps_to_its_schema() -> None:
    check(profile_dict(run_of(Kernel("trn2"))))


def test_estimates_and_differences_keep_to_their_schema() -> None:
    with activate():
        from nkilab.ledger.kernels import matmul

        profiled = profile(matmul.tiled, spec((128, 128), "bfloat16"), spec((128, 512), "bfloat16"))
    check(profiled.to_dict())
    check(profiled.diff(profiled.what_if(psum_banks=16)).to_dict())
    check(Difference(kernel_run("tiled"), kernel_run("attention"), ("a", "b")).to_dict())
