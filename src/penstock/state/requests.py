"""Requests for a rescale to the process that runs a query, and its answers, as small files in the checkpoint.

Requests are served in sequence. Each request has a claim file, which can be created only once: by the process that runs
the query, to serve the request; or by a requesting process, to withdraw the request, for example after a timeout.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.spark.io.filesystem import HadoopPath

REQUESTS_FOLDER = "_penstock_requests"
_REQUEST = "request.json"  # the request that is waiting or being served
_SERVED = b"served"  # content of a claim file
_WITHDRAWN = b"withdrawn"  # content of a claim file


@dataclass(frozen=True, slots=True)
class Request:
    """A request for another number of key groups.

    `method` is the rewrite method of every store; None to choose it for each store. `by` names the requesting process.
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

    `beat` is the heartbeat: a counter that grows while the serving process is alive. `done` of `total` steps have been
    completed, and `step` describes the next step. `report` is the report of a completed rescale; None before. `refusal`
    is the error of a request that was refused or failed; None otherwise.
    """

    beat: int
    done: int
    total: int
    step: str
    report: dict[str, Any] | None = None
    refusal: Refusal | None = None

    @property
    def is_final(self) -> bool:
        """Whether this is the last answer."""
        return self.report is not None or self.refusal is not None


class Requests:
    """The requests for the query of a checkpoint."""

    def __init__(self, checkpoint: HadoopPath) -> None:
        self._folder = checkpoint.child(REQUESTS_FOLDER)

    def submit(self, request: Request) -> bool:
        """Write a request; return False if another request is waiting or being served."""
        self._folder.make()
        return self._folder.child(_REQUEST).write(json.dumps(asdict(request)).encode())

    def current(self) -> Request | None:
        """Return the request that is waiting or being served; None if there is none."""
        content = self._folder.child(_REQUEST).read_if_exists()
        return None if content is None else Request(**json.loads(content))

    def accept(self, request: Request) -> bool:
        """Accept a request; return False if it was withdrawn, or accepted before."""
        return self._claim_file(request).write(_SERVED)

    def is_accepted(self, request: Request) -> bool:
        """Whether a process has accepted a request."""
        return self._claim_file(request).read_if_exists() == _SERVED

    def withdraw(self, request: Request) -> bool:
        """Withdraw a request; return False if it was accepted."""
        if not self._claim_file(request).write(_WITHDRAWN) and self.is_accepted(request):
            return False
        self.remove(request)
        return True

    def write_answer(self, request: Request, answer: Answer) -> None:
        """Write the progress or outcome of a request; after a final answer, another request can be submitted."""
        self._answer_file(request).write(json.dumps(asdict(answer)).encode(), overwrite=True)
        if answer.is_final and self.current() == request:
            self._folder.child(_REQUEST).delete()

    def answer(self, request: Request) -> Answer | None:
        """Return the newest answer to a request; None if there is none yet."""
        text = self._answer_file(request).read_if_exists()
        if text is None:
            return None
        content = json.loads(text)
        refusal = content.pop("refusal")
        return Answer(**content, refusal=Refusal(**refusal) if refusal else None)

    def remove(self, request: Request) -> None:
        """Remove all files of a request that has ended."""
        if self.current() == request:
            self._folder.child(_REQUEST).delete()
        self._answer_file(request).delete()
        self._claim_file(request).delete()
        self._folder.remove_if_empty()

    def clear(self) -> None:
        """Remove all requests; called before the query starts, when no process serves requests."""
        self._folder.delete()

    def _claim_file(self, request: Request) -> HadoopPath:
        return self._folder.child(f"{request.id}.claim")

    def _answer_file(self, request: Request) -> HadoopPath:
        return self._folder.child(f"{request.id}.answer.json")
