"""Who watches is told of changes: of jobs of this process at once, of a folder soon."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from penstock.history.event_log import EventLog, History, LocalFolder
from penstock.web.store import JobStore
from tests.history.records import ID, events, record

if TYPE_CHECKING:
    from pathlib import Path


def told(store: Any, job_id: Any, change: Any, at_most: float = 8.0) -> Any:
    """Return the versions that a watcher gets while `change` is made by another thread."""

    async def watch() -> Any:
        seen = []
        versions = store.versions(job_id)
        seen.append(await anext(versions))
        timer = threading.Timer(0.5, change)
        timer.start()
        while True:
            try:
                seen.append(await asyncio.wait_for(anext(versions), at_most))
            except StopAsyncIteration:
                return seen
            if len(seen) == 2 and job_id is None:
                await versions.aclose()
                return seen

    return asyncio.run(watch())


def test_a_job_of_this_process() -> None:
    store, half = JobStore(), record(ended=False)
    store.add(half, lambda _: None)

    def end() -> None:
        half.apply({"type": "state", "at": 20.0, "state": "FINISHED", "pending": 0, "counts": {}})
        store.changed(half)

    versions = told(store, ID, end)
    assert versions == [versions[0], versions[0] + 1]
    assert store._watchers == set()


def test_a_new_job_in_the_list() -> None:
    store = JobStore()
    first, second = told(store, None, lambda: store.add(record(), lambda _: None))
    assert first != second


def test_a_new_log_in_the_folder(tmp_path: Path) -> None:
    store = JobStore(History(LocalFolder(tmp_path)))

    def add() -> None:
        EventLog(LocalFolder(tmp_path).create(f"20261122T120000-{ID}.jsonl")).write(events())

    first, second = told(store, None, add)
    assert first != second
    assert [job.id for job in store.summaries()] == [ID]


def test_jobs_that_ended_long_ago_leave_memory() -> None:
    store = JobStore()
    for number in range(250):
        store.add(record(job_id=f"{number:012x}"), lambda _: None)
    assert len(store.summaries()) == 200
    assert store.record(f"{0:012x}") is None
