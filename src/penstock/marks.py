"""What a user said about one place of a DataFrame's plan; the plan itself carries only a number."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.connectors.base import Source
    from penstock.location import SourceLine


@dataclass(frozen=True, slots=True)
class Mark:
    """What was said.

    Parameters
    ----------
    parallelism
        The number of tasks of the operator, or None.
    name
        Its name in plans and messages, or an empty text.
    source
        The source behind a leaf, or None.
    static
        The parallelism that a provider of the source has fixed, or None.
    location
        The user's line.
    """

    parallelism: int | None = None
    name: str = ""
    source: Source | None = None
    static: int | None = None
    location: SourceLine | None = None


_numbers = itertools.count(1)
_marks: dict[int, Mark] = {}


def remember(mark: Mark) -> int:
    """Keep a mark for the life of the process; return its number."""
    number = next(_numbers)
    _marks[number] = mark
    return number


def recall(number: int) -> Mark:
    """Return a mark.

    Raises
    ------
    PenstockError
        If it was made in another process.
    """
    if number not in _marks:
        raise PenstockError("a plan carries a mark of another process", hint="make the DataFrame anew in this one")
    return _marks[number]
