"""The outputs of a job: DataFrames with their sinks, which are registered until a job takes them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.spark.plans import catalyst
from penstock.spark.plans.dataframes import dataframe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.base.location import UserLine
    from penstock.connectors.core.base import Sink
    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.plans.logical_plan import LogicalPlan


@dataclass(frozen=True, slots=True)
class Output:
    """A DataFrame, its sink, the sink's number of tasks (None if not set), and the line of the user's code."""

    df: DataFrame
    sink: Sink
    parallelism: int | None = None
    location: UserLine | None = None


@dataclass(frozen=True, slots=True)
class PlannedOutput:
    """A query that Spark has already optimized, with cached data substituted, and its sink as in `Output`."""

    plan: LogicalPlan
    sink: Sink
    parallelism: int | None = None
    location: UserLine | None = None


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
    """Return outputs whose queries all use the same current time."""
    if len(outputs) == 1:  # Spark uses a single current time within a query
        return outputs
    # Substitute cached data first: Spark finds it by its plan, and would not find it once the plan has a fixed time.
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
            return [output for _, output in self._entries_of_thread()]

    def take(self) -> list[Output]:
        """Remove and return the outputs of the calling thread, or all if it has none."""
        with self._lock:
            entries = self._entries_of_thread()
            ids = set(map(id, entries))
            self._outputs = [entry for entry in self._outputs if id(entry) not in ids]
            return [output for _, output in entries]

    def _entries_of_thread(self) -> list[tuple[threading.Thread, Output]]:
        of_thread = [entry for entry in self._outputs if entry[0] is threading.current_thread()]
        return of_thread or list(self._outputs)
