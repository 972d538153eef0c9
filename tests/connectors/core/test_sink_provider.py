"""Sinks that are topologies: their operators become vertices of the job."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from penstock.connectors import DataFrameSinkProvider, FileSink
from penstock.entry.functions import with_parallelism
from penstock.errors import PenstockError, SinkError
from tests.support.equality import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock import Environment


class CheckedOrders(DataFrameSinkProvider):
    """Writes valid totals of customers as Parquet, and negative totals as JSON."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def consume_data_frame(self, df: DataFrame) -> Any:
        checked = df.groupBy("customer").agg(F.sum("price").alias("spent"))
        good, bad = checked.filter("spent >= 0"), checked.filter("spent < 0")
        return [
            (with_parallelism(good, 2), FileSink(f"{self.folder}/good")),
            (bad, FileSink(f"{self.folder}/bad", format="json")),
        ]


def test_a_sink_with_two_outputs_runs_their_shared_part_once(
    make_env: Callable[..., Environment], spark: SparkSession, tmp_path: Path
) -> None:
    orders = spark.range(0, 10_000, 1, 4).selectExpr(
        "id % 100 as customer", "id % 7 - if(id % 100 < 10, 50, 0) as price"
    )
    env = make_env()
    env.write(orders, CheckedOrders(tmp_path / "out"))
    job = env.execute()
    expected = orders.groupBy("customer").agg(F.sum("price").alias("spent"))
    good = spark.read.parquet(str(tmp_path / "out" / "good"))
    assert_same_rows(good.collect(), expected.filter("spent >= 0").collect())
    bad = [
        json.loads(line) for part in (tmp_path / "out" / "bad").glob("*.json") for line in part.read_text().splitlines()
    ]
    assert {row["customer"] for row in bad} == set(range(10))
    assert sum(vertex.vertex.name.count("Aggregate") for vertex in job.vertices) == 1  # the shared part runs once
    (writer,) = [vertex for vertex in job.vertices if "Sink: good" in vertex.vertex.name]
    assert writer.tasks == 2


def test_a_failing_output_prevents_the_other(
    make_env: Callable[..., Environment], spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "out" / "bad").mkdir(parents=True)
    env = make_env()
    with pytest.raises(SinkError, match="exists already"):
        env.write(spark.createDataFrame([(1, 2)], "customer int, price int"), CheckedOrders(tmp_path / "out"))
        env.execute()
    assert not (tmp_path / "out" / "good").exists()


def test_an_object_that_is_not_a_sink_is_an_error(make_env: Callable[..., Environment], spark: SparkSession) -> None:
    with pytest.raises(PenstockError, match="is not a sink"):
        make_env().write(spark.range(1), print)
