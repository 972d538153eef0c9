"""The outputs of a job: DataFrames with their sinks, until a job takes them, and with a common current time."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.spark.plans import catalyst
from penstock.spark.plans.dataframes import dataframe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from penstock.base.location import SourceLine
    from penstock.connectors.core.base import Sink
    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.plans.logical_plan import LogicalPlan


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


def check_outputs(bridge: Bridge, outputs: Sequence[Output]) -> None:
    """Raise `PenstockError` if a DataFrame is a stream, or belongs to another session."""
    for output in outputs:
        if not bridge.owns(output.df):
            message = "the DataFrame belongs to another Spark session"
            raise PenstockError(message, hint="use Environment(df.sparkSession)")
        if output.df.isStreaming:
            message = "the DataFrame is a stream, which does not end"
            raise PenstockError(message, hint="use writeStream; Penstock runs batch jobs")


def fix_current_time(bridge: Bridge, outputs: Sequence[Output]) -> Sequence[Output]:
    """Return outputs that all have the same current time."""
    if len(outputs) == 1:  # Spark uses a single current time within a query
        return outputs
    # Substitute cached data first. It holds the time of its computation, and would not match a plan with another time.
    plans = catalyst.fix_current_time(bridge, [catalyst.cached_plan(bridge, output.df) for output in outputs])
    if plans is None:
        return outputs
    frames = [dataframe(bridge.session, plan) for plan in plans]
    return [replace(output, df=df) for output, df in zip(outputs, frames, strict=True)]


class RegisteredOutputs:
    """Outputs registered by the threads of a program. A thread takes its own outputs, or all if it has none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._outputs: list[tuple[threading.Thread, Output]] = []

    def add(self, outputs: Sequence[Output]) -> None:
        """Register outputs of the calling thread."""
        with self._lock:
            self._outputs += [(threading.current_thread(), output) for output in outputs]

    def peek(self) -> list[Output]:
        """Return the outputs that the calling thread would take."""
        with self._lock:
            return [output for _, output in self._chosen()]

    def take(self) -> list[Output]:
        """Remove and return the outputs of the calling thread, or all if it has none."""
        with self._lock:
            chosen = self._chosen()
            ids = set(map(id, chosen))
            self._outputs = [entry for entry in self._outputs if id(entry) not in ids]
            return [output for _, output in chosen]

    def _chosen(self) -> list[tuple[threading.Thread, Output]]:
        own = [entry for entry in self._outputs if entry[0] is threading.current_thread()]
        return own or list(self._outputs)
