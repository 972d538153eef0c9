"""Repeated parts of a query are planned once, and the rows equal those of plain Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from penstock.entry.results import ResultSink
from penstock.graph import JoinOperator
from penstock.planner.outputs import Output
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.plans import catalyst
from penstock.spark.plans.nodes import read_plan
from tests.planner.drafts import steps_of
from tests.support.equality import assert_as_plain_spark, assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment


pytestmark = pytest.mark.usefixtures("interpreted")
# Spark truncates strings after 25 arguments, so two functions that differ in the 30th have the same string.
LONG = f"max(xxhash64({'v, ' * 29}{{}}))"
VOLUME = "execution.batch.adaptive.auto__parallelism.avg__data__volume__per__task"
SUMS = "select k, sum(v) as s, sum(w) as t from {} group by k"
# name: query, the outermost parts that are read more than once
CASES = {
    "the same aggregate": (
        f"with x as ({SUMS.format('t')}) select * from x union all select * from x where s > 3",
        ["Aggregate"],
    ),
    "other expressions on the same functions": (
        f"with x as ({SUMS.format('t')}) select k, s / t as r from x union all select k, s + t from x union all select 0, sum(s + t) from x",
        ["Aggregate"],
    ),
    "other functions": (
        "select k, sum(v) as s from t group by k union all select k, max(w) from t group by k",
        [],
    ),
    "other groups": ("select k, sum(v) as s from t group by k union all select v, sum(v) from t group by v", []),
    "other rows": (
        "select k, sum(v) s, sum(w) from t where v > 1 group by k union all select k, sum(v) / 2, sum(w) from t where v > 2 group by k",
        [],
    ),
    "columns swapped": (
        "select k, sum(v) as s, sum(w) as u from t group by k union all select k, sum(w) / 2, sum(v) from t group by k",
        ["Aggregate"],
    ),
    "aggregates of aggregates": (
        (
            "with x as (select k, v, sum(w) as s from t group by k, v), y as (select k, max(s) as m, min(s) as n from x group by k)"
            " select k, m - n as d from y union all select k, m from y union all select k, n from y"
        ),
        ["Aggregate"],
    ),
    "functions with equal strings": (
        (
            f"select k, {LONG.format('v')} + 1 as a, {LONG.format('w')} as b from t group by k"
            f" union all select k, {LONG.format('v')}, {LONG.format('w')} from t group by k"
        ),
        ["Aggregate"],
    ),
    "distinct and filtered": (
        (
            "select k, count(distinct v) * 2 as c, sum(w) filter (where v > 1) as f from t group by k"
            " union all select k, count(distinct v), sum(w) filter (where v > 2) from t group by k"
        ),
        [],
    ),
    "a lookup": (
        "select t.k, d.w from t join d on t.k = d.k where d.v < 3 union all select t.k, d.w from t join d on t.k = d.k where d.v < 5",
        [],
    ),
    "not deterministic": (
        (
            "select k, sum(r) as s, max(r) from (select k, rand() as r from t) group by k union all"
            " select k, sum(r) / 2, max(r) from (select k, rand() as r from t) group by k"
        ),
        [],
    ),
}


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("tables")
    for name, rows in (("t", 2000), ("d", 20)):
        df = spark.range(rows).selectExpr("id % 20 as k", "id % 7 as v", "cast(id % 11 as decimal(9, 2)) as w")
        df.write.parquet(str(folder / name))
        spark.read.parquet(str(folder / name)).createOrReplaceTempView(name)
    yield
    for name in "td":
        spark.catalog.dropTempView(name)


@pytest.mark.parametrize("name", CASES)
def test_shared_parts(make_env: Callable[..., Environment], spark: SparkSession, tables: Any, name: str) -> None:
    query, expected = CASES[name]
    env = make_env()
    plan = steps_of(env, [Output(spark.sql(query), ResultSink("x", lambda df: df))])
    shared = [n for n in plan.graph if len(plan.graph.out_edges(n.id)) > 1]
    expensive = [n.name for n in shared if n.kind.name != "SOURCE" and n.name != "Calc"]
    assert expensive == expected
    if "rand()" not in query:
        assert_same_rows(env.collect(spark.sql(query)), spark.sql(query).collect())


def test_a_part_with_a_nondeterministic_input_is_nondeterministic(spark: SparkSession, tables: Any) -> None:
    df = spark.sql("select k, sum(r) from (select k, rand() r from t) group by k")
    assert not read_plan(catalyst.optimized_plan(Bridge(spark), df)).is_deterministic


JOINED = "select t.k, t.v, u.w from t join t u on t.k = u.k and t.v <> u.v"


@pytest.mark.thorough
@pytest.mark.parametrize("again", ["x.k", "x.v"])
def test_inputs_of_a_join_are_shared_instead_of_its_rows(
    make_env: Callable[..., Environment], spark: SparkSession, tables: Any, again: str
) -> None:
    query = f"with x as ({JOINED}) select k, count(*) as n from x group by k union all select {again}, max(v + w) from x group by {again}"
    env = make_env(**{"table.optimizer.join.broadcast__threshold": "-1"})
    plan = steps_of(env, [Output(spark.sql(query), ResultSink("x", lambda df: df))])
    several = {n.name for n in plan.graph if len(plan.graph.out_edges(n.id)) > 1}
    assert several
    assert not several & {"Join", "Project", "Read shared"}
    assert sum(n.name == "Join" for n in plan.graph) == 2
    assert_same_rows(env.collect(spark.sql(query)), spark.sql(query).collect())


@pytest.mark.thorough
def test_joins_that_share_an_input_have_as_many_subpartitions(
    make_env: Callable[..., Environment], spark: SparkSession, tables: Any
) -> None:
    joins = ["t join d on t.k = d.k", "t join (select * from t where v > 2) d on t.k = d.k"]
    df = spark.sql(" union all ".join(f"select t.k, t.v, d.w from {join}" for join in joins))
    env = make_env(**{"table.optimizer.join.broadcast__threshold": "-1", VOLUME: "1 kb"})
    plan = steps_of(env, [Output(df, ResultSink("x", lambda df: df))])
    sides = [edge.id for edge in plan.graph.edges if isinstance(plan.graph.node(edge.target_id).operator, JoinOperator)]
    assert len({plan.groups[edge] for edge in sides}) == 2
    assert len({plan.family(plan.groups[edge]) for edge in sides}) == 1
    assert_as_plain_spark(env, df)
    written = {len(v.subpartitions) for v in env.last_job.vertices if "Source" in v.vertex.name}
    assert len(written) == 1
    assert not [v.vertex.name for v in env.last_job.vertices if "is not divided by size" in v.reason]


CHAINED = "select t.k as k, t.v from t join (select k, v, w from t where v > 1) u on t.k = u.k and t.v <> u.v"


def test_a_broadcast_join_preserves_the_partitioning(
    make_env: Callable[..., Environment], spark: SparkSession, tables: Any
) -> None:
    """Rows partitioned by the keys of a side of an inner join are also partitioned by those of the other side."""
    spark.range(5).selectExpr("id as j").createOrReplaceTempView("few")
    query = f"select /*+ broadcast(few) */ few.j, count(*) from ({CHAINED}) x join few on x.k = few.j group by few.j"
    df = spark.sql(query)
    env = make_env(**{"table.optimizer.join.broadcast__threshold": "-1"})
    with_few = env.collect(df)
    assert_same_rows(with_few, df.collect())
    (joined,) = (v.vertex.name for v in env.last_job.vertices if "Join" in v.vertex.name)
    assert joined.count("Join") == 2
    assert "Aggregate" in joined
    spark.catalog.dropTempView("few")
