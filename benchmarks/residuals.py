"""What predictions of measured kernels are off by, under constants fitted without their structure.

Writes src/nkilab/residuals.json, by which intervals go, and prints its scores. About five minutes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import log1p

import numpy as np

from nkilab import activate
from nkilab.conformal import TABLE, Residuals
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


def main() -> None:
    """Measure, write and print."""
    with activate():
        own = table(own_rows())
    columns = zip(own.ids, own.structures, own.shapes, own.traits, own.errors.tolist(), strict=True)
    rows = [
        {"id": name, "structure": structure, "shape": shape, **traits._asdict(), "error": error}
        for name, structure, shape, traits, error in columns
    ]
    head = f'{{"model_version": {json.dumps(MODEL_VERSION)}, "score": {own.score:.3f}, "rows": [\n'
    TABLE.write_text(head + ",\n".join(map(json.dumps, rows)) + "\n]}\n", "utf-8")
    print(f"{len(rows)} rows of {len(set(own.structures))} structures; score {own.score:.3f}")


if __name__ == "__main__":
    main()
