"""Services that take rows by HTTP: never more requests than they allow, and refused rows are kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

from penstock.arguments import check_settings, check_text, columns_of
from penstock.commit import place_of
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
    """A service that takes rows as JSON, one or several by a request.

    At least once: a task that runs again sends its rows again. Each request has an ``Idempotency-Key``. It is the same
    then if the request has the same rows, so that a service can drop it.

    Parameters
    ----------
    url
        Where requests go.
    method
        ``POST`` or ``PUT``.
    headers
        Further headers, such as ``Authorization``.
    batch_size
        The rows of a request. With 1 its body is an object, with more it is an array of them.
    max_requests_per_second
        The most requests that the service gets in a second from all tasks of the job together, repeated ones included;
        None for no limit.
    dead_letters
        A folder of Parquet files to which rows are added that the service refuses, or for which the attempts are used
        up: the row as JSON, the status, the error, the attempts and the time. If None, the first of them fails the job.
    idempotency_key
        The columns from which the key of a request is made. With a ``batch_size`` of 1 the service knows a row again by
        it in any run of the job. With more, the key is that of the rows of the request together, and another run, or a
        repeated task, may put other rows together. Without columns, keys hold for this run.
    timeout
        The seconds that a request may take, with its answer. The status counts where the rest of an answer is late.
    attempts
        How often a request is sent at most: again after the statuses 408, 425, 429 and 5xx, and if no answer came.
    backoff
        The seconds before the second attempt, about; each further one waits twice as long.
    longest_wait
        The most seconds before an attempt. If the service asks for more (``Retry-After``), there is no further attempt.
    requests_at_a_time
        How many requests a task has under way at most. With more than one, a few cores reach a high limit at a slow
        service, and the rows of a task come in about their order.
    parallelism
        The number of tasks that send. If None, it follows from the limit and from what the first requests take.
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
                f"{mask(self.url)!r} is no address of a service", hint="give a URL such as https://host/path"
            )
        if self.method not in METHODS:
            raise SinkError(f"method {self.method!r} of {where} is not known", hint=f"give {' or '.join(METHODS)}")
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
        """The host and the port: the path may be a secret, as that of many webhooks."""
        address = urlsplit(self.url)
        return f"{address.hostname}" if address.port is None else f"{address.hostname}:{address.port}"

    @property
    def place(self) -> str | None:
        """The folder of dead letters: a service is no place in which rows replace others."""
        return None if self.dead_letters is None else place_of(self.dead_letters)

    @property
    def adds(self) -> bool:
        """True: nothing is replaced."""
        return True

    @property
    def _letters(self) -> FileSink | None:
        return None if self.dead_letters is None else FileSink(self.dead_letters, mode="append")

    def stages(self, options: SinkOptions) -> Sequence[SinkStage]:
        """Return a step that tells how many requests were sent."""
        del options
        return (SinkStage(f"Requests: {self.name}", _report),)

    def recover(self, access: Access) -> None:
        """Complete or take back what a dead process has left half-way of the dead letters."""
        if self._letters is not None:
            self._letters.recover(access)

    def open(self, spark: SparkSession) -> SinkJob:
        """Look whether the folder of dead letters can be written."""
        for module in ("httpx", "tenacity"):
            needs(module, "http", SinkError)
        return HttpSinkJob(spark, self, None if self._letters is None else self._letters.open(spark))


def _report(job: SinkJob) -> StageReport:
    assert isinstance(job, HttpSinkJob)
    return job.report()
