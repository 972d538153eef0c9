"""One request of an HTTP sink: sent with the driver's leave, and again as long as that may help."""

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

_AGAIN = frozenset({408, 425, 429})
"""What a service says that may take the same request later; so do all errors of its own."""
_OWN_ERROR, _TAKEN = range(500, 600), range(200, 300)
_SHOWN = 1000
"""Characters of an answer that are kept."""
_MOST_RECEIVED = 1 << 16
"""Bytes of an answer that are read: a connection is used again after an answer that was read to its end."""


@dataclass(frozen=True, slots=True)
class Target:
    """What tasks need to know of a sink.

    Parameters
    ----------
    url, method, headers
        Of its requests.
    batch_size
        The rows of a request.
    timeout
        The seconds that a request may take, with its answer.
    at_a_time
        How many requests a task has under way at most.
    attempts
        How often a request is sent at most.
    backoff, longest_wait
        The seconds before the second attempt, and before any.
    run
        The name of the job's writing, in the keys of requests.
    keeps_dead
        Whether refused rows are kept; if not, the job fails.
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
    """What came of an attempt that failed.

    Parameters
    ----------
    status, text
        The answer, None and what happened where there was none.
    may_pass
        Whether another attempt may go well.
    wait
        The seconds that the service asks to wait before, None if it does not.
    """

    def __init__(self, status: int | None, text: str, *, may_pass: bool, wait: float | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.text = text[:_SHOWN]
        self.may_pass = may_pass
        self.wait = wait


class StoppedError(Exception):
    """Another task has met a row that nobody keeps, so the job fails."""


class Attempts:
    """Sends requests of one task, one after the other.

    Parameters
    ----------
    target, connection
        Where they go, and by what.
    driver
        The driver, which permits each attempt.
    """

    def __init__(self, target: Target, connection: Connection, driver: DriverLink) -> None:
        self._target = target
        self._connection = connection
        self.driver = driver

    def send(self, body: bytes, key: str) -> tuple[RefusedError | None, int]:
        """Send a request; return what the last attempt failed with, None if it did not, and how many there were.

        Raises
        ------
        StoppedError
            If the job fails.
        """
        from tenacity import Retrying, retry_if_exception, stop_after_attempt

        # A compressed answer could be far larger than its bytes.
        headers = {"Content-Type": "application/json", "Idempotency-Key": key, "Accept-Encoding": "identity"}
        retrying = Retrying(
            stop=stop_after_attempt(self._target.attempts),
            wait=self._wait,
            retry=retry_if_exception(self._may_pass),
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

        if not self.driver.ask(Kind.PERMIT, number):
            raise StoppedError
        begun = time.monotonic()
        try:
            with self._connection.send(self._target.method, self._target.url, body, headers) as answer:
                text = self._text_of(answer)
        except httpx.HTTPError as error:
            told = str(error) or type(error).__name__
            raise RefusedError(None, told, may_pass=isinstance(error, httpx.TransportError)) from error
        finally:
            self.driver.tell(Kind.ANSWERED, time.monotonic() - begun)
        if answer.status_code in _TAKEN:
            return
        may_pass = answer.status_code in _AGAIN or answer.status_code in _OWN_ERROR
        wait = seconds_to_wait(answer.headers.get("Retry-After"), datetime.now(UTC)) if may_pass else None
        if wait is not None and wait <= self._target.longest_wait:
            self.driver.tell(Kind.PAUSE, wait)
        raise RefusedError(answer.status_code, text or answer.reason_phrase, may_pass=may_pass, wait=wait)

    def _text_of(self, answer: httpx.Response) -> str:
        """Return the beginning of an answer, as much of it as comes in time; nothing of a compressed answer."""
        import httpx

        received = bytearray()
        try:
            for chunk in answer.iter_raw():
                received += chunk
                if len(received) >= _MOST_RECEIVED:
                    break
        except httpx.TransportError:
            if not self._connection.is_late:
                raise
        if answer.headers.get("Content-Encoding", "identity") != "identity":
            return ""
        try:
            return received.decode(answer.encoding or "utf-8", errors="replace")
        except (LookupError, UnicodeError):  # the codec of that name is not one of such texts
            return received.decode("utf-8", errors="replace")

    def _may_pass(self, error: BaseException) -> bool:
        """Whether another attempt is worth it; a service that asks for too long a wait is not waited for."""
        return isinstance(error, RefusedError) and error.may_pass and (error.wait or 0) <= self._target.longest_wait

    def _wait(self, state: RetryCallState) -> float:
        """Return the seconds before the next attempt: what the service asks for, else ever more, never quite alike."""
        from tenacity import wait_exponential, wait_random

        problem = None if state.outcome is None else state.outcome.exception()
        if isinstance(problem, RefusedError) and problem.wait is not None:
            return problem.wait
        backoff, most = self._target.backoff, self._target.longest_wait
        return wait_exponential(multiplier=backoff, max=most)(state) + wait_random(0, backoff)(state)


def seconds_to_wait(told: str | None, now: datetime) -> float | None:
    """Return the seconds that a ``Retry-After`` asks for: it is a number, or a date; None if it is neither."""
    if told is None:
        return None
    try:
        return max(0.0, float(told))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(told) - now).total_seconds())
    except (TypeError, ValueError):
        return None
