"""Texts of the scripts that test, time and profile a kernel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from math import lcm

from ...tiles.dtypes import as_dtype
from ..language.ast import Cascade
from ..language.spec import Spec
from .packing import Side, numpy_type

_TEST = '''\
"""Tests {name} against the cascade it was compiled from."""

from nkilab.einsum import verify
{imports}
SPEC = """
{spec}"""


def on_arrays(*arrays):
    """{name} on plain arrays."""
    arguments = pack(*arrays)
    return unpack({name}(**arguments), arguments)


def test_{name}_computes_its_cascade():
    verdicts = verify(on_arrays, SPEC)
    wrong = [str(verdict) for verdict in verdicts if not verdict.is_fine]
    assert not wrong, "\\n".join(wrong)


if __name__ == "__main__":
    test_{name}_computes_its_cascade()
    print("{name} computes its cascade")
'''
_BENCHMARK = '''\
"""Times {name}."""

import neuronxcc.nki as nki
import numpy as np
{imports}
rng = np.random.default_rng(0)
arguments = pack(
{arrays}
)
bench = nki.benchmark(warmup=5, iters=10)({name})
bench(**arguments)
latency = bench.benchmark_result.nc_latency
print(f"{name}: {{latency.get_latency_percentile(99) / 1000:.3f}} ms (P99)")
'''
_PROFILE = '''\
"""Profiles {name}: writes a program and a trace beside this script."""

from pathlib import Path

import neuronxcc.nki as nki
import numpy as np
{imports}
rng = np.random.default_rng(0)
arguments = pack(
{arrays}
)
profile = nki.profile(
    working_directory=Path.cwd(), save_neff_name="{name}.neff", save_trace_name="{name}.ntff", overwrite=True
)({name})
profile(**arguments)
'''
_ESTIMATE = '''\
"""{title}"""

import nkilab
{imports}
# this spelling has no benchmark of its own: the latency is predicted from shapes
estimate = nkilab.estimate(
    {name},
{specs}
    target="{target}",
)
print(f"{name} on {target}: {{estimate.latency_us / 1000:.3f}} ms predicted")
'''
_METRICS = """\
for metric, value in estimate.summary.values.items():
    print(f"  {metric}: {value:g}")
"""
# per kind its script, and in the spelling without one the title of another and what that prints besides
_DRIVERS = {
    "benchmark": (_BENCHMARK, "Predicts the latency of {name}.", ""),
    "profile": (_PROFILE, "Shows where the time of {name} goes.", _METRICS),
}


def with_small_extents(spec: Spec, cascade: Cascade, times: Iterable[int] = repeat(2)) -> Cascade:
    """A cascade whose open ranks have small extents that its splits divide.

    Args:
        times: how many of its largest parts a rank has, that with the largest first.
    """
    ranks = dict.fromkeys(r for t in cascade.tensors.values() for r in t.ranks if r not in cascade.sizes)
    parts = {r: lcm(*(s[r][0] for s in spec.partitioning.values() if r in s)) for r in ranks}
    sizes = {r: parts[r] * n for r, n in zip(sorted(ranks, key=lambda r: -parts[r]), times)}
    return replace(cascade, sizes={**cascade.sizes, **sizes})


def _imports(module: str, *names: str) -> str:
    """Lines that import from the kernel's module; none for a cell below the kernel's."""
    return f"\nfrom {module} import {', '.join(sorted(names))}\n" if module else ""


def test_text(name: str, module: str, spec: str) -> str:
    """A test of a kernel in a module, for a specification with all extents."""
    text = _imports(module, name, "pack", "unpack").lstrip("\n")
    return _TEST.format(name=name, imports=text, spec=spec)


test_text.__test__ = False  # type: ignore[attr-defined]


def _arrays(cascade: Cascade, dtypes: Mapping[str, str]) -> str:
    lines = []
    for name in cascade.inputs:
        held, shape = as_dtype(dtypes[name]), cascade.shape(name)
        if held.is_integer:
            lines.append(f"    {name}=rng.integers(0, 2, {shape}, {numpy_type(dtypes[name])}),")
        else:
            lines.append(f"    {name}=rng.standard_normal({shape}, np.float32),")
    return "\n".join(lines)


@dataclass(frozen=True)
class Driven:
    """A kernel that scripts time and profile."""

    name: str  # of the kernel
    cascade: Cascade  # with extents
    dtypes: Mapping[str, str]  # of inputs
    dialect: str  # of the kernel
    target: str  # chip, where the time is predicted
    inputs: Sequence[Side]  # how its arrays lie in the kernel
    parameters: Sequence[str]  # extents that it takes as arguments

    def text(self, kind: str, module: str) -> str:
        """A script of a kind, for the kernel in a module; "" for a cell below the kernel's."""
        name, sizes = self.name, self.cascade.sizes
        script, title, tail = _DRIVERS[kind]
        if self.dialect != "nki":
            imports = _imports(module, name, "pack")
            return script.format(name=name, arrays=_arrays(self.cascade, self.dtypes), imports=imports)
        specs = [f'    {s.tensor}=nkilab.spec({s.shape(sizes) or (1,)}, "{s.dtype}"),' for s in self.inputs]
        lines = "\n".join(specs + [f"    {rank}={sizes[rank]}," for rank in self.parameters])
        imports, title = _imports(module, name).lstrip("\n"), title.format(name=name)
        names = {"title": title, "name": name, "imports": imports, "specs": lines}
        return _ESTIMATE.format(**names, target=self.target) + tail
