"""Summaries of jobs, read from the first and the last lines of their logs."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.history.event_log import parse_events
from penstock.history.record import END_STATES, INTERRUPTED, JobRecord

if TYPE_CHECKING:
    from penstock.history.event_log import LogFolder
    from penstock.history.record import Event

_HEAD_BYTES, _TAIL_BYTES = 1 << 16, 1 << 12
"""The bytes of the first reads at the beginning and at the end of a log; nearly always enough."""
_GROWTH_FACTOR = 4
"""How many times larger the next read is if the previous read was too short."""

_TIME_LIMIT = 253_402_300_800.0
"""The year 10000 in seconds since the epoch; later times cannot be formatted."""
_PID_LIMIT = 1 << 31
"""Process ids are below this number on every system."""
_STALE_SECONDS = 3600.0
"""Seconds without a change after which an unfinished log of another machine counts as interrupted."""


def is_driver_alive(host: str, pid: int, modified: float) -> bool:
    """Whether the driver that writes a log is alive; on another machine, only a recent change of the log shows that.

    `modified` is the time when the log was last changed, in seconds since the epoch.
    """
    if host != socket.gethostname():
        return time.time() - modified < _STALE_SECONDS
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError, ValueError):  # a process of another user, or an id that cannot be checked
        return True
    return True


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of a job; times are in seconds since the epoch, and `changed` is the time of the last event."""

    id: str
    name: str
    state: str
    started: float
    ended: float | None
    changed: float
    counts: dict[str, int]
    """The number of vertices in each state, and as ``pending-operators`` the number of operators without a vertex."""

    @classmethod
    def of(cls, record: JobRecord) -> Summary:
        """Return the summary of a record."""
        return cls(
            record.id, record.name, record.state, record.started, record.ended, record.changed, record.status_counts()
        )

    def seconds(self, now: float) -> float:
        """Return the seconds from the start of the job to its end, or to the time `now` if it has not ended."""
        return (self.ended if self.ended is not None else now) - self.started

    @property
    def pending(self) -> int:
        """The number of operators that are not part of a vertex yet."""
        return self.counts.get("pending-operators", 0)

    @property
    def vertex_count(self) -> int:
        """The number of vertices."""
        return sum(self.counts.values()) - self.pending


@dataclass(frozen=True, slots=True)
class LogHeader:
    """The summary of the job of a log, and the driver that writes it."""

    summary: Summary
    host: str
    pid: int

    @classmethod
    def of(cls, folder: LogFolder, name: str, size: int) -> LogHeader | None:
        """Read both ends of a log; return None if it is not an event log. Raise `ValueError` as `check` does."""
        record = JobRecord()
        first_line = _first_line(folder, name, size)
        for event in parse_events(first_line):
            record.apply(event)
        if record.id == "?":
            return None
        counts: dict[str, int] = {}
        for event in _last_events(folder, name, len(first_line), size):
            record.changed = max(record.changed, float(event.get("at", 0.0)))
            if event.get("type") == "state":
                record.apply(event)
                counts = event.get("counts", counts)
        if not record.is_ended:
            record.state = "RUNNING"
        header = cls(replace(Summary.of(record), counts=counts), record.host, record.pid)
        header.check()
        return header

    def check(self) -> None:
        """Raise `ValueError` for a value of an unexpected type or size, because other users may write to the folder."""
        job = self.summary
        times = [job.started, job.changed, *([] if job.ended is None else [job.ended])]
        checks = {
            "text": all(isinstance(text, str) for text in (job.id, job.name, job.state, self.host)),
            "time": all(isinstance(at, (int, float)) and 0 <= at < _TIME_LIMIT for at in times),
            "process id": isinstance(self.pid, int) and 0 <= self.pid < _PID_LIMIT,
            "number of steps": isinstance(job.counts, dict)
            and all(isinstance(state, str) and isinstance(count, int) for state, count in job.counts.items()),
        }
        invalid = [name for name, is_valid in checks.items() if not is_valid]
        if invalid:
            raise ValueError(f"its first or last lines have a {invalid[0]} of an unexpected type or size")

    def current_summary(self, modified: float) -> Summary:
        """Return the current state of the job: an unfinished job is interrupted if its driver is dead.

        `modified` is the time when the log was last changed, in seconds since the epoch.
        """
        job = self.summary
        if job.state in END_STATES or is_driver_alive(self.host, self.pid, modified):
            return job
        return replace(job, state=INTERRUPTED, ended=job.changed)


def _first_line(folder: LogFolder, name: str, size: int) -> bytes:
    length = _HEAD_BYTES
    while True:
        first_line, line_break, _ = folder.read(name, 0, min(size, length)).partition(b"\n")
        if line_break or length >= size:
            return first_line
        length *= _GROWTH_FACTOR


def _last_events(folder: LogFolder, name: str, first_line_bytes: int, size: int) -> list[Event]:
    """Return the last events of a log, at least from the last event with the state of the job.

    In the log of a running or interrupted job, hundreds of decisions and tasks may follow that event.
    """
    length = _TAIL_BYTES
    while True:
        start = max(size - length, first_line_bytes)
        # The text before the first line break is the end of a line that begins before `start`.
        events = list(parse_events(folder.read(name, start, size - start).partition(b"\n")[2]))
        if start == first_line_bytes or any(event.get("type") == "state" for event in events):
            return events
        length *= _GROWTH_FACTOR
