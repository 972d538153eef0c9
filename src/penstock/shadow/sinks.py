"""Sinks that fingerprint the rows they receive."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.connectors.core.base import Sink, SinkJob, SinkOptions, SinkStage, StageReport
from penstock.shadow.comparison import Comparison, Verdict
from penstock.spark.run.fingerprint import FingerprintedRows
from penstock.spark.run.plain_runs import in_user_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from penstock.shadow.plain import PlainQuery
    from penstock.spark.bridge.jvm import Bridge

log = logging.getLogger("penstock")


@dataclass(slots=True)
class WatchedOutput:
    """An output of a job, the query for plain Spark, and the rows that its sink received.

    If it is `materialised`, the sink stores the rows, so that they can be read from there. `user_df` is the user's
    DataFrame, which the sink receives unchanged if Spark runs the whole query; None for a query that Spark has
    optimised already. `offered` is the DataFrame that was offered to the sink, None before that, and `counted` the same
    with a fingerprint of the rows that the sink computes, None if they are read again instead. `problem` says why the
    rows cannot be compared; empty if they can.
    """

    bridge: Bridge
    name: str
    plain: PlainQuery
    location: str = ""
    materialised: bool = False
    user_df: DataFrame | None = None
    runs_on_spark: bool = field(default=False, init=False)
    offered: DataFrame | None = field(default=None, init=False)
    counted: FingerprintedRows | None = field(default=None, init=False)
    problem: str = field(default="", init=False)

    @property
    def is_delegated(self) -> bool:
        """Whether Spark runs the whole query."""
        return self.runs_on_spark or (self.user_df is not None and self.offered is self.user_df)

    @property
    def offered_rows(self) -> DataFrame:
        """The rows that the sink was offered, computed again; only the last stage runs again."""
        assert self.offered is not None
        return in_user_session(self.bridge, self.offered)

    def comparison(self, verdict: Verdict, reason: str, **values: Any) -> Comparison:
        """Return a result about the output."""
        names = tuple(self.plain.schema().names)
        return Comparison(self.name, verdict, reason, names=names, location=self.location, **values)

    def offer(self, df: DataFrame) -> DataFrame:
        """Return the DataFrame for the sink, which fingerprints its rows if they cannot be read later."""
        self.offered = df
        if self.is_delegated or self.materialised:
            return df
        try:
            self.counted = FingerprintedRows(df, self.bridge)
        except Exception as error:
            log.warning("the rows of %s cannot be compared", self.name, exc_info=True)
            self.problem = str(error).split("\n", maxsplit=1)[0]
            return df
        return self.counted.df


def _inner(name: str) -> Any:
    """Return a property that is the attribute or the method of the inner sink or job."""
    return property(lambda shadowed: getattr(shadowed.inner, name))


class ShadowedSink(Sink):
    """A sink that delegates to another sink, and whose output fingerprints the rows."""

    materialised, measures_tasks, restartable = _inner("materialised"), _inner("measures_tasks"), _inner("restartable")
    name, partition_columns, secrets = _inner("name"), _inner("partition_columns"), _inner("secrets")
    target_options, file_size, recover = _inner("target_options"), _inner("file_size"), _inner("recover")
    location, adds = _inner("location"), _inner("adds")

    def __init__(self, inner: Sink, watched: WatchedOutput) -> None:
        self.inner = inner
        self.parallelism = inner.parallelism
        self._watched = watched

    def stages(self, options: SinkOptions) -> Sequence[SinkStage]:
        """Return the inner sink's stages, which run with the inner sink's job."""

        def with_inner(stage: SinkStage) -> SinkStage:
            def run(job: SinkJob) -> StageReport:
                assert isinstance(job, ShadowedSinkJob)
                return stage.run(job.inner)

            return replace(stage, run=run)

        return [with_inner(stage) for stage in self.inner.stages(options)]

    def open(self, spark: SparkSession) -> SinkJob:
        """Open the sink."""
        return ShadowedSinkJob(self.inner.open(spark), self._watched)


class ShadowedSinkJob(SinkJob):
    """The writing of a job into a `ShadowedSink`; a sample, and the rows written first, are not fingerprinted."""

    check, restart, prepare, commit = _inner("check"), _inner("restart"), _inner("prepare"), _inner("commit")
    abort, refresh, secrets = _inner("abort"), _inner("refresh"), _inner("secrets")
    target_folder, creates_target = _inner("target_folder"), _inner("creates_target")
    sample_size, write_first = _inner("sample_size"), _inner("write_first")

    def __init__(self, inner: SinkJob, watched: WatchedOutput) -> None:
        self.inner = inner
        self.calls_python = inner.calls_python
        self._watched = watched

    def write(self, df: DataFrame) -> None:
        """Write the rows, and fingerprint them."""
        self.inner.write(self._watched.offer(df))
