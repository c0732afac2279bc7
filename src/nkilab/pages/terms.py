"""Words that whoever begins with NKI types, and what makes metrics better, as `terms.toml` has them."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import msgspec


class Term(msgspec.Struct, frozen=True):
    """A word."""

    meaning: str  # whole sentences
    remedy: str  # what to do with it, or where it costs too much
    others: tuple[str, ...] = ()  # words that mean the same
    pages: tuple[str, ...] = ()  # names that `nkilab explain` knows and that go on from here


class Glossary(msgspec.Struct, frozen=True):
    """The file."""

    remedies: dict[str, str]  # what makes a metric better, by a part of its name; the first that fits
    words: dict[str, Term]  # by name


@cache
def glossary() -> Glossary:
    """What `terms.toml` says."""
    return msgspec.toml.decode(files(__package__).joinpath("terms.toml").read_bytes(), type=Glossary)
