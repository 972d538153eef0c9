"""Client side of live rescales: requests to the process that runs a query; see `service` for the other side."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from penstock.commit.owner import Owner
from penstock.errors import StateError
from penstock.state.marker import MARKER, marked_process
from penstock.state.requests import Answer, Request, Requests
from penstock.state.service import HEARTBEAT

if TYPE_CHECKING:
    from penstock.spark.filesystem import Folder
    from penstock.state.rescale import OnProgress
    from penstock.state.rewrite_methods import RewriteMethod

_ACCEPT_TIMEOUT = 15.0
"""Seconds to wait until the serving process, which polls every second, accepts a request."""
_HEARTBEAT_TIMEOUT = 15 * HEARTBEAT
"""Seconds without a heartbeat after which the serving process counts as lost."""
_POLL_INTERVAL = 0.2
"""Seconds between two checks for an answer."""


def request_rescale(
    checkpoint: Folder, max_parallelism: int, method: RewriteMethod | None, on_progress: OnProgress
) -> dict[str, Any]:
    """Request another number of key groups, and return the report once the query runs with it.

    Raises
    ------
    StateError
        If no process serves the checkpoint, another request is served, or the request was refused or failed.
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
        time.sleep(_POLL_INTERVAL)
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
        time.sleep(_POLL_INTERVAL)
