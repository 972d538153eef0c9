"""Markers count while their process lives, and not for later processes with the same id."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from penstock.commit import Access
from penstock.commit.owner import Owner
from penstock.errors import StateError
from penstock.state import marker
from penstock.state.marker import MARKER_FILE, QueryMarker, other_process, process_in_marker, write_marker
from tests.commit.local import LocalFolder
from tests.state.processes import named_in

ACCESS = Access(None)  # type: ignore[arg-type]
ELSEWHERE = "elsewhere/pid:[1]/1"


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("penstock.commit.claims.HadoopPath", LocalFolder)
    return LocalFolder(None, str(tmp_path))


def write_marker_of_host(host: str, file: Path, *, seconds_ago: float = 0) -> None:
    """Write the marker of a process of another machine."""
    file.write_text(json.dumps({"host": host, "pid": 1, "started": "1"}))
    os.utime(file, (time.time() - seconds_ago,) * 2)


def test_a_live_process_is_returned_until_it_ends(checkpoint: Any, tmp_path: Path) -> None:
    with named_in(tmp_path / MARKER_FILE) as process:
        named = other_process(ACCESS, checkpoint)
        assert named is not None
        assert named.pid == process.pid
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert other_process(ACCESS, checkpoint) is None, "a zombie has ended"
    assert process_in_marker(checkpoint) == named


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"started": "1"}, id="a later process with the same id"),
    ],
)
def test_a_later_process_with_the_same_id_is_not_the_marked_process(
    checkpoint: Any, tmp_path: Path, change: dict[str, str]
) -> None:
    with named_in(tmp_path / MARKER_FILE):
        named = process_in_marker(checkpoint)
        assert named is not None
        (tmp_path / MARKER_FILE).write_text(json.dumps(asdict(replace(named, **change))))
        assert other_process(ACCESS, checkpoint) is None


def test_a_process_with_a_hidden_start_time_may_be_alive(
    checkpoint: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``/proc`` may hide the processes of other users."""

    def hides(_: int) -> str:
        raise FileNotFoundError

    with named_in(tmp_path / MARKER_FILE):
        monkeypatch.setattr("penstock.commit.owner._read_stat", hides)
        assert other_process(ACCESS, checkpoint) is not None


@pytest.mark.parametrize(
    ("host", "seconds_ago", "may_live"),
    [
        pytest.param(ELSEWHERE, 10, True, id="another machine"),
        pytest.param(ELSEWHERE, 90, False, id="another machine, long ago"),
        pytest.param(f"{os.uname().nodename}/pid:[1]/1", 10, True, id="a container of the same name"),
        pytest.param(f"{os.uname().nodename}/pid:[1]/1", 90, False, id="a container of the same name, long ago"),
    ],
)
def test_a_process_of_another_machine_may_live_until_its_lease_expires(
    checkpoint: Any, tmp_path: Path, host: str, seconds_ago: float, may_live: bool
) -> None:
    write_marker_of_host(host, tmp_path / MARKER_FILE, seconds_ago=seconds_ago)
    assert (other_process(ACCESS, checkpoint) is not None) is may_live


def test_a_start_waits_for_a_process_that_may_be_dead(
    checkpoint: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(marker, "_POLL_SECONDS", 0.05)
    write_marker_of_host(ELSEWHERE, tmp_path / MARKER_FILE, seconds_ago=58.5)
    write_marker(ACCESS, checkpoint).remove()
    assert caplog.text.count("waiting up to 60 s in case it is alive") == 1
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_a_start_is_refused_while_another_process_lives(
    checkpoint: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(marker, "LEASE_SECONDS", 0.3)
    with named_in(tmp_path / MARKER_FILE):
        if where == "elsewhere":
            write_marker_of_host(ELSEWHERE, tmp_path / MARKER_FILE)
        before = (tmp_path / MARKER_FILE).read_bytes()
        with pytest.raises(StateError, match="is running already, and was not started again"):
            write_marker(ACCESS, checkpoint)
    assert (tmp_path / MARKER_FILE).read_bytes() == before
    assert os.listdir(tmp_path) == [MARKER_FILE]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"host": "a", "pid": "x", "started": ""}'])
def test_markers_that_name_no_process(checkpoint: Any, tmp_path: Path, text: str) -> None:
    (tmp_path / MARKER_FILE).write_text(text)
    assert process_in_marker(checkpoint) is None


def test_a_process_removes_only_its_own_marker(checkpoint: Any, tmp_path: Path) -> None:
    first = QueryMarker(ACCESS, checkpoint)
    assert process_in_marker(checkpoint) == Owner.current()
    assert other_process(ACCESS, checkpoint) is None
    second = QueryMarker(ACCESS, checkpoint)
    content = (tmp_path / MARKER_FILE).read_bytes()
    first.remove()
    assert (tmp_path / MARKER_FILE).read_bytes() == content
    second.remove()
    assert not (tmp_path / MARKER_FILE).exists()
