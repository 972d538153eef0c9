"""The jobs that the API serves, of this process and of a folder of event logs, and the batches of streams."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool

from penstock.errors import HistoryError, PenstockError
from penstock.history.record import ENDED, JobRecord
from penstock.history.summaries import Summary
from penstock.web.dashboard import Digest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from penstock.history.logs import History
    from penstock.streams.progress import BatchRecord
    from penstock.streams.reading import TextFiles

_MAX_LIVE = 200
"""The most jobs of this process in memory; running jobs are never removed."""
_MAX_DIGESTS = 200
"""The most jobs that the dashboard analyzes."""
_POLL = 2.0
"""Seconds between two polls of the folder while a client watches."""
_PAUSE = 0.3
"""The least seconds between two messages to a client; changes in between are merged."""
_HEARTBEAT = 15.0
"""Seconds without changes after which a client gets a heartbeat."""


class JobStore:
    """Jobs by their ids; `history` has the event logs of earlier jobs, None without a folder.

    `version` is a number that increases with every change of a job of this process.
    """

    def __init__(self, history: History | None = None) -> None:
        self._history = history
        self._live: OrderedDict[str, tuple[JobRecord, Callable[[str], None]]] = OrderedDict()
        self._lock = threading.Lock()
        self.version = 0
        self._digests: dict[str, Digest] = {}
        self._polled_at, self._folder_hash = float("-inf"), 0
        self._watchers: set[tuple[asyncio.AbstractEventLoop, asyncio.Event, str | None]] = set()

    def add(self, record: JobRecord, cancel: Callable[[str], None]) -> None:
        """Add a job of this process, with a function that cancels it for a reason."""
        with self._lock:
            self._live[record.id] = (record, cancel)
            ended = [job_id for job_id, (live, _) in self._live.items() if live.is_ended]
            for job_id in ended[: max(len(self._live) - _MAX_LIVE, 0)]:
                del self._live[job_id]
        self.changed(record)

    def changed(self, record: JobRecord) -> None:
        """Notify the clients that watch this job or all jobs."""
        self.version += 1
        for loop, event, job_id in tuple(self._watchers):
            if job_id in {None, record.id}:
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(event.set)

    def summaries(self) -> list[Summary]:
        """Return all jobs, newest first."""
        with self._lock:
            live = [Summary.of(record.frozen()) for record, _ in self._live.values()]
        live_ids = {job.id for job in live}
        try:
            earlier = [job for job in self._history.summaries() if job.id not in live_ids] if self._history else []
        except HistoryError:
            # The folder is created with the first log.
            earlier = []
        return sorted([*live, *earlier], key=lambda job: job.started, reverse=True)

    @property
    def unread(self) -> int:
        """The number of event logs that could not be read when all jobs were last listed."""
        return self._history.unread if self._history else 0

    def record(self, job_id: str) -> JobRecord | None:
        """Return the record of a job, from memory or from its event log; None if there is neither."""
        live = self._live.get(job_id)
        if live is not None:
            return live[0]
        try:
            return self._history.record(job_id) if self._history else None
        except HistoryError:
            return None

    def is_local(self, job_id: str) -> bool:
        """Return whether a job belongs to this process, so that Spark's own pages show it."""
        return job_id in self._live

    def earlier(self, record: JobRecord) -> list[Summary]:
        """Return the jobs of the same name that started before a job, the latest first."""
        return [
            job
            for job in self.summaries()
            if job.name == record.name and job.started < record.started and job.id != record.id
        ]

    def digests(self) -> list[Digest]:
        """Return the digests of the latest ended jobs for the dashboard; each is computed once."""
        digests: dict[str, Digest] = {}
        for job_id in [job.id for job in self.summaries() if job.state in ENDED][:_MAX_DIGESTS]:
            digest = self._digests.get(job_id)
            if digest is None and (record := self.record(job_id)) is not None:
                digest = Digest.of(record)
            if digest is not None:
                digests[job_id] = digest
        self._digests = digests
        return list(digests.values())

    def cancel(self, job_id: str) -> bool:
        """Cancel a job; return False if it does not run in this process."""
        record, cancel = self._live.get(job_id, (None, None))
        if record is None or cancel is None or record.is_ended:
            return False
        cancel("cancelled through the API")
        return True

    async def versions(self, job_id: str | None) -> AsyncIterator[int | None]:
        """Yield a different number after every change of a job, or of any job; None is a heartbeat."""
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        watcher = (loop, event, job_id)
        self._watchers.add(watcher)
        # Jobs of this process notify the store; a folder has to be polled.
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
                        await asyncio.wait_for(event.wait(), _POLL if polled else _HEARTBEAT)
                    event.clear()
                    if time.monotonic() - silent_since >= _HEARTBEAT:
                        silent_since = time.monotonic()
                        yield None
        finally:
            self._watchers.discard(watcher)

    async def _stamp(self, job_id: str | None) -> int:
        live = self._live.get(job_id) if job_id else None
        if live is not None:
            return live[0].version
        # Listing the folder may be slow, so it must not block the event loop.
        return self.version + (await run_in_threadpool(self._folder_stamp) if self._history else 0)

    def _folder_stamp(self) -> int:
        """Return a number that changes when a log has grown; the folder is listed at most once a second."""
        if self._history is not None and time.monotonic() - self._polled_at > 1:
            self._polled_at = time.monotonic()
            with contextlib.suppress(HistoryError):
                self._folder_hash = hash(tuple(self._history.stamp()))
        return self._folder_hash


@dataclass(frozen=True, slots=True)
class Stream:
    """A checkpoint and its batches, the latest first; `problem` says why they cannot be read, None if they can."""

    checkpoint: str
    batches: tuple[BatchRecord, ...]
    problem: str | None


def streams_of(locations: Sequence[TextFiles]) -> list[Stream]:
    """Read all checkpoints."""
    streams = []
    for location in locations:
        from penstock.streams.reading import read_batches  # needs PySpark, which serving jobs does not

        try:
            streams.append(Stream(str(location), tuple(reversed(read_batches(location))), None))
        except PenstockError as error:
            streams.append(Stream(str(location), (), str(error)))
    return streams
