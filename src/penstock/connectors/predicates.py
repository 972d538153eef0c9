"""Conditions on columns as plain values, and whether statistics rule them out. Pure.

A condition here only ever serves to leave data out: what cannot be judged might match.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

COMPARISONS = ("=", "<", "<=", ">", ">=", "in", "is null", "is not null")
"""The operators that compare a column. ``in`` has one value or more, the last two have none, all others have one."""
CONNECTIVES = ("and", "or")
"""The operators that connect conditions."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition.

    Parameters
    ----------
    operator
        One of `COMPARISONS` (``=``, ``<``, ``<=``, ``>``, ``>=``, ``in``, ``is null``, ``is not null``) or of
        `CONNECTIVES` (``and``, ``or``).
    column
        The column that is compared; empty of a connective.
    values
        What it is compared with, each a ``bool``, ``int``, ``float``, ``str``, ``bytes``, ``Decimal`` or ``date``; none
        of them is None. There are no conditions on columns of other types, such as timestamps.
    parts
        Of a connective, its conditions.
    """

    operator: str
    column: str = ""
    values: tuple[Any, ...] = ()
    parts: tuple[Predicate, ...] = ()

    def columns(self) -> Iterator[str]:
        """Iterate over the columns it looks at."""
        if self.column:
            yield self.column
        for part in self.parts:
            yield from part.columns()


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """What is known of the values of a column in one file.

    Parameters
    ----------
    minimum, maximum
        Bounds of the values that are not null; None if not known.
    nulls
        How many are null, None if not known.
    rows
        How many rows there are, None if not known.
    """

    minimum: Any = None
    maximum: Any = None
    nulls: int | None = None
    rows: int | None = None


def might_match(predicate: Predicate, statistics: Mapping[str, ColumnStatistics]) -> bool:
    """Return whether a file may hold rows that meet a condition; False only if that is certain."""
    match predicate.operator:
        case "and":
            return all(might_match(part, statistics) for part in predicate.parts)
        case "or":
            return any(might_match(part, statistics) for part in predicate.parts)
    found = statistics.get(predicate.column)
    return found is None or _column_might_match(predicate, found)


def _column_might_match(predicate: Predicate, found: ColumnStatistics) -> bool:
    if predicate.operator == "is null":
        return found.nulls != 0
    if found.rows is not None and found.nulls == found.rows:
        return False
    try:
        return predicate.operator == "is not null" or any(
            _within(predicate.operator, value, found) for value in predicate.values
        )
    except TypeError:  # values of kinds that do not compare
        return True


def _within(operator: str, value: Any, found: ColumnStatistics) -> bool:
    above = found.minimum is None or (found.minimum < value if operator == "<" else found.minimum <= value)
    below = found.maximum is None or (found.maximum > value if operator == ">" else found.maximum >= value)
    return (above or operator in {">", ">="}) and (below or operator in {"<", "<="})
