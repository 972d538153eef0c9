"""Clients that watch are notified of changes: of this process immediately, of a folder by polling."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from penstock.history.event_log import EventLog, LocalFolder
from penstock.history.logs import History
from penstock.web.api import create_app
from penstock.web.store import JobStore, streams_of
from tests.history.records import ID, events, record


def watched_versions(store: Any, job_id: Any, change: Any, at_most: float = 8.0) -> Any:
    """Return the versions that a client receives while another thread calls `change`."""

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


def test_job_of_this_process() -> None:
    store, half = JobStore(), record(ended=False)
    store.add(half, lambda _: None)

    def end() -> None:
        half.apply({"type": "state", "at": 20.0, "state": "FINISHED", "pending": 0, "counts": {}})
        store.notify_watchers(half)

    versions = watched_versions(store, ID, end)
    assert versions == [versions[0], versions[0] + 1]
    assert store._watchers == set()


def test_new_job_in_the_list() -> None:
    store = JobStore()
    first, second = watched_versions(store, None, lambda: store.add(record(), lambda _: None))
    assert first != second


@pytest.mark.thorough
def test_new_log_in_the_folder(tmp_path: Path) -> None:
    store = JobStore(History(LocalFolder(tmp_path)))

    def add() -> None:
        EventLog(LocalFolder(tmp_path).create(f"20261122T120000-{ID}.jsonl")).write(events())

    first, second = watched_versions(store, None, add)
    assert first != second
    assert [job.id for job in store.summaries()] == [ID]


def test_oldest_ended_jobs_are_removed_from_memory() -> None:
    store = JobStore()
    for number in range(250):
        store.add(record(job_id=f"{number:012x}"), lambda _: None)
    assert len(store.summaries()) == 200
    assert store.record(f"{0:012x}") is None


def test_running_jobs_are_never_removed() -> None:
    store = JobStore()
    cancelled: list[str] = []
    first = record(job_id=f"{0:012x}", ended=False)
    store.add(first, cancelled.append)
    for number in range(1, 250):
        store.add(record(job_id=f"{number:012x}"), lambda _: None)
    assert len(store.summaries()) == 200
    assert store.cancel(first.id)
    assert cancelled == ["cancelled through the API"]
    first.apply_all(events()[-1:])
    store.add(record(), lambda _: None)
    assert store.record(first.id) is None, "ended jobs are removed"


def test_digests_follow_the_list_of_jobs(tmp_path: Path) -> None:
    logs = []
    for number in range(3):
        logs.append(tmp_path / f"20261122T12000{number}-{number:012x}.jsonl")
        EventLog(LocalFolder(tmp_path).create(logs[-1].name)).write(events(job_id=f"{number:012x}"))
    store = JobStore(History(LocalFolder(tmp_path)))
    first = store.digests()
    assert len(first) == len(store._digests) == 3
    assert store.digests()[0] is first[0], "each is computed once"
    logs[0].unlink()
    assert len(store.digests()) == len(store._digests) == 2


def test_the_latest_run_that_plain_spark_ran_as_well() -> None:
    store, runs = JobStore(), []
    for number in range(4):
        runs.append(record(job_id=f"{number:012x}"))
        runs[-1].started = float(number)
        store.add(runs[-1], lambda _: None)
    compared = {"type": "compared", "at": 1.0, "output": "o", "verdict": "equal", "seconds": 1.0, "spark_seconds": 2.0}
    for run in runs[:2]:
        run.apply(compared)
    assert store.compared(runs[3], store.earlier(runs[3])) is runs[1]
    assert store.compared(runs[0], store.earlier(runs[0])) is runs[0]
    runs[3].apply(compared | {"spark_seconds": None})
    assert store.compared(runs[3], store.earlier(runs[3])) is runs[1], "plain Spark has not run all outputs of this run"
    assert store.compared(runs[2], []) is None


def test_logs_are_read_outside_the_event_loop(tmp_path: Path) -> None:
    threads: list[threading.Thread] = []

    class RecordingHistory(History):
        def record(self, job_id: str) -> Any:
            threads.append(threading.current_thread())
            return super().record(job_id)

        def list_logs(self) -> Any:
            threads.append(threading.current_thread())
            return super().list_logs()

    EventLog(LocalFolder(tmp_path).create(f"20261122T120000-{ID}.jsonl")).write(events())
    store = JobStore(RecordingHistory(LocalFolder(tmp_path)))
    assert len(watched_versions(store, ID, lambda: None)) == 1
    TestClient(create_app(store, "token"), base_url="http://127.0.0.1").get(f"/jobs/{ID}").raise_for_status()
    assert len(threads) >= 3
    assert threading.main_thread() not in threads
    assert all("loop" not in thread.name and thread.name.startswith("AnyIO") for thread in threads)


def test_a_server_without_streams_does_not_read_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading checkpoints needs PySpark."""
    monkeypatch.setitem(sys.modules, "penstock.streams.reading", None)
    assert streams_of([]) == []
