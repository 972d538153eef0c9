"""Settings of the user for a position in a DataFrame's plan; the plan itself carries only a number."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.config.options import ADAPTIVE_PARTITIONER_ENABLED, ADAPTIVE_PARTITIONER_MAX_TRAVERSE
from penstock.errors import PenstockError, RebalanceError
from penstock.spark.plans import dataframes
from penstock.spark.run import barrier

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from penstock.base.location import SourceLine
    from penstock.config import Configuration
    from penstock.connectors.core.base import Source
    from penstock.spark.plans.logical_plan import LogicalPlan


@dataclass(frozen=True, slots=True)
class Exchange:
    """An exchange that the user requested, with the function that consumes its rows.

    `adaptive` and `max_traverse_size` are the arguments of the call, None to use the options. A `pointwise` exchange is
    a rescale instead of a rebalance. `function` consumes the rows, and `schema` is that of its result; None if rows are
    passed on unchanged. `origin` is the operator of the function in Spark's plan, if the exchange was derived from it.
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
        """Return whether it is adaptive, and how many channels are compared; the call overrides the options.

        A call with only a traverse size is adaptive. An exchange with a single channel is not.
        """
        adaptive = self.adaptive
        if adaptive is None:
            adaptive = self.max_traverse_size is not None or config.flag(ADAPTIVE_PARTITIONER_ENABLED)
        return adaptive and channels != 1, self.max_traverse_size or config.integer(ADAPTIVE_PARTITIONER_MAX_TRAVERSE)


@dataclass(frozen=True, slots=True)
class PlanHint:
    """The settings of the user for a position in a plan; what is not set is None.

    `name` is the name of the operator in plans and messages, or an empty string. `static` is the parallelism set by the
    provider of the source.
    """

    parallelism: int | None = None
    name: str = ""
    source: Source | None = None
    static: int | None = None
    exchange: Exchange | None = None
    max_parallelism: int | None = None
    location: SourceLine | None = None

    def above(self, inner: PlanHint) -> PlanHint:
        """Return the hint merged with another hint for the same tasks; this hint takes precedence."""
        maximum = least(self.max_parallelism, inner.max_parallelism)
        number = self.parallelism or inner.parallelism
        if self.parallelism is None and number is not None and maximum is not None and number > maximum:
            number = None
        return replace(
            self,
            parallelism=number,
            name=self.name or inner.name,
            source=self.source or inner.source,
            static=self.static or inner.static,
            max_parallelism=maximum,
        )


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Stage:
    """A function in a plan that runs in the same stage as the exchange before it.

    `hint` are the settings of the user there, completed by the options. `reports` returns the reports of its tasks so
    far. `with_options` returns a function that builds the stage for other options, None if they do not change it. None
    for a stage that was built for a job.
    """

    hint: PlanHint
    reports: Callable[[], list[dict[str, Any]]]
    with_options: Callable[[Configuration], Callable[[DataFrame], DataFrame] | None] | None = None


def least(*bounds: int | None) -> int | None:
    """Return the smallest of the bounds that are not None, or None."""
    return min((bound for bound in bounds if bound is not None), default=None)


def with_hint(df: DataFrame, hint: PlanHint, partitions: int | None = None) -> DataFrame:
    """Return a DataFrame whose plan carries a hint at its top; the hint lives as long as a plan with it.

    `partitions` is the number of partitions in plain Spark; None for partitions of about 64 MiB.
    """
    below = dataframes.hint_below(df) if hint.exchange is None else None
    if isinstance(below, PlanHint) and below.exchange is None:
        hint = hint.above(below)
    return dataframes.add_hint(df, hint, partitions)


def lookup(number: int) -> PlanHint:
    """Return the hint of a number; raise `PenstockError` if it was created in another process."""
    hint = dataframes.hint_at(number)
    if not isinstance(hint, PlanHint):
        message = "a plan carries a hint of another process"
        raise PenstockError(message, hint="create the DataFrame again in this process")
    return hint


def register_stage(df: DataFrame, stage: Stage) -> None:
    """Associate the function of the latest ``DataFrame.mapInArrow`` call with a stage."""
    barrier.attach_to_function(df, stage)


def stage_of(function_id: int) -> Stage | None:
    """Return the stage of a function in a plan, None for a function of the user."""
    stage = barrier.attached_to_function(function_id)
    return stage if isinstance(stage, Stage) else None


def has_exchanges(plan: LogicalPlan) -> bool:
    """Whether an analyzed plan may contain exchanges of `penstock.rebalance` or `penstock.rescale`."""
    if barrier.has_attachments():
        return True
    numbers, _ = dataframes.hints_and_options(plan)
    return any(lookup(number).exchange is not None for number in numbers)
