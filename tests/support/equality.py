"""Comparison of rows as multisets: exact, except that floats may have a relative difference of 1e-9."""

from __future__ import annotations

import math
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock import Environment


def comparable_value(value: Any) -> Any:
    """Convert nested rows, maps and bytes to comparable values."""
    if hasattr(value, "asDict"):
        return tuple(comparable_value(part) for part in value)
    if isinstance(value, dict):
        return tuple(sorted((repr(comparable_value(k)), comparable_value(v)) for k, v in value.items()))
    if isinstance(value, (list, tuple)):
        return tuple(comparable_value(part) for part in value)
    if isinstance(value, bytearray):
        return bytes(value)
    return value


def _sort_key(value: Any) -> str:
    """Return a sort key, which is almost always the same for nearly equal floats."""
    if isinstance(value, tuple):
        return "(" + ",".join(map(_sort_key, value)) + ")"
    return f"{value:.5e}" if isinstance(value, float) else repr(value)


def are_equal(left: Any, right: Any) -> bool:
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(are_equal, left, right))
    if isinstance(left, float) and isinstance(right, float):
        return (math.isnan(left) and math.isnan(right)) or math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(left, Decimal) and isinstance(right, Decimal):
        return left.as_tuple() == right.as_tuple()
    return type(left) is type(right) and left == right


def assert_same_rows(actual: Iterable, expected: Iterable) -> None:
    actual, expected = (sorted((comparable_value(row) for row in rows), key=_sort_key) for rows in (actual, expected))
    assert len(actual) == len(expected), f"{len(actual)} rows instead of {len(expected)}"
    for row, expected_row in zip(actual, expected, strict=True):
        assert are_equal(row, expected_row), f"{row} instead of {expected_row}"


def assert_as_plain_spark(env: Environment, df: DataFrame) -> list:
    """Collect a DataFrame with Penstock and with plain Spark, compare the rows, and return them.

    Both run at the same time, as small queries spend most of their time on planning in a single thread.
    """
    with ThreadPoolExecutor(1) as pool:
        expected = pool.submit(df.collect)
        rows = env.collect(df)
    assert_same_rows(rows, expected.result())
    return rows
