"""The logs in a folder: jobs are listed without reading whole logs, and records contain all complete lines."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as h

from penstock.errors import HistoryError
from penstock.history.event_log import EventLog, LocalFolder, log_file_name, parse_events
from penstock.history.logs import History
from tests.history.records import ID, events, record
from tests.support.logged import messages

OTHER = "aaaaaaaaaaaa"


def written(folder: Path, lines: Any, cut: Any = None) -> Any:
    log = EventLog(LocalFolder(folder).create(log_file_name(record(job_id=lines[0]["id"]))))
    log.write(lines)
    (path,) = folder.glob(f"*{lines[0]['id']}*")
    if cut is not None:
        path.write_bytes(path.read_bytes()[:cut])
    return path


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_record_equals_the_written_events(tmp_path: Path) -> None:
    written(tmp_path, events())
    history = History(LocalFolder(tmp_path))
    assert history.record(ID) == record()
    (summary,) = history.summaries()
    assert (summary.id, summary.state, summary.started, summary.ended) == (ID, "FINISHED", 10.0, 20.0)
    assert summary.counts == {"FINISHED": 2, "pending-operators": 0}


def test_jobs_are_listed_newest_first_as_soon_as_they_appear(tmp_path: Path) -> None:
    history = History(LocalFolder(tmp_path))
    for number in range(3):
        lines = events(job_id=f"{number:012x}")
        lines[0]["started"] = 1000.0 * number
        log = EventLog(LocalFolder(tmp_path).create(f"2026112{number}T120000-{number:012x}.jsonl"))
        log.write(lines)
        assert [summary.id for summary in history.summaries()] == [f"{n:012x}" for n in range(number, -1, -1)]


def test_running_job_and_job_whose_driver_died(tmp_path: Path) -> None:
    written(tmp_path, events(ended=False))
    history = History(LocalFolder(tmp_path))
    assert history.summaries()[0].state == "RUNNING"
    assert history.record(ID).pending == 2
    written(tmp_path, events(job_id=OTHER, pid=dead_pid(), ended=False))
    states = {summary.id: summary.state for summary in history.summaries()}
    assert states == {ID: "RUNNING", OTHER: "INTERRUPTED"}
    died = history.record(OTHER)
    assert (died.state, died.ended) == ("INTERRUPTED", 12.5)


@given(cut=h.integers(0, 100_000))
def test_truncated_log_loses_at_most_its_last_line(tmp_path_factory: pytest.TempPathFactory, cut: Any) -> None:
    folder = tmp_path_factory.mktemp("cut")
    lines = events(pid=dead_pid_once())
    path = written(folder, lines)
    whole = path.read_bytes()
    path.write_bytes(whole[: cut % (len(whole) + 1)])
    complete = path.read_bytes().count(b"\n")
    assert list(parse_events(path.read_bytes()))[:complete] == json.loads(json.dumps(lines[:complete]))
    summaries = History(LocalFolder(folder)).summaries()
    assert [summary.state for summary in summaries] in ([], ["INTERRUPTED"], ["FINISHED"])
    assert bool(summaries) >= (complete > 0)


_PID: list[int] = []


def dead_pid_once() -> int:
    if not _PID:
        _PID.append(dead_pid())
    return _PID[0]


@pytest.mark.parametrize("job_id", ["../../etc/pwd", "0123456789AB", "", "0" * 11, "*", "0123456789ac"])
def test_invalid_ids(tmp_path: Path, job_id: Any) -> None:
    written(tmp_path, events())
    assert History(LocalFolder(tmp_path)).record(job_id) is None


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match=r"there is no folder .*nowhere with event logs"):
        History(LocalFolder(tmp_path / "nowhere")).summaries()


class BadFolder(LocalFolder):
    """A folder in which the logs of the job ID cannot be read."""

    def read(self, name: str, start: int, length: int) -> bytes:
        if ID in name:
            raise PermissionError(13, "Permission denied")
        return super().read(name, start, length)


def test_unreadable_log_is_left_out_and_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    written(tmp_path, events())
    written(tmp_path, events(job_id=OTHER))
    history = History(BadFolder(tmp_path))
    with caplog.at_level(logging.WARNING, "penstock.history"):
        for _ in range(3):
            assert [job.id for job in history.summaries()] == [OTHER]
    assert history.unreadable_count == 1
    (message,) = messages(caplog)
    assert message.startswith("1 event log cannot be read: ")
    assert "Permission denied" in message
    assert history.record(OTHER).state == "FINISHED"
    with pytest.raises(HistoryError, match="event logs cannot be read from"):
        history.record(ID)


BROKEN = {
    "not a log of a job": "{}\n",
    "an event without its fields": '{"type":"job","id":"0123456789ab"}\n',
    "texts instead of numbers": '{"type":"job","at":"soon"}\n',
    "no lines": "x" * 100_000,
    "nothing": "",
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_invalid_logs_do_not_hide_the_others(tmp_path: Path, text: str) -> None:
    written(tmp_path, events(job_id=OTHER))
    (tmp_path / f"20261122T120000-{ID}.jsonl").write_text(text)
    assert [job.id for job in History(LocalFolder(tmp_path)).summaries()] == [OTHER]


def test_log_that_is_removed_during_the_listing(tmp_path: Path) -> None:
    written(tmp_path, events(job_id=OTHER))

    class Late(LocalFolder):
        def entries(self) -> list[tuple[str, int, float]]:
            return [*super().entries(), (f"20261122T120000-{ID}.jsonl", 100, 0.0)]

    history = History(Late(tmp_path))
    assert [job.id for job in history.summaries()] == [OTHER]
    assert history.unreadable_count == 0, "a removed log is not an error"
    with pytest.raises(HistoryError):
        history.record(ID)


def test_returned_records_do_not_change(tmp_path: Path) -> None:
    path = written(tmp_path, events(ended=False))
    history = History(LocalFolder(tmp_path))
    before = history.record(ID)
    assert (before.state, before.pending) == ("RUNNING", 2)
    with path.open("a") as log:
        log.writelines(json.dumps(event) + "\n" for event in events()[7:])
    after = history.record(ID)
    assert (after.state, after.pending) == ("FINISHED", 0)
    assert after == record()
    assert (before.state, before.pending, len(before.changes)) == ("RUNNING", 2, 0)


def test_job_that_seemed_interrupted_may_continue(tmp_path: Path) -> None:
    """The log of another machine may not grow for long while a step runs."""
    lines = events(pid=dead_pid_once(), ended=False)
    lines.append(lines[4] | {"id": "v2", "state": "RUNNING"})
    path = written(tmp_path, lines)
    history = History(LocalFolder(tmp_path))
    job = history.record(ID)
    assert (job.state, job.vertices["v2"].state) == ("INTERRUPTED", "CANCELED")
    with path.open("a") as log:
        log.write(json.dumps(lines[6] | {"at": 14.0}) + "\n")
    job = history.record(ID)
    assert (job.state, job.ended) == ("INTERRUPTED", 14.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"pid": "x"},
        {"pid": 1 << 40},
        {"pid": None},
        {"host": 7},
        {"started": None},
        {"started": "now"},
        {"started": 1e300},
        {"started": -1},
        {"started": [1]},
        {"name": None},
        {"name": {"a": 1}},
    ],
    ids=str,
)
def test_values_of_wrong_types_affect_only_their_own_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, changes: dict[str, Any]
) -> None:
    bad = events(job_id=OTHER)
    bad[0].update(changes)
    for number, job_events in enumerate((bad, events())):
        log = EventLog(LocalFolder(tmp_path).create(f"2026112{number}T120000-{job_events[0]['id']}.jsonl"))
        log.write(job_events)
    history = History(LocalFolder(tmp_path))
    assert [summary.id for summary in history.summaries()] == [ID]
    assert history.unreadable_count == 1
    assert f"1 event log cannot be read: 20261120T120000-{OTHER}.jsonl" in caplog.text
