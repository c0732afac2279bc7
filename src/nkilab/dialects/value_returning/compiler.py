"""`neuronxcc.nki.compiler`: decorators that change performance alone, and allocators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...errors import RuleError
from ...tiles.tile import PSUM, SBUF
from ...trace.session import running
from ..indexing import whole_number
from ..kernel import OPTIONS, Kernel, notice_unknown
from ..places import placed
from .creation import Buffer, psum, sbuf
from .direct_allocation import Allocator, modulo


def _decorator(name: str, doc: str) -> Callable[..., Any]:
    def decorate(func: Any = None, **kwargs: Any) -> Any:
        notice_unknown(f"nki.compiler.{name}", kwargs, ("log_level",))
        if func is None:
            return decorate
        # on a kernel, or on a function that nki.jit decorates later
        options = func.options if isinstance(func, Kernel) else func.__dict__.setdefault(OPTIONS, {})
        options[name] = True
        return func

    decorate.__name__ = decorate.__qualname__ = name
    decorate.__doc__ = doc
    return decorate


skip_middle_end_transformations = _decorator(
    "skip_middle_end_transformations",
    "Ask that the compiler keep the order of instructions; values do not change.",
)
enable_stack_allocator = _decorator("enable_stack_allocator", "Choose an allocator; values do not change.")
force_auto_alloc = _decorator("force_auto_alloc", "Ignore direct addresses; values do not change.")


class SbufMemory:
    """`nki.compiler.sbuf`: buffers whose tiles have addresses in SBUF."""

    @staticmethod
    @placed("sbuf.alloc")
    def alloc(func: Callable[..., Any]) -> Allocator:
        """Addresses from func(index of a block, partitions, bytes per partition): (partition, byte)."""
        return Allocator(SBUF, "nki.compiler.sbuf.alloc", func)

    @staticmethod
    @placed("sbuf.mod_alloc")
    def mod_alloc(
        *, base_addr: Any, base_partition: Any = 0, num_par_tiles: Any = (), num_free_tiles: Any = ()
    ) -> Allocator:
        """Addresses that rotate: block i lies base + (i modulo the number of tiles) * size.

        Args:
            base_addr: byte of a partition at which the first tile begins.
            base_partition: partition at which it begins.
            num_par_tiles: tiles side by side over the partitions, per block axis; () for one.
            num_free_tiles: tiles side by side within the partitions, per block axis; () for one.
        """
        rows = _rotation("base_partition", base_partition, "num_par_tiles", num_par_tiles)
        columns = _rotation("base_addr", base_addr, "num_free_tiles", num_free_tiles)

        def place(idx: tuple[int, ...], pdim_size: int, fdim_size: int) -> tuple[int, int]:
            return modulo(*rows, pdim_size)(idx), modulo(*columns, fdim_size)(idx)

        return Allocator(SBUF, "nki.compiler.sbuf.mod_alloc", place)

    @staticmethod
    def auto_alloc() -> Buffer:
        """Automatic addresses: the buffer itself."""
        return sbuf


class PsumMemory:
    """`nki.compiler.psum`: buffers whose tiles have addresses in PSUM."""

    @staticmethod
    @placed("psum.alloc")
    def alloc(func: Callable[..., Any]) -> Allocator:
        """Addresses from func(index of a block, partitions, bytes per partition): (bank, partition, byte)."""
        return Allocator(PSUM, "nki.compiler.psum.alloc", func)

    @staticmethod
    @placed("psum.mod_alloc")
    def mod_alloc(
        *, base_bank: Any, base_addr: Any = 0, base_partition: Any = 0, num_bank_tiles: Any = (),
        num_par_tiles: Any = (), num_free_tiles: Any = (),
    ) -> Allocator:  # fmt: skip
        """Addresses that rotate: block i lies in bank base_bank + i modulo the number of banks.

        Args:
            base_bank: bank of the first tile.
            base_addr: byte of the bank; 0.
            base_partition: partition; 0.
            num_bank_tiles: banks that are taken, per block axis; () for one.
            num_par_tiles: tiles side by side over the partitions; one.
            num_free_tiles: tiles side by side within a bank; one.
        """
        banks = _rotation("base_bank", base_bank, "num_bank_tiles", num_bank_tiles)
        rows = _rotation("base_partition", base_partition, "num_par_tiles", num_par_tiles)
        columns = _rotation("base_addr", base_addr, "num_free_tiles", num_free_tiles)

        def place(idx: tuple[int, ...], pdim_size: int, fdim_size: int) -> tuple[int, int, int]:
            return modulo(*banks, 1)(idx), modulo(*rows, pdim_size)(idx), modulo(*columns, fdim_size)(idx)

        return Allocator(PSUM, "nki.compiler.psum.mod_alloc", place)

    @staticmethod
    def auto_alloc() -> Buffer:
        """Automatic addresses: the buffer itself."""
        return psum


def _rotation(base_name: str, base: Any, name: str, counts: Any) -> tuple[int, tuple[int, ...]]:
    """A base and numbers of tiles, as integers."""
    counts_given = counts if isinstance(counts, tuple | list) else (counts,)
    whole = tuple(whole_number(n, name) for n in counts_given)
    if any(n < 1 for n in whole):
        raise RuleError(f"{name} is {counts}; it must hold a tile or more along each block axis")
    return whole_number(base, base_name), whole


@dataclass(frozen=True)
class Directive:
    """Advice to the vendor's scheduler or allocator, for a block or a loop; values do not change."""

    name: str
    factor: int = 1

    def __enter__(self) -> Directive:
        session = running()
        if session is not None and self.name == "no_reorder":
            session.keyed.setdefault(self.name, []).append(len(session.program))
        return self

    def __exit__(self, *error: Any) -> None:
        """Note what a no_reorder block held; nothing else ends here."""
        session = running()
        if session is not None and self.name == "no_reorder":
            first = session.keyed[self.name].pop()
            session.program.marks.blocks.append((first, len(session.program)))


@placed("allocation_scope")
def allocation_scope() -> Directive:
    """A block whose tiles the stack allocator frees together, for `with`."""
    return Directive("allocation_scope")


@placed("no_reorder")
def no_reorder() -> Directive:
    """Instructions that stay in the order of the text, for `with` or as directives= of a loop."""
    return Directive("no_reorder")


@placed("multi_buffer")
def multi_buffer(factor: Any = 2) -> Directive:
    """A loop whose tiles have so many buffers, as directives= of it."""
    count = whole_number(factor, "factor")
    if count < 1:
        raise RuleError(f"factor is {count}; a loop has one buffer or more")
    return Directive("multi_buffer", count)


NAMES: dict[str, Any] = {
    "skip_middle_end_transformations": skip_middle_end_transformations,
    "enable_stack_allocator": enable_stack_allocator,
    "force_auto_alloc": force_auto_alloc,
    "sbuf": SbufMemory(),
    "psum": PsumMemory(),
    "allocation_scope": allocation_scope,
    "no_reorder": no_reorder,
    "multi_buffer": multi_buffer,
}
