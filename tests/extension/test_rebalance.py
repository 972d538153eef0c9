"""Exchanges of unmodified programs that an option makes adaptive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import penstock
from penstock.scheduler.job import RECENT, RUN_BY_SPARK
from tests.conftest import OFF
from tests.support.equality import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ENABLED = "taskmanager.network.adaptive-partitioner.enabled"
CONSUMERS = 6


def increment(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch({"id": pa.array([value + 1 for value in batch.column("id").to_pylist()], pa.int64())})


def in_sql(spark: SparkSession) -> DataFrame:
    spark.udf.register("increment", lambda value: value + 1, "long")
    spark.range(0, 5000, 1, 3).createOrReplaceTempView("numbers")
    return spark.sql(f"SELECT increment(id) AS id FROM (SELECT /*+ REPARTITION({CONSUMERS}) */ id FROM numbers)")


PROGRAMS: dict[str, Callable[[SparkSession], DataFrame]] = {
    "repartition": lambda spark: spark.range(0, 5000, 1, 3).repartition(CONSUMERS).mapInArrow(increment, "id long"),
    "a hint of SQL": in_sql,
    "rebalance": lambda spark: penstock.rebalance(spark.range(0, 5000, 1, 3), CONSUMERS).map_in_arrow(
        increment, "id long"
    ),
}


@pytest.mark.parametrize("option", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_option_makes_exchanges_of_a_program_adaptive(spark: SparkSession, name: str, option: bool) -> None:
    with penstock.enabled(spark, config=OFF | {ENABLED: option}):
        rows = PROGRAMS[name](spark).collect()
        (job,) = RECENT
    assert [row.id for row in sorted(rows)] == list(range(1, 5001))
    assert [decision.reason for decision in job.decisions if decision.chosen == RUN_BY_SPARK] == []
    assert ("REBALANCE(to the next free task)" in edges(job)) is option
    assert CONSUMERS in [vertex.tasks for vertex in job.vertices]


def edges(job: Any) -> set[str]:
    return {str(edge.partitioner) for edge in job.graphs.manager.graph.edges}


@pytest.mark.parametrize(
    ("consumers", "expected"), [(2, "REBALANCE(least loaded of 4)"), (CONSUMERS, "REBALANCE(to the next free task)")]
)
def test_a_served_call_that_is_adaptive(spark: SparkSession, consumers: int, expected: str) -> None:
    """Two consumers can run at the same time, but not more."""
    with penstock.enabled(spark, config=OFF):
        rebalanced = penstock.rebalance(spark.range(0, 5000, 1, 3), consumers, adaptive=True)
        df = rebalanced.map_in_arrow(increment, "id long")
        rows = df.collect()
        (job,) = RECENT
    assert_same_rows(rows, df.collect())
    assert expected in edges(job)
    assert consumers in [vertex.tasks for vertex in job.vertices]
