"""The event log of a job: a file of JSON lines in a folder, appended to while the job runs."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from penstock.errors import HistoryError, first_line
from penstock.history.record import ENDED

if TYPE_CHECKING:
    from penstock.history.record import Event, JobRecord

log = logging.getLogger("penstock.history")

SUFFIX = ".jsonl"


class LogFile(Protocol):
    """A file that grows by lines."""

    def append(self, text: str) -> None:
        """Add text and make sure that a crash of this process does not lose it."""

    def close(self) -> None:
        """Add no more."""


class LogFolder(Protocol):
    """Where logs lie."""

    def entries(self) -> list[tuple[str, int, float]]:
        """Return name, bytes and time of change (seconds since the epoch) of each file."""

    def read(self, name: str, start: int, length: int) -> bytes:
        """Return a part of a file."""

    def create(self, name: str) -> LogFile:
        """Begin a file."""

    def remove(self, name: str) -> None:
        """Remove a file; it may be gone already."""


class LocalFile:
    """A log on this machine's file system. Only its user may read it, as it holds the texts of statements."""

    def __init__(self, path: Path) -> None:
        self._file = os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a", encoding="utf-8")

    def append(self, text: str) -> None:
        """Add text and hand it to the operating system."""
        self._file.write(text)
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class LocalFolder:
    """A folder of this machine."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(str(path).removeprefix("file://").removeprefix("file:"))

    def entries(self) -> list[tuple[str, int, float]]:
        """Return name, bytes and time of change of each file.

        Raises
        ------
        HistoryError
            If there is no such folder, or it cannot be read.
        """
        if not self._path.is_dir():
            raise HistoryError.no_folder(str(self._path))
        statuses = []
        try:
            with os.scandir(self._path) as found:
                for entry in found:
                    with suppress(FileNotFoundError):  # it was removed meanwhile
                        if entry.is_file():
                            statuses.append((entry.name, entry.stat()))
        except OSError as error:
            raise HistoryError.unreadable(str(self._path), str(error)) from error
        return [(name, status.st_size, status.st_mtime) for name, status in statuses]

    def read(self, name: str, start: int, length: int) -> bytes:
        """Return a part of a file."""
        with (self._path / name).open("rb") as file:
            file.seek(start)
            return file.read(length)

    def create(self, name: str) -> LogFile:
        """Begin a file.

        Raises
        ------
        HistoryError
            If it cannot be written.
        """
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            return LocalFile(self._path / name)
        except OSError as error:
            raise HistoryError.unwritable(str(self._path), str(error)) from error

    def remove(self, name: str) -> None:
        """Remove a file; it may be gone already."""
        (self._path / name).unlink(missing_ok=True)


class EventLog:
    """Writes the events of one job, in order, until the job has ended; safe to use from several threads.

    What cannot be written is said once in the log ``penstock.history``, and nothing more is written: the job goes on.

    Parameters
    ----------
    file
        The log.
    job_id
        The job, for the log of Penstock.
    """

    def __init__(self, file: LogFile, job_id: str = "") -> None:
        self._file: LogFile | None = file
        self._job_id = job_id
        self._lock = threading.Lock()

    def write(self, events: list[Event]) -> None:
        """Append events; the end of the job ends the log."""
        text = "".join(json.dumps(event, default=str, separators=(",", ":")) + "\n" for event in events)
        with self._lock:
            file = self._file
            if file is None:
                return
            try:
                file.append(text)
                if any(event.get("state") in ENDED for event in events if event["type"] == "state"):
                    file.close()
                    self._file = None
            except Exception as error:  # noqa: BLE001 - file systems of Hadoop raise errors of their own
                self._give_up(file, error)

    def close(self) -> None:
        """End the log."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _give_up(self, file: LogFile, error: Exception) -> None:
        self._file = None
        log.warning(
            "the event log of job %s cannot be written any more: %s; the page goes on", self._job_id, first_line(error)
        )
        with suppress(Exception):  # it fails again with what it could not write
            file.close()


def log_name(record: JobRecord) -> str:
    """Return the file name of a job's log; names sort by the time jobs started."""
    at = time.strftime("%Y%m%dT%H%M%S", time.gmtime(record.started))
    return f"{at}-{record.id}{SUFFIX}"
