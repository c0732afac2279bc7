"""A chip that nobody makes: what is written for 128 partitions and 512 columns fails on it."""

from __future__ import annotations

from pathlib import Path

from nkilab.machine import MACHINES

SIZES = {
    "partitions": 256,
    "sbuf_bytes_per_partition": 80 * 1024,
    "sbuf_physical_bytes_per_partition": 96 * 1024,
    "psum_banks": 6,
    "psum_bank_bytes": 4096,
    "stationary_free_max": 256,
    "moving_free_max": 1024,
    "moving_free_max_two_bytes": 1024,
    "bn_stats_free_max": 384,
    "max8_free_max": 8192,
}
ODD = MACHINES["trn2"].with_constants(SIZES, "no manual", "odd", "assumed")


def write_odd_chip(folder: Path) -> str:
    """The path of a machine file that says so."""
    path = folder / "odd.yaml"
    lines = ["schema: nkilab.machine/1", "chip: trn2", "source: no manual", "constants:"]
    path.write_text("\n".join([*lines, *(f"  {name}: {size}" for name, size in SIZES.items())]) + "\n")
    return str(path)
