"""What predictions of measured kernels are off by, under constants fitted without their structure.

Writes src/nkilab/residuals.json, by which intervals go, and prints its scores. About five minutes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from math import log, log1p

import numpy as np
from msgspec.structs import asdict

from nkilab import activate
from nkilab.conformal import TABLE, Pairs, Residuals
from nkilab.ledger import Predictor, Row, own_rows
from nkilab.timing import MODEL_VERSION
from nkilab.validate import without_structures


def table(rows: Sequence[Row]) -> Residuals:
    """Errors of the kernels that may be fitted to, and how each uses its chip."""
    predictor = Predictor()
    off = {
        row: abs(log1p(error))
        for own in without_structures(rows, predictor).values()
        for row, error in own.items()
    }
    kept = [row for row in rows if row.id in off]
    traits = tuple(
        max(predictor.estimates(row), key=lambda estimate: estimate.latency_us).traits for row in kept
    )
    errors = np.array([round(off[row.id], 4) for row in kept])
    names = ([row.id for row in kept], [row.structure for row in kept], [row.shape for row in kept])
    return Residuals(*map(tuple, names), traits, errors).calibrated()


# How many measured ratios shall have the predicted sign, and lie above the lower and below the upper end;
# the error even of small ratios; sizes of predicted changes in which each must hold.
SHARE_OF_PAIRS, FLOOR, CLASSES = 0.9, 0.1, (0.1, 0.3, 10.0)
Changes = list[tuple[str, float, float]]


def changes(rows: Sequence[Row], predictor: Predictor) -> Changes:
    """Of kernels with the same arguments, measured in the same way on the device: the group, the logarithm of
    the predicted ratio of two, the slower over the faster, and that of the measured one.

    Only of kernels that may be fitted to.
    """
    groups: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for row in rows:
        if row.kind == "kernel" and row.split == "fit" and not row.metric.startswith("host"):
            key = (row.shape.partition(" ")[2], row.metric, row.source.name)
            predicted = predictor.predict(row, row.metric)
            groups.setdefault(key, []).append((log(predicted), log(row.value)))
    result = []
    for key, own in groups.items():
        for one, other in combinations(own, 2):
            predicted, measured = (one[side] - other[side] for side in (0, 1))
            sign = 1 if predicted > 0 else -1
            result.append((str(key), sign * predicted, sign * measured))
    return result


def stays_below(scores: Sequence[tuple[str, float]]) -> float:
    """What nine of ten scores stay below, groups weighing alike."""
    counts = Counter(group for group, _ in scores)
    ordered = sorted(scores, key=lambda own: own[1])
    shares = np.cumsum([1 / counts[group] for group, _ in ordered]) / len(counts)
    return ordered[int(np.searchsorted(shares, SHARE_OF_PAIRS - 1e-9))][1]


def pairs_of(every: Changes) -> Pairs:
    """How measured ratios lie about predicted ones."""
    resolution = 0.005
    while stays_below([(key, -m) for key, p, m in every if resolution <= p < 2 * resolution]) >= 0:
        resolution += 0.005
    above, below = [], []
    begin = resolution
    for end in CLASSES:
        own = [one for one in every if begin <= one[1] < end]
        above.append(stays_below([(key, (m - p) / (FLOOR + p)) for key, p, m in own]))
        # right at the resolution nothing is promised
        below.append(-stays_below([(key, -m / max(p - resolution, 0.1 * resolution)) for key, p, m in own]))
        begin = end
    return Pairs(round(resolution, 3), round(min(below), 3), round(max(above), 3), FLOOR)


def main() -> None:
    """Measure, write and print."""
    with activate():
        rows = own_rows()
        own = table(rows)
        pairs = pairs_of(changes(rows, Predictor()))
    columns = zip(own.ids, own.structures, own.shapes, own.traits, own.errors.tolist(), strict=True)
    rows = [
        {"id": name, "structure": structure, "shape": shape, **traits._asdict(), "error": error}
        for name, structure, shape, traits, error in columns
    ]
    head = f'{{"model_version": {json.dumps(MODEL_VERSION)}, "score": {own.score:.3f}, '
    head += f'"pairs": {json.dumps(asdict(pairs))}, "rows": [\n'
    TABLE.write_text(head + ",\n".join(map(json.dumps, rows)) + "\n]}\n", "utf-8")
    print(f"{len(rows)} rows of {len(set(own.structures))} structures; score {own.score:.3f}")


if __name__ == "__main__":
    main()
