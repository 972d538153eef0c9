"""Values that may fail are computed after the filter or join that removes their row, as in generated code of Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from pyspark.errors import ArithmeticException, NumberFormatException
from pyspark.sql import functions as F

import penstock
from penstock.planner.late_values import with_late_values
from penstock.scheduler.job import RECENT, RUN_BY_SPARK
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.plans import catalyst
from penstock.spark.plans.dataframes import with_settings
from penstock.spark.plans.nodes import read_plan
from tests.conftest import OFF
from tests.support.equality import assert_same_rows
from tests.support.stages import computed_by_duckdb

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUOTIENT = "sum(id) / (max(k) - 49) as v"
SMALL = "(select /*+ broadcast(s) */ * from {} s)"
REMOVED = {
    "having": f"select k, {QUOTIENT} from t group by k having max(k) <> 49",
    "a filter": f"select k, v from (select k, {QUOTIENT}, max(k) as m from t group by k) where m <> 49",
    "a filter of grouping sets": f"select k, x, {QUOTIENT} from t group by rollup (k, x) having k is not null and max(k) < 49",
    "a filter of another computed value": (
        f"select k, v + 1 from (select k, {QUOTIENT}, 2 * count(*) as n, max(k) as m from t group by k) where n + m <> 849"
    ),
    "a broadcast table": f"select k, v, w from (select k, {QUOTIENT} from t group by k) join {SMALL.format('small')} using (k)",
    "a broadcast table of other keys": (
        f"select x, v from (select x, max(k) as k, {QUOTIENT} from t group by x) join {SMALL.format('small')} using (k)"
    ),
    "a semi-join": f"select k, v from (select k, {QUOTIENT} from t group by k) left semi join {SMALL.format('small')} using (k)",
    "an anti-join": f"select k, v from (select k, {QUOTIENT} from t group by k) left anti join {SMALL.format('last')} using (k)",
    "a join without equal keys": f"select /*+ broadcast(s) */ v, w from (select k, {QUOTIENT} from t group by k) r join small s on s.k < r.k and r.k <> 49",
    "two filters of the same part": (
        f"with r as (select k, {QUOTIENT}, max(k) as m from t group by k)"
        " select a.v, b.v from r a join r b on a.k = b.k + 1 where a.m <> 49 and b.m < 40"
    ),
    "a value twice": f"select k, {QUOTIENT}, {QUOTIENT.replace('as v', 'as w')} from t group by k having max(k) <> 49",
    "a value in another": (
        f"select k, {QUOTIENT}, 2 * {QUOTIENT.replace('as v', 'as w')} from t group by k having max(k) <> 49"
    ),
    "a value twice, behind a join": (
        f"select k, v, u from (select k, {QUOTIENT}, 1 + {QUOTIENT.replace('as v', 'as u')} from t group by k)"
        f" join {SMALL.format('small')} using (k)"
    ),
    "a small table": f"select k, v, w from (select k, {QUOTIENT} from t group by k) join medium using (k)",
    "a small table, first": f"select k, v, w from medium join (select k, {QUOTIENT} from t group by k) using (k)",
    "a value twice, behind a small table": (
        f"select k, v, u, w from (select k, {QUOTIENT}, 1 + {QUOTIENT.replace('as v', 'as u')} from t group by k)"
        " join medium using (k)"
    ),
    "a filter below a broadcast table": (
        "select k, v, w from (select k, sum(id) / max(if(k = 49, 0, 1)) as v, count(*) as c from t group by k"
        f" having count(*) < 500) join {SMALL.format('small')} using (k)"
    ),
    "no aggregate function": f"select k, v from (select k, 10 / (k - 49) as v from t group by k) join {SMALL.format('small')} using (k)",
    "two levels": (
        f"select k, max(v) from (select k, x, {QUOTIENT}, max(k) as m from t group by k, x) where m <> 49"
        " group by k having min(k) < 48"
    ),
}
NEEDED = {
    "no filter": f"select k, {QUOTIENT} from t group by k",
    "a filter of the value": f"select k, v from (select k, {QUOTIENT}, max(k) as m from t group by k) where v > 0 or m = 49",
    "a broadcast table that has the key": f"select k, v from (select k, {QUOTIENT} from t group by k) join {SMALL.format('last')} using (k)",
    "no groups": f"select {QUOTIENT} from t having max(k) <> 49",
    "a function of sorted rows": "select k, cast(max(s) as int) as v from t group by k having max(s) <> 'bad'",
    "a function that keeps all values": (
        "select k, 1 / (percentile(k, 0.5) - 49) as v from t group by k having max(k) <> 49"
    ),
    "groups that cannot be hashed": f"select c, {QUOTIENT} from t group by c having max(k) <> 49",
    "sorted before": f"select k, v from (select k, {QUOTIENT} from t group by k order by v) where k < 100",
}
FAILURES = (ArithmeticException, NumberFormatException)
MATCH = "DIVIDE_BY_ZERO|CAST_INVALID_INPUT"


@pytest.fixture(scope="module", autouse=True)
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder: Path = tmp_path_factory.mktemp("late")
    spark.range(0, 20_000, 1, 3).selectExpr(
        "id",
        "id % 50 as k",
        "id % 200 as x",
        "if(id % 50 = 49, 'bad', '1') as s",
        "cast(id % 50 as string) collate utf8_lcase as c",
    ).write.parquet(str(folder / "t"))
    spark.read.parquet(str(folder / "t")).createOrReplaceTempView("t")
    spark.range(49).selectExpr("id as k", "2 * id as w").createOrReplaceTempView("small")
    spark.range(49, 50).selectExpr("id as k").createOrReplaceTempView("last")
    wide = "concat(sha2(string(id), 512), sha2(string(-id), 512)) as w"
    spark.range(49).selectExpr("id as k", wide).write.parquet(str(folder / "medium"))
    spark.read.parquet(str(folder / "medium")).createOrReplaceTempView("medium")
    with with_settings(spark, {"spark.sql.ansi.enabled": "true"}):
        yield
    for name in ("t", "small", "last", "medium"):
        spark.catalog.dropTempView(name)


BY_DUCKDB = {
    "execution.native": True,
    "execution.native.exclude": "divide",
    "execution.batch.adaptive.whole-query-threshold": 30_000,
}
"""DuckDB reads the large table in one task. Spark reads the others, which hold fewer bytes, and computes the values."""
CONFIGS = [{}, {"execution.native": False}, {"parallelism.default": 3}, BY_DUCKDB]
NOT_BY_DUCKDB = {
    "a semi-join",
    "an anti-join",
    "no groups",
    "a function of sorted rows",
    "a function that keeps all values",
    "groups that cannot be hashed",
}
"""Queries that Spark computes, because DuckDB does not support a hint, type or function, or fails."""


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize("query", [*REMOVED, *NEEDED])
def test_a_query_fails_only_if_it_fails_on_spark(spark: SparkSession, query: str, config: dict[str, Any]) -> None:
    expected = spark.sql(REMOVED[query]).collect() if query in REMOVED else None
    if expected is None:
        with pytest.raises(FAILURES, match=MATCH):
            spark.sql(NEEDED[query]).collect()
    before = list(RECENT)
    with penstock.enabled(spark, config=OFF | config):
        df = spark.sql(REMOVED[query] if query in REMOVED else NEEDED[query])
        if expected is None:
            with pytest.raises(FAILURES, match=MATCH):
                df.collect()
        else:
            assert_same_rows(df.collect(), expected)
            assert len(expected) > 0
    (job,) = [job for job in RECENT if job not in before]
    assert not [decision for decision in job.decisions if decision.chosen == RUN_BY_SPARK]
    if config is BY_DUCKDB:
        assert computed_by_duckdb(job) == (query not in NOT_BY_DUCKDB)


CHANGED = {
    REMOVED["having"]: ["Project", "Filter", "Project", "Aggregate"],
    NEEDED["no filter"]: ["Aggregate"],
    "select k, sum(id) as s from t group by k having max(k) <> 49": [
        "Project",
        "Filter",
        "Aggregate",
    ],  # only the sum may fail
    "select k, first(id) / 0 as q from t group by k having max(k) <> 49": ["Project", "Filter", "Project", "Aggregate"],
    "select k, q from (select k, avg(id) / 2 as q from t group by k) where q > 1": ["Filter", "Aggregate"],
    f"select k, v from (select k, {QUOTIENT} from t group by k order by k) limit 3": [
        "GlobalLimit",
        "LocalLimit",
        "Sort",
        "Aggregate",
    ],
}


def test_python_aggregates_have_no_generated_code(spark: SparkSession) -> None:
    def latest(values: pd.Series) -> float:
        return float(values.max())

    longest = F.pandas_udf(latest, "double")
    df = spark.table("t").groupBy("k").agg(longest("id").alias("v")).where("v > 19990")
    expected = df.collect()
    with penstock.enabled(spark, config=OFF):
        assert_same_rows(df.select("k", "v").collect(), expected)
    assert not [decision for decision in RECENT[-1].decisions if decision.chosen == RUN_BY_SPARK]


@pytest.mark.parametrize("query", CHANGED)
def test_only_values_that_may_fail_and_be_removed_become_a_projection(spark: SparkSession, query: str) -> None:
    plan = read_plan(catalyst.optimized_plan(Bridge(spark), spark.sql(query)))
    names = [node.name for node in with_late_values(plan).walk()]
    assert names[: names.index("Aggregate") + 1] == CHANGED[query]


def test_a_filter_of_a_random_value_removes_the_rows_of_this_value(spark: SparkSession) -> None:
    """The filter must not be computed with another random value than the result."""
    random = "cast(java_method('java.lang.Math', 'random') as double)"
    sql = f"select * from (select id, 1 / ({random} + count(x) - count(x)) as v from t group by id) where v > 2"
    with penstock.enabled(spark, config=OFF | BY_DUCKDB):
        rows = spark.sql(sql).collect()
    assert len(rows) > 0
    assert [row for row in rows if row.v <= 2] == []
