"""How far a filter on join keys can be pushed down in Spark's optimised plans. No job runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from penstock.entry.results import ResultSink
from penstock.graph import JoinOperator, Side
from penstock.planner.outputs import Output
from tests.planner.drafts import steps_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("tables")
    for name in "abc":
        df = spark.range(10).selectExpr(
            "id", "id % 3 as k", "id * 2 as v", "cast(id as int) as i", "id / 2 as f", "string(id) as s"
        )
        df.write.parquet(str(folder / name))
        spark.read.parquet(str(folder / name)).createOrReplaceTempView(name)
    yield
    for name in "abc":
        spark.catalog.dropTempView(name)


def planned(make_env: Callable[..., Environment], spark: SparkSession, query: str) -> Any:
    """Return the job plan of a query, and its joins."""
    env = make_env(**{"table.optimizer.adaptive__broadcast__join.strategy": "RUNTIME_ONLY"})
    plan = steps_of(env, [Output(spark.sql(query), ResultSink("x", lambda df: df))])
    return plan, [node.operator for node in plan.graph if isinstance(node.operator, JoinOperator)]


def paths(make_env: Callable[..., Environment], spark: SparkSession, query: str) -> Any:
    """Return the sides of the last join of a query that can be filtered, with the lowest target of each path."""
    plan, joins = planned(make_env, spark, query)
    return {(path.side, plan.graph.node(path.targets[0]).name) for path in joins[-1].filters}


A, B, C = "Source: a", "Source: b", "Source: c"
CASES = {
    "inner": ("a join b on a.k = b.k", {("left", A), ("right", B)}),
    "left": ("a left join b on a.k = b.k", {("right", B)}),
    "right": ("a right join b on a.k = b.k", {("left", A)}),
    "full": ("a full join b on a.k = b.k", set()),
    "semi": ("a left semi join b on a.k = b.k", {("left", A), ("right", B)}),
    "anti": ("a left anti join b on a.k = b.k", {("right", B)}),
    "null safe": ("a join b on a.k <=> b.k", {("left", A), ("right", B)}),
    "renamed": ("(select k as x, v / 2 as y from a) join b on x = b.k", {("left", A), ("right", B)}),
    "computed below": ("(select v + 1 as y from a) join b on y = b.k", {("left", "Calc"), ("right", B)}),
    "cast": ("a join b on a.k = b.i", {("left", A), ("right", B)}),
    "may fail": ("(select * from a where v > 3) a join b on a.k % a.v = b.k", {("left", "Filter"), ("right", B)}),
    "cannot fail": ("(select * from a where v > 3) a join b on a.k % 5 = b.k", {("left", A), ("right", B)}),
    "may fail, the source itself": ("a join b on 10 div a.v = b.k", {("left", "Filter"), ("right", B)}),
    "behind what may fail": ("(select *, 10 / v as q from a) x join b on x.k = b.k", {("left", "Calc"), ("right", B)}),
    "behind a filter that may fail": (
        "(select * from a where cast(s as int) > 3) x join b on x.k = b.k",
        {("left", "Filter"), ("right", B)},
    ),
    "behind an overflow": ("(select *, v + 1 as q from a) x join b on x.k = b.k", {("left", "Calc"), ("right", B)}),
    "behind what cannot fail": (
        "(select *, v / 2 as q, upper(s) as u from a where s like 'x%y%') x join b on x.k = b.k",
        {("left", A), ("right", B)},
    ),
    "group of sums that overflow": (
        "(select k, f, sum(v) as s from a group by k, f) x join b on x.k = b.k",
        {("left", "Aggregate"), ("right", B)},
    ),
    "below a join that may fail": (
        "(select a.k from a join c on a.v = c.v and a.id / c.id > 1) x join b on x.k = b.k",
        {("left", "Join"), ("right", B)},
    ),
    "floats": ("a join b on a.f = b.f", set()),
    "strings": ("a join b on a.s = b.s", {("left", A), ("right", B)}),
    "not deterministic": (
        "(select * from a where rand() < 0.5) x join b on x.k = b.k",
        {("left", "Calc"), ("right", B)},
    ),
    "limit": ("(select * from a limit 5) x join b on x.k = b.k", {("left", "GlobalLimit"), ("right", B)}),
    # a side chained to the join is not measured before the join, so it provides no keys
    "group": ("(select k, max(v) as s from a group by k) x join b on x.k = b.k", {("left", A)}),
    "result of a group": (
        "(select k, sum(v) as s from a group by k) x join b on x.s = b.k",
        {("left", "Aggregate"), ("right", B)},
    ),
    "union": (
        "(select k from a union all select v from c) x join b on x.k = b.k",
        {("left", A), ("left", C), ("right", B)},
    ),
    "window by the key": (
        "(select *, rank() over (partition by k order by v) as r from a) x join b on x.k = b.k",
        {("left", A)},
    ),
    "window by another": (
        "(select *, rank() over (partition by v order by k) as r from a) x join b on x.k = b.k",
        {("left", "Window"), ("right", B)},
    ),
    "carried over": (
        "(select a.k, b.v from a join b on a.k = b.k) x join c on x.k = c.k",
        {("left", A), ("left", B), ("right", C)},
    ),
    "the side that may be null": (
        "(select a.k, b.v as w from a left join b on a.k = b.k where a.v <> 3) x left semi join c on x.w <=> c.k",
        {("left", "Join"), ("right", C)},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_paths(make_env: Callable[..., Environment], spark: SparkSession, tables: Any, name: str) -> None:
    query, expected = CASES[name]
    columns = "*" if name != "inner" else "a.id"
    assert paths(make_env, spark, f"select {columns} from {query}") == expected


SMALL = "(select k from c where v > 3 group by k)"
SHARED = {
    "once, because it is cheap": SMALL.replace(" group by k", ""),
    "once, because it is expensive": SMALL,
}


@pytest.mark.parametrize("name", SHARED)
def test_the_source_of_a_side_that_several_joins_share(
    make_env: Callable[..., Environment], spark: SparkSession, tables: Any, name: str
) -> None:
    side = SHARED[name]
    plan, joins = planned(
        make_env,
        spark,
        f"select a.id from a join {side} x on a.k = x.k union all select b.id from b join {side} x on b.k = x.k",
    )
    sources = [node.id for node in plan.graph if node.name == C]
    keys_from = [path.keys_from for join in joins for path in join.filters if path.side is Side.LEFT]
    assert len(joins) == len(keys_from) == 2
    assert keys_from == sources * 2
