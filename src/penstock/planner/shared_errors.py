"""Whether queries raise the same errors if a part that they share is run once; pure.

Spark moves the filters of a query down, also into the part that it shares with others. Run once for all, that part has
none of them: it computes rows that each query would have left out, and a filter above it sees fewer rows than below it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.spark.error_sites import ErrorSite


def with_other_errors(
    alone: Mapping[int, frozenset[ErrorSite]], shared: Mapping[int, frozenset[ErrorSite]]
) -> set[int]:
    """Return the queries that may raise an error only alone, or only with shared parts.

    A place raises an error if one with the same expression does that has passed more conditions, as these only leave
    out rows. As the queries are one job, it is enough that another of them has that place.

    Parameters
    ----------
    alone, shared
        The places of each query that can raise an error: run by itself, and with the parts that it shares.

    Examples
    --------
    >>> from penstock.spark.error_sites import ErrorSite
    >>> low = ErrorSite("10 div k", frozenset())
    >>> high = ErrorSite("10 div k", frozenset({"k <> 0"}))
    >>> with_other_errors({0: frozenset({low}), 1: frozenset({high})}, {0: frozenset({low}), 1: frozenset({low})})
    set()
    >>> with_other_errors({0: frozenset({high}), 1: frozenset({high})}, {0: frozenset({low}), 1: frozenset({low})})
    {0, 1}
    """
    every_alone, every_shared = frozenset().union(*alone.values()), frozenset().union(*shared.values())
    return {
        number
        for number in alone
        if any(not _is_covered(one, every_alone) for one in shared[number])
        or any(not _is_covered(one, every_shared) for one in alone[number])
    }


def _is_covered(site: ErrorSite, sites: Iterable[ErrorSite]) -> bool:
    return any(one.expression == site.expression and one.behind <= site.behind for one in sites)
