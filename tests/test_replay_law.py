"""A law over all kernels at hand: a launch that is repeated on other data leaves what the first one would.

Data are drawn four times. What a launch leaves is what it leaves where nothing is recorded: bits of results
and arguments, which elements were written, warnings with their lines, errors, and what is printed. Of
launches with a tape the second is computed row by row, the third on arrays that stay, the fourth as calls.
"""

from __future__ import annotations

import importlib.util
import io
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nkilab
from nkilab import launches, tapes
from nkilab.arguments import argument, extents
from nkilab.arrays import framework_of, to_numpy
from nkilab.border import map_arrays
from nkilab.checks.declare import RULES, Example
from nkilab.demo import _cases
from nkilab.dialects.kernel import Kernel
from nkilab.errors import NkilabError
from nkilab.ledger import own_rows
from nkilab.ledger.predict import Predictor
from nkilab.remembered import forget_launches
from nkilab.tiles.dtypes import as_dtype

from . import replay_law
from .checks.test_gallery import CASES as GALLERY

with nkilab.activate():
    from .advice import pairs_of_layouts as pairs_of_layouts
    from .advice import pairs_of_memory as pairs_of_memory
    from .advice import pairs_of_order as pairs_of_order
    from .advice.pairs import PAIRS

# of all arguments of a case; larger ones take long to compute nine times
MOST_ELEMENTS = 1 << 20
Launch = Callable[..., Any]
# a kernel on one rank as it is called, and what it is called with: specs stand for arrays
Case = tuple[Launch, tuple[Any, ...]]


def of_version(kernel: Any, version: str | None) -> Any:
    return (
        Kernel(kernel.function, kernel.spelling, version, kernel.options, kernel.grid) if version else kernel
    )


def on_ranks(kernel: Any, ranks: int) -> Launch:
    return nkilab.launch(kernel, ranks) if ranks else kernel


def of_gallery(case: Any, _: Path) -> Case:
    kernel = of_version(case.kernel, case.options.get("version"))
    return on_ranks(kernel, case.options.get("ranks", 0)), case.args


def of_rule(example: Example, folder: Path) -> Case:
    path = folder / "kernel_file.py"
    path.write_text(example.text)
    options = dict(zip(example.options[::2], example.options[1::2], strict=False))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kernel = of_version(module.kernel, options.get("--nki"))
    kernel = kernel[extents(example.grid)] if example.grid else kernel
    return on_ranks(kernel, int(options.get("--ranks", 0))), tuple(map(argument, example.args.values()))


def of_pair(name: str, is_rewritten: bool, _: Path) -> Case:
    kernel, args, *_ = PAIRS[name]
    return kernel, (*map(argument, args), is_rewritten)


def of_row(row: Any, _: Path) -> Case:
    kernel, ranks = Predictor().kernel(row, row.calls[0].kernel), int(row.options.get("ranks", 0))
    return partial(on_ranks(kernel, ranks), **row.keywords), arguments_of(row)


def arguments_of(row: Any) -> tuple[Any, ...]:
    texts = row.calls[0].args
    return tuple(argument(t) if isinstance(t, str) and t.endswith("]") else t for t in texts)


def elements(args: Iterable[Any]) -> int:
    return sum(int(np.prod(a.shape)) for a in args if framework_of(a))


def of_demo(case: Any, _: Path) -> Case:
    module, _, _, arrays = case
    kernel = getattr(importlib.import_module(f"nkilab.examples.{module}"), module)
    return kernel, tuple(nkilab.spec(a.shape, a.dtype) for a in arrays)


def _named() -> Iterator[tuple[str, Callable[[Path], Case]]]:
    """All cases; of the ledger's rows the smallest of each kernel."""
    for case in (case for case in GALLERY if elements(case.args) < MOST_ELEMENTS):
        yield f"gallery-{case.name}", partial(of_gallery, case)
    for rule in RULES.values():
        for pair in rule.pairs:
            for which in pair._fields:
                yield f"rule-{rule.id}-{pair.wrong.spelling}-{which}", partial(of_rule, getattr(pair, which))
    for name, (_, args, *_) in PAIRS.items():
        for is_rewritten in (False, True) if elements(map(argument, args)) < MOST_ELEMENTS else ():
            yield f"advice-{name}-{is_rewritten:d}", partial(of_pair, name, is_rewritten)
    rows = sorted(own_rows(), key=lambda row: elements(arguments_of(row)), reverse=True)
    for row in {row.structure: row for row in rows}.values():
        if elements(arguments_of(row)) < MOST_ELEMENTS and row.options.get("ranks", 0) <= 8:
            yield f"ledger-{row.structure}", partial(of_row, row)
    for demo_case in _cases():
        yield f"demo-{demo_case[0]}", partial(of_demo, demo_case)


CASES = dict(_named())


def drawn_for(value: Any, draw: int) -> Any:
    """An array for a spec: small whole numbers, floats around 0, in every other draw with a few odd ones."""
    if framework_of(value) != "spec":
        return value
    dtype, shape = as_dtype(value.dtype), tuple(int(n) for n in value.shape)
    rng = np.random.default_rng(draw)
    if not dtype.is_float:
        return rng.integers(0, 1 + draw, shape).astype(dtype.storage)
    array = rng.standard_normal(shape, dtype=np.float32)
    if draw % 2:
        array.reshape(-1)[rng.integers(0, array.size, 4)] = (0.0, -0.0, 1e4, -300.0)
    if draw == 3:
        array.reshape(-1)[rng.integers(0, array.size, 3)] = (np.nan, np.inf, -np.inf)
    return array.astype(dtype.storage)


def left(launch: Launch, args: tuple[Any, ...], draw: int, shadow_bits: list[bytes]) -> list[Any]:
    """What a launch leaves on data of a draw."""
    arrays = [map_arrays(a, "", lambda value, _: drawn_for(value, draw)) for a in args]
    results: list[Any] = []
    shadow_bits.clear()
    with warnings.catch_warnings(record=True) as heard, redirect_stdout(io.StringIO()) as printed:
        warnings.simplefilter("always")
        try:
            map_arrays(launch(*arrays), "", lambda value, _: results.append(to_numpy(value).tobytes()))
        except NkilabError as error:
            results.append(str(error))
    said = [(str(own.message), own.filename, own.lineno) for own in heard]
    inputs = [a.tobytes() for a in arrays if isinstance(a, np.ndarray)]
    return [results, said, printed.getvalue(), inputs, *shadow_bits]


@pytest.fixture
def shadow_bits(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """Which elements of the results of the last launch were never written."""
    monkeypatch.setattr(launches, "output_array", replay_law._noting)
    # where a debugger looks on nothing is replayed; what measures coverage looks on, too
    monkeypatch.setattr(sys, "gettrace", lambda: None)
    tapes.forget_tapes()
    yield replay_law._shadow_bits
    tapes.forget_tapes()
    forget_launches()


@pytest.mark.corpus
@pytest.mark.parametrize("name", CASES)
def test_a_launch_that_is_repeated_leaves_what_the_first_one_would(
    name: str, shadow_bits: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with nkilab.activate():
        launch, args = CASES[name](tmp_path)
        first = []
        for draw in range(4):
            tapes.forget_tapes()
            first.append(left(launch, args, draw, shadow_bits))
        tapes.forget_tapes()
        for draw in range(4):
            assert left(launch, args, draw, shadow_bits) == first[draw], f"launch {draw + 1} on a tape"
        monkeypatch.setenv("NKILAB_REMEMBER", "64")
        for draw in (1, 1, 3, 3, 1):
            assert left(launch, args, draw, shadow_bits)[:4] == first[draw][:4], "remembered"
