"""The requests of one job to a service."""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING

from penstock.arguments import columns_of
from penstock.connectors.base import SinkJob, StageReport
from penstock.connectors.http.attempts import Target
from penstock.connectors.http.driver_side import DriverSide, driver_side
from penstock.connectors.http.pace import tasks_worth
from penstock.connectors.http.rows import FIRST, LETTERS
from penstock.connectors.http.sending import sender
from penstock.connectors.sink_checks import folded, is_case_sensitive
from penstock.errors import SinkError
from penstock.masking import mask
from penstock.spark import jobs
from penstock.spark.jvm import Bridge
from penstock.spark_errors import in_words
from penstock.units import show_count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.commit import Prepared
    from penstock.connectors.base import TasksWorth
    from penstock.connectors.http.sink import HttpSink

log = logging.getLogger("penstock.sinks")


class HttpSinkJob(SinkJob):
    """The requests of one job.

    Parameters
    ----------
    spark
        The session.
    sink
        Where they go.
    letters
        The writing of dead letters, None if there is no folder for them.
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
    def makes_target(self) -> bool:
        """Whether that folder is not there."""
        return self._letters is not None and self._letters.makes_target

    def check(self, schema: StructType) -> None:
        """Refuse rows that JSON cannot hold, and keys that they do not have."""
        spark = self._bridge.spark
        case_sensitive = is_case_sensitive(spark)
        names = {folded(name, case_sensitive=case_sensitive) for name in schema.fieldNames()}
        for name in columns_of(self._sink.idempotency_key, self._sink.name):
            if folded(name, case_sensitive=case_sensitive) not in names:
                where = f"sink {self._sink.name}"
                raise SinkError.no_column(where, name, schema.fieldNames(), case_sensitive=case_sensitive)
        with in_words():
            self._as_json(spark.createDataFrame([], schema))
        if self._letters is not None:
            self._letters.check(spark.createDataFrame([], LETTERS).schema)

    def write_first(self, df: DataFrame, rows: int | None) -> TasksWorth | None:
        """Send some rows, and see what a request takes."""
        side = self._driver_side()
        send = sender(self._target, side.place, only_first=True)
        rows_of_task = self._as_json(df).mapInArrow(send, FIRST).collect()
        self._fail_if_refused(side)
        side.first.add(row.digest for row in rows_of_task)
        self._first_letters = [row[1:] for row in rows_of_task if row.row is not None]
        seconds, requests = side.measured, None if rows is None else -(-rows // self._sink.batch_size)
        if seconds is None:
            return None
        rate, cores = self._sink.max_requests_per_second, jobs.cluster_cores(self._bridge)
        return tasks_worth(rate, seconds, len(side.times), requests, cores, self._sink.requests_at_a_time)

    def write(self, df: DataFrame) -> None:
        """Send the rows that were not sent yet."""
        side = self._driver_side()
        send = sender(self._target, side.place, side.first.digests)
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
        """Return how many requests were sent, and what came of them."""
        side = self._side
        if side is None:
            return StageReport("no requests", "there were no rows")
        figures, limit = side.figures, self._sink.max_requests_per_second
        told = [
            f"{figures.rows:,} rows taken",
            f"{figures.retried:,} requests repeated",
            f"{figures.dead:,} dead letters",
        ]
        if figures.rate is not None:
            told.append(f"{figures.rate:.3g} a second" + ("" if limit is None else f", of {limit:g} that are allowed"))
        if figures.repeated_tasks:
            told.append(f"{_repeated(side)}, whose rows may have come twice")
        return StageReport(show_count(figures.requests, "request"), ", ".join(told))

    def prepare(self) -> Prepared | None:
        """Return the record of the dead letters, if there are any: requests cannot be taken back."""
        if self._letters is None:
            return None
        if self._side is None or not self._side.figures.dead:
            self._letters.abort()
            return None
        return self._letters.prepare()

    def abort(self) -> None:
        """Stop the tasks that still send, and remove the dead letters; what was sent cannot be taken back."""
        if self._side is not None:
            self._side.close()
        if self._letters is not None:
            self._letters.abort()

    def refresh(self) -> None:
        """Let cached readers see the dead letters."""
        if self._letters is not None:
            self._letters.refresh()

    def _driver_side(self) -> DriverSide:
        if self._side is None:
            conf = self._bridge.spark.conf
            self._side = driver_side(lambda key: conf.get(key, None), self._sink.max_requests_per_second)
        return self._side

    def _as_json(self, df: DataFrame) -> DataFrame:
        """Return the rows as JSON with all their fields, beside what tells them apart."""
        from pyspark.sql import functions as F

        columns = [F.col(f"`{name.replace('`', '``')}`") for name in df.columns]
        found = [F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}).alias("row")]
        names = columns_of(self._sink.idempotency_key, self._sink.name)
        if names:
            keys = [F.col(f"`{name.replace('`', '``')}`") for name in names]
            found.append(F.to_json(F.struct(*keys), {"ignoreNullFields": "false"}).alias("key"))
        return df.select(*found)

    def _fail_if_refused(self, side: DriverSide) -> None:
        if side.refused:
            side.close()
            raise SinkError(
                f"{mask(self._sink.url)} does not take a row",
                cause=mask(side.refused),
                hint="give HttpSink a folder for dead_letters to keep such rows and go on; others were sent already",
            )


def _repeated(side: DriverSide) -> str:
    return f"{show_count(side.figures.repeated_tasks, 'task')} ran twice"
