"""What is told of a program at its end."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.cli.output import JsonOutput
from penstock.extension.account import left_to_spark
from penstock.scheduler.job import RECENT

if TYPE_CHECKING:
    from penstock.cli.output import Output
    from penstock.extension.account import QuerySummary
    from penstock.extension.program import Program


def tell(output: Output, program: Program) -> None:
    """Tell of the jobs of a program's environments, of its queries, and of those that were left to Spark."""
    of_queries = {one.job for one in program.queries}
    for job in RECENT:
        if job.id not in of_queries:
            output.job(job)
    if isinstance(output, JsonOutput):
        output.record("queries", {"ran": [asdict(one) for one in program.queries], "planned": program.counts})
        return
    if program.queries:
        columns = ("query", "job", "state", "vertices", "seconds", "decided besides numbers of tasks")
        output.rows(columns, [_row(one) for one in program.queries], "Queries")
    left = left_to_spark(program.counts)
    if left:
        output.note(left)


def _row(query: QuerySummary) -> tuple[object, ...]:
    decided = ", ".join(kind if count == 1 else f"{count} x {kind}" for kind, count in query.decided.items())
    seconds = "-" if query.seconds is None else f"{query.seconds:.1f}"
    return query.name, query.job, query.state.lower(), query.vertices, seconds, decided
