"""Serves requests for another number of key groups, in the process that runs the query."""

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

_LOOK = 1.0
"""Seconds between two looks for a request: nothing beside a rescale, and one small call to the file system."""
BEAT = 2.0
"""Seconds between two signs of life while a request is served."""


class Service:
    """Looks for requests as long as a query runs.

    Parameters
    ----------
    query
        The query.
    checkpoint
        The folder of its checkpoint.
    mark
        What names this process in it, until the query has ended.
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
        """Serve on a thread of its own."""
        start_inheriting("penstock-rescale-requests", self._run)

    def _run(self) -> None:
        said = ""
        while self._query_lives():
            try:
                self._look()
                said = ""
            except Exception as error:  # noqa: BLE001 - the file system may be back at the next look
                what = f"{type(error).__name__}: {error}"
                if what != said and self._query_lives():
                    log.warning("requests to rescale %s cannot be served now: %s", self._checkpoint, what)
                said = what
            time.sleep(_LOOK)
        with suppress(Exception):  # where the session was stopped, or the file system is away, the marker stays
            self._mark.remove()

    def _query_lives(self) -> bool:
        try:
            return self._query.isActive
        except Exception:  # noqa: BLE001 - there is no JVM any longer
            return False

    def _look(self) -> None:
        """Serve the request that waits; one that is still there was served, and could not be told how it ended."""
        request = self._requests.current()
        if request is None:
            return
        if self._served is None or self._served[0] != request:
            if not self._requests.claim(request):
                return
            self._served = request, self._serve(request)
        self._requests.tell(*self._served)

    def _serve(self, request: Request) -> Answer:
        with self._beating(request):
            try:
                method = RewriteMethod(request.method) if request.method else None
                report = self._query.rescale(request.max_parallelism, method=method, on_progress=self._progress)
            except PenstockError as error:
                outcome = replace(self._answer, refusal=Refusal(error.message, error.cause, error.hint))
            except Exception as error:  # noqa: BLE001 - whoever asks must hear of it
                refusal = Refusal("the rescale failed", f"{type(error).__name__}: {error}", None)
                outcome = replace(self._answer, refusal=refusal)
            else:
                outcome = replace(self._answer, report=report.as_dict())
        return replace(outcome, beat=self._answer.beat + 1)

    def _progress(self, done: int, total: int, step: str) -> None:
        with self._lock:
            self._answer = replace(self._answer, done=done, total=total, step=step)

    @contextmanager
    def _beating(self, request: Request) -> Iterator[None]:
        """Tell in the block, again and again, that this process lives and what it does."""
        over = threading.Event()

        def beat() -> None:
            while not over.is_set():
                with self._lock:
                    now = self._answer = replace(self._answer, beat=self._answer.beat + 1)
                with suppress(Exception):  # the next sign of life may get through
                    self._requests.tell(request, now)
                over.wait(BEAT)

        self._progress(0, 0, "checking")
        thread = start_thread("penstock-rescale-beat", beat)
        try:
            yield
        finally:
            over.set()
            thread.join()
