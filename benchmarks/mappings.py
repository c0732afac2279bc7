"""What searching the mappings of a corpus of Einsums gains over the compiler's rules, as a table.

    NKILAB_EINSUM_CORPUS=einsum_corpus.yaml python benchmarks/mappings.py --seconds 10 --limit 120 NAME...

Each cascade is searched in a process of its own, which may take as long as --limit says, compiling included.
"""

from __future__ import annotations

import argparse
import re
import sys
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.conformance.corpus import corpus

from nkilab import einsum

FORK = get_context("fork")
# after what is taken: what was not timed, and why the search ended
NOTES = re.compile(r"; (?=\d+ (?:kernels|choices)|work of)")
# extents and type of what is compiled and timed, by cascade
BENCH: dict[str, tuple[dict[str, int], str]] = {
    "copy_2d": ({"M": 4096, "N": 4096}, "float32"),
    "broadcast_partition": ({"M": 4096, "N": 2048}, "float16"),
    "transpose_2d": ({"M": 4096, "N": 4096}, "bfloat16"),
    "axpy": ({"M": 8192, "N": 8192}, "bfloat16"),
    "swish_mul": ({"M": 4096, "N": 11008}, "float32"),
    "row_sum": ({"M": 4096, "N": 65536}, "float32"),
    "col_sum": ({"M": 65536, "N": 2048}, "float32"),
    "dot": ({"K": 1 << 24}, "float32"),
    "mean_var": ({"M": 4096, "N": 4096}, "float32"),
    "gemv": ({"K": 8192, "M": 8192}, "bfloat16"),
    "gemm_tn": ({"M": 4096, "N": 4096, "K": 4096}, "bfloat16"),
    "gemm_nn": ({"M": 4096, "N": 4096, "K": 4096}, "bfloat16"),
    "bmm": ({"B": 64, "M": 512, "N": 512, "K": 64}, "float32"),
    "gemm_huge_k": ({"M": 8192, "N": 8192, "K": 32768}, "bfloat16"),
    "outer": ({"M": 16384, "N": 16384}, "float32"),
    "gram": ({"I": 2048, "J": 2048, "K": 65536}, "float32"),
    "ttm": ({"I": 256, "J": 256, "K": 512, "R": 64}, "float32"),
    "mttkrp": ({"I": 512, "J": 512, "K": 512, "R": 32}, "float32"),
    "chain3": ({"I": 4096, "J": 128, "K": 4096, "L": 128}, "float32"),
    "qr_update": ({"M": 12288, "N": 22528}, "float16"),
    "pass_merge": ({"K": 1 << 22}, "float32"),
    "softmax_rows": ({"M": 8192, "N": 4096}, "float32"),
    "softmax_online": ({"I": 2048, "I1": 2049, "J": 512, "M": 128}, "float32"),
    "rmsnorm": ({"M": 4096, "N": 8192}, "bfloat16"),
    "layernorm": ({"M": 4096, "N": 4096}, "float32"),
    "rmsnorm_linear": ({"M": 4096, "K": 4096, "N": 6144}, "float32"),
    "swiglu_mlp": ({"M": 4096, "K": 4096, "F": 14336, "N": 4096}, "bfloat16"),
    "lora_bwd": ({"K": 11008, "M": 4096, "N": 1024, "R": 128}, "float32"),
    "attention_3pass": ({"E": 128, "P": 4096, "M": 4096, "F": 128}, "float32"),
    "attention_1pass": ({"E": 128, "P": 16384, "I": 32, "I1": 33, "J": 512, "F": 128}, "bfloat16"),
    "gqa_decode": ({"B": 16, "H": 8, "G": 4, "E": 128, "S": 8192}, "float32"),
    "conv1d_depthwise": ({"C": 4096, "T": 2048, "R": 4, "TP": 2051}, "float32"),
    "conv2d": (
        {"B": 16, "C": 256, "K": 256, "P": 56, "Q": 56, "R": 3, "S": 3, "HP": 58, "WP": 58}, "bfloat16",
    ),
    "conv2d_stride_pad": (
        {"B": 1, "C": 3, "K": 64, "H": 224, "W": 224, "P": 112, "Q": 112, "R": 7, "S": 7}, "float32",
    ),
    "conv_bias_maxpool": (
        {"B": 4, "C": 256, "K": 256, "HP": 224, "WP": 224, "P": 222, "Q": 222, "R": 3, "S": 3, "U": 111,
         "V": 111, "I": 2, "J": 2}, "float32",
    ),
    "stencil5": ({"HP": 8192, "WP": 8192, "P": 8190, "Q": 8190}, "float32"),
    "cumsum": ({"I": 65536, "I1": 65537, "M": 128}, "float32"),
    "delta_rule": ({"T": 4096, "T1": 4097, "D": 128, "F": 128}, "float32"),
    "householder_step": ({"M": 8192, "N": 8192}, "float32"),
    "trisolve": ({"I": 2048, "J": 2048, "N": 512}, "float32"),
    "power_iteration": ({"M": 4096, "K": 4096, "I": 32, "I1": 33}, "float32"),
    "embedding_gather": ({"V": 128256, "D": 4096, "T": 2048}, "float32"),
    "adamw": ({"M": 16384, "N": 8192}, "float32"),
    "moe_topk_gate": ({"T": 2048, "E": 64, "D": 2048, "F": 1024}, "float32"),
}  # fmt: skip


def searched(name: str, seconds: float) -> dict[str, Any]:
    """Latencies of one cascade in microseconds, by the rules and after a search."""
    entry = next(e for e in corpus() if e.name == name)
    sizes, dtype = BENCH[name]
    tensors = (*entry.cascade.inputs, *entry.cascade.outputs)
    dtypes = {t: "int32" if t in entry.integers else dtype for t in tensors}
    rules = einsum.compile(entry.cascade, sizes=sizes, dtypes=dtypes)
    compiled = einsum.compile(entry.cascade, sizes=sizes, dtypes=dtypes, search=seconds)
    is_other = compiled.source != rules.source
    return {
        "rules": rules.estimate.latency_us,
        "found": (compiled if is_other else rules).estimate.latency_us,
        "tried": len(compiled.alternatives),
        "taken": NOTES.split(compiled.changes[-1].partition("taken: ")[2])[0],
    }


def send_outcome(name: str, seconds: float, end: Connection) -> None:
    """Send what became of a cascade to the other end of a pipe: figures, or why there are none."""
    try:
        end.send(searched(name, seconds))
    except Exception as error:
        end.send(f"{type(error).__name__}: {error}".splitlines()[0][:120])


def in_a_process(name: str, seconds: float, limit: float) -> dict[str, Any] | str:
    """The same in a process of its own, which finds compiled code loaded; why not if it fails."""
    mine, its = FORK.Pipe(duplex=False)
    process = FORK.Process(target=send_outcome, args=(name, seconds, its))
    process.start()
    its.close()
    try:
        outcome: dict[str, Any] | str = mine.recv() if mine.poll(limit) else f"takes more than {limit:g} s"
    except EOFError:
        outcome = "it ended without a word"
    process.kill()
    process.join()
    return outcome


def main(seconds: float, limit: float, names: list[str]) -> None:
    """Print a row per cascade, and how many are at least as fast."""
    print(f"| Cascade | Rules, us | Search of {seconds:g} s, us | Gain | Kernels | Taken |")
    print("|---|---|---|---|---|---|")
    gains, failed = [], []
    for name in names:
        row = in_a_process(name, seconds, limit)
        if isinstance(row, str):
            failed.append(f"{name}: {row}")
            print(f"not searched: {failed[-1]}", file=sys.stderr, flush=True)
            continue
        gains.append(row["rules"] / row["found"] - 1)
        print(
            f"| {name} | {row['rules']:,.1f} | {row['found']:,.1f} | {gains[-1]:.1%} | {row['tried']} | "
            f"{row['taken']} |",
            flush=True,
        )
    if gains:
        print(
            f"\n{sum(gain >= 0 for gain in gains)} of {len(gains)} are predicted at least as fast; "
            f"the median gain is {median(gains):.1%}, the largest {max(gains):.1%}"
        )
    if failed:
        print("\nNot searched:\n" + "\n".join(failed))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10, help="of search for a cascade")
    parser.add_argument("--limit", type=float, default=120, help="seconds that a cascade may take in all")
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    main(arguments.seconds, arguments.limit, arguments.names or [e.name for e in corpus() if e.name in BENCH])
