"""Z = D - (a (a.T B)).T in float16, tile by tile: the structure of a generated two-pass kernel.

a arrives twice: as AH [M1, M0 / 128, 128, 1], whose rows go to partitions, and as CH [K1, K0 / 512, 1, 512].
"""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def qr_update(AH, BH, CH, DH, M1, M0, N2, N1, K1, K0):
    """BH is [M1, M0 / 128, 128, N2, N1 * 128], DH and the result [N2, N1, 128, K1, K0]."""
    out = nl.ndarray((N2, N1, 128, K1, K0), dtype=nl.float16, buffer=nl.shared_hbm)
    for n2 in nl.affine_range(N2):
        sums = nl.zeros((nl.par_dim(128), N1), dtype=nl.float16, buffer=nl.sbuf)
        for m1 in nl.affine_range(M1):
            column = nl.ndarray((nl.par_dim(128), M0 // 128), dtype=nl.float16, buffer=nl.sbuf)
            rows = nl.ndarray((nl.par_dim(128), M0 // 128, N1, 128), dtype=nl.float16, buffer=nl.sbuf)
            for m0 in nl.affine_range(M0 // 128):
                column[:, m0] = nl.load(AH[m1, m0, :, 0])
                rows[:, m0, :, :] = nl.load(BH[m1, m0, :, n2, :].reshape((128, N1, 128)))
            parts = nl.zeros((nl.par_dim(128), N1), dtype=nl.float32, buffer=nl.psum)
            for n1 in nl.affine_range(N1):
                for m0 in nl.affine_range(M0 // 128):
                    parts[:, n1] += nisa.nc_matmul(rows[:, m0, n1, :], column[:, m0])
                sums[:, n1] = nl.loop_reduce(parts[:, n1], np.add, loop_indices=[m1], dtype=nl.float16)
        for k1 in nl.affine_range(K1):
            wide = nl.ndarray((nl.par_dim(128), K0), dtype=nl.float16, buffer=nl.sbuf)
            for k0 in nl.affine_range(K0 // 512):
                wide[:, k0 * 512 : (k0 + 1) * 512] = nl.broadcast_to(nl.load(CH[k1, k0]), shape=(128, 512))
            for n1 in nl.affine_range(N1):
                tile = nl.load(DH[n2, n1, :, k1, :])
                scaled = nisa.tensor_scalar(wide, np.multiply, sums[:, n1])
                nl.store(out[n2, n1, :, k1, :], value=nisa.tensor_tensor(tile, scaled, np.subtract))
    return out
