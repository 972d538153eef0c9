"""Predicates on columns as plain values, and data skipping by column statistics. Pure.

Predicates here only serve to skip data: if a predicate cannot be evaluated, the data might match.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

COMPARISONS = ("=", "<", "<=", ">", ">=", "in", "is null", "is not null")
"""The comparisons of a column. ``in`` has at least 1 value, the last two have none, all others have 1."""
CONNECTIVES = ("and", "or")
"""The operators that combine predicates."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition that rows have to meet.

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
    """Statistics of a column in a file: bounds of the values that are not null, nulls, and rows; None if unknown."""

    minimum: Any = None
    maximum: Any = None
    nulls: int | None = None
    rows: int | None = None


def might_match(predicate: Predicate, statistics: Mapping[str, ColumnStatistics]) -> bool:
    """Return whether a file may have rows that meet a predicate; False only if it certainly has none."""
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
        return False
    try:
        return predicate.operator == "is not null" or any(
            _within(predicate.operator, value, column) for value in predicate.values
        )
    except TypeError:  # values of incomparable types
        return True


def _within(operator: str, value: Any, column: ColumnStatistics) -> bool:
    above = column.minimum is None or (column.minimum < value if operator == "<" else column.minimum <= value)
    below = column.maximum is None or (column.maximum > value if operator == ">" else column.maximum >= value)
    return (above or operator in {">", ">="}) and (below or operator in {"<", "<="})
