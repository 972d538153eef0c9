"""Which processes a marker is an obstacle of: those that live, and no later ones of the same number."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import pytest

from penstock.commit import Access
from penstock.commit.owner import Owner
from penstock.errors import StateError
from penstock.state import marker
from penstock.state.marker import MARKER, Mark, marked, runs_elsewhere, take_over
from tests.commit.local import LocalFolder
from tests.state.processes import named_in

if TYPE_CHECKING:
    from pathlib import Path


ACCESS = Access(None)  # type: ignore[arg-type]
ELSEWHERE = "elsewhere/pid:[1]/1"


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    for module in ("claims", "lease"):
        monkeypatch.setattr(f"penstock.commit.{module}.Folder", LocalFolder)
    return LocalFolder(None, str(tmp_path))


def left_by(host: str, file: Path, *, seconds_ago: float = 0) -> None:
    """Write the mark of a process of another machine."""
    file.write_text(json.dumps({"host": host, "pid": 1, "started": "1"}))
    os.utime(file, (time.time() - seconds_ago,) * 2)


def test_a_process_that_lives_is_one_until_it_ends(checkpoint: Any, tmp_path: Path) -> None:
    with named_in(tmp_path / MARKER) as process:
        found = runs_elsewhere(ACCESS, checkpoint)
        assert found is not None
        assert found.pid == process.pid
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert runs_elsewhere(ACCESS, checkpoint) is None, (
            "what has ended and nobody has asked about (a zombie) is gone"
        )
    assert marked(checkpoint) == found


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"started": "1"}, id="a later process of the same number"),
    ],
)
def test_a_process_that_is_not_the_marked_one_is_none(checkpoint: Any, tmp_path: Path, change: dict[str, str]) -> None:
    with named_in(tmp_path / MARKER):
        found = marked(checkpoint)
        assert found is not None
        (tmp_path / MARKER).write_text(json.dumps(asdict(replace(found, **change))))
        assert runs_elsewhere(ACCESS, checkpoint) is None


def test_a_process_whose_start_is_hidden_is_not_taken_for_gone(
    checkpoint: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file system of processes may hide those of other users."""

    def hides(_: int) -> str:
        raise FileNotFoundError

    with named_in(tmp_path / MARKER):
        monkeypatch.setattr("penstock.commit.owner._status", hides)
        assert runs_elsewhere(ACCESS, checkpoint) is not None


@pytest.mark.parametrize(
    ("host", "seconds_ago", "is_one"),
    [
        pytest.param(ELSEWHERE, 10, True, id="another machine"),
        pytest.param(ELSEWHERE, 90, False, id="another machine, long ago"),
        pytest.param(f"{os.uname().nodename}/pid:[1]/1", 10, True, id="a container of the same name"),
        pytest.param(f"{os.uname().nodename}/pid:[1]/1", 90, False, id="a container of the same name, long ago"),
    ],
)
def test_a_process_that_cannot_be_looked_for_is_one_while_its_lease_lasts(
    checkpoint: Any, tmp_path: Path, host: str, seconds_ago: float, is_one: bool
) -> None:
    left_by(host, tmp_path / MARKER, seconds_ago=seconds_ago)
    assert (runs_elsewhere(ACCESS, checkpoint) is not None) is is_one


def test_a_start_waits_for_a_process_that_may_be_dead(
    checkpoint: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(marker, "_LOOK", 0.05)
    left_by(ELSEWHERE, tmp_path / MARKER, seconds_ago=58.5)
    take_over(ACCESS, checkpoint).remove()
    assert caplog.text.count("waiting up to 60 s whether it lives") == 1
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_a_start_is_refused_while_another_process_lives(
    checkpoint: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(marker, "LEASE", 0.3)
    with named_in(tmp_path / MARKER):
        if where == "elsewhere":
            left_by(ELSEWHERE, tmp_path / MARKER)
        before = (tmp_path / MARKER).read_bytes()
        with pytest.raises(StateError, match="runs already, and was not started again"):
            take_over(ACCESS, checkpoint)
    assert (tmp_path / MARKER).read_bytes() == before
    assert os.listdir(tmp_path) == [MARKER]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"host": "a", "pid": "one", "started": ""}'])
def test_what_names_nobody(checkpoint: Any, tmp_path: Path, text: str) -> None:
    (tmp_path / MARKER).write_text(text)
    assert marked(checkpoint) is None


def test_a_process_takes_back_its_own_mark_only(checkpoint: Any, tmp_path: Path) -> None:
    first = Mark(ACCESS, checkpoint)
    assert marked(checkpoint) == Owner.me()
    assert runs_elsewhere(ACCESS, checkpoint) is None
    second = Mark(ACCESS, checkpoint)
    named = (tmp_path / MARKER).read_bytes()
    first.remove()
    assert (tmp_path / MARKER).read_bytes() == named
    second.remove()
    assert not (tmp_path / MARKER).exists()
