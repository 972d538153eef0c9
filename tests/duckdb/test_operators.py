"""Each operator that DuckDB computes, with many of its functions in one query: rows equal plain Spark's.

The tables have ties, nulls and rows without a partner, so that a wrong frame, order, join type or function shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock import Environment
from tests.support.equality import assert_same_rows
from tests.support.native import compute_all_natively
from tests.support.stages import SINGLE_DUCKDB_TASK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = {
    "t": """SELECT CAST(id % 5 AS int) k, nullif(CAST(id % 7 AS int), 3) v, CAST(id % 4 - 1.5 AS decimal(15, 2)) price,
        CASE WHEN id % 6 = 0 THEN NULL ELSE concat('s', id % 3) END s, id % 3 = 0 b, id big,
        date_add(date'2026-01-30', CAST(id % 40 AS int)) day FROM range(60)""",
    "u": "SELECT CAST(id % 8 AS int) uk, CAST(id AS int) uv, concat('s', id % 4) us FROM range(2, 14)",
}
SINGLE_TASK = {"execution.native": True, "execution.batch.adaptive.whole-query-threshold": 1}
OVER = "PARTITION BY k ORDER BY v"
FRAMES = [
    f"{function} OVER ({frame})"
    for function in ("sum(v)", "count(v)", "count(*)", "min(day)", "max(s)", "sum(price)", "avg(price)")
    for frame in (
        "PARTITION BY k",
        OVER,
        f"{OVER} DESC NULLS LAST",
        f"{OVER}, big, uv ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
        f"{OVER} RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    )
]
RANKS = [
    "row_number() OVER (PARTITION BY k ORDER BY v, big, uv)",
    "rank() OVER (PARTITION BY s ORDER BY v DESC)",
    "dense_rank() OVER (ORDER BY v NULLS LAST)",
]
AGGREGATES = [
    *("count(*)", "count(v)", "count(DISTINCT s)", "count(DISTINCT v)", "sum(v)", "sum(DISTINCT v)", "min(day)"),
    *("max(s)", "min(b)", "max(price)", "sum(price)", "avg(price)", "avg(v)", "sum(big)", "count(v) FILTER (WHERE b)"),
    "sum(CASE WHEN b THEN v END)",
]
EXPRESSIONS = [
    *("v * 2 - k", "v + big", "price * 1.5", "price / 7", "CAST(big AS decimal(12, 1))"),
    *("upper(s)", "lower(s)", "s || 'x'", "substring(s, 2, 1)", "left(s, 1)", "contains(s, '1')", "startswith(s, 's')"),
    *("s LIKE '_1'", "s IN ('s1', 's2')", "v BETWEEN 2 AND 5", "v <=> k", "v IS NOT NULL", "NOT b OR v > 2"),
    *("coalesce(v, -1)", "nullif(v, k)", "if(b, v, k)", "year(day)", "month(day)", "dayofmonth(day)", "day + 3"),
    "CASE WHEN v > 3 THEN 'large' WHEN v IS NULL THEN 'null' ELSE 'small' END",
]
JOINS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN")


def select(values: list[str], rest: str) -> str:
    return f"SELECT {', '.join(f'{value} c{number}' for number, value in enumerate(values))} {rest}"


QUERIES = {
    "frames of windows": select(["k", "big", "uv", *FRAMES], "FROM t JOIN u ON k = uk"),
    "ranks": select(["k", "big", *RANKS], "FROM t JOIN u ON k = uk"),
    "aggregates by a key": select(["k", *AGGREGATES], "FROM t GROUP BY k"),
    "aggregates of all rows": select(AGGREGATES, "FROM t"),
    "aggregates by several sets of keys": select(["k", "s", *AGGREGATES[:6]], "FROM t GROUP BY ROLLUP (k, s)"),
    "expressions": select([f"max({expression})" for expression in EXPRESSIONS], "FROM t GROUP BY big"),
    **{
        f"a {join.lower()}": f"SELECT t.k, t.big{', uv, us' if join not in JOINS[4:] else ''} FROM t {join} u "
        "ON k = uk AND v <> uv"
        for join in JOINS
    },
    "a join that takes nulls for equal": "SELECT big, uv FROM t JOIN u ON s <=> us",
    "groups that a condition leaves": "SELECT k, sum(v) n FROM t GROUP BY k HAVING sum(v) > 28",
    "a union of all": "SELECT k, count(v) FROM (SELECT k, v FROM t UNION ALL SELECT uk, uv FROM u) GROUP BY k",
    "distinct rows": "SELECT DISTINCT k, s FROM t",
    "rows of a subquery": "SELECT big FROM t WHERE k IN (SELECT uk FROM u WHERE uv > 5) AND v > (SELECT min(uv) FROM u)",
    "rows that a subquery does not have": "SELECT big FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE uk = v)",
    "the first rows": "SELECT k, s, count(*) n FROM t GROUP BY k, s ORDER BY n DESC, s NULLS LAST, k LIMIT 11",
}


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder: Path = tmp_path_factory.mktemp("tables")
    with pytest.MonkeyPatch.context() as patch:
        compute_all_natively(patch)
        for name, query in TABLES.items():
            spark.sql(query).coalesce(1).write.parquet(str(folder / name))
            spark.read.parquet(str(folder / name)).createOrReplaceTempView(name)
        yield


@pytest.mark.usefixtures("tables", "interpreted")
@pytest.mark.sample(len(QUERIES))
@pytest.mark.parametrize("name", QUERIES)
def test_rows(spark: SparkSession, name: str) -> None:
    df = spark.sql(QUERIES[name])
    env = Environment(spark, config=SINGLE_TASK, progress=False)
    assert_same_rows(env.collect(df), df.collect())
    assert env.last_job is not None
    assert [decision.chosen for decision in env.last_job.decisions if decision.kind == "native"] == [SINGLE_DUCKDB_TASK]
