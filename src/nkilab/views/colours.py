"""Colours of who works and what is waited for: one colour has one meaning in every report and picture.

Any two differ by 11 or more in CAM02-UCS, also for eyes without one kind of cone.
"""

from __future__ import annotations

# Per meaning what it is called, and its colour on light and on dark ground.
MEANINGS = {
    "dma": ("transfers", "#4671b1", "#66a6fc"),
    "tensor": ("TensorE", "#507b3b", "#7bc77b"),
    "vector": ("VectorE", "#259cc7", "#66dcf2"),
    "scalar": ("ScalarE", "#a63b86", "#dc71c7"),
    "gpsimd": ("GpSimdE", "#664630", "#a68666"),
    "spill": ("spills and reloads", "#d12510", "#fc5030"),
    "buffer": ("a buffer that is not free", "#8666fc", "#8671fc"),
    "issue": ("a transfer that begins", "#dc7b05", "#fcb130"),
    "signal": ("signals, ports, other cores", "#3b4650", "#f2f2fc"),
    "none": ("launch, end, program order", "#86919c", "#7b8691"),
}
# Other reasons to wait, and pieces of the critical path, that mean the same.
_SAME = {
    "moving": "dma", "reuse": "buffer", "queue": "issue", "first byte": "issue", "sync": "signal",
    "port": "signal", "meeting": "signal", "order": "none", "launch": "none", "start": "none", "end": "none",
}  # fmt: skip
# Opcodes of transfers that planning inserts.
SPILLS = ("SPILL_SAVE", "SPILL_RELOAD", "LOAD_AGAIN")
COLOUR_OF = {name: list(MEANINGS).index(_SAME.get(name, name)) for name in (*MEANINGS, *_SAME)}


def meaning_of(engine: str, label: str) -> str:
    """What the colour of an event means: its engine, or that planning inserted it."""
    return "spill" if label in SPILLS else "signal" if engine == "sync" else engine
