"""Sinks whose rows are fingerprinted on their way."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.connectors.base import Sink, SinkJob, SinkStage
from penstock.spark.fingerprint import Counted
from penstock.spark.plain_runs import in_users_session

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.commit import Access, Prepared
    from penstock.connectors.base import SinkOptions, StageReport, TargetOptions, TasksWorth
    from penstock.shadow.plain import PlainQuery
    from penstock.spark.jvm import Bridge

log = logging.getLogger("penstock")


@dataclass(slots=True)
class Watched:
    """An output of a job, and what its sink got.

    Parameters
    ----------
    bridge
        The bridge to the user's session.
    name
        The sink's name.
    plain
        The query, for plain Spark.
    location
        The user's line.
    materialised
        Whether the sink keeps the rows, which are then read where they lie.
    given
        The user's DataFrame, which is handed to the sink as it is where Spark runs the query whole; None of a query
        that Spark has optimised already.

    Attributes
    ----------
    runs_on_spark
        Whether the job lets Spark plan the whole query.
    """

    bridge: Bridge
    name: str
    plain: PlainQuery
    location: str = ""
    materialised: bool = False
    given: DataFrame | None = None
    runs_on_spark: bool = field(default=False, init=False)
    offered: DataFrame | None = field(default=None, init=False)
    counted: Counted | None = field(default=None, init=False)
    problem: str = field(default="", init=False)

    @property
    def is_whole(self) -> bool:
        """Whether Spark was handed the query as it is."""
        return self.runs_on_spark or (self.given is not None and self.offered is self.given)

    @property
    def taken(self) -> DataFrame:
        """The rows that the sink was offered, to be read once more; only the last stage is run again for that."""
        assert self.offered is not None
        return in_users_session(self.bridge, self.offered)

    def offer(self, df: DataFrame) -> DataFrame:
        """Return what a sink is to be given instead of its rows: the same, counted."""
        self.offered = df
        if self.is_whole or self.materialised:
            return df
        try:
            self.counted = Counted(df, self.bridge)
        except Exception as error:
            log.warning("the rows of %s cannot be compared", self.name, exc_info=True)
            self.problem = str(error).split("\n", maxsplit=1)[0]
            return df
        return self.counted.df


class ShadowedSink(Sink):
    """A sink that works as another does, and has its rows fingerprinted.

    Parameters
    ----------
    inner
        The other sink.
    watched
        Where the fingerprint goes.
    """

    def __init__(self, inner: Sink, watched: Watched) -> None:
        self.inner = inner
        self.parallelism = inner.parallelism
        self._watched = watched

    @property
    def materialised(self) -> bool:  # type: ignore[override]
        """As the sink says."""
        return self.inner.materialised

    @property
    def measures_tasks(self) -> bool:  # type: ignore[override]
        """As the sink says."""
        return self.inner.measures_tasks

    @property
    def restartable(self) -> bool:  # type: ignore[override]
        """As the sink says."""
        return self.inner.restartable

    @property
    def name(self) -> str:
        """The sink's name."""
        return self.inner.name

    @property
    def partition_columns(self) -> Sequence[str]:
        """As the sink says."""
        return self.inner.partition_columns

    def target_options(self, spark: SparkSession) -> TargetOptions:
        """As the sink says."""
        return self.inner.target_options(spark)

    def stages(self, options: SinkOptions) -> Sequence[SinkStage]:
        """Return the sink's stages; they get the sink's own job."""

        def with_inner(stage: SinkStage) -> SinkStage:
            def run(job: SinkJob) -> StageReport:
                assert isinstance(job, ShadowedSinkJob)
                return stage.run(job.inner)

            return replace(stage, run=run)

        return [with_inner(stage) for stage in self.inner.stages(options)]

    def file_size(self, options: SinkOptions) -> int | None:
        """As the sink says."""
        return self.inner.file_size(options)

    @property
    def secrets(self) -> Mapping[str, Mapping[str, str]]:
        """As the sink says."""
        return self.inner.secrets

    def recover(self, access: Access) -> None:
        """As the sink says."""
        self.inner.recover(access)

    def open(self, spark: SparkSession) -> SinkJob:
        """Open the sink."""
        return ShadowedSinkJob(self.inner.open(spark), self._watched)


class ShadowedSinkJob(SinkJob):
    """The writing of one job into a `ShadowedSink`."""

    def __init__(self, inner: SinkJob, watched: Watched) -> None:
        self.inner = inner
        self.calls_python = inner.calls_python
        self._watched = watched

    def check(self, schema: StructType) -> None:
        """As the sink says."""
        self.inner.check(schema)

    @property
    def target_folder(self) -> str | None:
        """As the sink says."""
        return self.inner.target_folder

    @property
    def makes_target(self) -> bool:
        """As the sink says."""
        return self.inner.makes_target

    def write(self, df: DataFrame) -> None:
        """Write the rows, which are counted on the way."""
        self.inner.write(self._watched.offer(df))

    def sample_size(self, df: DataFrame) -> int:
        """As the sink says; a sample is not counted."""
        return self.inner.sample_size(df)

    def write_first(self, df: DataFrame, rows: int | None) -> TasksWorth | None:
        """As the sink says; these rows are counted when all are written."""
        return self.inner.write_first(df, rows)

    def restart(self) -> bool:
        """As the sink says."""
        return self.inner.restart()

    def prepare(self) -> Prepared | None:
        """As the sink says."""
        return self.inner.prepare()

    @property
    def secrets(self) -> Mapping[str, Mapping[str, str]]:
        """As the sink says."""
        return self.inner.secrets

    def commit(self) -> None:
        """As the sink says."""
        self.inner.commit()

    def abort(self) -> None:
        """As the sink says."""
        self.inner.abort()

    def refresh(self) -> None:
        """As the sink says."""
        self.inner.refresh()
