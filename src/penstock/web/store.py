"""Where the API finds jobs: those of this process, and those of a folder with event logs."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool

from penstock.errors import HistoryError
from penstock.history.record import ENDED
from penstock.history.summaries import Summary
from penstock.web.dashboard import Digest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from penstock.history.logs import History
    from penstock.history.record import JobRecord

_KEPT = 200
"""Jobs of this process that are kept; those that run are kept in any case."""
_DIGESTED = 200
"""Jobs that the dashboard looks into."""
_POLL = 2.0
"""Seconds between looks at the folder, while somebody watches."""
_PAUSE = 0.3
"""Seconds between two messages to one reader; what changed meanwhile is one change."""
_SIGN_OF_LIFE = 15.0


class JobStore:
    """Jobs by their ids.

    Parameters
    ----------
    history
        Event logs of earlier jobs, if there are any.
    """

    def __init__(self, history: History | None = None) -> None:
        self._history = history
        self._live: OrderedDict[str, tuple[JobRecord, Callable[[str], None]]] = OrderedDict()
        self._lock = threading.Lock()
        self._version = 0
        self._digests: dict[str, Digest] = {}
        self._looked, self._seen = float("-inf"), 0
        self._watchers: set[tuple[asyncio.AbstractEventLoop, asyncio.Event, str | None]] = set()

    def add(self, record: JobRecord, cancel: Callable[[str], None]) -> None:
        """Take a job of this process, and how to cancel it."""
        with self._lock:
            self._live[record.id] = (record, cancel)
            ended = [job_id for job_id, (one, _) in self._live.items() if one.is_ended]
            for job_id in ended[: max(len(self._live) - _KEPT, 0)]:
                del self._live[job_id]
        self.changed(record)

    def changed(self, record: JobRecord) -> None:
        """Wake those who watch a job, or all jobs."""
        self._version += 1
        for loop, event, job_id in tuple(self._watchers):
            if job_id in {None, record.id}:
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(event.set)

    @property
    def version(self) -> int:
        """A number that grows with every change of a job of this process."""
        return self._version

    def summaries(self) -> list[Summary]:
        """Return all jobs, newest first."""
        with self._lock:
            live = [Summary.of(record.frozen()) for record, _ in self._live.values()]
        known = {job.id for job in live}
        try:
            earlier = [job for job in self._history.summaries() if job.id not in known] if self._history else []
        except HistoryError:
            # A folder appears with the first log that is written to it.
            earlier = []
        return sorted([*live, *earlier], key=lambda job: job.started, reverse=True)

    @property
    def unread(self) -> int:
        """How many event logs could not be read when all jobs were last listed."""
        return self._history.unread if self._history else 0

    def record(self, job_id: str) -> JobRecord | None:
        """Return what is known of a job, or None; the log of one that is not of this process may have to be read."""
        found = self._live.get(job_id)
        if found is not None:
            return found[0]
        try:
            return self._history.record(job_id) if self._history else None
        except HistoryError:
            return None

    def is_here(self, job_id: str) -> bool:
        """Return whether a job is one of this process, whose Spark can be looked at."""
        return job_id in self._live

    def earlier(self, record: JobRecord) -> list[Summary]:
        """Return the jobs of the same name that started before one, the latest first."""
        return [
            job
            for job in self.summaries()
            if job.name == record.name and job.started < record.started and job.id != record.id
        ]

    def digests(self) -> list[Digest]:
        """Return what the latest jobs that have ended add to the dashboard; each is looked into once."""
        found: dict[str, Digest] = {}
        for job_id in [job.id for job in self.summaries() if job.state in ENDED][:_DIGESTED]:
            known = self._digests.get(job_id)
            if known is None and (record := self.record(job_id)) is not None:
                known = Digest.of(record)
            if known is not None:
                found[job_id] = known
        self._digests = found
        return list(found.values())

    def cancel(self, job_id: str) -> bool:
        """Cancel a job; return whether it is one that runs in this process."""
        found = self._live.get(job_id)
        if found is None or found[0].is_ended:
            return False
        found[1]("cancelled through the API")
        return True

    async def versions(self, job_id: str | None) -> AsyncIterator[int | None]:
        """Iterate over a number that differs after every change of a job, or of all; None is a sign of life."""
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        watcher = (loop, event, job_id)
        self._watchers.add(watcher)
        # Jobs of this process tell when they change; a folder has to be looked at.
        polled = self._history is not None and job_id not in self._live
        try:
            while True:
                event.clear()
                version = await self._stamp(job_id)
                yield version
                record = await run_in_threadpool(self.record, job_id) if job_id else None
                if record is not None and record.is_ended:
                    return
                await asyncio.sleep(_PAUSE)
                silent_since = time.monotonic()
                while await self._stamp(job_id) == version:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(event.wait(), _POLL if polled else _SIGN_OF_LIFE)
                    event.clear()
                    if time.monotonic() - silent_since >= _SIGN_OF_LIFE:
                        silent_since = time.monotonic()
                        yield None
        finally:
            self._watchers.discard(watcher)

    async def _stamp(self, job_id: str | None) -> int:
        live = self._live.get(job_id) if job_id else None
        if live is not None:
            return live[0].version
        # A folder may be slow: the requests of others must not wait for it.
        return self._version + (await run_in_threadpool(self._folder_stamp) if self._history else 0)

    def _folder_stamp(self) -> int:
        """Return a number that differs when a log has grown; the folder is looked at once a second at most."""
        if self._history is not None and time.monotonic() - self._looked > 1:
            self._looked = time.monotonic()
            with contextlib.suppress(HistoryError):
                self._seen = hash(tuple(self._history.stamp()))
        return self._seen
