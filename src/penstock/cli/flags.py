"""The options that several commands share, and the web page that some of them serve."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.common import SharedOptions
from penstock.errors import WebError

if TYPE_CHECKING:
    Decorator = Callable[[Callable[..., None]], Callable[..., None]]


class Pair(click.ParamType):  # type: ignore[type-arg]  # older releases of click have no type arguments
    """A parameter type: two texts separated by an equals sign."""

    def __init__(self, name: str, example: str) -> None:
        self.name = name
        self._example = example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Return the two texts."""
        if isinstance(value, tuple):
            return value
        left, equals, right = str(value).partition("=")
        if not equals or not left.strip() or not right:
            self.fail(f"{value!r} is not {self.name}; write for example {self._example}", param, ctx)
        return left.strip(), right


TABLE = click.option(
    "--table",
    "tables",
    multiple=True,
    metavar="NAME=PATH",
    type=Pair("NAME=PATH", "orders=data/orders.parquet"),
    help="A table: a file or folder. Can be repeated.",
)


FORMAT = click.option(
    "--output-format",
    type=click.Choice(["json", "text"]),
    default="text",
    show_default=True,
    help="text: readable tables; json: a JSON object for programs.",
)
MASTER = click.option("--master", help="Where Spark runs, such as local[4] or spark://host:7077.")
CONF = click.option(
    "--conf",
    multiple=True,
    metavar="KEY=VALUE",
    type=Pair("KEY=VALUE", "spark.executor.memory=4g"),
    help="A Spark setting, or an option of Penstock as spark.penstock.KEY. Can be repeated.",
)
CONFIG = click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="A TOML file with options of Penstock.",
)
VERBOSE = click.option("-v", "--verbose", is_flag=True, help="Show the logs of Spark and Penstock.")
UI = click.option("--ui", is_flag=True, help="Serve the web page and the REST API meanwhile; the address is printed.")
KEEP_OPEN = click.option(
    "--keep-open", is_flag=True, help="Serve the web page, and keep serving it after the end until Ctrl-C."
)
QUERY_OPTIONS = (MASTER, CONF, CONFIG, VERBOSE)
"""The options of commands that run queries."""
FILE_SYSTEM_OPTIONS = (CONF, VERBOSE)
"""The options of commands that need only Spark's file systems and JDBC drivers. Without `MASTER`, Spark is local."""


def with_options(*options: Decorator) -> Decorator:
    """Add shared options to a command, which gets their values as the argument `shared`."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def with_shared_options(**arguments: Any) -> None:
            names = [field.name for field in fields(SharedOptions) if field.name in arguments]
            # Commands without the option --master need only Spark's file systems and JDBC drivers: local mode suffices.
            values = {"master": "local[1]"} | {name: arguments.pop(name) for name in names}
            command(shared=SharedOptions(**values), **arguments)

        decorated: Callable[..., None] = with_shared_options
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return add


def program_command(short_help: str) -> Callable[[Callable[..., None]], click.Command]:
    """Return a decorator for a command that runs a Python file.

    Option parsing stops at the file: all following arguments belong to the program, as after ``python FILE``.
    """
    return click.command(context_settings={"allow_interspersed_args": False}, short_help=short_help)


def program_arguments(command: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments `program_file` (the Python file to run) and `arguments` (everything after it) to a command."""
    file = click.argument("program_file", metavar="PROGRAM", type=click.Path(exists=True, dir_okay=False))
    return file(click.argument("arguments", nargs=-1, type=click.UNPROCESSED)(command))


def enable_page() -> None:
    """Let the sessions of this process serve the web page; raise `WebError` if a package for it is missing."""
    check_web_packages()
    os.environ["PENSTOCK_REST_ENABLED"] = "true"


def check_web_packages() -> None:
    """Raise `WebError` if a package for the web page is missing."""
    try:
        import penstock.web.server  # noqa: F401
    except ModuleNotFoundError as error:
        raise WebError.missing(str(error.name)) from error


def keep_page_open() -> None:
    """Keep serving the web page until Ctrl-C or SIGTERM; return at once if no page is served."""
    from penstock.entry.observer import page_address

    address = page_address()
    if address is None:
        click.echo("there is no web page to keep open: no Spark session was created", err=True)
        return
    click.echo(f"the web page stays open until Ctrl-C: {address}", err=True)
    wait_for_termination()


def wait_for_termination() -> None:
    """Wait for Ctrl-C or SIGTERM."""
    terminated = threading.Event()
    earlier_handlers = {
        number: signal.signal(number, lambda *_: terminated.set()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        terminated.wait()
    finally:
        for number, handler in earlier_handlers.items():
            signal.signal(number, handler)
