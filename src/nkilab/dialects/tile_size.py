"""`nl.tile_size`: hardware limits of the chip that is modelled."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from ..machine import Machine
from ..trace.session import ask, running
from .environment import TRANSPOSES_ON_TENSOR_ENGINE, is_set
from .missing import refuse_name


def _limit(doc: str, key: str, each: int = 1) -> property:
    """A limit of the chip, counted in units of so many."""
    return _of_chip(doc, lambda machine: machine.limit(key) // each)


def _of_chip(doc: str, figure: Callable[[Machine], int]) -> property:
    def value(self: TileSize) -> int:
        session = running()
        return figure(session.machine if session is not None else ask().machine())

    return property(value, doc=doc)


def _psum_banks(machine: Machine) -> int:
    has_one_less = machine.generation >= 3 and is_set(TRANSPOSES_ON_TENSOR_ENGINE)
    return machine.limit("psum_banks") - has_one_less


class TileSize:
    """Hardware limits, read from the row of the chip: the running kernel's, outside of one the one chosen."""

    def __getattr__(self, name: str) -> NoReturn:
        refuse_name("tile_size", name, dir(type(self)))

    pmax = _limit("Partitions of a tile.", "partitions")
    psum_fmax = _limit("float32 elements per partition of a PSUM bank.", "psum_bank_bytes", 4)
    psum_bank_fmax = psum_fmax
    psum_bank_fmax_bytes = _limit("Bytes per partition of a PSUM bank.", "psum_bank_bytes")
    psum_num_banks = _of_chip(
        "PSUM banks; one less where DMA transposes run on TensorE, which takes a bank for them.", _psum_banks
    )
    gemm_stationary_fmax = _limit("Free elements of a stationary tile.", "stationary_free_max")
    gemm_moving_fmax = _limit(
        "Free elements of a moving tile that every chip accepts: one bank of float32.", "psum_bank_bytes", 4
    )
    bn_stats_fmax = _limit("Free elements of bn_stats.", "bn_stats_free_max")
    psum_min_align = property(lambda self: 4, doc="Bytes that PSUM addresses are a multiple of.")
    sbuf_min_align = property(lambda self: 1, doc="Bytes that SBUF addresses are a multiple of.")
    sbuf_fmax_bytes = _limit("Bytes per partition of SBUF that a kernel may use.", "sbuf_bytes_per_partition")
    total_available_sbuf_size = sbuf_fmax_bytes
    sbuf_size_bytes = _of_chip(
        "Bytes of SBUF in all partitions, with those that a kernel may not use.",
        lambda machine: machine.limit("partitions") * machine.limit("sbuf_physical_bytes_per_partition"),
    )
    sbuf_fmax = _limit(
        "float32 elements per partition of SBUF that a kernel may use.", "sbuf_bytes_per_partition", 4
    )


tile_size = TileSize()
