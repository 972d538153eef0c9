"""Splits of a database table: SQL conditions; each row meets exactly one condition. Pure arithmetic and text.

The dialects supply the figures: numbers of pages, or values of a column with their numbers of rows. Without statistics,
the distribution of a key is estimated by bisection: the range with the most estimated rows is halved repeatedly.
"""

from __future__ import annotations

import heapq
import math
import string
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import pairwise

_LETTERS = string.digits + string.ascii_lowercase
_MAX_TEXT_LENGTH = 24


def count_splits(rows: float, row_bytes: float, volume: int, upper_bound: int) -> int:
    """Return the number of splits of `volume` bytes each: at least 1, at most the upper bound."""
    return max(1, min(upper_bound, math.ceil(rows * row_bytes / volume)))


def page_bounds(pages: Sequence[int], count: int) -> list[int]:
    """Return the page numbers that divide several files into `count` ranges with about the same number of pages.

    `pages` is the number of pages of each file (a table and its partitions). A range has the same page numbers in all
    files. The result has at most `count` - 1 distinct page numbers in ascending order, without 0.
    """
    page_counts = sorted(size for size in pages if size > 0)
    total = sum(page_counts)
    bounds: list[int] = []
    pages_before, start = 0, 0  # the number of pages before page `start`, in all files together
    targets = [total * i / count for i in range(1, count)]
    for index, end in enumerate(page_counts):
        files = len(page_counts) - index  # those that have the pages from `start` to `end`
        pages_in_step = (end - start) * files
        while targets and targets[0] <= pages_before + pages_in_step:
            bounds.append(start + round((targets.pop(0) - pages_before) / files))
        pages_before, start = pages_before + pages_in_step, end
    return [bound for bound in dict.fromkeys(bounds) if 0 < bound < start]


def key_conditions(column: str, bounds: Sequence[str], *, nullable: bool) -> list[str | None]:
    """Return conditions that split a table at values of a column, whose name is quoted.

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

    The values are ascending, each with the weight of the rows from this value to the next. The result has at most
    `count` - 1 values in ascending order, never the first.
    """
    total = sum(weight for _, weight in values)
    bounds: list[str] = []
    weight_before, next_bound = 0.0, total / count
    for value, weight in values:
        # End the range before this value if at least half of its weight lies beyond the next ideal bound.
        if weight_before > 0 and weight_before + weight / 2 >= next_bound and len(bounds) < count - 1:
            bounds.append(value)
            # A heavy value may pass several ideal bounds: continue after the ideal bound nearest to `weight_before`.
            next_bound = total / count * (math.floor(weight_before / total * count + 0.5) + 1)
        weight_before += weight
    return bounds


def middle_number(low: str, high: str) -> str | None:
    """Return the number halfway between two numbers, rounded down to their decimals; None if it is not between them."""
    first, last = Decimal(low), Decimal(high)
    decimals = max(-int(first.as_tuple().exponent), -int(last.as_tuple().exponent), 0)
    middle = ((first + last) / 2).quantize(Decimal(1).scaleb(-decimals), rounding="ROUND_FLOOR")
    return str(middle) if first < middle < last else None


def middle_text(low: str, high: str) -> str | None:
    """Return a string of letters and digits between two strings; None if the search does not succeed.

    Databases order letters differently, so the caller has to check the result in the database.
    """
    prefix = ""
    while len(prefix) < _MAX_TEXT_LENGTH:
        position = len(prefix)
        # `low` and `high` each limit the next letter only if this string begins with the prefix.
        first = _rank(low[position : position + 1]) if low[:position].lower() == prefix else 0
        last = _rank(high[position : position + 1]) if high[:position].lower() == prefix else len(_LETTERS)
        if last - first > 1:
            return prefix + _LETTERS[(first + last) // 2]
        if last > first and high[:position].lower() == prefix and len(high) > position + 1:
            return high[: position + 1].lower()  # no letter is between, but a beginning of `high` is less than `high`
        prefix += _LETTERS[min(first, len(_LETTERS) - 1)]
    return None


def _rank(letter: str) -> int:
    return max(_LETTERS.find(letter.lower()), 0)  # 0 for other characters


def weigh_ranges(
    low: str, high: str, rows_between: Callable[[str, str], float], middle: Callable[[str, str], str | None], count: int
) -> list[tuple[str, float]]:
    """Return ascending values from `low` to `high` (excluded), each with the estimated rows up to the next value.

    `rows_between` estimates the rows from a value, included, to another value, excluded. `middle` returns a value
    between two values, or None. The range with the most rows is halved until there are `count` ranges, if possible.
    """
    ranges = [(-rows_between(low, high), low, high)]
    final_ranges: dict[str, tuple[str, float]] = {}  # by start: the end and the rows of ranges that are not halved
    while ranges and len(ranges) + len(final_ranges) < count:
        negative_rows, start, end = heapq.heappop(ranges)  # the range with the most rows
        split_value = middle(start, end)
        if split_value is None:
            final_ranges[start] = end, -negative_rows
            continue
        for half in ((start, split_value), (split_value, end)):
            heapq.heappush(ranges, (-rows_between(*half), *half))
    final_ranges |= {start: (end, -negative_rows) for negative_rows, start, end in ranges}
    weighted: list[tuple[str, float]] = []
    value = low
    while value in final_ranges:
        end, rows = final_ranges[value]
        weighted.append((value, rows))
        value = end
    return weighted
