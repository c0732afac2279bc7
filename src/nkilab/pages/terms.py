"""Words that whoever begins with NKI types, and what makes metrics better, as `terms.toml` has them."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import msgspec


class Term(msgspec.Struct, frozen=True):
    """A word.

    Args:
        meaning: whole sentences.
        remedy: what to do with it, or where it costs too much.
        others: words that mean the same.
        pages: names that `nkilab explain` knows and that go on from here.
    """

    meaning: str
    remedy: str
    others: tuple[str, ...] = ()
    pages: tuple[str, ...] = ()


class Glossary(msgspec.Struct, frozen=True):
    """The file.

    Args:
        remedies: what makes a metric better, by a part of its name; the first that fits.
        words: by name.
    """

    remedies: dict[str, str]
    words: dict[str, Term]


@cache
def glossary() -> Glossary:
    """What `terms.toml` says."""
    return msgspec.toml.decode(files(__package__).joinpath("terms.toml").read_bytes(), type=Glossary)
