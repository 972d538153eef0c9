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
        The seconds that an answer may take.
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

    url: str
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
    """Sends requests of one task.

    Parameters
    ----------
    target, client
        Where they go, and by what.
    """

    def __init__(self, target: Target, client: httpx.Client) -> None:
        self._target = target
        self._client = client

    def send(self, driver: DriverLink, body: bytes, key: str) -> tuple[RefusedError | None, int]:
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
                    self._attempt(driver, body, headers, attempts)
        except RefusedError as problem:
            return problem, attempts
        return None, attempts

    def _attempt(self, driver: DriverLink, body: bytes, headers: Mapping[str, str], number: int) -> None:
        import httpx

        if not driver.ask(Kind.PERMIT, number):
            raise StoppedError
        begun = time.monotonic()
        try:
            method, url = self._target.method, self._target.url
            with self._client.stream(method, url, content=body, headers=dict(headers)) as answer:
                text = _text_of(answer, begun + self._target.timeout)
        except httpx.HTTPError as error:
            told = str(error) or type(error).__name__
            raise RefusedError(None, told, may_pass=isinstance(error, httpx.TransportError)) from error
        finally:
            driver.tell(Kind.ANSWERED, time.monotonic() - begun)
        if answer.status_code in _TAKEN:
            return
        may_pass = answer.status_code in _AGAIN or answer.status_code in _OWN_ERROR
        wait = seconds_to_wait(answer.headers.get("Retry-After"), datetime.now(UTC)) if may_pass else None
        if wait is not None and wait <= self._target.longest_wait:
            driver.tell(Kind.PAUSE, wait)
        raise RefusedError(answer.status_code, text or answer.reason_phrase, may_pass=may_pass, wait=wait)

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


def _text_of(answer: httpx.Response, deadline: float) -> str:
    """Return the beginning of an answer, as much of it as comes until a deadline; nothing of a compressed one."""
    received = bytearray()
    for chunk in answer.iter_raw():
        received += chunk
        if len(received) >= _MOST_RECEIVED or time.monotonic() >= deadline:
            break
    if answer.headers.get("Content-Encoding", "identity") != "identity":
        return ""
    return received.decode(answer.encoding or "utf-8", errors="replace")


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
