"""The options that several commands share."""

from __future__ import annotations

from enum import Enum
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.common import Common

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


class Flag(Enum):
    """A shared option: its parameter name and its click decorator."""

    FORMAT = (
        "output_format",
        click.option(
            "--output-format",
            type=click.Choice(["json", "text"]),
            default="text",
            show_default=True,
            help="text: readable tables; json: a JSON object for programs.",
        ),
    )
    MASTER = ("master", click.option("--master", help="Where Spark runs, such as local[4] or spark://host:7077."))
    CONF = (
        "conf",
        click.option(
            "--conf",
            multiple=True,
            metavar="KEY=VALUE",
            type=Pair("KEY=VALUE", "spark.executor.memory=4g"),
            help="A Spark setting, or an option of Penstock as spark.penstock.KEY. Can be repeated.",
        ),
    )
    CONFIG = (
        "config",
        click.option(
            "--config",
            type=click.Path(exists=True, dir_okay=False),
            metavar="FILE",
            help="A TOML file with options of Penstock.",
        ),
    )
    VERBOSE = (
        "verbose",
        click.option("-v", "--verbose", is_flag=True, help="Show the logs of Spark and Penstock."),
    )

    def __init__(self, parameter: str, option: Decorator) -> None:
        self.parameter = parameter
        self.option = option


SPARK = (Flag.MASTER, Flag.CONF, Flag.CONFIG, Flag.VERBOSE)
"""The options of commands that run queries."""
FILE_SYSTEMS = (Flag.CONF, Flag.VERBOSE)
"""The options of commands that use only Spark's file systems and drivers, in local mode."""


def takes(*flags: Flag) -> Decorator:
    """Add shared options to a command, which receives them as the argument `common`."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def with_common(**arguments: Any) -> None:
            shared = {flag.parameter: arguments.pop(flag.parameter) for flag in flags}
            if Flag.MASTER not in flags:
                shared["master"] = "local[1]"
            command(common=Common(**shared), **arguments)

        decorated: Callable[..., None] = with_common
        for flag in reversed(flags):
            decorated = flag.option(decorated)
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
