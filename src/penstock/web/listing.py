"""Which rows of a table are shown, and in which order: as the address of the page says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from penstock.history.summaries import Summary
    from penstock.web.steps import Step

Row = TypeVar("Row")
PAGE = 100
"""Jobs on one page of the list."""
STATES = ("running", "finished", "failed", "canceled", "interrupted")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sorted:
    """A wish to see a table in the order of a column; with a minus before it, the largest first."""

    sort: str = ""

    def by(self, column: str) -> str:
        """Return the wish to sort by a column: the largest first, or the other way round if it is so already."""
        return column if self.sort == f"-{column}" else f"-{column}"

    def direction(self, column: str) -> str:
        """Return how a column is sorted, as ``aria-sort`` says it."""
        return {column: "ascending", f"-{column}": "descending"}.get(self.sort, "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish(_Sorted):
    """What a reader wishes to see.

    Parameters
    ----------
    text
        What the name has, or the id begins with.
    state
        The state, or nothing for all.
    page
        Which page, from 1.
    """

    text: str = ""
    state: str = ""
    page: int = 1

    def address(self, path: str, **changes: Any) -> str:
        """Return the address of a page with this wish, changed as told."""
        wish = replace(self, **changes)
        given = {"q": wish.text, "state": wish.state, "sort": wish.sort, "page": wish.page if wish.page > 1 else ""}
        query = urlencode({key: value for key, value in given.items() if value})
        return f"{path}?{query}" if query else path


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWish(_Sorted):
    """What a reader wishes to see of a job.

    Parameters
    ----------
    pending
        Whether the operators that are not part of a step yet are drawn.
    kind
        Decisions of one kind only, or nothing for all that a reader is told of.
    """

    pending: bool = False
    kind: str = ""

    def address(self, job_id: str, part: str = "", **changes: Any) -> str:
        """Return the address of a job's page with this wish, changed as told, at a part of the page."""
        wish = replace(self, **changes)
        given = {"pending": "true" if wish.pending else "", "sort": wish.sort, "kind": wish.kind}
        query = urlencode({key: value for key, value in given.items() if value})
        return f"/ui/jobs/{job_id}" + (f"?{query}" if query else "") + (f"#{part}" if part else "")


@dataclass(frozen=True, slots=True)
class JobList:
    """One page of the list of jobs; `total` is how many there are on all pages, `known` how many without the wish."""

    jobs: tuple[Summary, ...]
    total: int
    known: int
    pages: int

    @classmethod
    def of(cls, summaries: Sequence[Summary], wish: Wish, now: float) -> JobList:
        """Return the jobs that a reader wishes to see."""
        text, state = wish.text.lower().strip(), wish.state.upper()
        wanted = [
            job
            for job in summaries
            if (text in job.name.lower() or job.id.startswith(text))
            and (not state or job.state == state or (state == "RUNNING" and job.state == "CREATED"))
        ]
        columns: Mapping[str, Callable[[Summary], Any]] = {
            "started": lambda job: job.started,
            "name": lambda job: job.name.lower(),
            "state": lambda job: job.state,
            "took": lambda job: (job.ended if job.ended is not None else now) - job.started,
            "steps": steps_made,
        }
        found = in_order(wanted, columns, wish.sort or "-started")
        pages = max(-(-len(found) // PAGE), 1)
        start = (min(max(wish.page, 1), pages) - 1) * PAGE
        return cls(tuple(found[start : start + PAGE]), len(found), len(summaries), pages)


def steps_made(job: Summary) -> int:
    """Return how many steps a job has made."""
    return sum(job.counts.values()) - job.counts.get("pending-operators", 0)


def sorted_steps(steps: Sequence[Step], sort: str) -> list[Step]:
    """Return steps in the order of a column; what is not known comes last."""
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
    return in_order(steps, columns, sort or "step")


def in_order(rows: Iterable[Row], columns: Mapping[str, Callable[[Row], Any]], sort: str) -> list[Row]:
    """Return rows in the order of a column; an unknown column changes nothing, what is not known comes last."""
    column = columns.get(sort.removeprefix("-"))
    if column is None:
        return list(rows)
    known: list[Row] = []
    unknown: list[Row] = []
    for row in rows:
        (unknown if column(row) is None else known).append(row)
    return [*sorted(known, key=column, reverse=sort.startswith("-")), *unknown]
