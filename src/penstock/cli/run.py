"""The command `penstock run`, and the report at the end of a program."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from penstock.base.units import show_count
from penstock.cli.checks import check_log_folder
from penstock.cli.flags import (
    FORMAT,
    KEEP_OPEN,
    SPARK,
    UI,
    program_command,
    serve_page,
    stay_open,
    takes,
    takes_program,
)
from penstock.cli.output import JsonOutput, Output

if TYPE_CHECKING:
    from penstock.cli.common import Common
    from penstock.extension.program import Program, QuerySummary

_MAX_EXPLAINED = 20
"""The most queries whose decisions are shown; a program may run hundreds."""


@program_command("Run a PySpark program, and print the decisions.")
@takes(FORMAT, *SPARK)
@click.option("--quiet", is_flag=True, help="Do not print the decisions.")
@UI
@KEEP_OPEN
@click.option("--history", metavar="DIR", help="Write an event log of every job to this folder.")
@takes_program
def run(
    common: Common,
    quiet: bool,  # noqa: FBT001
    ui: bool,  # noqa: FBT001
    keep_open: bool,  # noqa: FBT001
    history: str | None,
    job: str,
    arguments: tuple[str, ...],
) -> None:
    """Run the Python file JOB, any PySpark program, and print the decisions for its queries.

    JOB runs as with `python JOB ARGUMENTS`, and its exit code is returned. Options of this command come before JOB; all
    arguments after JOB belong to the program. The program needs no change: the queries of all Spark sessions that it
    creates run as jobs, and its own session settings apply. Jobs of an Environment are printed with their steps.

    \b
    Examples:
      penstock run --master spark://host:7077 revenue.py 2026-11
      penstock run --conf spark.penstock.execution.batch.adaptive.whole-query-threshold=8mb nightly.py
      penstock run --keep-open revenue.py 2026-11
    """
    with common.output() as output:
        if history:
            check_log_folder(history)
            os.environ["PENSTOCK_JOBMANAGER_ARCHIVE_FS_DIR"] = history
        if ui or keep_open:
            serve_page()
        common.check()
        from penstock.cli.scripts import run_file
        from penstock.extension.program import all_sessions_enabled

        with common.spark(), all_sessions_enabled(progress=sys.stderr.isatty()) as program:
            try:
                with output.redirect_program():
                    run_file(job, arguments)
            finally:
                if not quiet:
                    _report(output, program)
                if keep_open:
                    stay_open()


def _report(output: Output, program: Program) -> None:
    """Show the jobs of a program's environments, its queries, and the queries that Spark ran itself."""
    from penstock.scheduler.job import RECENT

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
    left = sorted(program.left.items(), key=lambda entry: -entry[1])
    if left:
        output.note(f"left to Spark: {', '.join(f'{count:,} {reason}' for reason, count in left)}")


def _row(query: QuerySummary) -> tuple[object, ...]:
    seconds = "-" if query.seconds is None else f"{query.seconds:.1f}"
    return query.name, query.job, query.state.lower(), query.vertices, seconds
