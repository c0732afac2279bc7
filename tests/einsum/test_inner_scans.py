"""Blocks in blocks: values against NumPy, in both spellings and types, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from nkilab import einsum
from nkilab.einsum import CompiledEinsum
from nkilab.errors import NkilabError

Grid = np.ndarray
# of the cell before along the rows, along the columns, along both
Cell = Callable[[Grid, Grid, Grid, Grid], Grid]
EDGES = "D[b, 0, j] = {row}\nD[b, i, 0] = {column}\n"


def table(costs: Grid, cell: Cell, row: Grid | float, column: Grid | float) -> Grid:
    """Every cell of a table, one after the other, in float64."""
    pairs, rows, columns = costs.shape
    grid = np.zeros((pairs, rows + 1, columns + 1))
    grid[:, 0], grid[:, :, 0] = row, column
    for i in range(rows):
        for j in range(columns):
            up, left, across = grid[:, i, j + 1], grid[:, i + 1, j], grid[:, i, j]
            grid[:, i + 1, j + 1] = cell(up, left, across, costs[:, i, j])
    return grid


# text of a cell, the same in NumPy, what the first row and column begin with
CELLS: dict[str, tuple[str, Cell, str, str]] = {
    "dtw": ("C[b, i, j] + min(D[b, i, j+1], D[b, i+1, j], D[b, i, j])",
            lambda u, v, a, c: c + np.minimum(np.minimum(u, v), a), "1e9", "1e9"),
    "edit distance": ("min(D[b, i, j+1] + 1, D[b, i+1, j] + 1, D[b, i, j] + C[b, i, j])",
                      lambda u, v, a, c: np.minimum(np.minimum(u, v) + 1, a + c), "j", "i"),
    "global alignment": ("max(D[b, i, j] + C[b, i, j], D[b, i, j+1] - 0.5, D[b, i+1, j] - 0.5)",
                         lambda u, v, a, c: np.maximum(a + c, np.maximum(u, v) - 0.5), "-j / 2", "-i / 2"),
    "local": ("max(D[b, i, j] + C[b, i, j], D[b, i, j+1] - 0.5, D[b, i+1, j] - 0.5, 0)",
                       lambda u, v, a, c: np.maximum(np.maximum(a + c, 0), np.maximum(u, v) - 0.5), "0", "0"),
    "subsequence": ("D[b, i, j] + 1 if C[b, i, j] > 0 else max(D[b, i, j+1], D[b, i+1, j])",
                    lambda u, v, a, c: np.where(c > 0, a + 1, np.maximum(u, v)), "0", "0"),
    "linear": ("0.5 * D[b, i, j+1] + 0.25 * D[b, i+1, j] + C[b, i, j]",
               lambda u, v, a, c: 0.5 * u + 0.25 * v + c, "0", "0"),
    "sums of rectangles": ("C[b, i, j] + D[b, i, j+1] + D[b, i+1, j] - D[b, i, j]",
                           lambda u, v, a, c: c + u + v - a, "0", "0"),
    "scan of rows": ("tanh(D[b, i, j+1]) - 0.5 * D[b, i+1, j] + C[b, i, j]",
                     lambda u, v, a, c: np.tanh(u) - 0.5 * v + c, "1", "2"),
    "scan of columns": ("0.5 * D[b, i, j+1] * C[b, i, j] + tanh(D[b, i+1, j])",
                        lambda u, v, a, c: 0.5 * u * c + np.tanh(v), "1", "2"),
}  # fmt: skip
SHAPES = ((3, 7, 9), (5, 9, 4), (1, 6, 5), (130, 3, 5), (2, 1, 4))


@pytest.mark.parametrize("name", CELLS)
def test_a_table_of_cells_has_the_values_of_its_cells_one_by_one(name: str) -> None:
    text, cell, row, column = CELLS[name]
    number = list(CELLS).index(name)
    shape, dtype = SHAPES[number % len(SHAPES)], ("float32", "bfloat16")[number % 2]
    costs = np.random.default_rng(number).integers(-8, 9, shape) / 8.0
    kernel = _compiled(
        f"{EDGES.format(row=row, column=column)}D[b, i+1, j+1] = {text}", shape, dtype, number % 3 == 0
    )
    ends = {"j": np.arange(shape[2] + 1), "i": np.arange(shape[1] + 1)}
    starts = [eval(edge, {}, ends) for edge in (row, column)]
    expected = table(costs, cell, *starts)
    # the last expression writes the corner where both edges do
    result = np.asarray(kernel(C=costs.astype(np.float32)), np.float64)
    rounding = 0.02 if dtype == "bfloat16" else 1e-5
    np.testing.assert_allclose(result, expected, rtol=rounding, atol=rounding)
    assert all(verdict.is_fine for verdict in kernel.verify())


def _compiled(text: str, shape: tuple[int, ...], dtype: str, is_old: bool = False) -> CompiledEinsum:
    """A kernel of expressions over costs C of a shape."""
    dialect = "neuronxcc" if is_old else "nki"
    return einsum.compile(text, shapes={"C": shape}, dtypes={"C": dtype}, dialect=dialect)


BLOCKS = """
einsum:
  declaration: {C: [B, N, M], D: [B, N1, M1], Z: [B]}
  expressions:
    - D[b, 0, j] = 1e9 * (j > 0)
    - iterate: i
      body:
        - D[b, i+1, 0] = const(1e9)
        - iterate: j
          body:
            - D[b, i+1, j+1] = C[b, i, j] + min(D[b, i, j+1], D[b, i+1, j], D[b, i, j])
    - Z[b] = D[b, N, M]
options: {cascade-outputs: [Z]}
"""
# the first row and column as users write them: sums along the edges
SUMMED = """
D[b, 0, 0] = C[b, 0, 0]
D[b, 0, j+1] = C[b, 0, j+1] + D[b, 0, j]
D[b, i+1, 0] = C[b, i+1, 0] + D[b, i, 0]
D[b, i+1, j+1] = C[b, i+1, j+1] + min(D[b, i, j+1], D[b, i+1, j], D[b, i, j])
Z[b] = D[b, N-1, M-1]
"""


@pytest.mark.parametrize(("rows", "columns"), [(6, 4), (4, 6)])
def test_first_rows_and_columns_are_set_as_users_write_them(rows: int, columns: int) -> None:
    costs = np.random.default_rng(1).random((4, rows, columns)).astype(ml_dtypes.bfloat16).astype(np.float32)
    edge = np.full(columns + 1, 1e9)
    edge[0] = 0
    grid = table(costs.astype(np.float64), CELLS["dtw"][1], edge, 1e9)
    grid[:, 0, 0] = 0
    for i, j in ((i, j) for i in range(rows) for j in range(columns)):
        grid[:, i + 1, j + 1] = costs[:, i, j] + np.minimum(
            np.minimum(grid[:, i, j + 1], grid[:, i + 1, j]), grid[:, i, j]
        )
    sizes = {"N": rows, "M": columns}
    for text, more in ((BLOCKS, {"N1": rows + 1, "M1": columns + 1, "I": rows, "J": columns}),
                       (SUMMED, {"I": rows - 1, "J": columns - 1})):  # fmt: skip
        kernel = einsum.compile(text, shapes={"C": costs.shape}, sizes={**sizes, **more})
        np.testing.assert_allclose(np.asarray(kernel(C=costs)), grid[:, -1, -1], rtol=1e-5)


def test_a_turn_of_a_table_is_an_instruction_and_a_scan_along_the_longer_variable() -> None:
    text = f"{EDGES.format(row='1e9', column='1e9')}D[b, i+1, j+1] = {CELLS['dtw'][0]}\nZ[b] = D[b, N, M]"
    kernel = einsum.compile(text, shapes={"C": (128, 48, 16)}, sizes={"N": 48, "M": 16})
    turns = kernel.source.split("for j in range(")[1]
    assert turns.count("tensor_tensor_scan(") == 1
    assert turns.count("tensor_tensor(") == 1
    # 16 turns of 48 columns: by hand, each at least an instruction and a scan, about 160 ns and 160 + 48
    assert kernel.estimate.latency_us < 1.8 * kernel.roofline.least_us


@pytest.mark.parametrize(
    ("cell", "problem"),
    [
        ("C[b, i, j] - log(exp(-D[b, i, j+1]) + exp(-D[b, i+1, j]))",
         "turns of i run along j too, and are no scan, because it takes exp of the state\n"),
        ("D[b, i+1, j] * D[b, i+1, j] + D[b, i, j+1] * D[b, i, j+1]",
         "turns of j run along i too, and are no scan, because it multiplies the state with itself\n"),
    ],
)  # fmt: skip
def test_what_is_a_scan_along_neither_variable_is_refused_at_its_line(cell: str, problem: str) -> None:
    with pytest.raises(NkilabError, match=problem) as refused:
        _compiled(
            f"{EDGES.format(row='0', column='0')}D[b, i+1, j+1] = {cell} + C[b, i, j]", (2, 3, 4), "float32"
        )
    assert "3:1: einsum.expressions" in str(refused.value)
    assert "as one variable: values of one sum need no other" in str(refused.value)


RESET = {
    "sum": ("X[b, t] if R[b, t] > 0 else 0.5 * A[b, t] + X[b, t]",
            lambda a, x, r: np.where(r > 0, x, 0.5 * a + x)),
    "order": ("max(A[b, t] - 1, X[b, t]) if R[b, t] > 0 else A[b, t] + X[b, t]",
              lambda a, x, r: np.where(r > 0, np.maximum(a - 1, x), a + x)),
}  # fmt: skip


@pytest.mark.parametrize("name", RESET)
def test_values_choose_between_forms_of_a_scan(name: str) -> None:
    text, step = RESET[name]
    rng = np.random.default_rng(5)
    values, resets = (rng.standard_normal((6, 40)).astype(np.float32) for _ in range(2))
    text = f"A[b, 0] = 0\nA[b, t+1] = {text}\nY[b, t] = A[b, t+1]"
    kernel = einsum.compile(text, shapes={"X": (6, 40), "R": (6, 40)})
    expected = np.zeros((6, 41))
    for t in range(40):
        expected[:, t + 1] = step(expected[:, t], values[:, t], resets[:, t])
    np.testing.assert_allclose(np.asarray(kernel(X=values, R=resets)), expected[:, 1:], rtol=1e-5, atol=1e-5)
    assert "tensor_tensor_scan(" in kernel.source
    assert "turns of" not in kernel.source


@pytest.mark.parametrize("more", [{}, {"I": 5, "J": 7}])
def test_declared_tables_take_the_extents_of_their_words(more: dict[str, int]) -> None:
    cell = "min(D[b, i, j+1] + 1, D[b, i+1, j] + 1, D[b, i, j] + (X[b, i] != Y[b, j]))"
    declared = {"X": ["B", "M"], "Y": ["B", "N"], "D": ["B", "M1", "N1"], "Z": ["B"]}
    steps = ["D[b, i, 0] = (i)", "D[b, 0, j] = (j)", f"D[b, i+1, j+1] = {cell}", "Z[b] = D[b, M, N]"]
    shape = {"B": 3, "M": 5, "N": 7, "M1": 6, "N1": 8} | more
    spec = {"einsum": {"declaration": declared, "expressions": steps, "shape": shape},
            "options": {"cascade-outputs": ["Z"]}}  # fmt: skip
    words = np.random.default_rng(3).integers(0, 3, (2, 3, 7)).astype(np.float32)
    x, y = words[0, :, :5], words[1]
    _, edits, _, _ = CELLS["edit distance"]
    grid = table(x[:, :, None] != y[:, None], edits, np.arange(8.0), np.arange(6.0))
    assert np.array_equal(einsum.compile(spec)(X=x, Y=y), grid[:, 5, 7])
