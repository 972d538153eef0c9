"""Live rescales: requests to the process that runs a query, and the service in that process that answers them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.base.threads import start_thread
from penstock.commit.owner import Owner
from penstock.errors import PenstockError, StateError
from penstock.spark.state.streaming_queries import start_with_local_properties
from penstock.state.marker import MARKER_FILE, process_in_marker
from penstock.state.requests import Answer, Refusal, Request, Requests
from penstock.state.rewrite_methods import RewriteMethod

if TYPE_CHECKING:
    from penstock.spark.io.filesystem import HadoopPath
    from penstock.state.marker import QueryMarker
    from penstock.state.rescale import OnProgress
    from penstock.state.running import RescalableQuery

log = logging.getLogger("penstock.state")

_SERVICE_INTERVAL = 1.0
"""Seconds between two checks for a request; each is a small call to the file system."""
_ANSWER_INTERVAL = 0.2
"""Seconds between two checks for an answer."""
_HEARTBEAT_INTERVAL = 2.0
"""Seconds between two heartbeats while a request is served."""
_HEARTBEAT_TIMEOUT = 15 * _HEARTBEAT_INTERVAL
"""Seconds without a heartbeat after which the serving process counts as lost."""
_ACCEPT_TIMEOUT = 15.0
"""Seconds to wait until the serving process accepts a request."""


def request_rescale(
    checkpoint: HadoopPath, max_parallelism: int, method: RewriteMethod | None, on_progress: OnProgress
) -> dict[str, Any]:
    """Request another number of key groups, and return the report once the query runs with this number.

    Raise `StateError` if no process serves the checkpoint, another request is being served, or the request was refused,
    failed or got no final answer.
    """
    process = process_in_marker(checkpoint)
    if process is None or process.is_alive() is False:
        cause = f"there is no {MARKER_FILE}" if process is None else f"{process} has ended"
        raise StateError.no_rescale_service(str(checkpoint), cause)
    requests = Requests(checkpoint)
    request = Request(max_parallelism, str(method) if method else None, str(Owner.current()))
    if not (requests.submit(request) or requests.submit(request)):  # again: the earlier request may have just ended
        current = requests.current()
        if current is not None and _wait_until_accepted(requests, current):  # otherwise, `current` is withdrawn
            cause = f"a request of {current.by} for {current.max_parallelism} key groups is being served"
            raise StateError.already_rescaling(str(checkpoint), cause)
        raise StateError.no_rescale_service(str(checkpoint), f"{process} accepts no requests")
    try:
        is_accepted = _wait_until_accepted(requests, request)
    except BaseException:
        requests.withdraw(request)
        raise
    if not is_accepted:
        raise StateError.no_rescale_service(str(checkpoint), f"{process} accepts no requests")
    answer = _wait_for_answer(checkpoint, process, requests, request, on_progress)
    requests.remove(request)
    if answer.refusal is not None:
        refusal = answer.refusal
        raise StateError(refusal.message, cause=refusal.cause, hint=refusal.hint)
    return answer.report or {}


def _wait_until_accepted(requests: Requests, request: Request) -> bool:
    """Wait until a request is accepted, and return True; withdraw it and return False after a timeout."""
    deadline = time.monotonic() + _ACCEPT_TIMEOUT
    while time.monotonic() < deadline:
        if requests.is_accepted(request):
            return True
        time.sleep(_ANSWER_INTERVAL)
    return not requests.withdraw(request)  # a request that has just been accepted cannot be withdrawn


def _wait_for_answer(
    checkpoint: HadoopPath, process: Owner, requests: Requests, request: Request, on_progress: OnProgress
) -> Answer:
    last_beat, last_seen = -1, time.monotonic()
    while True:
        answer = requests.answer(request)
        if answer is not None and answer.beat != last_beat:
            last_beat, last_seen = answer.beat, time.monotonic()
            on_progress(answer.done, answer.total, answer.step)
            if answer.is_final:
                return answer
        elif process.is_alive() is False or time.monotonic() - last_seen > _HEARTBEAT_TIMEOUT:
            step = answer.step if answer else "accepting the request"
            raise StateError(
                f"{process} has not reported how the rescale of the query on {checkpoint} ended",
                cause=f"it died or hangs; its last reported step was: {step}",
                hint="if it died, start the query with penstock.state.start_query, which finishes or undoes the "
                "rescale",
            )
        time.sleep(_ANSWER_INTERVAL)


class RescaleService:
    """Service that polls for rescale requests while a query runs, and serves them.

    `marker` is the file in the checkpoint that names this process; the service removes it when the query has ended.
    """

    def __init__(self, query: RescalableQuery, checkpoint: HadoopPath, marker: QueryMarker) -> None:
        self._query = query
        self._checkpoint = checkpoint
        self._marker = marker
        self._requests = Requests(self._checkpoint)
        self._progress = Answer(0, 0, 0, "")
        self._last_served: tuple[Request, Answer] | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start serving in a separate thread."""
        start_with_local_properties("penstock-rescale-requests", self._run)

    def _run(self) -> None:
        last_problem = ""
        while self._query_is_alive():
            try:
                self._poll()
                last_problem = ""
            except Exception as error:  # noqa: BLE001 - the file system may be available again at the next poll
                problem = f"{type(error).__name__}: {error}"
                if problem != last_problem and self._query_is_alive():
                    log.warning("requests to rescale %s cannot be served now: %s", self._checkpoint, problem)
                last_problem = problem
            time.sleep(_SERVICE_INTERVAL)
        with suppress(Exception):  # if the session was stopped or the file system is unavailable, the marker stays
            self._marker.remove()

    def _query_is_alive(self) -> bool:
        try:
            return self._query.isActive
        except Exception:  # noqa: BLE001 - the JVM has ended
            return False

    def _poll(self) -> None:
        """Serve the waiting request; if its final answer could not be written in an earlier poll, write it again."""
        request = self._requests.current()
        if request is None:
            return
        if self._last_served is None or self._last_served[0] != request:
            if not self._requests.accept(request):
                return
            self._last_served = request, self._serve(request)
        self._requests.write_answer(*self._last_served)

    def _serve(self, request: Request) -> Answer:
        with self._heartbeats(request):
            try:
                method = RewriteMethod(request.method) if request.method else None
                report = self._query.rescale(request.max_parallelism, method=method, on_progress=self._report_progress)
            except PenstockError as error:
                outcome = replace(self._progress, refusal=Refusal(error.message, error.cause, error.hint))
            except Exception as error:  # noqa: BLE001 - the requesting process must get an answer
                refusal = Refusal("the rescale failed", f"{type(error).__name__}: {error}", None)
                outcome = replace(self._progress, refusal=refusal)
            else:
                outcome = replace(self._progress, report=report.as_dict())
        return replace(outcome, beat=self._progress.beat + 1)

    def _report_progress(self, done: int, total: int, step: str) -> None:
        with self._lock:
            self._progress = replace(self._progress, done=done, total=total, step=step)

    @contextmanager
    def _heartbeats(self, request: Request) -> Iterator[None]:
        """Write the progress of a request periodically during the block, as a sign that this process is alive."""
        has_ended = threading.Event()

        def send_heartbeats() -> None:
            while not has_ended.is_set():
                with self._lock:
                    progress = self._progress = replace(self._progress, beat=self._progress.beat + 1)
                with suppress(Exception):  # the next heartbeat may succeed
                    self._requests.write_answer(request, progress)
                has_ended.wait(_HEARTBEAT_INTERVAL)

        self._report_progress(0, 0, "checking")
        thread = start_thread("penstock-rescale-beat", send_heartbeats)
        try:
            yield
        finally:
            has_ended.set()
            thread.join()
