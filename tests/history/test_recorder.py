"""The records of real jobs: graphs, vertices, tasks, decisions, changes, failures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from penstock import Environment
from penstock.decisions.plain_spark import spark_alternative
from penstock.entry.observer import record_of
from penstock.errors import JobError
from penstock.history.event_log import EventLog, LocalFolder
from penstock.history.logs import History
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.io.filesystem import HadoopPath
from penstock.spark.io.logs import HadoopLogs
from tests.conftest import OFF

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


RUNTIME = OFF | {"table.optimizer.adaptive-broadcast-join.strategy": "RUNTIME_ONLY"}


def revenue(spark: SparkSession, build: Any = lambda df: df) -> Any:
    users = build(spark.range(0, 100, 1, 2).selectExpr("id as user", "id % 5 as team").where("hash(team) <> 7"))
    orders = spark.range(0, 30_000, 1, 4).selectExpr("id as amount", "id % 100 as customer")
    joined = orders.join(users, F.col("customer") == F.col("user"))
    return joined.groupBy("team").agg(F.sum("amount").alias("s"))


def watched(spark: SparkSession, folder: Path, **config: Any) -> Any:
    settings = RUNTIME | {"jobmanager.archive.fs.dir": str(folder)} | config
    return Environment(spark, config=settings, progress=False)


def test_job_is_recorded_with_its_decisions(spark: SparkSession, tmp_path: Path) -> None:
    env = watched(spark, tmp_path, **{"rest.token": "hunter2"})
    env.collect(revenue(spark))
    job = env.last_job
    record = History(LocalFolder(tmp_path)).record(job.id)
    assert record.state == "FINISHED"
    assert record.pending == 0
    assert record.status_counts()["FINISHED"] == len(job.vertices) == len(record.vertices)
    assert [d.values["reason"] for d in record.decisions] == [d.reason for d in job.decisions]
    assert [d.values["outcome"] for d in record.decisions] == [dict(d.outcome) for d in job.decisions]
    for execution in job.vertices:
        recorded = record.vertices[execution.vertex.id]
        assert (recorded.parallelism, recorded.bytes_out) == (execution.parallelism, execution.bytes_out)
        assert sum(recorded.subpartitions) == sum(execution.subpartitions)
        if execution.tasks:
            # A vertex that writes a shuffle and reads it again runs two stages.
            assert len(record.tasks[execution.vertex.id]) >= execution.tasks
    assert set(record.vertex_ids_by_node()) == set(record.nodes)
    assert ("HASH", "BROADCAST") in {(c.before.partition("(")[0], c.after) for c in record.changes}
    assert any("broadcast" in change.sentence for change in record.changes)
    assert record.config["rest.token"]["value"] == "******"
    assert "hunter2" not in next(tmp_path.glob("*.jsonl")).read_text()


def pass_on(batches: Any) -> Iterator[Any]:
    yield from batches


def test_what_spark_alone_does_is_recorded(spark: SparkSession, tmp_path: Path) -> None:
    env = watched(spark, tmp_path, **{"execution.shadow": "report"})
    env.collect(revenue(spark, lambda users: users.mapInPandas(pass_on, users.schema)))
    record = History(LocalFolder(tmp_path)).record(env.last_job.id)
    settings = record.spark_settings
    assert settings is not None
    assert settings.cores == spark.sparkContext.defaultParallelism
    assert settings.shuffle_partitions == int(str(spark.conf.get("spark.sql.shuffle.partitions")))
    alternatives = {decision.kind: spark_alternative(decision, settings) for decision in record.decisions}
    assert alternatives["broadcast"] is not None
    assert [(output.output, output.verdict) for output in record.compared] == [("collect", "equal")]
    assert record.spark_seconds is not None
    assert record.seconds_without_comparison(0.0) + record.spark_seconds < record.seconds(0.0)
    functions = [vertex.python_functions for vertex in record.vertices.values() if vertex.python_functions]
    assert functions == [("pass_on",)]
    stages = [stage for stages in record.stages.values() for stage in stages if stage.tasks]
    assert all(stage.cpu_seconds and stage.gc_seconds is not None for stage in stages)


def test_error_of_a_failed_job_is_recorded_without_secrets(spark: SparkSession, tmp_path: Path) -> None:
    env = watched(spark, tmp_path)

    def fail(batches: Any) -> Iterator[Any]:
        raise ValueError("cannot reach jdbc:postgresql://me:hunter2@db/shop")
        yield from batches

    with pytest.raises(JobError):
        env.collect(spark.range(10).mapInPandas(fail, "id long"))
    record = History(LocalFolder(tmp_path)).record(env.last_job.id)
    assert record.state == "FAILED"
    assert "ValueError" in record.exceptions[0].message + record.exceptions[0].trace
    assert "hunter2" not in next(tmp_path.glob("*.jsonl")).read_text()


def test_query_that_is_delegated_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    env = Environment(spark, config={"jobmanager.archive.fs.dir": str(tmp_path)}, progress=False)
    assert env.count(spark.range(10)) == 10
    record = History(LocalFolder(tmp_path)).record(env.last_job.id)
    assert (record.state, record.vertices) == ("FINISHED", {})
    assert record.decisions[0].chosen == "handed to Spark whole"


def test_logs_through_hadoop_are_the_same(spark: SparkSession, tmp_path: Path) -> None:
    env = watched(spark, tmp_path)
    logs = HadoopLogs(HadoopPath(Bridge(spark), str(tmp_path / "hadoop")))
    env.collect(revenue(spark))
    source = next(tmp_path.glob("*.jsonl"))
    log = EventLog(logs.create(source.name))
    log.write([json.loads(line) for line in source.read_text().splitlines()])
    assert History(logs).record(env.last_job.id) == History(LocalFolder(tmp_path)).record(env.last_job.id)
    assert History(logs).summaries() == History(LocalFolder(tmp_path)).summaries()


def test_job_without_a_log_can_be_shown(spark: SparkSession) -> None:
    env = Environment(spark, config=OFF, progress=False)
    env.collect(revenue(spark))
    record = record_of(env.last_job)
    assert record.state == "FINISHED"
    assert len(record.vertices) == len(env.last_job.vertices)


def test_notebooks_show_jobs_and_explanations(spark: SparkSession) -> None:
    env = Environment(spark, config=OFF, progress=False)
    df = revenue(spark)
    env.collect(df)
    shown = env.last_job._repr_html_()
    assert all(env.last_job.display_name(execution.vertex).split()[0] in shown for execution in env.last_job.vertices)
    assert "<script" not in shown
    assert "Plan before it runs" in env.explain(df)._repr_html_()
