"""The files of an event log of Spark, and their events, one at a time: logs may have gigabytes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from penstock.doctor.compression import Truncated, chunks
from penstock.errors import DoctorError

Event = dict[str, Any]
_ROLLED = re.compile(r"events_(?P<number>\d+)_.+?(?P<compacted>\.compact)?")
_ROLLING_FOLDER = "eventlog_v2_"
_EVENT_NAME = re.compile(rb'\{\s*"Event"\s*:\s*"(?:[\w.]+\.)?(?P<name>\w+)"')
_HEAD_BYTES = 256
"""The first bytes of a line, which have the name of its event."""
_MAX_LINE = 1 << 28
"""Longer lines count as damaged."""


class _Line:
    """A line, chunk by chunk. If it is too long or its event is not in `names`, only its first bytes are retained."""

    def __init__(self, names: Collection[bytes]) -> None:
        self._names = names
        self._clear()

    def _clear(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._is_cut = False

    def add(self, part: bytes) -> None:
        if not self._is_cut:
            self._parts.append(part)
        head_is_complete = self._size < _HEAD_BYTES <= self._size + len(part)
        self._size += len(part)
        if self._size > _MAX_LINE or (head_is_complete and not self._is_read()):
            self._parts, self._is_cut = [self.head], True

    def take(self) -> bytes:
        """Return the line, and begin the next."""
        line = b"".join(self._parts)
        self._clear()
        return line

    @property
    def head(self) -> bytes:
        """The first bytes."""
        parts, size = [], 0
        for part in self._parts:
            parts.append(part[:_HEAD_BYTES])
            size += len(parts[-1])
            if size >= _HEAD_BYTES:
                break
        return b"".join(parts)[:_HEAD_BYTES]

    @property
    def is_foreign(self) -> bool:
        """Whether the line is no event."""
        return self._is_cut and _EVENT_NAME.match(self._parts[0]) is None

    def _is_read(self) -> bool:
        match = _EVENT_NAME.match(self.head)
        return match is not None and match["name"] in self._names


class LogFiles:
    """The files of an event log, in order. `names` are their names; `is_incomplete` says whether its start is missing.

    `damaged_lines` and `is_truncated` are complete after `events` has ended. A log is truncated if its last line or
    compressed block is incomplete, as it is while the application runs.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._files, self.is_incomplete = _files(self.path)
        self.damaged_lines = 0
        self.is_truncated = False
        self.bytes = sum(file.stat().st_size for file in self._files)
        self._count = 0

    @property
    def names(self) -> list[str]:
        """The names of the files."""
        return [file.name for file in self._files]

    def events(self, names: Collection[bytes], progress: Callable[[int], None] | None = None) -> Iterator[Event]:
        """Yield the events with some names; raise `DoctorError` if the files are not an event log.

        `progress` is called with the number of bytes of each finished file.
        """
        self._count = 0
        for file in self._files:
            is_last = file == self._files[-1]
            for line in self._lines(file, names):
                match = _EVENT_NAME.match(line)
                if match is None:
                    if not self._count:
                        raise DoctorError.not_an_event_log(str(file), line[:60].decode("utf-8", "replace"))
                    self.damaged_lines += bool(line.strip())
                    continue
                self._count += 1
                if match["name"] not in names:
                    continue
                try:
                    event = json.loads(line)
                except (ValueError, RecursionError):  # a generated plan may be too deep for the parser
                    self.damaged_lines += 1
                    continue
                yield event
            if not is_last and self.is_truncated:
                self.damaged_lines += 1
                self.is_truncated = False
            if progress is not None:
                progress(file.stat().st_size)
        if not self._count:
            raise DoctorError.empty_log(str(self.path))

    def _lines(self, file: Path, names: Collection[bytes]) -> Iterator[bytes]:
        """Yield the complete lines of a file; the rest after the last line break only if it is an event.

        Of events without one of the names, and of lines that are too long, the first bytes are enough.
        """
        line = _Line(names)
        try:
            for chunk in chunks(file):
                *ends, rest = chunk.split(b"\n")
                for end in ends:
                    line.add(end)
                    yield line.take()
                line.add(rest)
                if line.is_foreign and not self._count:
                    break  # not a log, and perhaps very long
        except Truncated:
            self.is_truncated = True
        except OSError as error:
            raise DoctorError.unreadable(str(file), str(error)) from error
        rest = line.take()
        if not rest.strip():
            return
        if rest.rstrip().endswith(b"}") and _is_json(rest):
            yield rest
        elif _EVENT_NAME.match(rest):
            self.is_truncated = True
        else:
            yield rest  # reported as a line that is not an event


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _files(path: Path) -> tuple[list[Path], bool]:
    """Return the files of the log at a path, in order, and whether the first files of a rolling log are missing."""
    if path.is_file():
        return [path], False
    if not path.is_dir():
        raise DoctorError.missing(str(path))
    if path.name.startswith(_ROLLING_FOLDER) or any(_ROLLED.match(file.name) for file in path.iterdir()):
        return _rolled_files(path)
    logs = sorted(entry for entry in path.iterdir() if not entry.name.startswith((".", "_")))
    if len(logs) != 1:
        raise DoctorError.no_single_log(str(path), [entry.name for entry in logs])
    return _files(logs[0])


def _rolled_files(folder: Path) -> tuple[list[Path], bool]:
    """Return the files of a rolling log: the latest compacted file and those after it."""
    rolled = [(match, file) for file in folder.iterdir() if (match := _ROLLED.fullmatch(file.name))]
    if not rolled:
        raise DoctorError.empty_log(str(folder))
    compacted = max((int(match["number"]) for match, _ in rolled if match["compacted"]), default=0)
    numbered = sorted(
        (int(match["number"]), file)
        for match, file in rolled
        if int(match["number"]) > compacted or (match["compacted"] and int(match["number"]) == compacted)
    )
    return [file for _, file in numbered], compacted > 0 or numbered[0][0] > 1
