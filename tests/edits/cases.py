"""What a test of a change needs: a kernel as text, its arguments and what the changed file says."""

from __future__ import annotations

from typing import NamedTuple


class Case(NamedTuple):
    """A kernel of which one piece of advice is applied.

    Args:
        id: of the advice.
        text: of the file.
        args: of the kernel.
        says: a line that the changed file has, without its indentation.
    """

    id: str
    text: str
    args: tuple[str, ...]
    says: str


def text(frame: str, args: str, body: str, module: str = "") -> str:
    lines = "\n".join(f"    {line}" if line else "" for line in body.strip("\n").splitlines())
    return frame.format(module=module, args=args, body=lines)
