"""Rows of queries in a form that compares between engines."""

import datetime as dt
import math
from decimal import Decimal

MAX_RELATIVE_DIFFERENCE = 1e-9


def comparable(rows: list) -> list[str]:
    """Return rows as sorted strings; floats have six digits, as their sums depend on the order of addition."""

    def text(value: object) -> str:
        if isinstance(value, float):
            return f"{value:.6g}"
        return str(value.normalize() if isinstance(value, Decimal) else value)

    return sorted("|".join(map(text, row)) for row in rows)


def are_equal(rows: list, expected: list) -> bool:
    """Whether rows are equal in any order; floats may differ by 1e-9, as their sums depend on the order of addition.

    >>> are_equal([(2, 0.3), (1, None)], [(1, None), (2, 0.1 + 0.2)]), are_equal([(1, 0.3)], [(1, 0.30000001)])
    (True, False)
    """
    if len(rows) != len(expected):
        return False
    pairs = zip(sorted(map(_values, rows), key=_sort_key), sorted(map(_values, expected), key=_sort_key), strict=True)
    return all(len(row) == len(other) and all(map(_are_equal_values, row, other)) for row, other in pairs)


def _values(row: object) -> list:
    """Return the values of a row; timestamps with a zone are converted to local time, in which Spark returns them."""
    return [
        value.astimezone().replace(tzinfo=None) if isinstance(value, dt.datetime) and value.tzinfo else value
        for value in row
    ]


def _sort_key(row: list) -> tuple[str, list[str]]:
    """Return a sort key: first the values that are equal in both, then floats, rounded."""
    exact = [
        str(value.normalize() if isinstance(value, Decimal) else value) for value in row if not isinstance(value, float)
    ]
    return "|".join(exact), [f"{value:.5e}" for value in row if isinstance(value, float)]


def _are_equal_values(value: object, expected: object) -> bool:
    if isinstance(value, float) and isinstance(expected, float):
        both_nan = math.isnan(value) and math.isnan(expected)
        return both_nan or math.isclose(value, expected, rel_tol=MAX_RELATIVE_DIFFERENCE, abs_tol=1e-12)
    return value == expected
