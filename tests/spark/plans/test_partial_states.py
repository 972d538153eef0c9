"""Partial results of hot groups merged in chunks, on real Spark: supported aggregates, and equal rows."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.spark.bridge.jvm import Bridge
from penstock.spark.plans import catalyst
from penstock.spark.plans.dataframes import dataframe, with_settings
from penstock.spark.plans.fragment import rdd_leaf
from penstock.spark.plans.nodes import read_plan
from penstock.spark.plans.partial_states import (
    MergedStates,
    aggregate_merged,
    keeps_distinct_values,
    merge_states,
    unmergeable_states_reason,
)
from penstock.spark.run import exchange, layouts
from tests.support.equality import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAPPERS = 12
COLUMNS = {
    "i": "cast(pmod(hash(id, 1), {values}) - 3 as int)",
    "l": "9223372036854775807L - pmod(hash(id, 2), {values})",
    "d": "cast(pmod(hash(id, 3), {values}) as decimal(9, 2)) / 7",
    "f": "element_at(array(0.0D, -0.0D, double('NaN'), double('-Infinity'), id / 3.0D), cast(id % 5 + 1 as int))",
    "s": "concat('s', pmod(hash(id, 4), {values}))",
    "b": "cast(concat('s', pmod(hash(id, 4), {values})) as binary)",
    "t": "date_add(date'2026-01-01', pmod(hash(id, 5), {values}))",
    "y": "make_ym_interval(0, pmod(hash(id, 6), {values}))",
    "n": "struct(pmod(hash(id, 7), {values}) as a, if(id % 2 = 0, null, id % 3) as b)",
    "c": "concat('s', pmod(hash(id, 4), {values})) collate utf8_lcase",
}


def table(spark: SparkSession, hot: int = 9, values: int = 20, rows: int = 3000) -> DataFrame:
    """Return rows of which `hot` tenths share a key; other columns have up to `values` values, and 1 in 11 is null."""
    columns = (f"if(id % 11 = 0, null, {text.format(values=values)}) as {name}" for name, text in COLUMNS.items())
    return spark.range(0, rows, 1, MAPPERS).selectExpr(f"if(id % 10 < {hot}, 7, id % 100) as k", "id", *columns)


FUNCTIONS = [
    "percentile(i, 0.3)",
    "percentile(i, array(0.0, 0.5, 1.0))",
    "percentile(i, 0.5, abs(i) + 1)",
    "percentile(f, 0.5)",
    "percentile(d, 0.25)",
    "cast(percentile(y, 0.5) as string)",
    "median(l)",
    "percentile_cont(0.4) within group (order by i desc)",
    "percentile_disc(0.4) within group (order by i)",
    "percentile_disc(0.4) within group (order by f desc)",
    "size(collect_set(s))",
    "sort_array(collect_set(s))",
    "sort_array(collect_set(b))",
    "sort_array(collect_set(t))",
    "sort_array(collect_set(n))",
    "sort_array(collect_set(f))",
    "array_contains(collect_set(i), 4)",
    "array_max(collect_set(d)) + size(collect_set(i))",
]
BESIDE = [
    "count(*)",
    "count(f)",
    "sum(i)",
    "avg(d)",
    "max(s)",
    "min(n)",
    "stddev(i)",
    "sum(f)",
    "approx_count_distinct(s)",
    "bool_or(i > 7)",
    "median(i) filter (where id % 2 = 0)",
    "count(*) filter (where i > 3)",
]
CANNOT = [
    "count(*)",
    "collect_set(s)",
    "concat_ws(',', collect_set(s))",
    "sort_array(transform(collect_set(i), x -> x + 1))",
    "collect_list(s)",
    "mode(i)",
    "percentile_approx(i, 0.5)",
    "median(i), first(s)",
    "median(i), max_by(s, i)",
    "median(i), max(c)",
    "median(i), sum(l)",
    "median(i), sum(cast(l as decimal(38, 0)))",
    "percentile(distinct i, 0.5)",
    "median(i), count(distinct s)",
]


def aggregate_of(df: DataFrame) -> Any:
    plan = read_plan(catalyst.optimized_plan(Bridge(df.sparkSession), df))
    return next(node for node in plan.walk() if node.name == "Aggregate")


def grouped(df: DataFrame, functions: list[str]) -> DataFrame:
    df.createOrReplaceTempView("hot_groups")
    return df.sparkSession.sql(f"select k, {', '.join(functions)} from hot_groups group by k")


@pytest.mark.parametrize("functions", CANNOT)
def test_unsupported_aggregates(spark: SparkSession, functions: str) -> None:
    assert not keeps_distinct_values(aggregate_of(grouped(table(spark), [functions])))


def merged_rows(spark: SparkSession, plan: Any, chunks: int, tasks: int) -> tuple[list, int, MergedStates]:
    """Merge the largest subpartition of an aggregate in chunks; return the rows, its bytes, and the merged states."""
    session = Bridge(spark).session
    result = exchange.write(session, plan)
    assert unmergeable_states_reason(result) is None
    sizes = result.sizes[0].tolist()
    hot = sizes.index(max(sizes))
    ends = sorted({round(i * MAPPERS / chunks) for i in range(chunks + 1)})
    merged = merge_states(result, {hot: list(pairwise(ends))})
    boundaries = sorted({round(i * len(sizes) / tasks) for i in range(tasks + 1)})
    physical = aggregate_merged(session, result, merged, {hot}, list(pairwise(boundaries)))
    rows = physical.rows()
    assert rows.tasks == len(boundaries) - 1
    layout = layouts.layout(physical, plan.output)
    assert (layout is not None) is (tasks > 1)
    leaf = rdd_leaf(session, plan.output, rows, layout=layout)
    return dataframe(session, leaf).collect(), sizes[hot], merged


@pytest.mark.thorough
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    functions=st.lists(st.sampled_from(FUNCTIONS), min_size=1, max_size=6, unique=True),
    beside=st.lists(st.sampled_from(BESIDE), max_size=4, unique=True),
    hot=st.integers(0, 10),
    values=st.sampled_from([1, 20, 1000]),
    chunks=st.sampled_from([1, 2, 3, MAPPERS]),
    tasks=st.sampled_from([1, 3, 8]),
    ansi=st.booleans(),
)
def test_rows_are_plain_sparks(
    spark: SparkSession,
    functions: list[str],
    beside: list[str],
    hot: int,
    values: int,
    chunks: int,
    tasks: int,
    ansi: bool,
) -> None:
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        df = grouped(table(spark, hot, values, 1000), functions + beside)
        plan = aggregate_of(df)
        assert keeps_distinct_values(plan)
        actual, _, _ = merged_rows(spark, plan, chunks, tasks)
        assert_same_rows(actual, df.collect())
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def test_all_functions_at_once(spark: SparkSession) -> None:
    df = grouped(table(spark), FUNCTIONS + BESIDE)
    plan = aggregate_of(df)
    assert keeps_distinct_values(plan)
    actual, before, merged = merged_rows(spark, plan, 2, 3)
    assert_same_rows(actual, df.collect())
    assert merged.bytes < before / 3
    assert tasks_that_sorted(merged) == 0


def tasks_that_sorted(merged: MergedStates) -> int:
    """Return the number of tasks that fell back to sorting, as a hash table had too many groups."""
    return int(merged.stage._handle.shuffle().child().metrics().apply("numTasksFallBacked").value())


@pytest.mark.thorough
def test_tasks_whose_hash_table_is_full(spark: SparkSession) -> None:
    """With two subpartitions, the largest has many groups."""
    threshold = "spark.sql.objectHashAggregate.sortBased.fallbackThreshold"
    with with_settings(spark, {threshold: "2", "spark.sql.shuffle.partitions": "2"}):
        df = grouped(table(spark), FUNCTIONS + BESIDE)
        actual, _, merged = merged_rows(spark, aggregate_of(df), 3, 3)
        assert tasks_that_sorted(merged) == 3
        assert_same_rows(actual, df.collect())
