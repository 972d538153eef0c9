"""Batches for Python functions are those of plain Spark, measured or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from penstock.spark.dataframes import with_settings
from tests.equality import assert_same_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from penstock import Environment


def rows_of_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch({"rows": [batch.num_rows], "bytes": [batch.nbytes]})


TOLD = "rows long, bytes long"


@pytest.mark.parametrize("most_bytes", ["64m", "20000b", "400b"])
@pytest.mark.parametrize("most_rows", ["10000", "1000", "0"])
@pytest.mark.parametrize("columns", [["id"], ["id", "id % 3 = 0", "id / 2"], ["id", "repeat('x', int(id % 40))"]])
def test_batches_are_those_of_plain_spark(
    spark: SparkSession, make_env: Callable[..., Environment], columns: list[str], most_rows: str, most_bytes: str
) -> None:
    limits = {"maxBytesPerBatch": most_bytes, "maxRecordsPerBatch": most_rows}
    with with_settings(spark, {f"spark.sql.execution.arrow.{name}": value for name, value in limits.items()}):
        df = spark.range(0, 2500, 1, 2).selectExpr(*columns).mapInArrow(rows_of_batches, TOLD)
        assert_same_rows(make_env().collect(df), df.collect())


def test_a_session_that_is_used_again_has_the_limit_again(
    spark: SparkSession, make_env: Callable[..., Environment]
) -> None:
    """The first step has narrow rows and is not measured, the second one has texts."""
    with with_settings(spark, {"spark.sql.execution.arrow.maxBytesPerBatch": "400000b"}):
        narrow = spark.range(0, 30_000, 1, 2).mapInArrow(lambda batches: batches, "id long")
        texts = narrow.repartition(2, F.col("id") % 2).selectExpr("repeat('x', 60 + int(id % 9)) as text")
        df = texts.mapInArrow(rows_of_batches, TOLD).groupBy().agg(F.count("*"), F.max("rows") < 10_000)
        found: Any = make_env().collect(df)
        assert_same_rows(found, df.collect())
        assert found[0][1] is True
