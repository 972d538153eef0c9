"""Exchanges of programs that know nothing of Penstock, made adaptive by an option."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import penstock
from penstock.scheduler.job import HANDED_BACK, RECENT
from tests.conftest import OFF
from tests.equality import assert_same_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

ENABLED = "taskmanager.network.adaptive-partitioner.enabled"
CONSUMERS = 6


def plus_one(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch({"id": pa.array([one + 1 for one in batch.column("id").to_pylist()], pa.int64())})


def in_sql(spark: SparkSession) -> DataFrame:
    spark.udf.register("plus_one", lambda value: value + 1, "long")
    spark.range(0, 5000, 1, 3).createOrReplaceTempView("numbers")
    return spark.sql(f"SELECT plus_one(id) AS id FROM (SELECT /*+ REPARTITION({CONSUMERS}) */ id FROM numbers)")


PROGRAMS: dict[str, Callable[[SparkSession], DataFrame]] = {
    "repartition": lambda spark: spark.range(0, 5000, 1, 3).repartition(CONSUMERS).mapInArrow(plus_one, "id long"),
    "a hint of SQL": in_sql,
    "rebalance": lambda spark: penstock.rebalance(spark.range(0, 5000, 1, 3), CONSUMERS).map_in_arrow(
        plus_one, "id long"
    ),
}


@pytest.mark.parametrize("option", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_served_program_gains_by_the_option_alone(spark: SparkSession, name: str, option: bool) -> None:
    with penstock.enabled(spark, config=OFF | {ENABLED: option}):
        found = PROGRAMS[name](spark).collect()
        (job,) = RECENT
    assert [row.id for row in sorted(found)] == list(range(1, 5001))
    assert [one.reason for one in job.decisions if one.chosen == HANDED_BACK] == []
    assert ("REBALANCE(to the next free task)" in edges(job)) is option
    assert CONSUMERS in [vertex.tasks for vertex in job.vertices]


def edges(job: Any) -> set[str]:
    return {str(edge.partitioner) for edge in job.graphs.manager.graph.edges}


@pytest.mark.parametrize(
    ("consumers", "expected"), [(2, "REBALANCE(least loaded of 4)"), (CONSUMERS, "REBALANCE(to the next free task)")]
)
def test_a_served_call_that_is_adaptive(spark: SparkSession, consumers: int, expected: str) -> None:
    """Two consumers can run at the same time, and more than that cannot."""
    with penstock.enabled(spark, config=OFF):
        made = penstock.rebalance(spark.range(0, 5000, 1, 3), consumers, adaptive=True)
        df = made.map_in_arrow(plus_one, "id long")
        found = df.collect()
        (job,) = RECENT
    assert_same_rows(found, df.collect())
    assert expected in edges(job)
    assert consumers in [vertex.tasks for vertex in job.vertices]
