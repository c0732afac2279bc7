"""Microseconds that the framework adds to one small instruction: the slope between two repeat counts.

Launches that are timed again are computed from their tapes.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import process_time

import numpy as np

import nkilab
from nkilab import api
from nkilab.launches import launch
from nkilab.tapes import forget_tapes
from timing import bar, medians

FEW, MANY = 2_000, 22_000
RUNS = 5


def main() -> None:
    """Measure and print."""
    x = np.ones((4, 4), np.float32)
    shape = nkilab.spec((4, 4), "float32")
    with nkilab.activate():
        from overhead_kernels import dst_first, subscripted, value_returning

        machine = api.machine_for(None)

        def computed(kernel: object) -> Callable[[int], object]:
            return lambda repeats: (forget_tapes(), nkilab.simulate(kernel)(x, repeats))

        def again(kernel: object) -> Callable[[int], object]:
            return lambda repeats: nkilab.simulate(kernel)(x, repeats)

        def traced(kernel: object) -> Callable[[int], object]:
            nki_kernel = api.as_kernel(kernel)
            return lambda repeats: launch(nki_kernel, (shape, repeats), {}, machine, has_data=False)

        kinds = {
            "dst-first": computed(dst_first),
            "value-returning": computed(value_returning),
            "a subscript": computed(subscripted),
            "dst-first, shapes only": traced(dst_first),
            "value-returning, shapes only": traced(value_returning),
        }
        # the first launch of each leaves a tape, which nobody forgets here
        repeated = {"dst-first, again": again(dst_first), "value-returning, again": again(value_returning)}
        times = {}
        for calls in (kinds, repeated):
            actions = {
                (name, n): (lambda call=call, n=n: (call(n), gc.collect()))
                for name, call in calls.items()
                for n in (FEW, MANY)
            }
            times |= medians(actions, RUNS, process_time)
    each = {name: 1e6 * (times[name, MANY] - times[name, FEW]) / (MANY - FEW) for name in (*kinds, *repeated)}
    bars = {"": (3, 4), ", again": (0.7, 0.7), ", shapes only": (0.8, 2)}
    for what, limits in bars.items():
        for name, limit in zip(("dst-first", "value-returning"), limits, strict=True):
            bar(name + what, each[name + what], "us", f"at most {limit}")
    bar("a subscript", each["a subscript"], "us", "at most 1.5")
    add = medians({"add": lambda: [np.add(x, x, out=x.copy()) for _ in range(MANY)]}, RUNS, process_time)[
        "add"
    ]
    bar("np.add with a copy", 1e6 * add / MANY, "us", "none, for comparison")


if __name__ == "__main__":
    main()
