"""Server side of live rescales, in the process that runs the query; see `live_rescale` for the other side."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.spark.streaming_queries import start_inheriting
from penstock.state.requests import Answer, Refusal, Request, Requests
from penstock.state.rewrite_methods import RewriteMethod
from penstock.threads import start_thread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.spark.filesystem import Folder
    from penstock.state.marker import Mark
    from penstock.state.running import RescalableQuery

log = logging.getLogger("penstock.state")

_POLL_INTERVAL = 1.0
"""Seconds between two checks for a request, each of which costs a small call to the file system."""
HEARTBEAT = 2.0
"""Seconds between two heartbeats while a request is served."""


class Service:
    """Server of rescale requests, which polls for them while a query runs.

    Parameters
    ----------
    mark
        The marker of this process in the checkpoint, which the service removes when the query has ended.
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
            time.sleep(_POLL_INTERVAL)
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
                over.wait(HEARTBEAT)

        self._progress(0, 0, "checking")
        thread = start_thread("penstock-rescale-beat", beat)
        try:
            yield
        finally:
            over.set()
            thread.join()
