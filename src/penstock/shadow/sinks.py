"""Sinks that fingerprint the rows they receive."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.connectors.base import Sink, SinkJob, SinkStage
from penstock.spark.fingerprint import FingerprintedRows
from penstock.spark.plain_runs import in_user_session

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.commit import Access, Prepared
    from penstock.connectors.base import SinkOptions, SinkParallelism, StageReport, TargetOptions
    from penstock.shadow.plain import PlainQuery
    from penstock.spark.jvm import Bridge

log = logging.getLogger("penstock")


@dataclass(slots=True)
class WatchedOutput:
    """An output of a job, and the rows that its sink received.

    Parameters
    ----------
    bridge
        The bridge to the user's session.
    name
        The sink's name.
    plain
        The query for plain Spark.
    location
        The user's line of code.
    materialised
        Whether the sink stores the rows, so that they can be read from there.
    user_df
        The user's DataFrame, which the sink receives unchanged if Spark runs the whole query; None for a query that
        Spark has optimised already.

    Attributes
    ----------
    runs_on_spark
        Whether the job delegates the whole query to Spark.
    offered
        The DataFrame that was offered to the sink; None before that.
    counted
        The same DataFrame with a fingerprint of the rows that the sink computes; None if they are read again instead.
    problem
        Why the rows cannot be compared; empty if they can.
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


class ShadowedSink(Sink):
    """A sink that delegates to another sink and fingerprints its rows.

    Parameters
    ----------
    inner
        The delegate.
    watched
        The output that takes the fingerprint.
    """

    def __init__(self, inner: Sink, watched: WatchedOutput) -> None:
        self.inner = inner
        self.parallelism = inner.parallelism
        self._watched = watched

    @property
    def materialised(self) -> bool:  # type: ignore[override]
        """As for the inner sink."""
        return self.inner.materialised

    @property
    def measures_tasks(self) -> bool:  # type: ignore[override]
        """As for the inner sink."""
        return self.inner.measures_tasks

    @property
    def restartable(self) -> bool:  # type: ignore[override]
        """As for the inner sink."""
        return self.inner.restartable

    @property
    def name(self) -> str:
        """The sink's name."""
        return self.inner.name

    @property
    def partition_columns(self) -> Sequence[str]:
        """As for the inner sink."""
        return self.inner.partition_columns

    def target_options(self, spark: SparkSession) -> TargetOptions:
        """As for the inner sink."""
        return self.inner.target_options(spark)

    def stages(self, options: SinkOptions) -> Sequence[SinkStage]:
        """Return the inner sink's stages, which run with the inner sink's job."""

        def with_inner(stage: SinkStage) -> SinkStage:
            def run(job: SinkJob) -> StageReport:
                assert isinstance(job, ShadowedSinkJob)
                return stage.run(job.inner)

            return replace(stage, run=run)

        return [with_inner(stage) for stage in self.inner.stages(options)]

    def file_size(self, options: SinkOptions) -> int | None:
        """As for the inner sink."""
        return self.inner.file_size(options)

    @property
    def secrets(self) -> Mapping[str, Mapping[str, str]]:
        """As for the inner sink."""
        return self.inner.secrets

    def recover(self, access: Access) -> None:
        """As for the inner sink."""
        self.inner.recover(access)

    def open(self, spark: SparkSession) -> SinkJob:
        """Open the sink."""
        return ShadowedSinkJob(self.inner.open(spark), self._watched)


class ShadowedSinkJob(SinkJob):
    """The writing of a job into a `ShadowedSink`."""

    def __init__(self, inner: SinkJob, watched: WatchedOutput) -> None:
        self.inner = inner
        self.calls_python = inner.calls_python
        self._watched = watched

    def check(self, schema: StructType) -> None:
        """As for the inner sink."""
        self.inner.check(schema)

    @property
    def target_folder(self) -> str | None:
        """As for the inner sink."""
        return self.inner.target_folder

    @property
    def creates_target(self) -> bool:
        """As for the inner sink."""
        return self.inner.creates_target

    def write(self, df: DataFrame) -> None:
        """Write the rows, and fingerprint them."""
        self.inner.write(self._watched.offer(df))

    def sample_size(self, df: DataFrame) -> int:
        """As for the inner sink; a sample is not fingerprinted."""
        return self.inner.sample_size(df)

    def write_first(self, df: DataFrame, rows: int | None) -> SinkParallelism | None:
        """As for the inner sink; these rows are fingerprinted when all rows are written."""
        return self.inner.write_first(df, rows)

    def restart(self) -> bool:
        """As for the inner sink."""
        return self.inner.restart()

    def prepare(self) -> Prepared | None:
        """As for the inner sink."""
        return self.inner.prepare()

    @property
    def secrets(self) -> Mapping[str, Mapping[str, str]]:
        """As for the inner sink."""
        return self.inner.secrets

    def commit(self) -> None:
        """As for the inner sink."""
        self.inner.commit()

    def abort(self) -> None:
        """As for the inner sink."""
        self.inner.abort()

    def refresh(self) -> None:
        """As for the inner sink."""
        self.inner.refresh()
