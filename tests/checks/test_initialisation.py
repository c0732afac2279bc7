"""Shadow bits find what was never written in every type, whatever the elements hold."""

from __future__ import annotations

import numpy as np
import pytest

from nkilab.checking import report_of
from tests.dialects.spellings import marked_line, nisa2, nki1, nki2, nl1, nl2
from tests.dialects.test_every_name_lowers import BITWISE, NL, NO_ROW, NO_TILE, SPECIAL, TWO_TILES

DTYPES = (
    "float32", "bfloat16", "float16", "float8_e4m3", "float8_e5m2", "tfloat32",
    "int32", "int16", "int8", "uint32", "uint16", "uint8",
)  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [512, 511, 0])
def test_a_read_of_unwritten_elements_is_found_in_every_type(dtype: str, columns: int) -> None:
    type_of_tile = getattr(nl2, dtype)

    @nki2.jit
    def kernel(x):
        tile = nl2.ndarray((128, 512), type_of_tile, buffer=nl2.sbuf)
        out = nl2.ndarray((128, 512), type_of_tile, buffer=nl2.shared_hbm)
        if columns:
            nisa2.memset(tile[:, 0:columns], 1)
        nisa2.dma_copy(out, tile)
        return out

    findings = [f for f in report_of(kernel, [np.ones((1, 1), np.float32)], {}).findings.verdict if f.fails]
    # the kernel reads the parameters of this test, which no front end finds
    findings = [f for f in findings if f.rule != "python-closure"]
    assert [f.rule for f in findings] == (["unwritten-read"] if columns < 512 else [])
    if findings:
        share = "was written in part only" if columns else "nothing has written"
        assert (
            findings[0].message
            == f"dma_copy reads [128, 512] of tile: {dtype}[128, 512] in sbuf, which {share}"
        )


def test_how_much_of_a_result_was_written_is_told() -> None:
    @nki2.jit
    def kernel(x):
        tile = nl2.ndarray((128, 512), nl2.float32, buffer=nl2.sbuf)
        out = nl2.ndarray((128, 512), nl2.float32, buffer=nl2.shared_hbm)
        nisa2.dma_copy(tile, x)
        nisa2.dma_copy(out[0:96, 0:256], tile[0:96, 0:256])
        return out

    (finding,) = report_of(kernel, [np.ones((128, 512), np.float32)], {}).findings
    # by hand: 96 * 256 of 128 * 512
    assert finding.message == (
        "kernel returns out: float32[128, 512] in hbm with 24576 of 65536 elements written (37.5%)"
    )


def test_a_result_that_nothing_wrote_names_the_line_that_wrote_to_an_input() -> None:
    @nki2.jit
    def kernel(a):
        tile = nl2.ndarray((128, 64), nl2.float32, buffer=nl2.sbuf)
        out = nl2.ndarray((128, 64), nl2.float32, buffer=nl2.shared_hbm)
        nisa2.dma_copy(tile, a)
        nisa2.dma_copy(a, tile)  # not to out
        return out

    (finding,) = [
        f for f in report_of(kernel, [np.ones((128, 64), np.float32)], {}).findings
        if f.rule == "unwritten-output"
    ]  # fmt: skip
    assert finding.other_where == marked_line(kernel.function, "# not to out")
    assert finding.other_message == "a, an input, is written here"
    assert finding.fix == "write to out there, not to a, if that is meant"


def test_a_load_from_a_tensor_that_nothing_writes_is_told_to_be_a_swap() -> None:
    @nki2.jit
    def kernel(a):
        tile = nl2.ndarray((128, 64), nl2.float32, buffer=nl2.sbuf)
        out = nl2.ndarray((128, 64), nl2.float32, buffer=nl2.shared_hbm)
        nisa2.dma_copy(tile, a)
        nisa2.dma_copy(tile, out)
        return out

    (read,) = [
        f for f in report_of(kernel, [np.ones((128, 64), np.float32)], {}).findings if "read" in f.rule
    ]
    assert read.fix == "exchange dst and src if the copy is to write to it: dma_copy writes to dst"


# transposing crosses partitions, and zeros_like asks for the shape alone
ONE_TILE = set(NL) - NO_TILE - NO_ROW - set(SPECIAL) - TWO_TILES - {"transpose", "zeros_like"}
BY_ELEMENT = sorted(ONE_TILE | TWO_TILES | {"where", "dropout"})


@pytest.mark.corpus
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", BY_ELEMENT)
def test_what_a_mask_leaves_out_passes_every_function_and_is_found_where_it_is_stored(name, axis) -> None:
    function, dtype = getattr(nl1, name), "int32" if name in BITWISE else "float32"

    def of(tile):
        if name == "where":
            return function(nl1.greater(tile, 0.5), tile, tile)
        if name == "dropout":
            return function(tile, 0.5)
        return function(tile, tile) if name in TWO_TILES else function(tile)

    def kernel(x, is_stored_whole):
        rows, columns = nl1.mgrid[0:64, 0:48]
        mask = (rows, columns)[axis] < 40
        result = of(nl1.load(x[rows, columns], mask=mask))
        out = nl1.ndarray((64, 48), result.dtype, buffer=nl1.shared_hbm)
        nl1.store(out[0:64, 0:48], nl1.zeros((64, 48), result.dtype, buffer=nl1.sbuf))
        if is_stored_whole:
            nl1.store(out[rows, columns], result)
        else:
            nl1.store(out[rows, columns], result, mask=mask)
        return out

    array = np.ones((64, 48), dtype)
    for is_stored_whole, expected in ((False, []), (True, [("unwritten-read", "dma_copy")])):
        report = report_of(nki1.jit(kernel), [array, is_stored_whole], {})
        failing = [f for f in report.findings if f.rule == "unwritten-read"]
        assert [(f.rule, f.message.split()[0]) for f in failing] == expected
