"""The commands `penstock ui` and `penstock history`."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import click

from penstock.base.units import show_count
from penstock.cli.checks import as_local_path, check_checkpoint, check_settings
from penstock.cli.flags import CONFIG, FILE_SYSTEM_OPTIONS, FORMAT, check_web_packages, with_options
from penstock.cli.stream import text_files_at
from penstock.errors import HistoryError

if TYPE_CHECKING:
    from rich.table import Table

    from penstock.cli.common import SharedOptions
    from penstock.history.event_log import LogFolder
    from penstock.history.logs import History
    from penstock.history.record import JobRecord

FOLDER = click.option(
    "--history", "folder", required=True, metavar="DIR", help="The folder with the event logs of jobs."
)


def _log_folder(shared: SharedOptions, folder: str) -> LogFolder:
    from penstock.history.event_log import LocalFolder

    check_settings(shared.conf, shared.config)
    if as_local_path(folder) is not None:
        return LocalFolder(folder)
    from penstock.entry.observer import log_folder

    return shared.on_spark(lambda bridge: log_folder(bridge, folder))


def _history(shared: SharedOptions, folder: str) -> History:
    from penstock.history.logs import History

    return History(_log_folder(shared, folder))


def _job_id(history: History, prefix: str) -> str:
    """Return the id of the only job whose id begins with a prefix; raise `HistoryError` if none or several do."""
    job_ids = history.ids(prefix)
    if not job_ids:
        raise HistoryError.no_job(prefix)
    if len(job_ids) > 1:
        shown = ", ".join(job_ids[:5]) + (", ..." if len(job_ids) > 5 else "")
        message = f"{len(job_ids)} jobs have an id that begins with {prefix!r}"
        raise HistoryError(message, cause=shown, hint="pass more of the id")
    return job_ids[0]


@click.command(short_help="Serve the web page from event logs, without a running job.")
@with_options(*FILE_SYSTEM_OPTIONS, CONFIG)
@click.option("--history", "folder", metavar="DIR", help="The folder with the event logs of jobs.")
@click.option(
    "--stream",
    "checkpoints",
    multiple=True,
    metavar="CHECKPOINT",
    help="The checkpoint of a stream that reads a topic, to show its batches. Can be repeated.",
)
@click.option("--port", type=click.IntRange(0, 65535), help="The port; 0 for a free port. Default: rest.port.")
@click.option("--address", help="The address to listen on; addresses other than loopback need the option rest.token.")
def ui(
    shared: SharedOptions, folder: str | None, checkpoints: tuple[str, ...], port: int | None, address: str | None
) -> None:
    """Serve the web page and the REST API from event logs and checkpoints until Ctrl-C.

    No job has to run. Spark is started only to read folders that are not local.

    \b
    Example:
      penstock ui --history /logs/penstock --port 8082
      penstock ui --stream /checkpoints/orders
    """
    if folder is None and not checkpoints:
        raise click.UsageError("pass --history, --stream or both")
    with shared.output() as output:
        logs = None if folder is None else _history(shared, folder)
        if logs is not None:
            logs.list_logs()  # raises `HistoryError` for a missing folder
        for checkpoint in checkpoints:
            check_checkpoint(checkpoint)
        streams = [text_files_at(shared, checkpoint) for checkpoint in checkpoints]
        check_web_packages()
        from penstock.config import Configuration
        from penstock.web.server import WebServer
        from penstock.web.store import JobStore

        flags: dict[str, object] = {"rest.port": port, "rest.bind-address": address}
        overrides = {key: value for key, value in flags.items() if value is not None}
        config = Configuration.load(overrides, spark_conf=dict(shared.conf), file=shared.config, environ=os.environ)
        server = WebServer(JobStore(logs), config, streams=streams)
        output.note(f"serving {server.url_with_token}")
        server.run()


@click.group()
def history() -> None:
    """Show finished jobs from their event logs."""


@history.command("list")
@with_options(FORMAT, *FILE_SYSTEM_OPTIONS)
@FOLDER
def list_jobs(shared: SharedOptions, folder: str) -> None:
    """List all jobs, newest first.

    \b
    Example:
      penstock history list --history /logs/penstock
    """
    with shared.output() as output:
        rows = [
            (
                job.id,
                job.name,
                job.state.lower(),
                time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(job.started)),
                "" if job.ended is None else f"{job.ended - job.started:.1f}",
            )
            for job in _history(shared, folder).summaries()
        ]
        output.rows(("id", "name", "state", "started", "seconds"), rows)


@history.command()
@with_options(FORMAT, *FILE_SYSTEM_OPTIONS)
@FOLDER
@click.option("--older-than", metavar="DURATION", help="Remove logs whose last line is older, such as 30d.")
@click.option(
    "--larger-than", metavar="SIZE", help="Remove the oldest logs until the others have at most this total size: 10gb."
)
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
def clean(
    shared: SharedOptions, folder: str, older_than: str | None, larger_than: str | None, *, dry_run: bool
) -> None:
    """Remove old event logs. Logs of running jobs and other files are not removed.

    Drivers do this automatically with historyserver.archive.retained-ttl and historyserver.archive.retained-size.

    \b
    Example:
      penstock history clean --history /logs/penstock --older-than 30d --dry-run
    """
    from penstock.config import Configuration
    from penstock.config import options as o
    from penstock.history.retention import Retention, RetentionLimits

    if older_than is None and larger_than is None:
        raise click.UsageError("Pass --older-than, --larger-than, or both.")
    with shared.output() as output:
        flags = {o.RETAINED_TTL.key: older_than, o.RETAINED_SIZE.key: larger_than}
        config = Configuration.load({key: value for key, value in flags.items() if value is not None})
        limits = RetentionLimits(config.maybe_seconds(o.RETAINED_TTL), config.maybe_integer(o.RETAINED_SIZE))
        removed = Retention(_log_folder(shared, folder), limits, folder).apply(dry_run=dry_run)
        output.rows(("log", "bytes"), [(name, size) for name, size, _ in removed])
        verb = "would be" if dry_run else "was" if len(removed) == 1 else "were"
        output.note(f"{show_count(len(removed), 'log')} {verb} removed")


@history.command()
@with_options(FORMAT, *FILE_SYSTEM_OPTIONS)
@FOLDER
@click.argument("job_id", metavar="ID")
def show(shared: SharedOptions, folder: str, job_id: str) -> None:
    """Show job ID: its steps, their numbers of tasks with the reasons, and the decisions.

    The first letters of an id are enough if they are unambiguous.

    \b
    Example:
      penstock history show --history /logs/penstock 5e09
    """
    from penstock.decisions.record import displayed_decisions
    from penstock.web.views import job_decisions, job_details

    with shared.output() as output:
        logs = _history(shared, folder)
        record = logs.record(_job_id(logs, job_id))
        if record is None:
            raise HistoryError.no_job(job_id)
        if shared.output_format == "json":
            output.record("job", job_details(record, time.time()) | job_decisions(record))
            return
        output.table(_table(record))
        for decision in displayed_decisions(record.decisions, with_parallelism=False):  # which the table shows
            output.note(f"- {decision.text}")
        for error in record.exceptions:
            output.note(error.message)


def _table(record: JobRecord) -> Table:
    """Return a table of the vertices of a recorded job, like `Job.table`."""
    from penstock.base.tables import VertexRow, vertices_table

    rows = (
        VertexRow(
            vertex.id,
            vertex.display_name,
            vertex.bytes_in,
            vertex.parallelism,
            vertex.reason,
            0.0 if vertex.started is None or vertex.ended is None else vertex.ended - vertex.started,
            vertex.rows_out,
            vertex.bytes_out,
        )
        for vertex in record.vertices.values()
    )
    notes = (decision.text for decision in record.decisions)
    return vertices_table(f"{record.name}: {record.state.lower()}", rows, notes)
