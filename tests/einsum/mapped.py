"""A small specification with everything given: z = t * t - t, where t[n] = sum of a[k] b[k, n]."""

SCALED_SUM = """\
einsum:
    declaration:
        AH: [K1, K0]
        AS: [K1, K0]
        BH: [K1, K0, N0]
        BS: [K1, K0, N0]
        TP: [K1, N0]
        TS: [N0]
        US: [N0]
        ZS: [N0]
        ZH: [N0]
    expressions:
        - AS[k1, k0] = AH[k1, k0]
        - BS[k1, k0, n0] = BH[k1, k0, n0]
        - TP[k1, n0] = BS[k1, k0, n0] . AS[k1, k0] ;; M mul V add
        - TS[n0] = TP[k1, n0] ;; V add
        - US[n0] = TS[n0] . TS[n0] ;; M binary(multiply)
        - ZS[n0] = US[n0] . TS[n0] ;; M binary(subtract)
        - ZH[n0] = ZS[n0]
    shape:
        K0: 128
        N0: 64
mapping:
    loop-order:
        AS: [K1, K0]
        BS: [K1, K0, N0]
        TP: [K1, K0, N0]
        TS: [K1, N0]
        US: [N0]
        ZS: [N0]
        ZH: [N0]
format:
    AH: {dtype: float32}
    AS: {dtype: float32}
    BH: {dtype: float32}
    BS: {dtype: float32}
    TP: {dtype: float32}
    TS: {dtype: float32}
    US: {dtype: float32}
    ZS: {dtype: float32}
    ZH: {dtype: float32}
binding:
    fusion:
        - einsums: [AS, BS, TP, TS]
          ranks:
            - [AS.K1, BS.K1, TP.K1, TS.K1]
    engine:
        - {einsum: AS, component: DMAEngine, instruction: Load, ranks: [K0]}
        - {einsum: BS, component: DMAEngine, instruction: Load, ranks: [K0, N0]}
        - {einsum: TP, component: TensorEngine, instruction: MatVec, ranks: [K0, N0]}
        - {einsum: TS, component: VectorEngine, instruction: LoopReduce, ranks: [N0]}
        - {einsum: US, component: VectorEngine, instruction: SimpleTensorTensor, ranks: [N0]}
        - {einsum: ZS, component: VectorEngine, instruction: SimpleTensorTensor, ranks: [N0]}
        - {einsum: ZH, component: DMAEngine, instruction: Store, ranks: [N0]}
    tensor:
        - {name: AH, einsum: AS, component: HBM, ranks: {unbound: [], noncontiguous: [K1], contiguous: [K0]}}
        - name: AS
          einsum: AS
          component: SBUF
          constructor: empty
          ranks: {unbound: [K1], partition: [K0], free: []}
        - {name: AS, einsum: TP, component: SBUF, ranks: {unbound: [K1], partition: [K0], free: []}}
        - name: BH
          einsum: BS
          component: HBM
          ranks: {unbound: [], noncontiguous: [K1, K0], contiguous: [N0]}
        - name: BS
          einsum: BS
          component: SBUF
          constructor: empty
          ranks: {unbound: [K1], partition: [K0], free: [N0]}
        - {name: BS, einsum: TP, component: SBUF, ranks: {unbound: [K1], partition: [K0], free: [N0]}}
        - name: TP
          einsum: TP
          component: PSUM
          constructor: zeros
          ranks: {unbound: [K1], partition: [N0], free: []}
        - {name: TP, einsum: TS, component: PSUM, ranks: {unbound: [K1], partition: [N0], free: []}}
        - name: TS
          einsum: TS
          component: SBUF
          constructor: zeros
          ranks: {unbound: [], partition: [N0], free: []}
        - {name: TS, einsum: US, component: SBUF, ranks: {unbound: [], partition: [N0], free: []}}
        - {name: TS, einsum: ZS, component: SBUF, ranks: {unbound: [], partition: [N0], free: []}}
        - name: US
          einsum: US
          component: SBUF
          constructor: empty
          ranks: {unbound: [], partition: [N0], free: []}
        - {name: US, einsum: ZS, component: SBUF, ranks: {unbound: [], partition: [N0], free: []}}
        - name: ZS
          einsum: ZS
          component: SBUF
          constructor: empty
          ranks: {unbound: [], partition: [N0], free: []}
        - {name: ZS, einsum: ZH, component: SBUF, ranks: {unbound: [], partition: [N0], free: []}}
        - name: ZH
          einsum: ZH
          component: HBM
          constructor: empty
          ranks: {unbound: [], noncontiguous: [], contiguous: [N0]}
options:
    kernel-name: scaled_sum
    cascade-outputs: [ZH]
"""
