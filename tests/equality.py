"""Rows compared as multisets: everything exact, floats to 1e-9 relative."""

from __future__ import annotations

import math
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock import Environment


def plain(value: Any) -> Any:
    """Nested rows, maps and bytes as values with an order."""
    if hasattr(value, "asDict"):
        return tuple(plain(part) for part in value)
    if isinstance(value, dict):
        return tuple(sorted((repr(plain(k)), plain(v)) for k, v in value.items()))
    if isinstance(value, (list, tuple)):
        return tuple(plain(part) for part in value)
    if isinstance(value, bytearray):
        return bytes(value)
    return value


def _key(value: Any) -> Any:
    """A text to sort by, in which floats that are nearly equal are equal (almost always)."""
    if isinstance(value, tuple):
        return "(" + ",".join(map(_key, value)) + ")"
    return f"{value:.5e}" if isinstance(value, float) else repr(value)


def same(left: Any, right: Any) -> bool:
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and isinstance(right, float):
        return (math.isnan(left) and math.isnan(right)) or math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(left, Decimal) and isinstance(right, Decimal):
        return left.as_tuple() == right.as_tuple()
    return type(left) is type(right) and left == right


def assert_same_rows(found: Iterable, expected: Iterable) -> None:
    found, expected = (sorted((plain(row) for row in rows), key=_key) for rows in (found, expected))
    assert len(found) == len(expected), f"{len(found)} rows instead of {len(expected)}"
    for row, wanted in zip(found, expected, strict=True):
        assert same(row, wanted), f"{row} instead of {wanted}"


def assert_as_plain_spark(env: Environment, df: DataFrame) -> list:
    """Collect a DataFrame with Penstock and plainly, compare the rows, and return them.

    Both run at the same time: most of a small query's time is spent on planning it, in one thread.
    """
    with ThreadPoolExecutor(1) as aside:
        plainly = aside.submit(df.collect)
        found = env.collect(df)
    assert_same_rows(found, plainly.result())
    return found
