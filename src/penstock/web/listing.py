"""Filters, order and page number of the tables on web pages, read from and written to the address of a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

if TYPE_CHECKING:
    from penstock.history.summaries import Summary
    from penstock.web.steps import Step

Row = TypeVar("Row")
JOBS_PER_PAGE = 100
"""The most jobs on a page of the list."""
STATES = ("running", "finished", "failed", "canceled", "interrupted")  # by which the list can be filtered


@dataclass(frozen=True, slots=True, kw_only=True)
class _SortQuery:
    """The column that a table is sorted by, with a leading minus for descending order; empty for the default."""

    sort: str = ""

    def sort_after_click(self, column: str) -> str:
        """Return the value of `sort` for a click on a column: descending, or ascending if it is descending already."""
        return column if self.sort == f"-{column}" else f"-{column}"

    def aria_sort(self, column: str) -> str:
        """Return the order of a column as a value of ``aria-sort``."""
        return {column: "ascending", f"-{column}": "descending"}.get(self.sort, "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobListQuery(_SortQuery):
    """Filters, order and page (from 1) of the list of jobs; `text` is a part of the name, or the start of the id."""

    text: str = ""
    state: str = ""
    page: int = 1

    def address(self, path: str, **changes: Any) -> str:
        """Return the address of the list with this query and some changed parameters."""
        query = replace(self, **changes)
        page = query.page if query.page > 1 else ""
        parameters = _encoded(q=query.text, state=query.state, sort=query.sort, page=page)
        return f"{path}?{parameters}" if parameters else path


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPageQuery(_SortQuery):
    """The parameters of a job's page: `pending` shows pending operators, `kind` selects decisions; empty for all."""

    pending: bool = False
    kind: str = ""

    def address(self, job_id: str, section: str = "", **changes: Any) -> str:
        """Return the address of a section of a job's page, with this query and some changed parameters."""
        query = replace(self, **changes)
        parameters = _encoded(pending="true" if query.pending else "", sort=query.sort, kind=query.kind)
        address = f"/ui/jobs/{job_id}" + (f"?{parameters}" if parameters else "")
        return f"{address}#{section}" if section else address


def _encoded(**parameters: Any) -> str:
    """Return the query string of the parameters that are not empty."""
    return urlencode({key: value for key, value in parameters.items() if value})


@dataclass(frozen=True, slots=True)
class JobList:
    """A page of the list of jobs; `total` is the number of jobs that match the query, `unfiltered` that of all jobs."""

    jobs: tuple[Summary, ...]
    total: int
    unfiltered: int
    pages: int

    @classmethod
    def of(cls, summaries: Sequence[Summary], query: JobListQuery, now: float) -> JobList:
        """Filter and sort the jobs, and return the page of the query; created jobs count as running."""
        text, state = query.text.lower().strip(), query.state.upper()
        matches = [
            job
            for job in summaries
            if (text in job.name.lower() or job.id.startswith(text))
            and (not state or job.state == state or (state == "RUNNING" and job.state == "CREATED"))
        ]
        columns: Mapping[str, Callable[[Summary], Any]] = {
            "started": lambda job: job.started,
            "name": lambda job: job.name.lower(),
            "state": lambda job: job.state,
            "took": lambda job: job.seconds(now),
            "steps": lambda job: job.vertex_count,
        }
        ordered = sorted_rows(matches, columns, query.sort or "-started")
        pages = max(-(-len(ordered) // JOBS_PER_PAGE), 1)
        start = (min(max(query.page, 1), pages) - 1) * JOBS_PER_PAGE
        return cls(tuple(ordered[start : start + JOBS_PER_PAGE]), len(ordered), len(summaries), pages)


def sorted_steps(steps: Sequence[Step], sort: str) -> list[Step]:
    """Return steps in the order of a column, unknown values last."""
    columns: Mapping[str, Callable[[Step], Any]] = {
        "step": lambda step: int(step.number) if step.number.isdigit() else 0,
        "state": lambda step: step.state,
        "does": lambda step: step.label.lower(),
        "start": lambda step: step.start,
        "took": lambda step: step.seconds,
        "tasks": lambda step: step.tasks,
        "rows-in": lambda step: step.rows_in,
        "rows-out": lambda step: step.rows_out,
        "bytes-in": lambda step: step.bytes_in,
        "bytes-out": lambda step: step.bytes_out,
        "spilled": lambda step: step.spilled,
    }
    return sorted_rows(steps, columns, sort or "step")


def sorted_rows(rows: Sequence[Row], columns: Mapping[str, Callable[[Row], Any]], sort: str) -> list[Row]:
    """Return rows in the order that `sort` names, None last; an unknown column does not change the order."""
    column = columns.get(sort.removeprefix("-"))
    if column is None:
        return list(rows)
    ordered = sorted((row for row in rows if column(row) is not None), key=column, reverse=sort.startswith("-"))
    return [*ordered, *(row for row in rows if column(row) is None)]
