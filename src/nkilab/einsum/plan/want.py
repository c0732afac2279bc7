"""What a nest wants of an operand: which variable on the partitions, which along the columns."""

from __future__ import annotations

from dataclasses import dataclass

from ..language.ast import Access
from .build import Span, whole
from .storage import Storage


@dataclass(frozen=True)
class Want:
    """What a nest wants of an operand."""

    access: Access  # of the operand
    spans: dict[str, Span]  # of every variable
    part: str = ""  # variable on the partitions; "" for none
    free: str = ""  # variable along the columns; "" for none
    storage: Storage | None = None  # a place to take it from; None for the best known
    # whether what is transposed for it may stay in PSUM: VectorE and ScalarE alone read it
    may_stay: bool = False
    copies: int = 1  # partitions that each get all, where no variable lies on them

    def has(self, variable: str) -> bool:
        """Whether the access runs along a variable of more than one value."""
        return bool(variable) and variable in self.access.variables and not self.spans[variable].is_point

    @property
    def rows(self) -> Span:
        """What the partitions cover."""
        return self.spans[self.part] if self.part else whole(self.copies)

    @property
    def columns(self) -> Span:
        """What the columns cover."""
        return self.spans[self.free] if self.has(self.free) else whole(1)

    @property
    def folded(self) -> tuple[int, bool]:
        """Positions side by side where one axis has both, and whether these are a partition's columns."""
        steps = [
            max((i.coefficient(v) for i in self.access.affine), default=0) for v in (self.part, self.free)
        ]
        return (self.columns.most, True) if steps[0] > steps[1] else (self.rows.most, False)
