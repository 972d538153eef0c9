"""The tasks of an HTTP sink: they send rows with retries, and return dead letters.

Delivery is at least once: a retried task sends its requests again, with equal idempotency keys if the rows are equal.
"""

from __future__ import annotations

import hashlib
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from queue import SimpleQueue
from typing import TYPE_CHECKING, Self

from pyspark import TaskContext

from penstock.connectors.http.driver_link import MessageKind
from penstock.connectors.http.rows import Row, RowResult, requests_of, result_batches, rows_of

if TYPE_CHECKING:
    import httpx
    import pyarrow as pa
    from tenacity import RetryCallState

    from penstock.connectors.http.driver_link import DriverAddress, DriverLink
    from penstock.connectors.http.sink import HttpSink

_RETRYABLE = frozenset({408, 425, 429})
"""The statuses of client errors that are retried, in addition to all server errors."""
_SERVER_ERRORS, _SUCCESS = range(500, 600), range(200, 300)
_MAX_ERROR_LENGTH = 1000
"""The maximum characters of a response that errors and dead letters quote."""
_MAX_RESPONSE_BYTES = 1 << 16
"""Reading of a response stops after this number of bytes; the connection is then not reused."""
_FIRST_REQUESTS, _FIRST_SECONDS = 20, 2.0
"""The maximum requests and seconds for measuring the duration of a request."""


class Connection:
    """An HTTP client with a single connection and a single request at a time; a context manager.

    `timeout` is the maximum seconds of a request with its response. httpx has no such limit, as its timeouts apply to
    each read and write: a service that sends a byte from time to time could block a task forever.
    """

    def __init__(self, headers: Mapping[str, str], timeout: float, tls: ssl.SSLContext) -> None:
        import httpx

        limits = httpx.Limits(max_connections=1, max_keepalive_connections=1)
        self._client = httpx.Client(headers=dict(headers), timeout=timeout, limits=limits, verify=tls)
        self._timeout = timeout
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._request_count = 0
        self._running_request: int | None = None
        self.has_timed_out = False
        """Whether the last request timed out, so that its connection was shut down."""

    def __enter__(self) -> Self:
        self._client.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    @contextmanager
    def send(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> Iterator[httpx.Response]:
        """Send a request, and yield its response, whose body has to be read in the block.

        Raise ``httpx.TimeoutException`` if the request timed out.
        """
        import httpx

        with self._lock:
            self._request_count += 1
            self._running_request, self.has_timed_out = self._request_count, False
        timer = threading.Timer(self._timeout, self._shut_down, (self._running_request,))
        timer.daemon = True
        timer.start()
        try:
            extensions = {"trace": self._on_event}
            with self._client.stream(
                method, url, content=body, headers=dict(headers), extensions=extensions
            ) as response:
                yield response
        except httpx.TransportError as error:
            if not self.has_timed_out:
                raise
            raise httpx.ReadTimeout(f"no complete response in {self._timeout:g} s") from error
        finally:
            timer.cancel()
            with self._lock:
                self._running_request = None

    def _on_event(self, _: str, details: Mapping[str, object]) -> None:
        """Store the socket of a connection that httpx has opened or upgraded to TLS, for `_shut_down`."""
        get_extra_info = getattr(details.get("return_value"), "get_extra_info", None)
        if get_extra_info is None:
            return
        with self._lock:
            self._socket = get_extra_info("socket")
            # The request may have timed out before its socket was stored.
            late_request = self._running_request if self.has_timed_out else None
        if late_request is not None:
            self._shut_down(late_request)

    def _shut_down(self, request: int) -> None:
        """Make blocking reads and writes of a request fail, if the request is running."""
        with self._lock:
            if self._running_request != request:
                return
            self.has_timed_out = True
            if self._socket is not None:
                with suppress(OSError):  # the socket is closed, or is being upgraded to TLS
                    # Not `ssl.SSLSocket.shutdown`: it removes TLS, so later reads and writes would be unencrypted.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


class FailedAttemptError(Exception):
    """A failed attempt of a request.

    `status` and `text` are those of the response; without a response, `status` is None, and `text` describes the error.
    `is_transient` says whether a retry may succeed. `wait_seconds` is the wait that the service requests, or None.
    """

    def __init__(self, status: int | None, text: str, *, is_transient: bool, wait_seconds: float | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.text = text[:_MAX_ERROR_LENGTH]
        self.is_transient = is_transient
        self.wait_seconds = wait_seconds


class StoppedError(Exception):
    """Stops a task: a request of some task has failed permanently, and no dead letters are stored, so the job fails."""


@dataclass(eq=False)
class _RequestSender:
    """Sends requests of a task over a single connection; the driver grants a permit for each attempt."""

    sink: HttpSink
    connection: Connection
    driver: DriverLink

    def send(self, body: bytes, key: str) -> tuple[FailedAttemptError | None, int]:
        """Send a request; return the error of the last attempt (None after success) and the number of attempts.

        Raise `StoppedError` if the driver stops the task.
        """
        from tenacity import Retrying, retry_if_exception, stop_after_attempt

        # No compression: a compressed response could expand beyond `_MAX_RESPONSE_BYTES`.
        headers = {"Content-Type": "application/json", "Idempotency-Key": key, "Accept-Encoding": "identity"}
        retrying = Retrying(
            stop=stop_after_attempt(self.sink.attempts),
            wait=self._wait,
            retry=retry_if_exception(self._is_retryable),
            reraise=True,
        )
        attempts = 0
        try:
            for attempt in retrying:
                with attempt:
                    attempts = attempt.retry_state.attempt_number
                    self._attempt(body, headers, attempts)
        except FailedAttemptError as error:
            return error, attempts
        return None, attempts

    def _attempt(self, body: bytes, headers: Mapping[str, str], attempt_number: int) -> None:
        import httpx

        if not self.driver.request(MessageKind.PERMIT, attempt_number):
            raise StoppedError
        start = time.monotonic()
        try:
            with self.connection.send(self.sink.method, self.sink.url, body, headers) as response:
                text = self._read_text(response) or response.reason_phrase
        except httpx.HTTPError as error:
            text = str(error) or type(error).__name__
            raise FailedAttemptError(None, text, is_transient=isinstance(error, httpx.TransportError)) from error
        finally:
            self.driver.notify(MessageKind.REQUEST_ENDED, time.monotonic() - start)
        if response.status_code in _SUCCESS:
            return
        is_transient = response.status_code in _RETRYABLE or response.status_code in _SERVER_ERRORS
        wait_seconds = seconds_to_wait(response.headers.get("Retry-After"), datetime.now(UTC)) if is_transient else None
        if wait_seconds is not None and wait_seconds <= self.sink.longest_wait:
            self.driver.notify(MessageKind.PAUSE, wait_seconds)
        raise FailedAttemptError(response.status_code, text, is_transient=is_transient, wait_seconds=wait_seconds)

    def _read_text(self, response: httpx.Response) -> str:
        """Return the beginning of a response's body, as far as it arrives in time; empty for a compressed response."""
        import httpx

        received = bytearray()
        try:
            for chunk in response.iter_raw():
                received += chunk
                if len(received) >= _MAX_RESPONSE_BYTES:
                    break
        except httpx.TransportError:
            if not self.connection.has_timed_out:
                raise
        if response.headers.get("Content-Encoding", "identity") != "identity":
            return ""
        try:
            return received.decode(response.encoding or "utf-8", errors="replace")
        except (LookupError, UnicodeError):  # an unknown encoding, or one of bytes, such as hex
            return received.decode("utf-8", errors="replace")

    def _is_retryable(self, error: BaseException) -> bool:
        """Whether to retry after an error; False if the service requests a longer wait than `HttpSink.longest_wait`."""
        max_wait = self.sink.longest_wait
        return isinstance(error, FailedAttemptError) and error.is_transient and (error.wait_seconds or 0) <= max_wait

    def _wait(self, state: RetryCallState) -> float:
        """Return the seconds before the next attempt: as the service requests, else exponential backoff with jitter."""
        from tenacity import wait_exponential, wait_random

        error = None if state.outcome is None else state.outcome.exception()
        if isinstance(error, FailedAttemptError) and error.wait_seconds is not None:
            return error.wait_seconds
        backoff, max_wait = self.sink.backoff, self.sink.longest_wait
        return wait_exponential(multiplier=backoff, max=max_wait)(state) + wait_random(0, backoff)(state)


def seconds_to_wait(header: str | None, now: datetime) -> float | None:
    """Return the seconds of a ``Retry-After`` header, which is a number or a date; None without a valid header."""
    if header is None:
        return None
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(header) - now).total_seconds())
    except (TypeError, ValueError):
        return None


def send_function(
    sink: HttpSink, run: str, address: DriverAddress, sent: frozenset[str] = frozenset(), *, only_first: bool = False
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function by which tasks send their rows; it yields dead letters with the columns `LETTER_COLUMNS`.

    `run` identifies the run in idempotency keys. `sent` are the digests of rows that were sent before; the driver
    decides for each such row whether the task skips the row. With `only_first`, a single task sends some rows to
    measure the duration of requests, and yields each row's result, with the columns `FIRST_TASK_COLUMNS`. If this task
    is retried, only the rows of the successful attempt count as sent; rows of a failed attempt are sent again.
    """

    def send(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import httpx

        task = TaskContext.get()
        partition = -1 if only_first or task is None else task.partitionId()  # -1: the task that measures requests
        with ExitStack() as stack:
            driver = stack.enter_context(address.connect())
            driver.request(MessageKind.BEGIN, partition)
            tls = httpx.create_ssl_context()
            connections = [Connection(sink.headers, sink.timeout, tls) for _ in range(sink.requests_at_a_time)]
            senders = [
                _RequestSender(sink, stack.enter_context(connection), stack.enter_context(address.connect()))
                for connection in connections
            ]
            rows = (
                row
                for row in rows_of(batches)
                if not (sent and row.digest in sent and driver.request(MessageKind.SHOULD_SKIP, partition, row.digest))
            )
            requests = requests_of(rows, sink.batch_size)
            if only_first:
                requests = _limit_first(requests)
            task_sender = _TaskSender(sink, run, senders, partition, returns_all=only_first)
            with suppress(StoppedError):  # the driver reports the rejected row
                yield from result_batches(task_sender.send_all(requests), with_digests=only_first)

    return send


class _TaskSender:
    """Sends a task's requests concurrently; returns the results of failed rows, or with `returns_all` of all rows."""

    def __init__(
        self, sink: HttpSink, run: str, senders: Iterable[_RequestSender], partition: int, *, returns_all: bool
    ) -> None:
        self._sink = sink
        self._run = run
        self._senders: SimpleQueue[_RequestSender] = SimpleQueue()
        for sender in senders:
            self._senders.put(sender)
        self._partition = partition
        self._returns_all = returns_all
        self._occurrences: Counter[str] = Counter()  # of rows without a key, by digest

    def send_all(self, requests: Iterable[list[Row]]) -> Iterator[RowResult]:
        """Send requests concurrently, at most a single request per sender at a time; yield the results of rows.

        Raise `StoppedError` if the driver stops the task, or a request fails permanently and dead letters are off.
        """
        max_running = self._senders.qsize()
        running: set[Future[list[RowResult]]] = set()
        with ThreadPoolExecutor(max_running, "requests") as threads:
            for rows in requests:
                running.add(threads.submit(self._send, rows, self._key(rows)))
                if len(running) == max_running:
                    finished, running = wait(running, return_when=FIRST_COMPLETED)
                    yield from (result for future in finished for result in future.result())
            yield from (result for future in running for result in future.result())

    def _send(self, rows: list[Row], key: str) -> list[RowResult]:
        """Send a request with a free sender, and return the results of its rows."""
        body = rows[0].text if self._sink.batch_size == 1 else f"[{','.join(row.text for row in rows)}]"
        sender = self._senders.get()
        try:
            error, attempts = sender.send(body.encode(), key)
            if error is None:
                sender.driver.request(MessageKind.DONE, len(rows))
                return [RowResult(row.digest) for row in rows] if self._returns_all else []
            if self._sink.dead_letters is None:
                status = "" if error.status is None else f"status {error.status}: "
                sender.driver.request(MessageKind.REJECTED, 0, f"{status}{error.text} (attempt {attempts})")
                raise StoppedError
            sender.driver.request(MessageKind.DEAD, len(rows))
            now = datetime.now(UTC)
            return [RowResult(row.digest, row.text, error.status, error.text, attempts, now) for row in rows]
        finally:
            self._senders.put(sender)

    def _key(self, rows: list[Row]) -> str:
        """Return the idempotency key of a request, which is the same if the task is retried with the same rows.

        With key columns, the key depends only on their values. Without key columns, it depends on the run, the task and
        the rows; duplicate rows are numbered within the task.
        """
        key_hash = hashlib.sha256()
        for row in rows:
            if row.key is None:
                digest = row.digest
                self._occurrences[digest] += 1
                key_hash.update(f"{self._run} {self._partition} {digest} {self._occurrences[digest]}\n".encode())
            else:
                key_hash.update(f"{row.key}\n".encode())
        return key_hash.hexdigest()[:32]


def _limit_first(requests: Iterator[list[Row]]) -> Iterator[list[Row]]:
    """Yield the first requests, up to the limits for measuring."""
    deadline = time.monotonic() + _FIRST_SECONDS
    for number, request in enumerate(requests, 1):
        yield request
        if number >= _FIRST_REQUESTS or time.monotonic() >= deadline:
            return
