"""What becomes of a tree that has all nests: less to do, wider transfers, other engines and orders."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from itertools import product
from math import e, inf

from ...tiles.dtypes import as_dtype
from ..hardware import Hardware
from ..room import views_of
from ..tree import nodes
from ..tree.nodes import Kernel, Loop, run_by, statements
from .balance import balanced
from .coalesced import Coalescing
from .context import Context
from .maxima import with_maxima_of_choices
from .peeled import peel
from .pipeline import (
    NUMBERS,
    SOONER,
    Pipeline,
    Unit,
    are_in_order,
    listed,
    needed_for,
    pipelined,
    units_of,
)
from .shortened import without_ruled_out
from .strips import in_strips

# statements of a kernel from which on few others like it are timed
LONG = 6_000
# part of the time of a loop that strips take by the rules in a kernel that is not timed, to be taken
WORTH_UNTIMED = 0.85
# functions that are powers: of what, and whether the argument is the exponent; for the sigmoid exp(-x), of
# which 1 / (1 + exp(-x)) keeps its digits where it is small
POWERS = {"exp": (e, True), "sqrt": (0.5, False), "rsqrt": (-0.5, False), "sigmoid": (1 / e, True)}


def with_less(kernel: Kernel, ctx: Context, hardware: Hardware) -> Kernel:
    """A tree, changed in place, without what is not needed, and its work shared out."""
    if not ctx.given.is_watched:
        ctx.choices.extend(without_ruled_out(kernel, ctx.lanes, ctx.build.fresh))
        with_maxima_of_choices(kernel.body, ctx.build.fresh)
        peel(kernel, ctx)
    _take_names(kernel, ctx)
    ways = ("together", "turn by turn")
    is_wide = not ctx.given.nests  # what a mapping gives loops moves what they leave
    if is_wide and ctx.pick("transfers of several turns", ways, costs=(1.0, 1.9)) == ways[0]:
        Coalescing(kernel, hardware, ctx.build, ctx.given.is_watched).change()
    is_shared = ctx.pick("copies out of PSUM", ("shared with ScalarE", "VectorE")) != "VectorE"
    # what is given an engine keeps it
    if is_shared and not ctx.given.instructions:
        ways = ("on ScalarE and GpSimdE", "on VectorE")
        short = cache(partial(ctx.pick, "short steps beside many others", ways, costs=(1.0, 1.9)))
        kernel = balanced(kernel, hardware, lambda: short() == ways[0])
    _take_names(kernel, ctx)
    return kernel


def in_order(kernel: Kernel, ctx: Context, hardware: Hardware) -> Kernel:
    """A tree, changed in place, whose turns run together or ahead."""
    if not ctx.given.is_watched:
        _by_table(kernel.body, hardware)
        in_strips(kernel, hardware, ctx.build.fresh, partial(_is_strip, kernel, ctx))
        _without_table_loads(kernel, hardware)
    return pipelined(kernel, hardware, partial(_way_ahead, ctx))


def _take_names(kernel: Kernel, ctx: Context) -> None:
    """Have no new loop called as one that the kernel has by now."""
    loops = [s for s in statements(kernel.body) if isinstance(s, Loop)]
    ctx.build.taken |= {name for loop in loops for name in (loop.variable, loop.count_name)}


def _is_strip(kernel: Kernel, ctx: Context, loop: Loop, size: int, share: float) -> bool:
    """Whether turns of a loop are taken together: by the timing model, where the kernel can be timed."""
    option = f"{size} turns of {loop.variable} together, part by part"
    ways, costs = ("one by one", option), (1.0, share)
    if run_by(kernel.body) > LONG and share < WORTH_UNTIMED and not loop.is_sequential:
        ways, costs = (option, "one by one"), (1.0, 1.0)
    is_taken = ctx.pick(f"turns of {loop.variable} together", ways, costs=costs) == option
    ctx.choices.extend([option] * is_taken)
    return is_taken


def _way_ahead(ctx: Context, ways: Sequence[Pipeline]) -> Pipeline:
    """How many turns of a loop that can run ahead; the timing model judges what the clock finds close."""
    turns, variable = [NUMBERS[way.ahead] for way in ways], ways[0].loop.variable
    plain_ns = ways[-1].ns if ways[-1].ns * SOONER < ways[0].ns else inf
    costs = [*(way.ns for way in ways[:-1]), plain_ns]
    chosen = ctx.pick(f"turns of {variable} ahead", turns, costs=costs)
    note = f"turns of {variable}: what needs no state runs {chosen} turn{'s'[chosen == 'one' :]} ahead"
    ctx.choices.extend([note] * (chosen != NUMBERS[0]))
    return ways[turns.index(chosen)]


def _by_table(body: list[nodes.Statement], hardware: Hardware) -> None:
    """Put functions, in place, up to the last one of their table, where nothing between forbids that."""
    for statement in body:
        if isinstance(statement, nodes.Loop):
            _by_table(statement.body, hardware)
    units = units_of(body)
    tables = {id(u): hardware.tables(u.statement) for u in units}
    ordered = units
    for unit in units:
        ordered = _raised(ordered, unit, tables)
    if ordered != units:
        body[:] = listed(ordered)


def _raised(units: list[Unit], unit: Unit, tables: dict[int, list[str]]) -> list[Unit]:
    """Units with one of them, and what it needs, behind the last before it that has its table."""
    place, own = units.index(unit), tables[id(unit)]
    users = [n for n in range(place) if tables[id(units[n])]]
    same = [n for n in users if tables[id(units[n])][-1:] == own[:1]]
    if len(set(own)) != 1 or not same or same[-1] == users[-1]:
        return units
    between = units[same[-1] + 1 : place]
    moved = [*reversed(needed_for(unit.touches, between)), unit]
    left = [u for u in between if u not in moved]
    if any(tables[id(u)] for u in moved[:-1]) or any(are_in_order(u, m) for u in left for m in moved):
        return units
    return [*units[: same[-1] + 1], *moved, *left, *units[place + 1 :]]


def _without_table_loads(kernel: nodes.Kernel, hardware: Hardware) -> None:
    """Have GpSimdE, which needs no table, compute powers where ScalarE's loads take longer."""
    loops = [s for s in nodes.statements(kernel.body) if isinstance(s, nodes.Loop)]
    for loop, function in product(loops, POWERS):
        if _saved_ns(loop, function, hardware) > 0.0:
            _exchange(loop.body, function)


def _saved_ns(loop: nodes.Loop, function: str, hardware: Hardware) -> float:
    """How much less a turn takes with the powers for all of a function."""
    calls = [s for s in nodes.statements(loop.body) if isinstance(s, nodes.Activate)]
    own, others = ([s for s in calls if (s.function == function) is side] for side in (True, False))
    powers = [_powers(s) for s in own]
    if not own or not others or not all(powers):
        return 0.0
    loads = _loads(calls, hardware) - _loads(others, hardware)
    times = {id(s): n for s, n in nodes.weighted(loop.body)}
    each = ((p, times[id(s)]) for several, s in zip(powers, own, strict=True) for p in several)
    taken = sum(hardware.of(p)[1] * n for p, n in each)
    return float(loads * hardware.machine["activation_table_load_ns"]) - taken


def _loads(calls: Sequence[nodes.Activate], hardware: Hardware) -> int:
    """Tables that ScalarE loads in a turn after another."""
    tables = [table for s in calls for table in hardware.tables(s)]
    return sum(table != before for table, before in zip(tables, tables[-1:] + tables[:-1], strict=True))


def _powers(call: nodes.Activate) -> list[nodes.Scale]:
    """A function as powers, one after the other; [] where it is none, or GpSimdE cannot take it over."""
    views, dst = [v for _, v in views_of(call)], call.dst
    is_near = all(v.buffer.memory == nodes.SBUF and as_dtype(v.buffer.dtype).is_float for v in views)
    is_exact = call.function != "sigmoid" or dst.buffer.dtype == "float32"
    if call.function not in POWERS or call.total is not None or not (is_near and is_exact):
        return []
    (operand, is_base), first = POWERS[call.function], ("multiply", call.scale)
    if call.bias is not None:
        first = ("add", call.bias)
        if call.scale != 1.0:
            return []
    power = nodes.Scale(dst, call.src, *first, False, "power", operand, is_base)
    if first == ("multiply", 1.0):
        power = nodes.Scale(dst, call.src, "power", operand, is_base)
    # the exponential lies where the result will
    rest = nodes.Scale(dst, dst, "add", 1.0, False, "power", -1.0)
    return [power, rest] if call.function == "sigmoid" else [power]


def _exchange(body: list[nodes.Statement], function: str) -> None:
    for place, statement in reversed([*enumerate(body)]):
        if isinstance(statement, nodes.Loop):
            _exchange(statement.body, function)
        elif isinstance(statement, nodes.Activate) and statement.function == function:
            body[place : place + 1] = _powers(statement)
