"""Summaries of the queries of a program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.recorded_decisions import displayed_decisions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.scheduler.job import Job

RUN_BY_PENSTOCK = "taken"
"""The key under which Spark's planner counts the queries that Penstock runs."""


@dataclass(frozen=True, slots=True)
class QuerySummary:
    """Summary of a query.

    Parameters
    ----------
    name
        The user's name of the query, else its SQL text on a single line, else PySpark's name of the action.
    seconds
        Seconds until the last vertex could return rows to Spark; None while the job runs.
    decided
        The decisions other than numbers of tasks, with reasons.
    statement
        The SQL text of the query, None for a DataFrame action.
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
        decided = tuple(
            decision.text for decision in displayed_decisions(job.decisions.records, with_parallelism=not job.vertices)
        )
        seconds = None if job.ended is None else job.ended - job.started
        statement = None if job.origin is None else job.origin.statement
        return cls(job.name, job.id, job.state.value, len(job.vertices), seconds, decided, statement)


def left_to_spark(reason_counts: Mapping[str, int]) -> str:
    """Return how many queries Spark ran itself, by reason, most frequent first; empty if there were none."""
    if not reason_counts:
        return ""
    by_count = sorted(reason_counts.items(), key=lambda entry: -entry[1])
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in by_count)
    return f"left to Spark: {reasons}"
