"""Comparison of natively computed rows with those of plain Spark: a run that is not native fails."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from penstock import Environment
from penstock.spark.plans.dataframes import with_settings
from tests.support.stages import computed_by_duckdb

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SINGLE, MANY = "single task", "many tasks"
THRESHOLDS = {SINGLE: 1, MANY: 0}
"""Ways to run a query natively, and the bytes above which a single task computes a query (0: no query)."""
APPROXIMATE = "about_"
"""Prefix of the names of results that depend on the order in which an engine adds numbers."""


def environment(spark: SparkSession, way: str) -> Environment:
    """Return an environment that runs queries natively in one of the ways."""
    options = {"execution.native": True, "execution.batch.adaptive.whole-query-threshold": THRESHOLDS[way]}
    return Environment(spark, config=options, progress=False)


def assert_native_rows(spark: SparkSession, sql: str, way: str, settings: dict[str, str]) -> None:
    """Fail unless DuckDB computes a query, and its rows are those of plain Spark.

    Values are compared by their text, so that negative zeros differ from zeros. Those whose names start with
    `APPROXIMATE` may have a relative difference of 1e-9.
    """
    with with_settings(spark, settings):
        expected = spark.sql(sql).collect()
        env = environment(spark, way)
        rows = env.collect(spark.sql(sql))
    assert env.last_job is not None
    decisions = [
        (decision.chosen, decision.outcome) for decision in env.last_job.decisions if decision.kind == "native"
    ]
    assert computed_by_duckdb(env.last_job), decisions
    assert len(rows) == len(expected)
    for row, expected_row in zip(sorted(rows, key=_exact), sorted(expected, key=_exact), strict=True):
        assert _exact(row) == _exact(expected_row), sql
        for name in row.asDict():
            assert not name.startswith(APPROXIMATE) or _are_close(row[name], expected_row[name]), (
                name,
                row,
                expected_row,
            )


def _exact(row: Any) -> str:
    """Return the text of the values that must be equal, which include a key of the row."""
    return repr([value for name, value in row.asDict().items() if not name.startswith(APPROXIMATE)])


def _are_close(value: Any, expected: Any) -> bool:
    if not isinstance(value, float) or not isinstance(expected, float):
        return repr(value) == repr(expected)
    both_nan = math.isnan(value) and math.isnan(expected)
    return both_nan or math.isclose(value, expected, rel_tol=1e-9, abs_tol=1e-12)
