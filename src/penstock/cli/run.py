"""The command `penstock run`, and the report at the end of a program."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from penstock.base.units import show_count
from penstock.cli.checks import check_log_folder
from penstock.cli.flags import (
    FORMAT,
    KEEP_OPEN,
    QUERY_OPTIONS,
    UI,
    enable_page,
    keep_page_open,
    program_arguments,
    program_command,
    with_options,
)
from penstock.cli.output import JsonOutput, Output

if TYPE_CHECKING:
    from penstock.cli.common import SharedOptions
    from penstock.extension.program import Program, QuerySummary

_MAX_QUERIES_WITH_DECISIONS = 20
"""The maximum number of queries whose decisions are shown; a program may run hundreds of queries."""
_MAX_NAMES = 5
"""The maximum number of queries that are named in a line."""


@program_command("Run a PySpark program, and print the decisions.")
@with_options(FORMAT, *QUERY_OPTIONS)
@click.option("--quiet", is_flag=True, help="Do not print the decisions.")
@UI
@KEEP_OPEN
@click.option("--history", metavar="DIR", help="Write an event log of every job to this folder.")
@program_arguments
def run(
    shared: SharedOptions,
    quiet: bool,  # noqa: FBT001
    ui: bool,  # noqa: FBT001
    keep_open: bool,  # noqa: FBT001
    history: str | None,
    program_file: str,
    arguments: tuple[str, ...],
) -> None:
    """Run the Python file PROGRAM, which may be any PySpark program, and print the decisions for its queries.

    PROGRAM runs as with `python PROGRAM ARGUMENTS`, and its exit code is returned. Options of this command come before
    PROGRAM; all arguments after it belong to the program. The program needs no change: the queries of all Spark
    sessions that it creates run as jobs, with its settings. Jobs of an Environment are printed with their steps.

    \b
    Examples:
      penstock run --master spark://host:7077 revenue.py 2026-11
      penstock run --conf spark.penstock.execution.batch.adaptive.whole-query-threshold=8mb nightly.py
      penstock run --keep-open revenue.py 2026-11
    """
    with shared.output() as output:
        if history:
            check_log_folder(history)
            os.environ["PENSTOCK_JOBMANAGER_ARCHIVE_FS_DIR"] = history
        if ui or keep_open:
            enable_page()
        shared.check()
        from penstock.cli.scripts import run_file
        from penstock.extension.program import all_sessions_enabled

        with shared.spark(), all_sessions_enabled(progress=sys.stderr.isatty()) as program:
            try:
                with output.redirect_program():
                    run_file(program_file, arguments)
            finally:
                if not quiet:
                    _report(output, program)
                if keep_open and not isinstance(sys.exception(), KeyboardInterrupt):
                    keep_page_open()


def _report(output: Output, program: Program) -> None:
    """Show the jobs of a program's environments, its queries, and the number of queries that Spark ran itself."""
    from penstock.scheduler.job import RECENT  # the latest jobs of this process

    query_jobs = {query.job for query in program.queries}
    for job in list(RECENT):
        if job.id not in query_jobs:
            output.job(job)
    if isinstance(output, JsonOutput):
        # "planned" has the number of queries that Penstock runs ("taken"), and of those that Spark runs, by reason.
        output.record("queries", {"ran": [query.as_dict() for query in program.queries], "planned": program.counts})
        return
    queries = program.queries
    if queries:
        columns = ("query", "job", "state", "steps", "seconds")
        output.rows(columns, [_row(query) for query in queries], "Queries")
        if program.query_count > len(queries):
            output.note(
                f"These are the latest {len(queries):,} of {show_count(program.query_count, 'query', 'queries')}."
            )
    for query in [query for query in queries[:_MAX_QUERIES_WITH_DECISIONS] if query.decisions]:
        output.note("\n".join([f"Decisions for {query.name}", *(f"- {text}" for text in query.decisions)]))
    if unchanged := list(dict.fromkeys(query.name for query in queries if query.keeps_plan)):
        output.note(_unchanged_text(unchanged))
    if len(queries) > _MAX_QUERIES_WITH_DECISIONS:
        remaining = show_count(len(queries) - _MAX_QUERIES_WITH_DECISIONS, "further query", "further queries")
        output.note(f"Decisions for {remaining}: run with --history DIR, then `penstock history show --history DIR ID`")
    run_by_spark = sorted(program.run_by_spark_counts.items(), key=lambda reason_and_count: -reason_and_count[1])
    if run_by_spark:
        output.note(f"run by Spark: {', '.join(f'{count:,} {reason}' for reason, count in run_by_spark)}")


def _unchanged_text(names: list[str]) -> str:
    listed = ", ".join(names[:_MAX_NAMES]) + (", ..." if names[_MAX_NAMES:] else "")
    text = f"Nothing needed a different plan than Spark's, only numbers of tasks: {listed}."
    return f"{text} `penstock verify` measures the time of plain Spark."


def _row(query: QuerySummary) -> tuple[object, ...]:
    seconds = "-" if query.seconds is None else f"{query.seconds:.1f}"
    return query.name, query.job, query.state.lower(), query.vertices, seconds
