"""Pre-aggregation before joins: the conditions, and rows equal to those of plain Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import Environment
from penstock.decisions.log import DecisionKind
from penstock.planner import pre_aggregation
from penstock.planner.pre_aggregation import reduction_factor
from penstock.spark.plans.join_pre_aggregation import Condition, RowsRead
from tests.support.equality import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EQUAL, RANGE = Condition("EqualTo", ("1",)), Condition("LessThan", ("2",))
OPTIONS = {"table.optimizer.join.broadcast-threshold": -1, "execution.batch.adaptive.whole-query-threshold": 0}

FACTS = (
    "if(id % 11 = 0, null, cast(id % 40 as int)) as k",
    "cast(id % 3 as int) as kind",
    "id % 4 <> 0 as flag",
    "if(id % 7 = 0, null, cast(id * 37 % 1000 as int)) as i",
    "cast(id * 1000003 as bigint) as big",
    "if(id % 5 = 0, null, cast(id % 90 / 10 - 4 as decimal(12, 2))) as d",
    "cast(id % 90 / 10 - 4 as decimal(5, 2)) as small",
    "cast(id % 9 as double) as f",
    "concat('t', id % 13) as s",
    "date_add(date'2024-01-01', cast(id % 50 as int)) as day",
    "collate(concat('K', id % 40), 'UTF8_LCASE') as c",
)
NAMES = (
    "if(id % 17 = 0, null, cast(id % 50 as int)) as k",  # some keys occur twice, some have no facts
    "concat('n', id % 6) as name",
    "cast(id % 4 as int) as kind",
    "collate(concat('k', id % 40), 'UTF8_LCASE') as c",
)
KINDS = ("cast(id as int) as kind", "concat('kind ', id % 2) as of")


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("tables")
    for name, rows, columns in (("facts", 900, FACTS), ("names", 70, NAMES), ("kinds", 3, KINDS)):
        spark.range(rows).selectExpr(*columns).write.parquet(str(folder / name))
        spark.read.parquet(str(folder / name)).createOrReplaceTempView(name)
    yield
    for name in ("facts", "names", "kinds"):
        spark.catalog.dropTempView(name)


@pytest.fixture
def forced(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """Pre-aggregates whenever possible, even if it does not pay off."""
    monkeypatch.setattr(pre_aggregation, "_MIN_REDUCTION", 0.0)
    return Environment(spark, config=OPTIONS, progress=False)


def pre_aggregates(env: Environment) -> bool:
    job = env.last_job
    assert job is not None
    return any(decision.kind is DecisionKind.EARLY_AGGREGATION for decision in job.decisions)


@pytest.mark.parametrize(
    ("rows", "bounds", "read", "expected"),
    [
        (100, (), [RowsRead(1000, ())], 10),
        (100, (5,), [RowsRead(1000, ())], 2),  # each key has up to five values of another column
        (100, (), [RowsRead(1000, (EQUAL,))], 1),
        (
            100,
            (),
            [RowsRead(1000, (EQUAL, Condition("In", ("1",))))],
            1,
        ),  # only the strictest condition on a column counts
        (
            100,
            (),
            [RowsRead(1000, (RANGE,)), RowsRead(30, (EQUAL,))],
            1 / 3,
        ),  # a condition on another table also removes rows
        (100, (), [RowsRead(1000, (Condition("Not", ("1",)),))], 9),
        (0, (), [RowsRead(1000, ())], 1000),
    ],
)
def test_reduction_factor(rows: Any, bounds: Any, read: Sequence[RowsRead], expected: float) -> None:
    assert reduction_factor(rows, bounds, read) == pytest.approx(expected)


INNER = "from facts join names on facts.k = names.k"
OUTER = "from names left join facts on facts.k = names.k"
PRE_AGGREGATED = {
    "all functions": f"select name, count(i), count(*), sum(i), sum(d), sum(small), min(s), max(day) {INNER} group by name",
    "an expression": f"select name, sum(d * 2 - small), count(upper(s)) {INNER} group by name",
    "expressions on sums": f"select upper(name), sum(d) / count(d) + 1 {INNER} group by upper(name) having sum(i) > 9",
    "projections": "select n, sum(x) from (select name as n, d + 1 as x from facts join names using (k)) group by n",
    "a renamed column": f"select kind2, sum(i) from (select facts.kind as kind2, i {INNER} where facts.kind = 1) group by 1",
    "an expression that several functions use": (
        "select * from (select n, sum(x) a, min(x) b, max(x) c from "
        "(select name as n, d * 2 - small as x from facts join names on facts.k = names.k) group by n) "
        "where a > -9999 order by n"
    ),
    "the keys are groups": f"select facts.k, names.k, count(i) {INNER} group by facts.k, names.k",
    "a column with a single value": f"select name, facts.kind, sum(i) {INNER} where facts.kind = 1 group by name, facts.kind",
    "a column of few values": f"select name, facts.kind, sum(i) {INNER} where facts.kind in (0, 2) group by 1, 2",
    "a condition that is a column": f"select name, facts.kind, sum(i) {INNER} where flag and facts.kind = 1 group by 1, 2",
    "three tables": f"select name, sum(i) {INNER} join kinds on facts.kind = kinds.kind where of = 'kind 1' group by name",
    "several keys": "select name, sum(i) from facts join names on facts.k = names.k and facts.kind = names.kind group by name",
    "left outer": f"select name, count(i), sum(d), min(s), sum(small) {OUTER} group by name",
    "left outer, groups of nulls alone": f"select names.k, sum(d), sum(small), sum(i), count(d), max(s) {OUTER} group by names.k",
    "left outer, with a condition": f"select name, count(i) {OUTER} and facts.s <> 't1' group by name",
    "right outer": "select name, count(i), max(d) from facts right join names on facts.k = names.k group by name",
    "rows that stay without names": (
        "select name, count(*), sum(i) from facts left join names on facts.k = names.k group by name"
    ),
}
QUICK = {"left outer, groups of nulls alone"}
NOT_PRE_AGGREGATED = {
    "distinct values": f"select name, count(distinct i) {INNER} group by name",
    "only some rows": f"select name, sum(i) filter (where d > 0) {INNER} group by name",
    "a mean": f"select name, avg(i) {INNER} group by name",
    "floating-point numbers": f"select name, sum(f) {INNER} group by name",
    "columns of both": f"select name, sum(i + names.kind) {INNER} group by name",
    "a function without columns": f"select name, grouping_id(), sum(i) {INNER} group by rollup(name)",
    "no groups": f"select sum(i) {INNER}",
    "no functions": f"select distinct name {INNER}",
    "a column of many values": f"select name, s, sum(i) {INNER} group by name, s",
    "an expression that may fail": f"select name, sum(i div (kind_of + 1)) from (select name, i, facts.kind as kind_of {INNER}) group by name",
    "a table with a condition": f"select name, sum(i) {INNER} where names.kind = 1 group by name",
    "a hint": "select /*+ merge(names) */ name, sum(i) from facts join names on facts.k = names.k group by name",
    "another condition": "select name, sum(i) from facts join names on facts.k < names.k group by name",
    "a computed key": "select name, sum(i) from facts join names on facts.k + 1 = names.k group by name",
    "a condition that may fail": (
        "select name, sum(i) from facts join names on facts.k = names.k "
        "join kinds on facts.kind = kinds.kind and 10 / (facts.k - 34 + 0 * length(of)) < 100 group by name"
    ),
    "collated keys": "select name, sum(i) from facts join names on facts.c = names.c group by name",
    "rows that an outer join adds": f"select name, count(*) {OUTER} group by name",
    "an expression of nulls": f"select name, sum(coalesce(i, 1)) {OUTER} group by name",
    "a full outer join": "select name, sum(i) from facts full join names on facts.k = names.k group by name",
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("ansi", [True, False])
@pytest.mark.parametrize(
    "query",
    [
        pytest.param(query, id=name, marks=() if name in QUICK else pytest.mark.thorough)
        for name, query in PRE_AGGREGATED.items()
    ],
)
def test_rows_are_those_of_plain_spark(
    spark: SparkSession, forced: Environment, tables: None, query: str, ansi: bool
) -> None:
    del tables
    spark.conf.set("spark.sql.ansi.enabled", str(ansi).lower())
    try:
        rows, expected = forced.collect(spark.sql(query)), spark.sql(query).collect()
        assert_same_rows(rows, expected)
        assert rows[0].__fields__ == expected[0].__fields__
        assert pre_aggregates(forced)
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


@pytest.mark.parametrize("query", NOT_PRE_AGGREGATED.values(), ids=NOT_PRE_AGGREGATED)
def test_queries_that_are_not_pre_aggregated(
    spark: SparkSession, forced: Environment, tables: None, query: str
) -> None:
    del tables
    assert_same_rows(forced.collect(spark.sql(query)), spark.sql(query).collect())
    assert not pre_aggregates(forced)


@pytest.mark.parametrize(("ansi", "early"), [(True, False), (False, True)])
def test_sums_of_long_integers_are_pre_aggregated_only_if_they_wrap_around(
    spark: SparkSession, forced: Environment, tables: None, ansi: bool, early: bool
) -> None:
    del tables
    query = f"select name, sum(big) {INNER} group by name"
    spark.conf.set("spark.sql.ansi.enabled", str(ansi).lower())
    try:
        assert_same_rows(forced.collect(spark.sql(query)), spark.sql(query).collect())
        assert pre_aggregates(forced) is early
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


@pytest.mark.parametrize(
    ("options", "early"),
    [
        ({}, True),
        ({"table.optimizer.early-sums.enabled": False}, False),
        ({"table.optimizer.join.broadcast-threshold": "1gb"}, False),  # no shuffle to avoid
    ],
)
def test_options(spark: SparkSession, forced: Environment, tables: None, options: Any, early: bool) -> None:
    del tables, forced
    env = Environment(spark, config=OPTIONS | options, progress=False)
    query = f"select name, sum(i) {INNER} group by name"
    assert_same_rows(env.collect(spark.sql(query)), spark.sql(query).collect())
    assert pre_aggregates(env) is early


def test_the_sentence_names_the_tables(spark: SparkSession, forced: Environment, tables: None) -> None:
    del tables
    forced.collect(spark.sql(f"select name, sum(i) {INNER} group by name"))
    job = forced.last_job
    assert job is not None
    (decision,) = (decision for decision in job.decisions if decision.kind is DecisionKind.EARLY_AGGREGATION)
    sentence = decision.displayed.sentence
    assert sentence.startswith(
        "facts is pre-aggregated by k before the join with names, as this reduces its rows by a factor of about "
    )
    assert decision.displayed.option == "table.optimizer.early-sums.enabled"


FUNCTIONS = ("count(i)", "count(*)", "sum(i)", "sum(d)", "sum(small)", "sum(d - small)", "min(s)", "max(day)", "min(i)")
GROUPS = ("name", "names.k", "facts.k", "upper(name)", "names.kind")


@pytest.mark.thorough
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    functions=st.lists(st.sampled_from(FUNCTIONS), min_size=1, max_size=4),
    groups=st.lists(st.sampled_from(GROUPS), min_size=1, max_size=3, unique=True),
    kind=st.sampled_from(["join", "left join", "right join"]),
    where=st.sampled_from(["", "where facts.kind = 1", "where i > 100", "where facts.kind <> 0 and d is not null"]),
    is_swapped=st.booleans(),
)
def test_generated_queries(
    spark: SparkSession,
    forced: Environment,
    tables: None,
    functions: list[str],
    groups: list[str],
    kind: str,
    where: str,
    is_swapped: bool,
) -> None:
    del tables
    first, second = ("names", "facts") if is_swapped else ("facts", "names")
    rows = f"from {first} {kind} {second} on facts.k = names.k {where}"
    query = f"select {', '.join([*groups, *functions])} {rows} group by {', '.join(groups)}"
    assert_same_rows(forced.collect(spark.sql(query)), spark.sql(query).collect())
