"""Imported at interpreter start where NKILAB=1: serves the names in a plain `python3 script.py`.

Nothing heavy happens until one of the names is imported: the first finder only watches for it.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any

_NAMES = ("nki", "neuronxcc", "torch_xla", "torch_neuronx", "neuron_dtypes", "nki_cpu_simulator")


class WatchingFinder(MetaPathFinder):
    """Gives way to the real finder when a served name is first asked for."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The spec that is found once the real finder stands."""
        if fullname.partition(".")[0] not in _NAMES or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        import_module("nkilab.hook").switch_on(os.environ.get("NKILAB_NKI", ""), serves_shims=True)
        # the real finder chose its place among the others
        specs = (finder.find_spec(fullname, path, target) for finder in list(sys.meta_path))
        return next((spec for spec in specs if spec is not None), None)


# in front: a folder of the user's may bear the name of a package that it only adds to
sys.meta_path.insert(0, WatchingFinder())
