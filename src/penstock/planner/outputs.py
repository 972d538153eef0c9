"""The outputs of a job: DataFrames, where their rows go, and one present time for all of them."""

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
    """A DataFrame and where its rows go.

    Parameters
    ----------
    df, sink
        The two.
    parallelism
        The sink's number of tasks, or None.
    location
        The user's line that asked for it.
    """

    df: DataFrame
    sink: Sink
    parallelism: int | None = None
    location: SourceLine | None = None


@dataclass(frozen=True, slots=True)
class PlannedOutput:
    """A query that Spark has optimised already, and where its rows go.

    Parameters
    ----------
    plan
        The optimised plan, with cached data in place.
    sink
        Where the rows go.
    parallelism, location
        As of an `Output`.
    """

    plan: LogicalPlan
    sink: Sink
    parallelism: int | None = None
    location: SourceLine | None = None


def check_output(bridge: Bridge, output: Output) -> None:
    """Refuse a DataFrame that no job can run.

    Raises
    ------
    PenstockError
        If it is a stream, or belongs to another session.
    """
    df = output.df
    if not bridge.owns(df):
        raise PenstockError("the DataFrame belongs to another Spark session", hint="use Environment(df.sparkSession)")
    if df.isStreaming:
        raise PenstockError(
            "the DataFrame is a stream, which does not end", hint="use writeStream; Penstock runs batch jobs"
        )


def at_one_time(bridge: Bridge, outputs: Sequence[Output]) -> Sequence[Output]:
    """Return outputs that have one value for the present time in all of them."""
    if len(outputs) == 1:  # Spark gives one value to all of a query
        return outputs
    for output in outputs:
        check_output(bridge, output)
    # With cached data in place: it has the time at which it was made, and would not be found under another one.
    plans = catalyst.at_one_time(bridge, [catalyst.cached_plan(bridge, output.df) for output in outputs])
    if plans is None:
        return outputs
    frames = [dataframe(bridge.session, plan) for plan in plans]
    return [replace(output, df=df) for output, df in zip(outputs, frames, strict=True)]
