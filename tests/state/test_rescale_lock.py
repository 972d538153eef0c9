"""The lock of a rescale: other processes are refused while its holder lives, and continue its work afterwards."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock.state as st
from penstock.errors import StateError
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.io.filesystem import HadoopPath
from penstock.state.journal import CLAIM_FILE, STAGING_FOLDER, Journal, rescale_lock
from tests.commit.local import LocalFolder
from tests.state.processes import named_in
from tests.state.queries import digest, run
from tests.state.test_start_query import start
from tests.support.paths import TESTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = TESTS / "jobs" / "state_rescale.py"


@pytest.fixture
def checkpoint(stopped: Any, tmp_path: Path) -> Any:
    shutil.copytree(stopped("counts updated").checkpoint, tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


@pytest.fixture
def actions(spark: SparkSession, stopped: Any, checkpoint: Any) -> dict[str, Callable[[], Any]]:
    """All actions that need the lock of a rescale."""

    return {
        "rescale": lambda: st.rescale(str(checkpoint), 8, spark=spark),
        "abort": lambda: st.abort(str(checkpoint), spark=spark),
        "prune": lambda: st.prune(str(checkpoint), spark=spark),
        "start": lambda: start(spark, stopped("counts updated"), checkpoint),
    }


def all_refused(actions: dict[str, Callable[[], Any]], checkpoint: Path, pid: int) -> None:
    before = digest(checkpoint)
    for action in actions.values():
        with pytest.raises(StateError, match=f"(?s)is under way; nothing was done.*process {pid} on .* works on it"):
            action()
        assert digest(checkpoint) == before


@pytest.mark.thorough
@pytest.mark.parametrize("phase", [None, "staging", "publishing"])
def test_another_live_process_holds_the_lock(
    spark: SparkSession, checkpoint: Any, actions: Any, phase: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At any step: before its journal, with a journal, or while it publishes its files."""
    if phase == "publishing":
        monkeypatch.setattr(HadoopPath, "move_to", lambda *_: False)
        with pytest.raises(StateError, match=r"(?s)in the middle of a rescale from 4 to 8.*could not be moved"):
            st.rescale(str(checkpoint), 8, spark=spark)
        monkeypatch.undo()
    else:
        (checkpoint / STAGING_FOLDER).mkdir()
        if phase is not None:
            Journal(1, 4, 8).save(HadoopPath(Bridge(spark), str(checkpoint)))
    with named_in(checkpoint / CLAIM_FILE) as other:
        all_refused(actions, checkpoint, other.pid)
    assert (actions["rescale"]() is None) is (phase == "publishing")
    assert st.inspect(str(checkpoint), spark=spark).max_parallelism == 8
    assert not (checkpoint / CLAIM_FILE).exists()


@pytest.mark.thorough
def test_a_rescale_of_this_process_holds_the_lock_at_each_step(
    spark: SparkSession, stopped: Any, checkpoint: Any, actions: Any
) -> None:
    steps = []

    def intrude(done: int, total: int, step: str) -> None:
        if step != "done":
            steps.append(step)
            all_refused(actions, checkpoint, os.getpid())

    assert st.rescale(str(checkpoint), 8, spark=spark, on_progress=intrude).new == 8
    assert len(steps) == 2, "staging and publishing"
    query = stopped("counts updated")
    assert run(spark, query.query, query.input, checkpoint) == query.later


@pytest.mark.slow
@pytest.mark.parametrize(("change", "journal"), [(8, "staging.json"), (26, "publishing.json")])
def test_a_running_command_holds_the_lock_until_it_dies(
    spark: SparkSession, stopped: Any, checkpoint: Any, actions: Any, change: int, journal: str
) -> None:
    command = [sys.executable, str(JOB), str(checkpoint), "8", f"-{change}"]
    with subprocess.Popen(command) as other:
        try:
            deadline = time.monotonic() + 90
            while not is_stopped(other.pid):
                assert other.poll() is None, "it has not stopped"
                assert time.monotonic() < deadline
                time.sleep(0.1)
            assert (checkpoint / STAGING_FOLDER / journal).exists()
            all_refused(actions, checkpoint, other.pid)
        finally:
            other.send_signal(signal.SIGKILL)
    assert (actions["rescale"]() is None) is (journal == "publishing.json")
    query = stopped("counts updated")
    assert run(spark, query.query, query.input, checkpoint) == query.later


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_a_checkpoint_that_cannot_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("state.checkpoint", "commit.claims"):
        monkeypatch.setattr(f"penstock.{module}.HadoopPath", LocalFolder)

    def full(*_: Any, **__: Any) -> bool:
        raise OSError(28, "No space left on device")

    for name in ("metadata", "offsets", "commits"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(LocalFolder, "write", full)
    with (
        pytest.raises(StateError, match=r"(?s)cannot be written to; nothing was done.*No space left"),
        rescale_lock(None, LocalFolder(None, str(tmp_path))),  # type: ignore[arg-type]
    ):
        pytest.fail("the lock must not be acquired")
