"""Search, filter, order and pages of tables."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.history.summaries import Summary
from penstock.web.listing import JOBS_PER_PAGE, JobList, JobListQuery, JobPageQuery, sorted_steps
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
    ("query", "expected"),
    [
        (JobListQuery(), ["hourly", "soon", "now", "Nightly again", "nightly"]),
        (JobListQuery(text="NIGHT"), ["Nightly again", "nightly"]),
        (JobListQuery(text=f"{0xABC:012x}"[:11]), ["hourly"]),
        (JobListQuery(text="bc"), []),
        (JobListQuery(state="failed"), ["Nightly again"]),
        (JobListQuery(state="running"), ["soon", "now"]),
        (JobListQuery(text="n", state="finished"), ["nightly"]),
        (JobListQuery(sort="name"), ["hourly", "nightly", "Nightly again", "now", "soon"]),
        (JobListQuery(sort="-took"), ["now", "soon", "nightly", "hourly", "Nightly again"]),
        (JobListQuery(sort="steps"), ["nightly", "Nightly again", "now", "soon", "hourly"]),
        (JobListQuery(sort="nonsense"), ["nightly", "Nightly again", "hourly", "now", "soon"]),
        (JobListQuery(page=99), ["hourly", "soon", "now", "Nightly again", "nightly"]),
    ],
)
def test_filters_and_order_of_jobs(query: JobListQuery, expected: Any) -> None:
    assert [job.name for job in JobList.of(JOBS, query, 1e6).jobs] == expected


@pytest.mark.parametrize(
    ("page", "first", "shown"), [(1, 249, JOBS_PER_PAGE), (3, 49, 50), (7, 49, 50), (0, 249, JOBS_PER_PAGE)]
)
def test_pages(page: int, first: int, shown: int) -> None:
    job_list = JobList.of([job(number, "job") for number in range(250)], JobListQuery(page=page), 1e6)
    assert (job_list.jobs[0].started, len(job_list.jobs), job_list.pages, job_list.total) == (first, shown, 3, 250)


@pytest.mark.parametrize(
    ("jobs", "pages"),
    [(0, 1), (1, 1), (JOBS_PER_PAGE, 1), (JOBS_PER_PAGE + 1, 2), (2 * JOBS_PER_PAGE, 2), (2 * JOBS_PER_PAGE + 1, 3)],
)
def test_only_the_first_page_may_be_empty(jobs: int, pages: int) -> None:
    job_list = JobList.of([job(number, "job") for number in range(jobs)], JobListQuery(page=pages), 1e6)
    assert job_list.pages == pages
    assert bool(job_list.jobs) == bool(jobs)


def test_unknown_values_come_last() -> None:
    steps = [step("1", (0, 1)), step("2", None), step("3", (0, 3))]
    assert [step.id for step in sorted_steps(steps, "-took")] == ["3", "1", "2"]
    assert [step.id for step in sorted_steps(steps, "took")] == ["1", "3", "2"]
    assert [step.id for step in sorted_steps(steps, "")] == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (JobListQuery().address("/"), "/"),
        (JobListQuery(text="a&b=c", state="failed").address("/", page=2), "/?q=a%26b%3Dc&state=failed&page=2"),
        (JobPageQuery().address("0a"), "/ui/jobs/0a"),
        (JobPageQuery(pending=True).address("0a", "steps", sort="-took"), "/ui/jobs/0a?pending=true&sort=-took#steps"),
    ],
)
def test_addresses(address: str, expected: str) -> None:
    assert address == expected


def test_second_click_reverses_the_order() -> None:
    query = JobListQuery(sort="-took")
    assert (query.sort_after_click("took"), query.sort_after_click("name")) == ("took", "-name")
    assert [query.aria_sort(column) for column in ("took", "name")] == ["descending", "none"]
    assert JobListQuery(sort="took").aria_sort("took") == "ascending"
