"""Searching where rules leave a choice: layouts, operands, blocks, tiles, shared loops.

The rules come first. Then one thing is changed at a time, and what makes the kernel faster is kept; then
combinations are drawn. The timing model judges. The seconds that a search is given buy a fixed amount of
work, counted in statements that kernels run. No clock is read: a slow or busy machine takes longer, and finds
the same kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import takewhile
from random import Random

from ..errors import NkilabError
from .language.ast import Access, Cascade, Einsum
from .plan.context import Context, Planner
from .plan.knobs import RULES, Knobs
from .tree.nodes import Kernel, run_by

GROUP_BLOCKS = (0, 1, 2, 4, 8)
COLUMNS = (16384, 4096, 2048, 1024)
TRANSFERS = (1 << 20, 1 << 22, 1 << 18)
SHARES = (0.85, 0.6)
# what one second pays for: statements that kernels run, and building a tree, as many statements
STATEMENTS_PER_SECOND, TREE_STATEMENTS = 40_000, 1_000
# a kernel that runs so many times as many statements as that of the rules is not timed
MOST_TIMES = 2
# options of one choice that are tried one by one
MOST_RANKS = 5


@dataclass(frozen=True)
class Found:
    """The best of what was tried.

    Args:
        kernel: its tree.
        ctx: its plan.
        latency_us: predicted.
        knobs: its choices.
        tried: what others would have given, one line each, the best first.
        rules_us: latency of what the rules choose.
        refused: how many choices gave no kernel.
        passed: how many were not timed, because they run too many statements.
        work: statements that its seconds paid for.
        is_exhausted: whether nothing was left to try before they were spent.
    """

    kernel: Kernel
    ctx: Context
    latency_us: float
    knobs: Knobs
    tried: tuple[str, ...]
    rules_us: float = 0.0
    refused: int = 0
    passed: int = 0
    work: int = 0
    is_exhausted: bool = False

    @property
    def told(self) -> str:
        """What was found, for the report."""
        gain = f"{self.rules_us / self.latency_us:.2f} times as fast as by the rules"
        keys = dict(self.knobs.picks)
        picked = [f"{d.what}: {d.taken}" for d in self.ctx.decisions if d.key in keys]
        taken = "; ".join([str(self.knobs), *picked])
        tail = f"; {self.refused} choices gave no kernel" if self.refused else ""
        tail += f"; {self.passed} kernels too long to be timed" if self.passed else ""
        ended = "nothing was left to try" if self.is_exhausted else "its work was spent"
        tail += f"; work of {self.work:,} statements, whatever the clock says: {ended}"
        return f"searched {len(self.tried)} kernels, {gain}; taken: {taken}{tail}"


def _single(held: Knobs) -> list[Knobs]:
    """One choice for the whole kernel changed."""
    return [
        *(replace(held, group_blocks=n) for n in GROUP_BLOCKS),
        replace(held, is_fused=not held.is_fused),
        *(replace(held, most_columns=n) for n in COLUMNS),
        *(replace(held, transfer_bytes=n) for n in TRANSFERS),
        *(replace(held, share=s) for s in SHARES),
    ]


def searched(
    built: Planner, judge: Callable[[Kernel], float], seconds: float, start: Knobs, seed: int = 0
) -> Found:
    """The kernel that the timing model likes best within some seconds.

    Args:
        built: makes a tree and its plan of choices; raises where a choice gives none.
        judge: predicts the latency of a tree in microseconds.
        seconds: of work, 40,000 statements each; the first kernel is always tried.
        start: the first choices, which give a kernel.
        seed: of the combinations that are drawn at the end.

    A candidate that compiles to the same tree as one before is not timed again.
    """
    search = _Search(built, judge, int(seconds * STATEMENTS_PER_SECOND))
    search.first(start)
    search.climb()
    search.draw(Random(seed))
    return search.found()


class _Search:
    def __init__(self, built: Planner, judge: Callable[[Kernel], float], work: int) -> None:
        self.built, self.judge, self.work, self.budget = built, judge, work, work
        self.known: dict[str, float] = {}
        self.seen: set[Knobs] = set()
        self.tried: list[tuple[float, str]] = []
        self.refused = self.passed = self.most = 0
        self.best: Found | None = None
        self.rules_us = 0.0

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to spend."""
        return self.budget <= 0

    def first(self, start: Knobs) -> None:
        """The kernel of the rules, whose faults are not passed over."""
        kernel, ctx = self.built(start)
        self.take(start, kernel, ctx)
        self.rules_us = self.held.latency_us

    @property
    def held(self) -> Found:
        assert self.best is not None
        return self.best

    def climb(self) -> None:
        """Change one thing at a time as long as that makes the kernel faster."""
        is_better = True
        while is_better and not self.is_over:
            is_better = False
            for step in takewhile(lambda _: not self.is_over, self.steps()):
                is_better |= self.attempt(step(self.held.knobs))

    def steps(self) -> list[Callable[[Knobs], Knobs]]:
        """Changes of one thing: each choice of the plan, its second option first; then the whole kernel's."""
        decisions = self.held.ctx.decisions
        found: list[Callable[[Knobs], Knobs]] = []
        for rank in range(1, MOST_RANKS + 1):
            keys = [d.key for d in decisions if rank < len(d.options)]
            found += [lambda k, n=key, r=rank: k.picking(n, r) for key in keys]  # type: ignore[misc]
            if rank == 1:
                # what concerns the whole kernel comes after the second options
                count = len(_single(Knobs()))
                found += [lambda k, n=n: _single(k)[n] for n in range(count)]  # type: ignore[misc]
        return found

    def draw(self, random: Random) -> None:
        """Combinations of changes of the best kernel."""
        misses = 0
        while not self.is_over and misses < 50:
            steps, knobs = self.steps(), self.held.knobs
            for _ in range(random.choice((2, 2, 3, 4))):
                knobs = random.choice(steps)(knobs)
            before = len(self.seen)
            self.attempt(knobs)
            misses = misses + 1 if len(self.seen) == before else 0

    def attempt(self, knobs: Knobs) -> bool:
        """Build and time a kernel; whether it is the best so far."""
        if knobs in self.seen:
            return False
        try:
            kernel, ctx = self.built(knobs)
            return self.take(knobs, kernel, ctx)
        except (NkilabError, AssertionError):
            # an option that rules do not take may ask for what no nest covers; it is counted and told
            self.refused += 1
            self.seen.add(knobs)
            self.budget -= TREE_STATEMENTS
            return False

    def take(self, knobs: Knobs, kernel: Kernel, ctx: Context) -> bool:
        self.seen.add(knobs)
        self.budget -= TREE_STATEMENTS
        text = str(kernel.body)
        if text in self.known:
            return False
        count = run_by(kernel.body)
        if self.best is None:
            self.most = MOST_TIMES * max(count, TREE_STATEMENTS // 8)
        elif count > self.most or count > self.budget:
            self.passed += 1
            return False
        self.budget -= count
        self.known[text] = latency = self.judge(kernel)
        self.tried.append((latency, f"{knobs if self.best else RULES}: {latency:.1f} us"))
        if self.best is not None and latency >= self.best.latency_us:
            return False
        self.best = Found(kernel, ctx, latency, knobs, ())
        return True

    def found(self) -> Found:
        """The best, with all that was tried."""
        tried = tuple(line for _, line in sorted(self.tried))
        counted = replace(self.held, refused=self.refused, passed=self.passed, work=self.work)
        return replace(counted, tried=tried, rules_us=self.rules_us, is_exhausted=not self.is_over)


def with_axes_swapped(cascade: Cascade, output: str) -> Cascade:
    """The cascade whose output of two axes is stored the other way round."""
    tensor = cascade.tensors[output]
    assert len(tensor.ranks) == 2

    def turned(access: Access) -> Access:
        return replace(access, indices=access.indices[::-1]) if access.tensor == output else access

    def changed(einsum: Einsum) -> Einsum:
        return replace(einsum.reading(turned), output=turned(einsum.output))

    steps = (step.with_body(map(changed, step.body)) for step in cascade.steps)
    tensors = {**cascade.tensors, output: replace(tensor, ranks=tensor.ranks[::-1])}
    return replace(cascade, tensors=tensors, steps=tuple(steps))
