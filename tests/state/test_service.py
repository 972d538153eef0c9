"""What goes wrong while requests are looked for or served does not end the service."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import StateError
from penstock.state import service
from penstock.state.requests import Answer, Request

if TYPE_CHECKING:
    from collections.abc import Callable


class Query:
    """A query that can be rescaled until `ends` is set."""

    def __init__(self) -> None:
        self.ends = False
        self.asked: list[tuple[int, Any]] = []

    @property
    def isActive(self) -> bool:
        return not self.ends

    def rescale(self, number: int, *, method: Any, on_progress: Any) -> None:
        self.asked.append((number, method))
        raise StateError("it cannot be now")


class Looks:
    """The requests of a checkpoint, one look after the other; an exception is raised.

    As many final answers as `away` says cannot be written; a request stays until one is.
    """

    def __init__(self, query: Query, found: list[Request | Exception | None], away: int) -> None:
        self.query, self.found, self.away = query, found, away
        self.claimed: list[Request] = []
        self.told: list[Answer] = []

    def current(self) -> Request | None:
        one = self.found.pop(0)
        self.query.ends = not self.found
        if isinstance(one, Exception):
            raise one
        return one

    def claim(self, request: Request) -> bool:
        if request in self.claimed:
            return False
        self.claimed.append(request)
        return True

    def tell(self, request: Request, answer: Answer) -> None:
        if answer.final and self.away:
            self.away -= 1
            self.found.insert(0, request)
            self.query.ends = False
            raise OSError("the disk is away")
        self.told.append(answer)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Query, list[Answer]]]:
    """Return a function that serves requests until there are no more."""

    def serve(*found: Request | Exception | None, away: int = 0) -> tuple[Query, list[Answer]]:
        query = Query()
        looks = Looks(query, [*found], away)
        monkeypatch.setattr(service, "_LOOK", 0.0)
        monkeypatch.setattr(service, "Requests", lambda _: looks)
        mark = SimpleNamespace(remove=lambda: None)
        service.Service(query, "checkpoint", mark)._run()  # type: ignore[arg-type]
        return query, [answer for answer in looks.told if answer.final]

    return serve


def test_a_look_that_fails_is_logged_once_and_the_next_one_is_made(served: Any, caplog: Any) -> None:
    away = [OSError("the disk is away") for _ in range(3)]
    query, told = served(*away, Request(8, None, "a"), None)
    assert query.asked == [(8, None)]
    assert [answer.refusal.message for answer in told] == ["it cannot be now"]
    assert caplog.text.count("cannot be served now: OSError: the disk is away") == 1


def test_a_method_that_is_not_known_is_told_to_whoever_asks(served: Any) -> None:
    query, told = served(Request(8, "magic", "a"), Request(9, "rows", "b"), None)
    assert query.asked == [(9, "rows")]
    assert "magic" in told[0].refusal.cause
    assert told[1].refusal.message == "it cannot be now"


def test_an_answer_that_cannot_be_written_is_told_at_a_later_look(served: Any, caplog: Any) -> None:
    query, told = served(Request(8, None, "a"), OSError("the disk is away"), Request(9, None, "b"), None, away=3)
    assert query.asked == [(8, None), (9, None)], "each is served once"
    assert [answer.refusal.message for answer in told] == ["it cannot be now", "it cannot be now"]
    assert "cannot be served now: OSError: the disk is away" in caplog.text
