"""Outcomes on disk: a line for each as soon as it is known, whatever happens to the process afterwards.

    {"schema": "nkilab.journal/1", "study": "..."}
    {"constants": "...", "outcome": {...}}

A line that was cut off in the middle is dropped when the journal is opened again. One process writes at a
time.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from stat import S_ISREG
from types import TracebackType
from typing import IO, Any

from .._lazy import fcntl
from ..argument_checks import need
from ..argument_checks import path as path_of
from ..disk import check_no_source
from ..errors import FileError, UsageError, reason_of
from ..tracebacks import public
from .outcome import Outcome, key_of, outcome_from

SCHEMA = "nkilab.journal/1"


class Journal:
    """A file of outcomes of one study.

    Args:
        path: of the file, made if there is none.
        study: names all that outcomes depend on besides the point and the chip's constants.

    Raises:
        FileError: if it cannot be written, or is no journal.
        UsageError: if it is of another study, or another process writes to it.
    """

    @public
    def __init__(self, path: Path, study: str) -> None:
        need("study", study, str, "a text that names what the outcomes depend on")
        self.path = path = path_of("path", path)
        self._known: dict[tuple[str, str], Outcome] = {}
        try:
            check_no_source(path)
            self._file: IO[bytes] = path.open("ab+")
        except OSError as error:
            raise FileError(f"{path} cannot be written: {reason_of(error)}") from None
        try:
            if not S_ISREG(os.fstat(self._file.fileno()).st_mode):
                raise FileError(f"{path} keeps nothing: it is no plain file", hint="name another file")
            self._lock()
            self._read(study)
        except BaseException:
            self._file.close()
            raise

    def _lock(self) -> None:
        """Keep other processes out; the lock ends with this process, however it ends."""
        module = fcntl()
        if module is None:
            return
        try:
            module.flock(self._file, module.LOCK_EX | module.LOCK_NB)
        except OSError:
            raise UsageError(
                f"{self.path} is in use by another process", hint="wait for it, or name another journal"
            ) from None

    def _read(self, study: str) -> None:
        self._file.seek(0)
        content = self._file.read()
        whole = content[: content.rfind(b"\n") + 1]
        if not whole:
            if content and not content.startswith(b'{"'):
                raise self._foreign()
            self._file.truncate(0)
            self._append({"schema": SCHEMA, "study": study})
            return
        lines = whole.splitlines()
        head = self._parsed(lines[0], 1)
        if head.get("schema") != SCHEMA:
            raise self._foreign()
        if head.get("study") != study:
            raise UsageError(
                f"{self.path} is the journal of another search: kernel, shapes, space or chip differ",
                hint="name another journal, or delete this one",
            )
        for number, line in enumerate(lines[1:], 2):
            document = self._parsed(line, number)
            outcome = outcome_from(document["outcome"])
            self._known[document["constants"], key_of(outcome.point)] = outcome
        if len(whole) < len(content):
            self._file.truncate(len(whole))

    def _parsed(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            document = json.loads(line)
            if number > 1:
                _hold_to_form(document)
        except (ValueError, KeyError, TypeError):
            if number == 1:
                raise self._foreign() from None
            raise FileError(
                f"{self.path}:{number}: this line is damaged", hint="delete the line, and the search goes on"
            ) from None
        if not isinstance(document, dict):
            raise self._foreign()
        return document

    def _foreign(self) -> FileError:
        return FileError(f"{self.path} is no journal of nkilab tune", hint="name another file")

    def _append(self, entry: dict[str, Any]) -> None:
        line = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
        try:
            # one write: a process that is killed leaves the line whole or cut off at its end, never mixed
            self._file.write(line)
            self._file.flush()
        except OSError as error:
            raise FileError(f"{self.path} cannot be written: {reason_of(error)}") from None

    def known(self, constants: str) -> dict[str, Outcome]:
        """Outcomes by point, of one set of constants."""
        return {point: outcome for (own, point), outcome in self._known.items() if own == constants}

    def add(self, constants: str, outcome: Outcome) -> None:
        """Write an outcome down; one that is known is not written again."""
        place = (constants, key_of(outcome.point))
        if place not in self._known:
            self._known[place] = outcome
            self._append({"constants": constants, "outcome": outcome.to_dict()})

    def close(self) -> None:
        """Give the file back, all of it on the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _hold_to_form(line: Any) -> None:
    """Raise ValueError, KeyError or TypeError where a line holds no outcome and no name of its constants."""
    outcome_from(line["outcome"])
    if not isinstance(line["constants"], str):
        raise ValueError("constants have a name")
