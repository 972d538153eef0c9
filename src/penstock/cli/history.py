"""The commands `penstock ui` and `penstock history`."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import click

from penstock.cli.checks import check_settings, local
from penstock.cli.flags import FILE_SYSTEMS, Flag, takes
from penstock.cli.page import check_packages
from penstock.errors import HistoryError

if TYPE_CHECKING:
    from penstock.cli.common import Common
    from penstock.history.logs import History

FOLDER = click.option(
    "--history", "folder", required=True, metavar="DIR", help="The folder with the event logs of jobs."
)


def _history(common: Common, folder: str) -> History:
    from penstock.history.event_log import LocalFolder
    from penstock.history.logs import History

    check_settings(common.conf, common.config)
    if local(folder) is not None:
        return History(LocalFolder(folder))
    from penstock.observer import log_folder
    from penstock.spark.jvm import Bridge
    from penstock.spark.session import embedded_session

    with common.spark() as thread:
        return History(thread.call(lambda: log_folder(Bridge(embedded_session()), folder)))


def _job_id(logs: History, prefix: str) -> str:
    """Return the id of the one job whose id begins with a text.

    Raises
    ------
    HistoryError
        If there is none, or several.
    """
    found = logs.ids(prefix)
    if not found:
        raise HistoryError.no_job(prefix)
    if len(found) > 1:
        raise HistoryError.several_jobs(prefix, found)
    return found[0]


@click.command(short_help="Serve the page over event logs, without Spark.")
@takes(*FILE_SYSTEMS, Flag.CONFIG)
@FOLDER
@click.option("--port", type=click.IntRange(0, 65535), help="The port; 0 means any. Default: rest.port.")
@click.option("--address", help="The address to listen on; any other than loopback needs the option rest.token.")
def ui(common: Common, folder: str, port: int | None, address: str | None) -> None:
    """Serve the page and the REST API over the event logs in a folder, without Spark, until Ctrl-C.

    \b
    Example:
      penstock ui --history /logs/penstock --port 8082
    """
    with common.output() as output:
        logs = _history(common, folder)
        logs.stamp()
        check_packages()
        from penstock.config import Configuration
        from penstock.web.server import WebServer
        from penstock.web.store import JobStore

        given: dict[str, object] = {"rest.port": port, "rest.bind-address": address}
        chosen = {key: value for key, value in given.items() if value is not None}
        config = Configuration.load(chosen, spark_conf=dict(common.conf), file=common.config, environ=os.environ)
        server = WebServer(JobStore(logs), config)
        output.note(f"serving {server.url_with_token}")
        server.run()


@click.group()
def history() -> None:
    """Show finished jobs from their event logs."""


@history.command("list")
@takes(Flag.FORMAT, *FILE_SYSTEMS)
@FOLDER
def list_jobs(common: Common, folder: str) -> None:
    """List all jobs, newest first.

    \b
    Example:
      penstock history list --history /logs/penstock
    """
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
@takes(Flag.FORMAT, *FILE_SYSTEMS)
@FOLDER
@click.argument("job_id", metavar="ID")
def show(common: Common, folder: str, job_id: str) -> None:
    """Show job ID: its steps, their tasks with the reasons, and what was decided.

    The first letters of an id are enough, where no other job's id begins with them.

    \b
    Example:
      penstock history show --history /logs/penstock 5e09
    """
    from penstock.history.told import told
    from penstock.report import record_table
    from penstock.told import together
    from penstock.web.views import job_decisions, job_details

    with common.output() as output:
        logs = _history(common, folder)
        record = logs.record(_job_id(logs, job_id))
        if record is None:
            raise HistoryError.no_job(job_id)
        if common.output_format == "json":
            output.record("job", job_details(record, time.time()) | job_decisions(record))
            return
        output.table(record_table(record))
        for decision in together(told(record), of_tasks=False):
            output.note(f"- {decision.text}")
        for problem in record.exceptions:
            output.note(problem["message"])
