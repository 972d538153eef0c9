"""Retention of event logs by age and size."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.history.event_log import EventLog, LocalFolder
from penstock.history.retention import Retention, RetentionLimits
from tests.history.records import events
from tests.history.test_logs import dead_pid
from tests.support.logged import messages

NOW = 1000.0
LOGS = [("20260101-a", 10, 100.0), ("20260102-b", 20, 900.0), ("20260103-c", 30, 990.0)]
# The limits, and the expired logs.
CASES: dict[str, tuple[RetentionLimits, str]] = {
    "all": (RetentionLimits(), ""),
    "none is old enough": (RetentionLimits(max_age_seconds=900.0), ""),
    "the oldest is older": (RetentionLimits(max_age_seconds=899.0), "a"),
    "all are older": (RetentionLimits(max_age_seconds=1.0), "abc"),
    "exactly the size": (RetentionLimits(max_bytes=60), ""),
    "without the oldest they fit": (RetentionLimits(max_bytes=59), "a"),
    "the newest alone is too large": (RetentionLimits(max_bytes=29), "abc"),
    "both": (RetentionLimits(max_age_seconds=50.0, max_bytes=60), "ab"),
}


@pytest.mark.parametrize("case", CASES)
def test_expired_logs(case: str) -> None:
    limits, expected = CASES[case]
    assert "".join(name[-1] for name, _, _ in limits.expired(LOGS, NOW)) == expected


def written(folder: Path, number: int, age: float = 0.0, *, ended: bool = True, **more: Any) -> str:
    """Write a log that was last changed `age` seconds ago; return its name."""
    lines = events(job_id=f"{number:012x}")
    lines[0] |= more
    if not ended:
        lines = [line for line in lines if line["type"] != "state"]
    name = f"2026110{number}T120000-{number:012x}.jsonl"
    log = EventLog(LocalFolder(folder).create(name))
    log.write(lines)
    os.utime(folder / name, (time.time() - age,) * 2)
    return name


def test_old_logs_are_removed(tmp_path: Path) -> None:
    old, new = written(tmp_path, 1, 1000.0), written(tmp_path, 2, 10.0)
    runs = written(tmp_path, 3, 1000.0, ended=False)
    died = written(tmp_path, 4, 1000.0, ended=False, pid=dead_pid())
    (tmp_path / "20261101T120000-notes.jsonl").write_text("mine")
    os.utime(tmp_path / "20261101T120000-notes.jsonl", (0, 0))
    retention = Retention(LocalFolder(tmp_path), RetentionLimits(max_age_seconds=500.0), str(tmp_path))
    assert [name for name, _, _ in retention.apply(dry_run=True)] == [old, died]
    assert len(list(tmp_path.iterdir())) == 5
    assert [name for name, _, _ in retention.apply()] == [old, died]
    assert {path.name for path in tmp_path.iterdir()} == {new, runs, "20261101T120000-notes.jsonl"}
    assert retention.apply() == []


def test_log_that_another_driver_removes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = written(tmp_path, 1, 1000.0)
    folder = LocalFolder(tmp_path)
    entries = folder.entries()
    monkeypatch.setattr(folder, "entries", lambda: entries)
    (tmp_path / name).unlink()
    assert Retention(folder, RetentionLimits(max_age_seconds=500.0), str(tmp_path)).apply() == []


@pytest.mark.parametrize("fails", ["read", "remove"])
def test_other_logs_are_removed_despite_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fails: str
) -> None:
    first, bad, last = (written(tmp_path, number, 1000.0) for number in (1, 2, 3))
    folder = LocalFolder(tmp_path)
    plain = getattr(folder, fails)

    def refuse(name: str, *more: Any) -> Any:
        if name == bad:
            raise PermissionError("it is not yours")
        return plain(name, *more)

    monkeypatch.setattr(folder, fails, refuse)
    with caplog.at_level(logging.WARNING, "penstock"):
        removed = Retention(folder, RetentionLimits(max_age_seconds=500.0), str(tmp_path)).apply()
    assert [name for name, _, _ in removed] == [first, last]
    assert [path.name for path in tmp_path.iterdir()] == [bad]
    assert any(bad in message and "it is not yours" in message for message in messages(caplog))


def test_folder_is_cleaned_at_intervals(tmp_path: Path) -> None:
    written(tmp_path, 1, 1000.0)
    retention = Retention(LocalFolder(tmp_path), RetentionLimits(max_age_seconds=500.0), str(tmp_path))
    retention.apply_in_background()
    deadline = time.monotonic() + 10
    while list(tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert list(tmp_path.iterdir()) == []
    written(tmp_path, 2, 1000.0)
    retention.apply_in_background()
    # Another environment uses the same folder.
    Retention(LocalFolder(tmp_path), RetentionLimits(max_age_seconds=500.0), str(tmp_path)).apply_in_background()
    time.sleep(0.1)
    assert len(list(tmp_path.iterdir())) == 1


def test_unreadable_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "penstock"):
        Retention(LocalFolder(tmp_path / "gone"), RetentionLimits(max_age_seconds=1.0), "gone")._apply_and_log()
    assert any("old event logs cannot be removed" in message for message in messages(caplog))
