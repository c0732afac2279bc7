"""What a version has of the names that are served and in which forms, and what is said of the others."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial, update_wrapper, wraps
from inspect import signature
from types import FrameType, ModuleType
from typing import Any, NoReturn

from ..errors import NkilabError, SpellingError, UnsupportedError, nearest
from ..trace.session import running
from ..trace.source import is_users, place_of, user_frame
from ..tracebacks import leave_out_ours, public
from .enums import dma_engine, engine, oob_mode, reduce_cmd
from .foreign import refuse_member
from .history import BETA1, NEWEST, VERSIONS, at, history, order, replacement, spelled, story, versions_with
from .missing import alternatives_to, refuse_name
from .parameters import limited_to_version
from .versions import FORMS, accepts, require

# Not dge_mode: the vendor's own kernels for 0.3 give its numbers.
_ENUMS = tuple(e.__name__ for e in (dma_engine, engine, oob_mode, reduce_cmd))


def strict(name: str, function: Any, version: str) -> Any:
    """A function that refuses forms which the version asked for does not accept; itself where it has none.

    Args:
        name: in the tables of `history`.
        function: what is served under it.
        version: the version asked for; without one a string for a buffer is noticed once, and a number for a
            member is taken for it: looking at every call of every instruction would cost too much.
    """
    if name.startswith("isa.") and version and not accepts(FORMS["integer_enum"], version):
        return _looking_at(function, _ENUMS, int, "integer_enum", version)
    if name.startswith("language.") and not (version and accepts(FORMS["string_buffer"], version)):
        return _looking_at(function, ("buffer",), str, "string_buffer", version)
    return function


def _looking_at(function: Any, keywords: tuple[str, ...], plain: type, form: str, version: str) -> Any:
    """`function`, which looks at some of its parameters first: whether their type is just `plain`."""
    if not callable(function) or isinstance(function, type):
        return function
    try:
        names = list(signature(function).parameters)
    except (TypeError, ValueError):
        return function
    looked_at = [(names.index(k), k) for k in keywords if k in names]
    return _wrapped(function, looked_at, plain, form, version) if looked_at else function


def _wrapped(
    function: Callable[..., Any], looked_at: list[tuple[int, str]], plain: type, form: str, version: str
) -> Callable[..., Any]:
    # the way through an object that may be called, or another call, costs as much as the look
    function = getattr(function, "call", function)
    bare, as_meant = getattr(function, "apart", (function, None))

    @wraps(bare)
    def call(*args: Any, **kwargs: Any) -> Any:
        is_looked_at = False
        try:
            for place, keyword in looked_at:
                argument = args[place] if place < len(args) else kwargs.get(keyword)
                if type(argument) is plain:
                    require(form, version, function.__name__)
            is_looked_at = True
            return bare(*args, **kwargs)
        except Exception as error:
            try:
                if as_meant is None or not is_looked_at:
                    raise
                return as_meant(error, args, kwargs)
            except Exception as refusal:
                leave_out_ours(refusal)
                raise

    return call


BETA1_ROOT = "neuronxcc.nki"
# The last version whose kernels may use `neuronxcc.nki`.
LAST_WITH_BETA1 = "0.3"


class MissingNameError(SpellingError, AttributeError):
    """The version asked for has no such name, or nobody has."""


class UnservedNameError(UnsupportedError, AttributeError):
    """The vendor has the name; nkilab does not serve it yet."""


class MissingImportError(SpellingError, ImportError):
    """`from module import name` of such a name."""


class UnservedImportError(UnsupportedError, ImportError):
    """`from module import name` of a name that nkilab does not serve yet."""


class MissingLibraryError(UnservedImportError, ModuleNotFoundError):
    """`import` of one of `LIBRARIES`, which is not on the path."""


# The vendor's libraries of kernels, which public files import.
LIBRARIES = tuple(f"{BETA1_ROOT}.{name}" for name in ("kernels", "_private_kernels", "_pre_prod_kernels"))


def missing_library(name: str, kind: type[NkilabError] = MissingLibraryError) -> NkilabError:
    """The error that says what a library of kernels is, and where public copies are."""
    return kind(
        f"{name} belongs to the vendor's library of kernels, which neuronx-cc brings; nkilab has no copy",
        hint="take the kernel from aws-neuron/nki-samples or aws-neuron/nki-library on GitHub, or put a "
        "module of this name on the path",
    )


def name_in(module: str, name: str) -> str:
    """The name in the tables of `history` of an attribute of a served module."""
    below = module.partition("nki_cpu_simulator.")[2] or module
    # NKI 0.1 calls this module nki.tensor; tensor is what tensors have
    below = "nki.meta.tensor" if below == "nki.tensor" else below
    below = "" if below in ("nki", BETA1_ROOT) else below.removeprefix(f"{BETA1_ROOT}.").removeprefix("nki.")
    return f"{below}.{name}" if below else name


def lack(name: str, version: str, root: str = "nki") -> NkilabError | None:
    """The error that says why a name is not served, or None if no version has it.

    Args:
        name: in the tables of `history`.
        version: the version asked for, or "" for all of this spelling.
        root: how the spelling is called where no version is asked for.
    """
    if name not in history():
        return None
    having = versions_with(name)
    if (version and version not in having) or (not version and not set(having) - {BETA1}):
        who = f"NKI {version}" if version else root
        last = version or NEWEST
        hint = replacement(name, last)
        return MissingNameError(
            f"{who} has no {spelled(name)}; {story(name, last)}", hint=hint, source=_sources(name, last)
        )
    first = version or next(v for v in having if v != BETA1)
    return UnservedNameError(f"nkilab does not serve {spelled(name)} yet; NKI {first} has it")


def _sources(name: str, version: str) -> str:
    """The stubs around a version that show that it lacks a name."""
    having = versions_with(name)
    nearest = [v for v in having if order(v) < order(version)][-1:] or having[:1]
    shown = [v for v in (version, *nearest) if v in VERSIONS]
    return "stubs of NKI " + " and ".join(sorted(shown, key=order))


class AtFirstUse:
    """A member of a table of names that is made when it is first asked for."""

    def __init__(self, make: Callable[[Any], Any], argument: Any) -> None:
        self.member = cache(partial(make, argument))


class ServedModule(ModuleType):
    """A module made from a table; unknown names are refused with what the history knows of them.

    Args:
        name: full name.
        version: the NKI version asked for, or "".
        names: those that it has in any version, each held to that one when it is first asked for.
    """

    # how often somebody gave a member of any of these modules another value
    changes = 0

    def __init__(self, name: str, version: str, names: Mapping[str, Any]) -> None:
        super().__init__(name, f"{name}, served by nkilab")
        self._version = version
        self._names = names

    def __dir__(self) -> list[str]:
        names = (n for n in self._names if _is_there(self.__name__, n, self._version))
        return sorted({*vars(self), *names})

    def __setattr__(self, name: str, value: Any) -> None:
        ServedModule.changes += 1
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        ServedModule.changes += 1
        super().__delattr__(name)

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            return [n for n in dir(self) if not n.startswith("_")]
        if name == "__version__" and self.__name__ == "nki":
            return f"{self._version or NEWEST}+nkilab"
        if name in vars(self).get("_names", ()) and _is_there(self.__name__, name, self._version):
            member = _as_served(self.__name__, name, self._names[name], self._version)
            vars(self)[name] = member
            return member
        frame = sys._getframe(1)
        full = f"{self.__name__}.{name}"
        if name.startswith("_") and full not in LIBRARIES and name not in vars(self).get("_names", ()):
            # Python and pytest ask every module for such names
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if full in LIBRARIES and frame.f_code.co_name == "_handle_fromlist":
            # a finder looks for it on the path
            raise AttributeError(name)
        error = missing_library(full, UnservedNameError) if full in LIBRARIES else self._lacking(name)
        if frame.f_code.co_name == "_handle_fromlist":
            # an AttributeError would become an ImportError without a word of why
            error = _AS_IMPORT[type(error)](error.problem, hint=error.hint, source=error.source)
        try:
            raise error.located(place_of(outside_import(frame)), self.__name__)
        except NkilabError:
            leave_out_ours(error)
            raise

    def _lacking(self, name: str) -> NkilabError:
        version = vars(self).get("_version", "")
        if version == BETA1 and self.__name__.split(".")[0] == "nki":
            return MissingNameError(
                "NKI beta1 has no package nki; NKI 0.1 adds it", hint=f"import {BETA1_ROOT}"
            )
        held_to = BETA1 if self.__name__.startswith("neuronxcc") else version
        error = lack(name_in(self.__name__, name), held_to)
        if error is not None:
            return error
        elsewhere = [n for n in _relatives(self.__name__) if name in dir(sys.modules[n])]
        listed, hint = ("", f"{elsewhere[0]} has it") if elsewhere else alternatives_to(name, dir(self))
        return MissingNameError(f"nkilab serves no name {name} here{listed}", hint=hint)


def _relatives(module: str) -> list[str]:
    """The names of the other modules served under the root of one that were imported."""
    root = BETA1_ROOT if module.startswith(BETA1_ROOT) else module.partition(".")[0]
    served = {n: m for n, m in sys.modules.items() if isinstance(m, ServedModule) and n != module}
    return sorted(n for n in served if n.startswith(f"{root}.") and n.count(".") == root.count(".") + 1)


_AS_IMPORT: dict[type, type[NkilabError]] = {
    MissingNameError: MissingImportError,
    UnservedNameError: UnservedImportError,
}


class MissingModuleError(SpellingError, ModuleNotFoundError):
    """`import` of a module that nobody has under a name that is served."""


def refuse_module(name: str, served: Iterable[str]) -> None:
    """Refuse the import of a module, with the nearest that is served; who only asks for its spec gets none.

    Args:
        name: of a module below one that is served.
        served: the modules under its root.

    Raises:
        MissingModuleError: if a statement imports it.
    """
    frame = importing_frame()
    if frame is None:
        return
    near = nearest(name, served)
    error = MissingModuleError(
        f"nkilab serves no module {name}", hint=f"import {near[0]}" if near else "nkilab ops lists every name"
    )
    error.name = name
    raise error.located(place_of(frame), "import")


def importing_frame() -> FrameType | None:
    """The user's frame whose import asks for a module; None where only a spec is asked for."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") != "importlib.util":
        if frame.f_code.co_name == "_find_and_load_unlocked":
            return outside_import(frame)
        frame = frame.f_back
    return None


def outside_import(frame: FrameType | None) -> FrameType:
    """The user's frame; the machinery of import statements is not his."""
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "importlib":
        frame = frame.f_back
    if frame is None or not is_users(frame.f_code):
        return user_frame()
    return frame


def held_tables(served: Mapping[str, Mapping[str, Any]], version: str) -> dict[str, dict[str, Any]]:
    """Tables of names with those that the version asked for has, and with its parameters.

    Args:
        served: per module its names, as nkilab has them.
        version: the NKI version asked for, or "" for whatever some version of the spelling accepts.
    """
    return {
        module: {
            n: _as_served(module, n, v, version) for n, v in names.items() if _is_there(module, n, version)
        }
        for module, names in served.items()
    }


def _listed(module: str, name: str) -> str:
    """A name of a module as the tables of `history` have it."""
    full = name_in(module, name)
    return full.replace(".constants", "") if full.startswith("isa.constants.") else full


def _is_there(module: str, name: str, version: str) -> bool:
    """Whether the version asked for has a name."""
    full = _listed(module, name)
    if module.startswith("neuronxcc"):
        return True
    if version == BETA1 and module.partition(".")[0] == "nki":
        return False
    return full not in history() or bool(at(full, version) if version else set(versions_with(full)) - {BETA1})


def _as_served(module: str, name: str, value: Any, version: str) -> Any:
    """What the version asked for has under a name."""
    full, value = _listed(module, name), value.member() if isinstance(value, AtFirstUse) else value
    if full not in history():
        return value
    if module.startswith("neuronxcc"):
        return _of_beta1(module, name, value, version)
    if full == "language.tile_size" and version:
        return _Members(full, value, version)
    return strict(full, limited_to_version(full, value, version), version)


def _of_beta1(module: str, name: str, value: Any, version: str) -> Any:
    """A name of `neuronxcc.nki`; from 0.4 on its functions are errors in kernels."""
    is_late = version and order(version) > order(LAST_WITH_BETA1)
    if (
        not is_late
        or not callable(value)
        or isinstance(value, type)
        or not module.endswith(("language", "isa"))
    ):
        return value

    def refused(*args: Any, **kwargs: Any) -> NoReturn:
        raise SpellingError(
            f"NKI {version} does not accept {module} in kernels; NKI 0.4 removed it",
            hint=f"import nki instead; nkilab migrate FILE.py --to {version} lists what changes",
            source="NKI 0.4 release notes",
        ).located(place_of(user_frame()), name)

    refused.__name__ = refused.__qualname__ = name
    return refused


class _Members:
    """An object whose attributes are those that one version has."""

    def __init__(self, name: str, target: Any, version: str) -> None:
        self._name, self._target, self._asked = name, target, version

    def __getattr__(self, member: str) -> Any:
        full = f"{self._name}.{member}"
        if full in history() and at(full, self._asked) is None:
            error = lack(full, self._asked)
            assert error is not None
            raise error.located(place_of(user_frame()), spelled(self._name))
        return getattr(self._target, member)

    def __dir__(self) -> list[str]:
        return [n for n in dir(self._target) if at(f"{self._name}.{n}", self._asked) is not None]


def hold_members(cls: type, words: Mapping[str, Any], version: str = "") -> None:
    """Let a user reach only those members of tensors that the version asked for has.

    Args:
        cls: the class of tensors; its own methods still reach everything.
        words: names of `nki.language`, which hints name.
        version: held to where the session asks for none; "" for none.
    """
    for full in history():
        root, _, member = full.partition(".")
        original = getattr(cls, member, None) if root == "tensor" and member else None
        if original is None or version or set(VERSIONS[1:]) <= set(versions_with(full)):
            continue
        if isinstance(original, property):
            setattr(cls, member, property(_gated(full, original.fget), doc=original.__doc__))
        elif callable(original):
            setattr(cls, member, _gated(full, original))

    def missing(self: Any, name: str) -> Any:
        full = f"tensor.{name}"
        session = running()
        asked = session.version if session is not None else ""
        error = lack(full, version or asked, "a tensor of nki") if not name.startswith("_") else None
        if error is None:
            having = version or asked or NEWEST
            refuse_member(self, name, words)
            refuse_name("a tensor", name, [n for n in dir(cls) if at(f"tensor.{n}", having) is not None])
        raise error.located(place_of(user_frame()), spelled(full))

    cls.__getattr__ = public(missing)  # type: ignore[attr-defined]


def _gated(full: str, original: Callable[..., Any] | None) -> Callable[..., Any]:
    assert original is not None

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        session = running()
        asked = session.version if session is not None else ""
        if asked and at(full, asked) is None and is_users(sys._getframe(1).f_code):
            error = lack(full, asked)
            assert error is not None
            raise error.located(place_of(user_frame()), spelled(full))
        return original(self, *args, **kwargs)

    update_wrapper(method, original)
    method.__name__ = method.__qualname__ = full.partition(".")[2]
    return method
