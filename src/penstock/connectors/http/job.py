"""The requests of a job to a service."""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING

from penstock.arguments import columns_of
from penstock.connectors.base import SinkJob, StageReport
from penstock.connectors.http.attempts import Target
from penstock.connectors.http.driver_side import DriverSide, driver_side
from penstock.connectors.http.pace import recommend_tasks
from penstock.connectors.http.rows import FIRST, LETTERS
from penstock.connectors.http.sending import sender
from penstock.connectors.sink_checks import folded, is_case_sensitive
from penstock.errors import SinkError
from penstock.masking import mask
from penstock.spark import jobs
from penstock.spark.jvm import Bridge
from penstock.spark_errors import translate_errors
from penstock.units import show_count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.commit import Prepared
    from penstock.connectors.base import SinkParallelism
    from penstock.connectors.http.sink import HttpSink

log = logging.getLogger("penstock.sinks")


class HttpSinkJob(SinkJob):
    """The write of a job to a service.

    Parameters
    ----------
    spark
        The session.
    sink
        The sink.
    letters
        The sink job for dead letters, None if there is no folder for them.
    """

    def __init__(self, spark: SparkSession, sink: HttpSink, letters: SinkJob | None) -> None:
        self._bridge = Bridge(spark)
        self._sink = sink
        self._letters = letters
        self._first_letters: list[tuple[object, ...]] = []
        self._side: DriverSide | None = None
        self._target = Target(
            sink.url,
            sink.method,
            dict(sink.headers),
            sink.batch_size,
            sink.timeout,
            sink.requests_at_a_time,
            sink.attempts,
            sink.backoff,
            sink.longest_wait,
            run=uuid.uuid4().hex,
            keeps_dead=letters is not None,
        )

    @property
    def target_folder(self) -> str | None:
        """The folder of dead letters."""
        return None if self._letters is None else self._letters.target_folder

    @property
    def creates_target(self) -> bool:
        """Whether the job creates the folder of dead letters."""
        return self._letters is not None and self._letters.creates_target

    def check(self, schema: StructType) -> None:
        """Reject rows that cannot be converted to JSON, and missing key columns."""
        spark = self._bridge.spark
        case_sensitive = is_case_sensitive(spark)
        names = {folded(name, case_sensitive=case_sensitive) for name in schema.fieldNames()}
        for name in columns_of(self._sink.idempotency_key, self._sink.name):
            if folded(name, case_sensitive=case_sensitive) not in names:
                where = f"sink {self._sink.name}"
                raise SinkError.no_column(where, name, schema.fieldNames(), case_sensitive=case_sensitive)
        with translate_errors():
            self._as_json(spark.createDataFrame([], schema))
        if self._letters is not None:
            self._letters.check(spark.createDataFrame([], LETTERS).schema)

    def write_first(self, df: DataFrame, rows: int | None) -> SinkParallelism | None:
        """Send some rows, and recommend a number of tasks by the duration of their requests."""
        side = self._driver_side()
        send = sender(self._target, side.address, only_first=True)
        rows_of_task = self._as_json(df).mapInArrow(send, FIRST).collect()
        self._fail_if_refused(side)
        side.first.add(row.digest for row in rows_of_task)
        self._first_letters = [row[1:] for row in rows_of_task if row.row is not None]
        seconds, requests = side.median_seconds, None if rows is None else -(-rows // self._sink.batch_size)
        if seconds is None:
            return None
        rate, cores = self._sink.max_requests_per_second, jobs.cluster_cores(self._bridge)
        return recommend_tasks(rate, seconds, len(side.times), requests, cores, self._sink.requests_at_a_time)

    def write(self, df: DataFrame) -> None:
        """Send the rows that were not sent by `write_first`."""
        side = self._driver_side()
        send = sender(self._target, side.address, side.first.digests)
        refused = self._as_json(df).mapInArrow(send, LETTERS)
        if self._letters is None:
            refused.collect()
        else:
            if self._first_letters:
                refused = refused.union(df.sparkSession.createDataFrame(self._first_letters, LETTERS))
            self._letters.write(refused)
        self._fail_if_refused(side)
        side.close()
        if side.figures.repeated_tasks:
            log.warning("%s: %s, so rows may have been sent twice", self._sink.name, _repeated(side))

    def report(self) -> StageReport:
        """Return the number of requests with their results."""
        side = self._side
        if side is None:
            return StageReport("no requests", "there were no rows")
        figures, limit = side.figures, self._sink.max_requests_per_second
        parts = [
            f"{figures.rows:,} rows taken",
            f"{figures.retried:,} requests repeated",
            f"{figures.dead:,} dead letters",
        ]
        if figures.rate is not None:
            parts.append(f"{figures.rate:.3g} a second" + ("" if limit is None else f", of {limit:g} that are allowed"))
        if figures.repeated_tasks:
            parts.append(f"{_repeated(side)}, whose rows may have come twice")
        return StageReport(show_count(figures.requests, "request"), ", ".join(parts))

    def prepare(self) -> Prepared | None:
        """Return the record of the dead letters, None if there are none: requests themselves cannot be rolled back."""
        if self._letters is None:
            return None
        if self._side is None or not self._side.figures.dead:
            self._letters.abort()
            return None
        return self._letters.prepare()

    def abort(self) -> None:
        """Stop the tasks that are still sending, and remove the dead letters; sent rows cannot be rolled back."""
        if self._side is not None:
            self._side.close()
        if self._letters is not None:
            self._letters.abort()

    def refresh(self) -> None:
        """Invalidate cached readers of the dead letters."""
        if self._letters is not None:
            self._letters.refresh()

    def _driver_side(self) -> DriverSide:
        if self._side is None:
            conf = self._bridge.spark.conf
            self._side = driver_side(lambda key: conf.get(key, None), self._sink.max_requests_per_second)
        return self._side

    def _as_json(self, df: DataFrame) -> DataFrame:
        """Return the rows as JSON with null fields included, and the key columns as JSON if there are any."""
        from pyspark.sql import functions as F

        columns = [F.col(f"`{name.replace('`', '``')}`") for name in df.columns]
        columns_as_json = [F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}).alias("row")]
        names = columns_of(self._sink.idempotency_key, self._sink.name)
        if names:
            keys = [F.col(f"`{name.replace('`', '``')}`") for name in names]
            columns_as_json.append(F.to_json(F.struct(*keys), {"ignoreNullFields": "false"}).alias("key"))
        return df.select(*columns_as_json)

    def _fail_if_refused(self, side: DriverSide) -> None:
        if side.refused:
            side.close()
            raise SinkError(
                f"{mask(self._sink.url)} rejected a row",
                cause=mask(side.refused),
                hint="give HttpSink a folder for dead_letters to store such rows; other rows were sent already",
            )


def _repeated(side: DriverSide) -> str:
    return f"{show_count(side.figures.repeated_tasks, 'task')} ran twice"
