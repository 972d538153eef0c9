"""Requests of an HTTP sink: each attempt needs a permit of the driver, and transient failures are retried."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from penstock.connectors.http.driver_link import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx
    from tenacity import RetryCallState

    from penstock.connectors.http.connection import Connection
    from penstock.connectors.http.driver_link import DriverLink

_RETRYABLE = frozenset({408, 425, 429})
"""Client error statuses that are retried, in addition to all server errors."""
_SERVER_ERRORS, _SUCCESS = range(500, 600), range(200, 300)
_MAX_ERROR_LENGTH = 1000
"""The maximum characters of a response in errors and dead letters."""
_MAX_RESPONSE_BYTES = 1 << 16
"""The maximum bytes of a response that are read; a connection is reused only after a completely read response."""


@dataclass(frozen=True, slots=True)
class Target:
    """The settings of a sink that its tasks need.

    Parameters
    ----------
    url, method, headers
        The parts of each request.
    batch_size
        The number of rows per request.
    timeout
        The maximum seconds of a request, with its response.
    at_a_time
        The maximum number of concurrent requests of a task.
    attempts
        The maximum number of attempts of a request.
    backoff, longest_wait
        The seconds before the second attempt, and the maximum before any attempt.
    run
        An identifier of the run, which is part of idempotency keys.
    keeps_dead
        Whether rejected rows become dead letters; if not, the job fails.
    """

    url: str = field(repr=False)
    method: str
    headers: Mapping[str, str] = field(repr=False)
    batch_size: int
    timeout: float
    at_a_time: int
    attempts: int
    backoff: float
    longest_wait: float
    run: str
    keeps_dead: bool


class RefusedError(Exception):
    """A failed attempt.

    Parameters
    ----------
    status, text
        The status and text of the response; without a response, None and a description of the error.
    is_transient
        Whether another attempt may succeed.
    wait
        The seconds that the service requests before another attempt, None if it requests none.
    """

    def __init__(self, status: int | None, text: str, *, is_transient: bool, wait: float | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.text = text[:_MAX_ERROR_LENGTH]
        self.is_transient = is_transient
        self.wait = wait


class StoppedError(Exception):
    """The job fails because another task had a rejected row and there are no dead letters."""


class Attempts:
    """Sender of requests of a task over a single connection.

    Parameters
    ----------
    target, connection
        The settings of the sink, and the connection to the service.
    driver
        The link to the driver, which permits each attempt.
    """

    def __init__(self, target: Target, connection: Connection, driver: DriverLink) -> None:
        self._target = target
        self._connection = connection
        self.driver = driver

    def send(self, body: bytes, key: str) -> tuple[RefusedError | None, int]:
        """Send a request; return the error of the last attempt, None after success, and the number of attempts.

        Raises
        ------
        StoppedError
            If the job fails.
        """
        from tenacity import Retrying, retry_if_exception, stop_after_attempt

        # No compression, as a compressed response could expand beyond the limit.
        headers = {"Content-Type": "application/json", "Idempotency-Key": key, "Accept-Encoding": "identity"}
        retrying = Retrying(
            stop=stop_after_attempt(self._target.attempts),
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
            with self._connection.send(self._target.method, self._target.url, body, headers) as response:
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
        if wait is not None and wait <= self._target.longest_wait:
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
            if not self._connection.is_late:
                raise
        if response.headers.get("Content-Encoding", "identity") != "identity":
            return ""
        try:
            return received.decode(response.encoding or "utf-8", errors="replace")
        except (LookupError, UnicodeError):  # not a text encoding
            return received.decode("utf-8", errors="replace")

    def _is_retryable(self, error: BaseException) -> bool:
        """Return whether to try again: not if the service requests a wait beyond the limit."""
        return isinstance(error, RefusedError) and error.is_transient and (error.wait or 0) <= self._target.longest_wait

    def _wait(self, state: RetryCallState) -> float:
        """Return the seconds before the next attempt: as the service requests, else exponential backoff with jitter."""
        from tenacity import wait_exponential, wait_random

        problem = None if state.outcome is None else state.outcome.exception()
        if isinstance(problem, RefusedError) and problem.wait is not None:
            return problem.wait
        backoff, most = self._target.backoff, self._target.longest_wait
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
