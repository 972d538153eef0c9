"""Hints: settings of the user for a position in a DataFrame's plan; the plan contains only the number of a hint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.config.options import ADAPTIVE_PARTITIONER_ENABLED, ADAPTIVE_PARTITIONER_MAX_TRAVERSE
from penstock.errors import PenstockError, RebalanceError
from penstock.spark.plans import dataframes
from penstock.spark.run import barrier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from penstock.base.location import UserLine
    from penstock.config import Configuration
    from penstock.connectors.core.base import Source
    from penstock.spark.plans.logical_plan import LogicalPlan


@dataclass(frozen=True, slots=True)
class RequestedExchange:
    """An exchange requested by `penstock.rebalance` or `rescale`, with the function that consumes its rows.

    `adaptive` and `max_traverse_size` are the arguments of the call, None to use the options. A `pointwise` exchange is
    a rescale instead of a rebalance. `function` consumes the rows, as pandas DataFrames if `is_pandas`; None if other
    operators consume them. `schema` is the schema of its result. `function_operator` is only set if the exchange stands
    for a ``repartition(n)`` of the user: it is the operator in Spark's plan that calls `function`.
    """

    adaptive: bool | None = None
    max_traverse_size: int | None = None
    pointwise: bool = False
    function: Any = field(default=None, repr=False)
    schema: StructType | str | None = None
    is_pandas: bool = False
    function_operator: LogicalPlan | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        size = self.max_traverse_size
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 2):
            raise RebalanceError.bad_traverse_size(size)

    def resolve_options(self, config: Configuration, channels: int | None) -> tuple[bool, int]:
        """Return whether the exchange is adaptive, and how many consumers it compares to pick the least loaded.

        The arguments of the call override the options. A call with only a traverse size is adaptive. An exchange to a
        single consumer is never adaptive; `channels` is the number of consumers, None if it is not decided yet.
        """
        adapts = self.adaptive
        if adapts is None:
            adapts = self.max_traverse_size is not None or config.flag(ADAPTIVE_PARTITIONER_ENABLED)
        return adapts and channels != 1, self.max_traverse_size or config.integer(ADAPTIVE_PARTITIONER_MAX_TRAVERSE)


@dataclass(frozen=True, slots=True)
class PlanHint:
    """The settings of the user for a position in a plan; fields that are not set are None.

    `name` is the name of the operator in plans and messages, or an empty string. `static_parallelism` is the
    parallelism that the provider of the source has set.
    """

    parallelism: int | None = None
    name: str = ""
    source: Source | None = None
    static_parallelism: int | None = None
    exchange: RequestedExchange | None = None
    max_parallelism: int | None = None
    location: UserLine | None = None

    def merged_over(self, below: PlanHint) -> PlanHint:
        """Return this hint merged with a hint below it in the plan for the same tasks; this hint takes precedence."""
        maximum = smallest_bound(self.max_parallelism, below.max_parallelism)
        parallelism = self.parallelism or below.parallelism
        if self.parallelism is None and parallelism is not None and maximum is not None and parallelism > maximum:
            parallelism = None  # the maximum of this hint overrides the parallelism of the hint below it
        return replace(
            self,
            parallelism=parallelism,
            name=self.name or below.name,
            source=self.source or below.source,
            static_parallelism=self.static_parallelism or below.static_parallelism,
            max_parallelism=maximum,
        )


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ConsumerStage:
    """The consumer function of an exchange that runs in the same Spark stage as the exchange.

    `hint` has the settings of the user, completed by the options. `reports` returns the reports of its tasks so far.
    `with_options`, called with the options of a job, returns a function that builds the stage for them, or None if they
    do not change the stage. The field is None if the stage was already built for a job.
    """

    hint: PlanHint
    reports: Callable[[], list[dict[str, Any]]]
    with_options: Callable[[Configuration], Callable[[DataFrame], DataFrame] | None] | None = None


def smallest_bound(*bounds: int | None) -> int | None:
    """Return the smallest of the bounds that are not None, or None."""
    return min((bound for bound in bounds if bound is not None), default=None)


def with_hint(df: DataFrame, hint: PlanHint, partitions: int | None = None) -> DataFrame:
    """Return a DataFrame with a hint at the top of its plan; the hint exists as long as any plan contains it.

    `partitions` is the number of partitions if plain Spark runs the plan; None for partitions of about 64 MiB.
    """
    below = dataframes.hint_below(df) if hint.exchange is None else None  # Spark would drop it
    if isinstance(below, PlanHint) and below.exchange is None:
        hint = hint.merged_over(below)
    return dataframes.add_hint(df, hint, partitions)


def hint_of_number(number: int) -> PlanHint:
    """Return the hint with a number; raise `PenstockError` if the hint was created in another process."""
    hint = dataframes.hint_at(number)
    if not isinstance(hint, PlanHint):
        message = "the plan contains a hint that was created in another process"
        raise PenstockError(message, hint="create the DataFrame again in this process")
    return hint


def register_consumer_stage(df: DataFrame, stage: ConsumerStage) -> None:
    """Register a consumer stage for the function of a DataFrame that a ``mapInArrow`` call has just returned."""
    barrier.attach_to_function(df, stage)


def consumer_stage_of(function_id: int) -> ConsumerStage | None:
    """Return the consumer stage of a function in a plan, or None for any other function."""
    stage = barrier.attached_to_function(function_id)
    return stage if isinstance(stage, ConsumerStage) else None


def has_exchanges(plan: LogicalPlan) -> bool:
    """Whether an analyzed plan may contain exchanges of `penstock.rebalance` or `penstock.rescale`."""
    if barrier.has_attachments():
        return True
    numbers, _ = dataframes.hints_and_options(plan)
    return any(hint_of_number(number).exchange is not None for number in numbers)
