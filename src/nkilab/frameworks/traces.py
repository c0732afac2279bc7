"""Profilers of PyTorch and JAX that host scripts start: what they name a folder for gets our profile."""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .. import api
from .._lazy import part
from ..errors import UsageError

if TYPE_CHECKING:
    from ..reports import Reports

PROFILE_TYPES = ("operator", "trace", "system")


def _reports(folder: Any) -> Reports:
    """What writes reports with their files to a folder; loaded where something is profiled."""
    reports: Reports = part("reports").Reports(Path(str(folder)), with_files=True)
    return reports


class TorchProfile:
    """`torch_neuronx.experimental.profiler.profile`: a report, NEFF and NTFF of every launch in its block.

    Args:
        output_dir: folder of the files.
        neuron_tensorboard_plugin_dir: likewise, where `output_dir` is not given.
        profile_type: "operator", "trace" or "system", which are one here.
        auto_start: whether the block profiles from its beginning; else from `start()` on.
        port: of a server; there is none here.
        ms_duration: for how long a device is watched; here it is the whole block.
        target: of the vendor's files; here they are always the same.
        delete_working: there are no temporary files here.
        traced_only: every launch is profiled.

    Source: PyTorch NeuronX Profiling API; NKI kernel optimization guide.
    """

    def __init__(
        self, port: int = 9012, ms_duration: int = 60000,
        neuron_tensorboard_plugin_dir: str = "logs/plugins/neuron", profile_type: str = "operator",
        auto_start: bool = True, delete_working: bool = True, traced_only: bool = False, *,
        target: str = "", output_dir: str = "",
    ) -> None:  # fmt: skip
        if profile_type not in PROFILE_TYPES:
            raise UsageError(
                f"profile_type is {profile_type!r}; it must be one of {', '.join(PROFILE_TYPES)}"
            )
        self._reports = _reports(output_dir or neuron_tensorboard_plugin_dir)
        self._auto_start = auto_start

    def start(self) -> None:
        """Profile from here on."""
        if self._reports not in api.WORLD.observers:
            api.WORLD.observers.append(self._reports)

    def stop(self) -> None:
        """Profile no more."""
        if self._reports in api.WORLD.observers:
            api.WORLD.observers.remove(self._reports)

    def __enter__(self) -> TorchProfile:
        if self._auto_start:
            self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class JaxTraces:
    """Writes a report, NEFF and NTFF of every launch while `jax.profiler` traces, to the folder of the trace.

    JAX has no public name for the folder of a trace under way; its own is read.
    """

    def __init__(self) -> None:
        self._session: Any = None
        self._reports: Reports | None = None

    def __call__(self, shown: api.Shown) -> None:
        """Write what a launch leaves, if JAX traces."""
        module = sys.modules.get("jax._src.profiler")
        if module is None:
            return
        state = getattr(module, "_profile_state", None)
        if state is None or not hasattr(state, "log_dir"):
            api.WORLD.notice("this JAX does not tell where jax.profiler writes; kernels have no profile")
            return
        session = state.profile_session
        if session is None:
            self._session = self._reports = None
            return
        if session is not self._session:
            self._session, self._reports = session, _reports(state.log_dir)
        assert self._reports is not None
        self._reports(shown)


def observe_jax() -> None:
    """Watch launches for traces of JAX, from here on in this process."""
    if not any(isinstance(observer, JaxTraces) for observer in api.WORLD.observers):
        api.WORLD.observers.append(JaxTraces())
