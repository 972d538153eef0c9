"""Logs are written line by line, listed without reading them whole, and survive a crash of their driver."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as h

from penstock.errors import HistoryError
from penstock.history.event_log import EventLog, History, LocalFolder, events_of, log_name
from penstock.history.record import JobRecord
from tests.history.records import ID, events, record

if TYPE_CHECKING:
    from pathlib import Path


def written(folder: Path, made: Any, cut: Any = None) -> Any:
    log = EventLog(LocalFolder(folder).create(log_name(record(job_id=made[0]["id"]))))
    log.write(made)
    log.close()
    (path,) = folder.glob(f"*{made[0]['id']}*")
    if cut is not None:
        path.write_bytes(path.read_bytes()[:cut])
    return path


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_log_tells_what_was_written(tmp_path: Path) -> None:
    written(tmp_path, events())
    history = History(LocalFolder(tmp_path))
    assert history.record(ID) == record()
    (summary,) = history.summaries()
    assert (summary.id, summary.state, summary.started, summary.ended) == (ID, "FINISHED", 10.0, 20.0)
    assert summary.counts == {"FINISHED": 2, "pending-operators": 0}


def test_jobs_are_listed_newest_first_and_seen_when_they_appear(tmp_path: Path) -> None:
    history = History(LocalFolder(tmp_path))
    for number in range(3):
        made = events(job_id=f"{number:012x}")
        made[0]["started"] = 1000.0 * number
        log = EventLog(LocalFolder(tmp_path).create(f"2026112{number}T120000-{number:012x}.jsonl"))
        log.write(made)
        assert [summary.id for summary in history.summaries()] == [f"{n:012x}" for n in range(number, -1, -1)]


def test_a_running_job_and_one_whose_driver_died(tmp_path: Path) -> None:
    written(tmp_path, events(ended=False))
    history = History(LocalFolder(tmp_path))
    assert history.summaries()[0].state == "RUNNING"
    assert history.record(ID).pending == 2
    written(tmp_path, events(job_id="aaaaaaaaaaaa", pid=dead_pid(), ended=False))
    states = {summary.id: summary.state for summary in history.summaries()}
    assert states == {ID: "RUNNING", "aaaaaaaaaaaa": "INTERRUPTED"}
    died = history.record("aaaaaaaaaaaa")
    assert (died.state, died.ended) == ("INTERRUPTED", 12.5)


@given(cut=h.integers(0, 100_000))
def test_a_log_cut_anywhere_loses_at_most_its_last_line(tmp_path_factory: pytest.TempPathFactory, cut: Any) -> None:
    folder = tmp_path_factory.mktemp("cut")
    made = events(pid=dead_pid_once())
    path = written(folder, made)
    whole = path.read_bytes()
    path.write_bytes(whole[: cut % (len(whole) + 1)])
    lines = path.read_text(errors="replace").count("\n")
    assert list(events_of(path.read_text(errors="replace")))[:lines] == json.loads(json.dumps(made[:lines]))
    summaries = History(LocalFolder(folder)).summaries()
    assert [summary.state for summary in summaries] in ([], ["INTERRUPTED"], ["FINISHED"])
    assert bool(summaries) >= (lines > 0)


_PID: list[int] = []


def dead_pid_once() -> int:
    if not _PID:
        _PID.append(dead_pid())
    return _PID[0]


@pytest.mark.parametrize("job_id", ["../../etc/pwd", "0123456789AB", "", "0" * 11, "*", "0123456789ac"])
def test_ids_that_are_none(tmp_path: Path, job_id: Any) -> None:
    written(tmp_path, events())
    assert History(LocalFolder(tmp_path)).record(job_id) is None


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match=r"there is no folder .*nowhere with event logs"):
        History(LocalFolder(tmp_path / "nowhere")).summaries()


def test_events_of_a_newer_release_are_passed_over() -> None:
    made = JobRecord()
    made.apply({"type": "unheard of", "at": 1.0})
    assert made == JobRecord()
