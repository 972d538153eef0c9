"""What a user said about one place of a DataFrame's plan; the plan itself carries only a number."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.config.options import ADAPTIVE_PARTITIONER_ENABLED, ADAPTIVE_PARTITIONER_MAX_TRAVERSE
from penstock.errors import PenstockError, RebalanceError
from penstock.spark import barrier, dataframes

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from penstock.config import Configuration
    from penstock.connectors.base import Source
    from penstock.location import SourceLine
    from penstock.spark.logical_plan import LogicalPlan


@dataclass(frozen=True, slots=True)
class Exchange:
    """How rows are distributed, and to what.

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
    origin
        The function in Spark's plan, if it was found there.
    """

    adaptive: bool | None = None
    max_traverse_size: int | None = None
    pointwise: bool = False
    function: Any = field(default=None, repr=False)
    schema: StructType | str | None = None
    is_pandas: bool = False
    origin: LogicalPlan | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        size = self.max_traverse_size
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 2):
            raise RebalanceError.bad_traverse_size(size)

    def resolved(self, config: Configuration, channels: int | None) -> tuple[bool, int]:
        """Return whether it is adaptive, and how many channels are compared: the call wins over the options.

        A call with nothing but a traverse size switches its exchange on. Where there is only one channel to send rows
        to, there is nothing to adapt.
        """
        adaptive = self.adaptive
        if adaptive is None:
            adaptive = self.max_traverse_size is not None or config.flag(ADAPTIVE_PARTITIONER_ENABLED)
        return adaptive and channels != 1, self.max_traverse_size or config.integer(ADAPTIVE_PARTITIONER_MAX_TRAVERSE)


@dataclass(frozen=True, slots=True)
class PlanHint:
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
        How rows are distributed at this place, or None.
    max_parallelism
        The most tasks of the operator, or None.
    location
        The user's line.
    """

    parallelism: int | None = None
    name: str = ""
    source: Source | None = None
    static: int | None = None
    exchange: Exchange | None = None
    max_parallelism: int | None = None
    location: SourceLine | None = None

    def above(self, inner: PlanHint) -> PlanHint:
        """Return the hint with what another hint for the same tasks says; where both say something, this one holds."""
        most = least(self.max_parallelism, inner.max_parallelism)
        number = self.parallelism or inner.parallelism
        if self.parallelism is None and number is not None and most is not None and number > most:
            number = None
        return replace(
            self,
            parallelism=number,
            name=self.name or inner.name,
            source=self.source or inner.source,
            static=self.static or inner.static,
            max_parallelism=most,
        )


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Stage:
    """A function in a plan that is one stage with the exchange before it.

    Parameters
    ----------
    hint
        What the user said there, and what the options said where that was left to them.
    reports
        Returns what its tasks have told of themselves so far.
    with_options
        Returns the stage over given rows as other options want it, None where these ones do; None of one that was made
        for a job.
    """

    hint: PlanHint
    reports: Callable[[], list[dict[str, Any]]]
    with_options: Callable[[Configuration], Callable[[DataFrame], DataFrame] | None] | None = None


def least(*bounds: int | None) -> int | None:
    """Return the smallest of the bounds that there are."""
    return min((bound for bound in bounds if bound is not None), default=None)


def with_hint(df: DataFrame, hint: PlanHint, partitions: int | None = None) -> DataFrame:
    """Return a DataFrame whose plan carries a hint at this place; it is kept as long as a plan has it.

    Parameters
    ----------
    partitions
        The number of partitions in plain Spark; None for as many as Spark makes of 64 MiB.
    """
    below = dataframes.hint_below(df) if hint.exchange is None else None
    if isinstance(below, PlanHint) and below.exchange is None:
        hint = hint.above(below)
    return dataframes.add_hint(df, hint, partitions)


def lookup(number: int) -> PlanHint:
    """Return a hint.

    Raises
    ------
    PenstockError
        If it was made in another process.
    """
    found = dataframes.hint_at(number)
    if not isinstance(found, PlanHint):
        raise PenstockError("a plan carries a hint of another process", hint="make the DataFrame again in this one")
    return found


def register_stage(df: DataFrame, stage: Stage) -> None:
    """Keep what the function of a ``DataFrame.mapInArrow`` that was just called was made for."""
    barrier.keep_with_function(df, stage)


def stage_of(function_id: int) -> Stage | None:
    """Return what a function in a plan was made for, None of a function that is the user's own."""
    found = barrier.kept_with_function(function_id)
    return found if isinstance(found, Stage) else None


def has_exchanges(plan: LogicalPlan) -> bool:
    """Whether a plan that is not optimised yet may distribute rows by `penstock.rebalance` or `penstock.rescale`."""
    if barrier.keeps_any():
        return True
    numbers, _ = dataframes.hints_and_options(plan)
    return any(lookup(number).exchange is not None for number in numbers)
