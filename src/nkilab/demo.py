"""`nkilab demo`: run two kernels on real input, check them, time them, save a profile."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ._lazy import part
from .api import Estimate, estimate, spec
from .errors import EXIT_FAULT, EXIT_FINE, UsageError, reason_of
from .files import neff, ntff
from .files.container import write_whole
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
        folder: where the files go; made if it does not exist.
        as_json: print JSON alone.

    Raises:
        UsageError: if the folder cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be made: {reason_of(error)}",
            hint="name another folder with --output",
        ) from None
    with activate():
        results = [_result(folder, *case, is_told=not as_json) for case in _cases()]
    if as_json:
        print(json.dumps({"schema": "nkilab.demo/1", "kernels": results}, indent=2))
    return EXIT_FINE if all(r["matches_numpy"] for r in results) else EXIT_FAULT


def _result(
    folder: Path, name: str, spelling: str, reference: Callable[..., Any], arrays: tuple[Any, ...], *,
    is_told: bool,
) -> dict[str, Any]:  # fmt: skip
    """What came out of one kernel: its files, whether NumPy agrees, and its estimate."""
    kernel = getattr(part(f"examples.{name}"), name)
    predicted = estimate(kernel, *(spec(a.shape, a.dtype) for a in arrays))
    off = _relative_error(kernel(*arrays), reference(*arrays))
    result = {
        "kernel": name,
        "spelling": spelling,
        # float32 sums over up to 2048 terms in another order than the reference
        "matches_numpy": off < 1e-5,
        "relative_error": off,
        "files": _save(folder, name, predicted),
        "estimate": predicted.to_dict(),
    }
    if is_told:
        _tell(result, predicted)
    return result


def _relative_error(values: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference of two arrays, of the largest element that is wanted."""
    return float(np.max(np.abs(values - wanted)) / np.max(np.abs(wanted)))


def _save(folder: Path, name: str, predicted: Estimate) -> list[str]:
    paths = [folder / f"{name}{suffix}" for suffix in (".neff", ".ntff", ".json", ".html")]
    neff.write(paths[0], predicted.program)
    ntff.write(paths[1], predicted.program, predicted.timeline)
    write_whole(paths[2], json.dumps(predicted.to_dict(), indent=2).encode())
    write_whole(paths[3], report_html(predicted.run).encode())
    return [str(p) for p in paths]


def _tell(result: dict[str, Any], predicted: Estimate) -> None:
    verdict = "matches NumPy" if result["matches_numpy"] else "DIFFERS from NumPy"
    print(
        f"\n{result['kernel']} ({result['spelling']}): {verdict}, "
        f"relative error {result['relative_error']:.1e}\n"
    )
    print_estimate(predicted)
    print(f"  profile written to {', '.join(result['files'])}")
