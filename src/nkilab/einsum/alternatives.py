"""What other choices would have given, a few of them, for the story of a kernel that nobody searched for."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from ..errors import NkilabError
from .compiled import CompiledEinsum
from .compiler import PRINTERS
from .language.spec import Spec
from .plan.knobs import RULES, Knobs
from .plan.lower import lower
from .tree.nodes import run_by

# choices that are tried, and statements of a kernel that is timed for them
MOST_TRIED, MOST_STATEMENTS = 4, 20_000


def alternatives(compiled: CompiledEinsum) -> list[str]:
    """A line per choice with its predicted latency, the best first."""
    tree = compiled.tree
    if tree is None or run_by(tree.body) > MOST_STATEMENTS:
        return ["none was tried, as the kernel is long; --search SECONDS tries them"]
    tried = [("without the mapping", RULES)] if compiled.spec.is_mapped else _others(compiled)
    found: list[tuple[float, str]] = []
    for told, knobs in tried:
        latency = _latency(compiled, knobs)
        found += [(latency, f"{told}: {latency:.1f} us")] if latency is not None else []
    lines = [line for _, line in sorted(found)]
    return lines or ["there is none by the rules; --search SECONDS tries tile sizes too"]


def _others(compiled: CompiledEinsum) -> list[tuple[str, Knobs]]:
    """The second option of the first choices, and no shared loops."""
    apart = ("no shared loops", replace(RULES, is_fused=False))
    try:
        _, ctx = lower(compiled.cascade, compiled.dtypes, compiled.machine, compiled.name)
    except AssertionError:
        # the rules gave no plan; what came out is another already
        return [apart]
    others = (other for decision in ctx.decisions for other in decision.others())
    return [*islice(others, MOST_TRIED - 1), apart]


def _latency(compiled: CompiledEinsum, knobs: Knobs) -> float | None:
    """Microseconds of another kernel; None if there is none, or the same."""
    try:
        kernel, _ = lower(compiled.cascade, compiled.dtypes, compiled.machine, compiled.name, "", knobs)
        if (
            str(kernel.body) == str(compiled.tree and compiled.tree.body)
            or run_by(kernel.body) > MOST_STATEMENTS
        ):
            return None
        source = PRINTERS[compiled.dialect](kernel).text()
        # without a mapping inputs lie as declared
        spec = Spec(compiled.spec.cascade)
        return replace(compiled, source=source, tree=kernel, parameters=(), spec=spec).estimate.latency_us
    except (NkilabError, AssertionError):
        return None
