"""What the shared options say, and the Spark session that they ask for."""

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
"""What spark-submit is told to run where it only makes a JVM for Python."""


@dataclass(frozen=True, slots=True)
class Common:
    """The values of the shared options; those that a command does not take are as if nobody had given them."""

    output_format: str = "text"
    master: str | None = None
    conf: tuple[tuple[str, str], ...] = ()
    config: str | None = None
    verbose: bool = False

    @contextmanager
    def output(self) -> Iterator[Output]:
        """Give an output, which also has the errors; the exit code is 1 then."""
        output = OUTPUTS[self.output_format]()
        try:
            yield output
        except PenstockError as error:
            output.error(error)
            raise SystemExit(1) from error
        finally:
            output.close()

    def check(self) -> None:
        """Refuse what Spark or Penstock would refuse once they run.

        Raises
        ------
        PenstockError
            If the master, a setting or an option cannot be.
        """
        check_settings(self.conf, self.config)
        if self.master is not None:
            check_master(self.master)

    @contextmanager
    def spark(self) -> Iterator[SparkThread]:
        """Let Spark sessions of the block be as the options say, and quiet; give a thread to use them on."""
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
        """Put master, settings and file where `Environment` and PySpark look for them."""
        if self.config:
            os.environ["PENSTOCK_CONFIG"] = self.config
        given = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", _SHELL))
        others = given[:-1] if given[-1:] == [_SHELL] else given
        ours = ["--master", self.master] if self.master else []  # else Spark's own rule holds, its defaults file too
        for key, value in (*(() if self.verbose else QUIET), *self.conf):
            ours += ["--conf", f"{key}={value}"]
        os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*others, *ours, _SHELL])  # of two that differ the last counts

    def environment(self, **config: object) -> Environment:
        """Return an environment over an embedded session."""
        from penstock.environment import Environment

        return Environment(config={key.replace("__", "-"): value for key, value in config.items()})
