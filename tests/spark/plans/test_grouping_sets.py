"""Aggregation before rows are expanded for grouping sets, on real Spark: equal rows, and fewer copies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from penstock.spark.bridge.jvm import Bridge, class_name
from penstock.spark.plans import catalyst
from penstock.spark.plans.dataframes import dataframe
from penstock.spark.plans.fragment import rdd_leaf
from penstock.spark.plans.grouping_sets import can_pre_aggregate
from penstock.spark.plans.nodes import read_plan
from penstock.spark.run import exchange
from tests.support.equality import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


ROWS = 10_000


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> Iterator[None]:
    spark.range(0, ROWS, 1, 4).selectExpr(
        "if(id % 11 = 0, null, id % 5) as a",
        "concat('b', id % 7) as b",
        "cast(id % 3 as int) as c",
        "cast(if(id % 13 = 0, null, id) as int) as v",
        "cast(id as decimal(9, 2)) / 7 as d",
        "id / 3.0D as f",
        "id % 100 as k",
        "id as l",
        "element_at(array(0.0D, -0.0D, double('NaN'), -double('NaN'), 1.5D), cast(id % 5 + 1 as int)) as z",
    ).createOrReplaceTempView("multiplied")
    yield
    spark.catalog.dropTempView("multiplied")


FUNCTIONS = (
    "sum(v), count(v), count(*), avg(v), min(v), max(v), sum(d), avg(d), sum(f), avg(f), stddev(f), corr(v, f), "
    "bool_or(v > 7), sum(v) filter (where v % 2 = 0), count(*) filter (where b = 'b3')"
)
CAN = [
    f"select a, b, {FUNCTIONS} from multiplied group by rollup(a, b)",
    f"select a, b, c, {FUNCTIONS} from multiplied group by cube(a, b, c)",
    f"select a, b, c, {FUNCTIONS} from multiplied group by grouping sets ((a), (b, c), ())",
    "select a, b, sum(v) from multiplied group by grouping sets ((a), (a), (a, b))",  # a duplicate grouping set
    "select a + 1, upper(b), sum(v) from multiplied group by rollup(a + 1, upper(b))",
    "select a, grouping(b), grouping_id(), sum(v) from multiplied group by rollup(a, b)",
    "select a, avg(a), max(a) from multiplied group by rollup(a)",  # aggregates of the original column
    "select a, b, sum(v) from multiplied group by rollup(a, b) having sum(v) > 10",
    "select a, b from multiplied group by rollup(a, b)",
    "select a, b, sum(v) from multiplied where v < 0 group by rollup(a, b)",
    "select a, 'x', sum(v) from multiplied group by rollup(a, 'x')",
    "select z, a, sum(v) from multiplied group by rollup(z, a)",  # 0.0, -0.0 and several NaN, which Spark considers equal
    "select a, approx_count_distinct(k) from multiplied group by rollup(a)",
]
CANNOT = [
    "select a, count(distinct v) from multiplied group by rollup(a)",
    "select a, max(b) from multiplied group by rollup(a)",  # a sort aggregate, as strings are immutable
    "select a, collect_list(b) from multiplied group by rollup(a)",
    "select count(distinct v), count(distinct k) from multiplied",  # an Expand for distinct aggregates
    "select a, sum(v) from multiplied group by a",
    # a sum of the finest groups may overflow although no requested sum does
    "select a, sum(l) from multiplied group by rollup(a, b)",
    "select a, try_sum(l) from multiplied group by rollup(a, b)",
    "select a, sum(cast(l as decimal(38, 0))) from multiplied group by rollup(a, b)",
    "select a, avg(cast(l as decimal(30, 0))) from multiplied group by rollup(a, b)",
    "select a, sum(make_dt_interval(v)) from multiplied group by rollup(a, b)",
    "select a, first(v) from multiplied group by rollup(a, b)",
]
WRAPPING = "select a, sum(l) from multiplied group by rollup(a, b)"
"""Without ANSI, sums of longs wrap around, with the same result in any order."""


def copies(result: Any) -> int:
    """Return the output rows of the ``ExpandExec`` of an executed stage."""
    (ran,) = exchange.executed_plans(result)
    plan = ran._handle
    while class_name(plan) != "ExpandExec":
        plan = plan.child()
    return int(plan.metrics().apply("numOutputRows").value())


def aggregate_of(spark: SparkSession, text: str) -> Any:
    plan = read_plan(catalyst.optimized_plan(Bridge(spark), spark.sql(text)))
    return next(node for node in plan.walk() if node.name == "Aggregate")


@pytest.mark.parametrize("text", CAN)
def test_rows_are_the_same(spark: SparkSession, table: Any, text: str) -> None:
    bridge = Bridge(spark)
    plan = aggregate_of(spark, text)
    assert can_pre_aggregate(plan)
    plain, early = (exchange.write(bridge.session, plan, pre_aggregated=first) for first in (False, True))
    leaf = rdd_leaf(bridge.session, plan.output, exchange.read_ranges(early, None).rows())
    actual, expected = (dataframe(bridge.session, plan_or_leaf).collect() for plan_or_leaf in (leaf, plan))
    assert_same_rows(actual, expected)
    assert early.rows == plain.rows
    if "where v < 0" not in text:
        assert copies(early) < copies(plain) / 10
        assert copies(plain) % ROWS == 0


@pytest.mark.parametrize("text", CANNOT)
def test_other_aggregates_are_not_pre_aggregated(spark: SparkSession, table: Any, text: str) -> None:
    aggregate = aggregate_of(spark, text)
    assert aggregate.children[0].name != "Expand" or not can_pre_aggregate(aggregate)


def test_sums_that_wrap_around_can_be_pre_aggregated(spark: SparkSession, table: Any) -> None:
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", False)
    try:
        assert can_pre_aggregate(aggregate_of(spark, WRAPPING))
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)
