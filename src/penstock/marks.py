"""What a user said about one place of a DataFrame's plan; the plan itself carries only a number."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.config.options import ADAPTIVE_PARTITIONER_ENABLED, ADAPTIVE_PARTITIONER_MAX_TRAVERSE
from penstock.errors import PenstockError, RebalanceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.types import StructType

    from penstock.config import Configuration
    from penstock.connectors.base import Source
    from penstock.location import SourceLine


@dataclass(frozen=True, slots=True)
class Exchange:
    """How rows are dealt out, and to what.

    Parameters
    ----------
    adaptive, max_traverse_size
        What the call said, None where it left that to the options.
    pointwise
        Whether it is a rescale.
    function, schema
        What consumes the rows, and what it gives; None of rows that are passed on as they are.
    is_pandas
        Whether the function is one of pandas DataFrames.
    """

    adaptive: bool | None = None
    max_traverse_size: int | None = None
    pointwise: bool = False
    function: Any = field(default=None, repr=False)
    schema: StructType | str | None = None
    is_pandas: bool = False

    def __post_init__(self) -> None:
        size = self.max_traverse_size
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 2):
            raise RebalanceError.bad_traverse_size(size)

    def resolved(self, config: Configuration, channels: int | None) -> tuple[bool, int]:
        """Return whether it is adaptive, and how many channels are compared: the call wins over the options.

        Where there is only one channel to send rows to, there is nothing to adapt.
        """
        adaptive = config.flag(ADAPTIVE_PARTITIONER_ENABLED) if self.adaptive is None else self.adaptive
        return adaptive and channels != 1, self.max_traverse_size or config.integer(ADAPTIVE_PARTITIONER_MAX_TRAVERSE)


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
    exchange
        How rows are dealt out at this place, or None.
    location
        The user's line.
    """

    parallelism: int | None = None
    name: str = ""
    source: Source | None = None
    static: int | None = None
    exchange: Exchange | None = None
    location: SourceLine | None = None


_numbers = itertools.count(1)
_marks: dict[int, Mark] = {}


@dataclass(frozen=True, slots=True)
class Stage:
    """A function in a plan that is one stage with the exchange before it.

    Parameters
    ----------
    mark
        What the user said there.
    reports
        Returns what its tasks have told of themselves so far.
    """

    mark: Mark
    reports: Callable[[], list[dict[str, Any]]]


_stages: dict[int, Stage] = {}


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


def remember_stage(function_id: int, stage: Stage) -> None:
    """Keep what a function in a plan, by the id of its result, was made for."""
    _stages[function_id] = stage


def stage_of(function_id: int) -> Stage | None:
    """Return what a function in a plan was made for, None of a function that is the user's own."""
    return _stages.get(function_id)


def has_exchanges() -> bool:
    """Whether any DataFrame of this process deals rows out by `penstock.rebalance` or `penstock.rescale`."""
    return any(mark.exchange is not None for mark in _marks.values())
