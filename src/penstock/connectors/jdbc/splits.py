"""Splits a table of a database: conditions in SQL, of which each row meets exactly one. Pure arithmetic and text.

The module of each database asks it for the figures: pages, or values of a column and how many rows they have.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def count_splits(rows: float, row_bytes: float, volume: int, upper_bound: int) -> int:
    """Return how many splits of a volume the rows make: at least 1, at most the upper bound."""
    return max(1, min(upper_bound, math.ceil(rows * row_bytes / volume)))


def page_bounds(pages: Sequence[int], count: int) -> list[int]:
    """Return where to cut the page numbers that several files share, so that each range holds about as many pages.

    Parameters
    ----------
    pages
        Pages of every file (a table and the partitions below it); a range takes its pages from all of them.
    count
        How many ranges.

    Returns
    -------
    list[int]
        Ascending page numbers, at most `count` - 1 of them, none twice and none 0.
    """
    ends = sorted(size for size in pages if size > 0)
    total = sum(ends)
    bounds: list[int] = []
    before, start = 0, 0  # pages in front of `start`, over all files
    wanted = [total * i / count for i in range(1, count)]
    for place, end in enumerate(ends):
        files = len(ends) - place
        here = (end - start) * files
        while wanted and wanted[0] <= before + here:
            bounds.append(start + round((wanted.pop(0) - before) / files))
        before, start = before + here, end
    return [bound for bound in dict.fromkeys(bounds) if 0 < bound < start]


def page_conditions(bounds: Sequence[int]) -> list[str | None]:
    """Return PostgreSQL conditions on ``ctid`` that cut a table at pages; the last has no end, for pages to come."""
    if not bounds:
        return [None]
    edges = [f"'({page},0)'::tid" for page in bounds]
    inner = [f"ctid >= {low} AND ctid < {high}" for low, high in pairwise(edges)]
    return [f"ctid < {edges[0]}", *inner, f"ctid >= {edges[-1]}"]


def key_conditions(column: str, bounds: Sequence[str], *, nullable: bool) -> list[str | None]:
    """Return conditions that cut a table at values of a column.

    Parameters
    ----------
    column
        The column, quoted.
    bounds
        Literals in the database's SQL, strictly ascending in the order that its comparisons use.
    nullable
        Whether the column may be null; such rows are the first split's.
    """
    if not bounds:
        return [None]
    first = f"{column} < {bounds[0]}" + (f" OR {column} IS NULL" if nullable else "")
    inner = [f"{column} >= {low} AND {column} < {high}" for low, high in pairwise(bounds)]
    return [first, *inner, f"{column} >= {bounds[-1]}"]


def weighted_bounds(values: Sequence[tuple[str, float]], count: int) -> list[str]:
    """Return the values at which to cut, so that each range holds about the same weight.

    Parameters
    ----------
    values
        Ascending values, each with the weight of the rows from it up to the next one.
    count
        How many ranges.

    Returns
    -------
    list[str]
        Ascending values, at most `count` - 1 of them, never the first.
    """
    total = sum(weight for _, weight in values)
    bounds: list[str] = []
    filled, mark = 0.0, total / count
    for value, weight in values:
        # A value is cut off in front where its middle lies behind the mark; a heavy one may pass several marks.
        if filled > 0 and filled + weight / 2 >= mark and len(bounds) < count - 1:
            bounds.append(value)
            mark = total / count * (math.floor(filled / total * count + 0.5) + 1)
        filled += weight
    return bounds
