"""The options that several commands share, each for those commands in which it means something."""

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
    """Two texts with an equals sign between them."""

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
    """An option that several commands share, and how click knows it."""

    FORMAT = (
        "output_format",
        click.option(
            "--output-format",
            type=click.Choice(["json", "text"]),
            default="text",
            show_default=True,
            help="Tables for people, or one JSON object for programs.",
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
        click.option("-v", "--verbose", is_flag=True, help="Show what Spark and Penstock log."),
    )

    def __init__(self, parameter: str, option: Decorator) -> None:
        self.parameter = parameter
        self.option = option


SPARK = (Flag.MASTER, Flag.CONF, Flag.CONFIG, Flag.VERBOSE)
"""Of commands that run queries."""
FILE_SYSTEMS = (Flag.CONF, Flag.VERBOSE)
"""Of commands that need Spark for its file systems and drivers only; it runs in their own process."""


def takes(*flags: Flag) -> Decorator:
    """Add shared options to a command, which gets all of them as one argument `common`."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def with_common(**given: Any) -> None:
            chosen = {flag.parameter: given.pop(flag.parameter) for flag in flags}
            if Flag.MASTER not in flags:
                chosen["master"] = "local[1]"
            command(common=Common(**chosen), **given)

        decorated: Callable[..., None] = with_common
        for flag in reversed(flags):
            decorated = flag.option(decorated)
        return decorated

    return add


def program_command(short_help: str) -> Callable[[Callable[..., None]], click.Command]:
    """Return a decorator for a command that runs a Python file.

    Parsing stops at the file: whatever follows belongs to the program, as after ``python FILE``.
    """
    return click.command(context_settings={"allow_interspersed_args": False}, short_help=short_help)


def takes_program(command: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments ``job``, the Python file to run, and ``arguments``, everything after it, to a command."""
    file = click.argument("job", type=click.Path(exists=True, dir_okay=False))
    return file(click.argument("arguments", nargs=-1, type=click.UNPROCESSED)(command))
