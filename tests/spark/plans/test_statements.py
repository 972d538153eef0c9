"""Which parsed statements are queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.spark.bridge.jvm import Bridge
from penstock.spark.plans.statements import is_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERIES = [
    "select 1",
    "values (1), (2)",
    "from t select a",
    "table t",
    "with q as (select 1) select * from q",
    "select 1 union all select 2 union all select 3",
    "(select 1 union select 2) order by 1",
    "with q as (select 1) select * from q union all select 2",
]
COMMANDS = [
    "insert into t values (1)",
    "create table t as select 1",
    "with q as (select 1) insert into t select * from q",
    "from s insert into t select *",
    "from s insert into a select * insert into b select *",
    "with s as (select 1) from s insert into a select * insert into b select *",
    "execute immediate 'insert into t values (1)'",
    "execute immediate 'select 1'",
    "begin insert into t values (1); end",
    "insert overwrite directory '/x' using parquet select 1",
    "drop table t",
    "show tables",
]


@pytest.mark.parametrize("statement", [*QUERIES, *COMMANDS])
def test_is_query(spark: SparkSession, statement: str) -> None:
    assert is_query(Bridge(spark), statement) is (statement in QUERIES)
