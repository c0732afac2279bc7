"""Write the generated documents: `python -m nkilab.pages docs/instructions`."""

from __future__ import annotations

import sys
from pathlib import Path

from ..errors import NkilabError, message_of
from .folder import COMMAND, write


def main(arguments: list[str]) -> int:
    """Write the pages to the one folder named; returns the exit code."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.stderr.write(f"usage: {COMMAND} FOLDER\n")
        return 2
    try:
        changed = write(Path(arguments[0]))
    except NkilabError as error:
        sys.stderr.write(f"{message_of(error)}\n")
        return 1
    sys.stdout.write(f"{len(changed)} files changed{': ' if changed else ''}{', '.join(changed)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
