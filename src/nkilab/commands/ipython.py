"""The extension of IPython: after `%load_ext nkilab`, `%%nki KERNEL --arg ...` stands above a cell."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .._lazy import part
from ..command_line import Verb, in_our_words
from ..errors import UsageError, printable
from ..failures import failure_of
from .scripts import launch_of, watch

if TYPE_CHECKING:
    from ..checking import Launch
    from ..watching import Watched


def load_ipython_extension(shell: Any) -> None:
    """Serve the names of NKI in a notebook, and add `%%nki`."""
    part("hook").switch_on(serves_shims=True)
    kernels: dict[str, Watched] = {}

    def nki(line: str, cell: str) -> None:
        """Run a cell; time and check a kernel, and tell what has changed since the last time.

        The line is that of `nkilab watch`: %%nki softmax --arg 'f32[512,2048]'.
        """
        try:
            name, call, target = _options_in(line)
            if shell.run_cell(cell).success:
                watched = kernels.setdefault(name, part("watching").Watched())
                print(printable(watched.look(lambda: _kernel_in(shell.user_ns, name), call, target)))
        except Exception as error:
            print(failure_of(in_our_words(error, "%%nki"), "%%nki").text)

    shell.register_magic_function(nki, "cell")


def _options_in(line: str) -> tuple[str, Launch, str]:
    """The kernel that a line names, what it is called on, and the chip."""
    # a notebook serves the names of all versions, and prints no JSON
    verb = Verb("%%nki", params=[one for one in watch.params if one.name not in ("version", "as_json")])
    options = verb.make_context("%%nki", shlex.split(line)).params
    kernel, target = options.pop("kernel"), options.pop("target")
    return kernel, launch_of(**options), target


def _kernel_in(names: Mapping[str, object], name: str) -> object:
    """The kernel of a notebook."""
    if name not in names:
        raise UsageError(f"the notebook has no {name}", hint="define it in this cell or one before")
    return names[name]
