"""Which processes a marker is an obstacle of: those that live, and no later ones of the same number."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import pytest

from penstock.commit.owner import Owner
from penstock.state.marker import MARKER, mark, marked, runs_elsewhere, unmark
from tests.commit.local import LocalFolder
from tests.state.processes import named_in

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def checkpoint(tmp_path: Path) -> Any:
    return LocalFolder(None, str(tmp_path))


def test_a_process_that_lives_is_one_until_it_ends(checkpoint: Any, tmp_path: Path) -> None:
    with named_in(tmp_path / MARKER) as process:
        found = runs_elsewhere(checkpoint)
        assert found is not None
        assert found.pid == process.pid
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert runs_elsewhere(checkpoint) is None, "what has ended and nobody has asked about (a zombie) is gone"
    assert marked(checkpoint) == found


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"started": "1"}, id="a later process of the same number"),
        pytest.param({"host": "elsewhere/pid:[1]/1"}, id="another machine"),
        pytest.param({"host": f"{os.uname().nodename}/pid:[1]/1"}, id="a container of the same name"),
    ],
)
def test_a_process_that_is_not_the_marked_one_is_none(checkpoint: Any, tmp_path: Path, change: dict[str, str]) -> None:
    with named_in(tmp_path / MARKER):
        found = marked(checkpoint)
        assert found is not None
        (tmp_path / MARKER).write_text(json.dumps(asdict(replace(found, **change))))
        assert runs_elsewhere(checkpoint) is None


def test_a_process_whose_start_is_hidden_is_not_taken_for_gone(
    checkpoint: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file system of processes may hide those of other users."""

    def hides(_: int) -> str:
        raise FileNotFoundError

    with named_in(tmp_path / MARKER):
        monkeypatch.setattr("penstock.commit.owner._status", hides)
        assert runs_elsewhere(checkpoint) is not None


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"host": "a", "pid": "one", "started": ""}'])
def test_what_names_nobody(checkpoint: Any, tmp_path: Path, text: str) -> None:
    (tmp_path / MARKER).write_text(text)
    assert marked(checkpoint) is None


def test_a_process_takes_back_its_own_mark_only(checkpoint: Any, tmp_path: Path) -> None:
    first = mark(checkpoint)
    assert marked(checkpoint) == Owner.me()
    assert runs_elsewhere(checkpoint) is None
    second = mark(checkpoint)
    unmark(checkpoint, first)
    assert (tmp_path / MARKER).read_bytes() == second
    unmark(checkpoint, second)
    assert not (tmp_path / MARKER).exists()
