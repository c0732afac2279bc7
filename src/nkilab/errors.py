"""The errors a user of nkilab meets, and the one place that formats their messages.

A message has five parts: where, what was called, what is wrong, the operands, a hint and a source.
An error is raised where the decision falls, without a place; the recorder that knows the user's line
and the operands completes it with `located`.
"""

from __future__ import annotations

import copyreg
import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher, get_close_matches
from typing import Any

# What a program ends with: fine, what was examined is at fault, it was used wrongly, a bug of ours
EXIT_FINE, EXIT_FAULT, EXIT_USAGE, EXIT_BUG = 0, 1, 2, 3
# as shells count them: 128 and the number of the signal
EXIT_INTERRUPTED, EXIT_PIPE_CLOSED = 130, 141

# Characters that move a terminal's cursor, colour or direction of writing, or that no encoding has; a newline
# and a tab are text.
_UNPRINTABLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
# Characters of a value, and of one part of a message, that are shown at most.
_SHOWN, _LONGEST_PART = 60, 2000


def printable(text: str) -> str:
    """Text from outside as a terminal may get it: control characters are written as escapes."""
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def bounded(text: str, most: int = _LONGEST_PART) -> str:
    """Text of so many characters at most, its middle left out where it has more."""
    half = most // 2
    return text if len(text) <= most else f"{text[:half]} ... {text[-half:]}"


def shown(value: object) -> str:
    """A value in a message: as Python writes it where that is short, else what it is."""
    try:
        text = repr(value)
    except ValueError:
        # Python does not write integers of more than some thousand digits
        text = ""
    if 0 < len(text) <= _SHOWN and "\n" not in text:
        return text
    if isinstance(value, int):
        return f"a whole number of {int(value.bit_length() * 0.30103) + 1} digits"
    return f"of type {type(value).__name__}"


class StartAgain(BaseException):
    """Leaves a kernel that has to run again, in another way; the user's except lets it pass."""


class LimitPassed(BaseException):
    """A limit of time or memory is passed; the user's `except Exception` lets it pass."""


class NkilabError(Exception):
    """Base of every error nkilab raises on purpose.

    Args:
        problem: what is wrong, values before judgement: "N is 1024; trn2 allows 512".
        hint: one thing to do, imperative; empty if there is none.
        source: page and heading of the fact behind the refusal; empty if there is none.
        key: the documented key of the error (err_...), or the code that builds end with (NCC_...); or "".
    """

    def __init__(self, problem: str, *, hint: str = "", source: str = "", key: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint
        self.source = source
        self.key = key
        self.where = ""
        self.called = ""
        self.facts: tuple[str, ...] = ()

    def located(self, where: str, called: str, facts: Sequence[str] = ()) -> NkilabError:
        """Complete the message: the user's line, the name called, one line per operand; returns self."""
        if not self.where:
            self.where = where
        if not self.called:
            self.called, self.facts = called, tuple(facts)
        return self

    def __str__(self) -> str:
        head = ": ".join(part for part in (self.where, self.called, self.problem) if part)
        lines = [head, *(f"  {fact}" for fact in self.facts)]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        if self.source:
            lines.append(f"  source: {self.source}")
        if self.key:
            lines.append(f"  key: {self.key}")
        return printable("\n".join(map(bounded, lines)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled with all parts of the message, whatever its class is made with."""
        return _restored, (type(self), self.args, self.__dict__)

    def __repr__(self) -> str:
        """The whole message, for whoever shows an error so, as torch.compile does."""
        return f"{type(self).__name__}({self})"


def _restored(kind: type[NkilabError], args: tuple[Any, ...], parts: dict[str, Any]) -> NkilabError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(parts)
    return error


class JoinedType(type):
    """The type of error classes that `joined` makes; they are pickled as what they are made of."""


_JOINED: dict[tuple[type, ...], JoinedType] = {}


def joined(*bases: type) -> type:
    """The class of an error that is also of other types, by the name of the first."""
    if bases not in _JOINED:
        _JOINED[bases] = JoinedType(bases[0].__name__, bases, {"__module__": bases[0].__module__})
    return _JOINED[bases]


copyreg.pickle(JoinedType, lambda kind: (joined, kind.__bases__))  # type: ignore[arg-type, return-value]


class KernelError(NkilabError):
    """A kernel asks for something the machine or the language does not allow."""


class LimitError(KernelError):
    """A size is over what the machine holds."""


class RuleError(KernelError):
    """Operands or attributes that may not go together."""


class UseError(KernelError):
    """A tensor is used in a way its state does not allow: unwritten, out of bounds, immutable."""


class SpellingError(KernelError):
    """The chosen NKI version has no such name, keyword or form."""


class UnsupportedError(KernelError):
    """True on hardware, but nkilab does not model it yet."""


class DeadlockError(KernelError):
    """Nobody can run."""


class SpecError(NkilabError):
    """An Einsum specification has no meaning or a contradictory one."""


class FileError(NkilabError):
    """A file is missing, damaged, foreign, or may not be overwritten."""


class UsageError(NkilabError):
    """A command or an interface call is used wrongly; exit code 2."""


class NkilabWarning(UserWarning):
    """Something that runs but does not mean what its author hopes; one per source line."""


class NkilabNote(NkilabWarning):
    """Something that means what its author hopes where it is read so, and that may be read otherwise."""


def message_of(error: NkilabError, name: str = "nkilab") -> str:
    """An error as a program of this name prints it: it begins with a place, or else with the name.

    Its notes follow: which of several programs raised it, and where the others stand.
    """
    text = str(error) if error.where else f"{name}: {error}"
    return printable("\n".join([text, *getattr(error, "__notes__", ())]))


def reason_of(error: OSError) -> str:
    """Why the system could not do something with a file, as the end of a sentence."""
    return (error.strerror or str(error)).lower()


def nearest(word: str, known: Iterable[str], most: int = 1, alike: float = 0.6) -> list[str]:
    """The known words that look most like one that is not, whatever their capitals; the nearest first.

    Args:
        word: what was given.
        known: what could have been.
        most: how many are wanted.
        alike: share of letters that they have in common at least.
    """
    names = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), names, 2 * most + 3, alike)
    # of those that are equally near, the first that is known
    ratio = {name: SequenceMatcher(None, name, word.lower()).ratio() for name in close}
    order = list(names)
    return [names[near] for near in sorted(close, key=lambda n: (-ratio[n], order.index(n)))][:most]


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "", most: int = 1) -> str:
    """The hint of an error about a word that is not known: the nearest that are.

    Args:
        word: what was given.
        known: what could have been.
        otherwise: the hint where nothing looks like it.
        most: how many of them to name.
    """
    near = nearest(word, known, most)
    return f"did you mean {' or '.join(near)}?" if near else otherwise
