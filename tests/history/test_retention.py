"""Event logs are kept for a time and up to a size."""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from penstock.history.event_log import EventLog, LocalFolder
from penstock.history.retention import Retention, RetentionLimits
from tests.history.records import events
from tests.history.test_logs import dead_pid
from tests.logged import messages

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1000.0
LOGS = [("20260101-a", 10, 100.0), ("20260102-b", 20, 900.0), ("20260103-c", 30, 990.0)]
# The limits, and which logs are not to be kept.
CASES: dict[str, tuple[RetentionLimits, str]] = {
    "all": (RetentionLimits(), ""),
    "none is that old": (RetentionLimits(seconds=900.0), ""),
    "one is older": (RetentionLimits(seconds=899.0), "a"),
    "all are older": (RetentionLimits(seconds=1.0), "abc"),
    "they have that size": (RetentionLimits(size=60), ""),
    "the oldest is one too many": (RetentionLimits(size=59), "a"),
    "the newest is too large by itself": (RetentionLimits(size=29), "abc"),
    "both": (RetentionLimits(seconds=50.0, size=60), "ab"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_kept(case: str) -> None:
    limits, expected = CASES[case]
    assert "".join(name[-1] for name, _, _ in limits.beyond(LOGS, NOW)) == expected


def written(folder: Path, number: int, age: float = 0.0, *, ended: bool = True, **more: Any) -> str:
    """Write the log of a job that was changed some seconds ago; return its name."""
    made = events(job_id=f"{number:012x}")
    made[0] |= more
    if not ended:
        made = [one for one in made if one["type"] != "state"]
    name = f"2026110{number}T120000-{number:012x}.jsonl"
    log = EventLog(LocalFolder(folder).create(name))
    log.write(made)
    log.close()
    os.utime(folder / name, (time.time() - age,) * 2)
    return name


def test_old_logs_are_removed(tmp_path: Path) -> None:
    old, new = written(tmp_path, 1, 1000.0), written(tmp_path, 2, 10.0)
    runs = written(tmp_path, 3, 1000.0, ended=False)
    died = written(tmp_path, 4, 1000.0, ended=False, pid=dead_pid())
    (tmp_path / "20261101T120000-notes.jsonl").write_text("mine")
    os.utime(tmp_path / "20261101T120000-notes.jsonl", (0, 0))
    retention = Retention(LocalFolder(tmp_path), RetentionLimits(seconds=500.0), str(tmp_path))
    assert [name for name, _, _ in retention.apply(is_trial=True)] == [old, died]
    assert len(list(tmp_path.iterdir())) == 5
    assert [name for name, _, _ in retention.apply()] == [old, died]
    assert {one.name for one in tmp_path.iterdir()} == {new, runs, "20261101T120000-notes.jsonl"}
    assert retention.apply() == []


def test_another_driver_removes_them_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = written(tmp_path, 1, 1000.0)
    folder = LocalFolder(tmp_path)
    entries = folder.entries()
    monkeypatch.setattr(folder, "entries", lambda: entries)
    (tmp_path / name).unlink()
    assert Retention(folder, RetentionLimits(seconds=500.0), str(tmp_path)).apply() == []


@pytest.mark.parametrize("fails", ["read", "remove"])
def test_a_log_that_cannot_be_removed_keeps_no_other(
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
        removed = Retention(folder, RetentionLimits(seconds=500.0), str(tmp_path)).apply()
    assert [name for name, _, _ in removed] == [first, last]
    assert [one.name for one in tmp_path.iterdir()] == [bad]
    assert any(bad in one and "it is not yours" in one for one in messages(caplog))


def test_it_looks_once_in_a_while(tmp_path: Path) -> None:
    written(tmp_path, 1, 1000.0)
    retention = Retention(LocalFolder(tmp_path), RetentionLimits(seconds=500.0), str(tmp_path))
    retention.apply_soon()
    deadline = time.monotonic() + 10
    while list(tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert list(tmp_path.iterdir()) == []
    written(tmp_path, 2, 1000.0)
    retention.apply_soon()
    # Another environment uses the same folder.
    Retention(LocalFolder(tmp_path), RetentionLimits(seconds=500.0), str(tmp_path)).apply_soon()
    time.sleep(0.1)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_cannot_be_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "penstock"):
        Retention(LocalFolder(tmp_path / "gone"), RetentionLimits(seconds=1.0), "gone")._try()
    assert any("old event logs cannot be removed" in one for one in messages(caplog))
