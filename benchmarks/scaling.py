"""A matrix product and an all-reduce over 1 to 64 ranks: predicted times, and what predicting them costs.

    python benchmarks/scaling.py [FILE.svg]

Shapes only beyond 8 ranks; up to 8 the kernels also run on data, and their results are checked.
"""

from __future__ import annotations

import sys
from time import perf_counter
from typing import Any

import numpy as np
from ranks_kernel import ncc, reduced_product, summed

import nkilab

RANKS = (1, 2, 4, 8, 16, 32, 64)
WITH_DATA = 8
K, M, N = 8192, 512, 512


def predicted(kernel: Any, ranks: int, *specs: Any) -> tuple[float, tuple[float, float], int, float]:
    """Microseconds, their interval, classes of equal ranks, and seconds to trace and simulate."""
    began = perf_counter()
    group = ncc.ReplicaGroup([list(range(ranks))])
    estimated = nkilab.estimate(kernel, *specs, group, ranks=ranks)
    return estimated.latency_us, estimated.interval_us, max(1, len(estimated.cores)), perf_counter() - began


def product_on_data(ranks: int) -> float:
    """Seconds that the product takes on data; its result is NumPy's."""
    draw, part = np.random.default_rng(1), K // ranks
    a, b = (draw.standard_normal((K, n)).astype(np.float32) for n in (M, N))
    own = [nkilab.per_rank([x[r * part : (r + 1) * part] for r in range(ranks)]) for x in (a, b)]
    began = perf_counter()
    results = nkilab.launch(reduced_product, ranks)(*own, ncc.ReplicaGroup([list(range(ranks))]))
    took = perf_counter() - began
    for result in results:
        np.testing.assert_allclose(result, a.T @ b, rtol=1e-3, atol=1e-2)
    return took


def main(picture: str) -> None:
    """Print a table, and draw it if a file is named."""
    series: dict[str, list[tuple[int, float, tuple[float, float]]]] = {"product": [], "all-reduce": []}
    print("ranks  product us (interval)        all-reduce us (interval)     classes  simulated s  on data s")
    for ranks in RANKS:
        specs = [nkilab.spec((K // ranks, n), "float32") for n in (M, N)]
        product = predicted(reduced_product, ranks, *specs)
        reduction = predicted(summed, ranks, nkilab.spec((1024, 1024), "float32"))
        series["product"].append((ranks, *product[:2]))
        series["all-reduce"].append((ranks, *reduction[:2]))
        data = f"{product_on_data(ranks):9.2f}" if ranks <= WITH_DATA else ""
        cells = [f"{us:9.1f} ({low:.1f} to {high:.1f})" for us, (low, high), *_ in (product, reduction)]
        print(
            f"{ranks:5}  {cells[0]:28} {cells[1]:28} {product[2]:7} {product[3] + reduction[3]:12.2f}  {data}"
        )
    if picture:
        with open(picture, "w", encoding="utf-8") as file:
            file.write(svg(series))


def svg(series: dict[str, list[tuple[int, float, tuple[float, float]]]]) -> str:
    """The table as a picture on logarithmic axes, intervals as bars."""
    top = max(high for rows in series.values() for _, _, (_, high) in rows)
    low = min(low for rows in series.values() for _, _, (low, _) in rows)

    def x(ranks: int) -> float:
        return 70 + 520 * np.log2(ranks) / np.log2(RANKS[-1])

    def y(us: float) -> float:
        return 330 - 290 * np.log(us / low) / np.log(top / low)

    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" width="640" height="390" '
        'style="font-family: sans-serif; font-size: 12px">',
        '<rect width="640" height="390" fill="white"/>',
        '<text x="70" y="18">predicted microseconds by ranks</text>',
        *(f'<text x="{x(r):.0f}" y="352" text-anchor="middle">{r}</text>' for r in RANKS),
        *(
            f'<text x="62" y="{y(us):.0f}" text-anchor="end">{us:.0f}</text>'
            for us in (low, (low * top) ** 0.5, top)
        ),
    ]
    for (name, rows), colour in zip(series.items(), ("#0072b2", "#d55e00"), strict=True):
        line = " ".join(f"{x(r):.1f},{y(us):.1f}" for r, us, _ in rows)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [
            f'<line x1="{x(r):.1f}" x2="{x(r):.1f}" y1="{y(a):.1f}" y2="{y(b):.1f}" stroke="{colour}"/>'
            for r, _, (a, b) in rows
        ]
        parts.append(f'<text x="{x(64) - 60:.0f}" y="{y(rows[-1][1]) - 8:.0f}" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>\n"])


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
