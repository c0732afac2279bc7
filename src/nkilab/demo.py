"""`nkilab demo`: run two kernels on real input, check them, time them, save a profile."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ._lazy import part
from .api import Estimate, estimate, spec
from .disk import write_whole_folder
from .documents import print_document
from .errors import EXIT_FAULT, EXIT_FINE, printable
from .files import neff, ntff
from .hook import activate
from .views.report import report_html
from .views.terminal import print_estimate


def _product(lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    return (lhs.astype(np.float64).T @ rhs.astype(np.float64)).astype(np.float32)


def _softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    shares: np.ndarray = powers / powers.sum(axis=1, keepdims=True)
    return shares.astype(np.float32)


def _cases() -> list[tuple[str, str, Callable[..., np.ndarray], tuple[np.ndarray, ...]]]:
    """Example module, spelling, NumPy reference and input of each kernel."""
    rng = np.random.default_rng(149)
    matrices = tuple(rng.standard_normal(s, dtype=np.float32) for s in ((512, 256), (512, 1024)))
    rows = rng.standard_normal((512, 2048), dtype=np.float32)
    return [
        ("blocked_matmul", "nki", _product, matrices),
        ("row_softmax", "neuronxcc.nki", _softmax, (rows,)),
    ]


def run_demo(folder: Path, *, as_json: bool = False) -> int:
    """Run the demo, print what it found, and return the exit status.

    Args:
        folder: where the files go, all of them or none; made if it does not exist.
        as_json: print JSON alone.

    Raises:
        FileError: if the folder cannot be made or written.
    """
    with activate():
        outcomes = [_outcome(folder, *case) for case in _cases()]
    write_whole_folder(folder, {name: content for one in outcomes for name, content in one.contents.items()})
    results = [one.result for one in outcomes]
    for one in outcomes if not as_json else ():
        _tell(one)
    if as_json:
        print_document({"schema": "nkilab.demo/1", "kernels": results})
    return EXIT_FINE if all(r["matches_numpy"] for r in results) else EXIT_FAULT


@dataclass(frozen=True)
class _Outcome:
    """What came out of one kernel: whether NumPy agrees and the like, its estimate, and files by name."""

    result: dict[str, Any]
    predicted: Estimate
    contents: dict[str, bytes]


def _outcome(
    folder: Path, name: str, spelling: str, reference: Callable[..., Any], arrays: tuple[Any, ...]
) -> _Outcome:
    """Run one kernel and compare it with NumPy."""
    kernel = getattr(part(f"examples.{name}"), name)
    predicted = estimate(kernel, *(spec(a.shape, a.dtype) for a in arrays))
    wanted = reference(*arrays)
    off = float(np.max(np.abs(kernel(*arrays) - wanted)) / np.max(np.abs(wanted)))
    contents = {
        f"{name}.neff": neff.packed(predicted.program),
        f"{name}.ntff": ntff.packed(predicted.program, predicted.timeline),
        f"{name}.json": json.dumps(predicted.to_dict(), indent=2).encode(),
        f"{name}.html": report_html(predicted.run).encode(),
    }
    result = {
        "kernel": name,
        "spelling": spelling,
        # float32 sums over up to 2048 terms in another order than the reference
        "matches_numpy": off < 1e-5,
        "relative_error": off,
        "files": [str(folder / name) for name in contents],
        "estimate": predicted.to_dict(),
    }
    return _Outcome(result, predicted, contents)


def _tell(outcome: _Outcome) -> None:
    result = outcome.result
    verdict = "matches NumPy" if result["matches_numpy"] else "DIFFERS from NumPy"
    print(
        f"\n{result['kernel']} ({result['spelling']}): {verdict}, "
        f"relative error {result['relative_error']:.1e}\n"
    )
    print_estimate(outcome.predicted)
    print(printable(f"  profile written to {', '.join(result['files'])}"))
