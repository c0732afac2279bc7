"""Keywords that a function does not have, and what is done with those that have no effect."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.dialects.spellings import ncc1, nisa1, nki1, nki2, nl1, nl2, ramp, refusal
from tests.sources import ROOT, name_of, nodes

from nkilab.api import WORLD
from nkilab.dialects.history import BETA1, VERSIONS, at, history
from nkilab.dialects.serve import tables
from nkilab.errors import SpellingError, UseError

# (spelling, version) of which the functions are tried
SPELLINGS = (("neuronxcc", ""), ("nki", ""), *(("nki", version) for version in VERSIONS if version != BETA1))
MODULES = ("language", "isa", "collectives")


@pytest.fixture(autouse=True)
def _nothing_noticed_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WORLD, "_noticed", set())


def functions(spelling: str, version: str) -> Iterator[tuple[str, Any]]:
    """Names in the tables of `history` and functions of a spelling."""
    for module, names in tables(spelling, version).items():
        root = module.rpartition(".")[2]
        if root in MODULES:
            yield from ((f"{root}.{n}", f) for n, f in names.items() if callable(f))


def is_called(name: str, version: str) -> bool:
    """Whether a version, or any, has a name as a function that is not refused as a whole."""
    entries = [at(name, version)] if version else history().get(name, ())
    return any(e is not None and e.kind == "function" for e in entries) and name != "isa.builtin_custom_op"


@pytest.mark.parametrize(("spelling", "version"), SPELLINGS)
def test_no_function_takes_a_keyword_that_no_version_has(spelling: str, version: str) -> None:
    tried = 0
    for name, function in functions(spelling, version):
        if isinstance(function, type) or not is_called(name, version):
            continue
        with pytest.raises(SpellingError) as caught:
            function(wibble=1)
        message = str(caught.value)
        is_word = "is a word for op=" in message
        assert is_word or "there is no keyword wibble" in message, f"{name}: {message}"
        assert message.startswith("test_keywords.py:"), f"{name}: {message}"
        tried += not is_word
    # the first versions have 63 and 74 that are not words
    assert tried > 60


def test_every_keyword_of_beta1_is_taken() -> None:
    """Those of its stubs, and those that published kernels give: none is told to be unknown."""
    served = dict(functions("neuronxcc", ""))
    for name, events in history().items():
        if name not in served or not is_called(name, ""):
            continue
        for event in events:
            if event.release.version != BETA1 or event.kind != "function":
                continue
            for parameter in event.signature.parameters:
                if (name, parameter.name) == ("language.static_cast", "arr"):
                    continue  # SDK 2.20 alone called input_data so
                with pytest.raises(SpellingError) as caught:
                    served[name](**{parameter.name: None, "wibble": 1})
                message = str(caught.value)
                assert "there is no keyword wibble" in message, f"{name}({parameter.name}=): {message}"


def load_of_a_slip(x):
    nl1.load(x, maks=None)  # refused


def product_to_a_destination(x):
    tile = nl1.load(x)
    psum = nl1.zeros((16, 16), nl1.float32, buffer=nl1.psum)
    nisa1.nc_matmul(dst=psum, stationary=tile, moving=tile)  # refused


def product_that_accumulates(x):
    tile = nl1.load(x)
    nisa1.nc_matmul(tile, tile, accumulate=True)  # refused


def filled_to_a_destination(x):
    nisa1.memset(nl1.load(x), 0, nl1.float32, dst=None)  # refused


def load_of_nothing(x):
    nl1.load()  # refused


def steps_of_a_slip(x):
    for _ in nl1.affine_range(8, stp=2):  # refused
        pass


def steps_given_twice(x):
    for _ in nl1.affine_range(0, 8, stop=4):  # refused
        pass


def shape_given_twice(x):
    nl1.load(x).reshape((8, 4, 4), shape=(8, 16))  # refused


def reshaped_by_a_slip(x):
    nl1.load(x).reshape(128, shap=(8, 16))  # refused


def cast_by_a_slip(x):
    nl1.load(x).astype(dtpe=nl1.bfloat16)  # refused


BETA1_REFUSALS = {
    cast_by_a_slip: "astype: there is no keyword dtpe; it takes dtype\n  hint: did you mean dtype?",
    reshaped_by_a_slip: (
        "reshape: there is no keyword shap; it takes extents, shape\n  hint: did you mean shape?"
    ),
    load_of_a_slip: (
        "load: there is no keyword maks; it takes src, mask, dtype, mode\n  hint: did you mean mask?"
    ),
    product_to_a_destination: (
        "nc_matmul: NKI beta1 has no keyword dst; NKI 0.1 adds it\n"
        "  hint: assign the result to it: dst[...] = ..."
    ),
    product_that_accumulates: (
        "nc_matmul: NKI beta1 has no keyword accumulate; NKI 0.3 adds it\n"
        "  hint: write dst += nisa.nc_matmul(...)"
    ),
    filled_to_a_destination: (
        "memset: NKI beta1 has no keyword dst; NKI 0.1 adds it\n"
        "  hint: assign the result to it: dst[...] = ..."
    ),
    load_of_nothing: (
        "load: missing 1 required positional argument: 'src'\n  hint: it takes src, mask, dtype, mode"
    ),
    steps_of_a_slip: (
        "affine_range: there is no keyword stp; it takes start, stop, step\n  hint: did you mean stop?"
    ),
}


@pytest.mark.parametrize("body", BETA1_REFUSALS)
def test_beta1_tells_a_wrong_keyword_by_line_and_way_out(body: Any) -> None:
    message = refusal(nki1.jit(body), ramp(8, 16), kind=SpellingError, also=TypeError)
    assert message == f"HERE: {BETA1_REFUSALS[body]}"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (steps_given_twice, "affine_range: stop is given twice"),
        (
            shape_given_twice,
            "reshape: the shape is given by position and as shape=; it must be given once\n"
            "  float32[8, 16] in sbuf",
        ),
    ],
)
def test_what_is_given_twice_is_refused(body: Any, text: str) -> None:
    message = refusal(nki1.jit(body), ramp(8, 16), kind=UseError)
    assert message.replace("(unnamed): ", "") == f"HERE: {text}"


def labelled(x):
    out = nl1.ndarray(x.shape, x.dtype, buffer=nl1.shared_hbm, lazy_initialization=True)
    for _ in nl1.sequential_range(1, directives=ncc1.multi_buffer(2)):
        tile = nl1.multiply(nl1.load(x), 2, max_free_vec_size=512)
        nl1.store(out, nisa1.tensor_copy(tile, name="copy"))
    return out


def test_keywords_that_published_kernels_give_are_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    np.testing.assert_array_equal(nki1.jit(labelled)(ramp(8, 16)), 2 * ramp(8, 16))
    assert capsys.readouterr().err.splitlines() == [
        "nkilab: notice: nl.ndarray ignores the keyword lazy_initialization",
        "nkilab: notice: a range ignores directives=; it advises the vendor's compiler",
        "nkilab: notice: nl.multiply ignores the keyword max_free_vec_size",
        "nkilab: notice: nisa.tensor_copy ignores the keyword name",
    ]


def normalised(x):
    out = nl1.ndarray(x.shape, x.dtype, buffer=nl1.shared_hbm)
    tile = nl1.load(x)
    nl1.store(out, nl1.rms_norm(tile, tile, 1, 16, dtype=nl1.float32, compute_dtype=nl1.bfloat16))
    return out


def normalised_later(x):
    out = nl2.ndarray(x.shape, x.dtype, buffer=nl2.shared_hbm)
    tile = nl2.load(x)
    nl2.store(out, nl2.rms_norm(tile, tile, 1, 16, dtype=nl2.float32, compute_dtype=nl2.bfloat16))
    return out


@pytest.mark.parametrize(("nki", "body"), [(nki1, normalised), (nki2, normalised_later)])
def test_a_precision_that_is_not_computed_in_is_noticed(
    nki: Any, body: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    x = ramp(8, 16)
    wanted = x * x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(nki.jit(body)(x), wanted, rtol=1e-5)
    assert capsys.readouterr().err == (
        "nkilab: notice: nl.rms_norm computes in float32, not in compute_dtype=bfloat16\n"
    )


@pytest.mark.parametrize(
    ("decorate", "notice"),
    [
        (lambda: nki1.jit(platform_traget="trn2"),
         "nki.jit ignores the keyword platform_traget; did you mean platform_target?"),
        (lambda: nki1.jit(mode="simulatoin"), "nki.jit ignores mode='simulatoin'; did you mean simulation?"),
        (lambda: nki1.jit(mode="benchmark"),
         "nki.jit ignores mode='benchmark'; nki.benchmark times a kernel"),
        (lambda: ncc1.enable_stack_allocator(loglevel=3),
         "nki.compiler.enable_stack_allocator ignores the keyword loglevel; did you mean log_level?"),
    ],
)  # fmt: skip
def test_a_decorator_tells_what_it_ignores(
    decorate: Any, notice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    decorate()
    assert capsys.readouterr().err == f"nkilab: notice: {notice}\n"


def drawn(x, is_seeded):
    out = nl1.ndarray((3, 8, 16), nl1.float32, buffer=nl1.shared_hbm)
    seeds = ((7, None), (7, None), (7, nl1.mgrid[0:1, 0:1].p < int(is_seeded)))
    for turn, (seed, mask) in enumerate(seeds):
        nl1.random_seed(seed, mask=mask)
        nl1.store(out[turn], nl1.rand((8, 16)))
    return out


@pytest.mark.parametrize("is_seeded", [True, False])
def test_a_seed_that_a_mask_leaves_out_is_not_set(is_seeded: bool) -> None:
    first, second, third = nki1.jit(drawn)(ramp(8, 16), is_seeded)
    np.testing.assert_array_equal(first, second)
    assert np.array_equal(second, third) == is_seeded


def printed(x):
    grid = nl1.mgrid[0:8, 0:16]
    nl1.device_print("part ", nl1.load(x), mask=(grid.p < 2) & (grid.x < 3))
    nl1.device_print("none ", nl1.load(x), mask=grid.p > 7)


def test_a_print_under_a_mask_shows_its_part(capsys: pytest.CaptureFixture[str]) -> None:
    nki1.jit(printed)(ramp(8, 16))
    assert capsys.readouterr().out == "part [[ 0.  1.  2.]\n [16. 17. 18.]]\n"


def printed_in_parts(x):
    grid = nl1.mgrid[0:8, 0:16]
    nl1.device_print("part ", nl1.load(x), mask=grid.p > grid.x)  # refused


def test_a_print_under_a_triangle_is_refused() -> None:
    message = refusal(nki1.jit(printed_in_parts), ramp(8, 16), kind=UseError)
    assert message == "HERE: device_print: the mask of device_print is not a rectangle of the tile"


# Parameters that a function of a dialect takes and does not read, and why.
REASONS = {
    "extras": "a finish of `surface` gets what the spelling adds; the label goes to the handle of the row",
    "foreign.py array_function types": "NumPy gives the types of all operands; one is a tile's",
    "foreign.py torch_function types": "PyTorch does likewise",
    "dst_first/functions.py var keepdims": "documented: the axes stay whatever it says",
}


def _is_about(node: ast.FunctionDef) -> bool:
    """Whether a function may leave parameters unread: one that only refuses, a protocol, a dunder."""
    body = node.body[1:] if ast.get_docstring(node) else node.body
    return not node.name.startswith("__") and bool(body) and not isinstance(body[0], ast.Raise)


def _unread(path: Path) -> Iterator[str]:
    for node in nodes(path):
        if not isinstance(node, ast.FunctionDef) or not _is_about(node):
            continue
        arguments = node.args
        names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        names += [a.arg for a in (arguments.vararg, arguments.kwarg) if a is not None]
        read = {n.id for part in node.body for n in ast.walk(part) if isinstance(n, ast.Name)}
        below = name_of(path).removeprefix("dialects/")
        yield from (f"{below} {node.name} {n}" for n in names if n not in read and n not in ("self", "cls"))


def test_a_dialect_reads_every_parameter_or_says_why_not() -> None:
    paths = sorted((ROOT / "dialects").rglob("*.py"))
    unread = [word for path in paths for word in _unread(path)]
    unexplained = [w for w in unread if w not in REASONS and w.rpartition(" ")[2] not in REASONS]
    assert not unexplained, "these are dropped without a word"
    assert {w for w in REASONS if " " in w} <= set(unread), "a reason for what is read"
