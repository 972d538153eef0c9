"""The values of the shared options, and the Spark session that they configure."""

from __future__ import annotations

import logging
import os
import shlex
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.cli.checks import check_master, check_settings
from penstock.cli.output import OUTPUTS
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.cli.output import Output
    from penstock.cli.spark_thread import SparkThread
    from penstock.environment import Environment

QUIET = (("spark.ui.showConsoleProgress", "false"), ("spark.log.level", "ERROR"))

_SHELL = "pyspark-shell"
"""The resource that spark-submit runs to start only a JVM for Python."""


@dataclass(frozen=True, slots=True)
class Common:
    """The values of the shared options; options that a command does not have keep their defaults."""

    output_format: str = "text"
    master: str | None = None
    conf: tuple[tuple[str, str], ...] = ()
    config: str | None = None
    verbose: bool = False

    @contextmanager
    def output(self) -> Iterator[Output]:
        """Yield an output, which also shows errors; an error ends the command with exit code 1."""
        output = OUTPUTS[self.output_format]()
        try:
            yield output
        except PenstockError as error:
            output.error(error)
            raise SystemExit(1) from error
        finally:
            output.close()

    def check(self) -> None:
        """Reject values that Spark or Penstock would reject after their start.

        Raises
        ------
        PenstockError
            If the master, a setting or an option is not valid.
        """
        check_settings(self.conf, self.config)
        if self.master is not None:
            check_master(self.master)

    @contextmanager
    def spark(self) -> Iterator[SparkThread]:
        """Configure the Spark sessions of the block by the options, without logs; yield a thread to use them on."""
        from penstock.cli.spark_thread import SparkThread
        from penstock.spark.quiet import quiet

        self.check()
        self._export()
        if self.verbose:
            logging.basicConfig(format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S")
            logging.getLogger("penstock").setLevel(logging.INFO)
            yield SparkThread()
            return
        with quiet():
            yield SparkThread()

    def _export(self) -> None:
        """Export master, settings and file to the variables that `Environment` and PySpark read."""
        if self.config:
            os.environ["PENSTOCK_CONFIG"] = self.config
        arguments = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", _SHELL))
        user_arguments = arguments[:-1] if arguments[-1:] == [_SHELL] else arguments
        ours = (
            ["--master", self.master] if self.master else []
        )  # else Spark's own rules apply, including its defaults file
        for key, value in (*(() if self.verbose else QUIET), *self.conf):
            ours += ["--conf", f"{key}={value}"]
        os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join(
            [*user_arguments, *ours, _SHELL]
        )  # the last occurrence of a setting wins

    def environment(self, **config: object) -> Environment:
        """Return an environment with an embedded session; keys have underscores instead of hyphens."""
        from penstock.environment import Environment

        return Environment(config={key.replace("__", "-"): value for key, value in config.items()})
