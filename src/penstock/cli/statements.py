"""Running of SQL statements, queries and commands, in a shared session."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.cli.tables import register_tables
from penstock.errors import PenstockError
from penstock.spark_errors import translate_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame

    from penstock.cli.common import Common
    from penstock.cli.spark_thread import SparkThread
    from penstock.environment import Environment
    from penstock.explain import ExplainedPlan
    from penstock.scheduler.job import Job

SHOWN_ROWS = 20
"""The default number of rows of a result to show."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a statement.

    Parameters
    ----------
    columns, rows
        The result; empty for a command that writes.
    has_more
        Whether there are more rows, which were not computed.
    jobs
        The jobs that ran it.
    seconds
        The run time.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    has_more: bool
    jobs: tuple[Job, ...]
    seconds: float


class Statements:
    """The session that statements share.

    Queries run as jobs of an `Environment`; Spark delegates the queries of commands (INSERT, CREATE TABLE AS).

    Parameters
    ----------
    thread
        The thread on which Spark is used.
    common
        The shared options.
    tables
        Names and paths of tables.
    """

    def __init__(self, thread: SparkThread, common: Common, tables: Iterable[tuple[str, str]] = ()) -> None:
        self._thread = thread
        self._environment = thread.call(lambda: _environment(common, tables))

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
        """Run a statement.

        Parameters
        ----------
        statement
            Spark SQL.
        limit
            The most rows to return, None for all; the query computes at most one more.

        Raises
        ------
        PenstockError
            If it cannot be planned, or fails.
        """
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

    def write(self, statement: str, target: str) -> Sequence[Job]:
        """Write the rows of a query to a new folder of parquet files; return the jobs.

        Raises
        ------
        PenstockError
            If it cannot be planned, or fails.
        """
        return self._thread.call(lambda: self._write(statement, target))

    def _write(self, statement: str, target: str) -> Sequence[Job]:
        from penstock.connectors import FileSink

        self._check_query(statement, "written to a folder")
        self._environment.write(self._planned(statement), FileSink(target))
        with translate_errors("the statement failed"):
            return (self._environment.execute("penstock sql"),)

    def explain(self, statement: str) -> ExplainedPlan:
        """Return how a query would run.

        Raises
        ------
        PenstockError
            If it cannot be planned.
        """
        return self._thread.call(lambda: self._explain(statement))

    def _explain(self, statement: str) -> ExplainedPlan:
        self._check_query(statement, "explained")
        with translate_errors():
            return self._environment.explain(self._planned(statement))

    def _is_query(self, statement: str) -> bool:
        from penstock.spark.jvm import Bridge
        from penstock.spark.statements import is_query

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


def _environment(common: Common, tables: Iterable[tuple[str, str]]) -> Environment:
    """Start Spark and register the tables."""
    from penstock.extension import enable

    environment = common.environment()
    enable(environment.spark, progress=sys.stderr.isatty())
    with translate_errors():
        register_tables(environment.spark, tables)
    return environment
