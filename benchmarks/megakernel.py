"""What it costs to estimate one decode layer of a public megakernel over 32 ranks, with its collectives.

    python benchmarks/megakernel.py NKI_LIBRARY

NKI_LIBRARY is a checkout of aws-neuron/nki-library; its `transformer_tkg` runs from shapes, a layer of the
dimensions of Llama 3 70B, on two cores of each rank. Seconds are of the processor. Its release of 2026-04-13
needs nkilib/core/mlp/mlp.py mended: a part of a docstring stands there twice, the second time outside of it.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import nkilab
from timing import bar, medians

RUNS = 3
RANKS, BATCH, CONTEXT, HEADS, HEAD, HIDDEN, INNER = 32, 8, 1024, 64, 128, 8192, 28672
EPSILON = 1e-6


def layer() -> tuple[Any, dict[str, Any]]:
    """The kernel, and the arguments of one of its ranks."""
    from nkilib.experimental.transformer.transformer_tkg import transformer_tkg

    heads, inner = HEADS // RANKS, -(-INNER // RANKS // 128) * 128
    part = partial(nkilab.spec, dtype="bfloat16")
    shapes = {
        "W_qkvs": (HIDDEN, HEAD * (heads + 2)), "W_outs": (heads * HEAD, HIDDEN), "W_gates": (HIDDEN, inner),
        "W_ups": (HIDDEN, inner), "W_downs": (inner, HIDDEN), "W_gamma_qkvs": (1, HIDDEN),
        "W_gamma_mlps": (1, HIDDEN), "K_caches": (BATCH, 1, HEAD, CONTEXT),
        "V_caches": (BATCH, 1, CONTEXT, HEAD),
    }  # fmt: skip
    rotations = {name: part((HEAD // 2, BATCH, 1)) for name in ("RoPE_cos", "RoPE_sin")}
    masks = {"mask_cache": nkilab.spec((CONTEXT, BATCH, heads, 1), "uint8"), "mask_active": None}
    arguments = {
        "X": part((BATCH, 1, HIDDEN)), **{name: [part(shape)] for name, shape in shapes.items()}, **rotations,
        **masks, "position_ids": nkilab.spec((BATCH, 1), "uint32"), "num_layers": 1, "eps": EPSILON,
        "replica_groups": (tuple(range(RANKS)),),
        **{f"W_{name}_scales": [None] for name in ("gate", "up", "down")},
    }  # fmt: skip
    return transformer_tkg, arguments


def main(folder: Path) -> None:
    """Measure and print."""
    sys.path[:0] = [str(folder / "src" / "nkilib_src"), str(folder / "src")]
    with nkilab.activate():
        import nki

        function, arguments = layer()
        kernel = nki.jit(function)[2]
        estimated: list[nkilab.Estimate] = []
        times = medians(
            {"estimate": lambda: estimated.append(nkilab.estimate(kernel, ranks=RANKS, **arguments))},
            RUNS,
            process_time,
        )
    rows = len(estimated[-1].program)
    print(f"{rows} instructions of the slowest program, {estimated[-1].latency_us:.1f} us predicted")
    bar(f"estimate of a decode layer over {RANKS} ranks", times["estimate"], "s", "at most 1.5")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
