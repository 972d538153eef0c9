"""The commands `penstock ui` and `penstock history`."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from penstock.cli.session import Common, common_options
from penstock.config import Configuration
from penstock.errors import HistoryError, WebError
from penstock.report import record_table

if TYPE_CHECKING:
    from penstock.history.event_log import History

FOLDER = click.option(
    "--history", "folder", required=True, metavar="DIR", help="The folder with the event logs of jobs."
)


def _history(common: Common, folder: str) -> History:
    from penstock.history.event_log import History, LocalFolder

    if urlsplit(folder).scheme in {"", "file"}:
        return History(LocalFolder(folder))
    from penstock.observer import log_folder
    from penstock.spark.jvm import Bridge
    from penstock.spark.session import embedded_session

    common.export()
    return History(log_folder(Bridge(embedded_session()), folder))


@click.command()
@common_options
@FOLDER
@click.option("--port", type=int, help="The port to listen on; 0 means any. Default: the option rest.port.")
@click.option("--address", help="The address to listen on; any other than loopback needs the option rest.token.")
def ui(common: Common, folder: str, port: int | None, address: str | None) -> None:
    """Serve the page and the REST API over the event logs in a folder, without Spark, until Ctrl-C.

    \b
    Example:
      penstock ui --history /logs/penstock --port 8082
    """
    with common.output() as output:
        try:
            from penstock.web.server import WebServer
            from penstock.web.store import JobStore
        except ModuleNotFoundError as error:
            raise WebError.missing(str(error.name)) from error
        logs = _history(common, folder)
        logs.stamp()
        given: dict[str, object] = {"rest.port": port, "rest.bind-address": address}
        chosen = {key: value for key, value in given.items() if value is not None}
        server = WebServer(JobStore(logs), Configuration.load(chosen, file=common.config, environ=os.environ))
        output.note(f"serving {server.url_with_token}")
        server.run()


@click.group()
def history() -> None:
    """Show finished jobs from their event logs."""


@history.command("list")
@common_options
@FOLDER
def list_jobs(common: Common, folder: str) -> None:
    """List all jobs, newest first."""
    with common.output() as output:
        rows = [
            (
                job.id,
                job.name,
                job.state.lower(),
                time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(job.started)),
                "" if job.ended is None else f"{job.ended - job.started:.1f}",
            )
            for job in _history(common, folder).summaries()
        ]
        output.rows(("id", "name", "state", "started", "seconds"), rows)


@history.command()
@common_options
@FOLDER
@click.argument("job_id", metavar="ID")
def show(common: Common, folder: str, job_id: str) -> None:
    """Show job ID: its vertices, their tasks with the reasons, and the changes of the optimizer."""
    from penstock.web.views import job_decisions, job_details

    with common.output() as output:
        record = _history(common, folder).record(job_id)
        if record is None:
            raise HistoryError.no_job(job_id)
        if common.output_format == "json":
            output.record("job", job_details(record, time.time()) | job_decisions(record))
            return
        output.table(record_table(record))
        for change in record.changes:
            output.note(f"{change['what']}: {change['before']} became {change['after']}")
            for reason in change["reasons"]:
                output.note(f"  {reason}")
        for problem in record.exceptions:
            output.note(problem["message"])
