"""Findings that the user silences: by a comment on the line, or in pyproject.toml.

nisa.dma_copy(a, cache)  # nkilab: ignore[race-dynamic-hbm] no row is read that was just stored

[tool.nkilab.check]
ignore = ["unread-input"]
per-file-ignores = { "legacy/*.py" = ["race-dynamic-hbm"] }
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path
from stat import S_ISREG
from typing import Any

from msgspec import Struct, field

from ..errors import UsageError, did_you_mean
from .declare import RULES, Example, rule
from .finding import Finding, Site
from .sources import Ignore, Sources

_SILENCED = "tiles: tile f32[128,512] sbuf < x; out f32[128,512] hbm\n" \
            "nisa.dma_copy(out, tile)  # nkilab: ignore[{}"  # fmt: skip
BAD_COMMENT = rule("ignore-comment", "comments", "warning",
    title="a comment that silences a rule names the rule and a reason",
    what="a comment `# nkilab: ignore` names no rule, a rule that does not exist, or no reason",
    why="without a name it would hide what is found later; without a reason nobody dares to remove it",
    fix="write `# nkilab: ignore[RULE] reason`", source="docs/checks.md, Silencing",
    kernel=Example(_SILENCED, {"x": "f32[128,512]"}),
    wrong="unwritten-read]", right="unwritten-read] the pad is never used",
)  # fmt: skip

_KEYS = ("ignore", "per-file-ignores")


class Settings(Struct, frozen=True):
    """What a pyproject.toml silences: everywhere, and by patterns of paths, which count from its folder."""

    folder: Path = Path()
    ignore: tuple[str, ...] = ()
    per_file: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def silences(self, finding: Finding) -> bool:
        """Whether a finding is silenced."""
        if finding.rule in self.ignore:
            return True
        if not self.per_file:
            return False
        path = Path(finding.site.file)
        try:
            relative = path.resolve().relative_to(self.folder).as_posix()
        except ValueError:
            relative = path.as_posix()
        return any(
            finding.rule in rules for pattern, rules in self.per_file.items() if fnmatch(relative, pattern)
        )


def settings_near(file: str) -> Settings:
    """The settings in the nearest pyproject.toml above a file that has some.

    Raises:
        UsageError: if they hold a key or rule that does not exist, or the file is no TOML.
    """
    for path in _settings_files(os.path.abspath(file)):
        try:
            status = os.stat(path)
        except OSError:
            continue
        settings = _settings_in(path, status.st_mtime_ns) if S_ISREG(status.st_mode) else None
        if settings is not None:
            return settings
    return Settings()


@lru_cache(64)
def _settings_files(file: str) -> tuple[Path, ...]:
    """Where settings of a file may stand, the nearest first."""
    return tuple(folder / "pyproject.toml" for folder in Path(file).resolve().parents)


@lru_cache(16)
def _settings_in(path: Path, _changed: int) -> Settings | None:
    """The settings in a file as it was when it was last changed; None if it has none."""
    try:
        table = tomllib.loads(path.read_text("utf-8")).get("tool", {}).get("nkilab", {}).get("check")
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
    return None if table is None else _settings(path, table)


def _settings(path: Path, table: Any) -> Settings:
    unknown = sorted(set(table) - set(_KEYS)) if isinstance(table, dict) else ["tool.nkilab.check"]
    if unknown:
        raise UsageError(
            f"{path}: [tool.nkilab.check] has {', '.join(unknown)}; its keys are {', '.join(_KEYS)}"
        )
    per_file = {p: _rules(path, rules) for p, rules in dict(table.get("per-file-ignores", {})).items()}
    return Settings(path.parent, _rules(path, table.get("ignore", [])), per_file)


def _rules(path: Path, entries: Any) -> tuple[str, ...]:
    if not isinstance(entries, list) or not all(isinstance(name, str) for name in entries):
        raise UsageError(f"{path}: rules are {entries!r}; they are a list of names")
    for name in entries:
        if name not in RULES:
            raise UsageError(f"{path}: there is no rule {name}", hint=did_you_mean(name, RULES))
    return tuple(entries)


def find(sources: Sources, files: Iterable[str]) -> Iterator[Finding]:
    """Comments that silence nothing in particular, or for no reason."""
    for file in files:
        for ignore in sources.file(file).ignores:
            yield from _faults(ignore, Site(file, ignore.line))


def _faults(ignore: Ignore, site: Site) -> Iterator[Finding]:
    unknown = [name for name in ignore.rules if name not in RULES]
    if not ignore.rules:
        yield BAD_COMMENT.finding("the comment names no rule", site)
    elif unknown:
        fix = did_you_mean(unknown[0], RULES)
        yield BAD_COMMENT.finding(f"there is no rule {unknown[0]}", site, fix=fix)
    elif not ignore.reason:
        yield BAD_COMMENT.finding(f"the comment gives no reason to ignore {', '.join(ignore.rules)}", site)


def is_silenced(finding: Finding, sources: Sources, settings: Settings) -> bool:
    """Whether a comment on either line of a finding, or the settings, silence it."""
    if settings.silences(finding):
        return True
    return any(
        finding.rule in ignore.rules and ignore.reason and ignore.first <= site.line <= ignore.last
        for site in (finding.site, finding.other_site)
        if site.file
        for ignore in sources.file(site.file).ignores
    )
