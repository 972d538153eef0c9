"""The event logs in a folder: summaries of all jobs, and the full record of each job."""

from __future__ import annotations

import logging
import re
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from penstock.base.units import show_count
from penstock.errors import HistoryError, first_line
from penstock.history.event_log import SUFFIX, events_of
from penstock.history.record import JobRecord
from penstock.history.summaries import LogHeader, is_alive

if TYPE_CHECKING:
    from penstock.history.event_log import LogFolder
    from penstock.history.record import Event
    from penstock.history.summaries import Summary

log = logging.getLogger("penstock.history")

_ID = re.compile(r"[0-9a-f]{12}")
_STAMP = len("20261122T120000")
_MAX_READERS = 32
"""The most log readers, each with its record, in memory."""


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
            return self._record.frozen()


class History:
    """The event logs in a folder; subfolders are ignored. All methods raise `HistoryError` if there is no such folder.

    `unread` is the number of logs that could not be read when all jobs were last listed.
    """

    def __init__(self, folder: LogFolder) -> None:
        self.unread = 0
        self._folder = folder
        self._headers: dict[str, tuple[tuple[int, float], LogHeader | None]] = {}
        self._readers: OrderedDict[str, LogReader] = OrderedDict()
        self._lock = threading.Lock()

    def stamp(self) -> list[tuple[str, int, float]]:
        """Return the name, bytes and modification time of each log, newest first."""
        return sorted((entry for entry in self._folder.entries() if entry[0].endswith(SUFFIX)), reverse=True)

    def summaries(self) -> list[Summary]:
        """Return all readable jobs, newest first; reads only the first and last lines of logs that have grown."""
        summaries, headers, unread = [], {}, {}
        for name, size, modified in self.stamp():
            entry = self._headers.get(name)
            if entry is None or entry[0] != (size, modified):
                try:
                    entry = (size, modified), LogHeader.of(self._folder, name, size)
                except FileNotFoundError:  # removed since the listing
                    continue
                except Exception as error:  # noqa: BLE001 - file systems of Hadoop raise errors of their own
                    unread[name] = first_line(error)
                    continue
            headers[name] = entry
            if entry[1] is not None:
                summaries.append(entry[1].now(modified))
        self._headers = headers
        self._report(unread)
        return summaries

    def _report(self, unread: dict[str, str]) -> None:
        """Log the number of unreadable logs if it has changed."""
        if unread and len(unread) != self.unread:
            name, reason = next(iter(unread.items()))
            log.warning("%s cannot be read: %s: %s", show_count(len(unread), "event log"), name, reason)
        self.unread = len(unread)

    def ids(self, prefix: str) -> list[str]:
        """Return the job ids that begin with a prefix, newest first."""
        job_ids = (name[_STAMP + 1 :].removesuffix(SUFFIX) for name, _, _ in self.stamp())
        return [job_id for job_id in job_ids if _ID.fullmatch(job_id) and job_id.startswith(prefix.lower())]

    def record(self, job_id: str) -> JobRecord | None:
        """Return a snapshot of a job's record, None without a log; raise `HistoryError` if the log is unreadable."""
        if not _ID.fullmatch(job_id):
            return None
        entry = next((log for log in self.stamp() if log[0] == f"{log[0][:_STAMP]}-{job_id}{SUFFIX}"), None)
        if entry is None:
            return None
        name, size, modified = entry
        try:
            record = self._reader(name).read(size)
        except Exception as error:
            self._readers.pop(name, None)  # its record may be inconsistent
            raise HistoryError.unreadable(name, first_line(error)) from error
        if not record.is_ended and not is_alive(record.host, record.pid, modified):
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
    """Return the events of the complete lines, and the number of their bytes: the last line may be incomplete."""
    end = data.rfind(b"\n") + 1
    # A part of a line is never valid JSON, so a valid last line only lacks its line break.
    last = list(events_of(data[end:]))
    return [*events_of(data[:end]), *last], len(data) if last else end
