"""Environment variables of the vendor's that bear on a run of an `nki` kernel.

NEURON_PLATFORM_TARGET_OVERRIDE chooses the chip (`api.machine_for`), NKI_NC_VERSION that of nki-library's
simulator. NKI_SIMULATOR needs no look: kernels run on the host here whatever it says, as those of a script
that sets it do with the vendor's package.

Source: NKI simulator guide; nki.jit; Using Logical NeuronCores (LNC) with NKI; NCC_EVRF066.
"""

from __future__ import annotations

from os import environ
from typing import Any

from ..errors import RuleError, UnsupportedError, UseError
from ..trace.session import ask
from .history import order

PRECISE = "NKI_PRECISE_FP"
CORES = "NEURON_LOGICAL_NC_CONFIG"
# the first version in which it says how many cores a kernel without brackets has
CONFIGURES = "0.7"
TRANSPOSES_ON_TENSOR_ENGINE = "NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE"
_SOURCE = "NKI simulator guide, Precise Floating-Point Mode"


def is_set(name: str) -> bool:
    """Whether a variable says yes: 1 or true.

    Raises:
        UseError: if it says neither yes nor no.
    """
    value = environ.get(name, "").strip().lower()
    if value not in ("", "0", "1", "true", "false"):
        raise UseError(f"{name} is {environ[name]!r}; it must be 0 or 1")
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


def configured_grid(name: str, grid: tuple[Any, ...], version: str) -> tuple[Any, ...]:
    """The launch grid of a call, held against NEURON_LOGICAL_NC_CONFIG, if that is set.

    From NKI 0.7 on the variable says how many cores a kernel runs on that has no brackets; before, those are
    one, and another number is an error of the runtime. Without a version both spellings run.

    Args:
        name: of the kernel.
        grid: as the user gave it; () without brackets.
        version: the NKI version asked for, or "".

    Raises:
        RuleError: if the cores differ.
        UseError: if the variable is no number.
    """
    setting = environ.get(CORES, "").strip()
    if not setting:
        return grid
    if not setting.isdigit():
        raise UseError(f"{CORES} is {setting!r}; it must be 1 or 2")
    configures = not version or order(version) >= order(CONFIGURES)
    launched = grid[0] if grid else 1
    if launched == int(setting):
        return grid
    if not grid and configures:
        if not version:
            ask().notice(
                f"{name} without brackets runs on {setting} cores, as {CORES} says from NKI {CONFIGURES} on"
            )
        return (int(setting),)
    if version and configures:
        # the sentence of the error that is documented for it
        raise RuleError(
            f"NKI kernel '{name}' is configured with LNC={launched}, but neuronx-cc is using LNC={setting}.",
            hint=f"leave the brackets out, or set {CORES}={launched}",
            source="NCC_EVRF066",
        )
    raise RuleError(
        f"the kernel is launched on {launched} core{'' if launched == 1 else 's'}; {CORES} is {setting}",
        hint=f"launch it as kernel[{setting}](...)",
        source="nki.jit",
    )
