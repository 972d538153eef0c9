"""Repartitions on real Spark: each row is in the partition of its id."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.errors import JobError
from tests.support.equality import assert_as_plain_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment

pytestmark = pytest.mark.skipif(
    not hasattr(DataFrame, "repartitionById"), reason="Spark has repartitionById since version 4.1"
)
ADAPTIVE = "taskmanager.network.adaptive__partitioner.enabled"
ROWS = "id", "if(id % 7 = 3, null, cast(id % 11 - 3 as int)) as target"  # also nulls, negative ids and too large ids


def with_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    task = TaskContext.get().partitionId()  # type: ignore[union-attr]
    for batch in batches:
        yield batch.append_column("task", pa.array([task] * batch.num_rows, pa.int32()))


def test_a_repartition_by_id_puts_each_row_into_its_partition(
    make_env: Callable[..., Environment], spark: SparkSession
) -> None:
    """Also if rebalances are adaptive: they do not move rows that belong to a fixed task."""
    for adaptive, partitions in ((False, 3), (True, 5), (True, 1)):
        env = make_env(**{ADAPTIVE: adaptive})
        df = spark.range(0, 60, 1, 2).selectExpr(*ROWS).repartitionById(partitions, "target")
        rows = assert_as_plain_spark(env, df.mapInArrow(with_task, "id long, target int, task int"))
        assert [row.task for row in rows] == [0 if row.target is None else row.target % partitions for row in rows]
        vertex = env.last_job.vertices[-1]
        assert (vertex.tasks, vertex.reason) == (partitions, f"parallelism is set to {partitions}")


def test_an_id_that_raises_fails_the_job(make_env: Callable[..., Environment], spark: SparkSession) -> None:
    df = spark.range(10).repartitionById(3, F.expr("cast(1 div (id - 5) as int)"))
    with pytest.raises(JobError, match="DIVIDE_BY_ZERO"):
        make_env().collect(df.mapInArrow(with_task, "id long, task int"))
