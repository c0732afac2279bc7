"""Predicted latency of compiled cascades at the shapes of a list, and what a search gains.

    python benchmarks/einsums.py CORPUS.yaml [NAME ...] [--search SECONDS]

The list of cascades is given; the shapes stand here.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from time import perf_counter
from typing import Any

from ruamel.yaml import YAML

import nkilab.einsum
from nkilab.einsum.language.ast import Cascade, Iterate, Tensor
from nkilab.einsum.language.expressions import read_einsum
from nkilab.errors import NkilabError

SHAPES: dict[str, tuple[str, str]] = {
    "copy_2d": ("M=4096 N=4096", "float32"),
    "broadcast_partition": ("M=4096 N=2048", "float16"),
    "transpose_2d": ("M=4096 N=4096", "bfloat16"),
    "axpy": ("M=8192 N=8192", "bfloat16"),
    "swish_mul": ("M=4096 N=11008", "bfloat16"),
    "row_sum": ("M=4096 N=65536", "float32"),
    "col_sum": ("M=65536 N=2048", "float32"),
    "dot": ("K=16777216", "float32"),
    "mean_var": ("M=4096 N=4096", "float32"),
    "gemv": ("K=8192 M=8192", "bfloat16"),
    "gemm_tn": ("M=4096 N=4096 K=4096", "bfloat16"),
    "gemm_nn": ("M=4096 N=4096 K=4096", "bfloat16"),
    "bmm": ("B=64 M=512 N=512 K=64", "bfloat16"),
    "gemm_huge_k": ("M=8192 N=8192 K=32768", "bfloat16"),
    "outer": ("M=16384 N=16384", "float32"),
    "gram": ("I=2048 J=2048 K=65536", "bfloat16"),
    "ttm": ("I=256 J=256 K=512 R=64", "bfloat16"),
    "mttkrp": ("I=512 J=512 K=512 R=32", "bfloat16"),
    "chain3": ("I=4096 J=128 K=4096 L=128", "bfloat16"),
    "qr_update": ("M=12288 N=22528", "float16"),
    "pass_merge": ("K=4194304", "float32"),
    "softmax_rows": ("M=8192 N=4096", "float32"),
    "softmax_online": ("I=2048 I1=2049 J=512 M=128", "float32"),
    "rmsnorm": ("M=4096 N=8192", "bfloat16"),
    "layernorm": ("M=4096 N=4096", "float32"),
    "rmsnorm_linear": ("M=4096 K=4096 N=6144", "bfloat16"),
    "swiglu_mlp": ("M=4096 K=4096 F=14336 N=4096", "bfloat16"),
    "lora_bwd": ("K=11008 M=4096 N=1024 R=128", "bfloat16"),
    "attention_3pass": ("P=4096 M=4096 E=128 F=128", "bfloat16"),
    "attention_1pass": ("P=16384 I=32 I1=33 J=512 E=128 F=128", "bfloat16"),
    "gqa_decode": ("B=16 H=8 G=4 E=128 S=8192", "bfloat16"),
    "conv1d_depthwise": ("C=4096 T=2048 R=4 TP=2051", "bfloat16"),
    "conv2d": ("B=16 C=256 K=256 P=56 Q=56 R=3 S=3 HP=58 WP=58", "bfloat16"),
    "conv2d_stride_pad": ("B=16 C=3 K=64 H=224 W=224 P=111 Q=111 R=7 S=7", "bfloat16"),
    "conv_bias_maxpool": (
        "B=4 C=256 K=256 P=222 Q=222 R=3 S=3 HP=224 WP=224 U=111 V=111 I=2 J=2",
        "bfloat16",
    ),
    "stencil5": ("P=8190 Q=8190 HP=8192 WP=8192", "float32"),
    "cumsum": ("I=65536 I1=65537 M=128", "float32"),
    "delta_rule": ("T=4096 T1=4097 D=128 F=128", "float32"),
    "householder_step": ("M=8192 N=8192", "float32"),
    "trisolve": ("I=2048 J=2048 N=512", "float32"),
    "power_iteration": ("M=4096 K=4096 I=32 I1=33", "bfloat16"),
    "embedding_gather": ("V=128256 D=4096 T=2048", "bfloat16"),
    "adamw": ("M=16384 N=8192", "float32"),
    "moe_topk_gate": ("T=2048 E=64 D=2048 F=1024", "bfloat16"),
}


def cascade_of(entry: dict[str, Any]) -> Cascade:
    """A cascade of the list."""
    declared = {**entry.get("inputs", {}), **entry.get("intinputs", {}), **entry["decl"]}
    tensors = {name: Tensor(name, tuple(ranks)) for name, ranks in declared.items()}
    steps = tuple(
        read_einsum(s) if isinstance(s, str) else Iterate(s["iterate"], tuple(map(read_einsum, s["body"])))
        for s in entry["expr"]
    )
    outputs = entry["out"] if isinstance(entry["out"], list) else [entry["out"]]
    return Cascade(tensors, steps, tuple(outputs), {k: float(v) for k, v in entry.get("scalars", {}).items()})


def main() -> None:
    """Compile, predict and print one line per cascade."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--search", type=float, default=0.0)
    parser.add_argument("--target", default="trn2")
    arguments = parser.parse_args()
    entries = {e["name"]: e for e in YAML(typ="safe").load(arguments.corpus.read_text(encoding="utf-8"))}
    print(
        f"{'cascade':20} {'us':>11} {'roof us':>10} {'times':>6} {'own roof':>9} {'bound':>10} "
        f"{'s':>6}  taken"
    )
    for name in arguments.names or SHAPES:
        sizes = {k: int(v) for k, v in (p.split("=") for p in SHAPES[name][0].split())}
        dtypes = SHAPES[name][1]
        began = perf_counter()
        try:
            compiled = nkilab.einsum.compile(
                cascade_of(entries[name]),
                sizes=sizes,
                dtypes=dtypes,
                search=arguments.search,
                target=arguments.target,
            )
            took, own = compiled.estimate.latency_us, compiled.engine_roofline_us
        except (NkilabError, AssertionError) as error:
            print(f"{name:20} {str(error)[:120]}", flush=True)
            continue
        roof = compiled.roofline
        taken = compiled.changes[-1] if arguments.search else ""
        print(
            f"{name:20} {took:11.1f} {roof.least_us:10.1f} {took / roof.least_us:6.2f} {took / own:9.2f} "
            f"{roof.bound:>10} {perf_counter() - began:6.1f}  {taken}",
            flush=True,
        )


if __name__ == "__main__":
    main()
