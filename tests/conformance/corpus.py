"""The corpus of cascades that NKILAB_EINSUM_CORPUS names, as specifications, inputs and references."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ruamel.yaml import YAML

from nkilab.einsum.language.ast import Cascade, Iterate, Tensor
from nkilab.einsum.language.expressions import read_einsum

VARIABLE = "NKILAB_EINSUM_CORPUS"


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _convolution(x: Any, f: Any, stride: int, pad: int) -> Any:
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    b, _, h, w = x.shape
    k, _, r, s = f.shape
    p, q = (h - r) // stride + 1, (w - s) // stride + 1
    z = np.zeros((b, k, p, q))
    for i in range(p):
        for j in range(q):
            window = x[:, :, i * stride : i * stride + r, j * stride : j * stride + s]
            z[:, :, i, j] = np.einsum("bcrs,kcrs->bk", window, f)
    return z


def _delta(k: Any, v: Any, q: Any, be: Any) -> Any:
    s = np.zeros((k.shape[1], v.shape[1]))
    out = np.zeros(v.shape)
    for t in range(len(k)):
        s = s + np.outer(k[t], be[t] * (v[t] - k[t] @ s))
        out[t] = q[t] @ s
    return out


def _power(a: Any, x: Any, steps: int) -> Any:
    n = 0.0
    for _ in range(steps):
        y = a @ x
        n = np.sqrt(y @ y)
        x = y / n
    return n


KNOWN = {"np": np, "math": math, "conv": _convolution, "delta": _delta, "power": _power,
         "silu": lambda x: x * _sigmoid(x)}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One cascade of the corpus."""

    name: str
    number: int
    level: int
    cascade: Cascade
    integers: dict[str, list[str]]
    reference: str
    tiny: dict[str, int]

    def inputs(self, rng: np.random.Generator, sizes: dict[str, int] | None = None) -> dict[str, np.ndarray]:
        """Random inputs; those of the corpus lie between 0.1 and 1.1."""
        sizes = sizes or self.tiny
        found = {}
        for name in self.cascade.inputs:
            shape = [sizes[r] for r in self.cascade.tensors[name].ranks]
            if name in self.integers:
                held = next(iter(self.cascade.tensors.values()))
                found[name] = rng.integers(0, sizes[held.ranks[0]], shape)
            else:
                found[name] = rng.random(shape) + 0.1
        return found

    def expected(self, inputs: dict[str, Any], sizes: dict[str, int] | None = None) -> list[np.ndarray]:
        """What NumPy makes of the entry's reference."""
        names = {**KNOWN, **(sizes or self.tiny), **self.cascade.scalars, **inputs}
        value = eval(self.reference, names)
        return value if isinstance(value, list) else [value]


def entry_of(held: dict[str, Any]) -> Entry:
    """An entry of the file."""
    declared = {**held["inputs"], **held.get("intinputs", {}), **held["decl"]}
    steps = []
    for step in held["expr"]:
        if isinstance(step, str):
            steps.append(read_einsum(step))
        else:
            steps.append(Iterate(step["iterate"], tuple(read_einsum(b) for b in step["body"])))
    out = held["out"] if isinstance(held["out"], list) else [held["out"]]
    cascade = Cascade(
        {n: Tensor(n, tuple(r)) for n, r in declared.items()},
        tuple(steps),
        tuple(out),
        dict(held.get("scalars", {})),
    )
    return Entry(
        held["name"],
        held["id"],
        held["level"],
        cascade,
        held.get("intinputs", {}),
        held["ref"],
        dict(held["tiny"]),
    )


def corpus() -> list[Entry]:
    """All entries; none where the variable is not set."""
    named = os.environ.get(VARIABLE)
    if not named:
        return []
    return [entry_of(held) for held in YAML(typ="safe").load(Path(named).read_text())]
