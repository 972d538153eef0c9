"""The event logs in a folder: summaries of all jobs, and the full record of each job."""

from __future__ import annotations

import logging
import re
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from penstock.base.units import show_count
from penstock.errors import HistoryError, first_line
from penstock.history.event_log import SUFFIX, parse_events
from penstock.history.record import JobRecord
from penstock.history.summaries import LogHeader, is_driver_alive

if TYPE_CHECKING:
    from penstock.history.event_log import LogFolder
    from penstock.history.record import Event
    from penstock.history.summaries import Summary

log = logging.getLogger("penstock.history")

_ID = re.compile(r"[0-9a-f]{12}")
_TIME_LENGTH = len("20261122T120000")
_MAX_READERS = 32
"""Maximum number of log readers in memory, each with its record."""


class LogReader:
    """An incremental reader of a log, which reads each line once. Thread-safe."""

    def __init__(self, folder: LogFolder, name: str) -> None:
        self._folder = folder
        self._name = name
        self._record = JobRecord()
        self._offset = 0
        self._lock = threading.Lock()

    def read(self, size: int) -> JobRecord:
        """Read the log up to a size in bytes; return a snapshot of its record."""
        with self._lock:
            if size < self._offset:  # the log was rewritten
                self._record, self._offset = JobRecord(), 0
            if size > self._offset:
                data = self._folder.read(self._name, self._offset, size - self._offset)
                events, length = _complete_events(data)
                self._record.apply_all(events)
                self._offset += length
            return self._record.snapshot()


class History:
    """The event logs directly in a folder. If a local folder is missing, a listing raises `HistoryError`.

    `unreadable_count` is the number of logs that the last call of `summaries` could not read.
    """

    def __init__(self, folder: LogFolder) -> None:
        self.unreadable_count = 0
        self._folder = folder
        # By log name: the size and modification time at which the header was read, and the header.
        self._headers: dict[str, tuple[tuple[int, float], LogHeader | None]] = {}
        self._readers: OrderedDict[str, LogReader] = OrderedDict()
        self._lock = threading.Lock()

    def list_logs(self) -> list[tuple[str, int, float]]:
        """Return the name, bytes and modification time of each log, newest first."""
        return sorted((entry for entry in self._folder.entries() if entry[0].endswith(SUFFIX)), reverse=True)

    def summaries(self) -> list[Summary]:
        """Return the summaries of all readable logs, newest first; read only both ends of each changed log."""
        summaries, headers, reasons_by_log = [], {}, {}
        for name, size, modified in self.list_logs():
            cached = self._headers.get(name)
            if cached is None or cached[0] != (size, modified):
                try:
                    cached = (size, modified), LogHeader.of(self._folder, name, size)
                except FileNotFoundError:  # removed since the listing
                    continue
                except Exception as error:  # noqa: BLE001 - file systems of Hadoop raise their own exception classes
                    reasons_by_log[name] = first_line(error)
                    continue
            headers[name] = cached
            if cached[1] is not None:
                summaries.append(cached[1].current_summary(modified))
        self._headers = headers
        self._log_unreadable(reasons_by_log)
        return summaries

    def _log_unreadable(self, reasons_by_log: dict[str, str]) -> None:
        """Store the number of unreadable logs, and log it if it has changed and is not 0."""
        if reasons_by_log and len(reasons_by_log) != self.unreadable_count:
            name, reason = next(iter(reasons_by_log.items()))
            log.warning("%s cannot be read: %s: %s", show_count(len(reasons_by_log), "event log"), name, reason)
        self.unreadable_count = len(reasons_by_log)

    def ids(self, prefix: str) -> list[str]:
        """Return the job ids that begin with a prefix, newest first."""
        job_ids = (name[_TIME_LENGTH + 1 :].removesuffix(SUFFIX) for name, _, _ in self.list_logs())
        return [job_id for job_id in job_ids if _ID.fullmatch(job_id) and job_id.startswith(prefix.lower())]

    def record(self, job_id: str) -> JobRecord | None:
        """Return a snapshot of a job's record, None if it has no log; raise `HistoryError` if its log is unreadable."""
        if not _ID.fullmatch(job_id):
            return None
        entry = next((entry for entry in self.list_logs() if entry[0][_TIME_LENGTH:] == f"-{job_id}{SUFFIX}"), None)
        if entry is None:
            return None
        name, size, modified = entry
        try:
            record = self._reader(name).read(size)
        except Exception as error:
            self._readers.pop(name, None)  # its record may be inconsistent
            raise HistoryError.unreadable(name, first_line(error)) from error
        if not record.is_ended and not is_driver_alive(record.host, record.pid, modified):
            record.interrupt()
        return record

    def _reader(self, name: str) -> LogReader:
        with self._lock:
            reader = self._readers.setdefault(name, LogReader(self._folder, name))
            self._readers.move_to_end(name)
            while len(self._readers) > _MAX_READERS:
                self._readers.popitem(last=False)
            return reader


def _complete_events(data: bytes) -> tuple[list[Event], int]:
    """Return the events of the complete lines and the size of these lines; a running write may cut the last line."""
    end = data.rfind(b"\n") + 1
    # A part of a line is never valid JSON, so a valid last line only lacks its line break.
    last_event = list(parse_events(data[end:]))
    return [*parse_events(data[:end]), *last_event], len(data) if last_event else end
