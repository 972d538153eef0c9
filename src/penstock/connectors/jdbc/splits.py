"""Splits of a database table: SQL conditions, of which each row meets a single one. Pure arithmetic and text.

The dialects supply the figures: numbers of pages, or values of a column with their numbers of rows.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def count_splits(rows: float, row_bytes: float, volume: int, upper_bound: int) -> int:
    """Return the number of splits of a volume in bytes: at least 1, at most the upper bound."""
    return max(1, min(upper_bound, math.ceil(rows * row_bytes / volume)))


def page_bounds(pages: Sequence[int], count: int) -> list[int]:
    """Return the page numbers that divide several files into ranges with about the same number of pages.

    Parameters
    ----------
    pages
        The number of pages of each file (a table and its partitions). A range has the same page numbers in all files.
    count
        The number of ranges.

    Returns
    -------
    list[int]
        At most `count` - 1 distinct page numbers in ascending order, without 0.
    """
    ends = sorted(size for size in pages if size > 0)
    total = sum(ends)
    bounds: list[int] = []
    before, start = 0, 0  # pages in front of `start`, over all files
    targets = [total * i / count for i in range(1, count)]
    for index, end in enumerate(ends):
        files = len(ends) - index
        pages_here = (end - start) * files
        while targets and targets[0] <= before + pages_here:
            bounds.append(start + round((targets.pop(0) - before) / files))
        before, start = before + pages_here, end
    return [bound for bound in dict.fromkeys(bounds) if 0 < bound < start]


def page_conditions(bounds: Sequence[int]) -> list[str | None]:
    """Return PostgreSQL conditions on ``ctid`` that split a table at pages; the last is open, for pages added later."""
    if not bounds:
        return [None]
    edges = [f"'({page},0)'::tid" for page in bounds]
    inner = [f"ctid >= {low} AND ctid < {high}" for low, high in pairwise(edges)]
    return [f"ctid < {edges[0]}", *inner, f"ctid >= {edges[-1]}"]


def key_conditions(column: str, bounds: Sequence[str], *, nullable: bool) -> list[str | None]:
    """Return conditions that split a table at values of a column.

    Parameters
    ----------
    column
        The column, quoted.
    bounds
        Literals in the database's SQL, strictly ascending in the order that its comparisons use.
    nullable
        Whether the column may be null; rows with null are in the first split.
    """
    if not bounds:
        return [None]
    first = f"{column} < {bounds[0]}" + (f" OR {column} IS NULL" if nullable else "")
    inner = [f"{column} >= {low} AND {column} < {high}" for low, high in pairwise(bounds)]
    return [first, *inner, f"{column} >= {bounds[-1]}"]


def weighted_bounds(values: Sequence[tuple[str, float]], count: int) -> list[str]:
    """Return the values that divide a table into ranges of about the same weight.

    Parameters
    ----------
    values
        Ascending values, each with the weight of the rows from it to the next value.
    count
        The number of ranges.

    Returns
    -------
    list[str]
        At most `count` - 1 of the values in ascending order, never the first.
    """
    total = sum(weight for _, weight in values)
    bounds: list[str] = []
    filled, mark = 0.0, total / count
    for value, weight in values:
        # A range ends before a value whose middle is beyond the mark; a heavy value may pass several marks.
        if filled > 0 and filled + weight / 2 >= mark and len(bounds) < count - 1:
            bounds.append(value)
            mark = total / count * (math.floor(filled / total * count + 0.5) + 1)
        filled += weight
    return bounds
