"""Requests to the process that runs a query, and its answers, as small files in a folder of the checkpoint.

Requests are served one at a time. The process that runs the query creates the claim file of a request to serve
it; the requesting process creates it to withdraw after a timeout. The first of the two decides.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.spark.io.filesystem import Folder

FOLDER = "_penstock_requests"
_REQUEST = "request.json"
_SERVED = b"served"
_WITHDRAWN = b"withdrawn"


@dataclass(frozen=True, slots=True)
class Request:
    """A request for another number of key groups.

    `method` is the rewrite method of every store; None to choose it for each store. `by` is the requesting process, for
    messages.
    """

    max_parallelism: int
    method: str | None
    by: str
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])


@dataclass(frozen=True, slots=True)
class Refusal:
    """The error with which a request was refused or failed."""

    message: str
    cause: str | None
    hint: str | None


@dataclass(frozen=True, slots=True)
class Answer:
    """Progress or outcome of a request.

    `beat` is the heartbeat: a counter that grows while the serving process is alive. `report` is the report of a
    completed rescale; None before. `refusal` is the error of a request that was refused or failed; None otherwise.
    """

    beat: int
    done: int
    total: int
    step: str
    report: dict[str, Any] | None = None
    refusal: Refusal | None = None

    @property
    def final(self) -> bool:
        """Whether this is the last answer."""
        return self.report is not None or self.refusal is not None


class Requests:
    """The requests on a checkpoint."""

    def __init__(self, checkpoint: Folder) -> None:
        self._folder = checkpoint.child(FOLDER)

    def put(self, request: Request) -> bool:
        """Write a request; return False if there is another."""
        self._folder.make()
        return self._folder.child(_REQUEST).write(json.dumps(asdict(request)).encode())

    def current(self) -> Request | None:
        """Return the request that is waiting or being served; None if there is none."""
        content = self._folder.child(_REQUEST).read_if_exists()
        return None if content is None else Request(**json.loads(content))

    def claim(self, request: Request) -> bool:
        """Accept a request; return False if it was withdrawn, or is already being served."""
        return self._claim(request).write(_SERVED)

    def is_served(self, request: Request) -> bool:
        """Whether a process has accepted a request."""
        return self._claim(request).read_if_exists() == _SERVED

    def withdraw(self, request: Request) -> bool:
        """Withdraw a request; return False if it is already being served."""
        if not self._claim(request).write(_WITHDRAWN) and self.is_served(request):
            return False
        self.forget(request)
        return True

    def write_answer(self, request: Request, answer: Answer) -> None:
        """Write the progress or outcome of a request; a final answer makes room for another request."""
        self._answer(request).write(json.dumps(asdict(answer)).encode(), overwrite=True)
        if answer.final and self.current() == request:
            self._folder.child(_REQUEST).delete()

    def answer(self, request: Request) -> Answer | None:
        """Return the newest answer to a request; None if there is none yet."""
        text = self._answer(request).read_if_exists()
        if text is None:
            return None
        content = json.loads(text)
        refusal = content.pop("refusal")
        return Answer(**content, refusal=Refusal(**refusal) if refusal else None)

    def forget(self, request: Request) -> None:
        """Remove all files of a request that has ended."""
        if self.current() == request:
            self._folder.child(_REQUEST).delete()
        self._answer(request).delete()
        self._claim(request).delete()
        self._folder.remove_if_empty()

    def clear(self) -> None:
        """Remove all requests; called before the query starts, when no process can be waiting for an answer."""
        self._folder.delete()

    def _claim(self, request: Request) -> Folder:
        return self._folder.child(f"{request.id}.claim")

    def _answer(self, request: Request) -> Folder:
        return self._folder.child(f"{request.id}.answer.json")
