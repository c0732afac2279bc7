"""Versions of NKI, and what each accepts: one table of forms that came or went.

Source: release notes of NKI and the stubs of each SDK release.
"""

from __future__ import annotations

from msgspec import Struct

from ..errors import SpellingError, UsageError, did_you_mean
from ..trace.session import Session, ask
from ..trace.source import place_of, user_frame
from .history import BETA1, NEWEST, RELEASES, VERSIONS, order


class Form(Struct, frozen=True):
    """A way of writing that not all versions accept."""

    name: str  # how messages call it
    since: str  # first version that accepts it; "" if the first did
    until: str  # last version that accepts it; "" if it stays
    replacement: str  # what to write instead, imperative
    source: str  # release note or page


FORMS: dict[str, Form] = {
    "platform_target": Form(
        "nki.jit(platform_target=...)", "0.1", "0.2",
        "remove the keyword and set NEURON_PLATFORM_TARGET_OVERRIDE or run with --target",
        "NKI 0.3 release notes",
    ),
    "hbm_result": Form(
        "a result allocated with buffer=nl.hbm", "", "0.2",
        "allocate the result with buffer=nl.shared_hbm", "NKI 0.3 release notes",
    ),
    "string_buffer": Form(
        "a string for buffer=", "0.1", "0.2", "use nl.sbuf, nl.psum, nl.private_hbm or nl.shared_hbm",
        "NKI 0.3 release notes",
    ),
    "memory_name": Form(
        "a memory by its bare name (sbuf, psum, hbm)", "0.1", "0.2",
        "write nl.ndarray(shape, dtype, buffer=nl.sbuf)", "NKI quickstart of SDK 2.27 and 2.28",
    ),
    "integer_enum": Form(
        "a number for a member of an enumeration", "", "0.2", "use the member, as nisa.engine.vector",
        "NKI 0.3 release notes",
    ),
    "psum_dma": Form(
        "dma_copy from psum", "", "0.2", "copy the tile to sbuf with tensor_copy first",
        "NKI 0.3 release notes",
    ),
    "hbm_reshape": Form(
        "a reshape of shared_hbm or private_hbm that changes the first axis", "0.2", "",
        "make the tensor in the shape that is wanted", "NKI 0.2 release notes, bug fixes",
    ),
    "printed_row": Form(
        "device_print of a tensor in hbm with one axis", "0.4", "", "print x.reshape((1, N))",
        "NKI 0.4 release notes, bug fixes",
    ),
}  # fmt: skip


# The SDK releases that changed nothing in NKI, and which version they have.
_UNCHANGED = {"2.25": BETA1}


def version_named(name: str) -> str:
    """The version a user means: "0.2", "0.2.0", "beta1", or an SDK release: "2.26" is Beta 1, "2.29" is 0.3.

    Raises:
        UsageError: if there is none.
    """
    word = str(name).lower().removeprefix("nki").strip("-= ")
    if word in (BETA1, "beta 1", "neuronxcc"):
        return BETA1
    short = ".".join(word.split(".")[:2])
    by_sdk = {r.sdk: r.version for r in RELEASES} | _UNCHANGED
    if short not in VERSIONS and short not in by_sdk:
        raise UsageError(
            f"NKI version is {name}; it must be one of {', '.join(VERSIONS)}",
            hint="an SDK release from 2.20 to 2.33 also names one"
            if word.startswith("2.")
            else did_you_mean(word, VERSIONS),
        )
    return by_sdk.get(short, short)


def accepts(form: Form, version: str) -> bool:
    """Whether a version accepts a form."""
    after = not form.since or order(version) >= order(form.since)
    before = not form.until or order(version) <= order(form.until)
    return after and before


def require(key: str, version: str, called: str, where: str = "") -> None:
    """Refuse a form that the chosen version does not accept.

    Without a version, a form that the newest one does not accept is noticed once.

    Raises:
        SpellingError: if `version` is given and does not accept the form.
    """
    form = FORMS[key]
    added = f"NKI {form.since} added it" if form.since and form.since != VERSIONS[0] else ""
    removed = f"NKI {VERSIONS[order(form.until) + 1]} removed it" if form.until else ""
    history = " and ".join(part for part in (added, removed) if part)
    if not version:
        if not accepts(form, NEWEST):
            ask().notice(f"{form.name}: {history}; {form.replacement}")
        return
    if not accepts(form, version):
        raise SpellingError(
            f"NKI {version} does not accept {form.name}; {history}", hint=form.replacement, source=form.source
        ).located(where or place_of(user_frame()), called)


def version_of(session: Session | None) -> str:
    """The version a session asks for, or ""."""
    return session.version if session is not None else ""
