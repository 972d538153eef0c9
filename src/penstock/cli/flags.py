"""The options that several commands share, and the page that some of them serve."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import fields
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.common import Common
from penstock.errors import WebError

if TYPE_CHECKING:
    from collections.abc import Callable

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
UI = click.option("--ui", is_flag=True, help="Serve the page and the REST API while it runs; the address is printed.")
KEEP_OPEN = click.option(
    "--keep-open", is_flag=True, help="Serve the page, and keep it open after the end until Ctrl-C."
)
SPARK = (MASTER, CONF, CONFIG, VERBOSE)
"""The options of commands that run queries."""
FILE_SYSTEMS = (CONF, VERBOSE)
"""The options of commands that use only Spark's file systems and drivers, in local mode."""


def takes(*options: Decorator) -> Decorator:
    """Add shared options to a command, which receives their values as the argument `common`."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def with_common(**arguments: Any) -> None:
            names = [field.name for field in fields(Common) if field.name in arguments]
            shared = {"master": "local[1]"} | {name: arguments.pop(name) for name in names}
            command(common=Common(**shared), **arguments)

        decorated: Callable[..., None] = with_common
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return add


def program_command(short_help: str) -> Callable[[Callable[..., None]], click.Command]:
    """Return a decorator for a command that runs a Python file.

    Option parsing stops at the file: all following arguments belong to the program, as after ``python FILE``.
    """
    return click.command(context_settings={"allow_interspersed_args": False}, short_help=short_help)


def takes_program(command: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments ``job`` (the Python file to run) and ``arguments`` (everything after it) to a command."""
    file = click.argument("job", type=click.Path(exists=True, dir_okay=False))
    return file(click.argument("arguments", nargs=-1, type=click.UNPROCESSED)(command))


def serve_page() -> None:
    """Configure all sessions of this process to serve the page; raise `WebError` if a package for it is missing."""
    check_packages()
    os.environ["PENSTOCK_REST_ENABLED"] = "true"


def check_packages() -> None:
    """Raise `WebError` if a package for the page is missing."""
    try:
        import penstock.web.server  # noqa: F401
    except ModuleNotFoundError as error:
        raise WebError.missing(str(error.name)) from error


def stay_open() -> None:
    """Keep serving the page until Ctrl-C."""
    from penstock.entry.observer import page_address

    address = page_address()
    if address is None:
        click.echo("there is no page to keep open: no Spark session was created", err=True)
        return
    click.echo(f"the page stays open until Ctrl-C: {address}", err=True)
    wait_for_termination()


def wait_for_termination() -> None:
    """Wait for Ctrl-C or SIGTERM."""
    terminated = threading.Event()
    handlers = {
        number: signal.signal(number, lambda *_: terminated.set()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        terminated.wait()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
