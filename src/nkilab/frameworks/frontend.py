"""The names of `nki.compiler.frontend`: a kernel is compiled by tracing it from shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import api
from ..dialects.kernel import Kernel
from ..errors import UnsupportedError
from ..launches import launch
from ..trace.program import Program
from ..tracebacks import public


class NKIFrontend:
    """What host scripts name as the type of a front end."""


class ParserFrontend(NKIFrontend):
    """Compiles kernels: checks and records every instruction without data."""

    @public
    def compile(
        self, kernel: Any, *, inputs: Mapping[str, Any], target: str = "", lnc: int = 1,
        artifacts_dir: str | None = None, dump_python_ast: bool = False,
        output_names: Sequence[str] | None = None,
    ) -> Program:  # fmt: skip
        """The program of a kernel.

        Args:
            kernel: decorated or plain.
            inputs: its arguments by name; of arrays only shapes and types count.
            target: chip.
            lnc: cores.
            artifacts_dir: nothing is written there.
            dump_python_ast: must be False.
            output_names: of the results; the program keeps those of the kernel.

        Raises:
            KernelError: what the kernel asks for and the machine does not allow.
        """
        if dump_python_ast:
            raise UnsupportedError("nkilab runs kernels as Python and has no syntax tree to dump")
        compiled_kernel = (
            kernel if isinstance(kernel, Kernel) else Kernel(kernel, "nki", api.settings().version)
        )
        return launch(
            compiled_kernel[lnc], (), dict(inputs), api.machine_for(compiled_kernel, target), has_data=False
        ).program


NAMES: dict[str, Any] = {"NKIFrontend": NKIFrontend, "ParserFrontend": ParserFrontend}
