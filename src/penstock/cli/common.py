"""The values of the options that commands share, and the thread on which commands use Spark."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from penstock.base.threads import DaemonPool
from penstock.cli.checks import check_master, check_settings
from penstock.cli.output import OUTPUTS, Output
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.spark.bridge.jvm import Bridge

T = TypeVar("T")
QUIET_SETTINGS = (("spark.ui.showConsoleProgress", "false"), ("spark.log.level", "ERROR"))  # without --verbose

_PYSPARK_SHELL = "pyspark-shell"
"""The application name for which spark-submit only starts a JVM, which PySpark then uses."""
_POLL_INTERVAL = 0.3  # seconds
_CANCEL_INTERVAL = 0.3
"""Seconds between two cancellations: a query that is being planned may start jobs after the first cancellation."""


class SparkThread:
    """Runs all Spark calls of a command on a single separate thread of this process.

    If the main thread created the session, PySpark would set a handler of Ctrl-C that cancels all jobs. A handler runs
    within the current call of the main thread. If that call waits for the JVM, both the call and the cancellation fail.
    """

    def __init__(self) -> None:
        self._pool = DaemonPool(1, "penstock-session")

    def call(self, work: Callable[[], T]) -> T:
        """Run `work`; return its result. Ctrl-C cancels all jobs, and raises when `work` ends or at a second Ctrl-C."""
        from penstock.extension.interrupts import cancel_all

        future = self._pool.submit(work)
        try:
            while not future.done():  # a wait without timeout may miss a Ctrl-C that came just before it
                wait([future], _POLL_INTERVAL)
            return future.result()
        except KeyboardInterrupt:
            while not future.done():
                cancel_all()
                wait([future], _CANCEL_INTERVAL)
            raise


@dataclass(frozen=True, slots=True)
class SharedOptions:
    """The values of the shared options; an option that the command does not have keeps its default, except `master`."""

    output_format: str = "text"
    master: str | None = None  # None: Spark decides; in a command without --master, `with_options` sets local[1]
    conf: tuple[tuple[str, str], ...] = ()
    config: str | None = None
    verbose: bool = False

    @contextmanager
    def output(self) -> Iterator[Output]:
        """Yield the output of the command; if the block raises `PenstockError`, show the error and exit with code 1."""
        output = OUTPUTS[self.output_format]()
        try:
            yield output
        except PenstockError as error:
            output.error(error)
            raise SystemExit(1) from error
        finally:
            output.close()

    def check(self) -> None:
        """Raise `PenstockError` if the master, a setting or an option is not valid."""
        check_settings(self.conf, self.config)
        if self.master is not None:
            check_master(self.master)

    @contextmanager
    def spark(self) -> Iterator[SparkThread]:
        """Apply the options to Spark sessions created in the block, with logs if `verbose`; yield a `SparkThread`."""
        from penstock.spark.bridge.quiet_start import quiet_start

        self.check()
        self._export()
        if self.verbose:
            logging.basicConfig(format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S")
            logging.getLogger("penstock").setLevel(logging.INFO)
        with nullcontext() if self.verbose else quiet_start():
            yield SparkThread()

    def on_spark(self, work: Callable[[Bridge], T]) -> T:
        """Start Spark, run `work` with the bridge to its JVM, and return the result."""
        from penstock.spark.bridge.jvm import Bridge
        from penstock.spark.bridge.session import embedded_session

        with self.spark() as spark_thread:
            return spark_thread.call(lambda: work(Bridge(embedded_session())))

    def _export(self) -> None:
        """Set the environment variables from which `Environment` and PySpark read the options."""
        if self.config:
            os.environ["PENSTOCK_CONFIG"] = self.config
        arguments = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", _PYSPARK_SHELL))
        user_arguments = arguments[:-1] if arguments[-1:] == [_PYSPARK_SHELL] else arguments
        # Without a master, Spark determines it, for example from spark-defaults.conf.
        option_arguments = ["--master", self.master] if self.master else []
        for key, value in (*(() if self.verbose else QUIET_SETTINGS), *self.conf):
            option_arguments += ["--conf", f"{key}={value}"]
        # The last occurrence of a setting wins, so the options of this command override those of the user's variable.
        os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*user_arguments, *option_arguments, _PYSPARK_SHELL])
