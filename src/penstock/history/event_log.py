"""The event log of a job: a file of JSON lines in a folder, appended to while the job runs."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from penstock.base.local_files import obstacle_to_create
from penstock.errors import HistoryError, first_line
from penstock.history.record import END_STATES

if TYPE_CHECKING:
    from penstock.history.record import Event, JobRecord

log = logging.getLogger("penstock.history")

SUFFIX = ".jsonl"


class LogFile(Protocol):
    """A file that grows by lines."""

    def append(self, text: str) -> None:
        """Append text so that it survives a crash of this process."""

    def close(self) -> None:
        """Close the file."""


class LogFolder(Protocol):
    """A folder of event logs."""

    def entries(self) -> list[tuple[str, int, float]]:
        """Return the name, bytes and modification time (seconds since the epoch) of each file."""

    def read(self, name: str, start: int, length: int) -> bytes:
        """Return at most `length` bytes of a file, from the byte `start`."""

    def create(self, name: str) -> LogFile:
        """Create a file."""

    def remove(self, name: str) -> None:
        """Remove a file; a missing file is no error."""


class LocalFile:
    """A log on this machine's file system, readable only by its user, as it contains SQL texts."""

    def __init__(self, path: Path) -> None:
        self._file = os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a", encoding="utf-8")

    def append(self, text: str) -> None:
        """Append text and flush it to the operating system."""
        self._file.write(text)
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class LocalFolder:
    """A folder on this machine; its path may be a ``file:`` URI."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(str(path).removeprefix("file://").removeprefix("file:"))

    def entries(self) -> list[tuple[str, int, float]]:
        """Return the name, bytes and modification time of each file; raise `HistoryError` if that fails."""
        if not self._path.is_dir():
            raise HistoryError(
                f"there is no folder {self._path} with event logs",
                hint="jobs write them to the folder of the option jobmanager.archive.fs.dir",
            )
        statuses = []
        try:
            with os.scandir(self._path) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):  # removed since the listing
                        if entry.is_file():
                            statuses.append((entry.name, entry.stat()))
        except OSError as error:
            raise HistoryError.unreadable(str(self._path), str(error)) from error
        return [(name, status.st_size, status.st_mtime) for name, status in statuses]

    def read(self, name: str, start: int, length: int) -> bytes:
        """Return at most `length` bytes of a file, from the byte `start`."""
        with (self._path / name).open("rb") as file:
            file.seek(start)
            return file.read(length)

    def check(self) -> None:
        """Raise `HistoryError` if files cannot be created in the folder."""
        cause = obstacle_to_create(self._path)
        if cause is not None:
            raise HistoryError.unwritable(str(self._path), cause)

    def create(self, name: str) -> LogFile:
        """Create a file; raise `HistoryError` if it cannot be written."""
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            return LocalFile(self._path / name)
        except OSError as error:
            raise HistoryError.unwritable(str(self._path), str(error)) from error

    def remove(self, name: str) -> None:
        """Remove a file; a missing file is no error."""
        (self._path / name).unlink(missing_ok=True)


class EventLog:
    """The writer of a job's event log; it closes the log when the job ends. Thread-safe.

    The first error is reported once by the logger ``penstock.history``. Then the writer stops, and the job continues.
    """

    def __init__(self, file: LogFile, job_id: str = "") -> None:
        self._file: LogFile | None = file
        self._job_id = job_id
        self._lock = threading.Lock()

    def write(self, events: list[Event]) -> None:
        """Append events; the event of a final state of the job closes the log."""
        text = "".join(json.dumps(event, default=str, separators=(",", ":")) + "\n" for event in events)
        with self._lock:
            file = self._file
            if file is None:
                return
            try:
                file.append(text)
                if any(event.get("state") in END_STATES for event in events if event["type"] == "state"):
                    file.close()
                    self._file = None
            except Exception as error:  # noqa: BLE001 - file systems of Hadoop raise their own exception classes
                self._file = None
                message = "cannot write to the event log of job %s: %s; the job and its web page continue without it"
                log.warning(message, self._job_id, first_line(error))
                with suppress(Exception):  # closing flushes, which may fail again
                    file.close()


def log_file_name(record: JobRecord) -> str:
    """Return the file name of a job's log; names sort by the start time of the jobs."""
    started = time.strftime("%Y%m%dT%H%M%S", time.gmtime(record.started))
    return f"{started}-{record.id}{SUFFIX}"


def parse_events(data: bytes) -> Iterator[Event]:
    """Yield the events in a log; other lines, such as an incomplete line after a crash, are skipped."""
    for line in data.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            yield event
