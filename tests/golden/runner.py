"""Runs the statements of a file with plain Spark, and its queries natively as well."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import Environment
from penstock.errors import first_line
from tests.golden.literals import LiteralColumns
from tests.golden.script import is_query, read_script
from tests.support.equality import assert_same_rows
from tests.support.outcomes import outcome
from tests.support.stages import computed_by_duckdb

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_VIEW = re.compile(r"^create\s+(?:or\s+replace\s+)?(?:global\s+)?temp(?:orary)?\s+view\s+`?(\w+)`?", re.IGNORECASE)
_NATIVE = {"execution.native": True, "execution.batch.adaptive.whole-query-threshold": 1}
_LITERALS = "literals_of_file"
_SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}


@dataclass
class Summary:
    """The queries of files: how many were compared, of which DuckDB computed a part, and the differences.

    `skipped` are views that could not be created, and literals that could not be written.
    """

    compared: int = 0
    native: int = 0
    failed: int = 0
    skipped: list[str] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    def add(self, other: Summary) -> None:
        """Add the queries of another file."""
        self.compared += other.compared
        self.native += other.native
        self.failed += other.failed
        self.skipped += other.skipped
        self.reasons.update(other.reasons)
        self.differences += other.differences

    def __str__(self) -> str:
        return (
            f"{self.compared} queries with rows ({self.failed} more with errors), {self.native} of them computed by "
            f"DuckDB, {len(self.differences)} differences"
        )


class FileRun:
    """A run of a file in a session of its own, whose temporary views become Parquet files in `folder`."""

    def __init__(self, spark: SparkSession, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.spark = spark.newSession()
        self.settings = _SETTINGS | (settings or {})
        self.folder = folder
        self.summary = Summary()

    def run(self, path: Path) -> Summary:
        """Run all statements; the queries are compared by their rows or the class of their error."""
        script, literals = read_script(path), LiteralColumns()
        for key, value in (self.settings | script.settings).items():
            self.spark.conf.set(key, value)
        env = Environment(self.spark, config=_NATIVE, progress=False)
        database = f"golden_{re.sub(r'[^a-z0-9]', '_', path.stem.lower())}"
        self.spark.sql(f"create database {database}")
        self.spark.sql(f"use {database}")
        try:
            variants = []
            for statement in script.statements:
                variants_of_statement = literals.variants(statement)
                variants += variants_of_statement
                if not variants_of_statement:
                    self._execute(env, statement)
            self._compare_literals(env, literals, variants)
        finally:
            self.spark.sql("use default")
            self.spark.sql(f"drop database {database} cascade")
        return self.summary

    def _execute(self, env: Environment, statement: str) -> None:
        if is_query(statement):
            self._compare(env, statement)
            return
        view = _VIEW.match(statement)
        result = outcome(lambda: self.spark.sql(statement).collect())
        if view is not None:
            result = result if isinstance(result, str) else outcome(lambda: self._store(view[1]))
            self.summary.skipped += [statement] if isinstance(result, str) else []

    def _store(self, view: str) -> None:
        """Replace a temporary view by the same rows in Parquet files, which DuckDB can read."""
        path = str(self.folder / f"{view}_{len(list(self.folder.iterdir()))}")
        self.spark.table(view).write.parquet(path)
        self.spark.read.schema(self.spark.table(view).schema).parquet(path).createOrReplaceTempView(view)

    def _compare(self, env: Environment, query: str) -> None:
        expected = outcome(lambda: self.spark.sql(query).collect())
        if isinstance(expected, str):
            try:
                self.spark.sql(query)
            except Exception:  # not a query that an engine could run
                return
        last_job = env.last_job
        actual = outcome(lambda: env.collect(self.spark.sql(query)))
        if isinstance(expected, str) or isinstance(actual, str):
            self.summary.failed += 1
            if expected != actual:
                self._report(query, f"{str(actual)[:300]} instead of {str(expected)[:300]}")
            return
        self.summary.compared += 1
        job = env.last_job
        if job is not last_job and computed_by_duckdb(job):
            self.summary.native += 1
        elif job is not None:
            reasons = [d.reason for d in job.decisions if d.kind == "native"]
            self.summary.reasons[first_line(reasons[0])[:120] if reasons else "no decision"] += 1
        try:
            assert_same_rows(actual, expected)
        except (AssertionError, TypeError) as error:
            self._report(query, str(error)[:600])

    def _compare_literals(self, env: Environment, literals: LiteralColumns, variants: list[str]) -> None:
        """Compare the expressions of queries without tables over columns instead of literals, and over nulls."""
        columns = [f"{literal} as {name}" for literal, name in literals.columns.items() if self._is_valid(literal)]
        if not columns:
            return
        names = [column.rpartition(" as ")[2] for column in columns]
        nullable = ", ".join(f"if(n = 2, null, {name}) as {name}" for name in names)
        path = str(self.folder / _LITERALS)
        source = f"select explode(sequence(0, 2)) as n, {', '.join(columns)}"
        rows = outcome(lambda: self.spark.sql(f"select n, {nullable} from ({source})").write.parquet(path))
        if rows is not None:
            return
        self._view(path, _LITERALS)
        self.spark.table(_LITERALS).selectExpr("n as m").write.parquet(f"{path}_keys")
        self._view(f"{path}_keys", f"{_LITERALS}_keys")
        for expressions in variants:
            self._compare(env, f"select {expressions} from {_LITERALS} join {_LITERALS}_keys on n = m")

    def _view(self, path: str, name: str) -> DataFrame:
        df = self.spark.read.parquet(path)
        df.createOrReplaceTempView(name)
        return df

    def _is_valid(self, literal: str) -> bool:
        return not isinstance(outcome(lambda: self.spark.sql(f"select {literal}").schema), str)

    def _report(self, query: str, difference: str) -> None:
        self.summary.differences.append(f"{query}\n  {difference}")
