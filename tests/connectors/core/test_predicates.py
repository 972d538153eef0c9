"""Pruning by statistics: examples, and a property checked by hypothesis."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.core.predicates import ColumnStatistics, Predicate, might_match

NAN = float("nan")
FIVE_TO_NINE = {"a": ColumnStatistics(5, 9, 0, 10)}


def over(operator: Any, *values: Any, column: str = "a") -> Any:
    return Predicate(operator, column, values)


@pytest.mark.parametrize(
    ("predicate", "statistics", "expected"),
    [
        (over("=", 5), FIVE_TO_NINE, True),
        (over("=", 4), FIVE_TO_NINE, False),
        (over("<", 5), FIVE_TO_NINE, False),
        (over("<=", 5), FIVE_TO_NINE, True),
        (over(">", 9), FIVE_TO_NINE, False),
        (over(">=", 9), FIVE_TO_NINE, True),
        (over("in", 1, 6), FIVE_TO_NINE, True),
        (over("in", 1, 12), FIVE_TO_NINE, False),
        (over("in"), FIVE_TO_NINE, False),
        (over("is null"), FIVE_TO_NINE, False),
        (over("is null"), {"a": ColumnStatistics(5, 9)}, True),
        (over("is not null"), {"a": ColumnStatistics(None, None, 10, 10)}, False),
        (over("=", 5), {"a": ColumnStatistics(None, None, 10, 10)}, False),
        (over("=", "x"), FIVE_TO_NINE, True),
        (over("=", 4, column="b"), FIVE_TO_NINE, True),
        (over("=", 4), {"a": ColumnStatistics()}, True),
        (over(">", 5.0), {"a": ColumnStatistics(NAN, NAN, 0, 10)}, True),
        (over("=", NAN), {"a": ColumnStatistics(NAN, NAN, 0, 10)}, True),
        (over("<", NAN), FIVE_TO_NINE, True),
        (over("in", 4.0, NAN), FIVE_TO_NINE, True),
        (Predicate("and", parts=(over(">", 5), over("=", 4))), FIVE_TO_NINE, False),
        (Predicate("or", parts=(over(">", 5), over("=", 4))), FIVE_TO_NINE, True),
        (Predicate("or", parts=(over(">", 9), over("=", 4))), FIVE_TO_NINE, False),
    ],
)
def test_statistics_decide_if_rows_might_match(predicate: Any, statistics: Any, expected: bool) -> None:
    assert might_match(predicate, statistics) is expected


def holds(predicate: Any, value: Any) -> Any:
    """Return whether a predicate is true for a row, as in SQL."""
    match predicate.operator:
        case "and":
            return all(holds(part, value) for part in predicate.parts)
        case "or":
            return any(holds(part, value) for part in predicate.parts)
        case "is null":
            return value is None
        case "is not null":
            return value is not None
    if value is None:
        return False
    compare = {"<": int.__lt__, "<=": int.__le__, ">": int.__gt__, ">=": int.__ge__, "=": int.__eq__, "in": int.__eq__}
    return any(compare[predicate.operator](value, other) for other in predicate.values)


numbers = st.integers(-5, 5)
leaves = st.one_of(
    st.builds(over, st.sampled_from(["=", "<", "<=", ">", ">="]), numbers),
    st.builds(lambda values: over("in", *values), st.lists(numbers, max_size=3)),
    st.sampled_from([over("is null"), over("is not null")]),
)
conditions = st.recursive(
    leaves,
    lambda inner: st.builds(
        lambda kind, a, b: Predicate(kind, parts=(a, b)), st.sampled_from(["and", "or"]), inner, inner
    ),
)


@given(conditions, st.lists(st.none() | numbers, max_size=6), st.booleans(), st.booleans())
def test_files_with_a_matching_row_are_not_pruned(
    condition: Any, rows: Any, knows_bounds: Any, knows_nulls: Any
) -> None:
    values = [value for value in rows if value is not None]
    statistics = ColumnStatistics(
        min(values, default=None) if knows_bounds else None,
        max(values, default=None) if knows_bounds else None,
        rows.count(None) if knows_nulls else None,
        len(rows) if knows_nulls else None,
    )
    if any(holds(condition, value) for value in rows):
        assert might_match(condition, {"a": statistics})


def test_columns_of_a_predicate() -> None:
    assert list(Predicate("or", parts=(over("=", 1), over("=", 1, column="b"))).columns()) == ["a", "b"]
