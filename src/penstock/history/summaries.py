"""Jobs as lists show them, from the first and the last lines of their logs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.history.drivers import INTERRUPTED, is_alive
from penstock.history.reading import events_of
from penstock.history.record import ENDED, JobRecord

if TYPE_CHECKING:
    from penstock.history.event_log import LogFolder
    from penstock.history.record import Event

_HEAD, _TAIL = 1 << 16, 1 << 12
"""Bytes at the beginning and at the end of a log that nearly always tell enough."""
_MORE = 4
"""So many times as much is read where they do not."""


_LAST_TIME = 253_402_300_800.0
"""Seconds since 1970 of the year 10000, behind which no time can be shown."""
_LAST_PID = 1 << 31
"""Process ids are smaller on every system."""


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


@dataclass(frozen=True, slots=True)
class Written:
    """What a log tells of its job in short, and the driver that writes it."""

    summary: Summary
    host: str
    pid: int

    @classmethod
    def of(cls, folder: LogFolder, name: str, size: int) -> Written | None:
        """Read the beginning and the end of a log; None where it does not begin as logs of jobs do."""
        record = JobRecord()
        first = _first_line(folder, name, size)
        for event in events_of(first):
            record.apply(event)
        if record.id == "?":
            return None
        counts: dict[str, int] = {}
        for event in _last_events(folder, name, len(first), size):
            record.changed = max(record.changed, float(event.get("at", 0.0)))
            if event.get("type") == "state":
                record.apply(event)
                counts = event.get("counts", counts)
        if not record.is_ended:
            record.state = "RUNNING"
        written = cls(replace(Summary.of(record), counts=counts), record.host, record.pid)
        written.check()
        return written

    def check(self) -> None:
        """Check the types of all values: a log is a file that anybody may have written.

        Raises
        ------
        ValueError
            If a value is not what a log of a job says.
        """
        job = self.summary
        times = [job.started, job.changed, *([] if job.ended is None else [job.ended])]
        is_valid = {
            "text": all(isinstance(text, str) for text in (job.id, job.name, job.state, self.host)),
            "time": all(isinstance(at, (int, float)) and 0 <= at < _LAST_TIME for at in times),
            "process id": isinstance(self.pid, int) and 0 <= self.pid < _LAST_PID,
            "number of steps": isinstance(job.counts, dict)
            and all(isinstance(state, str) and isinstance(count, int) for state, count in job.counts.items()),
        }
        wrong = [what for what, is_right in is_valid.items() if not is_right]
        if wrong:
            raise ValueError(f"its first or last lines have a {wrong[0]} of another type or size")

    def now(self, modified: float) -> Summary:
        """Return the job as it is now; one without an end is interrupted if its driver does not live any more.

        Parameters
        ----------
        modified
            When the log was changed, seconds since the epoch.
        """
        job = self.summary
        if job.state in ENDED or is_alive(self.host, self.pid, modified):
            return job
        return replace(job, state=INTERRUPTED, ended=job.changed)


def _first_line(folder: LogFolder, name: str, size: int) -> bytes:
    length = _HEAD
    while True:
        first, end, _ = folder.read(name, 0, min(size, length)).partition(b"\n")
        if end or length >= size:
            return first
        length *= _MORE


def _last_events(folder: LogFolder, name: str, first: int, size: int) -> list[Event]:
    """Return the last events of a log, back to one that tells the state of the job.

    Of a job that runs, or was interrupted, hundreds of decisions and tasks may follow it.
    """
    length = _TAIL
    while True:
        start = max(size - length, first)
        # What stands before the first end of line is a part of a line, or was read already.
        events = list(events_of(folder.read(name, start, size - start).partition(b"\n")[2]))
        if start == first or any(event.get("type") == "state" for event in events):
            return events
        length *= _MORE
