"""Memory: what tiles need while they live, against what the chip has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..grades import Finding, found
from ..language.spec import Placement
from .model import Model


def tile_bytes(model: Model, placed: Placement) -> int | None:
    """Bytes per partition of a tile; None where an extent is not known."""
    count = model.count(placed.einsum, placed.inner)
    each = 4 if placed.component == "PSUM" else model.bytes_of(placed.tensor)
    return None if count is None else count * each


def lifetimes(model: Model) -> dict[str, tuple[int, int]]:
    """First and last Einsum, as numbers in the order in which they run, during which a tile is there."""
    position = {name: number for number, name in enumerate(model.emitted)}
    found_at = {}
    for tensor in position:
        made = model.ranks.producer(tensor)
        if made is None:
            continue
        readers = [position[e] for (t, e) in model.spec.placements if t == tensor and e in position]
        found_at[tensor] = (position[tensor], max([*readers, position[tensor]]))
    return found_at


def _sizes(model: Model, memory: str, tensors: Iterable[str]) -> dict[str, int]:
    """Bytes per partition of the tiles in a memory, where they are known."""
    tiles = [made for made in map(model.ranks.producer, tensors) if made and made.component == memory]
    sizes = {made.tensor: tile_bytes(model, made) for made in tiles}
    return {tensor: size for tensor, size in sizes.items() if size is not None}


def check_memory(model: Model) -> Iterator[Finding]:
    """Tiles that live at once fit."""
    chip = model.machine
    alive = lifetimes(model)
    for memory, row in (("SBUF", "sbuf-capacity"), ("PSUM", "psum-capacity")):
        sizes = _sizes(model, memory, alive)
        if not sizes:
            continue
        most = chip["sbuf_bytes_per_partition"] if memory == "SBUF" else chip["psum_banks"]
        bank = chip["psum_bank_bytes"]
        cost = {t: s if memory == "SBUF" else -(-s // bank) for t, s in sizes.items()}
        peak, at = max(
            (sum(cost[t] for t in cost if alive[t][0] <= n <= alive[t][1]), -n)
            for n in range(len(model.emitted))
        )
        largest = max(sizes, key=lambda t: sizes[t])
        made = model.ranks.producer(largest)
        assert made is not None
        if peak > most:
            facts = {"count": peak, "einsum": model.emitted[-at], "chip": chip.name, "most": most}
            yield found(row, made, largest=sizes[largest], **facts)
        elif memory == "SBUF":
            yield from _twice(model, sizes, peak, most)


def _twice(model: Model, sizes: dict[str, int], peak: float, most: float) -> Iterator[Finding]:
    """Loads that overlap with work need two buffers."""
    loaded = [t for t in sizes if t in model.spec.engines and model.spec.engines[t].instruction == "Load"]
    count = peak + sum(sizes[t] for t in loaded)
    if not loaded or count <= most:
        return
    largest = max(loaded, key=lambda t: sizes[t])
    made = model.ranks.producer(largest)
    assert made is not None
    yield found("double-buffer", made, tensors=loaded, count=count, chip=model.machine.name, most=most)
