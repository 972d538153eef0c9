"""Running of SQL statements, queries and commands, in a shared session."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.spark.errors import translate_errors

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

    from penstock.cli.common import SparkThread
    from penstock.entry.environment import Environment
    from penstock.report.explain import ExplainedPlan
    from penstock.scheduler.job import Job

SHOWN_ROWS = 20
"""The default number of rows of a result to show."""
_FORMAT_OF_SUFFIX = {".csv": "csv", ".json": "json", ".jsonl": "json", ".orc": "orc", ".txt": "text"}


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a statement, empty for a command that writes, the jobs that ran it, and its run time.

    `has_more` says whether there are more rows, which were not computed.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    has_more: bool
    jobs: tuple[Job, ...]
    seconds: float


class Statements:
    """The session that statements share, with `tables`, by name and path.

    Queries run as jobs of an `Environment`; Spark delegates the queries of commands (INSERT, CREATE TABLE AS).
    All methods raise `PenstockError` if a statement cannot be planned, or fails.
    """

    def __init__(self, thread: SparkThread, tables: Iterable[tuple[str, str]] = ()) -> None:
        self._thread = thread
        self._environment = thread.call(lambda: _environment(tables))

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

    def run(self, statement: str, limit: int | None) -> Answer:
        """Run a statement; return at most `limit` rows, None for all. The query computes at most one more."""
        from penstock.scheduler.job import RECENT

        before, started = set(RECENT), time.monotonic()
        with translate_errors("the statement failed"):
            columns, rows = self._thread.call(lambda: self._rows(statement, limit))
        jobs = tuple(job for job in list(RECENT) if job not in before)
        return Answer(columns, tuple(rows[:limit]), len(rows) > len(rows[:limit]), jobs, time.monotonic() - started)

    def _rows(self, statement: str, limit: int | None) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
        from penstock.scheduler.origin import QueryOrigin

        if self._is_query(statement):
            df = self._planned(statement)
            name = QueryOrigin.of(statement, None, None).name
            rows = self._environment.collect(df if limit is None else df.limit(limit + 1), name=name)
            return tuple(df.columns), [tuple(row) for row in rows]
        df = self._environment.sql(statement)  # Spark has run the command; its result is available
        return tuple(df.columns), [tuple(row) for row in df.collect()] if df.columns else []

    def write(self, statement: str, target: str) -> Job:
        """Write the rows of a query to a new folder of parquet files; return the job."""
        return self._thread.call(lambda: self._write(statement, target))

    def _write(self, statement: str, target: str) -> Job:
        from penstock.connectors import FileSink

        self._check_query(statement, "written to a folder")
        self._environment.write(self._planned(statement), FileSink(target))
        with translate_errors("the statement failed"):
            return self._environment.execute("penstock sql")

    def explain(self, statement: str) -> ExplainedPlan:
        """Return how a query would run."""
        return self._thread.call(lambda: self._explain(statement))

    def _explain(self, statement: str) -> ExplainedPlan:
        self._check_query(statement, "explained")
        with translate_errors():
            return self._environment.explain(self._planned(statement))

    def _is_query(self, statement: str) -> bool:
        from penstock.spark.bridge.jvm import Bridge
        from penstock.spark.plans.statements import is_query

        with translate_errors():
            return is_query(Bridge(self._environment.spark), statement)

    def _check_query(self, statement: str, what: str) -> None:
        if not self._is_query(statement):
            raise PenstockError(
                f"only the rows of a query can be {what}, and this is a command", hint="pass its SELECT"
            )

    def _planned(self, statement: str) -> DataFrame:
        with translate_errors():
            return self._environment.sql(statement)


def _environment(tables: Iterable[tuple[str, str]]) -> Environment:
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
    """Read a file or folder in the format of its suffix; Parquet without a suffix."""
    from penstock.connectors import FileSource

    kind = _FORMAT_OF_SUFFIX.get(Path(path).suffix.lower(), "parquet")
    options = {"header": "true", "inferSchema": "true"} if kind == "csv" else {}
    return FileSource(path, kind, options=options).read(spark)
