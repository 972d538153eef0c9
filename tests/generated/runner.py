"""Runs a specification on plain Spark and with Penstock, and compares the outcomes."""

from __future__ import annotations

import logging
import re
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from penstock import Environment
from penstock.errors import JobCancelledError
from tests.generated import sinks
from tests.generated.code import Spec, step_code
from tests.generated.compare import Outcome, causes_of, condition_of, difference
from tests.generated.modes import FILTERING, MODES
from tests.generated.tables import Tables
from tests.support.stages import computed_by_duckdb

_JAVA = re.compile(r"^: (?:[a-z]\w*\.)*(.*?)(?: \(|$)", re.MULTILINE)
"""The class and message of a Java error in the text of a Py4J error."""
PATIENCE = 20
"""A run counts as a hang after this multiple of the time of plain Spark; it is large because the machine may be busy."""
OF_FILES = ("FAILED_READ_FILE", "INCONSISTENT_BEHAVIOR_CROSS_VERSION.READ_ANCIENT_DATETIME")
"""Errors of damaged files, and of dates whose calendar Spark does not know."""
OTHER_SETTINGS = [
    {
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
    },
    {
        "spark.sql.autoBroadcastJoinThreshold": "100000000",
        "spark.sql.shuffle.partitions": "7",
        "spark.sql.files.maxPartitionBytes": "3000",
        "spark.sql.files.openCostInBytes": "100",
    },
]
"""Settings under which plain Spark must give the same outcome if it is determined."""


@dataclass(frozen=True)
class Difference:
    """A difference between Penstock and plain Spark."""

    mode: str
    kind: str
    expected: Outcome
    actual: Outcome


@dataclass(frozen=True)
class Report:
    """The comparison of a specification; `dropped` is the reason why it was not compared."""

    differences: tuple[Difference, ...] = ()
    dropped: str = ""
    stuck: bool = False
    error: str = ""
    native: int = 0
    """Number of modes in which DuckDB has computed."""


class LoggedExceptions(logging.Handler):
    """Collects the exceptions that Penstock only logs because Spark can still run the query."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.exceptions: list[str] = []
        logging.getLogger("penstock").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            match = _JAVA.search(str(record.exc_info[1]))
            cause = match[1] if match else repr(record.exc_info[1])
            self.exceptions.append(f"{record.getMessage()}: {cause[:160]}")

    def take(self) -> str:
        """Return the last exception, and clear the list."""
        text = self.exceptions[-1] if self.exceptions else ""
        self.exceptions.clear()
        return text


class Runner:
    """Runs specifications sequentially.

    Parameters
    ----------
    spark, folder
        The session, and the folder of its tables and outputs.
    verify
        Whether to enable Penstock's own checks.
    limit
        Minimum seconds after which a run counts as a hang.
    """

    def __init__(self, spark, folder: Path, *, verify: bool = False, limit: float = 60) -> None:
        self.spark = spark
        self.limit = limit
        self._folder = folder
        self._logged = LoggedExceptions()
        self._extra = {"execution.verify": True} if verify else {}
        self._context = sinks.Context(spark, folder / "out")
        (folder / "out").mkdir(parents=True, exist_ok=True)
        spark.sparkContext.setCheckpointDir(str(folder / "checkpoints"))
        self.tables = Tables(spark, folder / "odd")
        from tests.generated import functions  # its types need a session

        functions.register(spark)
        self._functions = functions

    def run(self, spec: Spec) -> Report:
        """Compare a specification in all of its modes."""
        with self._prepared(spec):
            try:
                frames = self._frames(spec)
            except Exception as error:
                return Report(dropped=f"invalid: {condition_of(error)}", error=str(error)[:400])
            started = time.monotonic()
            expected = self.plain(spec, frames)
            if expected.hung:
                return Report(dropped="too large")
            limit = max(self.limit, min(PATIENCE * (time.monotonic() - started), 4 * self.limit))
            differences: list[Difference] = []
            stuck, native = False, 0
            for mode in spec["modes"]:
                config = MODES[mode] if isinstance(mode, str) else mode
                if expected.error.startswith(OF_FILES):  # a dynamic filter may prune such a file, also in Spark
                    config = {**config, f"{FILTERING}.enabled": False}
                outcome, stuck = self.penstock(spec, frames, config, limit)
                native += outcome.is_native
                kind = difference(expected, outcome)
                if kind:
                    differences.append(Difference(str(mode), kind, expected, outcome))
                if stuck:
                    break
        if differences and not stuck and not self.is_determined(spec, expected):
            return Report(dropped="not determined")
        return Report(tuple(differences), stuck=stuck, error=expected.error, native=native)

    def is_determined(self, spec: Spec, expected: Outcome) -> bool:
        """Return whether plain Spark gives the same outcome again, and with other settings."""
        for settings in ({}, *OTHER_SETTINGS):
            with self._prepared({**spec, "settings": settings | spec.get("settings", {})}):
                if difference(expected, self.plain(spec, self._frames(spec))):
                    return False
        return True

    def frames(self, spec: Spec) -> list:
        """Return the DataFrames of a specification's steps."""
        with self._prepared(spec):
            return self._frames(spec)

    def plain(self, spec: Spec, frames: list) -> Outcome:
        """Run on plain Spark."""
        overdue = threading.Event()

        def stop() -> None:
            overdue.set()
            self.spark.sparkContext.cancelAllJobs()

        timer = threading.Timer(self.limit, stop)
        timer.start()
        try:
            return self._context.plain(spec, frames)
        except Exception as error:
            if overdue.is_set():
                return Outcome(hung=True)
            errors = self._context.errors(spec, frames) if len(spec["results"]) > 1 else frozenset()
            sources = frozenset(_failing_sources(spec, frames))
            return Outcome(
                error=condition_of(error), text=str(error), errors=errors, causes=_causes(spec, error), sources=sources
            )
        finally:
            timer.cancel()

    def penstock(self, spec: Spec, frames: list, config: dict, limit: float) -> tuple[Outcome, bool]:
        """Run with Penstock; also return whether it hangs even after a cancellation, so that the process has to end."""
        self._logged.take()
        env = Environment(self.spark, config=self._extra | config, progress=False)
        try:
            outcome = self._context.penstock(spec, frames, env, self._extra | config, limit)
        except TimeoutError:
            job = env.last_job
            job.cancel("the run is a hang")
            self.spark.sparkContext.cancelAllJobs()
            try:
                job.wait(5)
            except TimeoutError:
                return Outcome(hung=True, text="the job did not end after its cancellation"), True
            except JobCancelledError:
                pass
            except Exception as error:
                return Outcome(hung=True, text=str(error)), False
            return Outcome(hung=True), False
        except Exception as error:
            outcome = Outcome(error=condition_of(error), text=str(error), causes=_causes(spec, error))
        return replace(outcome, warning=self._logged.take(), is_native=computed_by_duckdb(env.last_job)), False

    def _frames(self, spec: Spec) -> list:
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        names = {"spark": self.spark, "table": self.tables, "f": self._functions, "F": F, "Window": Window}
        for number, step in enumerate(spec["steps"]):
            names[f"d{number}"] = eval(step_code(step), names)
        return [names[f"d{number}"] for number in range(len(spec["steps"]))]

    @contextmanager
    def _prepared(self, spec: Spec):
        settings, properties = spec.get("settings", {}), spec.get("properties", {})
        conf, context = self.spark.conf, self.spark.sparkContext
        before = {key: conf.get(key, None) for key in settings}
        try:
            for key, value in settings.items():
                conf.set(key, value)
            for key, value in properties.items():
                context.setLocalProperty(key, value)
            yield
        finally:
            for key, value in before.items():
                conf.unset(key) if value is None else conf.set(key, value)
            for key in properties:
                context.setLocalProperty(key, None)
            if any(step["op"] == "cache" for step in spec["steps"]) or any("cached" in r for r in spec["results"]):
                self.spark.catalog.clearCache()
            shutil.rmtree(self._folder / "out", ignore_errors=True)
            (self._folder / "out").mkdir()


def _causes(spec: Spec, error: Exception) -> tuple[str, ...]:
    return causes_of(error) if spec.get("template", "").startswith("native") else ()


def _failing_sources(spec: Spec, frames: list) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the errors of the sources of native queries, each read separately."""
    if not spec.get("template", "").startswith("native"):
        return
    for step, frame in zip(spec["steps"], frames, strict=True):
        if step["op"].startswith("source"):
            try:
                frame.collect()
            except Exception as error:
                yield condition_of(error), causes_of(error)
