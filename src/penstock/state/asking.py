"""Asks the process that runs a query for another number of key groups."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from penstock.commit.owner import Owner
from penstock.errors import StateError
from penstock.state.marker import MARKER, marked
from penstock.state.requests import Answer, Request, Requests
from penstock.state.service import BEAT

if TYPE_CHECKING:
    from penstock.spark.filesystem import Folder
    from penstock.state.rescale import OnProgress
    from penstock.state.rewrite_methods import RewriteMethod

_TAKEN = 15.0
"""Seconds in which whoever serves a checkpoint takes a request on; it looks every second."""
_SILENT = 15 * BEAT
"""Seconds without a sign of life after which a process counts as lost: fifteen signs."""
_LOOK = 0.2
"""Seconds between two looks for an answer."""


def ask(checkpoint: Folder, max_parallelism: int, method: RewriteMethod | None, tell: OnProgress) -> dict[str, Any]:
    """Ask for another number of key groups, and return the report once the query runs with it.

    Raises
    ------
    StateError
        If nobody serves the checkpoint, another request is served, or the request was refused or failed.
    """
    process = marked(checkpoint)
    if process is None or process.is_alive() is False:
        raise StateError.unserved(str(checkpoint), f"there is no {MARKER}" if process is None else f"{process} is gone")
    requests = Requests(checkpoint)
    request = Request(max_parallelism, str(method) if method else None, str(Owner.me()))
    if not (requests.put(request) or requests.put(request)):  # another one may just have been answered
        other = requests.current()
        if other is not None and _is_taken(requests, other):
            raise StateError.busy(
                str(checkpoint), f"a request of {other.by} for {other.max_parallelism} key groups is being served"
            )
        raise StateError.unserved(str(checkpoint), f"{process} takes no requests on")
    try:
        taken = _is_taken(requests, request)
    except BaseException:
        requests.withdraw(request)
        raise
    if not taken:
        raise StateError.unserved(str(checkpoint), f"{process} takes no requests on")
    answer = _answered(checkpoint, process, requests, request, tell)
    requests.forget(request)
    if answer.refusal is not None:
        refusal = answer.refusal
        raise StateError(refusal.message, cause=refusal.cause, hint=refusal.hint)
    return answer.report or {}


def _is_taken(requests: Requests, request: Request) -> bool:
    """Wait until a request is served; one that nobody serves is withdrawn."""
    until = time.monotonic() + _TAKEN
    while time.monotonic() < until:
        if requests.is_served(request):
            return True
        time.sleep(_LOOK)
    return not requests.withdraw(request)


def _answered(checkpoint: Folder, process: Owner, requests: Requests, request: Request, tell: OnProgress) -> Answer:
    last, heard = -1, time.monotonic()
    while True:
        answer = requests.answer(request)
        if answer is not None and answer.beat != last:
            last, heard = answer.beat, time.monotonic()
            tell(answer.done, answer.total, answer.step)
            if answer.final:
                return answer
        elif process.is_alive() is False or time.monotonic() - heard > _SILENT:
            raise StateError.lost(str(checkpoint), str(process), answer.step if answer else "taking it on")
        time.sleep(_LOOK)
