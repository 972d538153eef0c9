"""Live rescales: requests to the process that runs a query, and the service in that process that answers them."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.base.threads import start_thread
from penstock.commit.owner import Owner
from penstock.errors import PenstockError, StateError
from penstock.spark.state.streaming_queries import start_inheriting
from penstock.state.marker import MARKER, marked_process
from penstock.state.requests import Answer, Refusal, Request, Requests
from penstock.state.rewrite_methods import RewriteMethod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.spark.io.filesystem import Folder
    from penstock.state.marker import Mark
    from penstock.state.rescale import OnProgress
    from penstock.state.running import RescalableQuery

log = logging.getLogger("penstock.state")

_SERVICE_INTERVAL = 1.0
"""Seconds between two checks for a request, each of which costs a small call to the file system."""
_ANSWER_INTERVAL = 0.2
"""Seconds between two checks for an answer."""
_HEARTBEAT = 2.0
"""Seconds between two heartbeats while a request is served."""
_HEARTBEAT_TIMEOUT = 15 * _HEARTBEAT
"""Seconds without a heartbeat after which the serving process counts as lost."""
_ACCEPT_TIMEOUT = 15.0
"""Seconds to wait until the serving process accepts a request."""


def request_rescale(
    checkpoint: Folder, max_parallelism: int, method: RewriteMethod | None, on_progress: OnProgress
) -> dict[str, Any]:
    """Request another number of key groups, and return the report once the query runs with it.

    Raise `StateError` if no process serves the checkpoint, another request is served, or the request was refused or
    failed.
    """
    process = marked_process(checkpoint)
    if process is None or process.is_alive() is False:
        raise StateError.unserved(str(checkpoint), f"there is no {MARKER}" if process is None else f"{process} is gone")
    requests = Requests(checkpoint)
    request = Request(max_parallelism, str(method) if method else None, str(Owner.me()))
    if not (requests.put(request) or requests.put(request)):  # the other request may just have been answered
        other = requests.current()
        if other is not None and _is_accepted(requests, other):
            raise StateError.busy(
                str(checkpoint), f"a request of {other.by} for {other.max_parallelism} key groups is being served"
            )
        raise StateError.unserved(str(checkpoint), f"{process} accepts no requests")
    try:
        is_accepted = _is_accepted(requests, request)
    except BaseException:
        requests.withdraw(request)
        raise
    if not is_accepted:
        raise StateError.unserved(str(checkpoint), f"{process} accepts no requests")
    answer = _wait_for_answer(checkpoint, process, requests, request, on_progress)
    requests.forget(request)
    if answer.refusal is not None:
        refusal = answer.refusal
        raise StateError(refusal.message, cause=refusal.cause, hint=refusal.hint)
    return answer.report or {}


def _is_accepted(requests: Requests, request: Request) -> bool:
    """Wait until a request is served; withdraw it if no process serves it in time."""
    deadline = time.monotonic() + _ACCEPT_TIMEOUT
    while time.monotonic() < deadline:
        if requests.is_served(request):
            return True
        time.sleep(_ANSWER_INTERVAL)
    return not requests.withdraw(request)


def _wait_for_answer(
    checkpoint: Folder, process: Owner, requests: Requests, request: Request, on_progress: OnProgress
) -> Answer:
    last_beat, last_seen = -1, time.monotonic()
    while True:
        answer = requests.answer(request)
        if answer is not None and answer.beat != last_beat:
            last_beat, last_seen = answer.beat, time.monotonic()
            on_progress(answer.done, answer.total, answer.step)
            if answer.final:
                return answer
        elif process.is_alive() is False or time.monotonic() - last_seen > _HEARTBEAT_TIMEOUT:
            raise StateError.lost(str(checkpoint), str(process), answer.step if answer else "accepting the request")
        time.sleep(_ANSWER_INTERVAL)


class Service:
    """Server of rescale requests, which polls for them while a query runs.

    `mark` is the marker of this process in the checkpoint, which the service removes when the query has ended.
    """

    def __init__(self, query: RescalableQuery, checkpoint: Folder, mark: Mark) -> None:
        self._query = query
        self._checkpoint = checkpoint
        self._mark = mark
        self._requests = Requests(self._checkpoint)
        self._answer = Answer(0, 0, 0, "")
        self._served: tuple[Request, Answer] | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start serving in a separate thread."""
        start_inheriting("penstock-rescale-requests", self._run)

    def _run(self) -> None:
        logged = ""
        while self._query_is_alive():
            try:
                self._poll()
                logged = ""
            except Exception as error:  # noqa: BLE001 - the file system may be available again at the next poll
                problem = f"{type(error).__name__}: {error}"
                if problem != logged and self._query_is_alive():
                    log.warning("requests to rescale %s cannot be served now: %s", self._checkpoint, problem)
                logged = problem
            time.sleep(_SERVICE_INTERVAL)
        with suppress(Exception):  # if the session was stopped or the file system is unavailable, the marker stays
            self._mark.remove()

    def _query_is_alive(self) -> bool:
        try:
            return self._query.isActive
        except Exception:  # noqa: BLE001 - the JVM has ended
            return False

    def _poll(self) -> None:
        """Serve the waiting request; write the final answer again if it could not be written before."""
        request = self._requests.current()
        if request is None:
            return
        if self._served is None or self._served[0] != request:
            if not self._requests.claim(request):
                return
            self._served = request, self._serve(request)
        self._requests.write_answer(*self._served)

    def _serve(self, request: Request) -> Answer:
        with self._heartbeats(request):
            try:
                method = RewriteMethod(request.method) if request.method else None
                report = self._query.rescale(request.max_parallelism, method=method, on_progress=self._progress)
            except PenstockError as error:
                outcome = replace(self._answer, refusal=Refusal(error.message, error.cause, error.hint))
            except Exception as error:  # noqa: BLE001 - the requesting process must get an answer
                refusal = Refusal("the rescale failed", f"{type(error).__name__}: {error}", None)
                outcome = replace(self._answer, refusal=refusal)
            else:
                outcome = replace(self._answer, report=report.as_dict())
        return replace(outcome, beat=self._answer.beat + 1)

    def _progress(self, done: int, total: int, step: str) -> None:
        with self._lock:
            self._answer = replace(self._answer, done=done, total=total, step=step)

    @contextmanager
    def _heartbeats(self, request: Request) -> Iterator[None]:
        """Write the progress of a request periodically during the block, as a sign that this process is alive."""
        over = threading.Event()

        def beat() -> None:
            while not over.is_set():
                with self._lock:
                    now = self._answer = replace(self._answer, beat=self._answer.beat + 1)
                with suppress(Exception):  # the next heartbeat may succeed
                    self._requests.write_answer(request, now)
                over.wait(_HEARTBEAT)

        self._progress(0, 0, "checking")
        thread = start_thread("penstock-rescale-beat", beat)
        try:
            yield
        finally:
            over.set()
            thread.join()
