"""Sink of services that accept rows by HTTP, with a rate limit and dead letters."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

from pyspark.sql import functions as F

from penstock.base.arguments import check_settings, check_text, columns_of
from penstock.base.channel import driver_hosts
from penstock.base.masking import mask
from penstock.base.units import show_count
from penstock.commit import location_of
from penstock.connectors.core.base import Sink, SinkJob, SinkStage, StageReport, check_positive
from penstock.connectors.core.extras import require_module
from penstock.connectors.core.sink_checks import is_case_sensitive, name_folding
from penstock.connectors.files.files import FileSink
from penstock.connectors.http.driver_side import DriverSide
from penstock.connectors.http.rate_limit import recommend_tasks
from penstock.connectors.http.rows import FIRST_TASK_COLUMNS, LETTER_COLUMNS
from penstock.connectors.http.sending import send_function
from penstock.connectors.tables.table_schema import quoted
from penstock.errors import SinkError
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.errors import translate_errors
from penstock.spark.run import jobs

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.commit import Access, Prepared
    from penstock.connectors.core.base import SinkOptions, SinkParallelism

log = logging.getLogger("penstock.sinks")
METHODS = ("POST", "PUT")


@dataclass(frozen=True)
class HttpSink(Sink):
    """A service that accepts rows as JSON, a single row or several per request.

    Delivery is at least once: a retried task sends its rows again. Each request has an ``Idempotency-Key``, which is
    the same if a retried request has the same rows, so that a service can ignore the duplicate.

    >>> HttpSink("https://api.example.com/orders", batch_size=100, max_requests_per_second=50).name
    'api.example.com'

    Parameters
    ----------
    url
        The URL of the requests.
    method
        ``POST`` or ``PUT``.
    headers
        Further headers, such as ``Authorization``.
    batch_size
        The number of rows per request. With 1, the body is an object; with more, it is an array of objects.
    max_requests_per_second
        The maximum requests per second of all tasks of the job together, retries included; None for no limit.
    dead_letters
        A folder of Parquet files for rows that the service rejects, or whose attempts are exhausted: the row as JSON,
        the status, the error, the attempts and the time. If None, the first such row fails the job.
    idempotency_key
        The columns from which the key of a request is computed. With a ``batch_size`` of 1, the service can recognize a
        row in any run of the job. With more, the key identifies all rows of a request, and another run or a retried
        task may group rows differently. Without columns, keys are valid for this run only.
    timeout
        The maximum seconds of a request with its response. If the status arrives in time and the rest of the response
        is late, the status decides whether the request succeeded.
    attempts
        The maximum attempts of a request. A request is retried after the statuses 408, 425, 429 and 5xx, and after a
        missing response.
    backoff
        The approximate seconds before the second attempt; doubled for each further attempt.
    longest_wait
        The maximum seconds to wait before an attempt. If the service requests a longer wait (``Retry-After``), there is
        no further attempt.
    requests_at_a_time
        The maximum number of concurrent requests of a task. With several, few cores suffice for a high rate at a slow
        service, but the rows of a task arrive only approximately in order.
    parallelism
        The number of sending tasks. If None, it follows from the limit and the duration of the first requests.
    """

    url: str = field(repr=False)
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    batch_size: int = 1
    max_requests_per_second: float | None = None
    dead_letters: str | None = None
    idempotency_key: str | Sequence[str] = ()
    timeout: float = 30.0
    attempts: int = 5
    backoff: float = 0.5
    longest_wait: float = 300.0
    requests_at_a_time: int = 1
    parallelism: int | None = None
    materialised: ClassVar[bool] = True  # the first rows are read twice: by `write_first` and by `write`
    measures_tasks: ClassVar[bool] = True  # by the duration of the first requests

    def __post_init__(self) -> None:
        check_text(self.url, "HttpSink", "a URL, which is a text such as https://host/path")
        check_text(self.method, "HttpSink", "a method, which is a text")
        check_settings(self.headers, "the headers of HttpSink")
        where = f"sink {self.name}"
        object.__setattr__(self, "method", self.method.upper())
        object.__setattr__(self, "idempotency_key", columns_of(self.idempotency_key, f"idempotency_key of {where}"))
        address = urlsplit(self.url)
        if address.scheme not in {"http", "https"} or not address.hostname:
            raise SinkError(
                f"{mask(self.url)!r} is not a valid URL of a service", hint="give a URL such as https://host/path"
            )
        if self.method not in METHODS:
            raise SinkError(f"method {self.method!r} of {where} is not valid", hint=f"give {' or '.join(METHODS)}")
        for name in ("batch_size", "attempts", "requests_at_a_time"):
            number = getattr(self, name)
            if not isinstance(number, int) or isinstance(number, bool) or number < 1:
                raise SinkError(f"{name} {number!r} of {where} is not valid", hint="give a whole number of at least 1")
        for name in ("max_requests_per_second", "timeout", "backoff", "longest_wait"):
            number = getattr(self, name)
            if name == "max_requests_per_second" and number is None:
                continue
            if not isinstance(number, int | float) or isinstance(number, bool) or not number > 0:
                raise SinkError(f"{name} {number!r} of {where} is not valid", hint="give a number above 0")
        check_positive(where, self.parallelism)

    @property
    def name(self) -> str:
        """The host and port; without the path, which may be a secret, as for many webhooks."""
        address = urlsplit(self.url)
        return f"{address.hostname}" if address.port is None else f"{address.hostname}:{address.port}"

    @property
    def location(self) -> str | None:
        """The folder of dead letters; the service itself has no rows that a sink could replace."""
        return None if self.dead_letters is None else location_of(self.dead_letters)

    @property
    def adds(self) -> bool:
        """True: the sink replaces nothing."""
        return True

    @property
    def _letter_sink(self) -> FileSink | None:
        return None if self.dead_letters is None else FileSink(self.dead_letters, mode="append")

    def stages(self, options: SinkOptions) -> Sequence[SinkStage]:  # noqa: ARG002
        """Return a step that reports the number of requests."""
        return (SinkStage(f"Requests: {self.name}", _report),)

    def recover(self, access: Access) -> None:
        """Complete or roll back the commit of dead letters that a dead process has left."""
        if self._letter_sink is not None:
            self._letter_sink.recover(access)

    def open(self, spark: SparkSession) -> SinkJob:
        """Check the folder of dead letters and the required libraries."""
        for module in ("httpx", "tenacity"):
            require_module(module, "http", SinkError)
        return _HttpSinkJob(spark, self, None if self._letter_sink is None else self._letter_sink.open(spark))


class _HttpSinkJob(SinkJob):
    """The write of a job to a service; `letter_job` writes the dead letters, None without a folder for them."""

    def __init__(self, spark: SparkSession, sink: HttpSink, letter_job: SinkJob | None) -> None:
        self.bridge = Bridge(spark)
        self.sink = replace(sink, headers=dict(sink.headers))  # a mapping that tasks can unpickle
        self.letter_job = letter_job
        self.first_letters: list[tuple[object, ...]] = []
        """The dead letters of `write_first`, with the columns `LETTER_COLUMNS`."""
        self.driver_side: DriverSide | None = None
        self.run = uuid.uuid4().hex  # identifies the run in idempotency keys

    @property
    def target_folder(self) -> str | None:
        return None if self.letter_job is None else self.letter_job.target_folder

    @property
    def creates_target(self) -> bool:
        return self.letter_job is not None and self.letter_job.creates_target

    def check(self, schema: StructType) -> None:
        """Reject rows that cannot be converted to JSON, and missing key columns."""
        spark = self.bridge.spark
        fold = name_folding(spark)
        names = {fold(name) for name in schema.fieldNames()}
        for name in columns_of(self.sink.idempotency_key, self.sink.name):
            if fold(name) not in names:
                where, case_sensitive = f"sink {self.sink.name}", is_case_sensitive(spark)
                raise SinkError.no_column(where, name, schema.fieldNames(), case_sensitive=case_sensitive)
        with translate_errors():
            self._as_json(spark.createDataFrame([], schema))
        if self.letter_job is not None:
            self.letter_job.check(spark.createDataFrame([], LETTER_COLUMNS).schema)

    def write_first(self, df: DataFrame, rows: int | None) -> SinkParallelism | None:
        """Send the first rows of `df`; recommend a number of tasks for all rows by the duration of these requests."""
        driver_side = self._driver_side()
        send = send_function(self.sink, self.run, driver_side.address, only_first=True)
        sent_rows = self._as_json(df).mapInArrow(send, FIRST_TASK_COLUMNS).collect()
        self._raise_if_rejected(driver_side)
        driver_side.first_rows.add(row.digest for row in sent_rows)
        self.first_letters = [row[1:] for row in sent_rows if row.row is not None]  # without the digest
        seconds, requests = driver_side.median_seconds, None if rows is None else -(-rows // self.sink.batch_size)
        if seconds is None:
            return None
        rate, cores = self.sink.max_requests_per_second, jobs.cluster_cores(self.bridge)
        return recommend_tasks(rate, seconds, len(driver_side.durations), requests, cores, self.sink.requests_at_a_time)

    def write(self, df: DataFrame) -> None:
        """Send the rows that were not sent by `write_first`."""
        driver_side = self._driver_side()
        send = send_function(self.sink, self.run, driver_side.address, driver_side.first_rows.digests)
        letters = self._as_json(df).mapInArrow(send, LETTER_COLUMNS)
        if self.letter_job is None:
            letters.collect()  # runs the tasks, which return no rows
        else:
            if self.first_letters:
                letters = letters.union(df.sparkSession.createDataFrame(self.first_letters, LETTER_COLUMNS))
            self.letter_job.write(letters)
        self._raise_if_rejected(driver_side)
        driver_side.close()
        if driver_side.figures.retried_tasks:
            log.warning("%s: %s, so rows may have been sent twice", self.sink.name, _retried_tasks_text(driver_side))

    def prepare(self) -> Prepared | None:
        """Return the commit record of the dead letters; None if there are none, as then there is nothing to commit."""
        if self.letter_job is None:
            return None
        if self.driver_side is None or not self.driver_side.figures.dead:
            self.letter_job.abort()
            return None
        return self.letter_job.prepare()

    def abort(self) -> None:
        """Stop the tasks that are still sending, and remove the dead letters; sent rows cannot be rolled back."""
        if self.driver_side is not None:
            self.driver_side.close()
        if self.letter_job is not None:
            self.letter_job.abort()

    def refresh(self) -> None:
        if self.letter_job is not None:
            self.letter_job.refresh()

    def _driver_side(self) -> DriverSide:
        if self.driver_side is None:
            conf = self.bridge.spark.conf
            host, bind = driver_hosts(lambda key: conf.get(key, None))
            self.driver_side = DriverSide(bind, host, self.sink.max_requests_per_second)
        return self.driver_side

    def _as_json(self, df: DataFrame) -> DataFrame:
        """Return rows as JSON with null fields (column `row`), and the key columns, if any, as JSON (column `key`)."""

        def as_json(names: Sequence[str]) -> Column:
            return F.to_json(F.struct(*(F.col(quoted(name)) for name in names)), {"ignoreNullFields": "false"})

        keys = columns_of(self.sink.idempotency_key, self.sink.name)
        row = as_json(df.columns).alias("row")
        return df.select(row, as_json(keys).alias("key")) if keys else df.select(row)

    def _raise_if_rejected(self, driver_side: DriverSide) -> None:
        if driver_side.rejection:
            driver_side.close()
            raise SinkError(
                f"{mask(self.sink.url)} rejected a row",
                cause=mask(driver_side.rejection),
                hint="set dead_letters of HttpSink to a folder for such rows; other rows were sent already",
            )


def _report(job: SinkJob) -> StageReport:
    """Return the number of requests of a job with their results."""
    assert isinstance(job, _HttpSinkJob)
    if job.driver_side is None:
        return StageReport("no requests", "there were no rows")
    figures, limit = job.driver_side.figures, job.sink.max_requests_per_second
    parts = [f"{figures.rows:,} rows accepted", f"{figures.retried:,} requests retried"]
    parts.append(f"{figures.dead:,} dead letters")
    if figures.rate is not None:
        parts.append(f"{figures.rate:.3g} a second" + ("" if limit is None else f", of {limit:g} allowed"))
    if figures.retried_tasks:
        parts.append(f"{_retried_tasks_text(job.driver_side)}, so rows may have been sent twice")
    return StageReport(show_count(figures.requests, "request"), ", ".join(parts))


def _retried_tasks_text(driver_side: DriverSide) -> str:
    return f"tasks were started again {show_count(driver_side.figures.retried_tasks, 'time')}"
