"""How long sources, catalogues, brokers and databases may leave a question unanswered: ``sources.timeout``."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

from penstock.config.options import SOURCES_TIMEOUT
from penstock.errors import SourceTimeoutError
from penstock.threads import answer_within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")
_SECONDS: ContextVar[float | None] = ContextVar("sources.timeout", default=None)


def timeout() -> float:
    """Return the seconds that hold here: those of the job or the environment at work, else the option's default."""
    seconds = _SECONDS.get()
    return float(str(SOURCES_TIMEOUT.default)) if seconds is None else seconds


_ATTEMPTS = 3
"""How often Arrow's client of S3 asks."""


def timeout_of_attempt() -> float:
    """Return the seconds for each attempt of a client of S3, so that all of them take no longer than the timeout."""
    return max(timeout() / _ATTEMPTS, 1.0)


@contextmanager
def timeout_of(seconds: float) -> Iterator[None]:
    """Let a timeout hold in the block, and in the threads that are started there for sources."""
    token = _SECONDS.set(seconds)
    try:
        yield
    finally:
        _SECONDS.reset(token)


def answered(source: str, what: str, call: Callable[[], T]) -> T:
    """Return what a call to a client library gives, whose own timeouts do not bound it.

    It runs on a thread of its own, which is left behind if it only waits.

    Raises
    ------
    SourceTimeoutError
        If there is no answer.
    """
    seconds = timeout()
    try:
        return answer_within(seconds, what, source, call)
    except TimeoutError as error:
        raise SourceTimeoutError.of(source, what, seconds) from error
