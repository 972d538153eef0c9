"""The command `penstock run`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from penstock.cli.checks import check_log_folder
from penstock.cli.flags import SPARK, Flag, program_command, takes, takes_program
from penstock.cli.page import KEEP_OPEN, UI, serve_page, stay_open

if TYPE_CHECKING:
    from penstock.cli.common import Common


@program_command("Run a PySpark program, and print the decisions.")
@takes(Flag.FORMAT, *SPARK)
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
        from penstock.cli.programs import report_program
        from penstock.cli.scripts import run_file
        from penstock.extension.program import all_sessions_enabled

        with common.spark(), all_sessions_enabled(progress=sys.stderr.isatty()) as program:
            try:
                with output.redirect_program():
                    run_file(job, arguments)
            finally:
                if not quiet:
                    report_program(output, program)
                if keep_open:
                    stay_open()
