"""Whether queries raise the same errors if a part that they share is run once; pure.

Spark moves the filters of a query down, also into the part that it shares with others. Run once for all, that part has
none of them. It computes rows that each query would have left out, and may fail on them. A filter that may fail itself
sees fewer rows above the part than below it.
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
        Which query, None for another part; and which part.
    part_can_fail
        Whether the part may raise an error on some row.
    condition_can_fail
        Whether the query has a condition that may raise an error and that Spark may move into the part; or an input
        beside it that may, and that conditions of the part would narrow.
    leaves_out_rows
        Whether the query alone might not compute all rows of the part, with all columns: it has a condition that Spark
        may move into it, a limit, or expressions that Spark may put columns of the part into.
    reads_all
        Whether the query alone surely computes all rows of the part, with all columns that any query uses.
    """

    reader: int | None
    part: int
    part_can_fail: bool
    condition_can_fail: bool = False
    leaves_out_rows: bool = False
    reads_all: bool = False


def with_other_errors(readings: Collection[Reading]) -> list[Reading]:
    """Return the readings for which a job might raise other errors than its queries do one by one.

    A part that one of the queries computes as a whole fails in that query, too. So the others may leave out rows.

    Examples
    --------
    >>> some = Reading(0, 7, part_can_fail=True, leaves_out_rows=True)
    >>> whole = Reading(1, 7, part_can_fail=True, reads_all=True)
    >>> with_other_errors([some]) == [some], with_other_errors([some, whole])
    (True, [])
    """
    whole = {one.part for one in readings if one.reads_all}
    return [
        one
        for one in readings
        if one.condition_can_fail or (one.part_can_fail and one.leaves_out_rows and one.part not in whole)
    ]
