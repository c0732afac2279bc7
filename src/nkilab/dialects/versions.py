"""Versions of NKI, and what each accepts: one table of forms that came or went.

Source: release notes of NKI and the stubs of each SDK release.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import SpellingError, UsageError
from ..trace.session import Session, ask
from ..trace.source import place_of, user_frame

# Oldest first. "beta1" is `neuronxcc.nki` of SDK 2.20 to 2.26; the numbers are `nki`.
VERSIONS = ("beta1", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7")


@dataclass(frozen=True)
class Form:
    """A way of writing that not all versions accept.

    Args:
        name: how messages call it.
        since: first version that accepts it; "" if the first did.
        until: last version that accepts it; "" if it stays.
        replacement: what to write instead, imperative.
        source: release note or page.
    """

    name: str
    since: str
    until: str
    replacement: str
    source: str


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
    "simulate_kernel": Form(
        "nki.simulate_kernel", "beta1", "beta1", "call nki.simulate(kernel)(...)", "NKI 0.3 release notes",
    ),
    "simulate": Form(
        "nki.simulate", "0.3", "", "run the script with nkilab run", "NKI 0.3 release notes",
    ),
    "baremetal": Form(
        "nki.baremetal", "beta1", "beta1", "call the kernel with arrays, or nki.simulate(kernel)",
        "NKI 0.1 stubs",
    ),
    "benchmark": Form(
        "nki.benchmark", "beta1", "beta1", "use nkilab estimate or nkilab profile", "NKI 0.1 stubs",
    ),
    "profile": Form(
        "nki.profile", "beta1", "beta1", "use nkilab profile", "NKI 0.1 stubs",
    ),
    "psum_dma": Form(
        "dma_copy from psum", "", "0.2", "copy the tile to sbuf with tensor_copy first",
        "NKI 0.3 release notes",
    ),
}  # fmt: skip


def version_named(name: str) -> str:
    """The version a user means: "0.2", "0.2.0", "beta1", "2.26".

    Raises:
        UsageError: if there is none.
    """
    word = name.lower().removeprefix("nki").strip("-= ")
    if word in ("beta1", "beta 1", "neuronxcc") or word.startswith("2."):
        return "beta1"
    short = ".".join(word.split(".")[:2])
    if short not in VERSIONS:
        raise UsageError(f"NKI version is {name}; it is one of {', '.join(VERSIONS)}")
    return short


def _order(version: str) -> int:
    return VERSIONS.index(version)


def accepts(form: Form, version: str) -> bool:
    """Whether a version accepts a form."""
    after = not form.since or _order(version) >= _order(form.since)
    before = not form.until or _order(version) <= _order(form.until)
    return after and before


def require(key: str, version: str, called: str, where: str = "") -> None:
    """Refuse a form that the chosen version does not accept; without one, notice it once.

    Raises:
        SpellingError: if `version` is given and does not accept the form.
    """
    form = FORMS[key]
    added = f"NKI {form.since} added it" if form.since and form.since != VERSIONS[0] else ""
    removed = f"NKI {VERSIONS[_order(form.until) + 1]} removed it" if form.until else ""
    history = " and ".join(part for part in (added, removed) if part)
    if not version:
        ask().notice(f"{form.name}: {history}; {form.replacement}")
        return
    if not accepts(form, version):
        raise SpellingError(
            f"NKI {version} does not accept {form.name}; {history}", hint=form.replacement, source=form.source
        ).located(where or place_of(user_frame()), called)


def version_of(session: Session | None) -> str:
    """The version a session asks for, or ""."""
    return session.version if session is not None else ""
