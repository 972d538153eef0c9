"""Summaries of jobs: in the log of an unfinished job, state and counts may be far from the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.history.event_log import EventLog, LocalFolder
from penstock.history.logs import History
from tests.history.records import ID, events
from tests.history.test_logs import dead_pid_once

COUNTS = {"FINISHED": 1, "RUNNING": 1, "pending-operators": 2}


def log_with(folder: Path, bytes_behind: int, pid: Any = None, statement: str = "") -> History:
    """Write the log of an unfinished job, in which about `bytes_behind` bytes follow the last line with counts."""
    lines = events(ended=False, pid=pid)
    lines[0]["query"] = {"statement": statement, "line": None, "page": None}
    lines[3]["counts"] = COUNTS
    decision = lines[-1] | {"index": 1, "at": 17.5}
    repetitions = max(bytes_behind // len(json.dumps(decision)), 1)
    EventLog(LocalFolder(folder).create(f"20261122T120000-{ID}.jsonl")).write([*lines, *[decision] * repetitions])
    return History(LocalFolder(folder))


@pytest.mark.parametrize("bytes_behind", [0, 3000, 5000, 20_000, 300_000])
@pytest.mark.parametrize("is_alive", [True, False])
def test_state_and_counts_of_an_unfinished_job(tmp_path: Path, bytes_behind: int, is_alive: bool) -> None:
    history = log_with(tmp_path, bytes_behind, None if is_alive else dead_pid_once())
    (job,) = history.summaries()
    assert (job.counts, job.changed) == (COUNTS, 17.5)
    assert (job.state, job.ended) == (("RUNNING", None) if is_alive else ("INTERRUPTED", 17.5))


def test_a_job_with_a_long_text(tmp_path: Path) -> None:
    (job,) = log_with(tmp_path, 0, statement="SELECT 1 " * 20_000).summaries()
    assert (job.id, job.counts) == (ID, COUNTS)


def test_driver_that_died_immediately(tmp_path: Path) -> None:
    first = events(pid=dead_pid_once())[:1]
    EventLog(LocalFolder(tmp_path).create(f"20261122T120000-{ID}.jsonl")).write(first)
    (job,) = History(LocalFolder(tmp_path)).summaries()
    assert (job.state, job.ended, job.counts) == ("INTERRUPTED", 10.0, {})


def test_log_is_read_again_only_if_it_has_grown(tmp_path: Path) -> None:
    log_with(tmp_path, 100_000)
    reads = []

    class CountingFolder(LocalFolder):
        def read(self, name: str, start: int, length: int) -> bytes:
            reads.append(length)
            return super().read(name, start, length)

    history = History(CountingFolder(tmp_path))
    history.summaries()
    read = len(reads)
    history.summaries()
    assert len(reads) == read
    (path,) = tmp_path.iterdir()
    with path.open("a") as log:
        log.write(json.dumps({"type": "state", "at": 19.0, "state": "FAILED", "pending": 1, "counts": {}}) + "\n")
    (job,) = history.summaries()
    assert (job.state, job.ended) == ("FAILED", 19.0)
