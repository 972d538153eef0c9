"""Windows computed in chunks, on real Spark: supported windows, and equal rows."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.spark.bridge.jvm import Bridge
from penstock.spark.plans import catalyst, window_chunks
from penstock.spark.plans.dataframes import dataframe, with_settings
from penstock.spark.plans.fragment import rdd_leaf
from penstock.spark.plans.nodes import read_plan
from penstock.spark.run import exchange
from tests.support.equality import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.usefixtures("interpreted")

MAPPERS = 6
FLOATS = "array(0.0D, -0.0D, double('NaN'), double('-Infinity'), id % 3 / 3.0D)"
COLUMNS = {
    "i": "cast(pmod(hash(id, 1), {values}) - 3 as int)",
    "l": "4611686018427387904L - pmod(hash(id, 2), {values})",
    "d": "cast(pmod(hash(id, 3), {values}) as decimal(7, 2)) / 4",
    "e": "cast(pmod(hash(id, 3), {values}) as decimal(28, 4))",
    "f": f"element_at({FLOATS}, cast(pmod(hash(id, 8), 5) + 1 as int))",
    "s": "concat('s', pmod(hash(id, 4), {values}))",
    "b": "cast(concat('s', pmod(hash(id, 4), {values})) as binary)",
    "t": "date_add(date'2026-01-01', pmod(hash(id, 5), {values}))",
    "o": "pmod(hash(id, 6), 2) = 0",
    "n": "struct(pmod(hash(id, 7), {values}) as a, if(id % 2 = 0, null, id % 3) as b)",
    "c": "concat('s', pmod(hash(id, 4), {values})) collate utf8_lcase",
}


def view(spark: SparkSession, hot: int = 9, values: int = 20, rows: int = 600) -> None:
    """Register rows of which `hot` tenths share a key; other columns have up to `values` values, and 1 in 11 is null."""
    columns = (f"if(id % 11 = 0, null, {text.format(values=values)}) as {name}" for name, text in COLUMNS.items())
    keys = (
        f"if(id % 10 < {hot}, 7, nullif(id % 40, 11)) as k",
        f"if(id % 10 < {hot}, if(id % 2 = 0, 0.0D, -0.0D), f) as z",
    )
    spark.range(0, rows, 1, MAPPERS).selectExpr("id", *columns).selectExpr("*", *keys).createOrReplaceTempView("hot")


def windows(spark: SparkSession, functions: Collection[str], keys: str, order: str) -> DataFrame:
    over = f"partition by {keys} order by {order}"
    return spark.sql(f"select *, {', '.join(functions)} from hot".replace("WINDOW", over))


def window_of(df: DataFrame) -> Any:
    plan = read_plan(catalyst.optimized_plan(Bridge(df.sparkSession), df))
    return next(node for node in plan.walk() if node.name == "Window")


def in_chunks(spark: SparkSession, plan: Any, chunks: int, hot: int) -> tuple[list, int]:
    """Return the rows of a window over chunks of its largest subpartitions, and the number of non-empty chunks."""
    session = Bridge(spark).session
    result = exchange.write(session, plan)
    assert window_chunks.indivisible_plan_reason(result) is None
    sizes = result.sizes[0].tolist()
    largest = sorted(range(len(sizes)), key=lambda i: -sizes[i])[:hot]
    mappers = len(result.mapper_bytes([0]))
    boundaries = sorted({0, mappers // 2, mappers})
    divided = window_chunks.divide(
        result, [(index, span) for index in largest for span in pairwise(boundaries)], chunks
    )
    assert 1 <= len(divided.sizes) <= chunks
    rows = window_chunks.run_window(session, result, divided, chunks)
    assert rows.tasks == chunks
    others = [[((i, i + 1), None)] for i in range(len(sizes)) if i not in largest]
    both = window_chunks.concatenate([exchange.read_slices(result, others), rows])
    assert both.tasks == chunks + len(others)
    leaf = rdd_leaf(session, plan.output, both, ordering=result.plan.ordering)
    result_rows: list = dataframe(session, leaf).collect()
    return result_rows, int((divided.sizes > 0).sum())


RANKS = ["rank() over (WINDOW)", "dense_rank() over (WINDOW)"]
RANGES = [
    "count(*) over (WINDOW)",
    "count(f) over (WINDOW)",
    "sum(i) over (WINDOW)",
    "sum(cast(i as smallint)) over (WINDOW)",
    "try_sum(i) over (WINDOW)",
    "sum(d) over (WINDOW)",
    "sum(e) over (WINDOW)",
    "min(i) over (WINDOW)",
    "max(s) over (WINDOW)",
    "min(b) over (WINDOW)",
    "max(d) over (WINDOW)",
    "min(t) over (WINDOW)",
    "max(o) over (WINDOW)",
    "count_if(i > 4) over (WINDOW)",
]
ROWS = [
    "row_number() over (WINDOW)",
    *(function.replace("WINDOW", "WINDOW rows unbounded preceding") for function in RANGES),
    "min(e) over (WINDOW rows between unbounded preceding and current row)",
]
WITHOUT_ANSI = ["sum(l) over (WINDOW)"]
KEYS = ["k", "z", "k, o", "z, k", "s", "struct(k, f)", "cast(k as decimal(9, 2)), b", "t, k"]
ORDERS = [
    "i",
    "i desc",
    "f",
    "f desc nulls last",
    "s, f",
    "n desc",
    "b nulls last",
    "d desc, t",
    "o, i nulls last",
    "id",
]
CANNOT = [
    ("lag(i) over (WINDOW)", "lag needs all rows of a key in one task"),
    ("rank() over (WINDOW), ntile(3) over (WINDOW)", "ntile needs all rows of a key in one task"),
    ("percent_rank() over (WINDOW)", "percent_rank needs"),
    ("cume_dist() over (WINDOW)", "cume_dist needs"),
    ("first(i) over (WINDOW)", "first needs"),
    ("nth_value(i, 2) over (WINDOW)", "nth_value needs"),
    ("avg(i) over (WINDOW)", "avg needs"),
    ("stddev(i) over (WINDOW)", "stddev needs"),
    ("collect_list(i) over (WINDOW)", "collect_list needs"),
    ("sum(f) over (WINDOW)", "this sum may have a different result"),
    ("sum(l) over (WINDOW)", "this sum may have a different result"),
    ("sum(cast(d as decimal(30, 2))) over (WINDOW)", "this sum may have a different result"),
    ("min(f) over (WINDOW)", "this min may have a different result"),
    ("max(c) over (WINDOW)", "this max may have a different result"),
    ("max(n) over (WINDOW)", "this max may have a different result"),
    ("sum(i) filter (where i > 3) over (WINDOW)", "this sum may have a different result"),
    (
        "sum(i) over (WINDOW rows between 3 preceding and current row)",
        "sum has another frame than UNBOUNDED PRECEDING to CURRENT ROW, so it needs all rows",
    ),
    ("sum(i) over (WINDOW rows between unbounded preceding and 1 following)", "sum has another frame"),
    ("count(*) over (WINDOW rows between current row and unbounded following)", "count has another frame"),
    ("rank() over (partition by c order by i)", "partitioned by texts in a collation"),
    ("rank() over (partition by k order by i, c)", "orders by texts in a collation"),
    ("sum(i) over (partition by k)", "it has no order"),
]


@pytest.mark.parametrize(("functions", "expected"), CANNOT)
def test_undividable_windows(spark: SparkSession, functions: str, expected: str) -> None:
    view(spark)
    reason = window_chunks.indivisible_reason(window_of(windows(spark, [functions], "k", "i")))
    assert expected in str(reason)


@pytest.mark.thorough
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    functions=st.lists(st.sampled_from(RANKS + RANGES), min_size=1, max_size=4, unique=True),
    rows=st.lists(st.sampled_from(ROWS), max_size=3, unique=True),
    keys=st.sampled_from(KEYS),
    order=st.lists(st.sampled_from(ORDERS), min_size=1, max_size=2, unique=True).map(", ".join),
    hot=st.integers(0, 10),
    values=st.sampled_from([2, 20, 1000]),
    chunks=st.sampled_from([2, 3, 7]),
    subpartitions=st.integers(1, 3),
    ansi=st.booleans(),
)
def test_rows_are_plain_sparks(
    spark: SparkSession,
    functions: list[str],
    rows: list[str],
    keys: str,
    order: str,
    hot: int,
    values: int,
    chunks: int,
    subpartitions: int,
    ansi: bool,
) -> None:
    view(spark, hot, values)
    with with_settings(spark, {"spark.sql.ansi.enabled": str(ansi).lower()}):
        more = [] if ansi else WITHOUT_ANSI
        df = windows(spark, [*functions, *rows, *more], keys, f"{order}, id" if rows else order)
        plan = window_of(df)
        assert window_chunks.indivisible_reason(plan) is None
        actual, non_empty = in_chunks(spark, plan, chunks, subpartitions)
        assert non_empty >= 2 or not (rows or "id" in order)  # rows with equal sort keys are in the same chunk
        assert_same_rows(actual, dataframe(Bridge(spark).session, plan).collect())


@pytest.mark.parametrize("hot", [9, 10])
def test_a_group_that_fills_all_chunks(spark: SparkSession, hot: int) -> None:
    """All functions at once; with ten tenths there are no other groups."""
    view(spark, hot, 1000)
    plan = window_of(windows(spark, RANKS + RANGES + ROWS, "k", "i desc, id"))
    actual, non_empty = in_chunks(spark, plan, 5, 1)
    assert non_empty == 5
    assert_same_rows(actual, dataframe(Bridge(spark).session, plan).collect())
    ranks = sorted(row[-len(RANGES + ROWS) - 2] for row in actual if row["k"] == 7)
    assert ranks == list(range(1, len(ranks) + 1))


def test_a_plan_other_than_a_window_over_sorted_rows(spark: SparkSession) -> None:
    view(spark)
    session = Bridge(spark).session
    plan = catalyst.optimized_plan(Bridge(spark), spark.sql("select k, count(*) from hot group by k"))
    why_not = window_chunks.indivisible_plan_reason(exchange.write(session, plan))
    assert why_not == "Spark's plan is not a window over sorted rows"
