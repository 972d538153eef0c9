"""Compares expressions over a table of values between plain Spark and DuckDB."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

import duckdb
from penstock import Environment
from penstock.duckdb.worker import products
from tests.duckdb.expressions.values import SPECIAL
from tests.duckdb.traps import whole_query_plan
from tests.support.stages import computed_by_duckdb

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WORD = re.compile(r"""'(?:[^'\\]|\\.)*'|\b[a-z_]+\d?\b""")
_TYPES = {"int": "INTEGER", "string": "VARCHAR", "timestamp": "TIMESTAMP WITH TIME ZONE", "timestamp_ntz": "TIMESTAMP"}
_ERROR = re.compile(r"\berror\('(?:[^']|'')*'\)")
_FAILURE = "([])[CAST('x' AS INTEGER)]"
"""An error of any type that is not volatile, as the argument of TRY must not be volatile."""
_SINGLE_TASK = {"execution.batch.adaptive.whole-query-threshold": 1}


@dataclass(frozen=True)
class Comparison:
    """Expressions over the rows of a Parquet file; each is computed with the values of its own columns."""

    spark: SparkSession
    folder: Path
    expressions: Sequence[str]

    def run(self, rows: pa.Table) -> dict[str, list[tuple[object, ...]]]:
        """Compare all expressions; return the differences: the operands, Spark's value and DuckDB's value.

        DuckDB must compute all expressions in a single query. An expression for which it fails is compared for the
        other rows only, of which there must be at least one with a value.
        """
        indices = self.computable_rows(rows)
        for sql in self.expressions:
            assert indices[sql], f"DuckDB fails for all rows of {sql}"
        differences, without_values = self.compare(rows, indices)
        assert not without_values
        return differences

    def compare(
        self, rows: pa.Table, indices: Mapping[str, Sequence[int]]
    ) -> tuple[dict[str, list[tuple[object, ...]]], list[str]]:
        """Compare all expressions for the rows at `indices`; return the differences, and expressions without values."""
        columns = {"n": rows["n"]}
        for number, sql in enumerate(self.expressions):
            padded = pa.array([indices[sql][row % len(indices[sql])] for row in range(rows.num_rows)])
            columns |= {f"{name}__{number}": rows[name].take(padded) for name in operands_of(sql)}
        pq.write_table(pa.table(columns), self.folder / "computable.parquet", row_group_size=2000)
        df = self._query(
            self.folder / "computable.parquet", [renamed(sql, n) for n, sql in enumerate(self.expressions)]
        )
        expected = sorted(df.collect())
        env = Environment(self.spark, config=_SINGLE_TASK, progress=False)
        actual = sorted(env.collect(df))
        assert computed_by_duckdb(env.last_job), [str(decision) for decision in env.last_job.decisions]
        differences: dict[str, list[tuple[object, ...]]] = {}
        for expected_row, actual_row in zip(expected, actual, strict=True):
            if list(map(repr, expected_row)) == list(map(repr, actual_row)):
                continue
            for number, sql in enumerate(self.expressions):
                pair = expected_row[number + 1], actual_row[number + 1]
                if repr(pair[0]) != repr(pair[1]):
                    operands = [columns[f"{name}__{number}"][expected_row[0]].as_py() for name in operands_of(sql)]
                    differences.setdefault(sql, []).append((operands, *pair))
        is_null = [all(row[number] is None for row in expected) for number in range(1, len(self.expressions) + 1)]
        return differences, [sql for sql, is_empty in zip(self.expressions, is_null, strict=True) if is_empty]

    def declined(self, rows: pa.Table, excluded: Sequence[str] = ()) -> dict[str, str]:
        """Return the expressions that DuckDB does not compute, with the reasons."""
        path = self._write(rows)
        plans = {sql: whole_query_plan(self.spark, self._query(path, [sql]), excluded) for sql in self.expressions}
        return {sql: reason for sql, reason in plans.items() if isinstance(reason, str)}

    def query(self, rows: pa.Table) -> DataFrame:
        """Return a query of all expressions over the rows."""
        return self._query(self._write(rows), self.expressions)

    def _write(self, rows: pa.Table) -> Path:
        """Write the rows and a table of keys, with which queries join them; return the path of the rows."""
        path = self.folder / "values.parquet"
        pq.write_table(rows, path)
        pq.write_table(rows.select(["n"]).rename_columns(["m"]), self.folder / "keys.parquet")
        self.spark.read.parquet(str(self.folder / "keys.parquet")).createOrReplaceTempView("keys")
        return path

    def _query(self, path: Path, expressions: Sequence[str]) -> DataFrame:
        self.spark.read.parquet(str(path)).createOrReplaceTempView("t")
        columns = ", ".join(f"{sql} as r{number}" for number, sql in enumerate(expressions))
        return self.spark.sql(f"select n, {columns} from t join keys on n = m")

    def computable_rows(self, rows: pa.Table) -> dict[str, list[int]]:
        """Return the numbers of the rows for which DuckDB computes each expression without an error."""
        path = self._write(rows)
        translated = self._translated(path)
        self._check_types(rows, self._query(path, self.expressions), translated)
        return {sql: computable_rows(rows, native) for sql, native in zip(self.expressions, translated, strict=True)}

    def _check_types(self, rows: pa.Table, df: DataFrame, translated: Sequence[str]) -> None:
        """Check that DuckDB's types are those of Spark, as the type of an operand decides on overflows and rounding."""
        with duckdb.connect() as connection:
            products.define_macros(connection, translated)
            connection.execute("CREATE TABLE scan_0 AS FROM rows")
            for sql, field, native in zip(self.expressions, df.schema.fields[1:], translated, strict=True):
                described = connection.execute(f"DESCRIBE SELECT {native} AS r FROM scan_0").fetchone()
                name = field.dataType.simpleString()
                assert described is not None
                assert described[1] == _TYPES.get(name, name.upper()), f"{sql} is {described[1]} instead of {name}"

    def _translated(self, path: Path) -> list[str]:
        """Return the query of each expression in DuckDB's SQL, over the relation ``scan``."""
        plan = whole_query_plan(self.spark, self._query(path, self.expressions))
        assert not isinstance(plan, str), plan
        (part,) = plan.parts
        columns = dict(re.findall(r'"(\w+)" AS (c\d+)', part.sql))
        values = re.split(r" AS c\d+(?:, | FROM )", part.sql)[1:][: len(self.expressions)]
        names = {column: name for name, column in columns.items()}
        return [re.sub(r"\bc\d+\b", lambda match: names.get(match[0], match[0]), value) for value in values]


def operands_of(sql: str) -> list[str]:
    """Return the columns of an expression."""
    return sorted({word for word in _WORD.findall(sql) if word in SPECIAL})


def renamed(sql: str, number: int) -> str:
    """Return an expression over its own copies of its columns."""
    return _WORD.sub(lambda match: f"{match[0]}__{number}" if match[0] in SPECIAL else match[0], sql)


def computable_rows(rows: pa.Table, native: str) -> list[int]:
    """Return the numbers of the rows for which DuckDB computes an expression without an error."""
    with duckdb.connect() as connection:
        products.define_macros(connection, [native])
        connection.execute("CREATE TABLE scan_0 AS FROM rows")
        query = f"SELECT n FROM scan_0 WHERE TRY(({_ERROR.sub(_FAILURE, native)}) IS NULL) IS NOT NULL ORDER BY n"
        return [row for (row,) in connection.execute(query).fetchall()]
