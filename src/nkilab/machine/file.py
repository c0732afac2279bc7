"""Machine files: a chip with constants of one's own, as `nkilab calibrate` writes them.

schema: nkilab.machine/1
chip: trn2
source: fitted to 12 measurements of mine.yaml
constants:
  dma_start_ns: 812.4
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from ..errors import UsageError, did_you_mean
from ..yaml_files import line_of, loaded, wrong
from .chips import ALIASES, MACHINES, chip_named
from .model import Machine

SCHEMA = "nkilab.machine/1"
KEYS = ("schema", "chip", "source", "constants")
SUFFIXES = (".yaml", ".yml")
HINT = "write one with `nkilab calibrate --from LEDGER.yaml -o MACHINE.yaml`; docs/ledger.md shows the format"


class MachineFile(Struct, frozen=True):
    """What a machine file says."""

    chip: str  # whose constants they are
    constants: Mapping[str, float] = field(default_factory=dict)  # by name, in the unit that the name carries
    source: str = ""  # where they come from

    def machine(self, name: str) -> Machine:
        """The chip with these constants; `name` is how results call it."""
        return chip_named(self.chip).with_constants(self.constants, self.source or name, name)

    def text(self) -> str:
        """The file."""
        source = self.source.replace("'", "''")
        lines = [f"schema: {SCHEMA}", f"chip: {self.chip}", f"source: '{source}'"]
        lines.append("constants:" if self.constants else "constants: {}")
        lines += [f"  {key}: {value:.6g}" for key, value in self.constants.items()]
        return "\n".join([*lines, ""])


def machine_named(name: str) -> Machine:
    """A chip by its name, by one of its other names, or with the constants of a file.

    Raises:
        UsageError: if there is no such chip.
        FileError: if the file cannot be read or is no machine file.
    """
    if not isinstance(name, str | PathLike):
        raise UsageError(f"target is {name!r}; it must be the name of a chip or the path of a machine file")
    if not str(name).lower().endswith(SUFFIXES):
        return chip_named(str(name))
    path = Path(name)
    changed_at = path.stat().st_mtime_ns if path.is_file() else 0
    return _read(path, changed_at)


@cache
def _read(path: Path, changed_at: int) -> Machine:
    """The chip that a file changes, read once for each time at which it was changed."""
    document = loaded(path, HINT)
    if not isinstance(document, Mapping) or document.get("schema") != SCHEMA:
        schema = document.get("schema") if isinstance(document, Mapping) else None
        raise wrong(path, 1, f"the schema is {schema!r}; a machine file has {SCHEMA!r}", HINT)
    unknown = [key for key in document if key not in KEYS]
    if unknown:
        raise wrong(
            path,
            line_of(document),
            f"{unknown[0]!r} is no key; there are {', '.join(KEYS)}",
            did_you_mean(str(unknown[0]), KEYS, HINT),
        )
    chip = document.get("chip")
    if not isinstance(chip, str) or chip.lower() not in {*MACHINES, *ALIASES}:
        raise wrong(
            path,
            line_of(document),
            f"chip is {chip!r}; it must be one of {', '.join(MACHINES)}",
            did_you_mean(str(chip), MACHINES, HINT),
        )
    constants = document.get("constants")
    if not isinstance(constants, Mapping):
        problem = f"constants is {constants!r}; it must hold names and values"
        raise wrong(path, line_of(document), problem, HINT)
    checked = {str(key): _constant(path, constants, key, chip_named(chip)) for key in constants}
    return MachineFile(chip, checked, str(document.get("source", ""))).machine(path.name)


def _constant(path: Path, entry: Any, key: Any, chip: Machine) -> float:
    line, value = entry.lc.key(key)[0] + 1, entry[key]
    if key not in chip.facts():
        raise wrong(path, line, f"{key!r} is no constant of a chip", "`nkilab explain trn2` lists them")
    needed = chip.needs(key, value)
    if needed:
        raise wrong(path, line, f"{key} is {value!r}; it must be {needed}", HINT)
    return int(value) if isinstance(chip[key], int) and value == int(value) else float(value)
