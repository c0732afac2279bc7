"""Loop trees as `nki` kernels: destinations first, loops of Python."""

from __future__ import annotations

from ..tree.along import axes_of, strides, windowed
from ..tree.expr import ZERO, Expr, expr
from ..tree.nodes import Buffer, Cut, Gather, Loop, Statement, View
from .text import Printer


class NkiPrinter(Printer):
    """The spelling `nki`, 0.3 and later."""

    imports = ("import nki", "import nki.isa as nisa", "import nki.language as nl")

    def range(self, loop: Loop) -> str:
        return f"range({expr(loop.trips)})"

    def made(self, buffer: Buffer) -> str:
        memory = {"output": "shared_hbm", "scratch": "private_hbm"}.get(buffer.role, buffer.memory)
        return f"nl.ndarray({self.shape(buffer.shape or (1,))}, dtype=nl.{buffer.dtype}, buffer=nl.{memory})"

    def put_call(self, name: str, **given: str) -> None:
        self.call(f"nisa.{name}", self.keywords(**given))

    def hbm(self, view: View) -> str:
        """A part of an HBM tensor: slices, or an access pattern where it is turned or repeated."""
        is_plain = not (view.is_turned or view.folded or view.order or view.buffer.window)
        is_plain &= not view.has_parts and all(cut.step > 0 for cut in view.cuts)
        if is_plain and view.repeat is None:
            return self.view(view)
        pattern = ", ".join(f"[{step}, {count}]" for step, count in axes_of(view))
        return f"{windowed(view.buffer).name}.ap([{pattern}], offset={self.offset(view)})"

    def offset(self, view: View, after: int = 0) -> Expr:
        """The first element of a view, as far as its axes after some say it."""
        steps = strides(view.buffer)
        steps = [ZERO] * (len(view.index) - len(steps)) + steps
        starts = (i.start if isinstance(i, Cut) else i.at for i in view.index)
        first = zip(map(expr, view.buffer.first), strides(windowed(view.buffer)), strict=False)
        return sum((a * b for a, b in [*first, *zip(starts, steps, strict=True)][after:]), ZERO)

    def statement(self, statement: Statement) -> None:
        if isinstance(statement, Gather):
            self.gather(statement)
            return
        name, arguments = self.arguments(statement)
        self.put_call(name, **arguments)

    def gather(self, s: Gather) -> None:
        rows = [] if s.is_slice else [(strides(s.table.buffer)[s.axis], s.dst.cuts[0].count)]
        pattern = [f"[{step}, {count}]" for step, count in (*rows, *axes_of(s.table)[len(rows) :])]
        chosen = (
            f"{self.rows_of(s)}.ap([{', '.join(pattern)}], offset={self.offset(s.table, s.axis + 1)}, "
            f"{'scalar' if s.is_slice else 'vector'}_offset={self.view(s.rows)}, indirect_dim=0)"
        )
        self.put_call("dma_copy", dst=self.view(s.dst), src=chosen)
