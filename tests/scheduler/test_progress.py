"""Progress of running vertices on real Spark: a side that will be large is neither awaited nor broadcast."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from penstock import Environment
from penstock.decisions.log import Choice, DecisionKind, DecisionLog, NodeRef
from penstock.events import ExecutionState
from penstock.execution.context import spark_job_group
from penstock.graph import (
    CalcOperator,
    JobVertex,
    JoinOperator,
    JoinType,
    Operator,
    OperatorKind,
    ScanOperator,
    Side,
    StreamGraph,
    StreamNode,
)
from penstock.scheduler.adaptive_batch import is_single_stage
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.run.jobs import stages_of
from tests.support.equality import assert_same_rows

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession

FILES = 10
SLOW = 0.5
"""Seconds of each task of the awaited side."""
CONFIG = {
    "execution.batch.adaptive.whole-query-threshold": 0,
    "execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task": "256 kb",
    "table.optimizer.adaptive-broadcast-join.strategy": "RUNTIME_ONLY",
    "table.optimizer.dynamic-filtering.max-keys": 100,
}

JOIN = JoinOperator(JoinType.INNER)
# The operators of a vertex, whether a broadcast fell back to a shuffle, and whether a single stage writes its rows.
VERTICES: dict[str, tuple[list[Operator], bool, bool]] = {
    "rows of a source": ([ScanOperator(), CalcOperator()], False, True),
    "joins with broadcast sides": ([ScanOperator(), JOIN], False, True),
    "a side that was shuffled instead of broadcast": ([ScanOperator(), JOIN], True, False),
    "a join that Spark plans": ([ScanOperator(), Operator(OperatorKind.JOIN)], False, False),
    "an operator that Spark runs with its inputs": ([ScanOperator(), Operator(OperatorKind.OPAQUE)], False, False),
    "a union": ([ScanOperator(), Operator(OperatorKind.UNION)], False, False),
}


@pytest.mark.parametrize("case", VERTICES)
def test_is_single_stage(case: str) -> None:
    operators, has_fallback, expected = VERTICES[case]
    nodes = {number: StreamNode(number, operator, "Node") for number, operator in enumerate(operators, 1)}
    decisions = DecisionLog()
    decisions.record(Choice(DecisionKind.BROADCAST, NodeRef(2, "Join"), Side.LEFT, "small"))
    if has_fallback:
        decisions.record_fallback(DecisionKind.BROADCAST, NodeRef(2, "Join"), "it is shuffled", "it was too large")
    vertex = JobVertex("v1", "a vertex", tuple(nodes), (), None, None)
    assert is_single_stage(vertex, StreamGraph(tuple(nodes.values()), ()), decisions) is expected


def slowly(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for batch in batches:
        time.sleep(SLOW)
        yield batch


@pytest.mark.thorough
@pytest.mark.parametrize(("limit", "is_released"), [("2 kb", True), ("1 gb", False)])
def test_a_side_that_will_be_large(spark: SparkSession, tmp_path: Path, limit: str, is_released: bool) -> None:
    for name, rows in {"build": 50_000, "probe": 400_000}.items():
        table = spark.range(0, rows, 1, FILES).selectExpr("id", "id * 7 AS v", "uuid(7) AS pad")
        table.write.parquet(str(tmp_path / name))
    build = spark.read.parquet(str(tmp_path / "build")).mapInPandas(slowly, "id long, v long, pad string")
    probe = spark.read.parquet(str(tmp_path / "probe")).withColumnRenamed("v", "w")
    df = build.where("v >= 0").join(probe.drop("pad"), "id").groupBy(F.expr("id % 10")).agg(F.sum("v"), F.sum("w"))
    env = Environment(spark, config=CONFIG | {"table.optimizer.join.broadcast-threshold": limit}, progress=False)
    assert_same_rows(env.collect(df), df.collect())
    assert env.last_job is not None
    _, *released = [decision for decision in env.last_job.decisions if decision.kind == "build side first"]
    assert [str(decision.chosen) for decision in released] == (["not the left side"] if is_released else [])
    times = {vertex.vertex.name: vertex.timestamps for vertex in env.last_job.vertices}
    (awaited,) = (timestamps for name, timestamps in times.items() if "build" in name)
    (waiting,) = (timestamps for name, timestamps in times.items() if "probe" in name)
    starts_early = waiting[ExecutionState.RUNNING] < awaited[ExecutionState.FINISHED]
    assert starts_early is is_released
    if is_released:
        (decision,) = released
        assert 0 < decision.figures["tasks ended"] < decision.figures["tasks"]
        assert decision.figures["bytes"] > 2048


@pytest.mark.thorough
@pytest.mark.parametrize(("threshold", "is_stopped"), [("20 kb", True), ("10 mb", False)])
def test_a_broadcast_that_grows(spark: SparkSession, tmp_path: Path, threshold: str, is_stopped: bool) -> None:
    """Spark's statistics do not include the rows that ``explode`` adds."""
    spark.range(0, 40, 1, 20).write.parquet(str(tmp_path / "few"))
    spark.range(0, 200_000, 1, 4).selectExpr("id", "id * 3 AS w").write.parquet(str(tmp_path / "many"))
    few = spark.read.parquet(str(tmp_path / "few")).mapInPandas(slowly, "id long")
    grown = few.selectExpr("id", "explode(sequence(1, 5000)) AS v").selectExpr(
        "id * 5000 + v AS id", "v", "uuid(7) AS u"
    )
    df = (
        spark.read.parquet(str(tmp_path / "many"))
        .join(grown, "id")
        .groupBy(F.expr("id % 7"))
        .agg(F.sum("w"), F.sum("v"))
    )
    config = {
        "execution.batch.adaptive.whole-query-threshold": 0,
        "table.optimizer.join.broadcast-threshold": threshold,
        "scan.parallelism": 20,
    }
    env = Environment(spark, config=config, progress=False)
    assert_same_rows(env.collect(df), df.collect())
    assert env.last_job is not None
    (decision,) = [decision for decision in env.last_job.decisions if decision.kind == "broadcast"]
    assert decision.chosen == "right"
    assert ("stopped" in str(decision.outcome.get("because"))) is is_stopped
    (source,) = [snapshot.vertex for snapshot in env.last_job.vertices if "few" in snapshot.vertex.name]
    began, *written = [stage.completed for stage in stages_of(Bridge(spark), spark_job_group(env.last_job.id, source))]
    assert (began < 20, written) == ((True, [20]) if is_stopped else (False, []))
