"""The command `penstock doctor`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.checks import as_local_path
from penstock.cli.flags import FORMAT, with_options
from penstock.cli.output import JsonOutput
from penstock.errors import DoctorError

if TYPE_CHECKING:
    from penstock.cli.common import SharedOptions


@click.command(short_help="Say where the time of a Spark application went, from its event log.")
@with_options(FORMAT)
@click.option("--html", "html", metavar="FILE", type=click.Path(dir_okay=False), help="Also write a page to FILE.")
@click.option(
    "--min-seconds",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    help="The least lost seconds of a problem; it must also cost 5 % of the run.",
)
@click.argument("event_log", metavar="EVENTLOG")
def doctor(shared: SharedOptions, event_log: str, html: str | None, min_seconds: float) -> None:
    """Say where the time of a Spark application went, and what Penstock would have decided.

    EVENTLOG is an event log of Spark, of any application: a file, or a folder eventlog_v2_ of a rolling log. It may be
    compressed with zstd, lz4, snappy, gzip or bzip2. No Spark is started.

    \b
    Problems that are detected, worst first:
      skew               a task that runs much longer than the others of its stage
      spill              rows that did not fit into memory
      parallelism        many tiny tasks, or fewer tasks than cores
      single task        all rows of a stage in a single task
      broadcast          a small join side that was shuffled; a large broadcast
      small files        a scan of many small files
      cartesian product  joins that compare all pairs of rows
      recomputation      equal parts of plans that ran several times
      failures           failed tasks and repeated stages
      garbage collection stages that collect garbage for much of their time
      driver             queries that wait for the driver

    \b
    Example:
      penstock doctor /logs/spark/eventlog_v2_application_1733_0042
      penstock doctor --html report.html application_1733_0042.zstd
    """
    from rich.console import Console

    from penstock.doctor.diagnosis import diagnose
    from penstock.doctor.page import page
    from penstock.doctor.report import render

    with shared.output() as output:
        path = as_local_path(event_log)
        if path is None:
            raise DoctorError.remote(event_log)
        diagnosis = diagnose(path, min_seconds)
        if html is not None:
            try:
                Path(html).write_text(page(diagnosis), encoding="utf-8")
            except OSError as error:
                raise DoctorError.unwritable(html, str(error)) from error
        if isinstance(output, JsonOutput):
            output.record("diagnosis", diagnosis.as_dict())
        else:
            Console(width=None if sys.stdout.isatty() else 120, highlight=False).print(render(diagnosis))
