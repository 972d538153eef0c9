"""Predicates on columns as plain Python objects, and data skipping by column statistics. Independent of Spark.

Predicates only serve to skip data here: data for which a predicate cannot be evaluated is read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

COMPARISONS = ("=", "<", "<=", ">", ">=", "in", "is null", "is not null")
"""The comparisons of a column. ``in`` has at least 1 value, the last two have none, all others have 1."""
CONNECTIVES = ("and", "or")
"""The operators that combine predicates."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition that rows have to meet.

    >>> recent = Predicate(">", "day", (20,))
    >>> list(Predicate("and", parts=(recent, Predicate("is not null", "id"))).columns())
    ['day', 'id']

    Parameters
    ----------
    operator
        One of `COMPARISONS` (``=``, ``<``, ``<=``, ``>``, ``>=``, ``in``, ``is null``, ``is not null``) or of
        `CONNECTIVES` (``and``, ``or``).
    column
        The column that is compared; empty for a connective.
    values
        The operands, each a ``bool``, ``int``, ``float``, ``str``, ``bytes``, ``Decimal`` or ``date``, never None.
        There are no predicates on columns of other types, such as timestamps.
    parts
        The operands of a connective.
    """

    operator: str
    column: str = ""
    values: tuple[Any, ...] = ()
    parts: tuple[Predicate, ...] = ()

    def columns(self) -> Iterator[str]:
        """Yield the columns that the predicate references."""
        if self.column:
            yield self.column
        for part in self.parts:
            yield from part.columns()


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Statistics of a column in a file: bounds of its values, number of nulls, and number of rows; None if unknown."""

    minimum: Any = None
    maximum: Any = None
    nulls: int | None = None
    rows: int | None = None


def might_match(predicate: Predicate, statistics: Mapping[str, ColumnStatistics]) -> bool:
    """Whether a file may have rows that meet a predicate; False only if it certainly has none.

    >>> file = {"day": ColumnStatistics(minimum=1, maximum=9)}
    >>> might_match(Predicate("=", "day", (5,)), file), might_match(Predicate(">", "day", (20,)), file)
    (True, False)
    """
    match predicate.operator:
        case "and":
            return all(might_match(part, statistics) for part in predicate.parts)
        case "or":
            return any(might_match(part, statistics) for part in predicate.parts)
    column = statistics.get(predicate.column)
    return column is None or _column_might_match(predicate, column)


def _column_might_match(predicate: Predicate, column: ColumnStatistics) -> bool:
    if predicate.operator == "is null":
        return column.nulls != 0
    if column.rows is not None and column.nulls == column.rows:
        return False  # null meets no comparison
    try:
        return predicate.operator == "is not null" or any(
            _bounds_allow(predicate.operator, value, column) for value in predicate.values
        )
    except TypeError:  # values of incomparable types
        return True


def _bounds_allow(operator: str, value: Any, column: ColumnStatistics) -> bool:
    """Whether a column with these bounds may have a value `x` with ``x operator value``; ``in`` counts as ``=``."""
    if any(isinstance(number, float) and math.isnan(number) for number in (value, column.minimum, column.maximum)):
        return True  # Spark orders NaN above all numbers, and Python does not order it
    minimum_allows = column.minimum is None or (column.minimum < value if operator == "<" else column.minimum <= value)
    maximum_allows = column.maximum is None or (column.maximum > value if operator == ">" else column.maximum >= value)
    return (minimum_allows or operator in {">", ">="}) and (maximum_allows or operator in {"<", "<="})
