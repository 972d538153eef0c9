"""The jobs that the REST API serves: of this process and of a folder of event logs; and the batches of streams."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool

from penstock.errors import HistoryError, PenstockError
from penstock.history.record import END_STATES, JobRecord
from penstock.history.summaries import Summary
from penstock.web.dashboard import Digest

if TYPE_CHECKING:
    from penstock.history.logs import History
    from penstock.streams.progress import BatchRecord
    from penstock.streams.reading import TextFiles

_MAX_LOCAL_JOBS = 200
"""The most jobs of this process in memory; only ended jobs are removed."""
_MAX_DIGESTS = 200
"""The most jobs that the dashboard analyzes."""
_POLL_SECONDS = 2.0
"""Seconds between two polls of the folder while a client watches."""
_MIN_PAUSE_SECONDS = 0.3
"""The shortest time between two messages to a client; changes in between are merged."""
_HEARTBEAT_SECONDS = 15.0
"""Seconds without changes after which a client gets a heartbeat."""


class JobStore:
    """Jobs by their ids; `history` has the event logs of a folder, None without a folder.

    `version` is a number that increases with every change of a job of this process.
    """

    def __init__(self, history: History | None = None) -> None:
        self._history = history
        self._local_jobs: OrderedDict[str, tuple[JobRecord, Callable[[str], None]]] = OrderedDict()
        self._lock = threading.Lock()
        self.version = 0
        self._digests: dict[str, Digest] = {}
        self._was_compared: dict[str, bool] = {}  # by the id of an ended job: whether plain Spark ran it as well
        self._polled_at, self._folder_hash = float("-inf"), 0
        # The event loop and the event of each client, and the id of the job that it watches; None for all jobs.
        self._watchers: set[tuple[asyncio.AbstractEventLoop, asyncio.Event, str | None]] = set()

    def add(self, record: JobRecord, cancel: Callable[[str], None]) -> None:
        """Add a job of this process, and the function that cancels it with a reason."""
        with self._lock:
            self._local_jobs[record.id] = (record, cancel)
            ended = [job_id for job_id, (local, _) in self._local_jobs.items() if local.is_ended]
            for job_id in ended[: max(len(self._local_jobs) - _MAX_LOCAL_JOBS, 0)]:
                del self._local_jobs[job_id]
        self.notify_watchers(record)

    def notify_watchers(self, record: JobRecord) -> None:
        """Notify the clients that watch this job or all jobs."""
        self.version += 1
        for loop, event, job_id in tuple(self._watchers):
            if job_id in {None, record.id}:
                with contextlib.suppress(RuntimeError):  # the server has stopped and closed the loop
                    loop.call_soon_threadsafe(event.set)

    def summaries(self) -> list[Summary]:
        """Return the summaries of all jobs, newest first."""
        with self._lock:
            local_jobs = [Summary.of(record.snapshot()) for record, _ in self._local_jobs.values()]
        local_ids = {job.id for job in local_jobs}
        try:
            logged_jobs = [job for job in self._history.summaries() if job.id not in local_ids] if self._history else []
        except HistoryError:  # the folder is created with the first log
            logged_jobs = []
        return sorted([*local_jobs, *logged_jobs], key=lambda job: job.started, reverse=True)

    @property
    def unreadable(self) -> int:
        """The number of event logs that could not be read when all jobs were last listed."""
        return self._history.unreadable_count if self._history else 0

    def record(self, job_id: str) -> JobRecord | None:
        """Return the record of a job, from memory or from its event log; None if there is no readable record."""
        local = self._local_jobs.get(job_id)
        if local is not None:
            return local[0]
        try:
            return self._history.record(job_id) if self._history else None
        except HistoryError:
            return None

    def is_local(self, job_id: str) -> bool:
        """Return whether a job runs, or ran, in this process, so that Spark's pages show it."""
        return job_id in self._local_jobs

    def earlier(self, record: JobRecord) -> list[Summary]:
        """Return the summaries of the jobs of the same name that started before a job, the latest first."""
        return [
            job
            for job in self.summaries()
            if job.name == record.name and job.started < record.started and job.id != record.id
        ]

    def compared(self, record: JobRecord, earlier: Sequence[Summary]) -> JobRecord | None:
        """Return the latest of a job and `earlier` runs that plain Spark ran as well; each ended run is read once."""
        if record.spark_seconds is not None:
            return record
        for job in earlier:
            if job.id not in self._was_compared and job.state in END_STATES:
                run = self.record(job.id)
                self._was_compared[job.id] = run is not None and run.spark_seconds is not None
            if self._was_compared.get(job.id):
                return self.record(job.id)
        return None

    def digests(self) -> list[Digest]:
        """Return the digests of the latest ended jobs for the dashboard; each is computed once."""
        digests: dict[str, Digest] = {}
        for job_id in [job.id for job in self.summaries() if job.state in END_STATES][:_MAX_DIGESTS]:
            digest = self._digests.get(job_id)
            if digest is None and (record := self.record(job_id)) is not None:
                digest = Digest.of(record)
            if digest is not None:
                digests[job_id] = digest
        self._digests = digests
        return list(digests.values())

    def cancel(self, job_id: str) -> bool:
        """Cancel a job; return False if it does not run in this process."""
        record, cancel = self._local_jobs.get(job_id, (None, None))
        if record is None or cancel is None or record.is_ended:
            return False
        cancel("cancelled through the API")
        return True

    async def versions(self, job_id: str | None) -> AsyncIterator[int | None]:
        """Yield the version of a job until it ends, or of all jobs, now and after changes; None is a heartbeat."""
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        watcher = (loop, event, job_id)
        self._watchers.add(watcher)
        # Jobs of this process notify the store; a folder has to be polled.
        is_polled = self._history is not None and job_id not in self._local_jobs
        try:
            while True:
                event.clear()
                version = await self._current_version(job_id)
                yield version
                record = await run_in_threadpool(self.record, job_id) if job_id else None
                if record is not None and record.is_ended:
                    return
                await asyncio.sleep(_MIN_PAUSE_SECONDS)
                silent_since = time.monotonic()
                while await self._current_version(job_id) == version:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(event.wait(), _POLL_SECONDS if is_polled else _HEARTBEAT_SECONDS)
                    event.clear()
                    if time.monotonic() - silent_since >= _HEARTBEAT_SECONDS:
                        silent_since = time.monotonic()
                        yield None
        finally:
            self._watchers.discard(watcher)

    async def _current_version(self, job_id: str | None) -> int:
        local = self._local_jobs.get(job_id) if job_id else None
        if local is not None:
            return local[0].version
        # Listing the folder may be slow, so it must not block the event loop.
        return self.version + (await run_in_threadpool(self._folder_version) if self._history else 0)

    def _folder_version(self) -> int:
        """Return a number that changes when a log grows; the folder is listed at most once a second."""
        if self._history is not None and time.monotonic() - self._polled_at > 1:
            self._polled_at = time.monotonic()
            with contextlib.suppress(HistoryError):
                self._folder_hash = hash(tuple(self._history.list_logs()))
        return self._folder_hash


@dataclass(frozen=True, slots=True)
class Stream:
    """A checkpoint and its batches, the latest first; `problem` says why they cannot be read, None if they can."""

    checkpoint: str
    batches: tuple[BatchRecord, ...]
    problem: str | None


def streams_of(locations: Sequence[TextFiles]) -> list[Stream]:
    """Return the streams whose checkpoints are at `locations`."""
    streams = []
    for location in locations:
        from penstock.streams.reading import read_batches  # needs PySpark, which serving jobs does not

        try:
            streams.append(Stream(str(location), tuple(reversed(read_batches(location))), None))
        except PenstockError as error:
            streams.append(Stream(str(location), (), str(error)))
    return streams
