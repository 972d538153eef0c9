"""Logs are written line by line and closed at the end of their job; a full disk does not fail the job."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from penstock.events import ExecutionState, JobStateChanged
from penstock.history.event_log import EventLog, LocalFolder, parse_events
from penstock.history.recorder import JobRecorder
from penstock.scheduler.job import Job
from tests.history.records import events
from tests.support.logged import messages


class Full:
    """A file on a disk with room for some lines; closing it flushes, which fails too."""

    def __init__(self, room: int = 0, error: Exception | None = None) -> None:
        self.lines: list[str] = []
        self.appends = self.closed = 0
        self._room, self._error = room, error or OSError(28, "No space left on device")

    def append(self, text: str) -> None:
        self.appends += 1
        if len(self.lines) + text.count("\n") > self._room:
            raise self._error
        self.lines += text.splitlines()

    def close(self) -> None:
        self.closed += 1
        if len(self.lines) >= self._room:
            raise self._error


def test_log_is_closed_at_the_end_of_its_job(tmp_path: Path) -> None:
    file = LocalFolder(tmp_path).create("x.jsonl")
    log = EventLog(file)
    for event in events():
        log.write([event])
    log.write([{"type": "decision"}])
    (path,) = tmp_path.iterdir()
    assert list(parse_events(path.read_bytes())) == events()
    assert file._file.closed  # type: ignore[attr-defined]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), RuntimeError("o123.write\nNo space left")])
def test_full_disk_is_reported_once(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    file = Full(3, error)
    log = EventLog(file, "0123456789ab")
    with caplog.at_level(logging.WARNING, "penstock.history"):
        for event in events():
            log.write([event])
    (message,) = messages(caplog)
    assert message.startswith("cannot write to the event log of job 0123456789ab: ")
    assert message.endswith("; the job and its web page continue without it")
    assert (len(file.lines), file.appends, file.closed) == (3, 4, 1)


@pytest.mark.parametrize("room", [0, 1, 2])
def test_listeners_see_the_end_of_a_job_despite_a_full_disk(room: int) -> None:
    """Even if the last line is written but the file cannot be closed."""
    states: list[str] = []
    recorder = JobRecorder(Job("nightly"))
    recorder.write_to(EventLog(Full(room), "x").write)
    recorder.listen(lambda record: states.append(record.state))
    recorder.on_events([JobStateChanged(ExecutionState.RUNNING)])
    recorder.on_events([JobStateChanged(ExecutionState.FINISHED)])
    assert states == ["RUNNING", "FINISHED"]


def test_unwritable_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folder: Any = LocalFolder(tmp_path / "file")
    with pytest.raises(Exception, match="event logs cannot be written to"):
        folder.create("x.jsonl")


def test_log_is_readable_only_by_its_user(tmp_path: Path) -> None:
    log = EventLog(LocalFolder(tmp_path).create("log.jsonl"))
    log.write(events())
    (path,) = tmp_path.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
