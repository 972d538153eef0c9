"""Estimate the distribution of a key by bisection: ask for the rows of ranges, the largest first. Pure arithmetic."""

from __future__ import annotations

import heapq
import string
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_LETTERS = string.digits + string.ascii_lowercase
_MAX_LENGTH = 24


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
        first = _rank(low[position : position + 1].lower(), 0) if low[:position].lower() == prefix else 0
        last = _rank(high[position : position + 1].lower(), 0) if high[:position].lower() == prefix else len(_LETTERS)
        if last - first > 1:
            return prefix + _LETTERS[(first + last) // 2]
        if last > first and high[:position].lower() == prefix and len(high) > position + 1:
            return high[: position + 1].lower()
        prefix += _LETTERS[min(first, len(_LETTERS) - 1)]
    return None


def _rank(letter: str, default: int) -> int:
    position = _LETTERS.find(letter) if letter else -1
    return position if position >= 0 else default


def weigh(
    low: str,
    high: str,
    rows_between: Callable[[str, str], float],
    middle: Callable[[str, str], str | None],
    count: int,
) -> list[tuple[str, float]]:
    """Return ascending values from `low` on, each with the estimated rows from it to the next value.

    Parameters
    ----------
    low, high
        The bounds of the key; `high` is excluded.
    rows_between
        Estimates the rows from a value, included, to another, excluded.
    middle
        Returns a value between two others, None if there is none.
    count
        The number of ranges; the range with the most rows is halved next.
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
