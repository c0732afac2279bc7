"""Rows and comparisons made by hand."""

from __future__ import annotations

from nkilab.ledger import Compared, Row
from nkilab.ledger.row import Call, Source

SOURCE = Source("here", "a page")


def row(name="a", measured=None, **changes) -> Row:
    values = {
        "id": name, "family": "sums", "kernel": "adding.add_columns", "calls": ((name,),),
        "measured": measured or {"profile_us": 100.0}, "source": SOURCE, "chip": "trn2", "dialect": "nki",
        "trust": "A", "split": "judge", "noise": 0.01,
    }  # fmt: skip
    values |= changes
    values["calls"] = tuple(Call(values["kernel"], tuple(args)) for args in values["calls"])
    return Row(**values)


def compared(measured, predicted, name="a", half=0.1, bound="tensor engine", **changes) -> Compared:
    interval = (predicted * (1 - half), predicted * (1 + half))
    return Compared(row(name, {"profile_us": measured}, **changes), "profile_us", measured, predicted,
                    interval, bound)  # fmt: skip
