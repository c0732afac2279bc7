"""`@autotune`: a kernel that chooses its parameters for the shapes it is called with, and remembers them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any
from warnings import warn

import numpy as np

from .. import api
from ..argument_checks import whole
from ..arrays import ArraySpec, framework_of
from ..dialects.kernel import Kernel
from ..disk import cache_folder, read_text, write_whole_folder
from ..errors import FileError, UsageError
from ..tiles.dtypes import as_dtype
from ..trace.session import running
from ..tracebacks import public
from .binding import bound
from .executors import Inline
from .expressions import Value
from .objective import Case, KernelObjective
from .outcome import Outcome, outcome_from
from .samplers import sampler_named
from .space import Point, Space, space_of
from .study import search
from .verdict import verdict_of

SCHEMA = "nkilab.choice/1"


@public
def autotune(
    space: Mapping[str, Any] | Space, constraints: Sequence[str] = (), *, trials: int = 200, seed: int = 0,
    target: str = "", sampler: str = "auto",
) -> Callable[[Any], Autotuned]:  # fmt: skip
    """Decorate a kernel so that it is called with the parameters that are predicted to be fastest.

    The choice is made once per shapes, types, other arguments, chip and version of the timing model, and kept
    in the user's cache folder.

    Args:
        space: per parameter a list of choices, {"integers": [1, 8]} or {"powers_of_two": [1, 16]}.
        constraints: expressions between the parameters.
        trials: how many points to look at, at most.
        seed: of the sampler.
        target: chip to choose for; see `nkilab.api.machine_for` for the default.
        sampler: "auto", "exhaustive", "random", or one of optuna's: "tpe", "nsga2", "gp".

    Raises:
        UsageError: if the space is none, or the kernel has no such parameters.
    """
    space_known = space if isinstance(space, Space) else space_of(space, constraints)
    whole("trials", trials, 1)
    api.machine_for(None, target)

    @public
    def decorate(kernel: Any) -> Autotuned:
        return Autotuned(kernel, space_known, trials=trials, seed=seed, target=target, sampler=sampler)

    return decorate


def _restored(kernel: Kernel, space: Space, options: dict[str, Any]) -> Autotuned:
    return Autotuned(kernel, space, **options)


class Autotuned:
    """A kernel with a space of parameters.

    Args:
        kernel: that is called; `nkilab.estimate` and other functions take this one.
        space: of its parameters.
        trials, seed, target, sampler: see `autotune`.
    """

    # pytest takes no kernel for a test, whatever its name
    __test__ = False

    def __init__(
        self, kernel: Any, space: Space, *, trials: int, seed: int, target: str, sampler: str
    ) -> None:  # fmt: skip
        self.kernel: Kernel = api.as_kernel(kernel)
        self.space = space
        self._options: dict[str, Any] = {"trials": trials, "seed": seed, "target": target, "sampler": sampler}
        self._chosen: dict[str, Outcome] = {}
        self.__name__ = self.kernel.name
        self.__doc__ = self.kernel.function.__doc__
        self.__wrapped__ = self.kernel.function

    @public
    def __getitem__(self, grid: Any) -> Autotuned:
        """The kernel with a launch grid."""
        return Autotuned(self.kernel[grid], self.space, **self._options)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled without what was chosen, which the cache keeps."""
        return _restored, (self.kernel, self.space, self._options)

    @public
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the kernel with the parameters chosen for these arguments; those given stay as they are."""
        call = bound(self.kernel, args, kwargs, self.choice(*args, **kwargs))
        with call.constants_set():
            return call.kernel(*call.args, **call.kwargs)

    @public
    def choice(self, *args: Any, **kwargs: Any) -> Point:
        """The parameters chosen for arguments, without those that are given.

        Raises:
            UsageError: if no point is legal, or the kernel is called inside another one without parameters.
        """
        arguments = self._point_of_call(args, kwargs)
        if not set(self.space.names) - arguments.keys():
            return {}
        if running() is not None:
            raise UsageError(
                f"{self.__name__} chooses its parameters and is called inside another kernel",
                hint=f"give it {', '.join(self.space.names)}, or call its .kernel",
            )
        outcome = self.outcome(*args, **kwargs)
        return {name: value for name, value in outcome.point.items() if name not in arguments}

    @public
    def outcome(self, *args: Any, **kwargs: Any) -> Outcome:
        """What the timing model says of the point that is chosen for arguments."""
        arguments = self._point_of_call(args, kwargs)
        space = self.space.fixed({name: _plain(name, value) for name, value in arguments.items()})
        case = Case(
            tuple(map(_shape_only, args)),
            {name: _shape_only(value) for name, value in kwargs.items() if name not in arguments},
            text=f"the arguments of {self.__name__}",
        )
        machine = api.machine_for(self.kernel, self._options["target"])
        objective = KernelObjective(self.kernel, [case], machine)
        parts = (objective.digest, objective.constants, space.digest, sorted(self._options.items()))
        key = sha256(repr(parts).encode()).hexdigest()[:32]
        if key not in self._chosen:
            self._chosen[key] = _read(key, space) or self._searched(objective, space, key)
        return self._chosen[key]

    def _point_of_call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Point:
        """Parameters of the space that the caller gives."""
        bound = self.kernel.signature.bind_partial(*args, **kwargs).arguments
        arguments = {**bound, **kwargs}
        return {name: arguments[name] for name in self.space.names if name in arguments}

    def _searched(self, objective: KernelObjective, space: Space, key: str) -> Outcome:
        if not space.has_points:
            raise UsageError(
                f"no point of the space of {self.__name__} has the values that the call gives",
                hint="leave them to be chosen, or loosen a constraint",
            )
        objective.check(space)
        options = self._options
        sampler = sampler_named(options["sampler"], space, options["trials"], 1, options["seed"])
        result = search(space, objective, sampler, Inline(objective), trials=options["trials"])
        if not result.timed:
            first = result.outcomes[0].message if result.outcomes else "none was looked at"
            raise UsageError(f"no point of the space of {self.__name__} can be timed:\n{first}")
        best = verdict_of(result).best
        _write(key, best)
        return best


def _plain(name: str, value: Any) -> Value:
    """What a caller gives of a point."""
    value = value.item() if isinstance(value, np.generic) else value
    if not isinstance(value, int | float | str):
        raise UsageError(
            f"{name} is {value!r}; where parameters are chosen it must be a number or a word",
            hint="give all parameters, or call .kernel",
        )
    return value


def _shape_only(value: Any) -> Any:
    """An array as its spec, its type by our name; anything else as it is."""
    return ArraySpec(tuple(value.shape), str(as_dtype(value.dtype))) if framework_of(value) else value


def _path(key: str) -> Path:
    return cache_folder() / "tune" / f"{key}.json"


def _read(key: str, space: Space) -> Outcome | None:
    """The choice that was made before; None if there is none, or what there is cannot be read."""
    try:
        document = json.loads(read_text(_path(key)))
        outcome = outcome_from(document["outcome"])
        is_choice = document["schema"] == SCHEMA and outcome.is_timed and space.contains(outcome.point)
        return outcome if is_choice else None
    except (FileError, OSError, ValueError, KeyError, TypeError):
        return None


def _write(key: str, outcome: Outcome) -> None:
    """Keep a choice; a cache folder that cannot be written is told, and no reason to fail."""
    document = {"schema": SCHEMA, "outcome": outcome.to_dict()}
    try:
        path = _path(key)
        write_whole_folder(path.parent, {path.name: (json.dumps(document, indent=1) + "\n").encode()})
    except FileError as error:
        warn(f"the choice of an autotuned kernel is not kept: {error}", stacklevel=2)
