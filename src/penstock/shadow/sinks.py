"""Sinks that compute a fingerprint (checksums) of the rows they receive."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.connectors.core.base import Sink, SinkJob, SinkOptions, SinkStage, StageReport
from penstock.shadow.comparison import Comparison, Verdict
from penstock.spark.run.fingerprint import FingerprintedRows
from penstock.spark.run.plain_runs import in_user_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.shadow.plain import PlainQuery
    from penstock.spark.bridge.jvm import Bridge

log = logging.getLogger("penstock")


@dataclass(slots=True)
class WatchedOutput:
    """An output of a job, its query for plain Spark, and the rows that its sink received.

    If the output is `materialised`, its rows can be computed again from the stored result of the last exchange.
    `user_df` is the user's DataFrame, which the sink receives unchanged if Spark runs the whole query; None for a query
    that Spark delegates. `spark_is_chosen` is set if the job plan or a fallback lets Spark run the query. `sink_df` is
    the DataFrame that the sink received, None before that and after the report. `fingerprinted_rows` computes
    checksums while the sink reads rows; None if rows are recomputed. `problem` says why rows cannot be compared, or "".
    """

    bridge: Bridge
    name: str
    plain: PlainQuery
    location: str = ""
    materialised: bool = False
    user_df: DataFrame | None = None
    spark_is_chosen: bool = field(default=False, init=False)
    sink_df: DataFrame | None = field(default=None, init=False)
    fingerprinted_rows: FingerprintedRows | None = field(default=None, init=False)
    problem: str = field(default="", init=False)

    @property
    def is_run_by_spark(self) -> bool:
        """Whether Spark runs the whole query: Spark is chosen, or the sink received the user's DataFrame unchanged."""
        return self.spark_is_chosen or (self.user_df is not None and self.sink_df is self.user_df)

    @property
    def recomputed_rows(self) -> DataFrame:
        """The rows that the sink received, as a DataFrame that runs only the last stage again."""
        assert self.sink_df is not None
        return in_user_session(self.bridge, self.sink_df)

    def comparison(self, verdict: Verdict, reason: str, **values: Any) -> Comparison:
        """Return a comparison of this output with a verdict."""
        names = tuple(self.plain.schema().names)
        return Comparison(self.name, verdict, reason, names=names, location=self.location, **values)

    def watch(self, df: DataFrame) -> DataFrame:
        """Return the DataFrame for the sink, which also fingerprints the rows unless they can be recomputed later."""
        self.sink_df = df
        if self.is_run_by_spark or self.materialised:
            return df
        try:
            self.fingerprinted_rows = FingerprintedRows(df, self.bridge)
        except Exception as error:
            log.warning("the rows of %s cannot be compared", self.name, exc_info=True)
            self.problem = str(error).split("\n", maxsplit=1)[0]
            return df
        return self.fingerprinted_rows.df


def _inner(name: str) -> Any:
    """Return a property that delegates to the attribute or method `name` of the inner sink or sink job."""
    return property(lambda shadowed: getattr(shadowed.inner, name))


class ShadowedSink(Sink):
    """A sink that delegates to another sink, and fingerprints the rows."""

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
    """The job of a `ShadowedSink`; it fingerprints neither samples (`sample_size`) nor rows of `write_first`."""

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
        self.inner.write(self._watched.watch(df))
