"""The pages of the documentation, and the scripts beside them."""

from __future__ import annotations

import sys
from importlib import util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GENERATED = DOCS / "instructions"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md")),
    *sorted(DOCS.rglob("*.md")),
]
# what `python -m nkilab.pages` writes is held by tests/test_pages.py, and its blocks are forms, not programs
WRITTEN = [path for path in PAGES if GENERATED not in path.parents]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def script(path: Path) -> ModuleType:
    """A script of docs/ as a module."""
    name = f"docs_{path.stem}"
    if name not in sys.modules:
        spec = util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        # a dataclass looks its module up
        sys.modules[name] = util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]
