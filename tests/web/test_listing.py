"""Search, filter, order and pages of tables."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.history.summaries import Summary
from penstock.web.listing import PAGE, JobList, JobWish, Wish, sorted_steps
from tests.web.test_timing import step


def job(number: int, name: str, state: str = "FINISHED", took: float | None = 1.0) -> Summary:
    ended = None if took is None else number + took
    return Summary(
        f"{number:012x}", name, state, float(number), ended, 0.0, {"FINISHED": number, "pending-operators": 1}
    )


JOBS = [
    job(1, "nightly", took=9.0),
    job(2, "Nightly again", "FAILED", 3.0),
    job(0xABC, "hourly", took=5.0),
    job(4, "now", "RUNNING", None),
    job(5, "soon", "CREATED", None),
]


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        (Wish(), ["hourly", "soon", "now", "Nightly again", "nightly"]),
        (Wish(text="NIGHT"), ["Nightly again", "nightly"]),
        (Wish(text=f"{0xABC:012x}"[:11]), ["hourly"]),
        (Wish(text="bc"), []),
        (Wish(state="failed"), ["Nightly again"]),
        (Wish(state="running"), ["soon", "now"]),
        (Wish(text="n", state="finished"), ["nightly"]),
        (Wish(sort="name"), ["hourly", "nightly", "Nightly again", "now", "soon"]),
        (Wish(sort="-took"), ["now", "soon", "nightly", "hourly", "Nightly again"]),
        (Wish(sort="steps"), ["nightly", "Nightly again", "now", "soon", "hourly"]),
        (Wish(sort="nonsense"), ["nightly", "Nightly again", "hourly", "now", "soon"]),
        (Wish(page=99), ["hourly", "soon", "now", "Nightly again", "nightly"]),
    ],
)
def test_which_jobs_are_shown_and_in_which_order(wish: Wish, expected: Any) -> None:
    assert [one.name for one in JobList.of(JOBS, wish, 1e6).jobs] == expected


@pytest.mark.parametrize(("page", "first", "shown"), [(1, 249, PAGE), (3, 49, 50), (7, 49, 50), (0, 249, PAGE)])
def test_pages(page: int, first: int, shown: int) -> None:
    found = JobList.of([job(number, "one") for number in range(250)], Wish(page=page), 1e6)
    assert (found.jobs[0].started, len(found.jobs), found.pages, found.total) == (first, shown, 3, 250)


@pytest.mark.parametrize(
    ("jobs", "pages"), [(0, 1), (1, 1), (PAGE, 1), (PAGE + 1, 2), (2 * PAGE, 2), (2 * PAGE + 1, 3)]
)
def test_no_page_is_empty_but_the_only_one(jobs: int, pages: int) -> None:
    found = JobList.of([job(number, "one") for number in range(jobs)], Wish(page=pages), 1e6)
    assert found.pages == pages
    assert bool(found.jobs) == bool(jobs)


def test_what_is_not_known_comes_last() -> None:
    steps = [step("1", (0, 1)), step("2", None), step("3", (0, 3))]
    assert [one.id for one in sorted_steps(steps, "-took")] == ["3", "1", "2"]
    assert [one.id for one in sorted_steps(steps, "took")] == ["1", "3", "2"]
    assert [one.id for one in sorted_steps(steps, "")] == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (Wish().address("/"), "/"),
        (Wish(text="a&b=c", state="failed").address("/", page=2), "/?q=a%26b%3Dc&state=failed&page=2"),
        (JobWish().address("0a"), "/ui/jobs/0a"),
        (JobWish(pending=True).address("0a", "steps", sort="-took"), "/ui/jobs/0a?pending=true&sort=-took#steps"),
    ],
)
def test_addresses(made: str, expected: str) -> None:
    assert made == expected


def test_a_second_click_turns_the_order_round() -> None:
    wish = Wish(sort="-took")
    assert (wish.by("took"), wish.by("name")) == ("took", "-name")
    assert [wish.direction(column) for column in ("took", "name")] == ["descending", "none"]
    assert Wish(sort="took").direction("took") == "ascending"
