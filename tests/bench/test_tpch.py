"""All 22 TPC-H queries return Spark's rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.equality import assert_as_plain_spark, assert_same_rows
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment


QUERIES = ROOT / "data" / "queries" / "tpch.json"


@pytest.fixture(scope="module")
def tables(spark: SparkSession, data: Path) -> Iterator[Any]:
    for file in (data / "tpch-0.1").glob("*.parquet"):
        spark.read.parquet(str(file)).createOrReplaceTempView(file.stem)
    yield json.loads(QUERIES.read_text())
    for file in (data / "tpch-0.1").glob("*.parquet"):
        spark.catalog.dropTempView(file.stem)


@pytest.mark.parametrize("number", range(1, 23))
def test_a_query_returns_the_rows_of_spark(spark: SparkSession, env: Environment, tables: Any, number: int) -> None:
    text = tables[str(number)]
    assert_as_plain_spark(env, spark.sql(text))
    assert len(env.last_job.vertices) >= 2


@pytest.mark.thorough
def test_aggregates_by_the_join_key_need_no_further_exchange(
    spark: SparkSession, env: Environment, tables: Any
) -> None:
    """Aggregates by the join key, before and after the join, share its vertex."""
    text = """
        select /*+ merge(o) */ l_orderkey, sum(n) from
          (select l_orderkey, count(*) as n from lineitem group by l_orderkey) l join orders o on l_orderkey = o_orderkey
        group by l_orderkey"""
    rows = env.collect(spark.sql(text))
    names = [execution.vertex.name for execution in env.last_job.vertices]
    assert len(names) == 3
    assert names[-1].count("Aggregate") == 2
    assert "Join" in names[-1]
    assert_same_rows(rows, spark.sql(text).collect())


@pytest.mark.thorough
def test_vertices_run_with_the_decided_parallelism(spark: SparkSession, env: Environment, tables: Any) -> None:
    for number in ("3", "5", "18", "21"):
        env.collect(spark.sql(tables[number]))
        for execution in env.last_job.vertices:
            if execution.tasks:
                assert execution.tasks == execution.parallelism, f"Q{number} {execution.vertex.name}"
