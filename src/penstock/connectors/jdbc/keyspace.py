"""Finding where the rows of a key lie by asking for estimates of ranges, the heaviest first. Pure arithmetic."""

from __future__ import annotations

import heapq
import string
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_LETTERS = string.digits + string.ascii_lowercase
_LONGEST = 24


def middle_number(low: str, high: str) -> str | None:
    """Return the number half way between two others, None if there is none; whole numbers stay whole."""
    first, last = Decimal(low), Decimal(high)
    places = max(-int(first.as_tuple().exponent), -int(last.as_tuple().exponent), 0)
    middle = ((first + last) / 2).quantize(Decimal(1).scaleb(-places), rounding="ROUND_FLOOR")
    return str(middle) if first < middle < last else None


def middle_text(low: str, high: str) -> str | None:
    """Return a text of letters and digits between two others, None if none is found.

    Databases order letters in different ways; whoever uses the text must ask whether it lies in between.
    """
    prefix = ""
    while len(prefix) < _LONGEST:
        place = len(prefix)
        first = _rank(low[place : place + 1].lower(), 0) if low[:place].lower() == prefix else 0
        last = _rank(high[place : place + 1].lower(), 0) if high[:place].lower() == prefix else len(_LETTERS)
        if last - first > 1:
            return prefix + _LETTERS[(first + last) // 2]
        if last > first and high[:place].lower() == prefix and len(high) > place + 1:
            return high[: place + 1].lower()
        prefix += _LETTERS[min(first, len(_LETTERS) - 1)]
    return None


def _rank(letter: str, otherwise: int) -> int:
    place = _LETTERS.find(letter) if letter else -1
    return place if place >= 0 else otherwise


def weigh(
    low: str,
    high: str,
    rows_between: Callable[[str, str], float],
    middle: Callable[[str, str], str | None],
    pieces: int,
) -> list[tuple[str, float]]:
    """Return ascending values from `low` on, each with the rows from it up to the next.

    Parameters
    ----------
    low, high
        The ends of the key; `high` itself is beyond the last range asked for.
    rows_between
        Estimates the rows from a value up to another, without it.
    middle
        Returns a value between two others, None if there is none.
    pieces
        How many ranges to make; the heaviest one is halved next.
    """
    ranges = [(-rows_between(low, high), low, high)]
    done: list[tuple[str, str, float]] = []
    while ranges and len(ranges) + len(done) < pieces:
        weight, start, end = heapq.heappop(ranges)
        between = middle(start, end)
        if between is None:
            done.append((start, end, -weight))
            continue
        for one in ((start, between), (between, end)):
            heapq.heappush(ranges, (-rows_between(*one), *one))
    followed_by = {start: (end, -weight) for weight, start, end in ranges} | {a: (b, w) for a, b, w in done}
    found: list[tuple[str, float]] = []
    value = low
    while value in followed_by:
        after, rows = followed_by[value]
        found.append((value, rows))
        value = after
    return found
