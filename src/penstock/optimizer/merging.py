"""Merging the partial results of a hot group in pieces, as plain arithmetic.

The partial results of `n` tasks before an exchange are merged in `p` pieces, side by side, and then these pieces in one
task. Where they have all values in common, that task merges `p` partial results in place of `n`, and each piece has
`n / p` of them. Where they have none in common, a piece is as large as what it was merged of, and nothing is won.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from math import isqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.optimizer.skew import Range

WORTH_IT = 1.5
"""Merging must take so many times as long in one task, as what is merged in pieces is exchanged once more."""

_TRIED = 8
"""One of so many partial results is merged to find out what they have in common."""

_STEPS = 30


def piece_count(tasks: int, cores: int) -> int:
    """Return in how many pieces the partial results of some tasks are merged best, if they have all in common."""
    return max(1, min(isqrt(tasks), cores))


def cut(sizes: Sequence[int], pieces: int) -> list[Range]:
    """Return ranges of tasks with about equal parts of some bytes, at most so many; none of them is empty.

    Examples
    --------
    >>> cut([10, 10, 0, 10, 10], 2)
    [(0, 2), (2, 5)]
    """
    total, ends = sum(sizes), [0]
    for task, (size, so_far) in enumerate(zip(sizes, accumulate(sizes), strict=True)):
        if size and so_far * pieces >= total * len(ends):
            ends.append(task + 1)
    ends[-1] = len(sizes)
    return list(pairwise(ends))


def times_faster(pieces: int, kept: float) -> float:
    """Return how many times as long the partial results take in one task as in pieces.

    Parameters
    ----------
    pieces
        The number of pieces, each in a task of its own.
    kept
        The part of the bytes that is left of a piece.

    Examples
    --------
    >>> times_faster(4, 0.25)
    2.0
    """
    return 1 / (1 / pieces + kept)


def most_times_faster(tasks: int, cores: int) -> float:
    """Return how many times as long they take in one task if they have all values in common."""
    pieces = piece_count(tasks, cores)
    return times_faster(pieces, pieces / tasks)


def tried(tasks: int) -> int:
    """Return how many partial results are merged to find out what they have in common."""
    return max(2, tasks // _TRIED)


def kept_of_more(kept: float, few: int, many: int) -> float:
    """Return the part that is left of many partial results, from the part that was left of a few.

    Each is taken to hold as many of the group's values, chosen at random.

    Parameters
    ----------
    kept
        The part of the bytes that was left of a few.
    few, many
        How many partial results.

    Examples
    --------
    >>> kept_of_more(0.5, 2, 10)  # those two had all values in common
    0.1
    >>> kept_of_more(1.0, 2, 10)  # and those none
    1.0
    """
    if kept >= 1:
        return 1.0
    low, high = 0.0, 1.0  # the part of all values that one of them holds
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if _kept(middle, few) > kept else (low, middle)
    return _kept(high, many)


def _kept(part: float, number: int) -> float:
    """Return what is left of some partial results if each holds a part of all values."""
    return (1 - (1 - part) ** number) / (number * part)
