"""Compares expressions over a table of values between plain Spark and DuckDB."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

import duckdb
from penstock import Environment
from tests.duckdb.expressions.values import SPECIAL
from tests.duckdb.traps import whole_query_plan
from tests.support.stages import computed_by_duckdb

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WORD = re.compile(r"""'(?:[^'\\]|\\.)*'|\b[a-z_]+\d?\b""")
_TYPES = {"int": "INTEGER", "string": "VARCHAR"}
_MAX_SEPARATE_QUERIES = 150
"""The maximum number of operands for which DuckDB computes an expression separately, if it fails for some."""
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
        columns = self._computable_columns(rows)
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
        for number, sql in enumerate(self.expressions):
            assert any(row[number + 1] is not None for row in expected), f"{sql} has no values"
        return differences

    def declined(self, rows: pa.Table, excluded: Sequence[str] = ()) -> dict[str, str]:
        """Return the expressions that DuckDB does not compute, with the reasons."""
        path = self._write(rows)
        plans = {sql: whole_query_plan(self.spark, self._query(path, [sql]), excluded) for sql in self.expressions}
        return {sql: reason for sql, reason in plans.items() if isinstance(reason, str)}

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

    def _computable_columns(self, rows: pa.Table) -> dict[str, pa.ChunkedArray]:
        """Return the operands of each expression, for rows on which DuckDB does not fail."""
        path = self._write(rows)
        translated = self._translated(path)
        self._check_types(rows, self._query(path, self.expressions), translated)
        columns = {"n": rows["n"]}
        for number, (sql, native) in enumerate(zip(self.expressions, translated, strict=True)):
            indices = computable_rows(rows, sql, native)
            assert indices, f"DuckDB fails for all rows of {sql}"
            padded = pa.array([indices[row % len(indices)] for row in range(rows.num_rows)])
            columns |= {f"{name}__{number}": rows[name].take(padded) for name in operands_of(sql)}
        return columns

    def _check_types(self, rows: pa.Table, df: DataFrame, translated: Sequence[str]) -> None:
        """Check that DuckDB's types are those of Spark, as the type of an operand decides on overflows and rounding."""
        with duckdb.connect() as connection:
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


def computable_rows(rows: pa.Table, sql: str, native: str) -> list[int]:
    """Return the numbers of the rows for which DuckDB computes an expression without an error."""
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE scan_0 AS FROM rows")
        try:
            connection.execute(f"SELECT {native} FROM scan_0").fetchall()
        except duckdb.Error:
            pass
        else:
            return list(range(rows.num_rows))
        rows_by_operands: dict[str, list[int]] = {}
        for row, operands in enumerate(zip(*(rows[name].to_pylist() for name in operands_of(sql)), strict=True)):
            rows_by_operands.setdefault(repr(operands), []).append(row)
        sample = islice(rows_by_operands.values(), _MAX_SEPARATE_QUERIES)
        return sorted(chain.from_iterable(equal for equal in sample if _is_computed(connection, native, equal[0])))


def _is_computed(connection: duckdb.DuckDBPyConnection, native: str, row: int) -> bool:
    try:
        connection.execute(f"SELECT {native} FROM scan_0 WHERE n = ?", [row]).fetchall()
    except duckdb.Error:
        return False
    return True
