"""The command `penstock connect-server`."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from penstock.base.addresses import is_loopback
from penstock.cli.checks import check_log_folder
from penstock.cli.flags import QUERY_OPTIONS, check_web_packages, wait_for_termination, with_options
from penstock.errors import PenstockError, SessionError

if TYPE_CHECKING:
    from penstock.cli.common import SharedOptions

_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
"""The environment variable from which Spark's server and PySpark's client read the token by default."""


@click.command("connect-server", short_help="Serve Spark Connect clients.")
@with_options(*QUERY_OPTIONS)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", default=15002, show_default=True, type=click.IntRange(0, 65535), help="The port; 0 for a free port."
)
@click.option("--token", envvar=_VARIABLE, help="The token that clients must send. Default: a random token.")
@click.option("--no-token", is_flag=True, help="Accept every user of this machine; only on loopback addresses.")
@click.option("--ui", is_flag=True, help="Also serve the web page and the REST API; their address is printed.")
@click.option("--history", metavar="DIR", help="Write an event log of every job to this folder.")
def connect_server(
    shared: SharedOptions,
    host: str,
    port: int,
    token: str | None,
    no_token: bool,  # noqa: FBT001
    ui: bool,  # noqa: FBT001
    history: str | None,
) -> None:
    """Serve Spark Connect clients, and run their queries as jobs.

    Clients need no change and no Java: use pyspark-client from PyPI, or a client in another language. A client sets
    the options of its session with spark.conf.set("spark.penstock.KEY", VALUE). Ctrl-C or SIGTERM ends the server.

    Clients can run code as the user of the server, so they need a token. The command prints the address with a random
    token. To use your own token, set the environment variable SPARK_CONNECT_AUTHENTICATE_TOKEN, which other users
    cannot read; PySpark's clients read it, too.

    \b
    Examples:
      penstock connect-server --ui
      SPARK_CONNECT_AUTHENTICATE_TOKEN=... penstock connect-server --host 0.0.0.0 --master spark://host:7077
      python -c 'from pyspark.sql import SparkSession
      SparkSession.builder.remote("sc://localhost:15002/;token=...").getOrCreate().sql("SELECT 1").show()'
    """
    from penstock.spark.bridge import connect

    with shared.output():
        settings = dict(shared.conf)
        host, token = settings.get(connect.ADDRESS, host), token or settings.get(connect.TOKEN)
        _hide_token(token)
        if token and no_token:
            raise click.UsageError(f"--no-token contradicts the token from --token, {_VARIABLE} or --conf")
        shared = replace(shared, conf=tuple(pair for pair in shared.conf if pair[0] != connect.TOKEN))
        port = _parse_port(settings[connect.PORT]) if connect.PORT in settings else port
        if not is_loopback(host) and not token:
            raise PenstockError(
                f"other machines can reach the address {host}, and there is no token",
                cause="every client that reaches the server can run code on the cluster",
                hint=f"omit --host, or set {_VARIABLE} (or --token TEXT) and put a proxy with TLS in front of the "
                "server; clients then connect to sc://PROXY:PORT/;token=TEXT",
            )
        _check_can_listen(host, port)
        if ui:
            check_web_packages()
        if history:
            check_log_folder(history)
            os.environ["PENSTOCK_JOBMANAGER_ARCHIVE_FS_DIR"] = history
        with shared.spark():
            is_random = not token and not no_token
            _serve(shared, host, port, secrets.token_urlsafe(18) if is_random else token, is_random=is_random, ui=ui)


def _hide_token(token: str | None) -> None:
    """If the command line has a token, restart with the token in the environment, which other users cannot read."""
    command = without_token(sys.orig_argv)
    if command != sys.orig_argv and sys.executable and os.name == "posix":
        os.execve(sys.executable, command, {**os.environ, _VARIABLE: token or ""})  # noqa: S606 - the same command


def without_token(command: Sequence[str]) -> list[str]:
    """Return a command line without the token option and the token setting.

    >>> without_token(["penstock", "connect-server", "--token", "x", "--ui"])
    ['penstock', 'connect-server', '--ui']
    """
    from penstock.spark.bridge.connect import TOKEN

    remaining: list[str] = []
    arguments = iter(command)
    for argument in arguments:
        option, equals, value = argument.partition("=")
        # Arguments before the name of the command belong to Python or to `penstock`.
        if "connect-server" not in remaining or option not in {"--token", "--conf"}:
            remaining.append(argument)
            continue
        text = value if equals else next(arguments, "")
        if option == "--conf" and text.partition("=")[0].strip() != TOKEN:
            remaining += [argument] if equals else [argument, text]
    return remaining


def _parse_port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise SessionError(f"the port of the server is not valid: {text!r}", hint="use a whole number from 0 to 65535")
    return int(text)


def _check_can_listen(host: str, port: int) -> None:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        raise SessionError(
            f"the server cannot listen on {host}:{port}", cause=error.strerror, hint="pass another --host or --port"
        ) from error


def _serve(shared: SharedOptions, host: str, port: int, token: str | None, *, is_random: bool, ui: bool) -> None:
    """Serve until the process is terminated; if `token` is None, every client is accepted.

    `is_random` says whether this command generated `token`. A generated token is printed in the address, unless a token
    in ``spark-defaults.conf`` overrides it. A token of the user overrides that setting, and is not printed.
    """
    from penstock.extension.sessions import install
    from penstock.spark.bridge import connect
    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.bridge.session import embedded_session

    os.environ.pop(_VARIABLE, None)
    if token:
        os.environ[_VARIABLE] = token
    spark = embedded_session(shared.master, {**connect.settings(host, port), **dict(shared.conf)})
    try:
        install(spark, {}, ui=ui or None)  # None: as the option rest.enabled says
        bridge = Bridge(spark)
        if not is_random:
            connect.ignore_default_token(bridge)
        shows_token = is_random and not connect.has_default_token(bridge)
        bound_port = connect.start(bridge)
        # Without TLS, PySpark's client sends a token only to the host name localhost.
        address = f"sc://{'localhost' if is_loopback(host) else host}:{bound_port}"
        suffix = f"/;token={token if shows_token else '...'}" if token else ", without a token"
        # Standard output is for results only.
        click.echo(f"Spark Connect clients reach the server at {address}{suffix}", err=True)
        wait_for_termination()
        connect.stop(bridge)
    finally:
        spark.stop()
