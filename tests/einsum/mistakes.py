"""One mistake each: what is changed in a specification of `specs.py`, and the row that it must find."""

from __future__ import annotations

from dataclasses import dataclass

from tests.einsum.specs import PRODUCT, SUMS


@dataclass(frozen=True)
class Mistake:
    """A specification with one thing wrong.

    Args:
        row: id in the table.
        base: specification that is changed.
        edits: text and what stands there instead.
        name: tells mistakes of one row apart.
    """

    row: str
    base: str
    edits: tuple[tuple[str, str], ...]
    name: str = ""

    @property
    def text(self) -> str:
        """The changed specification."""
        base_text = self.base
        for old, new in self.edits:
            assert base_text.count(old) == 1, (self.row, old, base_text.count(old))
            base_text = base_text.replace(old, new)
        return base_text


def product(row: str, *edits: str, name: str = "") -> Mistake:
    """A change of PRODUCT: old, new, old, new, ..."""
    return Mistake(row, PRODUCT, tuple(zip(edits[::2], edits[1::2], strict=True)), name)


def sums(row: str, *edits: str, name: str = "") -> Mistake:
    """A change of SUMS."""
    return Mistake(row, SUMS, tuple(zip(edits[::2], edits[1::2], strict=True)), name)


_FORMAT = "  P: {dtype: float32}\n"
_ORDER = "[K0, K1, M1, M0]}, dtype"
_VIEW = "- {name: XS, einsum: P, component: SBUF, ranks: {partition: [K0], free: [K1, M1, M0]}}"
_MATVEC = "{einsum: P, component: TensorEngine, instruction: MatVec, ranks: [K0, M0, J]}"
_ADD = "{einsum: ZS, component: VectorEngine, instruction: SimpleTensorTensor, ranks: [M0, J]}"
_LOAD_A = "{einsum: AS, component: DMAEngine, instruction: Load, ranks: [M, G, N]}"
_SUM = "{einsum: T, component: VectorEngine, instruction: LoopReduce, ranks: [M, N]}"
_SCALE = "{einsum: KS, component: VectorEngine, instruction: SimpleTensorScalar, ranks: [M, N]}"
_P = (
    "einsum: P\n      component: PSUM\n      constructor: empty\n"
    "      ranks: {unbound: [M1], partition: [M0], free: [J]}"
)
_ZS = (
    "name: ZS\n      einsum: ZS\n      component: SBUF\n      constructor: empty\n      ranks: {unbound: [M1]"
)
_PZ = "{name: P, einsum: ZS, component: PSUM, ranks: {unbound: [M1], partition: [M0], free: [J]}}"
_DZ = "{name: DS, einsum: ZS, component: SBUF, ranks: {unbound: [M1]"
_TT = "{name: T, einsum: T, component: SBUF, constructor: empty"
_AS = "ranks: {unbound: [R], partition: [M], free: [G, N]}\n    - {name: AS"
_SHAPE = "shape: {K: 256, M: 512, J: 512}"
_CS = (
    "{name: CS, einsum: CS, component: SBUF, constructor: empty, ranks: {partition: [M], free: [G, N2, N0]}}"
)

# X is loaded with m on the partitions, and multiplied with k there
TRANSPOSED = (
    "    XS: {K: [uniform_shape(128)]}", "    XS: {K: [uniform_shape(128)], M: [uniform_shape(128)]}",
    "    XS: [K1, K0, M]", "    XS: [M1, K1, M0, K0]",
    "instruction: Load, ranks: [K0, M]", "instruction: Load, ranks: [M0, K0]",
    "ranks: {noncontiguous: [K1, K0], contiguous: [M]}",
    "ranks: {noncontiguous: [K1, K0, M1], contiguous: [M0]}",
    "ranks: {unbound: [], partition: [K0], free: [K1, M]}",
    "ranks: {unbound: [], partition: [M0], free: [M1, K1, K0]}",
)  # fmt: skip

DISTANCES = """
einsum:
  declaration: {X: [M, D], S: [N, D], R: [M, N, D], F: [M, N]}
  expressions: ["R[m, n, d] = X[m, d] - S[n, d]", "F[m, n] = R[m, n, d] ;; M square V add"]
  shape: {M: 1024, N: 512, D: 64}
options: {cascade-outputs: [F]}
"""

MISTAKES = (
    # names
    product("reserved-name", "kernel-name: product", "kernel-name: lambda"),
    product("rank-name", "XH: [K, M]", "XH: [k, M]"),
    product("shape-rank", _SHAPE, "shape: {K: 256, M: 512, J: 512, L: 4}"),
    product("size", "J: 512}", "J: 99999999999}"),
    product("number", "[k, m] . YS[k, j]", "[k, m] . YS[k, j] . 1e39"),
    product("whole-number", _SHAPE, _SHAPE + "\n  scalars: {seed: 16777217}"),
    product("reads-itself", "XS[k, m] = XH", "XS[k, m] = XS"),
    product("output-twice", "cascade-outputs: [ZH]", "cascade-outputs: [ZH, ZH]"),
    product("written-over", "- ZH[m, j] = ZS[m, j]", "- ZH[m, j] = ZS[m, j]\n    - ZH[m, j] = P[m, j]"),
    product(
        "read-before-written",
        "    - DS[m, j] = DH[m, j]\n",
        "",
        "    - ZH[m, j] = ZS[m, j]\n",
        "    - ZH[m, j] = ZS[m, j]\n    - DS[m, j] = DH[m, j]\n",
    ),
    product("no-einsum", "    XS: [K1, K0, M]", "    XZ: [K1, K0, M]"),
    product("no-tensor", _FORMAT, "  PP: {dtype: float32}\n"),
    product("no-rank", "- [DS.M1,", "- [DS.M2,"),
    product(
        "ambiguous-einsum",
        "    - ZH[m, j] = ZS[m, j]\n",
        "    - ZH[m, j] = ZS[m, j]\n    - ZH[0, 0] = const(0)\n",
    ),
    # splits
    sums("split-remainder", "N: 512}", "N: 500}"),
    product(
        "split-name",
        "XH: [K, M]",
        "XH: [K, M]\n    WH: [K0]",
        _SHAPE,
        "shape: {K: 256, M: 512, J: 512, K0: 3}",
    ),
    # loops
    product(
        "loop-order-ranks", "    ZS: [M1, M0, J]\n", "    ZS: [M1, M0]\n", _ADD, _ADD.replace("M0, J", "M0")
    ),
    product("spacetime-ranks", "time: [M1, K1, J]", "time: [M1, K1]"),
    product(
        "space-looped", "P: {space: [K0, M0], time: [M1, K1, J]}", "P: {space: [K0, M1], time: [M0, K1, J]}"
    ),
    product(
        "fused-twice",
        "        - [DS.M1, P.M1, ZS.M1, ZH.M1]\n",
        "        - [DS.M1, P.M1, ZS.M1, ZH.M1]\n        - [XS.K1, P.M1]\n",
    ),
    product("fused-with-itself", "ZH.M1]", "ZH.M1, ZH.M0]"),
    product(
        "fused-extents",
        "        - [DS.M1, P.M1, ZS.M1, ZH.M1]\n",
        "        - [DS.M1, P.M1, ZS.M1, ZH.M1]\n        - [XS.K1, YS.K0]\n",
    ),
    product("fusion-list", "einsums: [DS, P, ZS, ZH]", "einsums: [DS, P]"),
    product("fusion-extra", "einsums: [DS, P, ZS, ZH]", "einsums: [XS, DS, P, ZS, ZH]"),
    product(
        "fusion-singletons",
        "        - [DS.M1, P.M1, ZS.M1, ZH.M1]\n",
        "        - [DS.M1, P.M1, ZS.M1, ZH.M1]\n        - [XS.K1]\n        - [XS.K0]\n",
    ),
    product(
        "consumed-and-looped", "instruction: Store, ranks: [M0, J]", "instruction: Store, ranks: [M1, M0, J]"
    ),
    sums("carried-loop"),
    sums(
        "incomplete-reduction",
        "KS[m, g, n] = T[m, g, n] . US[m, g] ;; M mul",
        "KS[r, m, g, n] = T[m, g, n] . US[m, g] ;; M mul",
        "    KS: [M, G, N]\n",
        "    KS: [R, M, G, N]\n",
        "ZS[m, g, n] = KS[m, g, n] . CS[m, g, n] ;; M add",
        "ZS[m, g, n] = KS[r, m, g, n] ;; V add",
        "    KS: [G, M, N]\n",
        "    KS: [R, G, M, N]\n",
        "    ZS: [G, M, N]\n",
        "    ZS: [R, G, M, N]\n",
        "- [AS.R, T.R]",
        "- [AS.R, T.R, KS.R, ZS.R]",
        "instruction: SimpleTensorTensor",
        "instruction: LoopReduce",
        "    - {name: CS, einsum: ZS, component: SBUF, ranks: {partition: [M], free: [G, N]}}\n",
        "",
        "einsum: KS\n      component: SBUF\n      constructor: empty\n      ranks: {unbound: [G]",
        "einsum: KS\n      component: SBUF\n      constructor: empty\n      ranks: {unbound: [R, G]",
        "{name: KS, einsum: ZS, component: SBUF, ranks: {unbound: [G]",
        "{name: KS, einsum: ZS, component: SBUF, ranks: {unbound: [R, G]",
    ),
    product(
        "runs-before",
        "- [DS.M1, P.M1, ZS.M1, ZH.M1]",
        "- [DS.M1, ZS.M1, ZH.M1]",
        "einsums: [DS, P, ZS, ZH]",
        "einsums: [DS, ZS, ZH]",
    ),
    product("unbound-prefix", "    P: [M1, K1, K0, M0, J]", "    P: [K1, M1, K0, M0, J]"),
    product(
        "unbound-differs",
        "- [DS.M1, P.M1, ZS.M1, ZH.M1]",
        "- [DS.M1, P.M1, ZS.M1]",
        "einsums: [DS, P, ZS, ZH]",
        "einsums: [DS, P, ZS]",
    ),
    # layouts
    product("placement-ranks", _VIEW, _VIEW.replace("[K1, M1, M0]", "[K1, M1]")),
    product("constructor", _ZS, _ZS.replace("      constructor: empty\n", "")),
    product("constructor", _VIEW, _VIEW.replace("SBUF,", "SBUF, constructor: empty,"), name="at a reader"),
    product("memory-differs", _DZ, _DZ.replace("SBUF", "PSUM")),
    product(
        "hbm-unbound",
        "ranks: {noncontiguous: [M1, M0], contiguous: [J]}\noptions",
        "ranks: {unbound: [M1], noncontiguous: [M0], contiguous: [J]}\noptions",
    ),
    sums(
        "view-partition",
        "{name: T, einsum: KS, component: SBUF, ranks: {partition: [M], free: [G, N]}}",
        "{name: T, einsum: KS, component: SBUF, ranks: {partition: [G], free: [M, N]}}",
    ),
    product("view-turned", *TRANSPOSED),
    product("view-free", _VIEW, _VIEW.replace("[K1, M1, M0]", "[M1, M0, K1]")),
    product("rank-order", _ORDER, "[K1, K0, M1, M0]}, dtype"),
    product("rank-order-ranks", _ORDER, "[K0, K1, M]}, dtype"),
    sums("unit-rank", _CS, _CS.replace("[G, N2, N0]", "[G, N2, N0, N1]")),
    product(
        "shape-differs",
        "{noncontiguous: [K1, K0], contiguous: [M]}",
        "{noncontiguous: [K1, M], contiguous: [K0]}",
    ),
    product("partition-extent", "XS: {K: [uniform_shape(128)]}", "XS: {K: [uniform_shape(256)]}"),
    sums(
        "no-partition",
        _TT + ", ranks: {partition: [M], free: [G, N]}}",
        _TT + ", ranks: {partition: [], free: [M, G, N]}}",
    ),
    product(
        "start-partition",
        _DZ + ", partition: [M0], free: [J]}}",
        _DZ + ", partition: [M0], free: [J]}}",
        "    ZS: {M: [uniform_shape(128)]}",
        "    ZS: {M: [uniform_shape(128), uniform_shape(16)]}",
        "    ZS: [M1, M0, J]\n",
        "    ZS: [M2, M1, M0, J]\n",
        "- [DS.M1, P.M1, ZS.M1, ZH.M1]",
        "- [DS.M1, P.M1, ZS.M2, ZH.M1]",
        "{unbound: [M1], partition: [M0], free: [J]}}\n    - name: P",
        "{unbound: [M2], partition: [M1, M0], free: [J]}}\n    - name: P",
        _PZ,
        _PZ.replace("unbound: [M1], partition: [M0]", "unbound: [M2], partition: [M1, M0]"),
        _ZS + ", partition: [M0], free: [J]}",
        _ZS.replace("[M1]", "[M2]") + ", partition: [M1, M0], free: [J]}",
    ),
    product("output-memory", "cascade-outputs: [ZH]", "cascade-outputs: [ZH, ZS]"),
    # engines
    product("no-instruction", "instruction: MatVec", "instruction: MatMul"),
    product("no-component", "component: TensorEngine", "component: PEEngine"),
    product("engine-instruction", "component: TensorEngine", "component: VectorEngine"),
    product("instruction-operator", "instruction: SimpleTensorTensor", "instruction: LoopReduce"),
    product(
        "instruction-operator",
        "ZH[m, j] = ZS[m, j]",
        "ZH[m, j] = ZS[m, j] ;; M unary(exp)",
        name="that computes",
    ),
    product(
        "instruction-memory",
        "{name: ZS, einsum: ZH, component: SBUF",
        "{name: ZS, einsum: ZH, component: PSUM",
        _ZS,
        _ZS.replace("SBUF", "PSUM"),
    ),
    product("matmul-memory", _P, _P.replace("PSUM", "SBUF"), _PZ, _PZ.replace("PSUM", "SBUF")),
    product("matmul-contraction", _MATVEC, _MATVEC.replace("K0, M0, J", "K0, K1, M0, J")),
    product("matmul-tile", "J: 512}", "J: 1024}"),
    product(
        "matmul-tile",
        "P: {K: [uniform_shape(128)], M: [uniform_shape(128)]}",
        "P: {K: [uniform_shape(128)], M: [uniform_shape(256)]}",
        name="stationary",
    ),
    product("matmul-dtypes", "M0]}, dtype: float32}", "M0]}, dtype: bfloat16}"),
    product("psum-dtype", _FORMAT, "  P: {dtype: bfloat16}\n"),
    product(
        "both-psum",
        _DZ,
        _DZ.replace("SBUF", "PSUM"),
        "name: DS\n      einsum: DS\n      component: SBUF",
        "name: DS\n      einsum: DS\n      component: PSUM",
    ),
    product("gpsimd-psum", _ADD, _ADD.replace("Vector", "GpSimd")),
    sums(
        "scalar-operand",
        _SCALE,
        _SCALE.replace("[M, N]", "[M, N, G]"),
        "        - [KS.G, ZS.G, ZH.G]\n",
        "        - [ZS.G, ZH.G]\n",
        "ranks: {unbound: [G], partition: [M], free: [N]}\n    - {name: KS, einsum: ZS, "
        "component: SBUF, ranks: {unbound: [G], partition: [M], free: [N]}}",
        "ranks: {partition: [M], free: [G, N]}\n    - {name: KS, einsum: ZS, component: SBUF, ranks: "
        "{partition: [M], free: [G, N]}}",
    ),
    sums(
        "reduced-and-consumed",
        _SUM,
        _SUM.replace("[M, N]", "[R, M, N]"),
        "        - [AS.R, T.R]\n",
        "",
        _LOAD_A,
        _LOAD_A.replace("[M", "[R, M"),
    ),
    # memory
    sums("sbuf-capacity", "N: 512}", "N: 30720}"),
    product(
        "psum-capacity",
        _SHAPE,
        "shape: {K: 256, M: 1536, J: 512}",
        _P,
        _P.replace("unbound: [M1], partition: [M0], free: [J]", "partition: [M0], free: [M1, J]"),
        _PZ,
        _PZ.replace("unbound: [M1], partition: [M0], free: [J]", "partition: [M0], free: [M1, J]"),
    ),
    sums("double-buffer", "shape: {R: 3, M: 128, G: 2, N: 512}", "shape: {R: 3, M: 128, G: 2, N: 7680}"),
    # advice
    product("short-row", "J: 512}", "J: 256}"),
    product(
        "repeated-work",
        "    DS: [M, J]\n",
        "    DS: [H, M, J]\n",
        "    - DS[m, j] = DH[m, j]\n    - P[m, j] = XS[k, m] . YS[k, j] ;; M mul V add\n",
        "    - P[m, j] = XS[k, m] . YS[k, j] ;; M mul V add\n    - DS[h, m, j] = DH[m, j]\n",
        "P[m, j] . DS[m, j]",
        "P[m, j] . DS[h, m, j]",
        "- ZS[m, j] =",
        "- ZS[h, m, j] =",
        "ZH[m, j] = ZS[m, j]",
        "ZH[h, m, j] = ZS[h, m, j]",
        "    ZS: [M, J]\n    ZH: [M, J]\n",
        "    ZS: [H, M, J]\n    ZH: [H, M, J]\n",
        "J: 512}\nmapping",
        "J: 512, H: 2}\nmapping",
        "    DS: [M1, M0, J]\n",
        "    DS: [M1, H, M0, J]\n",
        "    ZS: [M1, M0, J]\n    ZH: [M1, M0, J]\n",
        "    ZS: [M1, H, M0, J]\n    ZH: [M1, H, M0, J]\n",
        "ZH.M1]\n",
        "ZH.M1]\n        - [DS.H, ZS.H, ZH.H]\n",
        "einsum: DS\n      component: SBUF\n      constructor: empty\n      ranks: {unbound: [M1]",
        "einsum: DS\n      component: SBUF\n      constructor: empty\n      ranks: {unbound: [M1, H]",
        _DZ,
        _DZ.replace("[M1", "[M1, H"),
        _ZS,
        _ZS.replace("[M1", "[M1, H"),
        "{name: ZS, einsum: ZH, component: SBUF, ranks: {unbound: [M1",
        "{name: ZS, einsum: ZH, component: SBUF, ranks: {unbound: [M1, H",
        "ranks: {noncontiguous: [M1, M0], contiguous: [J]}\noptions",
        "ranks: {noncontiguous: [H, M1, M0], contiguous: [J]}\noptions",
    ),
    sums("narrow-sum", "binding:\n", "format:\n  T: {dtype: bfloat16}\nbinding:\n"),
    product("bit-width", _FORMAT, "  P: {bit-width: 32}\n"),
    product("zeros-psum", _P, _P.replace("empty", "zeros")),
    sums("zeros-sum", _TT, _TT.replace("empty", "zeros")),
    sums("tensor-copy", "{einsum: CS, component: DMAEngine", "{einsum: CS, component: TensorEngine"),
    Mistake("squared-differences", DISTANCES, ()),
    product("unused-tensor", "    XH: [K, M]\n", "    XH: [K, M]\n    WH: [K, M]\n"),
    product(
        "dead-einsum",
        "    XH: [K, M]\n",
        "    XH: [K, M]\n    WH: [K, M]\n",
        "    - ZH[m, j] = ZS[m, j]\n",
        "    - ZH[m, j] = ZS[m, j]\n    - WH[k, m] = XH[k, m]\n",
    ),
)

# The published example's other faults: what a specification cannot get wrong, as the compiler decides it.
BY_CONSTRUCTION = {
    2: "packing and shapes of arguments come from the specification, and shapes are checked at entry",
    12: "one tensor may be read in several layouts, and is transposed where needed",
    13: "the test's reference is the cascade",
    14: "tests use values centred on zero, whole numbers, a value per element and large magnitudes",
    17: "names come from the specification",
    22: "views are made where their buffer is",
    23: "ranks decide which operand is stationary",
    24: "ranks decide which operand is the scalar one, and a flag reverses what does not commute",
    28: "one table of operators has all spellings",
    29: "copies may be left out",
    30: "instructions are chosen for groups of Einsums",
}
