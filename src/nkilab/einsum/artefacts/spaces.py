"""What `nkilab tune` may turn of a kernel: other sizes of its tiles, each of them proved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...errors import UnsupportedError
from ...machine import Machine
from ..emit.sizes import Named, expressions
from ..prove import prove
from ..room import views_of
from ..sets import ProofError
from ..tree import nodes
from ..tree.expr import ZERO, Atom, Rounded, expr

# times its size that a tile may have
TIMES = (0.25, 0.5, 1, 2, 4)


def space_text(named: Named, machine: Machine, kernel: str) -> str:
    """A space of tile sizes as `nkilab tune` reads it; "" where the plan leaves nothing to turn."""
    choices = dict(_choices(named, machine))
    if not choices:
        return ""
    constraints = list(_constraints(named, choices))
    lines = [
        f"# {kernel}: other sizes of its tiles, each proved with the rest as they are",
        "schema: nkilab.space/1",
        "parameters:",
        *(f"  {name}: [{', '.join(map(str, values))}]" for name, values in choices.items()),
        *(["constraints:"] if constraints else []),
        *(f"  - {constraint}" for constraint in constraints),
    ]
    return "\n".join(lines) + "\n"


def _choices(named: Named, machine: Machine) -> Iterator[tuple[str, list[int]]]:
    """The sizes that a tile may have."""
    quotients = quotients_of(named)
    for name, tile in named.tiles.items():
        sizes = [] if name in named.fixed else [int(tile * n) for n in TIMES if tile * n == int(tile * n)]
        values = [
            n
            for n in sizes
            if n == tile or (1 < n <= named.ranks[name] and _holds(named, machine, quotients, {name: n}))
        ]
        if len(values) > 1:
            yield name, values


def quotients_of(named: Named) -> set[Rounded]:
    """Every quotient of two names."""
    atoms = frozenset[Atom]().union(*(e.atoms for e in expressions(named.kernel)))
    return {atom for atom in atoms if not isinstance(atom, str) and atom.operator == "//"}


def _holds(named: Named, machine: Machine, quotients: set[Rounded], values: Mapping[str, int]) -> bool:
    """Whether a kernel with tiles of other sizes is proved as the one that is printed is."""
    numbers = {name: n for _, group in named.kernel.constants for name, n in group.items()} | dict(values)
    for quotient in quotients:
        value, number = (expr(e).at(numbers) for e in (quotient.value, quotient.number))
        # one that is negative is rounded upwards
        if not 0 < number <= abs(value) or (value > 0 and value % number):
            return False
    kernel = named.at(values)
    views = (view for s in nodes.statements(kernel.body) for _, view in views_of(s))
    if any(cut.count == ZERO for view in views for cut in view.cuts):
        return False
    try:
        prove(kernel, machine)
    except (ProofError, UnsupportedError):
        return False
    return True


def _constraints(named: Named, choices: Mapping[str, list[int]]) -> Iterator[str]:
    """What must hold between tiles, so that blocks are whole tiles."""
    for quotient in sorted(quotients_of(named), key=str):
        names = [str(e) for e in (quotient.value, quotient.number)]
        if all(name in named.tiles for name in names) and set(names) & set(choices):
            whole, part = (n if n in choices else str(named.tiles[n]) for n in names)
            yield f"{whole} % {part} == 0"
