"""Timeout of requests to sources, catalogues, brokers and databases: ``sources.timeout``."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

from penstock.base.threads import call_with_timeout
from penstock.config.options import SOURCES_TIMEOUT
from penstock.errors import SourceTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")
_SECONDS: ContextVar[float | None] = ContextVar("sources.timeout", default=None)


def timeout() -> float:
    """Return the timeout in seconds of the current job or environment, else the default of the option."""
    seconds = _SECONDS.get()
    return float(str(SOURCES_TIMEOUT.default)) if seconds is None else seconds


_ATTEMPTS = 3
"""The number of attempts of Arrow's S3 client."""


def attempt_timeout() -> float:
    """Return the seconds per attempt of an S3 client, so that all attempts together stay within the timeout."""
    return max(timeout() / _ATTEMPTS, 1.0)


@contextmanager
def set_timeout(seconds: float) -> Iterator[None]:
    """Set the timeout for the block, and for threads that are started there for sources."""
    token = _SECONDS.set(seconds)
    try:
        yield
    finally:
        _SECONDS.reset(token)


def call_within_timeout(source: str, request: str, call: Callable[[], T]) -> T:
    """Return the result of a call to a client library whose own timeouts do not cover the whole call.

    The call runs on a separate thread, which is abandoned if it does not return in time; `SourceTimeoutError` is
    raised.
    """
    seconds = timeout()
    try:
        return call_with_timeout(seconds, request, source, call)
    except TimeoutError as error:
        raise SourceTimeoutError.of(source, request, seconds) from error
