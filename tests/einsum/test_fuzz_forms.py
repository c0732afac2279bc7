"""Random cascades in every form of the language: what is compiled agrees with the evaluator, exactly.

What a kernel's text computes is compared, so that a fault behind the proof of its tree shows too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import nkilab.einsum
from nkilab.errors import NkilabError
from tests.einsum.test_fuzz import need_no_fault
from tests.examples import examples

DIAGONALS = ("aa->a", "aab->ab", "aba->b", "abba->ab", "aba,b->a", "adda,ae->", "ab,ab->b", "aab,b->a",
             "aabb->ab")  # fmt: skip
EXTENTS = (1, 2, 3, 5, 7, 64, 127, 128, 129, 200)
# elements of a tensor, and points of a product
MOST_ELEMENTS, MOST_POINTS = 40_000, 400_000
NAMES = "PQRUW"
TYPES = st.sampled_from(["float32", "float32", "int32", "int16"])


@dataclass
class Written:
    """Expressions so far, tensors that may be read with their extents, inputs, and ranks of results."""

    lines: list[str] = field(default_factory=list)
    known: dict[str, tuple[int, ...]] = field(default_factory=dict)
    inputs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    def input(self, *shape: int) -> str:
        """A new input."""
        name = f"X{len(self.inputs)}"
        self.inputs[name] = self.known[name] = shape
        return name

    def indices(self, most: int, *shape: int) -> str:
        """A new input that holds places below `most`."""
        name = f"I{len(self.inputs)}"
        self.inputs[name], self.places[name] = shape, most
        return name

    def put(self, line: str, *shape: int, **sizes: int) -> None:
        """An expression, whose result has a shape; `#` is its name, and its variables are its own.

        `sizes` has extents of variables that the shapes of inputs do not tell.
        """
        name, number = NAMES[len(self.lines)], len(self.lines)
        self.lines.append(re.sub(r"\b([a-z])\b", rf"\g<1>{number}", line).replace("#", name))
        self.sizes |= {f"{v.upper()}{number}": n for v, n in sizes.items()}
        self.known[name] = shape


@st.composite
def extents(draw: st.DrawFn, count: int, most: int = MOST_ELEMENTS) -> tuple[int, ...]:
    """Extents, not too many elements together."""
    shape = [draw(st.sampled_from(EXTENTS)) for _ in range(count)]
    while int(np.prod(shape)) > most:
        shape[shape.index(max(shape))] = draw(st.sampled_from(EXTENTS[:4]))
    return tuple(shape)


@st.composite
def matrices(draw: st.DrawFn, written: Written) -> tuple[str, int, int]:
    """A tensor of two axes: what was computed, or a new input."""
    known = sorted(n for n, shape in written.known.items() if len(shape) == 2)
    if known and draw(st.integers(0, 2)):
        name = draw(st.sampled_from(known))
    else:
        name = written.input(*draw(extents(2)))
    rows, columns = written.known[name]
    return name, rows, columns


def _swapped(draw: st.DrawFn, rows: str, columns: str) -> tuple[str, bool]:
    is_swapped = draw(st.booleans())
    return (f"#[{columns}, {rows}]" if is_swapped else f"#[{rows}, {columns}]"), is_swapped


def _gather(draw: st.DrawFn, to: Written) -> None:
    x, rows, columns = draw(matrices(to))
    (count,) = draw(extents(1))
    which = draw(st.integers(0, 4))
    if which == 4:
        # several of each row
        count = min(count, 9)
        to.put(f"#[m, k] = {x}[m, {to.indices(columns, rows, count)}[m, k]]", rows, count)
    elif which == 0:
        to.put(f"#[t, n] = {x}[{to.indices(rows, count)}[t], n]", count, columns)
    elif which == 1:
        to.put(f"#[m, t] = {x}[m, {to.indices(columns, count)}[t]]", rows, count)
    elif which == 2:
        to.put(f"#[m] = {x}[m, {to.indices(columns, rows)}[m]]", rows)
    else:
        p, q = to.indices(rows, count), to.indices(columns, count)
        to.put(f"#[t] = {x}[{p}[t], {q}[t]]", count)


def _scatter(draw: st.DrawFn, to: Written) -> None:
    x, rows, columns = draw(matrices(to))
    (count,) = draw(extents(1, 4))
    to.sizes[f"{NAMES[len(to.lines)]}_0"] = count
    to.put(f"#[{to.indices(count, rows)}[m], n] = {x}[m, n] ;; V add", count, columns)


def _places(draw: st.DrawFn, to: Written) -> None:
    x, rows, columns = draw(matrices(to))
    name = draw(st.sampled_from(["argmax", "argmin", "topk", "argtopk"]))
    if name.startswith("arg") and "top" not in name:
        along = draw(st.sampled_from("mn"))
        to.put(f"#[{'m' if along == 'n' else 'n'}] = {x}[m, n] ;; V {name}",
               rows if along == "n" else columns)  # fmt: skip
        return
    count = draw(st.integers(1, min(3, columns)))
    to.put(f"#[m, k] = {x}[m, n] ;; V {name}", rows, count, k=count)


def _positions(draw: st.DrawFn, to: Written) -> None:
    x, rows, columns = draw(matrices(to))
    what = draw(st.sampled_from(["m", "n", "(n - m)", "(2*m + n)", "(n + 1)"]))
    operator = draw(st.sampled_from(["mul", "add", "max"]))
    head, is_swapped = _swapped(draw, "m", "n")
    shape = (columns, rows) if is_swapped else (rows, columns)
    to.put(f"{head} = {x}[m, n] . {what} ;; M {operator}", *shape)


def _digits(draw: st.DrawFn, to: Written) -> None:
    part = draw(st.sampled_from([1, 2, 3, 4, 32]))
    outer, columns = draw(extents(2, MOST_ELEMENTS // part))
    x = to.input(*draw(st.sampled_from([(outer, part, columns), (part, outer, columns)])))
    index = f"m // {part}, m % {part}" if to.known[x][0] == outer else f"m % {part}, m // {part}"
    to.put(f"#[m, n] = {x}[{index}, n]", outer * part, columns, m=outer * part)


def _masked(draw: st.DrawFn, to: Written) -> None:
    x, rows, columns = draw(matrices(to))
    test = draw(st.sampled_from(["n <= m", "m < n", "m >= n + 1", "n == m", "m == 1", "n != 2"]))
    head, is_swapped = _swapped(draw, "m", "n")
    shape = (columns, rows) if is_swapped else (rows, columns)
    to.put(f"{head} = {x}[m, n] if {test} else {draw(st.sampled_from(['0', '-3', '1.5']))}", *shape)


def _window(draw: st.DrawFn, to: Written) -> None:
    stride, taps, (count, columns) = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(extents(2, 8_000))
    x, w = to.input((count - 1) * stride + taps, columns), to.input(taps, columns)
    index = f"{stride}*m + k" if stride > 1 else "m + k"
    form = draw(st.integers(0, 2))
    if form == 0:
        to.put(f"#[m, n] = {x}[{index}, n] . {w}[k, n] ;; M mul V add", count, columns, m=count)
    elif form == 1:
        to.put(f"#[m] = {x}[{index}, n] . {w}[k, n] ;; M mul V add", count, m=count)
    else:
        to.put(f"#[n, m] = {x}[{index}, n] . {w}[k, n] ;; M add V max", columns, count, m=count)


def _reversed(draw: st.DrawFn, to: Written) -> None:
    x, rows, columns = draw(matrices(to))
    index = draw(st.sampled_from([f"{rows - 1} - m, n", f"m, {columns - 1} - n", "m - 1, n", "m, n + 2"]))
    head, is_swapped = _swapped(draw, "m", "n")
    shape = (columns, rows) if is_swapped else (rows, columns)
    to.put(f"{head} = {x}[{index}]", *shape, m=rows, n=columns)


def _strided(draw: st.DrawFn, to: Written) -> None:
    step, (rows, columns) = draw(st.integers(2, 4)), draw(extents(2, 8_000))
    axis, begun = draw(st.integers(0, 1)), draw(st.integers(0, 1))
    shape = [(n - 1) * step + 1 + begun if a == axis else n for a, n in enumerate((rows, columns))]
    index = [f"{step}*{v} + {begun}" if a == axis else v for a, v in enumerate("mn")]
    head, is_swapped = _swapped(draw, "m", "n")
    result = (columns, rows) if is_swapped else (rows, columns)
    to.put(f"{head} = {to.input(*shape)}[{', '.join(index)}] ;; M unary(neg)", *result, m=rows, n=columns)


def _side_by_side(draw: st.DrawFn, to: Written) -> None:
    """Columns of one tensor behind those of another."""
    x, rows, columns = draw(matrices(to))
    (more,) = draw(extents(1, 300))
    second = f"#[m, p + {columns}] = {to.input(rows, more)}[m, p] ;; M unary(abs)"
    to.sizes[f"{NAMES[len(to.lines)]}_1"] = columns + more
    to.put(f"#[m, n] = {x}[m, n]; {second}", rows, columns + more)


def _diagonal(draw: st.DrawFn, to: Written) -> None:
    form = draw(st.sampled_from(DIAGONALS))
    left, _, right = form.partition("->")
    terms = left.split(",")
    letters = sorted(set(left.replace(",", "")))
    size = dict(zip(letters, draw(extents(len(letters), 300)), strict=True))
    read = [f"{to.input(*(size[c] for c in t))}[{', '.join(t)}]" for t in terms]
    product = " M mul" if len(terms) > 1 else ""
    total = " V add" if set(letters) - set(right) else ""
    actions = f" ;;{product}{total}" if product or total else ""
    to.put(f"#[{', '.join(right)}] = {' . '.join(read)}{actions}", *(size[c] for c in right))


def _product(draw: st.DrawFn, to: Written) -> None:
    x, rows, inner = draw(matrices(to))
    (columns,) = draw(extents(1, max(1, MOST_POINTS // max(1, rows * inner))))
    y = to.input(*draw(st.sampled_from([(inner, columns), (columns, inner)])))
    index = "n, p" if to.known[y] == (inner, columns) else "p, n"
    if draw(st.booleans()):
        third, tail = f" . {to.input(rows, columns)}[m, p]", " M mul V add"
    else:
        third = ""
        tail = draw(st.sampled_from([" M mul V add", " M add V max", " M sub V min", " M mul V max"]))
    head, is_swapped = _swapped(draw, "m", "p")
    shape = (columns, rows) if is_swapped else (rows, columns)
    to.put(f"{head} = {x}[m, n] . {y}[{index}]{third} ;;{tail}", *shape)


def _reduced(draw: st.DrawFn, to: Written) -> None:
    x, rows, columns = draw(matrices(to))
    kept = draw(st.sampled_from(["m", "n", ""]))
    shape = {"m": (rows,), "n": (columns,), "": ()}[kept]
    operator = draw(st.sampled_from(["add", "max", "min"]))
    to.put(f"#[{kept}] = {x}[m, n] ;; {draw(st.sampled_from(['', 'M unary(abs) ']))}V {operator}", *shape)


def _elementwise(draw: st.DrawFn, to: Written) -> None:
    x, rows, columns = draw(matrices(to))
    vectors = sorted(n for n, shape in to.known.items() if shape in ((rows,), (columns,), ()))
    y = draw(st.sampled_from([*vectors, "", "const(3)"]))
    if y in to.known:
        shape = to.known[y]
        y = f"{y}[{'' if not shape else 'm' if shape == (rows,) else 'n'}]"
    head, is_swapped = _swapped(draw, "m", "n")
    action = (
        "M unary(square)" if not y else f"M {draw(st.sampled_from(['mul', 'add', 'max', 'sub', 'less']))}"
    )
    shape = (columns, rows) if is_swapped else (rows, columns)
    to.put(f"{head} = {x}[m, n]{' . ' + y if y else ''} ;; {action}", *shape)


FORMS = (_gather, _scatter, _places, _positions, _digits, _masked, _window, _reversed, _strided,
         _side_by_side, _diagonal, _product, _product, _reduced, _elementwise, _elementwise)  # fmt: skip


@st.composite
def programs(draw: st.DrawFn) -> Written:
    """One to four expressions."""
    written = Written()
    for _ in range(draw(st.integers(1, 4))):
        draw(st.sampled_from(FORMS))(draw, written)
    return written


def need_right(written: Written, dialect: str, seed: int, dtype: str = "float32") -> bool:
    """Compile and compare on whole numbers, of a type if it is given; False if it is refused.

    Raises:
        AssertionError: if values differ, or a fault of ours stopped the compiler.
    """
    shapes = written.inputs | written.known
    try:
        kernel = nkilab.einsum.compile(
            "; ".join(written.lines), shapes=shapes, sizes=written.sizes, dialect=dialect,
            dtypes={n: dtype for n in written.inputs if n not in written.places},
        )  # fmt: skip
    except NkilabError:
        return False
    need_no_fault(kernel)
    rng = np.random.default_rng(seed)
    inputs = [
        rng.integers(0, written.places[n], shapes[n]).astype(np.int32)
        if n in written.places
        else rng.integers(-2, 3, shapes[n]).astype(dtype)
        for n in kernel.inputs
    ]
    results, expected = kernel(*inputs), kernel.reference(*inputs)
    pairs = zip(results, expected, strict=True) if isinstance(results, tuple) else [(results, expected)]
    for got, wanted in pairs:
        # whole numbers; beyond 2 ** 24 float32 rounds them
        largest = float(np.abs(wanted).max(initial=0.0))
        atol = 0.0 if largest < 2**23 else 1e-5 * largest
        np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-5 if atol else 0, atol=atol)
    return True


@settings(max_examples=examples(50), deadline=None)
@given(programs(), st.sampled_from(["nki", "neuronxcc"]), st.integers(0, 3), TYPES)
def test_what_is_written_in_any_form_is_computed_or_refused(
    written: Written, dialect: str, seed: int, dtype: str
) -> None:
    need_right(written, dialect, seed, dtype)
