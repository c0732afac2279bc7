"""Enumerations that both spellings share; instructions match their members by name."""

from __future__ import annotations

from enum import Enum, IntEnum

from .missing import NamedMeta


class engine(IntEnum, metaclass=NamedMeta):
    """Engines of a NeuronCore."""

    unknown = 0
    tensor = 1
    scalar = 2
    gpsimd = 3
    dma = 4
    vector = 5
    sync = 6


class reduce_cmd(IntEnum, metaclass=NamedMeta):
    """What an instruction does with its reduction registers."""

    idle = 0
    reset = 1
    reduce = 2
    reset_reduce = 3
    load_reduce = 4


class dge_mode(IntEnum, metaclass=NamedMeta):
    """Who generates DMA descriptors."""

    unknown = 0
    swdge = 1
    hwdge = 2
    none = 3


class beta1_dge_mode(IntEnum, metaclass=NamedMeta):
    """Who generates DMA descriptors; Beta 1 numbers its members from the other end."""

    none = 0
    swdge = 1
    hwdge = 2
    unknown = 3


beta1_dge_mode.__name__ = beta1_dge_mode.__qualname__ = "dge_mode"


class oob_mode(IntEnum, metaclass=NamedMeta):
    """What an index out of bounds does."""

    error = 0
    skip = 1


class nc_version(IntEnum, metaclass=NamedMeta):
    """Generations of the NeuronCore."""

    gen2 = 2
    gen3 = 3
    gen4 = 4


class matmul_perf_mode(Enum, metaclass=NamedMeta):
    """Performance modes of nc_matmul."""

    none = "none"
    double_row = "double_row"


class dma_engine(IntEnum, metaclass=NamedMeta):
    """What carries a transfer between two cores."""

    dma = 1
    gpsimd_dma = 2


# those of `nki.isa` and of its constants, by name
ENUMS = {e.__name__: e for e in (engine, reduce_cmd, dge_mode, oob_mode, nc_version, matmul_perf_mode)}
