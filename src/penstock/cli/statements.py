"""Runs SQL statements (queries and commands) in a single Spark session."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.errors import PenstockError
from penstock.spark.errors import translate_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.cli.common import SparkThread
    from penstock.entry.environment import Environment
    from penstock.report.explain import ExplainedPlan
    from penstock.scheduler.job import Job

DEFAULT_ROW_LIMIT = 20
"""The default maximum number of shown rows of a result."""
_FORMAT_OF_SUFFIX = {".csv": "csv", ".json": "json", ".jsonl": "json", ".orc": "orc", ".txt": "text"}


@dataclass(frozen=True, slots=True)
class StatementResult:
    """The rows of a statement, the jobs that ran it, and its run time in seconds.

    A command that writes has neither columns nor rows. `has_more` says whether the statement has more rows than `rows`.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    has_more: bool
    jobs: tuple[Job, ...]
    seconds: float


class SqlSession:
    """A session that runs SQL statements; `tables` are pairs of a name and the path of the table's files.

    Queries run as jobs of an `Environment`. Spark runs commands (INSERT, CREATE TABLE AS), but delegates their queries
    to Penstock. All methods raise `PenstockError` if a statement cannot be planned, or fails.
    """

    def __init__(self, thread: SparkThread, tables: Iterable[tuple[str, str]] = ()) -> None:
        self._thread = thread
        if sys.stderr.isatty():
            click.echo("Starting Spark ...", err=True)
        self._environment = thread.call(lambda: _start_environment(tables))

    @property
    def version(self) -> str:
        """The release of Spark."""
        return self._thread.call(lambda: self._environment.spark.version)

    def tables(self) -> list[tuple[str, str]]:
        """Return the names of tables and views, and their types."""
        with translate_errors("the tables cannot be listed"):
            tables = self._thread.call(self._environment.spark.catalog.listTables)
        return [(table.name, table.tableType.lower()) for table in tables]

    def columns(self, table: str) -> list[tuple[str, str]] | None:
        """Return the columns of a table with their types; None if there is no such table."""
        with translate_errors("the table cannot be read"):
            return self._thread.call(lambda: self._columns(table))

    def _columns(self, table: str) -> list[tuple[str, str]] | None:
        spark = self._environment.spark
        if not spark.catalog.tableExists(table):
            return None
        return [(field.name, field.dataType.simpleString()) for field in spark.table(table).schema.fields]

    def run(self, statement: str, limit: int | None) -> StatementResult:
        """Run a statement; return at most `limit` rows, all if None. A query computes at most `limit` + 1 rows."""
        from penstock.scheduler.job import RECENT  # the latest jobs of this process

        earlier_jobs, started = set(RECENT), time.monotonic()
        with translate_errors("the statement failed"):
            columns, rows = self._thread.call(lambda: self._fetch(statement, limit))
        jobs = tuple(job for job in list(RECENT) if job not in earlier_jobs)
        limited_rows = tuple(rows[:limit])
        return StatementResult(columns, limited_rows, len(rows) > len(limited_rows), jobs, time.monotonic() - started)

    def _fetch(self, statement: str, limit: int | None) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
        from penstock.scheduler.origin import QueryOrigin

        if self._is_query(statement):
            df = self._plan(statement)
            name = QueryOrigin.of(statement, None, None).name
            rows = self._environment.collect(df if limit is None else df.limit(limit + 1), name=name)
            return tuple(df.columns), [tuple(row) for row in rows]
        df = self._environment.sql(statement)  # runs the command; `collect` only fetches its rows
        return tuple(df.columns), [tuple(row) for row in df.collect()] if df.columns else []

    def write(self, statement: str, target: str) -> Job:
        """Write the rows of a query to a new folder of Parquet files; return the job."""
        from penstock.connectors import FileSink

        def write() -> Job:
            self._environment.write(self._plan_query(statement, "written to a folder"), FileSink(target))
            with translate_errors("the statement failed"):
                return self._environment.execute("penstock sql")

        return self._thread.call(write)

    def explain(self, statement: str) -> ExplainedPlan:
        """Return how a query would run."""
        with translate_errors():
            return self._thread.call(lambda: self._environment.explain(self._plan_query(statement, "explained")))

    def _is_query(self, statement: str) -> bool:
        from penstock.spark.bridge.jvm import Bridge
        from penstock.spark.plans.statements import is_query

        with translate_errors():
            return is_query(Bridge(self._environment.spark), statement)

    def _plan_query(self, statement: str, purpose: str) -> DataFrame:
        if not self._is_query(statement):
            raise PenstockError(f"only a query can be {purpose}, and this is a command", hint="pass its SELECT")
        return self._plan(statement)

    def _plan(self, statement: str) -> DataFrame:
        with translate_errors():
            return self._environment.sql(statement)


def _start_environment(tables: Iterable[tuple[str, str]]) -> Environment:
    """Start Spark and register the tables."""
    from penstock.entry.environment import Environment
    from penstock.extension import enable

    environment = Environment()
    enable(environment.spark, progress=sys.stderr.isatty())
    with translate_errors():
        for name, path in tables:
            _read_path(environment.spark, path).createOrReplaceTempView(name)
    return environment


def _read_path(spark: SparkSession, path: str) -> DataFrame:
    """Read a file or folder in the format of its suffix; as Parquet with any other suffix or none."""
    from penstock.connectors import FileSource

    file_format = _FORMAT_OF_SUFFIX.get(Path(path).suffix.lower(), "parquet")
    options = {"header": "true", "inferSchema": "true"} if file_format == "csv" else {}
    return FileSource(path, file_format, options=options).read(spark)
