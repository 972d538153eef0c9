"""Splits of a database table: SQL conditions, of which each row meets a single one. Pure arithmetic and text.

The dialects supply the figures: numbers of pages, or values of a column with their numbers of rows. Without statistics,
the distribution of a key is estimated by bisection: the database is queried for the rows of ranges, the largest first.
"""

from __future__ import annotations

import heapq
import math
import string
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_LETTERS = string.digits + string.ascii_lowercase
_MAX_LENGTH = 24


def count_splits(rows: float, row_bytes: float, volume: int, upper_bound: int) -> int:
    """Return the number of splits of a volume in bytes: at least 1, at most the upper bound."""
    return max(1, min(upper_bound, math.ceil(rows * row_bytes / volume)))


def page_bounds(pages: Sequence[int], count: int) -> list[int]:
    """Return the page numbers that divide several files into `count` ranges with about the same number of pages.

    `pages` is the number of pages of each file (a table and its partitions). A range has the same page numbers in all
    files. The result has at most `count` - 1 distinct page numbers in ascending order, without 0.
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


def key_conditions(column: str, bounds: Sequence[str], *, nullable: bool) -> list[str | None]:
    """Return conditions that split a table at values of a column, which is quoted.

    The bounds are literals in the database's SQL, strictly ascending in the order that its comparisons use. If the
    column may be null, rows with null are in the first split.
    """
    if not bounds:
        return [None]
    first = f"{column} < {bounds[0]}" + (f" OR {column} IS NULL" if nullable else "")
    inner = [f"{column} >= {low} AND {column} < {high}" for low, high in pairwise(bounds)]
    return [first, *inner, f"{column} >= {bounds[-1]}"]


def weighted_bounds(values: Sequence[tuple[str, float]], count: int) -> list[str]:
    """Return the values that divide a table into `count` ranges of about the same weight.

    Each of the ascending values has the weight of the rows from it to the next value. The result has at most `count` -
    1 values in ascending order, never the first.
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


def middle_number(low: str, high: str) -> str | None:
    """Return the number half way between two others, with their number of decimals; None if there is none."""
    first, last = Decimal(low), Decimal(high)
    decimals = max(-int(first.as_tuple().exponent), -int(last.as_tuple().exponent), 0)
    middle = ((first + last) / 2).quantize(Decimal(1).scaleb(-decimals), rounding="ROUND_FLOOR")
    return str(middle) if first < middle < last else None


def middle_text(low: str, high: str) -> str | None:
    """Return a string of letters and digits between two others, None if none is constructed.

    Databases order letters differently, so the caller has to check the result in the database.
    """
    prefix = ""
    while len(prefix) < _MAX_LENGTH:
        position = len(prefix)
        first = _rank(low[position : position + 1]) if low[:position].lower() == prefix else 0
        last = _rank(high[position : position + 1]) if high[:position].lower() == prefix else len(_LETTERS)
        if last - first > 1:
            return prefix + _LETTERS[(first + last) // 2]
        if last > first and high[:position].lower() == prefix and len(high) > position + 1:
            return high[: position + 1].lower()
        prefix += _LETTERS[min(first, len(_LETTERS) - 1)]
    return None


def _rank(letter: str) -> int:
    return max(_LETTERS.find(letter.lower()), 0)


def weigh(
    low: str, high: str, rows_between: Callable[[str, str], float], middle: Callable[[str, str], str | None], count: int
) -> list[tuple[str, float]]:
    """Return ascending values from `low` to `high` (excluded), each with the estimated rows from it to the next value.

    `rows_between` estimates the rows from a value, included, to another, excluded. `middle` returns a value between two
    others, None if there is none. The range with the most rows is halved next, until there are `count`.
    """
    ranges = [(-rows_between(low, high), low, high)]
    indivisible: list[tuple[str, str, float]] = []
    while ranges and len(ranges) + len(indivisible) < count:
        weight, start, end = heapq.heappop(ranges)
        between = middle(start, end)
        if between is None:
            indivisible.append((start, end, -weight))
            continue
        for half in ((start, between), (between, end)):
            heapq.heappush(ranges, (-rows_between(*half), *half))
    next_values = {start: (end, -weight) for weight, start, end in ranges} | {a: (b, w) for a, b, w in indivisible}
    weighted: list[tuple[str, float]] = []
    value = low
    while value in next_values:
        following, rows = next_values[value]
        weighted.append((value, rows))
        value = following
    return weighted
