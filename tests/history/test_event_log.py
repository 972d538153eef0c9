"""Logs are written line by line, and end with their job; a disk that is full does not end the job."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from penstock.events import ExecutionState, JobStateChanged
from penstock.history.event_log import EventLog, LocalFolder
from penstock.history.reading import events_of
from penstock.history.recorder import JobRecorder
from penstock.scheduler.job import Job
from tests.history.records import events
from tests.logged import messages

if TYPE_CHECKING:
    from pathlib import Path


class Full:
    """A file on a disk that is full after some lines; a file that is closed writes what it still has."""

    def __init__(self, room: int = 0, error: Exception | None = None) -> None:
        self.lines: list[str] = []
        self.asked = self.closed = 0
        self._room, self._error = room, error or OSError(28, "No space left on device")

    def append(self, text: str) -> None:
        self.asked += 1
        if len(self.lines) + text.count("\n") > self._room:
            raise self._error
        self.lines += text.splitlines()

    def close(self) -> None:
        self.closed += 1
        if len(self.lines) >= self._room:
            raise self._error


def test_a_log_ends_with_its_job(tmp_path: Path) -> None:
    file = LocalFolder(tmp_path).create("x.jsonl")
    log = EventLog(file)
    for event in events():
        log.write([event])
    log.write([{"type": "decision"}])
    log.close()
    (path,) = tmp_path.iterdir()
    assert list(events_of(path.read_bytes())) == events()
    assert file._file.closed  # type: ignore[attr-defined]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), RuntimeError("o123.write\nNo space left")])
def test_a_full_disk_is_told_once(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    file = Full(3, error)
    log = EventLog(file, "0123456789ab")
    with caplog.at_level(logging.WARNING, "penstock.history"):
        for event in events():
            log.write([event])
        log.close()
    (said,) = messages(caplog)
    assert said.startswith("the event log of job 0123456789ab cannot be written any more: ")
    assert said.endswith("; the page goes on")
    assert (len(file.lines), file.asked, file.closed) == (3, 4, 1)


@pytest.mark.parametrize("room", [0, 1, 2])
def test_who_watches_a_job_hears_of_its_end_though_the_disk_is_full(room: int) -> None:
    """The last line may be written, and the file then not be closed."""
    heard: list[str] = []
    recorder = JobRecorder(Job("nightly"))
    recorder.write_to(EventLog(Full(room), "x").write)
    recorder.listen(lambda record: heard.append(record.state))
    recorder.on_events([JobStateChanged(ExecutionState.RUNNING)])
    recorder.on_events([JobStateChanged(ExecutionState.FINISHED)])
    assert heard == ["RUNNING", "FINISHED"]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    made: Any = LocalFolder(tmp_path / "file")
    with pytest.raises(Exception, match="event logs cannot be written to"):
        made.create("x.jsonl")


def test_only_its_user_reads_a_log(tmp_path: Path) -> None:
    log = EventLog(LocalFolder(tmp_path).create("log.jsonl"))
    log.write(events())
    log.close()
    (path,) = tmp_path.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
