"""Threads that can be left behind: none keeps the process from ending, and each tells what it waits for."""

from __future__ import annotations

import atexit
import contextvars
import sys
import threading
import time
from collections import deque
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

T = TypeVar("T")

_LOOK = 0.2
"""Seconds between two looks at a call that somebody waits for."""


@dataclass(eq=False, slots=True)
class Work:
    """Something that a thread does now.

    Parameters
    ----------
    what
        In words, such as "asking orders for its parallelism".
    thread
        The thread.
    asks
        The source, catalogue, broker or database whose answer it needs; empty of work that asks nobody.
    """

    what: str
    thread: threading.Thread
    asks: str = ""
    _sign: object = field(default=None, init=False, repr=False)
    _alive: float = field(default_factory=time.monotonic, init=False, repr=False)

    def __str__(self) -> str:
        return f"{self.what} (thread {self.thread.name})"

    def silent_for(self, is_alive: Callable[[FrameType], bool]) -> float:
        """Return for how many seconds the thread has not run, as far as looks at it tell.

        The first look counts as a sign of life.

        Parameters
        ----------
        is_alive
            Whether a thread that waits where this frame stands is waiting for work, not for an answer.
        """
        with _LOCK:  # its thread is there: it takes the lock to end the work
            if self not in _WORKS:
                return 0.0
            frame = sys._current_frames().get(self.thread.ident or 0)  # noqa: SLF001 - there is no other way
            sign = _sign_of_life(self.thread, frame)
        if sign != self._sign or (frame is not None and is_alive(frame)):
            self._sign, self._alive = sign, time.monotonic()
        return time.monotonic() - self._alive


_LOCK = threading.Lock()
_WORKS: list[Work] = []


def _sign_of_life(thread: threading.Thread, frame: FrameType | None) -> object:
    """Return what stays equal while a thread only waits: its processor time, or where that is not told its place."""
    if hasattr(time, "pthread_getcpuclockid"):
        return time.clock_gettime_ns(time.pthread_getcpuclockid(thread.ident or 0))
    places = []
    while frame is not None:
        places.append((id(frame), frame.f_lasti))
        frame = frame.f_back
    return tuple(places)


@contextmanager
def doing(what: str, asks: str = "") -> Iterator[Work]:
    """Tell what this thread does in the block; see `Work`."""
    work = Work(what, threading.current_thread(), asks)
    with _LOCK:
        _WORKS.append(work)
    try:
        yield work
    finally:
        with _LOCK:
            _WORKS.remove(work)


def works(prefix: str) -> list[Work]:
    """Return what the threads whose names begin with a prefix do now, of each thread the innermost."""
    with _LOCK:
        return list({work.thread: work for work in _WORKS if work.thread.name.startswith(prefix)}.values())


def start_thread(name: str, target: Callable[[], object]) -> threading.Thread:
    """Start a thread that may hang for ever: the process ends without it."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    thread.start()
    return thread


def call_at_end(call: Callable[[], object]) -> None:
    """Call something when all threads that keep the process alive have ended, and again with what `atexit` holds.

    From then on, Python starts no threads (3.12 and later). The thread that waits for that keeps no process alive, as
    programs may wait for all such threads, too; so it may come too late for what `atexit` calls first.
    """

    def wait() -> None:
        threading.main_thread().join()
        while others := [one for one in threading.enumerate() if one.is_alive() and not one.daemon]:
            others[0].join()
        call()

    start_thread("penstock-end", wait)
    atexit.register(call)


def answer_within(seconds: float, what: str, asks: str, call: Callable[[], T]) -> T:
    """Return what a call gives; the thread that it runs on is left behind if it only waits for so long.

    Raises
    ------
    TimeoutError
        If the thread has not run for so long.
    """
    found: Future[T] = Future()
    context = contextvars.copy_context()
    started: Future[Work] = Future()

    def run() -> None:
        with doing(what, asks) as work:
            started.set_result(work)
            try:
                found.set_result(context.run(call))
            except BaseException as error:  # noqa: BLE001 - for who waits
                found.set_exception(error)

    start_thread(f"{threading.current_thread().name}-call", run)
    work = started.result()
    while True:
        try:
            return found.result(min(_LOOK, seconds))
        except TimeoutError:
            if found.done():  # it is the call's own error
                raise
        if work.silent_for(lambda _: False) >= seconds:
            raise TimeoutError(what)


class DaemonPool(Executor):
    """A pool of threads that may hang for ever: the process ends without them.

    What is submitted sees the context variables of who submits it.

    Parameters
    ----------
    limit
        The most threads.
    name
        How their names begin.
    """

    def __init__(self, limit: int, name: str) -> None:
        self._limit = limit
        self._name = name
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._closed = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run a function on a thread of the pool; its result is in the future that is returned."""
        future: Future[T] = Future()
        context = contextvars.copy_context()
        with self._changed:
            if self._closed:
                raise RuntimeError("the pool is closed")
            self._waiting.append((future, lambda: context.run(fn, *args, **kwargs)))
            if self._idle >= len(self._waiting):
                self._changed.notify()
            elif len(self._threads) < self._limit:
                name = f"{self._name}-{len(self._threads)}"
                self._threads.append(start_thread(name, self._run))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - as in Executor
        """Take no more work; threads end when they have nothing left to do."""
        with self._changed:
            self._closed = True
            while cancel_futures and self._waiting:
                future, _ = self._waiting.popleft()
                future.cancel()
                future.set_running_or_notify_cancel()  # it has ended for those who wait for it, too
            self._changed.notify_all()
        for thread in self._threads if wait else ():
            thread.join()

    def _run(self) -> None:
        while (task := self._next()) is not None:
            future, call = task
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - for who waits
                future.set_exception(error)
            del task, future, call  # a thread that waits for work holds on to nothing

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        with self._changed:
            while not self._waiting:
                if self._closed:
                    return None
                self._idle += 1
                self._changed.wait()
                self._idle -= 1
            return self._waiting.popleft()

    def __enter__(self) -> Self:
        return self
