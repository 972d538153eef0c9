"""Reads the log of a job as it grows."""

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
    """Iterate over the events in a log; a torn line, which a crash leaves at its end, is passed over."""
    for line in data.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            yield event


class LogReader:
    """Reads one log again and again: each line once. Safe to use from several threads.

    Parameters
    ----------
    folder, name
        Where the log lies.
    """

    def __init__(self, folder: LogFolder, name: str) -> None:
        self._folder = folder
        self._name = name
        self._record = JobRecord()
        self._taken = 0
        self._lock = threading.Lock()

    def read(self, size: int) -> JobRecord:
        """Return what a log of so many bytes tells, as a record that stays as it is."""
        with self._lock:
            if size < self._taken:  # it was written anew
                self._record, self._taken = JobRecord(), 0
            if size > self._taken:
                data = self._folder.read(self._name, self._taken, size - self._taken)
                events, length = _whole(data)
                self._record.apply_all(events)
                self._taken += length
            return self._record.frozen()


def _whole(data: bytes) -> tuple[list[Event], int]:
    """Return the events at the beginning of some bytes, and how many bytes they are: the last line may still grow."""
    end = data.rfind(b"\n") + 1
    # No part of a line can be read as an event: one that can is whole, and only its end of line is missing.
    last = list(events_of(data[end:]))
    return [*events_of(data[:end]), *last], len(data) if last else end
