"""What became of the queries of a program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.told import together

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.scheduler.job import Job

TAKEN = "taken"
"""Under which queries are counted that were not left to Spark."""


@dataclass(frozen=True, slots=True)
class QuerySummary:
    """What became of a query.

    Parameters
    ----------
    name
        What the user calls it, else its SQL text in one line, else what PySpark calls it.
    job
        The id of its job.
    state
        How the job ended.
    vertices
        How many it had.
    seconds
        Until its last vertex was ready to give its rows to Spark; None while the job runs.
    decided
        What was decided besides numbers of tasks, and why, a sentence or two for each.
    statement
        The SQL text that it was given as, if it was.
    """

    name: str
    job: str
    state: str
    vertices: int
    seconds: float | None
    decided: tuple[str, ...]
    statement: str | None

    @classmethod
    def of(cls, job: Job) -> QuerySummary:
        """Return the summary of a query's job."""
        decided = tuple(one.text for one in together(job.decisions.told, of_tasks=not job.vertices))
        seconds = None if job.ended is None else job.ended - job.started
        statement = None if job.origin is None else job.origin.statement
        return cls(job.name, job.id, job.state.value, len(job.vertices), seconds, decided, statement)


def left_to_spark(left: Mapping[str, int]) -> str:
    """Return how many queries Spark ran itself, and why; empty if there was none."""
    if not left:
        return ""
    reasons = ", ".join(f"{count:,} {why}" for why, count in sorted(left.items(), key=lambda one: -one[1]))
    return f"left to Spark: {reasons}"
