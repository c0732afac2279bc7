"""Predicted latency of compiled cascades against their rooflines, and what a search gains.

    python -m benchmarks.einsums [CORPUS.yaml] [NAME ...] [--types bfloat16 float32] [--search SECONDS]

Cascades of the tests at the sizes that models have, and those of a corpus, whose shapes stand here. Each is
compiled in a process of its own, which a time limit ends. `--kept-back` shows the third of the papers that no
rule was written for, `--all` these and the others. `--hand` compares with kernels written by
hand (`hands.py`).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

from ruamel.yaml import YAML
from tests.einsum.papers import PAPERS, is_kept_back
from tests.einsum.realistic import REALISTIC

import nkilab.einsum
from nkilab.einsum.language.ast import Cascade, Iterate, Tensor
from nkilab.einsum.language.expressions import read_einsum
from nkilab.errors import NkilabError

from .hands import table

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


@dataclass(frozen=True)
class Subject:
    """A cascade at one size in one type.

    Args:
        name, cascade, sizes: of it.
        dtype: of its inputs and outputs.
        is_kept_back: whether rules are judged, not written, by it.
    """

    name: str
    cascade: Cascade
    sizes: dict[str, int]
    dtype: str
    is_kept_back: bool = False


@dataclass(frozen=True)
class Row:
    """What came of one: microseconds, or why it was refused."""

    latency_us: float = 0.0
    least_us: float = 0.0
    own_us: float = 0.0
    bound: str = ""
    seconds: float = 0.0
    reason: str = ""

    @property
    def ratio(self) -> float:
        return self.latency_us / self.least_us if self.least_us else 0.0

    def text(self, subject: Subject) -> str:
        mark = "*" if subject.is_kept_back else ""
        head = f"{subject.name + mark:34} {subject.dtype:8} "
        if not self.latency_us:
            return head + self.reason
        return head + (
            f"{self.latency_us:10.1f} {self.least_us:10.1f} {self.ratio:7.2f} "
            f"{self.latency_us / self.own_us:7.2f} {self.bound:>10} {self.seconds:6.1f}  {self.reason}"
        )


def subjects(corpus: Path | None, types: list[str]) -> Iterator[Subject]:
    """Every cascade in every type; those of the corpus in their own, too."""
    entries = YAML(typ="safe").load(corpus.read_text(encoding="utf-8")) if corpus else []
    for entry in entries:
        text, own = SHAPES[entry["name"]]
        sizes = {k: int(v) for k, v in (p.split("=") for p in text.split())}
        for dtype in types or [own]:
            yield Subject(entry["name"], cascade_of(entry), sizes, dtype)
    for case in (*REALISTIC, *PAPERS):
        for dtype in types or ["bfloat16"]:
            yield Subject(
                case.name, case.cascade, case.extents(), dtype, is_kept_back(case.name) and case in PAPERS
            )


def measured(subject: Subject, search: float, target: str) -> Row:
    """Compile a cascade and predict its latency."""
    began = process_time()
    gathered = {g.access.tensor for e in subject.cascade.einsums for a in e.accesses for g in a.gathers}
    tensors = {*subject.cascade.inputs, *subject.cascade.outputs}
    dtypes = dict.fromkeys(tensors, subject.dtype) | dict.fromkeys(gathered, "int32")
    try:
        compiled = nkilab.einsum.compile(
            subject.cascade, sizes=subject.sizes, dtypes=dtypes, search=search, target=target
        )
        seconds, roof = process_time() - began, compiled.roofline
        latency, own = compiled.estimate.latency_us, compiled.engine_roofline_us
    except (NkilabError, AssertionError) as error:
        return Row(reason=str(error).splitlines()[0][:120])
    return Row(latency, roof.least_us, own, roof.bound, seconds, compiled.changes[-1] if search else "")


def in_process(subject: Subject, search: float, target: str, limit: float) -> Row:
    """The same in a process of its own."""
    context = get_context("fork")
    here, there = context.Pipe(duplex=False)
    worker = context.Process(target=lambda: there.send(measured(subject, search, target)))
    worker.start()
    there.close()
    try:
        row: Row = here.recv() if here.poll(limit) else Row(reason=f"not done in {limit:.0f} s")
    except EOFError:
        row = Row(reason="its process died")
    worker.kill()
    worker.join()
    return row


def summary(title: str, rows: list[Row]) -> str:
    """What a set of rows comes to."""
    ratios = [r.ratio for r in rows if r.latency_us]
    if not ratios:
        return f"{title}: none"
    return (
        f"{title}: {len(ratios)} of {len(rows)} compile; median {median(ratios):.2f}, "
        f"worst {max(ratios):.1f}, above 4: {sum(r > 4 for r in ratios)}, "
        f"above 1.5: {sum(r > 1.5 for r in ratios)}"
    )


def main() -> None:
    """Compile, predict and print one line per cascade, the worst last."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--types", nargs="*", default=[])
    parser.add_argument("--search", type=float, default=0.0)
    parser.add_argument("--target", default="trn2")
    parser.add_argument("--limit", type=float, default=120.0)
    parser.add_argument("--kept-back", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--hand", action="store_true")
    arguments = parser.parse_args()
    if arguments.hand:
        table(arguments.names)
        return
    corpus = next((Path(n) for n in arguments.names if n.endswith(".yaml")), None)
    names = [n for n in arguments.names if not n.endswith(".yaml")]
    chosen = [s for s in subjects(corpus, arguments.types) if not names or s.name in names]
    if not arguments.all and not names:
        chosen = [s for s in chosen if s.is_kept_back == arguments.kept_back]
    rows: list[tuple[Subject, Row]] = []
    for subject in chosen:
        rows.append((subject, in_process(subject, arguments.search, arguments.target, arguments.limit)))
        print(rows[-1][1].text(subject), flush=True)
    heads = [f"{h:>{w}}" for h, w in (("us", 10), ("roof us", 10), ("times", 7), ("own", 7), ("bound", 10))]
    print(f"\n{'cascade':34} {'type':8} {' '.join(heads)} {'s':>6}")
    for subject, row in sorted(rows, key=lambda pair: pair[1].ratio):
        print(row.text(subject))
    print(summary("all", [r for _, r in rows]))
    print(summary("kept back", [r for s, r in rows if s.is_kept_back]))


if __name__ == "__main__":
    main()
