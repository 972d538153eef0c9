"""Concurrent jobs of an Environment in several threads, and of several Environments of a session."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock import Environment
from penstock.connectors import FileSink
from penstock.decisions.log import DecisionKind
from penstock.errors import JobCancelledError, JobError
from penstock.history.event_log import LocalFolder
from penstock.history.logs import History
from tests.conftest import OFF

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


ROUNDS = 3


@pytest.fixture(scope="module")
def facts(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = str(tmp_path_factory.mktemp("facts") / "facts")
    spark.range(0, 20_000, 1, 4).selectExpr("id % 97 as k", "id as v").write.parquet(path)
    return spark.read.parquet(path)


def groups(facts: Any, tasks: Any) -> Any:
    return penstock.with_parallelism(facts.groupBy("k").sum("v"), tasks, name=f"of {tasks}")


def collect_groups(env: Environment, facts: Any, tasks: Any, folder: Path) -> None:
    del folder
    assert sorted(map(tuple, env.collect(groups(facts, tasks)))) == SUMS


def write_outputs(env: Environment, facts: Any, tasks: Any, folder: Path) -> None:
    env.write(groups(facts, tasks), FileSink(str(folder / "sums")))
    env.write(facts.where(f"k < {tasks}"), FileSink(str(folder / "few")))
    job = env.execute(f"writes {tasks}")
    read = env.spark.read.parquet
    assert sorted(map(tuple, read(str(folder / "sums")).collect())) == SUMS
    assert read(str(folder / "few")).count() == sum(1 for number in range(20_000) if number % 97 < tasks)
    check_decisions_and_spark_jobs(env, job, tasks)


def rebalance_rows(env: Environment, facts: Any, tasks: Any, folder: Path) -> None:
    del folder
    df = penstock.rebalance(facts.where(f"k < {tasks}"), 2, adaptive=tasks % 2 == 0).map_in_arrow(
        lambda rows: rows, facts.schema
    )
    rows = env.collect(df.groupBy().agg({"v": "sum", "k": "count"}))
    numbers = [number for number in range(20_000) if number % 97 < tasks]
    assert [tuple(sorted(row)) for row in rows] == [tuple(sorted((len(numbers), sum(numbers))))]


def join_groups(env: Environment, facts: Any, tasks: Any, folder: Path) -> None:
    del folder
    df = facts.join(groups(facts, tasks), "k").where("v < 97")
    assert sorted((row.k, row["sum(v)"]) for row in env.collect(df)) == SUMS


def run_failing_query(env: Environment, facts: Any, tasks: Any, folder: Path) -> None:
    del folder
    with pytest.raises(JobError, match=f"on purpose {tasks}"):
        env.collect(groups(facts, tasks).selectExpr(f"raise_error('on purpose {tasks}')"))


def check_decisions_and_spark_jobs(env: Environment, job: Any, tasks: Any) -> None:
    """Check that a job has only decisions and Spark jobs of its own vertices."""
    (vertex,) = [execution for execution in job.vertices if f"of {tasks}" in execution.vertex.name]
    assert vertex.parallelism == tasks
    nodes = {node for execution in job.vertices for node in execution.vertex.node_ids}
    assert all(set(decision.nodes) <= nodes for decision in job.decisions)
    parallelism = [decision for decision in job.decisions if decision.kind is DecisionKind.VERTEX_PARALLELISM]
    assert all(
        f"of {other}" not in str(decision.subject)
        for decision in parallelism
        for other in KINDS_TASKS
        if other != tasks
    )
    tracker = env.spark.sparkContext.statusTracker()
    for execution in job.vertices:
        for number in tracker.getJobIdsForGroup(job.graphs.spark_job_group(execution.vertex)):
            ran = tracker.getJobInfo(number)
            assert ran is None or ran.status == "SUCCEEDED"


SUMS = sorted((k, sum(range(k, 20_000, 97))) for k in range(97))
KINDS = [collect_groups, write_outputs, rebalance_rows, join_groups, run_failing_query, write_outputs]
KINDS_TASKS = range(2, 2 + len(KINDS))


@pytest.mark.thorough
@pytest.mark.parametrize("environments", [1, 2])
def test_concurrent_jobs_have_their_own_rows_and_decisions(
    spark: SparkSession, facts: Any, tmp_path: Path, environments: int
) -> None:
    envs = [Environment(spark, config=OFF, progress=False) for _ in range(environments)]

    def run(number: Any, round_number: Any) -> None:
        kind, tasks = KINDS[number], KINDS_TASKS[number]
        folder = tmp_path / f"{round_number}-{number}"
        folder.mkdir()
        kind(envs[number % environments], facts, tasks, folder)

    for round_number in range(ROUNDS):
        with ThreadPoolExecutor(len(KINDS)) as pool:
            for future in [pool.submit(run, number, round_number) for number in range(len(KINDS))]:
                future.result(180)


@pytest.mark.thorough
def test_cancelling_a_job_does_not_affect_others(spark: SparkSession, env: Environment, facts: Any) -> None:
    def sleeping(batches: Any) -> Iterator[Any]:
        for batch in batches:
            time.sleep(60)
            yield batch

    # A single task sleeps, so that the second core runs the other job.
    slow = penstock.with_parallelism(facts.groupBy("k").sum("v"), 1).mapInPandas(sleeping, "k long, s long")
    for _ in range(ROUNDS):
        results: list[Any] = []
        env.write(slow, FileSink("/nowhere/that/is/written"))
        job = env.execute_async("slow")
        until = time.monotonic() + 30
        while job.status_counts.get("FINISHED", 0) < 1 and time.monotonic() < until:
            time.sleep(0.05)
        other = threading.Thread(target=lambda results=results: results.append(env.collect(groups(facts, 3))))
        other.start()
        time.sleep(0.2)
        started = time.monotonic()
        job.cancel()
        with pytest.raises(JobCancelledError):
            job.wait(10)
        assert time.monotonic() - started < 2
        other.join(60)
        assert sorted(map(tuple, results[0])) == SUMS


def test_hints_and_exchanges_can_be_created_concurrently(spark: SparkSession, env: Environment, facts: Any) -> None:
    """Creating an exchange briefly changes how functions are pickled in the whole process."""

    def make(number: Any) -> Any:
        df = penstock.rebalance(facts.where(f"k = {number}"), 2, adaptive=True).map_in_arrow(
            lambda rows: rows, facts.schema
        )
        return penstock.with_parallelism(df, 1)

    with ThreadPoolExecutor(6) as pool:
        frames = list(pool.map(make, range(12)))
    assert [env.count(df) for df in frames[:4]] == [len(range(k, 20_000, 97)) for k in range(4)]


def test_concurrent_jobs_have_their_own_records(spark: SparkSession, facts: Any, tmp_path: Path) -> None:
    env = Environment(spark, config=OFF | {"jobmanager.archive.fs.dir": str(tmp_path / "logs")}, progress=True)

    def run(tasks: Any) -> Any:
        env.write(groups(facts, tasks), FileSink(str(tmp_path / f"out{tasks}")))
        return env.execute(f"job of {tasks}")

    with ThreadPoolExecutor(3) as pool:
        ran = dict(zip((2, 3, 4), pool.map(run, (2, 3, 4)), strict=True))
    history = History(LocalFolder(tmp_path / "logs"))
    for tasks, job in ran.items():
        record = history.record(job.id)
        assert (record.name, record.state) == (f"job of {tasks}", "FINISHED")
        names = [vertex.name for vertex in record.vertices.values()]
        assert any(f"of {tasks}" in name for name in names)
        assert not any(f"of {other}" in name for name in names for other in ran if other != tasks)
