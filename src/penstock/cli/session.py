"""The options every command shares, and the environment they make."""

from __future__ import annotations

import os
import runpy
import shlex
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.output import OUTPUTS, Output
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame

    from penstock.environment import Environment

FORMAT_OF_ENDING = {".csv": "csv", ".json": "json", ".jsonl": "json", ".orc": "orc", ".txt": "text"}


@dataclass(frozen=True)
class Common:
    """The values of the shared options."""

    output_format: str
    master: str | None
    conf: tuple[tuple[str, str], ...]
    config: str | None

    @contextmanager
    def output(self) -> Iterator[Output]:
        """Give an output, and turn errors into words and exit code 1."""
        output = OUTPUTS[self.output_format]()
        try:
            yield output
        except PenstockError as error:
            output.error(error)
            raise SystemExit(1) from error
        finally:
            output.close()

    def export(self) -> None:
        """Put master, settings and file where `Environment` and PySpark look for them."""
        if self.config:
            os.environ["PENSTOCK_CONFIG"] = self.config
        arguments = ["--master", self.master] if self.master else []
        quiet = [("spark.ui.showConsoleProgress", "false"), ("spark.log.level", "ERROR")]
        for key, value in (*quiet, *self.conf):
            arguments += ["--conf", f"{key}={value}"]
        if not self.master and "MASTER" not in os.environ:
            arguments = ["--master", "local[*]", *arguments]
        os.environ.setdefault("PYSPARK_SUBMIT_ARGS", shlex.join([*arguments, "pyspark-shell"]))

    def environment(self, **config: object) -> Environment:
        """Return an environment over an embedded session."""
        from penstock.environment import Environment

        self.export()
        return Environment(config={key.replace("__", "-"): value for key, value in config.items()})


def common_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the shared options to a command; it gets them as one argument `common`."""

    def with_common(
        output_format: str, master: str | None, conf: tuple[str, ...], config: str | None, **rest: Any
    ) -> None:
        pairs = []
        for text in conf:
            key, equals, value = text.partition("=")
            if not equals:
                raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--conf")
            pairs.append((key, value))
        command(common=Common(output_format, master, tuple(pairs), config), **rest)

    with_common.__name__ = command.__name__
    with_common.__doc__ = command.__doc__
    with_common.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    for option in (
        click.option("--config", type=click.Path(exists=True, dir_okay=False), help="A TOML file with options."),
        click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A Spark setting. Can be repeated."),
        click.option("--master", help="Where Spark runs, such as local[4] or spark://host:7077."),
        click.option(
            "--output-format",
            type=click.Choice(sorted(OUTPUTS)),
            default="text",
            show_default=True,
            help="Tables for people, or one JSON object for programs.",
        ),
    ):
        with_common = option(with_common)
    return with_common


def run_file(path: str, arguments: Sequence[str]) -> None:
    """Run a Python file as `python FILE ARGUMENTS` would."""
    sys.argv = [path, *arguments]
    sys.path.insert(0, str(Path(path).resolve().parent))
    runpy.run_path(path, run_name="__main__")


def register_tables(environment: Environment, tables: tuple[str, ...]) -> None:
    """Make temporary views of ``NAME=PATH`` pairs.

    Raises
    ------
    PenstockError
        If a pair is not one, or there is nothing at the path.
    """
    for text in tables:
        name, equals, path = text.partition("=")
        if not equals or not name or not path:
            raise PenstockError(f"--table {text!r} is not NAME=PATH", hint="for example --table orders=data/orders")
        read_path(environment, path).createOrReplaceTempView(name)


def read_path(environment: Environment, path: str) -> DataFrame:
    """Return the DataFrame of a file or folder, its format found by the ending; parquet where there is none."""
    from penstock.connectors import FileSource

    kind = FORMAT_OF_ENDING.get(Path(path).suffix.lower(), "parquet")
    options = {"header": "true", "inferSchema": "true"} if kind == "csv" else {}
    return FileSource(path, kind, options=options).read(environment.spark)
