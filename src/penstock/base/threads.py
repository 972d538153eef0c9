"""Daemon threads, which end with the process, and a registry of the current work of threads."""

from __future__ import annotations

import atexit
import contextvars
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")
_CHECK_INTERVAL = 0.2  # seconds


@dataclass(eq=False, slots=True)
class Work:
    """The current work of a thread.

    `description` is a text such as "querying orders for its parallelism". `waits_for` names the source, catalog, broker
    or database that must answer; empty if the work needs no answer.
    """

    description: str
    thread: threading.Thread
    waits_for: str = ""
    _last_progress: object = field(default=None, init=False, repr=False)
    _last_active: float = field(default_factory=time.monotonic, init=False, repr=False)

    def __str__(self) -> str:
        return f"{self.description} (thread {self.thread.name})"

    def idle_seconds(self, counts_as_running: Callable[[FrameType], bool]) -> float:
        """Return the seconds since the thread was last seen running; 0 at the first call, and after the work's end.

        `counts_as_running` returns whether a waiting thread counts as running, from the innermost frame of its stack.
        """
        with _LOCK:  # the thread exists during the block, because it cannot end its work without the lock
            if self not in _WORKS:
                return 0.0
            frame = sys._current_frames().get(self.thread.ident or 0)  # noqa: SLF001 - there is no public API
            progress = _progress(self.thread, frame)
        if progress != self._last_progress or (frame is not None and counts_as_running(frame)):
            self._last_progress, self._last_active = progress, time.monotonic()
        return time.monotonic() - self._last_active


_LOCK = threading.Lock()
_WORKS: list[Work] = []


def _progress(thread: threading.Thread, frame: FrameType | None) -> object:
    """Return a value that is constant while a thread waits: its CPU time, or its stack if that clock is missing."""
    if hasattr(time, "pthread_getcpuclockid"):
        return time.clock_gettime_ns(time.pthread_getcpuclockid(thread.ident or 0))
    stack = []
    while frame is not None:
        stack.append((id(frame), frame.f_lasti))
        frame = frame.f_back
    return tuple(stack)


@contextmanager
def track_work(description: str, waits_for: str = "") -> Iterator[Work]:
    """Register the work of this thread during the block; see `Work`."""
    work = Work(description, threading.current_thread(), waits_for)
    with _LOCK:
        _WORKS.append(work)
    try:
        yield work
    finally:
        with _LOCK:
            _WORKS.remove(work)


def running_work(prefix: str) -> list[Work]:
    """Return the innermost work of each thread whose name starts with `prefix`, as blocks of `track_work` can nest."""
    with _LOCK:
        return list({work.thread: work for work in _WORKS if work.thread.name.startswith(prefix)}.values())


def start_thread(name: str, target: Callable[[], object]) -> threading.Thread:
    """Start a daemon thread."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    thread.start()
    return thread


def call_at_exit(call: Callable[[], object]) -> None:
    """Call a function twice: when all non-daemon threads have ended, and by `atexit`.

    From the time of the first call, Python 3.12 and later start no new threads. A daemon thread makes this call: with
    another non-daemon thread, a program that waits for all of them would never end. Some functions of `atexit` may run
    before the first call, because the daemon thread may be late.
    """

    def wait() -> None:
        threading.main_thread().join()
        while running := [thread for thread in threading.enumerate() if thread.is_alive() and not thread.daemon]:
            running[0].join()
        call()

    start_thread("penstock-end", wait)
    atexit.register(call)


def call_with_timeout(seconds: float, description: str, waits_for: str, call: Callable[[], T]) -> T:
    """Run a function on a new thread, and return its result.

    Raise `TimeoutError` if the thread was idle for `seconds`; the thread then continues in the background. Time in
    which the thread computes does not count. `description` and `waits_for` are as in `Work`.
    """
    result: Future[T] = Future()
    context = contextvars.copy_context()
    started: Future[Work] = Future()

    def run() -> None:
        with track_work(description, waits_for) as work:
            started.set_result(work)
            try:
                result.set_result(context.run(call))
            except BaseException as error:  # noqa: BLE001 - raised by the waiting thread
                result.set_exception(error)

    start_thread(f"{threading.current_thread().name}-call", run)
    work = started.result()
    while True:
        try:
            return result.result(min(_CHECK_INTERVAL, seconds))
        except TimeoutError:
            if result.done():  # the function itself raised the error
                raise
        if work.idle_seconds(lambda _: False) >= seconds:
            raise TimeoutError(description)


class DaemonPool(Executor):
    """A pool of daemon threads; a function runs with the context variables of the thread that submits it.

    `max_threads` is the maximum number of threads, and `name` the prefix of their names.
    """

    def __init__(self, max_threads: int, name: str) -> None:
        self._max_threads = max_threads
        self._name = name
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._idle_count = 0
        self._closed = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run a function on a thread of the pool, and return the future of its result."""
        future: Future[T] = Future()
        context = contextvars.copy_context()
        with self._changed:
            if self._closed:
                raise RuntimeError("the pool is closed")
            self._waiting.append((future, lambda: context.run(fn, *args, **kwargs)))
            if self._idle_count >= len(self._waiting):
                self._changed.notify()
            elif len(self._threads) < self._max_threads:
                name = f"{self._name}-{len(self._threads)}"
                self._threads.append(start_thread(name, self._run))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - as in Executor
        """Accept no more work; threads end when the submitted work is done."""
        with self._changed:
            self._closed = True
            while cancel_futures and self._waiting:
                future, _ = self._waiting.popleft()
                future.cancel()
                future.set_running_or_notify_cancel()  # wakes up threads that wait for the result
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
            except BaseException as error:  # noqa: BLE001 - raised by the waiting thread
                future.set_exception(error)
            del task, future, call  # an idle thread must not keep them alive

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        with self._changed:
            while not self._waiting:
                if self._closed:
                    return None
                self._idle_count += 1
                self._changed.wait()
                self._idle_count -= 1
            return self._waiting.popleft()
