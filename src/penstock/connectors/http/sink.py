"""Sink of services that accept rows by HTTP, with a rate limit and dead letters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

from penstock.arguments import check_settings, check_text, columns_of
from penstock.commit import location_of
from penstock.connectors.base import Sink, SinkJob, SinkStage, StageReport, checked_parallelism
from penstock.connectors.extras import needs
from penstock.connectors.files import FileSink
from penstock.connectors.http.job import HttpSinkJob
from penstock.errors import SinkError
from penstock.masking import mask

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from penstock.commit import Access
    from penstock.connectors.base import SinkOptions

METHODS = ("POST", "PUT")


@dataclass(frozen=True)
class HttpSink(Sink):
    """A service that accepts rows as JSON, a single row or several per request.

    Delivery is at least once: a repeated task sends its rows again. Each request has an ``Idempotency-Key``, which is
    the same if a repeated request has the same rows, so that a service can ignore it.

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
        row in any run of the job. With more, the key identifies all rows of a request, and another run or a repeated
        task may group rows differently. Without columns, keys are valid for this run only.
    timeout
        The maximum seconds of a request, with its response. If only the rest of a response is late, its status counts.
    attempts
        The maximum attempts of a request, which is retried after the statuses 408, 425, 429 and 5xx, and without
        response.
    backoff
        The approximate seconds before the second attempt; doubled for each further attempt.
    longest_wait
        The maximum seconds before an attempt. If the service requests more (``Retry-After``), there is no further
        attempt.
    requests_at_a_time
        The maximum number of concurrent requests of a task. With several, few cores reach a high limit at a slow
        service, and the rows of a task arrive approximately in order.
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
    materialised: ClassVar[bool] = True
    measures_tasks: ClassVar[bool] = True

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
        if self.parallelism is not None:
            checked_parallelism(self.parallelism, where)

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
    def _letters(self) -> FileSink | None:
        return None if self.dead_letters is None else FileSink(self.dead_letters, mode="append")

    def stages(self, options: SinkOptions) -> Sequence[SinkStage]:
        """Return a step that reports the number of requests."""
        del options
        return (SinkStage(f"Requests: {self.name}", _report),)

    def recover(self, access: Access) -> None:
        """Complete or roll back the interrupted commit of dead letters of a dead process."""
        if self._letters is not None:
            self._letters.recover(access)

    def open(self, spark: SparkSession) -> SinkJob:
        """Check the folder of dead letters and the required libraries."""
        for module in ("httpx", "tenacity"):
            needs(module, "http", SinkError)
        return HttpSinkJob(spark, self, None if self._letters is None else self._letters.open(spark))


def _report(job: SinkJob) -> StageReport:
    assert isinstance(job, HttpSinkJob)
    return job.report()
