"""Generated aggregates over generated expressions, compared between DuckDB and plain Spark in both ANSI modes.

python -m tests.generated.aggregates --queries 1000 --seed 7      each query has six expressions
python -m tests.generated.aggregates --one-task                   whole queries, see `queries`
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


COLUMNS = {
    "b": "boolean",
    "i8": "tinyint",
    "i16": "smallint",
    "i32": "int",
    "i64": "bigint",
    "d5": "decimal(5,2)",
    "d15": "decimal(15,2)",
    "d38": "decimal(38,6)",
    "f": "double",
    "day": "date",
    "s": "string",
    "small15": "decimal(15,2)",
}
SMALL = {
    "small15": ["0.00BD", "0.05BD", "-12.34BD", "3.00BD"],
}
"""Values of the columns for most arithmetic: other values overflow, so that Spark computes the query."""
VALUES: dict[str, list[str]] = {
    "boolean": ["true", "false"],
    "tinyint": ["0Y", "1Y", "-1Y", "127Y", "-128Y"],
    "smallint": ["0S", "7S", "-3S", "32767S", "-32768S"],
    "int": ["0", "1", "-1", "12345", "2147483647", "-2147483648"],
    "bigint": ["0L", "1L", "-5L", "9007199254740993L", "9223372036854775807L", "-9223372036854775807L - 1L"],
    "decimal(5,2)": ["0.00BD", "0.01BD", "-999.99BD", "999.99BD", "1.50BD"],
    "decimal(15,2)": ["0.00BD", "9999999999999.99BD", "-9999999999999.99BD", "0.05BD", "1234.56BD"],
    "decimal(38,6)": ["0BD", "99999999999999999999999999999999.999999BD", "-1.000001BD", "0.5BD"],
    "double": [
        "0D",
        "-0.0D",
        "double('NaN')",
        "double('Infinity')",
        "double('-Infinity')",
        "1.5D",
        "1e-300D",
        "-1e300D",
    ],
    "date": ["date'1970-01-01'", "date'0001-01-01'", "date'9999-12-31'", "date'2026-02-28'", "date'1582-10-10'"],
    "string": ["''", "'a'", "'A'", "'ab%c'", "'é'", "'z😀z'", "'it''s'", "' a '", "'_x'", "'abcabc'"],
}
PATTERNS = ["%", "a%", "%a", "%a%", "_b%", "a_c", "", "%é%", "_", "z_z"]
NUMBERS = ("tinyint", "smallint", "int", "bigint", "decimal(5,2)", "decimal(15,2)")
ROWS = 600


def write_rows(spark: SparkSession, folder: str, seed: int = 1, rows: int = ROWS, prefix: str = "") -> None:
    """Write rows of nulls, extremes and ordinary values in two files; column names start with the prefix."""
    rng, names = random.Random(seed), [prefix + name for name in COLUMNS]
    for part in range(2):
        lines = []
        for _ in range(rows // 2):
            values = [
                "NULL" if rng.random() < 0.15 else f"CAST({rng.choice(SMALL.get(name, VALUES[kind]))} AS {kind})"
                for name, kind in COLUMNS.items()
            ]
            lines.append("(" + ", ".join(values) + ")")
        df = spark.sql(f"SELECT * FROM VALUES {', '.join(lines)} AS t({', '.join(names)})").coalesce(1)
        df.write.mode("overwrite" if part == 0 else "append").option("parquet.block.size", 4096).parquet(folder)


@dataclass
class Generator:
    """Generates SQL expressions of a type."""

    rng: random.Random
    columns: Mapping[str, str] = field(default_factory=lambda: COLUMNS)

    def of(self, kind: str, depth: int) -> str:
        """Return an expression of a type."""
        if depth == 0 or self.rng.random() < 0.2:
            return self.leaf(kind)
        makers = [self._case, self._coalesce]
        if kind == "boolean":
            makers = [
                self._compared,
                self._compared,
                self._logic,
                self._null,
                self._listed,
                self._text_test,
                self._between,
            ]
        elif kind in NUMBERS:
            makers += [self._arithmetic] * (2 if kind in {COLUMNS[name] for name in SMALL} else self.rng.random() < 0.1)
        elif kind == "string":
            makers += [self._part, self._in_case]
        if kind == "int":
            makers += [self._of_date, self._sum_of_small]
        if kind in {"int", "bigint"}:
            makers += [self._widened]
        if kind == "decimal(5,2)":
            makers += [self._narrowed, self._of_whole, self._of_quotient]
        return str(self.rng.choice(makers)(kind, depth - 1))

    def leaf(self, kind: str) -> str:
        """Return a column or a literal."""
        columns = [name for name, type_name in self.columns.items() if type_name == kind]
        if columns and self.rng.random() < 0.75:
            return self.rng.choice(columns)
        return (
            f"CAST({self.rng.choice(VALUES[kind])} AS {kind})" if self.rng.random() < 0.95 else f"CAST(NULL AS {kind})"
        )

    def _any(self) -> str:
        kinds = [kind for kind in COLUMNS.values() if kind != "double"]
        return self.rng.choice(kinds) if self.rng.random() < 0.98 else "double"

    def _case(self, kind: str, depth: int) -> str:
        condition, left, right = self.of("boolean", depth), self.of(kind, depth), self.of(kind, depth)
        return self.rng.choice(
            [f"if({condition}, {left}, {right})", f"CASE WHEN {condition} THEN {left} ELSE {right} END"]
        )

    def _coalesce(self, kind: str, depth: int) -> str:
        return f"coalesce({self.of(kind, depth)}, {self.of(kind, depth)})"

    def _arithmetic(self, kind: str, depth: int) -> str:
        operator = self.rng.choice(["+", "-", "*"])
        small = [name for name in SMALL if COLUMNS[name] == kind]
        if small and self.rng.random() < 0.9:
            return f"({small[0]} {operator} {self.rng.choice([small[0], *SMALL[small[0]]])})"
        sum_ = f"({self.of(kind, depth)} {operator} {self.of(kind, depth)})"
        return f"CAST({sum_} AS {kind})" if kind.startswith("decimal") and self.rng.random() < 0.3 else sum_

    def _compared(self, _: str, depth: int) -> str:
        kind = self._any()
        operator = self.rng.choice(["=", "<", "<=", ">", ">=", "<>", "<=>"])
        return f"({self.of(kind, depth)} {operator} {self.of(kind, depth)})"

    def _between(self, _: str, depth: int) -> str:
        kind = self._any()
        return f"({self.of(kind, depth)} BETWEEN {self.leaf(kind)} AND {self.leaf(kind)})"

    def _logic(self, _: str, depth: int) -> str:
        left, right = self.of("boolean", depth), self.of("boolean", depth)
        if self.rng.random() < 0.2:  # both operands fail for the same rows
            value = self.of("int", depth)
            left, right = f"{value} > {self.leaf('int')}", f"{value} <= {self.leaf('int')}"
        return self.rng.choice([f"({left} AND {right})", f"({left} OR {right})", f"(NOT {left})"])

    def _null(self, _: str, depth: int) -> str:
        return f"({self.of(self._any(), depth)} IS {self.rng.choice(['', 'NOT '])}NULL)"

    def _listed(self, _: str, depth: int) -> str:
        kind = self._any()
        values = ", ".join(self.leaf(kind) for _ in range(self.rng.choice([1, 3, 12])))
        return f"({self.of(kind, depth)} IN ({values}))"

    def _text_test(self, _: str, depth: int) -> str:
        text = self.of("string", depth)
        literal = self.rng.choice(VALUES["string"])
        return self.rng.choice(
            [
                f"({text} LIKE '{self.rng.choice(PATTERNS)}')",
                f"startswith({text}, {literal})",
                f"endswith({text}, {literal})",
                f"contains({text}, {literal})",
            ]
        )

    def _part(self, _: str, depth: int) -> str:
        return f"substring({self.of('string', depth)}, {self.rng.choice([1, 2, 3])}, {self.rng.choice([0, 1, 2, 9])})"

    def _of_date(self, _: str, depth: int) -> str:
        return f"{self.rng.choice(['year', 'month', 'day'])}({self.of('date', depth)})"

    def _in_case(self, _: str, depth: int) -> str:
        return f"{self.rng.choice(['upper', 'lower'])}({self.of('string', depth)})"

    def _sum_of_small(self, _: str, depth: int) -> str:
        """Return an operation that rarely overflows, so that values are compared instead of errors."""
        left, right = (f"CAST({self.of(self.rng.choice(['tinyint', 'smallint']), depth)} AS int)" for _ in range(2))
        right = self.rng.choice([right, right, "7", "-3", "0"])
        return f"({left} {self.rng.choice('+-*')} {right})"

    def _of_whole(self, kind: str, depth: int) -> str:
        return f"CAST({self.of('tinyint', depth)} AS {kind})"

    def _of_quotient(self, kind: str, depth: int) -> str:
        """Return a quotient of doubles, often a tie when rounded."""
        whole = self.of(self.rng.choice(["tinyint", "smallint"]), depth)
        return f"CAST(CAST({whole} AS double) / {self.rng.choice(['64D', '160D', '3D', '1000D'])} AS {kind})"

    def _narrowed(self, kind: str, depth: int) -> str:
        return f"CAST({self.of('decimal(15,2)', depth)} AS {kind})"

    def _widened(self, kind: str, depth: int) -> str:
        narrower = {"int": ["tinyint", "smallint"], "bigint": ["tinyint", "smallint", "int"]}[kind]
        return f"CAST({self.of(self.rng.choice(narrower), depth)} AS {kind})"


OTHER = "u_"
"""Prefix of the small table's column names."""
OTHER_ROWS = 24
EXPRESSIONS = 6
"""Expressions per query."""


def _join(rng: random.Random) -> tuple[str, Mapping[str, str]]:
    """Return a join with the small table, which Spark broadcasts, and the columns of its result."""
    kind = rng.choice(["INNER", "INNER", "LEFT OUTER", "LEFT SEMI", "LEFT ANTI"])
    both = COLUMNS | {OTHER + name: type_name for name, type_name in COLUMNS.items()}
    keys = rng.sample([name for name, type_name in COLUMNS.items() if type_name != "double"], rng.choice([1, 1, 2]))
    conditions = [f"{key} = {OTHER}{key}" for key in keys]
    if rng.random() < 0.3:
        conditions.append(Generator(rng, both).of("boolean", 1))
    columns = both if kind in {"INNER", "LEFT OUTER"} else COLUMNS
    return f" {kind} JOIN u ON {' AND '.join(conditions)}", columns


def query(seed: int) -> str:
    """Return a query that aggregates six expressions of a table or of a join with the small table."""
    rng = random.Random(seed)
    join, columns = _join(rng) if rng.random() < 0.5 else ("", COLUMNS)
    make = Generator(rng, columns)
    aggregates = []
    for index in range(EXPRESSIONS):
        kind = rng.choice(list(COLUMNS.values()))
        text = make.of(kind, rng.choice([1, 2, 3]))
        function = rng.choice(["min", "max", "count", "sum", "avg"])
        if (
            (function in {"sum", "avg"} and kind not in NUMBERS)
            or kind == "double"
            or (function == "avg" and "int" in kind)
        ):
            function = "count"
        filter_clause = f" FILTER (WHERE {make.of('boolean', 1)})" if rng.random() < 0.2 else ""
        aggregates.append(f"{function}({text}){filter_clause} AS a{index}")
    where = f" WHERE {make.of('boolean', 2)}" if rng.random() < 0.6 else ""
    keys = rng.sample(["b", "i8", "d5", "day", "s"], rng.choice([0, 1, 1, 2]))
    keys = [*keys, make.of(rng.choice(["int", "string"]), 1)] if rng.random() < 0.2 else keys
    named = [f"{key} AS k{index}" for index, key in enumerate(keys)]
    grouped = f" GROUP BY {', '.join(keys)}" if keys else ""
    return f"SELECT {', '.join([*named, *aggregates])} FROM t{join}{where}{grouped}"


def outcome(run: Any) -> list[str] | str:
    """Return the rows of a query as sorted texts, or "an error"."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    from penstock.errors import JobError

    try:
        return sorted(map(str, run()))
    except (PySparkException, Py4JJavaError, JobError):
        return "an error"  # tasks race, so that any of several errors may be reported


def main() -> int:
    """Compare the requested number of queries; print the differences."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--one-task", action="store_true", help="let one task compute each query")
    arguments = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    logging.disable(logging.ERROR)
    import pytest
    from pyspark.sql import SparkSession

    from penstock import Environment
    from tests.duckdb.queries import query_with_join
    from tests.support.native import compute_all_natively
    from tests.support.stages import computed_by_duckdb

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.log.level", "OFF").config("spark.sql.shuffle.partitions", "2")
    builder = builder.config("spark.sql.codegen.wholeStage", "false").config(
        "spark.sql.codegen.factoryMode", "NO_CODEGEN"
    )
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    threshold = int(arguments.one_task)  # bytes; at 0, no query runs in a single task
    options = {"execution.native": True, "execution.batch.adaptive.whole-query-threshold": threshold}
    compute_all_natively(pytest.MonkeyPatch())
    env = Environment(spark, config=options, progress=False)
    differ = native = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        write_rows(spark, folder + "/t")
        write_rows(spark, folder + "/u", 2, OTHER_ROWS, OTHER)
        for table in ("t", "u"):
            spark.read.parquet(f"{folder}/{table}").createOrReplaceTempView(table)
        for number in range(arguments.queries):
            seed = arguments.seed * 1_000_000 + number
            text = query_with_join(seed) if arguments.one_task and number % 2 else query(seed)
            spark.conf.set("spark.sql.ansi.enabled", str(number % 2 == 0).lower())
            # In every other pair of queries, joins are over exchanged columns.
            spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1" if number % 4 > 1 else "10m")
            plain = outcome(lambda text=text: spark.sql(text).collect())
            ours = outcome(lambda text=text: env.collect(spark.sql(text)))
            native += computed_by_duckdb(env.last_job)
            failed += isinstance(plain, str)
            if plain != ours:
                differ += 1
                print(f"DIFFERS {text}\n  plain {plain[:3]}\n  ours  {ours[:3]}", flush=True)
            if number % 100 == 99:
                print(f"{number + 1} queries, {native} by DuckDB, {failed} with an error, {differ} differ", flush=True)
    print(
        f"{arguments.queries} queries of {EXPRESSIONS} expressions: {native} by DuckDB, {failed} fail, {differ} differ"
    )
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
