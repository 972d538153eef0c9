"""Requests to the process that runs a query, and its answers: small files in a folder of the checkpoint.

There is one request at a time: its file is made only where there is none. Who makes a request's claim file first, the
process that runs the query or the one that has waited long enough, has the say whether it is served.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.spark.filesystem import Folder

FOLDER = "_penstock_requests"
_REQUEST = "request.json"
_SERVED = b"served"
_WITHDRAWN = b"withdrawn"


@dataclass(frozen=True, slots=True)
class Request:
    """Somebody asks for another number of key groups.

    Parameters
    ----------
    max_parallelism
        The number.
    method
        How to rewrite every store; None to choose.
    by
        Who asks, in words.
    id
        Its name.
    """

    max_parallelism: int
    method: str | None
    by: str
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request was not carried out: the parts of an error."""

    message: str
    cause: str | None
    hint: str | None


@dataclass(frozen=True, slots=True)
class Answer:
    """How far a request has come.

    Parameters
    ----------
    beat
        Grows as long as the process that serves it lives.
    done, total, step
        Finished steps, all steps, and what is done now.
    report
        What was done, once it is.
    refusal
        Why it was not.
    """

    beat: int
    done: int
    total: int
    step: str
    report: dict[str, Any] | None = None
    refusal: Refusal | None = None

    @property
    def final(self) -> bool:
        """Whether nothing follows."""
        return self.report is not None or self.refusal is not None


class Requests:
    """The requests on one checkpoint.

    Parameters
    ----------
    checkpoint
        Its folder.
    """

    def __init__(self, checkpoint: Folder) -> None:
        self._folder = checkpoint.child(FOLDER)

    def put(self, request: Request) -> bool:
        """Make a request; return False where there is another."""
        self._folder.make()
        return self._folder.child(_REQUEST).write(json.dumps(asdict(request)).encode())

    def current(self) -> Request | None:
        """Return the request that waits or is served."""
        content = self._folder.child(_REQUEST).read_if_there()
        return None if content is None else Request(**json.loads(content))

    def claim(self, request: Request) -> bool:
        """Take a request on; return False where it was withdrawn or is served already."""
        return self._claim(request).write(_SERVED)

    def is_served(self, request: Request) -> bool:
        """Whether somebody has taken a request on."""
        return self._claim(request).read_if_there() == _SERVED

    def withdraw(self, request: Request) -> bool:
        """Take a request back; return False where it is served."""
        if not self._claim(request).write(_WITHDRAWN) and self.is_served(request):
            return False
        self.forget(request)
        return True

    def tell(self, request: Request, answer: Answer) -> None:
        """Say how far a request has come; after a final answer there may be another request."""
        self._answer(request).write(json.dumps(asdict(answer)).encode(), overwrite=True)
        if answer.final and self.current() == request:
            self._folder.child(_REQUEST).delete()

    def answer(self, request: Request) -> Answer | None:
        """Return how far a request has come."""
        told = self._answer(request).read_if_there()
        if told is None:
            return None
        content = json.loads(told)
        refusal = content.pop("refusal")
        return Answer(**content, refusal=Refusal(**refusal) if refusal else None)

    def forget(self, request: Request) -> None:
        """Remove all files of a request that nobody serves or waits for any longer."""
        if self.current() == request:
            self._folder.child(_REQUEST).delete()
        self._answer(request).delete()
        self._claim(request).delete()
        self._folder.remove_if_empty()

    def clear(self) -> None:
        """Remove everything: nobody can be waiting for a query that is about to start."""
        self._folder.delete()

    def _claim(self, request: Request) -> Folder:
        return self._folder.child(f"{request.id}.claim")

    def _answer(self, request: Request) -> Folder:
        return self._folder.child(f"{request.id}.answer.json")
