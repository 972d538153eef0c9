"""Sinks of jobs that do not start, and jobs whose event log cannot be created."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock import Environment
from penstock.connectors.core.base import Sink, SinkJob
from penstock.errors import JobCancelledError, SinkError
from penstock.scheduler.job import Job
from tests.conftest import OFF

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Recorded(Sink):
    """A sink that records calls, and may fail when it is opened."""

    def __init__(self, calls: list[str], name: str = "recorded", error: BaseException | None = None) -> None:
        self._calls, self._name, self._error = calls, name, error

    @property
    def name(self) -> str:
        return self._name

    def open(self, spark: SparkSession) -> SinkJob:
        if self._error is not None:
            raise self._error
        self._calls.append(f"open {self._name}")
        return RecordedJob(self._calls, self._name)


class RecordedJob(SinkJob):
    def __init__(self, calls: list[str], name: str) -> None:
        self._calls, self._name = calls, name

    def write(self, df: DataFrame) -> None:
        self._calls.append(f"write {self._name} {df.count()}")

    def commit(self) -> None:
        self._calls.append(f"commit {self._name}")

    def abort(self) -> None:
        self._calls.append(f"abort {self._name}")


def test_an_open_sink_is_aborted_if_another_cannot_be_opened(spark: SparkSession) -> None:
    calls: list[str] = []
    env = Environment(spark, progress=False)
    env.write(spark.range(3), Recorded(calls))
    env.write(spark.range(3), Recorded(calls, "silent", SinkError("the database does not answer")))
    with pytest.raises(SinkError, match="does not answer"):
        env.execute()
    assert calls == ["open recorded", "abort recorded"]


def test_an_open_sink_is_aborted_if_the_user_interrupts_another_open(spark: SparkSession) -> None:
    calls: list[str] = []
    env = Environment(spark, progress=False)
    env.write(spark.range(3), Recorded(calls))
    env.write(spark.range(3), Recorded(calls, "slow", KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        env.execute()
    assert calls == ["open recorded", "abort recorded"]


@pytest.mark.parametrize("config", [{}, OFF], ids=["whole query", "vertices"])
def test_open_sinks_are_aborted_if_the_job_is_cancelled_before_it_starts(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any]
) -> None:
    calls: list[str] = []
    env = Environment(spark, config=config, progress=False)
    monkeypatch.setattr(env._observer, "watch", Job.cancel)  # a user may cancel the job once the page shows it
    for name in ("first", "second"):
        env.write(spark.range(3).groupBy("id").count(), Recorded(calls, name))
    with pytest.raises(JobCancelledError):
        env.execute()
    until = time.monotonic() + 10
    while len(calls) < 4 and time.monotonic() < until:
        time.sleep(0.05)
    assert sorted(calls) == ["abort first", "abort second", "open first", "open second"]


def test_an_open_sink_is_aborted_if_the_job_cannot_be_planned(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    env = Environment(spark, progress=False)

    def fails(*_: Any) -> None:
        raise RuntimeError("no plan")

    monkeypatch.setattr(env, "_plan", fails)
    env.write(spark.range(3), Recorded(calls))
    with pytest.raises(RuntimeError, match="no plan"):
        env.execute()
    assert calls == ["open recorded", "abort recorded"]


def test_a_job_runs_without_an_event_log_that_cannot_be_created(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "logs"
    env = Environment(spark, config={"jobmanager.archive.fs.dir": str(folder)}, progress=False)
    (tmp_path / "logs").rmdir() if folder.exists() else None
    folder.write_text("not a folder")
    calls: list[str] = []
    env.write(spark.range(3), Recorded(calls))
    env.execute()
    assert calls == ["open recorded", "write recorded 3", "commit recorded"]
    assert "runs without an event log" in caplog.text
