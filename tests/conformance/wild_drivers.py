"""How kernels of public repositories are launched: their own inputs and references, run as they stand.

A driver is named by a row of wild_launches.yaml and gets what the row says. It runs in a process of its own
with the names served, in the folder of the repository, and raises where a result is not the reference's.
"""

from __future__ import annotations

import ast
import re
import runpy
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

# of an error by the norm of the result, where the row says nothing
TOLERANCE = 2e-2


class WrongValueError(AssertionError):
    """A result differs from that of the reference."""


def module_of(path: str) -> ModuleType:
    """Import a file, with its folder in front."""
    where = Path(path).resolve()
    sys.path.insert(0, str(where.parent))
    name = "wild_" + "".join(c if c.isalnum() else "_" for c in where.stem)
    spec = spec_from_file_location(name, where)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def kernels_of(path: str) -> SimpleNamespace:
    """What a file defines, but for what needs a module that is not installed."""
    where = Path(path).resolve()
    sys.path.insert(0, str(where.parent))
    names: dict[str, Any] = {"__name__": f"wild_{where.stem}", "__file__": str(where)}
    for node in ast.parse(where.read_text()).body:
        if isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef | ast.Assign):
            with suppress(ImportError, NameError, AttributeError):
                exec(compile(ast.Module([node], []), str(where), "exec"), names)
    return SimpleNamespace(**names)


def compare(results: Any, expected: Any, tolerance: float = TOLERANCE) -> None:
    """Hold results to those of a reference, by their relative norms."""
    pairs = [
        tuple(one) if isinstance(one, Sequence) and not isinstance(one, np.ndarray) else (one,)
        for one in (results, expected)
    ]
    assert len(pairs[0]) == len(pairs[1]), f"{len(pairs[0])} results for {len(pairs[1])}"
    for place, (result, wanted) in enumerate(zip(*pairs, strict=True)):
        left, right = (np.asarray(x, np.float64) for x in (result, wanted))
        error = np.linalg.norm(left.ravel() - right.ravel()) / max(np.linalg.norm(right), 1e-30)
        if not error <= tolerance:
            raise WrongValueError(f"result {place}: relative error {error:.3g}, allowed {tolerance:.3g}")


def calls(code: str, **row: Any) -> None:
    """Run statements of the row, which call kernels and compare."""
    helpers = {
        "np": np, "sys": sys, "module_of": module_of, "kernels_of": kernels_of, "compare": compare,
    }  # fmt: skip
    exec(compile(code, "row", "exec"), {**helpers, **row})


def script(path: str, arguments: Sequence[str] = (), **row: Any) -> None:
    """Run a script of the repository, which compares by itself."""
    sys.argv = [path, *map(str, arguments)]
    sys.path.insert(0, str(Path(path).resolve().parent))
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as request:
        if request.code:
            raise WrongValueError(f"the script ends with {request.code}") from None


def module(path: str, bare: Sequence[str] = (), **row: Any) -> None:
    """Run a file of a package of the repository as `python -m` does, without the code of `bare` packages."""
    sys.argv = [path]
    for name in bare:
        sys.modules[name] = package = ModuleType(name)
        package.__path__ = [name.replace(".", "/")]
    try:
        runpy.run_module(path.removesuffix(".py").replace("/", "."), run_name="__main__", alter_sys=True)
    except SystemExit as request:
        if request.code:
            raise WrongValueError(f"the module ends with {request.code}") from None


def suite(path: str, **row: Any) -> None:
    """Run tests of the repository."""
    status = pytest.main([path, "-q", "-x", "-p", "no:cacheprovider", "-p", "no:nkilab"])
    if status:
        raise WrongValueError(f"pytest ends with {int(status)}")


def harness(path: str, **row: Any) -> None:
    """Hold a solution of autocomp to the kernel of its harness, on the inputs of that."""
    folder = Path(path).parent.name
    name = Path(path).name.replace("_ref.py", "_test.py")
    text = (Path("harnesses") / folder / name).read_text()
    copy = Path(".wild") / folder / name
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(text.replace("# SUBSTITUTE HERE", Path(path).read_text()))
    names = re.search(r"test_nki\((\w+), (\w+)\)\s*$", text, re.MULTILINE)
    assert names is not None, f"{name} compares nothing"
    module = vars(module_of(str(copy)))
    np.random.seed(0)
    if not module["test_nki"](*(module[one] for one in names.groups())):
        raise WrongValueError("the harness says that the results differ")


def nkibench(path: str, tolerance: float = 3e-5, **row: Any) -> None:
    """Call `kernel` of a file on the inputs of NKIBench's reference, which the folder beside has."""
    base = Path("../zhang677+AccelOpt/NKIBench/reference")
    operator = Path(path).parts[1] if "workspaces" in path else re.split(r"_[A-Z]+\d", Path(path).stem)[0]
    (reference,) = [one for one in base.glob("*.py") if re.match(operator + r"_[A-Z]+\d", one.name)]
    text = module_of(str(reference))
    np.random.seed(0)
    inputs = text.get_inputs()
    result = module_of(path).kernel(*text.transform_to_nki_inputs(inputs))
    expected = text.forward(*inputs)
    compare(text.transform_nki_outputs(result, expected), expected, tolerance)


def _convolved(images: Any, weights: Any, bias: Any, pool: int) -> Any:
    height, width = (images.shape[axis] - weights.shape[axis] + 1 for axis in (2, 3))
    result = np.zeros((images.shape[0], weights.shape[0], height, width))
    for i, j in np.ndindex(*weights.shape[2:]):
        result += np.einsum("bihw,oi->bohw", images[:, :, i : i + height, j : j + width], weights[:, :, i, j])
    result += bias[:, None, None]
    return result.reshape(*result.shape[:2], height // pool, pool, width // pool, pool).max(axis=(3, 5))


def assignment(path: str, pools: Sequence[int] = (1, 2), **row: Any) -> dict[str, str]:
    """Call the kernels of a solution of the Stanford CS149 assignment: sums, a transpose, a convolution."""
    module = module_of(path)
    rng = np.random.default_rng(1)
    vector, matrix = rng.random(256000, np.float32), rng.random((2048, 2048), np.float32)
    images = rng.random((2, 128, 32, 16), np.float32)
    weights, bias = rng.random((128, 128, 3, 3), np.float32), rng.random(128, np.float32)

    def of(name: str) -> None:
        kernel = vars(module)[name]
        if name.startswith("vector_add"):
            size = 128 if name.endswith("naive") else 25600 if name.endswith("tiled") else 256000
            part = vector[:size]
            compare(kernel(part, part * 2), part * 3, 1e-6)
        elif name.startswith("matrix_transpose"):
            compare(kernel(matrix), matrix.T, 0)
        for pool in pools if name == "fused_conv2d_maxpool" else ():
            result = kernel(images, weights, bias, pool_size=pool)
            compare(result, _convolved(images, weights, bias, pool), 1e-4)

    return each(of, [name for name in vars(module) if is_complete(path, name)])


def each(of: Callable[[str], None], kernels: Iterable[str]) -> dict[str, str]:
    """Do something for every kernel; the errors of those at which it fails."""
    errors = {}
    for kernel in kernels:
        try:
            of(kernel)
        except Exception as error:
            errors[kernel] = f"{type(error).__name__}: {error}"
    return errors


def is_complete(path: str, name: str) -> bool:
    """Whether a student wrote the body of a kernel, as far as to a store."""
    body = Path(path).read_text().partition(f"\ndef {name}(")[2].partition("\ndef ")[0]
    lines = [line.partition("#")[0] for line in body.splitlines()]
    stores = re.search(r"store\(|dma_copy\(|\] = ", "\n".join(lines))
    return "\n    return " in body and "\n    pass" not in body and stores is not None


DRIVERS: Mapping[str, Callable[..., dict[str, str] | None]] = {
    one.__name__: one for one in (assignment, calls, harness, module, nkibench, script, suite)
}
