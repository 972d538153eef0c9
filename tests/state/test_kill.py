"""The driver is killed during a rescale; resume, abort and restart all lead to a correct state."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock.state as st
from penstock.errors import StateError
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.io.filesystem import HadoopPath
from penstock.state.journal import STAGING_FOLDER, Journal, Phase
from tests.state.queries import run
from tests.support.paths import TESTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


JOB = TESTS / "jobs" / "state_rescale.py"
PARTLY_PUBLISHED = 30
POINTS = (2, 7, 15, 19, 21, 24, 30, 38, 43, 46)
"""Of about fifty changes to files: the first twenty stage, the next publish, the last clean up."""
QUICK = {24}


def rescale_and_die(checkpoint: Path, change: int, *master: str) -> subprocess.CompletedProcess:
    command = [sys.executable, str(JOB), str(checkpoint), "8", str(change), *master]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "change", [point if point in QUICK else pytest.param(point, marks=pytest.mark.slow) for point in POINTS]
)
def test_killed_driver(spark: SparkSession, stopped: Any, tmp_path: Path, change: Any) -> None:
    query = stopped("counts updated")
    shutil.copytree(query.checkpoint, tmp_path / "killed")
    assert rescale_and_die(tmp_path / "killed", change).returncode == -9
    outcomes = []
    for action in ("resume", "abort", "restart"):
        checkpoint = tmp_path / action
        shutil.copytree(tmp_path / "killed", checkpoint)
        journal = Journal.load(HadoopPath(Bridge(spark), str(checkpoint)))
        begun = [batch for batch in (2, 3) if (checkpoint / f"offsets/{batch}").exists()]
        committed = (checkpoint / "commits/2").exists() and begun == [2]
        if action == "resume":
            if not (committed and journal is None):
                st.rescale(str(checkpoint), 8, spark=spark)
            assert not (checkpoint / STAGING_FOLDER).exists()
            assert st.inspect(str(checkpoint), spark=spark).max_parallelism == 8
        elif action == "abort":
            if journal is not None and journal.phase is Phase.PUBLISHING:
                with pytest.raises(StateError, match="middle of a rescale from 4 to 8"):
                    st.rescale(str(checkpoint), 6, spark=spark)
                partly_published = begun == [2] and not committed
                assert partly_published or change != PARTLY_PUBLISHED
                if partly_published:
                    obstacle = st.inspect(str(checkpoint), spark=spark).obstacle
                    assert obstacle is not None
                    assert "finish it with --max-parallelism 8" in obstacle
            try:
                st.abort(str(checkpoint), spark=spark)
            except StateError as error:
                assert committed
                assert "complete" in str(error)
            assert not (checkpoint / STAGING_FOLDER).exists()
            assert st.inspect(str(checkpoint), spark=spark).max_parallelism == (8 if committed else 4)
        elif journal is not None and journal.phase is Phase.PUBLISHING and begun and not committed:
            # Partly published: Spark refuses to start the query until the rescale is finished or undone.
            with pytest.raises(Exception, match=r"UNFINISHED_REPARTITION|rescale of this query half in place"):
                run(spark, query.query, query.input, checkpoint)
            outcomes.append("refused")
            continue
        assert run(spark, query.query, query.input, checkpoint) == query.later
        outcomes.append(action)
    assert len(outcomes) == 3


@pytest.mark.slow
def test_the_points_reach_every_phase(stopped: Any, tmp_path: Path) -> None:
    query = stopped("counts updated")
    shutil.copytree(query.checkpoint, tmp_path / "alive")
    done = rescale_and_die(tmp_path / "alive", 0)
    assert done.returncode == 0, done.stderr
    changes = int(done.stdout.split()[-1])
    assert max(POINTS) <= changes, "points beyond the last change have no effect"


@pytest.mark.slow
def test_executors_in_separate_processes(spark: SparkSession, stopped: Any, tmp_path: Path) -> None:
    query = stopped("counts updated")
    shutil.copytree(query.checkpoint, tmp_path / "checkpoint")
    done = rescale_and_die(tmp_path / "checkpoint", 0, "local-cluster[2,1,1024]")
    assert done.returncode == 0, done.stderr
    assert st.inspect(str(tmp_path / "checkpoint"), spark=spark).max_parallelism == 8
    assert run(spark, query.query, query.input, tmp_path / "checkpoint") == query.later
