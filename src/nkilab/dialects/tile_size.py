"""`nl.tile_size`: hardware limits of the chip that is modelled."""

from __future__ import annotations

from ..machine import Machine, machine_named
from ..trace.session import running


class TileSize:
    """Hardware limits, read from the row of the chip: the running kernel's, trn2 outside of one."""

    @property
    def _machine(self) -> Machine:
        session = running()
        return session.machine if session is not None else machine_named("trn2")

    @property
    def pmax(self) -> int:
        """Partitions of a tile."""
        return self._machine.limit("partitions")

    @property
    def psum_fmax(self) -> int:
        """float32 elements per partition of a PSUM bank."""
        return self._machine.limit("psum_bank_bytes") // 4

    psum_bank_fmax = psum_fmax

    @property
    def psum_bank_fmax_bytes(self) -> int:
        """Bytes per partition of a PSUM bank."""
        return self._machine.limit("psum_bank_bytes")

    @property
    def psum_num_banks(self) -> int:
        """PSUM banks."""
        return self._machine.limit("psum_banks")

    @property
    def gemm_stationary_fmax(self) -> int:
        """Free elements of a stationary tile."""
        return self._machine.limit("stationary_free_max")

    @property
    def gemm_moving_fmax(self) -> int:
        """Free elements of a moving tile that every chip accepts: one bank of float32."""
        return self._machine.limit("psum_bank_bytes") // 4

    @property
    def bn_stats_fmax(self) -> int:
        """Free elements of bn_stats."""
        return 512

    @property
    def psum_min_align(self) -> int:
        """Bytes that PSUM addresses are a multiple of."""
        return 4

    @property
    def sbuf_min_align(self) -> int:
        """Bytes that SBUF addresses are a multiple of."""
        return 1

    @property
    def sbuf_fmax_bytes(self) -> int:
        """Bytes per partition of SBUF that a kernel may use."""
        return self._machine.limit("sbuf_bytes_per_partition")

    total_available_sbuf_size = sbuf_fmax_bytes

    @property
    def sbuf_fmax(self) -> int:
        """float32 elements per partition of SBUF that a kernel may use."""
        return self.sbuf_fmax_bytes // 4


tile_size = TileSize()
