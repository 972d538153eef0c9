"""The values of the shared options, and the Spark session and thread that they configure."""

from __future__ import annotations

import logging
import os
import shlex
from concurrent.futures import wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from penstock.base.threads import DaemonPool
from penstock.cli.checks import check_master, check_settings
from penstock.cli.output import OUTPUTS, Output
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.spark.bridge.jvm import Bridge

T = TypeVar("T")
QUIET = (("spark.ui.showConsoleProgress", "false"), ("spark.log.level", "ERROR"))

_SHELL = "pyspark-shell"
"""The resource that spark-submit runs to start only a JVM for Python."""
_POLL_INTERVAL = 0.3  # seconds
_CANCEL_INTERVAL = 0.3
"""Seconds between two cancellations, as a query that is being planned starts its jobs only later."""


class SparkThread:
    """An executor for calls that use Spark, on a single thread.

    PySpark's handler of Ctrl-C cancels all jobs from within the current call of the main thread. If this call is
    waiting for the JVM, both fail. PySpark sets the handler only if the main thread creates the session.
    """

    def __init__(self) -> None:
        self._pool = DaemonPool(1, "penstock-session")

    def call(self, work: Callable[[], T]) -> T:
        """Return the result of a call. Ctrl-C cancels all jobs and waits for the call; a second Ctrl-C abandons it."""
        future = self._pool.submit(work)
        try:
            while not future.done():  # a wait without timeout may miss a Ctrl-C that came just before it
                wait([future], _POLL_INTERVAL)
            return future.result()
        except KeyboardInterrupt:
            while not future.done():
                _cancel_all()
                wait([future], _CANCEL_INTERVAL)
            raise


def _cancel_all() -> None:
    from penstock.scheduler.job import RECENT
    from penstock.spark.run.jobs import cancel_all_jobs

    for job in list(RECENT):
        if job.ended is None:
            job.cancel("interrupted from the keyboard")
    cancel_all_jobs()


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
        """Raise `PenstockError` if the master, a setting or an option is not valid."""
        check_settings(self.conf, self.config)
        if self.master is not None:
            check_master(self.master)

    @contextmanager
    def spark(self) -> Iterator[SparkThread]:
        """Configure the Spark sessions of the block by the options, without logs; yield a thread to use them on."""
        from penstock.spark.bridge.quiet import quiet

        self.check()
        self._export()
        if self.verbose:
            logging.basicConfig(format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S")
            logging.getLogger("penstock").setLevel(logging.INFO)
        with nullcontext() if self.verbose else quiet():
            yield SparkThread()

    def on_spark(self, work: Callable[[Bridge], T]) -> T:
        """Return the result of a call that needs Spark."""
        from penstock.spark.bridge.jvm import Bridge
        from penstock.spark.bridge.session import embedded_session

        with self.spark() as thread:
            return thread.call(lambda: work(Bridge(embedded_session())))

    def _export(self) -> None:
        """Export master, settings and file to the variables that `Environment` and PySpark read."""
        if self.config:
            os.environ["PENSTOCK_CONFIG"] = self.config
        arguments = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", _SHELL))
        user_arguments = arguments[:-1] if arguments[-1:] == [_SHELL] else arguments
        # Without a master, Spark's own rules apply, including its defaults file.
        ours = ["--master", self.master] if self.master else []
        for key, value in (*(() if self.verbose else QUIET), *self.conf):
            ours += ["--conf", f"{key}={value}"]
        # The last occurrence of a setting wins.
        os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*user_arguments, *ours, _SHELL])
