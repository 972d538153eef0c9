"""Sinks that return the rows of a job to the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.connectors.core.base import Sink, SinkJob
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.run.plain_runs import in_user_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class ResultSink(Sink):
    """Sink that applies the function `fetch` to the DataFrame of the last vertex, and stores the result in `value`."""

    restartable: ClassVar[bool] = True

    def __init__(self, name: str, fetch: Callable[[DataFrame], Any]) -> None:
        self._name = name
        self._fetch = fetch
        self.value: Any = None

    @property
    def name(self) -> str:
        """The name of the action, such as ``collect``."""
        return self._name

    def open(self, spark: SparkSession) -> SinkJob:
        """Return the sink job, which stores the result in this sink."""
        del spark
        return _ResultSinkJob(self)

    def store(self, df: DataFrame) -> None:
        """Compute and store the result."""
        self.value = self._fetch(df)


class MaterializeSink(ResultSink):
    """Sink whose result is a DataFrame in the user's session that reads the rows of the exchange before the sink."""

    materialised: ClassVar[bool] = True
    restartable: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__("materialize", lambda df: in_user_session(Bridge(df.sparkSession), df))


class _ResultSinkJob(SinkJob):
    calls_python = False  # no action passes rows to Python functions in tasks

    def __init__(self, sink: ResultSink) -> None:
        self._sink = sink

    def write(self, df: DataFrame) -> None:
        self._sink.store(df)

    def restart(self) -> bool:
        self._sink.value = None
        return True

    def commit(self) -> None:
        """Do nothing; the result is stored already."""

    def abort(self) -> None:
        self._sink.value = None


def discard_rows(df: DataFrame) -> None:
    """Compute all rows of a DataFrame and discard them."""
    df.write.format("noop").mode("overwrite").save()
