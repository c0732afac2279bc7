"""`nl.tile_size`: hardware limits of the chip that is modelled."""

from __future__ import annotations

from typing import NoReturn

from ..machine import Machine
from ..trace.session import ask, running
from .environment import TRANSPOSES_ON_TENSOR_ENGINE, is_set
from .missing import refuse_name


class TileSize:
    """Hardware limits, read from the row of the chip: the running kernel's, outside of one the one chosen."""

    @property
    def _machine(self) -> Machine:
        session = running()
        return session.machine if session is not None else ask().machine()

    def __getattr__(self, name: str) -> NoReturn:
        refuse_name("tile_size", name, dir(type(self)))

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
        """PSUM banks; one less where DMA transposes run on TensorE, which takes a bank for them."""
        machine = self._machine
        has_one_less = machine.generation >= 3 and is_set(TRANSPOSES_ON_TENSOR_ENGINE)
        return machine.limit("psum_banks") - has_one_less

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
        return self._machine.limit("bn_stats_free_max")

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
    def sbuf_size_bytes(self) -> int:
        """Bytes of SBUF in all partitions, with those that a kernel may not use."""
        return self._machine.limit("partitions") * self._machine.limit("sbuf_physical_bytes_per_partition")

    @property
    def sbuf_fmax(self) -> int:
        """float32 elements per partition of SBUF that a kernel may use."""
        return self.sbuf_fmax_bytes // 4


tile_size = TileSize()
