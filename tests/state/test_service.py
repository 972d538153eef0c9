"""Errors while polling for requests, or while serving them, do not end the service."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import StateError
from penstock.state import live_rescale
from penstock.state.requests import Answer, Request


class Query:
    """A query that is active until `ends` is set, and refuses every rescale."""

    def __init__(self) -> None:
        self.ends = False
        self.requested: list[tuple[int, Any]] = []

    @property
    def isActive(self) -> bool:
        return not self.ends

    def rescale(self, number: int, *, method: Any, on_progress: Any) -> None:
        self.requested.append((number, method))
        raise StateError("it cannot be now")


class ScriptedRequests:
    """A replacement of `Requests` whose polls return, or raise, the items of a list.

    Writing fails for the first `failing_answers` final answers; a request stays until its final answer is written.
    """

    def __init__(self, query: Query, polls: list[Request | Exception | None], failing_answers: int) -> None:
        self.query, self.polls, self.failing_answers = query, polls, failing_answers
        self.claimed: list[Request] = []
        self.answers: list[Answer] = []

    def current(self) -> Request | None:
        item = self.polls.pop(0)
        self.query.ends = not self.polls
        if isinstance(item, Exception):
            raise item
        return item

    def accept(self, request: Request) -> bool:
        if request in self.claimed:
            return False
        self.claimed.append(request)
        return True

    def write_answer(self, request: Request, answer: Answer) -> None:
        if answer.is_final and self.failing_answers:
            self.failing_answers -= 1
            self.polls.insert(0, request)
            self.query.ends = False
            raise OSError("the disk is away")
        self.answers.append(answer)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Query, list[Answer]]]:
    """Return a function that serves requests until there are no more."""

    def serve(*polls: Request | Exception | None, failing_answers: int = 0) -> tuple[Query, list[Answer]]:
        query = Query()
        requests = ScriptedRequests(query, [*polls], failing_answers)
        monkeypatch.setattr(live_rescale, "_SERVICE_INTERVAL", 0.0)
        monkeypatch.setattr(live_rescale, "Requests", lambda _: requests)
        mark = SimpleNamespace(remove=lambda: None)
        live_rescale.RescaleService(query, "checkpoint", mark)._run()  # type: ignore[arg-type]
        return query, [answer for answer in requests.answers if answer.is_final]

    return serve


def test_a_failing_poll_is_logged_once_and_repeated(served: Any, caplog: Any) -> None:
    errors = [OSError("the disk is away") for _ in range(3)]
    query, answers = served(*errors, Request(8, None, "a"), None)
    assert query.requested == [(8, None)]
    assert [answer.refusal.message for answer in answers] == ["it cannot be now"]
    assert caplog.text.count("cannot be served now: OSError: the disk is away") == 1


def test_an_unknown_method_is_refused(served: Any) -> None:
    query, answers = served(Request(8, "magic", "a"), Request(9, "rows", "b"), None)
    assert query.requested == [(9, "rows")]
    assert "magic" in answers[0].refusal.cause
    assert answers[1].refusal.message == "it cannot be now"


def test_an_answer_that_cannot_be_written_is_written_at_a_later_poll(served: Any, caplog: Any) -> None:
    query, answers = served(
        Request(8, None, "a"), OSError("the disk is away"), Request(9, None, "b"), None, failing_answers=3
    )
    assert query.requested == [(8, None), (9, None)], "each is served once"
    assert [answer.refusal.message for answer in answers] == ["it cannot be now", "it cannot be now"]
    assert "cannot be served now: OSError: the disk is away" in caplog.text
