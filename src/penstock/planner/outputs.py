"""The outputs of a job: DataFrames with their sinks, and a common current time for all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.spark import catalyst
from penstock.spark.dataframes import dataframe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from penstock.connectors.base import Sink
    from penstock.location import SourceLine
    from penstock.spark.jvm import Bridge
    from penstock.spark.logical_plan import LogicalPlan


@dataclass(frozen=True, slots=True)
class Output:
    """A DataFrame, the sink of its rows with its number of tasks, and the source line of the user."""

    df: DataFrame
    sink: Sink
    parallelism: int | None = None
    location: SourceLine | None = None


@dataclass(frozen=True, slots=True)
class PlannedOutput:
    """A query that Spark has already optimised, with cached data substituted, and its sink as in `Output`."""

    plan: LogicalPlan
    sink: Sink
    parallelism: int | None = None
    location: SourceLine | None = None


def check_output(bridge: Bridge, output: Output) -> None:
    """Check that a job can run a DataFrame.

    Raises
    ------
    PenstockError
        If the DataFrame is a stream, or belongs to another session.
    """
    df = output.df
    if not bridge.owns(df):
        raise PenstockError("the DataFrame belongs to another Spark session", hint="use Environment(df.sparkSession)")
    if df.isStreaming:
        raise PenstockError(
            "the DataFrame is a stream, which does not end", hint="use writeStream; Penstock runs batch jobs"
        )


def fix_current_time(bridge: Bridge, outputs: Sequence[Output]) -> Sequence[Output]:
    """Return outputs that all have the same current time."""
    if len(outputs) == 1:  # Spark uses a single current time within a query
        return outputs
    for output in outputs:
        check_output(bridge, output)
    # Substitute cached data first. It holds the time of its computation, and would not match a plan with another time.
    plans = catalyst.fix_current_time(bridge, [catalyst.cached_plan(bridge, output.df) for output in outputs])
    if plans is None:
        return outputs
    frames = [dataframe(bridge.session, plan) for plan in plans]
    return [replace(output, df=df) for output, df in zip(outputs, frames, strict=True)]
