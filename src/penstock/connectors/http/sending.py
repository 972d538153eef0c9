"""The tasks of an HTTP sink: they send rows with retries, and return dead letters.

Delivery is at least once: a repeated task sends all its rows again, and equal requests have equal keys.
"""

from __future__ import annotations

import hashlib
import socket
import threading
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from queue import SimpleQueue
from typing import TYPE_CHECKING, Self

from pyspark import TaskContext

from penstock.connectors.http.driver_link import Kind
from penstock.connectors.http.rows import Letter, Row, letter_batches, requests_of, rows_of

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import httpx
    import pyarrow as pa
    from tenacity import RetryCallState

    from penstock.connectors.http.driver_link import DriverAddress, DriverLink
    from penstock.connectors.http.sink import HttpSink

_RETRYABLE = frozenset({408, 425, 429})
"""Client error statuses that are retried, in addition to all server errors."""
_SERVER_ERRORS, _SUCCESS = range(500, 600), range(200, 300)
_MAX_ERROR_LENGTH = 1000
"""The maximum characters of a response in errors and dead letters."""
_MAX_RESPONSE_BYTES = 1 << 16
"""The maximum bytes of a response that are read; a connection is reused only after a completely read response."""
_FIRST_REQUESTS, _FIRST_SECONDS = 20, 2.0
"""The maximum requests and seconds for measuring the duration of a request."""


class Connection:
    """An HTTP client with a single connection and a single request at a time; a context manager.

    `timeout` is the maximum seconds of a whole request, with its response. The timeouts of httpx apply to each read and
    write, so a service that sends a byte from time to time could block a task for ever.
    """

    def __init__(self, headers: Mapping[str, str], timeout: float, tls: ssl.SSLContext) -> None:
        import httpx

        limits = httpx.Limits(max_connections=1, max_keepalive_connections=1)
        self._client = httpx.Client(headers=dict(headers), timeout=timeout, limits=limits, verify=tls)
        self._timeout = timeout
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._requests = 0
        self._running: int | None = None
        self.is_late = False
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
            self._requests += 1
            self._running, self.is_late = self._requests, False
        timer = threading.Timer(self._timeout, self._shut_down, (self._running,))
        timer.daemon = True
        timer.start()
        try:
            extensions = {"trace": self._on_event}
            with self._client.stream(
                method, url, content=body, headers=dict(headers), extensions=extensions
            ) as response:
                yield response
        except httpx.TransportError as error:
            if not self.is_late:
                raise
            raise httpx.ReadTimeout(f"no whole answer in {self._timeout:g} s") from error
        finally:
            timer.cancel()
            with self._lock:
                self._running = None

    def _on_event(self, _: str, details: Mapping[str, object]) -> None:
        """Store the socket of a connection that was opened or upgraded to TLS."""
        get_extra_info = getattr(details.get("return_value"), "get_extra_info", None)
        if get_extra_info is None:
            return
        with self._lock:
            self._socket = get_extra_info("socket")
            late = self._running if self.is_late else None
        if late is not None:
            self._shut_down(late)

    def _shut_down(self, request: int) -> None:
        """Make blocking reads and writes of a request fail, if it is still running."""
        with self._lock:
            if self._running != request:
                return
            self.is_late = True
            if self._socket is not None:
                with suppress(OSError):  # the socket is closed, or is being upgraded to TLS
                    # Not the method of a TLS socket, which would continue without TLS.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


class RefusedError(Exception):
    """A failed attempt with the status and text of the response; without it, None and a description of the error.

    `is_transient` says whether another attempt may succeed, and `wait` is the seconds that the service requests before
    it.
    """

    def __init__(self, status: int | None, text: str, *, is_transient: bool, wait: float | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.text = text[:_MAX_ERROR_LENGTH]
        self.is_transient = is_transient
        self.wait = wait


class StoppedError(Exception):
    """The job fails because another task had a rejected row and there are no dead letters."""


@dataclass(eq=False)
class _Attempts:
    """Sender of requests of a task over a single connection; the driver permits each attempt."""

    sink: HttpSink
    connection: Connection
    driver: DriverLink

    def send(self, body: bytes, key: str) -> tuple[RefusedError | None, int]:
        """Send a request; return the error of the last attempt, None after success, and the number of attempts.

        Raise `StoppedError` if the job fails.
        """
        from tenacity import Retrying, retry_if_exception, stop_after_attempt

        # No compression, as a compressed response could expand beyond the limit.
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
        except RefusedError as problem:
            return problem, attempts
        return None, attempts

    def _attempt(self, body: bytes, headers: Mapping[str, str], number: int) -> None:
        import httpx

        if not self.driver.request(Kind.PERMIT, number):
            raise StoppedError
        start = time.monotonic()
        try:
            with self.connection.send(self.sink.method, self.sink.url, body, headers) as response:
                text = self._read_text(response)
        except httpx.HTTPError as error:
            text = str(error) or type(error).__name__
            raise RefusedError(None, text, is_transient=isinstance(error, httpx.TransportError)) from error
        finally:
            self.driver.notify(Kind.ANSWERED, time.monotonic() - start)
        if response.status_code in _SUCCESS:
            return
        is_transient = response.status_code in _RETRYABLE or response.status_code in _SERVER_ERRORS
        wait = seconds_to_wait(response.headers.get("Retry-After"), datetime.now(UTC)) if is_transient else None
        if wait is not None and wait <= self.sink.longest_wait:
            self.driver.notify(Kind.PAUSE, wait)
        raise RefusedError(response.status_code, text or response.reason_phrase, is_transient=is_transient, wait=wait)

    def _read_text(self, response: httpx.Response) -> str:
        """Return the beginning of a response, as far as it arrives in time; empty for a compressed response."""
        import httpx

        received = bytearray()
        try:
            for chunk in response.iter_raw():
                received += chunk
                if len(received) >= _MAX_RESPONSE_BYTES:
                    break
        except httpx.TransportError:
            if not self.connection.is_late:
                raise
        if response.headers.get("Content-Encoding", "identity") != "identity":
            return ""
        try:
            return received.decode(response.encoding or "utf-8", errors="replace")
        except (LookupError, UnicodeError):  # not a text encoding
            return received.decode("utf-8", errors="replace")

    def _is_retryable(self, error: BaseException) -> bool:
        """Return whether to try again: not if the service requests a wait beyond the limit."""
        return isinstance(error, RefusedError) and error.is_transient and (error.wait or 0) <= self.sink.longest_wait

    def _wait(self, state: RetryCallState) -> float:
        """Return the seconds before the next attempt: as the service requests, else exponential backoff with jitter."""
        from tenacity import wait_exponential, wait_random

        problem = None if state.outcome is None else state.outcome.exception()
        if isinstance(problem, RefusedError) and problem.wait is not None:
            return problem.wait
        backoff, most = self.sink.backoff, self.sink.longest_wait
        return wait_exponential(multiplier=backoff, max=most)(state) + wait_random(0, backoff)(state)


def seconds_to_wait(header: str | None, now: datetime) -> float | None:
    """Return the seconds of a ``Retry-After`` header, which is a number or a date; None if it is neither."""
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


def sender(
    sink: HttpSink, run: str, address: DriverAddress, sent: frozenset[str] = frozenset(), *, only_first: bool = False
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that tasks apply to their rows; it returns dead letters with the columns `LETTERS`.

    `run` identifies the run in idempotency keys. `sent` are the digests of rows that were sent before; the driver
    counts how many of each are still to be left out. With `only_first`, only some rows are sent, to measure requests.
    The result then has all sent rows, with the columns `FIRST`. Spark keeps the result of a single attempt, so rows of
    other attempts do not count as sent.
    """

    def send(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import httpx

        task = TaskContext.get()
        number = -1 if only_first or task is None else task.partitionId()
        with ExitStack() as stack:
            driver = stack.enter_context(address.connect())
            driver.request(Kind.BEGIN, number)
            tls = httpx.create_ssl_context()
            connections = [Connection(sink.headers, sink.timeout, tls) for _ in range(sink.requests_at_a_time)]
            senders = [
                _Attempts(sink, stack.enter_context(connection), stack.enter_context(address.connect()))
                for connection in connections
            ]
            rows = (
                row
                for row in rows_of(batches)
                if not (sent and row.digest in sent and driver.request(Kind.WAS_SENT, number, row.digest))
            )
            requests = requests_of(rows, sink.batch_size)
            if only_first:
                requests = _limit_first(requests)
            sending = _Sending(sink, run, senders, number, returns_all=only_first)
            with suppress(StoppedError):
                yield from letter_batches(sending.send_all(requests), with_digests=only_first)

    return send


class _Sending:
    """Concurrent sending of the requests of a task."""

    def __init__(
        self, sink: HttpSink, run: str, senders: Iterable[_Attempts], number: int, *, returns_all: bool
    ) -> None:
        self._sink = sink
        self._run = run
        self._senders: SimpleQueue[_Attempts] = SimpleQueue()
        for sender in senders:
            self._senders.put(sender)
        self._number = number
        self._returns_all = returns_all
        self._seen: Counter[str] = Counter()

    def send_all(self, requests: Iterable[list[Row]]) -> Iterator[Letter]:
        """Send requests concurrently, a request per sender at a time; yield the dead letters, or letters of all rows.

        Raise `StoppedError` if the job fails.
        """
        most = self._senders.qsize()
        running: set[Future[list[Letter]]] = set()
        with ThreadPoolExecutor(most, "requests") as threads:
            for rows in requests:
                running.add(threads.submit(self._send, rows, self._key(rows)))
                if len(running) == most:
                    finished, running = wait(running, return_when=FIRST_COMPLETED)
                    yield from (letter for future in finished for letter in future.result())
            yield from (letter for future in running for letter in future.result())

    def _send(self, rows: list[Row], key: str) -> list[Letter]:
        """Send a request with a free sender, and return its letters."""
        body = rows[0].text if self._sink.batch_size == 1 else f"[{','.join(row.text for row in rows)}]"
        sender = self._senders.get()
        try:
            problem, attempts = sender.send(body.encode(), key)
            if problem is None:
                sender.driver.request(Kind.DONE, len(rows))
                return [Letter(row.digest) for row in rows] if self._returns_all else []
            if self._sink.dead_letters is None:
                status = "" if problem.status is None else f"status {problem.status}: "
                sender.driver.request(Kind.REFUSED, 0, f"{status}{problem.text} (attempt {attempts})")
                raise StoppedError
            sender.driver.request(Kind.DEAD, len(rows))
            now = datetime.now(UTC)
            return [Letter(row.digest, row.text, problem.status, problem.text, attempts, now) for row in rows]
        finally:
            self._senders.put(sender)

    def _key(self, rows: list[Row]) -> str:
        """Return the idempotency key of a request, which is the same when the task is repeated with the same rows.

        The user's key columns identify rows in any run of the job. Without them, duplicate rows are numbered within
        the task.
        """
        key_hash = hashlib.sha256()
        for row in rows:
            if row.key is None:
                digest = row.digest
                self._seen[digest] += 1
                key_hash.update(f"{self._run} {self._number} {digest} {self._seen[digest]}\n".encode())
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
