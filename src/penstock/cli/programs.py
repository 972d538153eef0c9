"""The report at the end of a program."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.cli.output import JsonOutput
from penstock.extension.query_summary import left_to_spark
from penstock.scheduler.job import RECENT
from penstock.units import show_count

if TYPE_CHECKING:
    from penstock.cli.output import Output
    from penstock.extension.program import Program
    from penstock.extension.query_summary import QuerySummary


def report_program(output: Output, program: Program) -> None:
    """Show the jobs of a program's environments, its queries, and the queries that Spark ran itself."""
    query_jobs = {query.job for query in program.queries}
    for job in list(RECENT):
        if job.id not in query_jobs:
            output.job(job)
    if isinstance(output, JsonOutput):
        output.record("queries", {"ran": [asdict(query) for query in program.queries], "planned": program.counts})
        return
    queries = program.queries
    if queries:
        columns = ("query", "job", "state", "steps", "seconds")
        output.rows(columns, [_row(query) for query in queries], "Queries")
        if program.query_count > len(queries):
            output.note(
                f"These are the latest {len(queries):,} of {show_count(program.query_count, 'query', 'queries')}."
            )
    for query in queries[:_MAX_EXPLAINED]:
        if query.decided:
            output.note("\n".join([f"Decisions for {query.name}", *(f"- {text}" for text in query.decided)]))
    if len(queries) > _MAX_EXPLAINED:
        rest = show_count(len(queries) - _MAX_EXPLAINED, "further query", "further queries")
        output.note(f"Decisions for {rest}: run with --history DIR, then `penstock history show --history DIR ID`")
    left = left_to_spark(program.left)
    if left:
        output.note(left)


_MAX_EXPLAINED = 20
"""The most queries whose decisions are shown; a program may run hundreds."""


def _row(query: QuerySummary) -> tuple[object, ...]:
    seconds = "-" if query.seconds is None else f"{query.seconds:.1f}"
    return query.name, query.job, query.state.lower(), query.vertices, seconds
