"""Texts of the scripts that test, time and profile a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import dedent, indent

from ..language.ast import Cascade

_TEST = '''\
"""Tests {name} against the cascade it was compiled from."""

{imports}
from nkilab.einsum import verify
from {module} import {name}

SPEC = """
{spec}"""


def test_{name}_computes_its_cascade():
    wrong = [str(v) for v in verify({name}, SPEC) if not v.is_fine]
    assert not wrong, "\\n".join(wrong)


if __name__ == "__main__":
    for verdict in verify({name}, SPEC):
        print(verdict)
'''
_BENCHMARK = '''\
"""Times {name}."""

import numpy as np
{imports}
from {module} import {name}

rng = np.random.default_rng(0)
{arrays}

bench = nki.benchmark(warmup=5, iters=10)({name})
bench({arguments})
latency = bench.benchmark_result.nc_latency
print(f"Latency: {{latency.get_latency_percentile(99) / 1000:.3f}} ms (P99)")
'''
_PROFILE = '''\
"""Profiles {name}: writes a program, a trace and a report beside this script."""

from pathlib import Path

import numpy as np
{imports}
from {module} import {name}

rng = np.random.default_rng(0)
{arrays}

profile = nki.profile(
    working_directory=Path.cwd(), save_neff_name="{name}.neff", save_trace_name="{name}.ntff", overwrite=True
)({name})
profile({arguments})
'''
_ESTIMATE = '''\
"""Predicts the latency of {name}, which this spelling does not time itself."""

import nkilab
from {module} import {name}

estimate = nkilab.estimate(
    {name},
{specs}
)
print(f"Latency: {{estimate.latency_us / 1000:.3f}} ms, predicted for {{estimate.target}}")
'''
IMPORTS = {"nki": "import nki", "neuronxcc": "import neuronxcc.nki as nki"}


def _arrays(cascade: Cascade, dtypes: Mapping[str, str]) -> str:
    lines = ["import ml_dtypes"] if "bfloat16" in dtypes.values() else []
    for name in cascade.inputs:
        dtype, shape = dtypes[name], cascade.shape(name)
        if dtype.lstrip("u").startswith("int"):
            lines.append(f"{name} = rng.integers(0, 2, {shape}).astype(np.{dtype})")
            continue
        module = "ml_dtypes" if dtype == "bfloat16" else "np"
        lines.append(f"{name} = rng.standard_normal({shape}).astype({module}.{dtype})")
    return "\n".join(lines)


def test_text(name: str, module: str, spec: str) -> str:
    """A test of a kernel that lies in a module, for a specification with all extents."""
    return _TEST.format(name=name, module=module, spec=indent(spec, ""), imports="").replace(
        "\n\n\nfrom", "\n\nfrom", 1
    )


test_text.__test__ = False  # type: ignore[attr-defined]


def benchmark_text(name: str, module: str, cascade: Cascade, dtypes: Mapping[str, str], dialect: str) -> str:
    """A script that times a kernel."""
    if dialect == "nki":
        return _estimate_text(name, module, cascade, dtypes)
    return _BENCHMARK.format(
        name=name,
        module=module,
        arrays=_arrays(cascade, dtypes),
        arguments=", ".join(cascade.inputs),
        imports=IMPORTS[dialect],
    )


def _estimate_text(name: str, module: str, cascade: Cascade, dtypes: Mapping[str, str]) -> str:
    specs = "\n".join(f'    nkilab.spec({cascade.shape(n) or (1,)}, "{dtypes[n]}"),' for n in cascade.inputs)
    return _ESTIMATE.format(name=name, module=module, specs=specs)


def profile_text(name: str, module: str, cascade: Cascade, dtypes: Mapping[str, str], dialect: str) -> str:
    """A script that profiles a kernel."""
    if dialect == "nki":
        text = _estimate_text(name, module, cascade, dtypes)
        return text.replace("Predicts the latency", "Shows where the time goes, predicted,") + dedent(
            """\
            for metric, value in estimate.summary.values.items():
                print(f"{metric}: {value:g}")
            """
        )
    return _PROFILE.format(
        name=name,
        module=module,
        arrays=_arrays(cascade, dtypes),
        arguments=", ".join(cascade.inputs),
        imports=IMPORTS[dialect],
    )
