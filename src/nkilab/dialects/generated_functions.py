"""Python functions made from declarations, one per instruction and spelling.

The text of each function is generated, so that it has the real signature and costs no binding at run time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import update_wrapper
from inspect import signature
from types import FrameType, FunctionType
from typing import Any

from ..errors import NkilabError, SpellingError, did_you_mean
from ..isa.declare import REQUIRED, Attribute, Instruction
from ..tiles.tile import View
from ..trace.builder import located, record, stand_in
from ..trace.session import ask, current, running
from ..trace.source import SITES, is_users, place_of, text_at, user_frame
from ..tracebacks import leave_out_ours
from .history import BETA1, NEWEST, VERSIONS, at, history, keyword_story, spelled
from .schedules import note_name


class _Missing:
    def __repr__(self) -> str:
        return "required"


MISSING = _Missing()

# (session, instruction, operands, attributes, values, ...) -> what the call returns
Finish = Callable[..., Any]


def surface(
    cls: type[Instruction], order: Sequence[str], finish: Finish | None, *, keyword_only_from: str = "",
    extra: Mapping[str, Any] | None = None, version: str = "", defaults: Mapping[str, Any] | None = None,
    words: Mapping[str, Mapping[Any, Any]] | None = None,
    handle: Callable[[int], Any] | tuple[Callable[..., Any], ...] | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """A function that spells one instruction.

    Args:
        cls: the declaration.
        order: names of its parameters in the order of the signature; operands left out are passed as None.
        finish: called as finish(session, cls, operands, attributes, values, extras, where), with a handle
            also known; these two are what `record` takes. None where a call is a row and no more.
        keyword_only_from: the first parameter that may only be given by keyword.
        extra: further keyword-only parameters and their defaults (mask, dtype, name).
        version: that unknown keywords are judged by; that of the session if "".
        defaults: of parameters where the spelling's differ from the declared ones.
        words: per attribute further spellings of its values, with the canonical ones.
        handle: what the call returns, from the number of its last row, whose keyword `name` is noted. Of what
            `finish` returns, which stands then, what keeps it and makes it again, or None.

    Returns:
        The function, with the signature of the spelling.
    """
    extra = dict(extra or {})
    repeats, handle = (handle, None) if isinstance(handle, tuple) else (None, handle)
    scope = {**_SCOPE, "_cls": cls, "_finish": finish, "_handle": handle, "_version": version}
    scope["_parameters"] = [*order, *extra]
    heads = ", ".join(_heads(cls, order, keyword_only_from, extra, defaults or {}, scope))
    text = [*_refusals(cls, order), *_SITE]
    attributes = _attribute_lines(cls, order, scope)
    for attribute, further in (words or {}).items():
        scope[f"_k_{attribute}"].update(further)
    if repeats is not None:
        text += _again(cls, order, extra, scope)
    text += attributes if handle is None else _look_up(cls, order, attributes)
    arguments_text = _arguments_text(cls, order, scope, is_known=handle is not None)
    extras = "".join(f"{n}, " for n in extra)
    if finish is None:
        text.append(f"    row = _record(session, _cls, {arguments_text}None, where, known)")
    else:
        last = "where" if handle is None else "where, known"
        text.append(f"    result = _finish(session, _cls, {arguments_text}({extras}), {last})")
    if repeats is not None:
        scope["_keep_call"], scope["_again"] = repeats
        operands = arguments_text.partition("]")[0]
        text.append(f"    if call is not None: _keep_call(session, call, {operands}], result)")
    text += ["    return result"] if handle is None else _handing_out(is_known=finish is None)
    text = [f"def {cls.name}({heads}, **unknown):", *guarded_body(text)]
    exec(compile("\n".join(text), f"<nkilab {cls.name}>", "exec"), scope)
    function = scope[cls.name]
    function.__doc__, function.instruction = cls.__doc__, cls
    function.__qualname__ = cls.name
    return function


def guarded_body(text: Sequence[str]) -> list[str]:
    """The body of a generated function so that its errors show no frame of nkilab; costs nothing without."""
    return [
        "    try:",
        *(f"    {line}" for line in text),
        "    except Exception as error:",
        "        _leave_out_ours(error)",
        "        raise",
    ]


# Statements that find the launch, and the line of the call if it was worked out before.
_SITE = (
    "    session = _running() or _current()",
    "    frame = _getframe(_depth)",
    "    site = _sites.get((id(frame.f_code), frame.f_lasti))",
    "    where = None if site is None else site[0]",
)


def called_through(function: Callable[..., Any]) -> Callable[..., Any]:
    """A surface for a stand-in to call, one call farther from the user's line; other functions stay."""
    if not isinstance(function, FunctionType) or "_depth" not in function.__globals__:
        return function
    scope = {**function.__globals__, "_depth": function.__globals__["_depth"] + 1}
    farther = FunctionType(function.__code__, scope, function.__name__, function.__defaults__)
    farther.__kwdefaults__ = function.__kwdefaults__
    return update_wrapper(farther, function)


def _handing_out(*, is_known: bool) -> list[str]:
    """Statements that note the name of the last row, if it is given one, and return a handle to the row.

    Args:
        is_known: whether `row` is its number already.
    """
    return [
        *([] if is_known else ["    row = len(session.program) - 1"]),
        "    if name is not None: _note_name(session, name, row)",
        "    return _handle(row)",
    ]


def _look_up(cls: type[Instruction], order: Sequence[str], attributes: Sequence[str]) -> list[str]:
    """Statements that find the attributes and the form of a call, None if it is new.

    What a call with these layouts and words found before is looked up at once. Else each attribute is made
    canonical, and the form is looked up by the key that `record` would make.

    Args:
        cls: the declaration.
        order: names of the parameters.
        attributes: statements that make each attribute canonical.
    """
    canonical = f"    attributes = ({''.join(f'a_{n}, ' for n in cls.attributes)})"
    if cls.list_name:
        return [*attributes, canonical, "    known = None"]
    layouts = _layouts(cls, order)
    words = [n for n in cls.attributes if n in order]
    return [
        "    try:",
        f"        call = ({', '.join(['_cls', *layouts, *words])})",
        "        attributes, known = session.calls[call]",
        # what is wrong with an operand tells `record`, with an attribute its canonical form
        "    except _Refused:",
        *(f"    {line}" for line in [*attributes, canonical]),
        "        try:",
        f"            known = session.forms.get((_cls, {', '.join(layouts)}, *attributes))",
        "        except _Refused:",
        "            known = None",
        "        if known is not None: _keep(session.calls, call, (attributes, known))",
    ]


def _again(
    cls: type[Instruction], order: Sequence[str], extra: Mapping[str, Any], scope: dict[str, Any]
) -> list[str]:
    """Statements that return what a call like one that was kept makes."""
    words = [n for n in cls.attributes if n in order]
    arguments = _arguments_text(cls, order, scope, is_known=True).replace("attributes, ", "")
    return [
        "    call = None",
        "    try:",
        f"        call = ({', '.join(['_cls', *_layouts(cls, order, 'plain'), *words, *extra])},)",
        "        kept = session.calls.get(call)",
        "    except _Refused:",
        "        call = kept = None",
        f"    if kept is not None: return _again(session, kept, {arguments}where)",
    ]


def _keep(cache: dict[Any, Any], key: Any, value: Any) -> None:
    """Remember a value by a key, unless that has no hash, as a list has none."""
    with suppress(TypeError):
        cache[key] = value


def _layouts(cls: type[Instruction], order: Sequence[str], word: str = "layout") -> list[str]:
    """Expressions of what a form sees of each operand; of tensors, an attribute."""
    layouts = []
    for name, operand in cls.operands.items():
        plain = f"{name}.{word}"
        if operand.is_optional or operand.may_be_number:
            plain = f"{plain} if isinstance({name}, _View) else _stand_in({name})"
        layouts.append(plain if name in order else "None")
    return layouts


def _arguments_text(
    cls: type[Instruction], order: Sequence[str], scope: dict[str, Any], *, is_known: bool
) -> str:
    """Operands, attributes and values as `record` takes them; the values' defaults go to `scope`.

    Args:
        cls: the declaration.
        order: names of the parameters.
        scope: of the function.
        is_known: whether `attributes` holds those already.
    """
    operands = ", ".join(n if n in order else "None" for n in cls.operands)
    attributes = "".join(f"a_{n}, " for n in cls.attributes)
    attributes = "attributes" if is_known else f"({attributes})"
    values = "".join(f"{n}, " if n in order else f"_v_{n}, " for n in cls.values)
    scope.update((f"_v_{name}", value.default) for name, value in cls.values.items())
    return f"[{operands}], {attributes}, ({values}), "


def _refusals(cls: type[Instruction], order: Sequence[str]) -> list[str]:
    """Lines that refuse unknown keywords and operands left out."""
    text = ["    if unknown: _unknown(_cls.name, unknown, _parameters, 'isa.' + _cls.name, _version)"]
    required = [n for n in order if _default(cls, n) is REQUIRED]
    if required:
        text.append(f"    if {' or '.join(f'{n} is _MISSING' for n in required)}:")
        text.append(f"        _missing(_cls, {{{', '.join(f'{n!r}: {n}' for n in required)}}})")
    return text


def _heads(
    cls: type[Instruction], order: Sequence[str], keyword_only_from: str, extra: Mapping[str, Any],
    defaults: Mapping[str, Any], scope: dict[str, Any],
) -> list[str]:  # fmt: skip
    """The parameters of a signature; their defaults go to `scope`."""
    heads: list[str] = []
    for name in order:
        if name == keyword_only_from:
            heads.append("*")
        default = defaults.get(name, _default(cls, name))
        scope[f"_d_{name}"] = MISSING if default is REQUIRED else default
        heads.append(f"{name}=_d_{name}")
    if extra and "*" not in heads:
        heads.append("*")
    for name, default in extra.items():
        scope[f"_d_{name}"] = default
        heads.append(f"{name}=_d_{name}")
    return heads


def _attribute_lines(cls: type[Instruction], order: Sequence[str], scope: dict[str, Any]) -> list[str]:
    """Statements that make each attribute canonical: a look-up, or a closer look at a new spelling."""
    lines = []
    for name, attribute in cls.attributes.items():
        if name not in order:
            scope[f"_c_{name}"] = attribute.canonical(name, attribute.default)
            lines.append(f"    a_{name} = _c_{name}")
            continue
        scope[f"_k_{name}"] = {}
        lines += [
            "    try:",
            f"        a_{name} = _k_{name}[{name}]",
            "    except (KeyError, TypeError):",
            f"        a_{name} = _canonical(_cls, {name!r}, {name}, _k_{name})",
        ]
    return lines


def _default(cls: type[Instruction], name: str) -> Any:
    declared: Any = cls.operands.get(name) or cls.attributes.get(name) or cls.values.get(name)
    return declared.default


def _canonical(cls: type[Instruction], name: str, text: Any, known: dict[Any, Any]) -> Any:
    attribute: Attribute = cls.attributes[name]
    try:
        value = attribute.canonical(name, text)
    except NkilabError as error:
        raise located(error, cls.name, cls, [None] * len(cls.operands)) from None
    with suppress(TypeError):  # a list is looked at anew each time
        known[text] = value
    return value


def _missing(cls: type[Instruction], arguments: Mapping[str, Any]) -> None:
    absent = [name for name, value in arguments.items() if value is MISSING]
    frame = user_frame()
    error = SpellingError(
        f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not given",
        hint=_with_dst(cls, arguments, frame),
    )
    raise error.located(place_of(frame), cls.name)


def _with_dst(cls: type[Instruction], attributes_by_name: Mapping[str, Any], frame: FrameType) -> str:
    """A hint for a call that leaves arguments out: maybe it is written as Beta 1 has it, without dst."""
    name, _, arguments = text_at(frame).partition("(")
    lacking = [n for n, value in attributes_by_name.items() if value is MISSING and n in cls.operands]
    if "dst" not in attributes_by_name or "dst=" in arguments or len(lacking) != 1:
        return f"it takes {', '.join(attributes_by_name)}"
    instead = f": {name}(dst, {arguments}" if arguments else ""
    return f"instructions of nki take dst first, the tile that they write{instead}"


def binding_error(error: TypeError) -> NkilabError | None:
    """Our error for a call of an instruction whose arguments Python could not bind to its parameters.

    Args:
        error: that a kernel ended with; None comes of any other call.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or not is_users(trace.tb_frame.f_code):
        return None
    frame = trace.tb_frame
    root, *members = text_at(frame).partition("(")[0].split(".")
    called = frame.f_locals.get(root, frame.f_globals.get(root))
    for member in members:
        called = getattr(called, member, None)
    cls = getattr(called, "instruction", None)
    if called is None or cls is None or not str(error).startswith(f"{cls.name}() "):
        return None
    order = [name for name in signature(called).parameters if name != "unknown"]
    returns = "" if "dst" in order else "; the call returns the result"
    problem = str(error).removeprefix(f"{cls.name}() ")
    ours = SpellingError(problem, hint=f"it takes {', '.join(order)}{returns}", source=cls.source)
    return ours.located(place_of(frame), cls.name)


def refuse_unknown(
    called: str, unknown: Mapping[str, Any], known: Sequence[str], name: str = "", version: str = ""
) -> None:
    """Refuse keywords that a function does not have; those that kernels use without effect are noticed.

    Args:
        called: as messages call the function.
        unknown: the keywords.
        known: those that it has.
        name: of the function in the tables of `history`; "" if it is in none.
        version: the version asked for; that of the session if "".

    Raises:
        SpellingError: with the version that took the keyword away or brings it.
    """
    session = running()
    asked = version or (session.version if session is not None else "")
    for keyword in unknown:
        if name and _has_no_effect(name, keyword, asked):
            ask().notice(f"{spelled(name)} ignores the keyword {keyword}")
            continue
        story = keyword_story(name, keyword, asked or NEWEST) if name else ""
        raise SpellingError(
            f"{f'NKI {asked}' if asked else 'nki'} has no keyword {keyword}; {story}"
            if story
            else f"there is no keyword {keyword}; it takes {', '.join(known) or 'none'}",
            hint=_instead(keyword, asked)
            if story
            else did_you_mean(keyword, known, _instead(keyword, asked)),
        ).located(place_of(user_frame()), called)


# What to do instead of a keyword that `nki` has not on instructions.
_INSTEAD = {
    "dim": "write axis=",
    "keepdim": "write keepdims=",
    "mask": "use slices that hold only the elements to compute on",
    "dtype": "leave it out; the dtype of dst decides",
    "dst_rmw_op": "use nisa.dma_compute(dst, srcs, reduce_op)",
    "unique_indices": "use nisa.dma_compute(dst, srcs, reduce_op)",
    "use_gpsimd_dma": "use dma_engine=nisa.dma_engine.gpsimd_dma",
    "imm": "use src=",
    "num_channels": "leave it out, and give collective_permute_implicit its channel_ids",
}


# The same for one that `neuronxcc.nki` has not: what its functions give is a result.
_INSTEAD_IN_BETA1 = {
    "dim": "write axis=",
    "dst": "assign the result to it: dst[...] = ...",
    "accumulate": "write dst += nisa.nc_matmul(...)",
}


def _instead(keyword: str, version: str) -> str:
    return (_INSTEAD_IN_BETA1 if version == BETA1 else _INSTEAD).get(keyword, "")


def _has_no_effect(name: str, keyword: str, version: str) -> bool:
    """Whether no stub of a version asked for has the keyword, but kernels use it.

    Of Beta 1 that is also what an earlier release of it had, and a label, which published kernels give.
    """
    if version == BETA1:
        events = [e for e in history().get(name, ()) if e.release.version == BETA1 and e.kind == "function"]
        return keyword == "name" or any(e.signature.named(keyword) for e in events)
    for release in (version,) if version else VERSIONS[1:]:
        event = at(name, release)
        parameter = event.signature.named(keyword) if event is not None and event.kind == "function" else None
        if parameter is not None and not parameter.is_listed:
            return True
    return False


# What the text of every function names.
_SCOPE: dict[str, Any] = {
    "_MISSING": MISSING, "_canonical": _canonical, "_current": current, "_depth": 1,
    "_getframe": sys._getframe, "_keep": _keep, "_leave_out_ours": leave_out_ours,
    "_missing": _missing, "_note_name": note_name, "_record": record,
    "_Refused": (AttributeError, KeyError, NkilabError, TypeError), "_running": running, "_sites": SITES,
    "_stand_in": stand_in, "_unknown": refuse_unknown, "_View": View,
}  # fmt: skip
