"""What stops a kernel, or makes nkilab warn while it runs, as findings."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from traceback import walk_tb

from msgspec.structs import replace

from ..dialects.indexing import TileLimitError
from ..dialects.kernel import Kernel
from ..errors import DeadlockError, KernelError, NkilabError, NkilabNote
from ..tiles.indirect import UnwrittenError
from ..trace.source import is_named
from ..tracebacks import is_library
from .capacity import PSUM_FULL, SBUF_FULL
from .declare import Example, Rule, rule
from .evidence import definition_of
from .finding import Finding, Severity, Site
from .initialisation import UNWRITTEN_READ

_TOO_WIDE = """
tiles: left bf16[128,128] sbuf < a; right bf16[128,{0}] sbuf < b; result f32[128,{0}] sbuf
tiles: total f32[128,{0}] psum; out f32[128,{0}] hbm < result
nisa.nc_matmul(total, left, right)
nisa.tensor_copy(result, total)
"""
KERNEL_ERROR = rule("kernel-error", "kernel", "error", title="the kernel runs to its end",
    what="the machine or the language does not allow what it asks for; `nkilab run` says the same",
    why="the vendor's compiler refuses it, or the hardware cannot do it",
    fix="do what the hint of the message says", source="the page that the message names",
    kernel=Example(_TOO_WIDE, {"a": "bf16[128,128]", "b": "bf16[128,{}]"}), wrong="1024", right="512",
)  # fmt: skip

_LONELY = """
tiles: tile f32[128,512] sbuf < x; out f32[2,128,512] hbm
nisa.dma_copy(out[nl.program_id(0)], tile)
{}
"""
DEADLOCK = rule("deadlock", "kernel", "error", title="programs that wait for each other meet",
    what="each program of a launch waits in sendrecv or core_barrier for one that does not come",
    why="the device hangs until the runtime gives up",
    fix="let all programs come to the same calls of sendrecv and core_barrier, in the same order",
    source="nki.isa.sendrecv, pipe_id; nki.isa.core_barrier",
    kernel=Example(_LONELY, {"x": "f32[128,512]"}, grid="2"), right="nisa.core_barrier(out, (0, 1))",
    wrong="if nl.program_id(0) == 0:\n    nisa.core_barrier(out, (0, 1))",
    one_spelling="Beta 1 has neither sendrecv nor core_barrier",
)  # fmt: skip

_SINE = """
tiles: angles f32[128,512] sbuf; out f32[128,512] hbm < angles
nisa.memset(angles, {})
nisa.activation(angles, nl.sin, angles)
"""
KERNEL_WARNING = rule(
    "kernel-warning", "kernel", "warning", title="nothing runs that does not mean what it says",
    what="an instruction runs, but cannot mean what its author hopes; the message is that of the warning",
    why="the result depends on what the hardware happened to hold, or is not what the text says",
    fix="do what the message says, or silence it with a reason",
    source="the page of the instruction: `nkilab explain NAME`",
    kernel=Example(_SINE, {"x": "f32[1,1]"}), wrong="4.0", right="1.0",
)  # fmt: skip

# warnings that shadow bits tell better
_TOLD_OTHERWISE = ("unwritten elements read as", "which was never written", "which was written in part only")


def from_error(error: NkilabError, kernel: Kernel) -> Finding:
    """The finding of an error that a kernel raised."""
    site = _site(error, kernel)
    if isinstance(error, DeadlockError):
        return DEADLOCK.finding(f"{error.called}: {error.problem}", site, notes=error.facts)
    sentence = ": ".join(part for part in (error.called, error.problem) if part)
    notes = [*error.facts, *([f"source: {error.source}"] if error.source else [])]
    if error.key:
        notes.append(f"key: {error.key}")
    code = error.key if error.key.startswith("NCC_") else ""
    return replace(_broken_by(error).finding(sentence, site, notes=notes), fix=error.hint, code=code)


def _broken_by(error: NkilabError) -> Rule:
    """The rule that an error of the run says to be broken."""
    if isinstance(error, UnwrittenError):
        return UNWRITTEN_READ
    if isinstance(error, TileLimitError):
        return PSUM_FULL if "; psum of " in error.problem else SBUF_FULL
    return KERNEL_ERROR


def _site(error: NkilabError, kernel: Kernel) -> Site:
    """The user's line of an error: the frame of his that its message names."""
    name, _, number = error.where.rpartition(":")
    for frame, line in walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        if is_named(frame.f_code) and str(line) == number and Path(file).name == name:
            return Site(file, line)
    home = definition_of(kernel)
    if name and number.isdigit() and name == Path(home.file).name:
        return Site(home.file, int(number))
    return Site(name, int(number)) if name and number.isdigit() else home


def of_python(error: Exception) -> NkilabError | None:
    """What Python raised in a line of the user's, as an error of his kernel; None for a fault of nkilab."""
    frames = [*walk_tb(error.__traceback__)]
    named = [(f, n) for f, n in frames if is_named(f.f_code) and not is_library(f.f_code.co_filename)]
    # where Python's own code raised, the line that called it is told
    frame, line = named[-1] if named and is_named(frames[-1][0].f_code) else frames[-1]
    where = f"{Path(frame.f_code.co_filename).name}:{line}"
    problem = KernelError(f"{type(error).__name__}: {error}").located(where, "")
    return problem.with_traceback(error.__traceback__) if is_named(frame.f_code) else None


def from_warnings(heard: Iterable[warnings.WarningMessage]) -> Iterator[Finding]:
    """The findings of warnings that shadow bits do not tell of."""
    for one in heard:
        message = str(one.message)
        if not any(words in message for words in _TOLD_OTHERWISE):
            severity: Severity | None = "note" if issubclass(one.category, NkilabNote) else None
            yield KERNEL_WARNING.finding(message, Site(one.filename, one.lineno), severity=severity)
