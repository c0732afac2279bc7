"""`neuronxcc.nki.compiler`: decorators that change performance alone, and allocators."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

from ...trace.session import ask
from .creation import Buffer, psum, sbuf


def _decorator(name: str, doc: str) -> Callable[..., Any]:
    def decorate(function: Any = None, *args: Any, **kwargs: Any) -> Any:
        if callable(function):
            options = getattr(function, "options", None)
            if isinstance(options, dict):
                options[name] = True
            return function
        return lambda f: decorate(f)

    decorate.__name__ = decorate.__qualname__ = name
    decorate.__doc__ = doc
    return decorate


skip_middle_end_transformations = _decorator(
    "skip_middle_end_transformations",
    "Ask that the compiler keep the order of instructions; values do not change.",
)
enable_stack_allocator = _decorator("enable_stack_allocator", "Choose an allocator; values do not change.")
force_auto_alloc = _decorator("force_auto_alloc", "Ignore direct addresses; values do not change.")


class Allocator:
    """A buffer with direct addresses, as `sbuf.mod_alloc` and its like give."""

    def __init__(self, buffer: Buffer, how: str) -> None:
        self.buffer = buffer
        self.how = how
        ask().notice(
            f"nki.compiler {how}: tiles are placed automatically; direct addresses are not modelled yet"
        )


class Memory:
    """`nki.compiler.sbuf` and `nki.compiler.psum`: makers of buffers with addresses.

    Args:
        buffer: the memory they allocate in.
    """

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer

    def alloc(self, func: Callable[..., Any]) -> Allocator:
        """Addresses from a function of block index and sizes."""
        return Allocator(self._buffer, f"{self._buffer.name}.alloc")

    def mod_alloc(self, **kwargs: Any) -> Allocator:
        """Addresses that rotate with the block index."""
        return Allocator(self._buffer, f"{self._buffer.name}.mod_alloc")

    def auto_alloc(self) -> Buffer:
        """Automatic addresses: the buffer itself."""
        return self._buffer


@contextmanager
def _nothing(*args: Any, **kwargs: Any) -> Any:
    yield


NAMES: dict[str, Any] = {
    "skip_middle_end_transformations": skip_middle_end_transformations,
    "enable_stack_allocator": enable_stack_allocator,
    "force_auto_alloc": force_auto_alloc,
    "sbuf": Memory(sbuf),
    "psum": Memory(psum),
    "allocation_scope": _nothing,
    "no_reorder": _nothing,
    "multi_buffer": lambda factor=2: None,
}
