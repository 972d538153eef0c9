"""Incremental reading of a job's event log."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

from penstock.history.record import JobRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.history.event_log import LogFolder
    from penstock.history.record import Event


def events_of(data: bytes) -> Iterator[Event]:
    """Yield the events in a log; an incomplete line, which a crash may leave, is skipped."""
    for line in data.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            yield event


class LogReader:
    """An incremental reader of a log, which reads each line once. Thread-safe.

    Parameters
    ----------
    folder, name
        The location of the log.
    """

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


def _complete_events(data: bytes) -> tuple[list[Event], int]:
    """Return the events of the complete lines, and the number of their bytes: the last line may be incomplete."""
    end = data.rfind(b"\n") + 1
    # A part of a line is never valid JSON, so a valid last line only lacks its line break.
    last = list(events_of(data[end:]))
    return [*events_of(data[:end]), *last], len(data) if last else end
