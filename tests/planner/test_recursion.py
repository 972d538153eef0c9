"""Recursive queries: Spark runs the recursion, and Penstock the operators around it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import JobCancelledError
from tests.support.outcomes import CONFIGS, assert_outcome_as_plain_spark, mostly_slow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment


pytestmark = pytest.mark.usefixtures("interpreted")
COUNT = "with recursive r(n) as (select 1 union all select n + 1 from r where n < 12)"
TREE = "with recursive r(id, depth) as (select id, 0 from e where parent is null union all select e.id, depth + 1 from r join e on e.parent = r.id)"
CASES = {
    "counting": f"{COUNT} select * from r",
    "aggregated": f"{COUNT} select count(*), sum(n) from r",
    "joined": f"{COUNT} select r.n, e.id from r join e on r.n = e.id",
    "joined, on the other side": f"{COUNT} select r.n, e.id from e join r on r.n = e.id",
    "left join": f"{COUNT} select e.id, r.n from e left join r on r.n = e.id",
    "semi join": f"{COUNT} select e.id from e left semi join r on r.n = e.id",
    "in": f"{COUNT} select id from e where id in (select n from r)",
    "not in": f"{COUNT} select id from e where id not in (select n from r)",
    "scalar subquery": f"{COUNT} select id from e where id > (select max(n) from r) - 3 and id < 20",
    "cross join": f"{COUNT} select count(*) from r cross join e",
    "tree": f"{TREE} select depth, count(*) from r group by depth",
    "tree, joined": f"{TREE} select r.depth, e.id from r join e on r.id = e.id where e.id < 50",
    "tree, twice": f"{TREE} select a.id, b.depth from r a join r b on a.id = b.id + 1 where a.id < 40",
    "hinted broadcast": f"{TREE} select /*+ broadcast(r) */ r.depth, e.id from r join e on r.id = e.id where e.id < 50",
    "union": f"{COUNT} select n from r union all select id from e where id < 5",
    "anchors": """with recursive r(n) as (select id from e where id < 3 union all select n + 10 from r where n < 60)
                  select n, count(*) from r group by n""",
    "limit inside": "with recursive r(n) as (select 1 union all select n + 1 from r) select n from r limit 7",
    "limit of a sort": f"{COUNT} select n from r order by n desc limit 3",
    "window": f"{COUNT} select n, sum(n) over (order by n) from r",
    "fails": "with recursive r(n) as (select 5 union all select n - 1 from r where 10 / n > 0) select * from r join e on r.n = e.id",
    "too deep": "with recursive r(n) as (select 1 union all select n + 1 from r) select max(n) from r join e on r.n = e.id",
}


@pytest.fixture(scope="module")
def edges(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    path = str(tmp_path_factory.mktemp("edges") / "e")
    spark.range(0, 120, 1, 4).selectExpr("id", "if(id = 0, null, id div 3) as parent").write.parquet(path)
    spark.read.parquet(path).createOrReplaceTempView("e")
    yield
    spark.catalog.dropTempView("e")


@pytest.mark.parametrize("config", mostly_slow([*CONFIGS][::-1], len(CONFIGS)))
@pytest.mark.parametrize("name", CASES)
def test_recursive_queries_return_the_rows_of_spark(
    spark: SparkSession, make_env: Callable[..., Environment], edges: Any, name: str, config: Any
) -> None:
    df = spark.sql(CASES[name])
    env = make_env(**CONFIGS[config])
    assert_outcome_as_plain_spark(env, df, 40)


@pytest.mark.alone
@pytest.mark.parametrize("query", ["select n from r", "select r.n, e.id from r join e on r.n = e.id"])
def test_a_recursive_query_is_cancelled_within_two_seconds(
    spark: SparkSession, make_env: Callable[..., Environment], edges: Any, query: str
) -> None:
    endless = "with recursive r(n) as (select 1 union all select n + 1 from r where n < 90)"
    slow = f"{endless} select count(*) from ({query}) x where java_method('java.lang.Thread', 'sleep', 300L) is null or n > 0"
    env = make_env(**CONFIGS["as configured"])
    raised = []

    def run() -> None:
        try:
            env.collect(spark.sql(slow))
        except JobCancelledError as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(4)
    started = time.monotonic()
    env.last_job.cancel()
    thread.join(10)
    assert time.monotonic() - started < 2
    assert raised
    assert env.last_job.state.value == "CANCELED"
