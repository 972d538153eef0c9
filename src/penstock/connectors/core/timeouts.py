"""Timeout of requests to sources, catalogs, brokers and databases: ``sources.timeout``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from penstock.base.threads import call_with_timeout
from penstock.config.options import SOURCES_TIMEOUT
from penstock.errors import SourceTimeoutError

T = TypeVar("T")
_SECONDS: ContextVar[float | None] = ContextVar("sources.timeout", default=None)


def timeout() -> float:
    """Return the timeout in seconds of the current job or environment; outside of both, the default of the option."""
    seconds = _SECONDS.get()
    return float(str(SOURCES_TIMEOUT.default)) if seconds is None else seconds


_S3_ATTEMPTS = 3
"""The number of attempts of Arrow's S3 client."""


def attempt_timeout() -> float:
    """Return the seconds per attempt of an S3 client, so that all attempts stay within the timeout; at least 1."""
    return max(timeout() / _S3_ATTEMPTS, 1.0)


@contextmanager
def set_timeout(seconds: float) -> Iterator[None]:
    """Set the timeout in seconds for the block, and for threads that start in it with a copy of its context."""
    token = _SECONDS.set(seconds)
    try:
        yield
    finally:
        _SECONDS.reset(token)


def call_within_timeout(source: str, request: str, call: Callable[[], T]) -> T:
    """Return the result of a call to a client library whose own timeouts do not cover the whole call.

    The call runs on a separate thread. If that thread is idle for the timeout, it continues in the background, and
    `SourceTimeoutError` is raised with `request`, which describes the call, as in "asking for its files".
    """
    seconds = timeout()
    try:
        return call_with_timeout(seconds, request, source, call)
    except TimeoutError as error:
        raise SourceTimeoutError.of(source, request, seconds) from error
