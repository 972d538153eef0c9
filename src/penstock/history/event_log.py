"""Event logs of jobs in a folder: one file of JSON lines for each, appended to while the job runs."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from penstock.errors import HistoryError
from penstock.history.record import JobRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.history.record import Event

SUFFIX = ".jsonl"
_ID = re.compile(r"[0-9a-f]{12}")
_HEAD, _TAIL = 1 << 16, 4096
_STAMP = len("20261122T120000")
_KEPT = 32
"""Records of ended jobs that are kept in memory."""
_STALE = 3600.0
"""Seconds after which a log of another machine that has no end counts as interrupted."""


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


class LocalFile:
    """A log on this machine's file system."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

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
            If there is no such folder.
        """
        if not self._path.is_dir():
            raise HistoryError.no_folder(str(self._path))
        with os.scandir(self._path) as found:
            statuses = [(entry.name, entry.stat()) for entry in found if entry.is_file()]
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


class EventLog:
    """Writes the events of one job, in order; safe to use from several threads."""

    def __init__(self, file: LogFile) -> None:
        self._file = file
        self._lock = threading.Lock()

    def write(self, events: list[Event]) -> None:
        """Append events."""
        text = "".join(json.dumps(event, default=str, separators=(",", ":")) + "\n" for event in events)
        with self._lock:
            self._file.append(text)

    def close(self) -> None:
        """End the log."""
        with self._lock:
            self._file.close()


def events_of(text: str) -> Iterator[Event]:
    """Iterate over the events in a log; a torn line, which a crash leaves at its end, is passed over."""
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            yield event


@dataclass(frozen=True, slots=True)
class Summary:
    """A job in a list."""

    id: str
    name: str
    state: str
    started: float
    ended: float | None
    changed: float
    counts: dict[str, int]
    """Vertices in each state, and the pending operators."""

    @classmethod
    def of(cls, record: JobRecord) -> Summary:
        """Return the summary of a record."""
        return cls(
            record.id, record.name, record.state, record.started, record.ended, record.changed, record.status_counts()
        )


class History:
    """The event logs in a folder.

    Parameters
    ----------
    folder
        The folder; subfolders are not looked at.
    """

    def __init__(self, folder: LogFolder) -> None:
        self._folder = folder
        self._known: dict[str, tuple[tuple[int, float], Summary]] = {}
        self._records: dict[str, tuple[tuple[int, float], JobRecord]] = {}
        self._lock = threading.Lock()

    def _logs(self) -> list[tuple[str, int, float]]:
        return sorted((entry for entry in self._folder.entries() if entry[0].endswith(SUFFIX)), reverse=True)

    def stamp(self) -> list[tuple[str, int, float]]:
        """Return something that differs when any log has changed.

        Raises
        ------
        HistoryError
            If there is no such folder.
        """
        return self._logs()

    def summaries(self) -> list[Summary]:
        """Return all jobs, newest first; of each log only its first and last lines are read, and only when it grew.

        Raises
        ------
        HistoryError
            If there is no such folder.
        """
        found = []
        for name, size, modified in self._logs():
            known = self._known.get(name)
            if known is None or known[0] != (size, modified) or known[1].state == "RUNNING":
                summary = self._summary(name, size, modified)
                if summary is None:
                    continue
                known = self._known[name] = ((size, modified), summary)
            found.append(known[1])
        return found

    def ids(self, prefix: str) -> list[str]:
        """Return the ids of the jobs that begin with a text, newest first.

        Raises
        ------
        HistoryError
            If there is no such folder.
        """
        found = (name[_STAMP + 1 :].removesuffix(SUFFIX) for name, _, _ in self._logs())
        return [job_id for job_id in found if _ID.fullmatch(job_id) and job_id.startswith(prefix.lower())]

    def record(self, job_id: str) -> JobRecord | None:
        """Return all that is known of a job; None where there is no log of it."""
        if not _ID.fullmatch(job_id):
            return None
        log = next((log for log in self._logs() if log[0] == f"{log[0][:_STAMP]}-{job_id}{SUFFIX}"), None)
        if log is None:
            return None
        name, size, modified = log
        with self._lock:
            kept = self._records.get(job_id)
            if kept is not None and kept[0] == (size, modified) and kept[1].is_ended:
                return kept[1]
        record = JobRecord()
        for event in events_of(self._folder.read(name, 0, size).decode(errors="replace")):
            record.apply(event)
        if not record.is_ended and not _alive(record.host, record.pid, modified):
            _interrupt(record)
        with self._lock:
            self._records[job_id] = ((size, modified), record)
            while len(self._records) > _KEPT:
                del self._records[next(iter(self._records))]
        return record

    def _summary(self, name: str, size: int, modified: float) -> Summary | None:
        """Read the first line and the end of a log."""
        record = JobRecord()
        first = self._folder.read(name, 0, min(size, _HEAD)).partition(b"\n")[0]
        for event in events_of(first.decode(errors="replace")):
            record.apply(event)
        if record.id == "?":
            return None
        start = max(size - _TAIL, len(first))
        counts: dict[str, int] = {}
        for event in events_of(self._folder.read(name, start, size - start).decode(errors="replace")):
            record.changed = max(record.changed, float(event.get("at", 0.0)))
            if event.get("type") == "state":
                record.apply(event)
                counts = event.get("counts", counts)
        if not record.is_ended:
            record.state = "RUNNING"
            if not _alive(record.host, record.pid, modified):
                _interrupt(record)
        return Summary(record.id, record.name, record.state, record.started, record.ended, record.changed, counts)


def log_name(record: JobRecord) -> str:
    """Return the file name of a job's log; names sort by the time jobs started."""
    at = time.strftime("%Y%m%dT%H%M%S", time.gmtime(record.started))
    return f"{at}-{record.id}{SUFFIX}"


def _interrupt(record: JobRecord) -> None:
    record.state = "INTERRUPTED"
    record.ended = record.changed
    for vertex in record.vertices.values():
        if vertex["state"] in {"CREATED", "SCHEDULED", "RUNNING"}:
            vertex["state"] = "CANCELED"


def _alive(host: str, pid: int, modified: float) -> bool:
    """Whether the driver that writes a log still lives, as far as can be told from here."""
    if host != socket.gethostname():
        return time.time() - modified < _STALE
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError, ValueError):
        return True
    return True
