"""What is told of a program at its end."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.cli.output import JsonOutput
from penstock.extension.account import left_to_spark
from penstock.scheduler.job import RECENT
from penstock.units import show_count

if TYPE_CHECKING:
    from penstock.cli.output import Output
    from penstock.extension.account import QuerySummary
    from penstock.extension.program import Program


def tell(output: Output, program: Program) -> None:
    """Tell of the jobs of a program's environments, of its queries, and of those that were left to Spark."""
    of_queries = {one.job for one in program.queries}
    for job in list(RECENT):
        if job.id not in of_queries:
            output.job(job)
    if isinstance(output, JsonOutput):
        output.record("queries", {"ran": [asdict(one) for one in program.queries], "planned": program.counts})
        return
    queries = program.queries
    if queries:
        columns = ("query", "job", "state", "steps", "seconds")
        output.rows(columns, [_row(one) for one in queries], "Queries")
        if program.asked > len(queries):
            output.note(f"These are the latest {len(queries):,} of {show_count(program.asked, 'query', 'queries')}.")
    for one in queries[:_EXPLAINED]:
        if one.decided:
            output.note("\n".join([f"What was decided for {one.name}", *(f"- {text}" for text in one.decided)]))
    if len(queries) > _EXPLAINED:
        rest = show_count(len(queries) - _EXPLAINED, "further query", "further queries")
        output.note(
            f"What was decided for {rest}: run with --history DIR, then `penstock history show --history DIR ID`"
        )
    left = left_to_spark(program.left)
    if left:
        output.note(left)


_EXPLAINED = 20
"""Queries whose decisions are told; a program may run hundreds."""


def _row(query: QuerySummary) -> tuple[object, ...]:
    seconds = "-" if query.seconds is None else f"{query.seconds:.1f}"
    return query.name, query.job, query.state.lower(), query.vertices, seconds
