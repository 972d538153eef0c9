"""Runs SQL statements of one session: queries and commands, each as the jobs that it takes."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.cli.tables import register_tables
from penstock.errors import PenstockError
from penstock.spark_errors import in_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame

    from penstock.cli.common import Common
    from penstock.cli.spark_thread import SparkThread
    from penstock.environment import Environment
    from penstock.explain import Explanation
    from penstock.scheduler.job import Job

SHOWN_ROWS = 20
"""Rows of a result that people are shown if they do not say otherwise."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a statement gave.

    Parameters
    ----------
    columns, rows
        Its result; a command that writes has none.
    has_more
        Whether the result has further rows, which were not computed.
    jobs
        The jobs that it took.
    seconds
        How long it took.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    has_more: bool
    jobs: tuple[Job, ...]
    seconds: float


class Statements:
    """The session that statements share.

    Its queries run as jobs of an `Environment`; what a command reads (INSERT, CREATE TABLE AS) is handed over by Spark.

    Parameters
    ----------
    thread
        On which Spark is used.
    common
        The shared options.
    tables
        Names and paths of files.
    """

    def __init__(self, thread: SparkThread, common: Common, tables: Iterable[tuple[str, str]] = ()) -> None:
        self._thread = thread
        self._environment = thread.call(lambda: _environment(common, tables))

    @property
    def version(self) -> str:
        """The release of Spark."""
        return self._thread.call(lambda: self._environment.spark.version)

    def tables(self) -> list[tuple[str, str]]:
        """Return the names of tables and views, and what kind of table each is."""
        with in_words("the tables cannot be listed"):
            found = self._thread.call(self._environment.spark.catalog.listTables)
        return [(table.name, table.tableType.lower()) for table in found]

    def columns(self, table: str) -> list[tuple[str, str]] | None:
        """Return the columns of a table with their types; None if there is no such table."""
        with in_words("the table cannot be looked at"):
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
            How many rows are wanted; the query computes no more than one further. None for all of them.

        Raises
        ------
        PenstockError
            If it cannot be planned, or fails.
        """
        from penstock.scheduler.job import RECENT

        before, started = set(RECENT), time.monotonic()
        with in_words("the statement failed"):
            columns, rows = self._thread.call(lambda: self._rows(statement, limit))
        jobs = tuple(job for job in list(RECENT) if job not in before)
        return Answer(columns, tuple(rows[:limit]), len(rows) > len(rows[:limit]), jobs, time.monotonic() - started)

    def _rows(self, statement: str, limit: int | None) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
        from penstock.scheduler.origin import QueryOrigin

        if self._is_query(statement):
            df = self._planned(statement)
            called = QueryOrigin.of(statement, None, None).name
            rows = self._environment.collect(df if limit is None else df.limit(limit + 1), name=called)
            return tuple(df.columns), [tuple(row) for row in rows]
        df = self._environment.sql(statement)  # Spark has run the command then; what it says of it is there already
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
        with in_words("the statement failed"):
            return (self._environment.execute("penstock sql"),)

    def explain(self, statement: str) -> Explanation:
        """Return how a query would run.

        Raises
        ------
        PenstockError
            If it cannot be planned.
        """
        return self._thread.call(lambda: self._explain(statement))

    def _explain(self, statement: str) -> Explanation:
        self._check_query(statement, "explained")
        with in_words():
            return self._environment.explain(self._planned(statement))

    def _is_query(self, statement: str) -> bool:
        from penstock.spark.jvm import Bridge
        from penstock.spark.statements import is_query

        with in_words():
            return is_query(Bridge(self._environment.spark), statement)

    def _check_query(self, statement: str, what: str) -> None:
        if not self._is_query(statement):
            raise PenstockError(
                f"only the rows of a query can be {what}, and this is a command", hint="give the SELECT that is in it"
            )

    def _planned(self, statement: str) -> DataFrame:
        with in_words():
            return self._environment.sql(statement)


def _environment(common: Common, tables: Iterable[tuple[str, str]]) -> Environment:
    """Start Spark, and name the files."""
    from penstock.extension import enable

    made = common.environment()
    enable(made.spark, progress=sys.stderr.isatty())
    with in_words():
        register_tables(made.spark, tables)
    return made
