"""Environment variables of the vendor's that bear on a run of an `nki` kernel.

NEURON_PLATFORM_TARGET_OVERRIDE chooses the chip (`api.machine_for`), NKI_NC_VERSION that of nki-library's
simulator. NKI_SIMULATOR needs no look: kernels run on the host here whatever it says, as those of a script
that sets it do with the vendor's package.

Source: NKI simulator guide; stubs of nki.jit.
"""

from __future__ import annotations

from os import environ
from typing import Any

from ..errors import RuleError, UnsupportedError, UseError

PRECISE = "NKI_PRECISE_FP"
CORES = "NEURON_LOGICAL_NC_CONFIG"
TRANSPOSES_ON_TENSOR_ENGINE = "NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE"
_SOURCE = "NKI simulator guide, Precise Floating-Point Mode"


def is_set(name: str) -> bool:
    """Whether a variable says yes: 1 or true.

    Raises:
        UseError: if it says neither yes nor no.
    """
    value = environ.get(name, "").strip().lower()
    if value not in ("", "0", "1", "true", "false"):
        raise UseError(f"{name} is {environ[name]!r}; it is 0 or 1")
    return value in ("1", "true")


def check_precision() -> None:
    """Refuse NKI_PRECISE_FP=0, which stores narrow types as float32.

    Raises:
        UnsupportedError: if it is set so.
    """
    if environ.get(PRECISE) and not is_set(PRECISE):
        raise UnsupportedError(
            f"{PRECISE} is {environ[PRECISE]}: bfloat16 and float8 stored as float32 are not modelled; "
            "elements have their own type here",
            hint=f"unset {PRECISE}, and allocate the tensors in question as nl.float32",
            source=_SOURCE,
        )


def check_cores(grid: tuple[Any, ...]) -> None:
    """Hold the cores that a launch grid asks for against NEURON_LOGICAL_NC_CONFIG, if that is set.

    Raises:
        RuleError: if they differ.
        UseError: if the variable is no number.
    """
    given = environ.get(CORES, "").strip()
    if not given:
        return
    if not given.isdigit():
        raise UseError(f"{CORES} is {given!r}; it is 1 or 2")
    launched = grid[0] if grid else 1
    if launched != int(given):
        raise RuleError(
            f"the kernel is launched on {launched} core{'' if launched == 1 else 's'}; {CORES} is {given}",
            hint=f"launch it as kernel[{given}](...)",
            source="nki.jit",
        )
