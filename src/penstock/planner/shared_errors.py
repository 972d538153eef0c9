"""Checks whether queries raise the same errors if a part that they share runs once. Does not use Spark.

Spark pushes the filters of a query down, also into a part that the query shares with others. A part that runs once has
none of these filters. So it computes rows that a query alone would remove, and may fail on them. A filter that may
fail is evaluated on fewer rows above the part than inside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection


@dataclass(frozen=True, slots=True)
class Reading:
    """How a query reads a part that it shares.

    Parameters
    ----------
    reader, part
        The number of the query, or None for another part; and the number of the part.
    part_can_fail
        Whether the part may raise an error on some row.
    condition_can_fail
        Whether the query has a condition that may raise an error and that Spark may push into the part, or joins the
        part with an input that may raise an error and that conditions of the part could filter.
    may_skip_rows
        Whether the query alone might not compute all rows and columns of the part: it has a condition that Spark may
        push into the part, a limit, or expressions that Spark may merge with columns of the part.
    reads_all
        Whether the query alone certainly computes all rows of the part, with all columns that any query uses.
    """

    reader: int | None
    part: int
    part_can_fail: bool
    condition_can_fail: bool = False
    may_skip_rows: bool = False
    reads_all: bool = False


def unsafe_readings(readings: Collection[Reading]) -> list[Reading]:
    """Return the readings for which a job might raise other errors than its queries on their own.

    If a query computes the whole part, it also fails on its own, so the other queries may remove rows.

    Examples
    --------
    >>> partial = Reading(0, 7, part_can_fail=True, may_skip_rows=True)
    >>> whole = Reading(1, 7, part_can_fail=True, reads_all=True)
    >>> unsafe_readings([partial]) == [partial], unsafe_readings([partial, whole])
    (True, [])
    """
    whole = {reading.part for reading in readings if reading.reads_all}
    return [
        reading
        for reading in readings
        if reading.condition_can_fail or (reading.part_can_fail and reading.may_skip_rows and reading.part not in whole)
    ]
