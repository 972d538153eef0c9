"""The command `penstock connect-server`."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import click

from penstock.cli.checks import check_log_folder
from penstock.cli.flags import SPARK, takes
from penstock.cli.page import check_packages, wait_for_the_end
from penstock.errors import PenstockError, SessionError

if TYPE_CHECKING:
    from penstock.cli.common import Common

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@click.command("connect-server", short_help="Serve Spark Connect clients.")
@takes(*SPARK)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address that the server listens at.")
@click.option(
    "--port", default=15002, show_default=True, type=click.IntRange(0, 65535), help="Its port; 0: a free one."
)
@click.option("--token", envvar="SPARK_CONNECT_AUTHENTICATE_TOKEN", help="What clients have to know to connect.")
@click.option("--ui", is_flag=True, help="Serve the page and the REST API beside it; the address is printed.")
@click.option("--history", metavar="DIR", help="Write an event log of every job to this folder.")
def connect_server(common: Common, host: str, port: int, token: str | None, ui: bool, history: str | None) -> None:  # noqa: FBT001
    """Serve Spark Connect clients, and run their queries as jobs.

    Clients need no change and no Java: PyPI's pyspark-client, or a client in any language. A client changes options of
    its own session with spark.conf.set("spark.penstock.KEY", VALUE). The server ends with Ctrl-C or SIGTERM.

    \b
    Examples:
      penstock connect-server --ui
      penstock connect-server --host 0.0.0.0 --token "$TOKEN" --master spark://host:7077
      python -c 'from pyspark.sql import SparkSession
      SparkSession.builder.remote("sc://localhost:15002").getOrCreate().sql("SELECT 1").show()'
    """
    from penstock.spark import connect

    with common.output():
        settings = dict(common.conf)
        host, token = settings.get(connect.ADDRESS, host), token or settings.get(connect.TOKEN)
        port = _checked_port(settings[connect.PORT]) if connect.PORT in settings else port
        if host not in LOOPBACK and not token:
            raise PenstockError(
                f"the address {host} lets other machines in, and there is no token",
                cause="whoever can reach the server can run code on the cluster",
                hint="leave --host out, or give --token TEXT and put a proxy with TLS before the server; clients then "
                "connect to sc://PROXY:PORT/;token=TEXT",
            )
        _check_port(host, port)
        if ui:
            check_packages()
        if history:
            check_log_folder(history)
            os.environ["PENSTOCK_JOBMANAGER_ARCHIVE_FS_DIR"] = history
        with common.spark():
            _serve(common, host, port, token, ui=ui)


def _checked_port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise SessionError(f"the port of the server is {text!r}", hint="give a whole number from 0 to 65535")
    return int(text)


def _check_port(host: str, port: int) -> None:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        raise SessionError(
            f"the server cannot listen on {host}:{port}", cause=error.strerror, hint="give another --host or --port"
        ) from error


def _serve(common: Common, host: str, port: int, token: str | None, *, ui: bool) -> None:
    from penstock.extension.sessions import install
    from penstock.spark import connect
    from penstock.spark.jvm import Bridge
    from penstock.spark.session import embedded_session

    spark = embedded_session(common.master, {**connect.settings(host, port, token), **dict(common.conf)})
    try:
        install(spark, {}, ui=ui or None)
        bridge = Bridge(spark)
        found = connect.start(bridge)
        # Standard output is for what the command says at its end.
        # PySpark's client sends a token without TLS to the name localhost only.
        shown = "localhost" if host in LOOPBACK else host
        click.echo(
            f"Spark Connect clients reach it at sc://{shown}:{found}" + ("/;token=..." if token else ""), err=True
        )
        wait_for_the_end()
        connect.stop(bridge)
    finally:
        spark.stop()
