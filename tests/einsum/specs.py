"""Two mapped specifications of our own, whole and small, which tests change in one place."""

from __future__ import annotations

# Z = X^T Y + D, 512 x 512 with 256 products each; nothing is wrong with it
PRODUCT = """\
einsum:
  declaration:
    XH: [K, M]
    YH: [K, J]
    DH: [M, J]
    XS: [K, M]
    YS: [K, J]
    DS: [M, J]
    P: [M, J]
    ZS: [M, J]
    ZH: [M, J]
  expressions:
    - XS[k, m] = XH[k, m]
    - YS[k, j] = YH[k, j]
    - DS[m, j] = DH[m, j]
    - P[m, j] = XS[k, m] . YS[k, j] ;; M mul V add
    - ZS[m, j] = P[m, j] . DS[m, j] ;; M add
    - ZH[m, j] = ZS[m, j]
  shape: {K: 256, M: 512, J: 512}
mapping:
  partitioning:
    XS: {K: [uniform_shape(128)]}
    YS: {K: [uniform_shape(128)]}
    DS: {M: [uniform_shape(128)]}
    P: {K: [uniform_shape(128)], M: [uniform_shape(128)]}
    ZS: {M: [uniform_shape(128)]}
    ZH: {M: [uniform_shape(128)]}
  loop-order:
    XS: [K1, K0, M]
    YS: [K1, K0, J]
    DS: [M1, M0, J]
    P: [M1, K1, K0, M0, J]
    ZS: [M1, M0, J]
    ZH: [M1, M0, J]
  spacetime:
    P: {space: [K0, M0], time: [M1, K1, J]}
format:
  P: {dtype: float32}
  XS: {rank-order: {P: [K0, K1, M1, M0]}, dtype: float32}
binding:
  fusion:
    - einsums: [DS, P, ZS, ZH]
      ranks:
        - [DS.M1, P.M1, ZS.M1, ZH.M1]
  engine:
    - {einsum: XS, component: DMAEngine, instruction: Load, ranks: [K0, M]}
    - {einsum: YS, component: DMAEngine, instruction: Load, ranks: [K0, J]}
    - {einsum: DS, component: DMAEngine, instruction: Load, ranks: [M0, J]}
    - {einsum: P, component: TensorEngine, instruction: MatVec, ranks: [K0, M0, J]}
    - {einsum: ZS, component: VectorEngine, instruction: SimpleTensorTensor, ranks: [M0, J]}
    - {einsum: ZH, component: DMAEngine, instruction: Store, ranks: [M0, J]}
  tensor:
    - {name: XH, einsum: XS, component: HBM, ranks: {noncontiguous: [K1, K0], contiguous: [M]}}
    - name: XS
      einsum: XS
      component: SBUF
      constructor: empty
      ranks: {unbound: [], partition: [K0], free: [K1, M]}
    - {name: XS, einsum: P, component: SBUF, ranks: {partition: [K0], free: [K1, M1, M0]}}
    - {name: YH, einsum: YS, component: HBM, ranks: {noncontiguous: [K1, K0], contiguous: [J]}}
    - {name: YS, einsum: YS, component: SBUF, constructor: empty, ranks: {partition: [K0], free: [K1, J]}}
    - {name: YS, einsum: P, component: SBUF, ranks: {partition: [K0], free: [K1, J]}}
    - {name: DH, einsum: DS, component: HBM, ranks: {noncontiguous: [M1, M0], contiguous: [J]}}
    - name: DS
      einsum: DS
      component: SBUF
      constructor: empty
      ranks: {unbound: [M1], partition: [M0], free: [J]}
    - {name: DS, einsum: ZS, component: SBUF, ranks: {unbound: [M1], partition: [M0], free: [J]}}
    - name: P
      einsum: P
      component: PSUM
      constructor: empty
      ranks: {unbound: [M1], partition: [M0], free: [J]}
    - {name: P, einsum: ZS, component: PSUM, ranks: {unbound: [M1], partition: [M0], free: [J]}}
    - name: ZS
      einsum: ZS
      component: SBUF
      constructor: empty
      ranks: {unbound: [M1], partition: [M0], free: [J]}
    - {name: ZS, einsum: ZH, component: SBUF, ranks: {unbound: [M1], partition: [M0], free: [J]}}
    - name: ZH
      einsum: ZH
      component: HBM
      constructor: empty
      ranks: {noncontiguous: [M1, M0], contiguous: [J]}
options:
  kernel-name: product
  cascade-outputs: [ZH]
"""

# Z = (sum of A over r) scaled per row and group, plus a row: a loop that carries a sum, a row spread over
# partitions, a scalar per partition. The carried sum is repaired, the short rows of U are advised against.
SUMS = """\
einsum:
  declaration:
    UH: [M, G]
    BH: [G, N]
    AH: [R, M, G, N]
    US: [M, G]
    BS: [G, N]
    CS: [M, G, N]
    AS: [R, M, G, N]
    T: [M, G, N]
    KS: [M, G, N]
    ZS: [M, G, N]
    ZH: [M, G, N]
  expressions:
    - US[m, g] = UH[m, g]
    - BS[g, n] = BH[g, n]
    - CS[m, g, n] = BS[g, n]
    - AS[r, m, g, n] = AH[r, m, g, n]
    - T[m, g, n] = AS[r, m, g, n] ;; V add
    - KS[m, g, n] = T[m, g, n] . US[m, g] ;; M mul
    - ZS[m, g, n] = KS[m, g, n] . CS[m, g, n] ;; M add
    - ZH[m, g, n] = ZS[m, g, n]
  shape: {R: 3, M: 128, G: 2, N: 512}
mapping:
  partitioning:
    BS: {N: [uniform_shape(512), uniform_shape(512)]}
    CS: {N: [uniform_shape(512), uniform_shape(512)]}
  loop-order:
    US: [M, G]
    BS: [G, N2, N1, N0]
    CS: [G, N2, N1, M, N0]
    AS: [R, M, G, N]
    T: [R, G, M, N]
    KS: [G, M, N]
    ZS: [G, M, N]
    ZH: [G, M, N]
binding:
  fusion:
    - ranks:
        - [AS.R, T.R]
        - [KS.G, ZS.G, ZH.G]
  engine:
    - {einsum: US, component: DMAEngine, instruction: Load, ranks: [M, G]}
    - {einsum: BS, component: DMAEngine, instruction: Load, ranks: [N1, N0]}
    - {einsum: CS, component: DMAEngine, instruction: BroadcastTo, ranks: [N1, M, N0]}
    - {einsum: AS, component: DMAEngine, instruction: Load, ranks: [M, G, N]}
    - {einsum: T, component: VectorEngine, instruction: LoopReduce, ranks: [M, N]}
    - {einsum: KS, component: VectorEngine, instruction: SimpleTensorScalar, ranks: [M, N]}
    - {einsum: ZS, component: VectorEngine, instruction: SimpleTensorTensor, ranks: [M, N]}
    - {einsum: ZH, component: DMAEngine, instruction: Store, ranks: [M, N]}
  tensor:
    - {name: UH, einsum: US, component: HBM, ranks: {noncontiguous: [M], contiguous: [G]}}
    - {name: US, einsum: US, component: SBUF, constructor: empty, ranks: {partition: [M], free: [G]}}
    - {name: US, einsum: KS, component: SBUF, ranks: {partition: [M], free: [G]}}
    - {name: BH, einsum: BS, component: HBM, ranks: {noncontiguous: [G, N2, N1], contiguous: [N0]}}
    - {name: BS, einsum: BS, component: SBUF, constructor: empty, ranks: {partition: [N1], free: [G, N2, N0]}}
    - {name: BS, einsum: CS, component: SBUF, ranks: {partition: [N1], free: [G, N2, N0]}}
    - {name: CS, einsum: CS, component: SBUF, constructor: empty, ranks: {partition: [M], free: [G, N2, N0]}}
    - {name: CS, einsum: ZS, component: SBUF, ranks: {partition: [M], free: [G, N]}}
    - {name: AH, einsum: AS, component: HBM, ranks: {noncontiguous: [R, M], contiguous: [G, N]}}
    - name: AS
      einsum: AS
      component: SBUF
      constructor: empty
      ranks: {unbound: [R], partition: [M], free: [G, N]}
    - {name: AS, einsum: T, component: SBUF, ranks: {unbound: [R], partition: [M], free: [G, N]}}
    - {name: T, einsum: T, component: SBUF, constructor: empty, ranks: {partition: [M], free: [G, N]}}
    - {name: T, einsum: KS, component: SBUF, ranks: {partition: [M], free: [G, N]}}
    - name: KS
      einsum: KS
      component: SBUF
      constructor: empty
      ranks: {unbound: [G], partition: [M], free: [N]}
    - {name: KS, einsum: ZS, component: SBUF, ranks: {unbound: [G], partition: [M], free: [N]}}
    - name: ZS
      einsum: ZS
      component: SBUF
      constructor: empty
      ranks: {unbound: [G], partition: [M], free: [N]}
    - {name: ZS, einsum: ZH, component: SBUF, ranks: {unbound: [G], partition: [M], free: [N]}}
    - name: ZH
      einsum: ZH
      component: HBM
      constructor: empty
      ranks: {noncontiguous: [M, G], contiguous: [N]}
options:
  kernel-name: sums
  cascade-outputs: [ZH]
"""
