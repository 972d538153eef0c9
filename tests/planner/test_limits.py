"""Queries with a limit compute partitions sequentially until they have enough rows, as Spark does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from tests.support.outcomes import CONFIGS, assert_same_outcome, mostly_slow, outcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment


pytestmark = pytest.mark.usefixtures("interpreted")
# The division fails for a row of the last file, which is not read if the limit is reached before.
CASES = {
    "a division": "select 10 / (id - 900) as q from n limit 3",
    "a division within reach": "select 10 / (id - 1) as q from n limit 3",
    "a division, with row numbers of Spark": "select 10 / (id - 900) as q, monotonically_increasing_id() >= 0 as m from (select id from n sort by id) limit 3",
    "a cast": "select cast(t as int) as q from n limit 5",
    "a date": "select to_date(if(id = 900, 'never', '2020-01-01')) as q from n limit 5",
    "raise_error": "select if(id = 900, raise_error('no'), id) as q from n limit 4",
    "behind a filter": "select 10 / (id - 900) as q from n where id >= 0 limit 3",
    "all rows": "select 10 / (id - 900) as q from n limit 100000",
    "offset": "select 10 / (id - 900) as q from n limit 3 offset 2",
    "only an offset": "select 10 / (id - 900) as q from n offset 990",
    "limit of a limit": "select * from (select 10 / (id - 900) as q from n limit 9) limit 3",
    "union": "select 10 / (id - 900) as q from n union all select 10 / (id - 901) from n limit 3",
    "broadcast join": "select 10 / (n.id - 900) as q from n join m on n.k = m.k limit 3",
    "aggregate": "select k, 10 / (k - 99) as q from n group by k limit 500",
    "sort": "select 10 / (id - 900) as q from n order by id limit 3",
    "sort by the failing expression": "select id from n order by 10 / (id - 900), id limit 3",
    "in a subquery": "select count(*) from (select 10 / (id - 900) as q from n limit 3)",
    "in a scalar subquery": "select id, (select max(q) from (select id as q from m order by id limit 1)) as q from m",
    "zero": "select 10 / (id - 900) as q from n limit 0",
}


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("limited")
    columns = "id", "id % 10 as k", "if(id >= 900, 'none', string(id)) as t"
    spark.range(0, 1000, 1, 8).selectExpr(*columns).write.parquet(str(folder / "n"))
    spark.range(0, 10, 1, 1).selectExpr("id", "id as k").write.parquet(str(folder / "m"))
    for name in ("n", "m"):
        spark.read.parquet(str(folder / name)).createOrReplaceTempView(name)
    yield
    for name in ("n", "m"):
        spark.catalog.dropTempView(name)


@pytest.mark.parametrize("config", mostly_slow([*CONFIGS][::-1], len(CONFIGS)))
@pytest.mark.parametrize("name", CASES)
def test_limited_queries_have_the_outcome_of_spark(
    spark: SparkSession, make_env: Callable[..., Environment], tables: Any, name: str, config: Any
) -> None:
    df = spark.sql(CASES[name])
    env = make_env(**CONFIGS[config])
    actual, expected = outcome(lambda: env.collect(df)), outcome(df.collect)
    if isinstance(expected, list) and "order by" not in CASES[name] and "limit" in CASES[name]:
        actual, expected = (
            rows if isinstance(rows, str) else len(rows) for rows in (actual, expected)
        )  # a limit without an order may return any rows
        assert actual == expected
    else:
        assert_same_outcome(actual, expected)


@pytest.mark.parametrize("fetch", ["to_pandas", "to_arrow", "count"])
def test_limited_results_in_other_forms_have_the_outcome_of_spark(
    spark: SparkSession, make_env: Callable[..., Environment], tables: Any, fetch: str
) -> None:
    df = spark.sql(CASES["a division"])
    env = make_env(**CONFIGS["as configured"])
    plain = {"to_pandas": df.toPandas, "to_arrow": df.toArrow, "count": df.count}[fetch]

    def size(rows: Any) -> Any:
        return rows if isinstance(rows, int) else len(rows)

    assert_same_outcome([outcome(lambda: size(getattr(env, fetch)(df)))], [outcome(lambda: size(plain()))])


def test_only_the_first_partitions_run(
    spark: SparkSession, make_env: Callable[..., Environment], tmp_path: Path
) -> None:
    """Each call of a function creates a file: few of 40 partitions are computed."""

    def create_files(batches: Any) -> Iterator[Any]:
        for batch in batches:
            (tmp_path / str(batch["id"][0])).touch()
            yield batch

    df = spark.range(0, 4000, 1, 40).mapInPandas(create_files, "id long").limit(9)
    assert len(make_env(**CONFIGS["as configured"]).collect(df)) == 9
    assert len(list(tmp_path.iterdir())) < 6


@pytest.mark.parametrize("config", mostly_slow([*CONFIGS][::-1], len(CONFIGS)))
def test_a_limit_over_a_python_function_over_a_sort_is_fast(
    spark: SparkSession, make_env: Callable[..., Environment], tables: Any, config: Any
) -> None:
    def same(batches: Any) -> Iterator[Any]:
        yield from batches

    df = spark.table("n").orderBy(F.desc("id")).mapInPandas(same, "id long, k long, t string").limit(9)
    env = make_env(**CONFIGS[config])
    started = time.monotonic()
    actual = env.collect(df)
    assert time.monotonic() - started < 20
    assert_same_outcome(actual, df.collect())
